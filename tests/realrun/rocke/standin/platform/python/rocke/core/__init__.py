"""Core of the stand-in."""
