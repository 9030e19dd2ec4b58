"""The picture of a machine: where boxes stand (``layout``), lines, legend, and the painting of them (``picture``)."""
