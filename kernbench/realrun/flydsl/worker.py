"""Compiles a build of the kernel under FlyDSL: a script for the Python that has it, which need not have kernbench.

    python worker.py VLLM < REQUEST

``VLLM`` holds ``vllm/``. ``REQUEST`` is JSON: the builder's parameters (``build``), format, shape and strides of each
argument (``tensors``), and the ``grid``. FlyDSL dumps assembly text to where its environment says;
:mod:`kernbench.realrun.flydsl.build` sets it.
"""

import importlib
import json
import os
import sys
import types
from typing import Any

PACKAGE = "vllm.v1.attention.ops"


def import_kernel(root: str) -> Any:
    """Import the kernel's module under empty packages, as vLLM's own would import all of vLLM."""
    for depth in range(1, len(PACKAGE.split(".")) + 1):
        name = ".".join(PACKAGE.split(".")[:depth])
        package = types.ModuleType(name)
        package.__path__ = [os.path.join(root, *name.split("."))]
        sys.modules[name] = package
    return importlib.import_module(f"{PACKAGE}.flydsl_kernels.ultraquant_decode_hd256")


def compile_build(kernels: Any, request: dict[str, Any]) -> None:
    """Compile the build; FlyDSL dumps its assembly text."""
    import flydsl.compiler as flyc
    import flydsl.expr as fx
    import torch

    kernel = kernels.build_ultraquant_decode_hd256_module(**request["build"])

    @flyc.jit
    def launch(out, sums, maxima, query, cache, centroids, tables, lengths, x: fx.Int32, y: fx.Int32, z: fx.Int32,
               stream: fx.Stream):  # fmt: skip
        kernel(out, sums, maxima, query, cache, centroids, tables, lengths).launch(
            grid=(x, y, z), block=(64, 1, 1), stream=stream
        )

    tensors = []
    for dtype, shape, strides in request["tensors"]:
        if strides is None:
            tensors.append(torch.empty(shape, dtype=getattr(torch, dtype)))
        else:
            tensors.append(torch.empty_strided(shape, strides, dtype=getattr(torch, dtype)))
    launch(*tensors, *request["grid"], 0)


if __name__ == "__main__":
    del sys.path[0]  # this file's neighbours have names that packages might look for
    compile_build(import_kernel(sys.argv[1]), json.load(sys.stdin))
