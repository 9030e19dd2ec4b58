"""What an attention kernel is asked to compute: specs, their inputs, the reference, and how close is right.

Nothing here knows of kernels, machines or time.
"""
