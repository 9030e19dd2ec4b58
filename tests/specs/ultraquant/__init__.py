"""Tests of the UltraQuant specs, with a model of the format and the kernel of their own (``independent``)."""
