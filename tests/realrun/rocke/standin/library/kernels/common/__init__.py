"""Kernels of the stand-in that serve every architecture."""
