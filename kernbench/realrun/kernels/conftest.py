"""Keeps pytest's search for doctests out: these modules import Triton, which a development environment lacks."""

collect_ignore_glob = ["*.py"]
