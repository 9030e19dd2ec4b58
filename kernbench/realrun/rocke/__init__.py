"""kernbench's rocke kernels held against a user's own checkout of rocke; docs/machine-code-rocke.md describes it.

Nothing here contains or imports rocke: a child process (:mod:`~kernbench.realrun.rocke.worker`) imports the checkout.
"""
