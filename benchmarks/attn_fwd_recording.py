"""Hold executed machine code against counters that were recorded on a real GPU: attention forward by Triton.

    python benchmarks/attn_fwd_recording.py PATH_OF_flash-attention.py
    python benchmarks/attn_fwd_recording.py [--fixture tests/realrun/amdgcn/fixtures]

The recording is public: rocprofv3's counters of ``attn_fwd``, printed in python/perf-kernels/tools/rocm-triton-prof/
README.md of ROCm/triton at 46ee4096, for ``-b 2 -hq 16 -hk 16 -sq 8192 -sk 8192 -d 128 -causal -layout thd``. The
script draws sequences of 3428 and 2523 tokens for that.

With a path, the kernel in your own copy of ROCm/triton's python/perf-kernels/flash-attention.py is compiled, as of
138c191f or another version with the same arguments. Without one, kernbench's own kernel of the same work is, and
``--fixture`` writes its code. Needs Triton 3.3.0 and an LLVM linker, whose path stands in TRITON_HIP_LLD_PATH
(Debian's ld.lld-22 will do); neither PyTorch nor a GPU. One head of both sequences is executed; heads do equal work.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import importlib
import json
import math
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernbench.realrun import amdgcn

TRITON, ARCH = "3.3.0", "gfx942"
SEQUENCES, HEADS, D, BM, BN, WAVES = (3428, 2523), 16, 128, 128, 64, 4
OPTIONS = {"num_warps": WAVES, "num_stages": 1, "waves_per_eu": 2}
RECORDED = {
    "SQ_INSTS_VALU_MFMA_MOPS_F16": 154140672,
    "SQ_INSTS_VALU_TRANS_F32": 2489728,
    "SQ_INSTS_VALU_MUL_F32": 2411456,
    "SQ_INSTS_VALU_ADD_F32": 4898176,
    "SQ_INSTS_VALU_FMA_F16": 192512,
    "SQ_INSTS_VALU_FMA_F32": 2486720,
}
EXACT, SHORT = "exact division", "short division"
Signature = tuple[dict[str, str], dict[str, Any], dict[tuple[int], list[list[Any]]]]
"""Types, constants, and attributes of the arguments, as Triton takes them."""
Arranged = tuple[list[Any], list[NDArray[np.float16]], NDArray[np.float16], NDArray[np.float32]]
"""Arguments of a launch, and among them q, k and v, the output, and the logarithms of the sums."""


def read_kernels(path: Path, place: Path) -> ModuleType:
    """Return the jitted functions of a script as a module, without the rest, which needs PyTorch and a GPU."""
    text = path.read_text()
    try:
        body = ast.parse(text).body
    except SyntaxError as error:
        raise SystemExit(f"{path}:{error.lineno}: not Python: {error.msg}") from None
    functions = [
        node
        for node in body
        if isinstance(node, ast.FunctionDef) and "triton.jit" in map(ast.unparse, node.decorator_list)
    ]
    lines = text.splitlines()
    bodies = ["@triton.jit\n" + "\n".join(lines[f.lineno - 1 : f.end_lineno]) for f in functions]
    if "attn_fwd" not in [f.name for f in functions]:
        raise SystemExit(f"{path} has no jitted function attn_fwd")
    (place / "jitted.py").write_text("\n\n".join(["import triton\nimport triton.language as tl", *bodies]) + "\n")
    sys.path.insert(0, str(place))
    return importlib.import_module("jitted")


def script_signature(names: list[str]) -> Signature:
    """Return the types that the script's launch has: packed tokens of 16 heads, no bias, no dropout, not persistent."""
    flags = ("PERSISTENT", "PERSISTENT_DYNAMIC", "PRE_LOAD_V", "USE_BIAS", "ENABLE_DROPOUT", "RETURN_ENCODED_SOFTMAX",
             "USE_ALIBI", "INT8", "USE_P_SCALE", "INT8_KV")  # fmt: skip
    absent = ("bias", "encoded_softmax", "alibi_slopes", "Q_descale", "K_descale", "P_scale", "P_descale", "V_descale")
    constants: dict[str, Any] = dict.fromkeys(flags, False) | dict.fromkeys(absent)
    constants |= {"VARLEN": True, "IS_CAUSAL": True, "HQ": HEADS, "HK": HEADS, "ACTUAL_BLOCK_DMODEL": D,
                  "BLOCK_DMODEL": D, "BLOCK_M": BM, "BLOCK_N": BN, "MAX_SEQLENS_Q": max(SEQUENCES),
                  "MAX_SEQLENS_K": max(SEQUENCES), "B": len(SEQUENCES), "SM_SCALE": D**-0.5, "GRID_CU_MULTIP": 2,
                  "NUM_CU": 304, "stride_qk": 1, "stride_kk": 1, "stride_vn": 1, "stride_on": 1}  # fmt: skip
    types = dict.fromkeys(("Q", "K", "V", "Out"), "*fp16") | {"L": "*fp32", "dropout_p": "fp32"}
    types |= dict.fromkeys(("cu_seqlens_q", "cu_seqlens_k", "atomic_counter"), "*i32")
    return _signature(names, types, {name: constants[name] for name in names if name in constants})


