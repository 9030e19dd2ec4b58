"""Finds vLLM's kernel and FlyDSL's Python, and compiles builds of the kernel for gfx950. Neither needs a GPU."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

from kernbench.errors import InputError
from kernbench.realrun.amdgcn.code_object import VERSIONS
from kernbench.specs.ultraquant import UltraQuantDecodeSpec

VLLM, FLYDSL, ARCH = "0.33.0", "0.5.0", "gfx950"
KERNELS = "vllm/v1/attention/ops/flydsl_kernels"
NEEDED = tuple(f"{KERNELS}/{name}.py" for name in ("__init__", "buffer_utils", "mma_utils", "ultraquant_decode_hd256"))
"""What the kernel is made of; the rest of vLLM is not imported."""
_VERSION = re.compile(r"^__version__\b[^'\"\n]*['\"]([^'\"]+)['\"]", re.MULTILINE)
_DTYPES = {"bf16": "bfloat16", "f32": "float32", "u8": "uint8", "i32": "int32"}
"""PyTorch's names."""


def find_kernel(vllm: Path, work: Path) -> Path:
    """Return the directory that holds ``vllm/`` with the kernel.

    Parameters
    ----------
    vllm
        A directory that holds ``vllm/``, such as ``site-packages``, or a wheel.
    work
        Where a wheel's files of the kernel are unpacked.

    Raises
    ------
    InputError
        There is no vLLM, it is of another version, or it does not have the kernel.
    """
    if vllm.is_dir():
        root = vllm
    elif zipfile.is_zipfile(vllm):
        root = work / "vllm"
        with zipfile.ZipFile(vllm) as wheel:
            for name in {*NEEDED, "vllm/_version.py"} & set(wheel.namelist()):
                wheel.extract(name, root)
    else:
        raise InputError(f"{vllm}: expected a directory that holds vllm/, or vLLM's wheel")
    version = root / "vllm" / "_version.py"
    found = _VERSION.search(version.read_text(encoding="utf-8")) if version.is_file() else None
    if found is None:
        raise InputError(f"{vllm}: holds no vllm/_version.py that names a version")
    if found[1] != VLLM:
        raise InputError(f"{vllm}: is vLLM {found[1]}; what is known here of the kernel holds for {VLLM}")
    for name in NEEDED:
        if not (root / name).is_file():
            raise InputError(f"{vllm}: has no {name}; the wheel of vLLM {VLLM} has it")
    return root


def find_versions(python: str) -> dict[str, str]:
    """Return the versions of FlyDSL and PyTorch that a Python has.

    Raises
    ------
    InputError
        One is missing, or FlyDSL is of another version than ``FLYDSL``.
    """
    ask = "import importlib.metadata as m; print(*(f'{n}={m.version(n)}' for n in ('flydsl', 'torch')))"
    try:
        done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
    except OSError as error:
        raise InputError(f"--python {python}: {error.strerror}") from None
    if done.returncode:
        raise InputError(f"{python} has not both flydsl and torch: install flydsl=={FLYDSL} and torch, or name the "
                         "Python that has them by --python")  # fmt: skip
    versions = dict(word.split("=", 1) for word in done.stdout.split())
    if versions["flydsl"] != FLYDSL:
        raise InputError(f"{python} has FlyDSL {versions['flydsl']}; {FLYDSL} is what vLLM {VLLM} was compiled by here")
    return versions


def compile_kernel(spec: UltraQuantDecodeSpec, python: str, vllm: Path, work: Path) -> Path:
    """Compile one build and return the file of its assembly text.

    Parameters
    ----------
    python
        A Python with FlyDSL; see :func:`find_versions`.
    vllm
        As :func:`find_kernel` returns it.
    work
        An empty directory to write to.

    Raises
    ------
    InputError
        There is no linker, or FlyDSL fails.
    """
    settings = {
        "COMPILE_ONLY": "1", "ARCH": ARCH, "FLYDSL_GPU_ARCH": ARCH, "FLYDSL_DEBUG_DUMP_ASM": "1",
        "FLYDSL_DUMP_DIR": str(work), "FLYDSL_RUNTIME_ENABLE_CACHE": "0", "ROCM_PATH": str(_find_rocm(work)),
    }  # fmt: skip
    worker = Path(__file__).with_name("worker.py")
    done = subprocess.run(
        [python, str(worker), str(vllm)], input=json.dumps(_request(spec)), env=os.environ | settings,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise InputError(f"FlyDSL did not compile the kernel: {reason}")
    found = sorted(work.rglob("*.s"))
    if len(found) != 1:
        raise InputError(f"FlyDSL left {len(found)} files of assembly text, expected one")
    return found[0]


def _request(spec: UltraQuantDecodeSpec) -> dict[str, Any]:
    """Say what the worker builds: the builder's parameters, the tensors it is compiled for, and the grid."""
    tensors = [
        [_DTYPES[a.dtype], [1 if n == "num_blocks" else n for n in a.shape], query_strides(spec, a.name)]
        for a in spec.signature()
    ]
    build = {name: getattr(spec, name) for name in spec.__dataclass_fields__}
    return {"build": build, "tensors": tensors, "grid": spec.grid()}


def query_strides(spec: UltraQuantDecodeSpec, argument: str) -> tuple[int, ...] | None:
    """Return the strides of an argument in elements; None: it has no gaps."""
    if argument != "query":
        return None
    return spec.query_offset(1, 0), spec.query_offset(0, 1), 1


def _find_rocm(work: Path) -> Path:
    """Return a root below which FlyDSL finds its linker: ROCm's, or one made of an installed LLVM's."""
    for root in (os.environ.get("ROCM_PATH"), "/opt/rocm"):
        if root and (Path(root) / "llvm/bin/ld.lld").exists():
            return Path(root)
    linker = next((path for version in VERSIONS if (path := shutil.which("ld.lld" + version))), None)
    if linker is None:
        raise InputError("FlyDSL links by ld.lld, which is not installed: ROCm has it, and LLVM (package lld-22)")
    tools = work / "rocm/llvm/bin"
    tools.mkdir(parents=True, exist_ok=True)
    (tools / "ld.lld").symlink_to(linker)
    return work / "rocm"
