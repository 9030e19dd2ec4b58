"""The version, in one place: the build reads it from here and results carry it."""

__version__ = "0.1.0"
