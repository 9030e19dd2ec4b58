"""Tests of kernels for grids of workgroups: recorded, executed, lowered and run."""