def own_signature(names: list[str]) -> Signature:
    """Return the types of :func:`kernbench.realrun.kernels.flash_varlen.flash_varlen`."""
    types = dict.fromkeys(("q", "k", "v", "o"), "*fp16") | {"lse": "*fp32", "starts": "*i32", "qk_scale": "fp32"}
    return _signature(names, types, {"D": D, "BM": BM, "BN": BN})


def _signature(names: list[str], types: dict[str, str], constants: dict[str, Any]) -> Signature:
    """Complete a signature: what is named nowhere is an integer; strides are multiples of 16."""
    kinds = {name: "constexpr" if name in constants else types.get(name, "i32") for name in names}
    aligned = {
        (at,): [["tt.divisibility", 16]]
        for at, (name, kind) in enumerate(kinds.items())
        if kind.startswith("*") or (name.startswith("stride") and kind == "i32")
    }
    return kinds, constants, aligned


def compile_kernel(function: Any, signature: Signature) -> tuple[dict[str, str], int]:
    """Return the machine code with both ways of dividing, and the LDS bytes of a workgroup."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend

    types, constants, attributes = signature
    target = GPUTarget("hip", ARCH, 64)
    source = ASTSource(fn=function, signature=types, constexprs=constants, attrs=attributes)
    made = triton.compile(source, target=target, options=OPTIONS)
    backend = make_backend(target)
    stages: dict[str, Any] = {}
    backend.add_stages(stages, backend.parse_options(OPTIONS))
    short = stages["amdgcn"](divide_shortly(made.asm["llir"]), {})
    return {EXACT: made.asm["amdgcn"], SHORT: short}, made.metadata.shared


def divide_shortly(llvm: str) -> str:
    """Replace divisions in LLVM's text by what Triton made of them between its pull requests 5474 and 7163.

    The hardware's steps of a division without the two rounds of Newton's method between them.
    """
    numbers = iter(range(1000))

    def steps(found: re.Match[str]) -> str:
        result, over, under = found.groups()
        t = f"%short{next(numbers)}"
        pair, call = "{ float, i1 }", "call float @llvm.amdgcn"
        scale = f"call {pair} @llvm.amdgcn.div.scale.f32(float {over}, float {under}, i1"
        return "\n".join((
            f"  {t}d = {scale} false)", f"  {t}n = {scale} true)",
            f"  {t}dv = extractvalue {pair} {t}d, 0", f"  {t}nv = extractvalue {pair} {t}n, 0",
            f"  {t}cc = extractvalue {pair} {t}n, 1", f"  {t}r = {call}.rcp.f32(float {t}dv)",
            f"  {t}m = fmul float {t}nv, {t}r",
            f"  {t}f = {call}.div.fmas.f32(float 0.0, float 0.0, float {t}m, i1 {t}cc)",
            f"  {result} = {call}.div.fixup.f32(float {t}f, float {under}, float {over})",
        ))  # fmt: skip

    text, count = re.subn(r"^  (%\S+) = fdiv float ([^,]+), ([^,\s]+)[^\n]*$", steps, llvm, flags=re.MULTILINE)
    if not count:
        raise SystemExit("the kernel's LLVM text has no division of float")
    declared = {
        "div.scale.f32": "{ float, i1 } @{}(float, float, i1 immarg)",
        "rcp.f32": "float @{}(float)",
        "div.fmas.f32": "float @{}(float, float, float, i1)",
        "div.fixup.f32": "float @{}(float, float, float)",
    }
    for name, kind in declared.items():
        full = f"llvm.amdgcn.{name}"
        if not re.search(rf"^declare .*@{re.escape(full)}\(", text, re.MULTILINE):
            text += "\ndeclare " + kind.replace("@{}", f"@{full}") + "\n"
    return text


def operands() -> tuple[list[NDArray[np.float16]], NDArray[np.int32]]:
    """Return q, k and v of packed tokens, and where the sequences begin."""
    rng = np.random.default_rng(20)
    starts = np.concatenate([[0], np.cumsum(SEQUENCES)]).astype(np.int32)
    qkv = [(0.5 * rng.standard_normal((starts[-1], HEADS, D), np.float32)).astype(np.float16) for _ in range(3)]
    return qkv, starts


def script_arguments(kernel: amdgcn.Kernel, types: dict[str, str]) -> Arranged:
    """Return the arguments of the script's kernel."""
    (q, k, v), starts = operands()
    o = np.zeros_like(q)
    log_sums = np.zeros((len(SEQUENCES), HEADS, max(SEQUENCES)), np.float32)
    given: dict[str, Any] = {"Q": q, "K": k, "V": v, "Out": o, "L": log_sums, "cu_seqlens_q": starts,
                             "cu_seqlens_k": starts, "dropout_p": 0.0, "philox_seed": 0x1BF52,
                             "philox_offset_base": 0x1D4B42, "atomic_counter": np.zeros(1, np.int32)}  # fmt: skip
    strides = {"z": 0, "h": D, "m": HEADS * D, "n": HEADS * D, "k": HEADS * D}
    for name in types:
        if name.startswith("stride"):
            tensor, axis = name[-2:]
            given[name] = 0 if tensor in "ab" else strides[axis]
    wanted = [name for name, kind in types.items() if kind != "constexpr"]
    if unknown := [name for name in wanted if name not in given]:
        raise SystemExit(f"attn_fwd takes {', '.join(unknown)}, which the recorded script does not have")
    args = [given[name] for name in wanted]
    args += [None] * (len(kernel.arguments) - len(args))
    return args, [q, k, v], o, log_sums


