"""Keeps doctest collection away from a helper that imports Triton."""

collect_ignore = ["interpreted.py"]
