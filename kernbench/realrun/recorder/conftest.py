"""Keeps pytest's search for doctests out of the modules that import PyTorch, which a development environment lacks."""

collect_ignore = ["decode.py", "gpu.py", "micro.py", "prefill.py", "work.py"]