def own_arguments(kernel: amdgcn.Kernel, types: dict[str, str]) -> Arranged:
    """Return the arguments of our kernel."""
    (q, k, v), starts = operands()
    o = np.zeros_like(q)
    log_sums = np.zeros((len(SEQUENCES), 1, max(SEQUENCES)), np.float32)
    args = [q, k, v, o, log_sums, starts, max(SEQUENCES), HEADS * D, math.log2(math.e) / math.sqrt(D)]
    return [*args, *[None] * (len(kernel.arguments) - len(args))], [q, k, v], o, log_sums


def sequences() -> Iterator[slice]:
    """Yield the tokens of each sequence."""
    first = 0
    for count in SEQUENCES:
        yield slice(first, first + count)
        first += count


def largest_errors(
    qkv: list[NDArray[np.float16]], o: NDArray[np.float16], log_sums: NDArray[np.float32]
) -> tuple[float, float]:
    """Return the largest errors of head 0 against float64: of the output, and of log2 of the sums."""
    errors = []
    for at, tokens in enumerate(sequences()):
        q, k, v = (x[tokens, 0].astype(np.float64) for x in qkv)
        s = np.where(np.tri(len(q), dtype=bool), q @ k.T * (math.log2(math.e) / math.sqrt(D)), -np.inf)
        top = s.max(1, keepdims=True)
        p = np.exp2(s - top)
        total = p.sum(1, keepdims=True)
        error = np.abs(o[tokens, 0] - p @ v / total).max()
        errors.append((error, np.abs(log_sums[at, 0, : len(q)] - (top + np.log2(total))[:, 0]).max()))
    return max(e for e, _ in errors), max(e for _, e in errors)


