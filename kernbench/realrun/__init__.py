"""Real kernels: runs that were recorded on hardware, and how kernbench's times compare with them."""