def print_counters(found: dict[str, int]) -> None:
    """Print what was recorded beside what was counted, for all heads, and the difference for each wave of a tile."""
    blocks = WAVES * HEADS * sum(-(-count // BM) for count in SEQUENCES)
    print(f"{'':28s} {'recorded':>10s} {'executed':>10s} {'difference':>10s}  in each wave of each {BM} queries")
    for name, recorded in RECORDED.items():
        executed = HEADS * found.get(name, 0)
        difference = executed - recorded
        print(f"{name:28s} {recorded:10d} {executed:10d} {difference:10d}  {difference / blocks:g}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("script", nargs="?", type=Path, help="your copy of flash-attention.py")
    parser.add_argument("--fixture", type=Path, help="where to write the code of our own kernel")
    given = parser.parse_args()
    if given.script and given.fixture:
        parser.error("--fixture writes the code of kernbench's kernel only: give no script")
    if given.script and not given.script.is_file():
        parser.error(f"{given.script} is not a file")
    os.environ |= {"TRITON_DISABLE_LINE_INFO": "1", "TRITON_ALWAYS_COMPILE": "1"}
    import triton

    if triton.__version__ != TRITON:
        print(f"needs Triton {TRITON}, this is {triton.__version__}")
        return 1
    with tempfile.TemporaryDirectory() as place:
        if given.script:
            function, sign, arrange = (
                read_kernels(given.script, Path(place)).attn_fwd,
                script_signature,
                script_arguments,
            )
        else:
            from kernbench.realrun.kernels.flash_varlen import flash_varlen

            function, sign, arrange = flash_varlen, own_signature, own_arguments
        signature = sign(function.arg_names)
        texts, lds_bytes = compile_kernel(function, signature)
    for division, text in texts.items():
        (kernel,) = amdgcn.load(text).values()
        args, qkv, o, log_sums = arrange(kernel, signature[0])
        start = time.process_time()
        done = kernel.launch((-(-max(SEQUENCES) // BM), 1, len(SEQUENCES)), 64 * WAVES, args, lds_bytes)
        seconds = time.process_time() - start
        error, log_error = largest_errors(qkv, o, log_sums)
        print(
            f"{kernel.name}, Triton {TRITON}, {division}: {done.counters['SQ_INSTS']} instructions in {seconds:.1f} s"
        )
        print(f"largest error against float64: {error:.1e}, of the sums' logarithm {log_error:.1e}")
        print_counters(done.counters)
    if given.fixture:
        write_fixture(given.fixture, texts[EXACT], lds_bytes)
    return 0


def write_fixture(place: Path, text: str, lds_bytes: int) -> None:
    """Write the code of our own kernel, and beside it how it is launched and what compiled it."""
    (place / f"flash_varlen.{ARCH}.s.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    made = {"compiler": f"triton {TRITON}", "kernel": "flash_varlen", "waves": WAVES, "lds_bytes": lds_bytes,
            "constants": {"D": D, "BM": BM, "BN": BN}, "options": OPTIONS}  # fmt: skip
    (place / f"flash_varlen.{ARCH}.json").write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    sys.exit(main())
