"""Recordings on one and two NVIDIA H200s, which came before the run record had its present form."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import ValidationError

from kernbench.errors import InputError
from kernbench.realrun.records import Device, RunRecord

_T = TypeVar("_T")

_SPEC = {
    "batch": "batch", "num_q_heads": "h_q", "num_kv_heads": "h_kv", "seqlen_q": "s_q", "seqlen_k": "s_kv",
    "dtype": "dtype", "kv_dtype": "kv_dtype", "causal": "causal", "density": "density", "kept_blocks": "kept_blocks",
    "mask_seed": "mask_seed", "block_q": "block_q", "block_k": "block_k", "bytes": "nbytes", "gathered_bytes": "nbytes",
    "world": "world",
}  # fmt: skip
_IMPLEMENTATION = {
    "impl": "name", "grid": "grid", "block_m": "block_m", "block_n": "block_n", "num_warps": "waves",
    "num_stages": "stages", "num_splits": "splits", "regs": "registers", "spills": "spills", "smem_bytes": "lds_bytes",
}  # fmt: skip
_FAMILIES = {  # kind: family and mode
    "decode_splitkv": ("decode_splitkv", None), "prefill": ("prefill", None), "jenga_skip": ("block_sparse", "skip"),
    "jenga_mask": ("block_sparse", "mask"), "sequence_parallel_decode": ("sequence_parallel_decode", None),
    "copy_peer": ("collective", "copy_peer"), "send_recv": ("collective", "send_recv"),
    "all_reduce": ("collective", "all_reduce"), "all_gather": ("collective", "all_gather"),
    "reduce_scatter": ("collective", "reduce_scatter"),
}  # fmt: skip
_TIMES = {"time_us": "cold", "warm_us": "warm", "graph_us": "warm", "partial_us": "partial", "reduce_us": "reduce"}
_ARCH = {"NVIDIA H200": "sm_90"}
"""For machine lines that do not give it."""
_OTHER = {"id", "kind", "head_dim", "rel_err", "tflops", "gbps", "local_reduce_us", "all_gather_us", "merge_us"}
_KNOWN = _OTHER | set(_SPEC) | set(_IMPLEMENTATION) | set(_TIMES)


class Recordings:
    """Converts lines; the line of kind ``machine`` above them says where they ran.

    Without one (a part of a recording, say) they are taken for runs on an H200, where all recordings of this form were
    made; their caveat says so.
    """

    def __init__(self, lines: list[tuple[str, dict[str, Any]]]) -> None:
        machines = [(where, line) for where, line in lines if line["kind"] == "machine"]
        self.unplaced = "" if machines else "the file does not say where: taken for an NVIDIA H200; "
        if machines:
            self._enter(machines[0][1], machines[0][0])
        elif lines:
            worlds = [line.get("world") for _, line in lines]
            self._enter({"gpu": "NVIDIA H200", "gpus": max([w for w in worlds if isinstance(w, int)], default=1)}, "")

    def _enter(self, line: dict[str, Any], where: str) -> None:
        gpu = line.get("gpu")
        named = re.search(r"arch=(\d+)", str(line.get("arch", "")))
        arch = f"sm_{named[1]}" if named else _ARCH.get(str(gpu))
        if not isinstance(gpu, str) or arch is None:
            raise InputError(f"{where}: gpu: the machine line names no GPU of known architecture: {gpu!r}")
        versions = {k: str(line[k]) for k in ("torch", "triton", "cuda", "hip", "nccl") if line.get(k)}
        count = line.get("gpus", 1)
        self.device = _checked(lambda: Device(gpu=gpu, arch=arch, count=count, versions=versions), where)
        software = " and ".join(
            f"{name} {versions[key].partition('+')[0]}"
            for key, name in (("torch", "PyTorch"), ("triton", "Triton"), ("nccl", "NCCL"))
            if key in versions
        )
        number = "one" if count == 1 else "two" if count == 2 else str(count)
        self.source = f"kernbench's own recording on {number} {gpu}{'s' if count != 1 else ''}, {software}"

    def convert(self, line: dict[str, Any], where: str) -> RunRecord | str | None:
        """Make a record of a line, or say why it can be none; None for a machine, which is no run.

        Raises
        ------
        InputError
            If a field is missing or wrong; names ``where`` and the field.
        """
        kind = line["kind"]
        if kind == "machine":
            self._enter(line, where)
            return None
        if not isinstance(kind, str):
            raise InputError(f"{where}: kind: expected a name, found {kind!r}")
        family, mode = _FAMILIES.get(kind, (None, None))
        if kind == "sdpa":
            family = "sdpa_cudnn" if "cudnn" in str(line.get("impl")) else "sdpa_flash"
        elif kind == "micro":
            family, mode = "micro", _micro_mode(str(line.get("id")))
        if family is None:
            return f"kind {kind!r} is not known"
        if all(line.get(name) is None for name in _TIMES):
            return "no time"
        data = {
            "id": line.get("id"), "family": family, "device": self.device, "evidence": "recorded", "grade": "A",
            "source": self.source, "spec": _spec(line, family, mode), "implementation": _implementation(line, kind),
            "times": _times(line, where), "output": {"rel_err": line.get("rel_err")},
            "tflops": line.get("tflops"), "gbps": line.get("gbps"), "caveat": self.unplaced + _caveat(line, kind),
        }  # fmt: skip
        return _checked(lambda: RunRecord.model_validate(data), where)


def _checked(make: Callable[[], _T], where: str) -> _T:
    try:
        return make()
    except ValidationError as bad:
        first = bad.errors(include_url=False)[0]
        field = ".".join(str(key) for key in first["loc"])
        raise InputError(f"{where}: {field}: {first['msg']}, found {str(first.get('input'))[:60]}") from None


def _micro_mode(name: str) -> str:
    """``micro-read-16MiB``: read; ``micro-empty-launch-132``: empty_launch."""
    words = name.removeprefix("micro-").split("-")
    return "empty_launch" if words[0] == "empty" else words[0]


def _spec(line: dict[str, Any], family: str, mode: str | None) -> dict[str, Any]:
    spec = {ours: line[theirs] for theirs, ours in _SPEC.items() if line.get(theirs) is not None}
    spec["mode"] = mode
    if "head_dim" in line:
        spec["d_qk"] = spec["d_v"] = line["head_dim"]
    if family == "sequence_parallel_decode":
        spec.setdefault("s_q", 1)
        spec.setdefault("kv_dtype", line.get("dtype"))
    if line["kind"] == "copy_peer":
        spec.setdefault("world", 2)
    side = re.fullmatch(r"micro-matmul-(\d+)", str(line.get("id")))
    if side and family == "micro":
        spec |= {"m": int(side[1]), "dtype": "bf16"}
    return spec


def _implementation(line: dict[str, Any], kind: str) -> dict[str, Any]:
    made = {ours: line[theirs] for theirs, ours in _IMPLEMENTATION.items() if line.get(theirs) is not None}
    collective = _FAMILIES.get(kind, ("", None))[0] == "collective"
    made.setdefault("name", ("torch-copy" if kind == "copy_peer" else "nccl") if collective else "triton")
    if kind == "micro" and "matmul" in str(line.get("id")):
        made["name"] = "torch-matmul"
    made["notes"] = {name: value for name, value in line.items() if name not in _KNOWN}
    if "time_us" in line and not collective and kind != "sequence_parallel_decode":
        made["notes"]["flush"] = "written"  # the cache was full of dirty lines before each single launch
    return made


def _times(line: dict[str, Any], where: str) -> dict[str, Any]:
    times: dict[str, Any] = {}
    parts = {}
    for name, field in _TIMES.items():
        value = line.get(name)
        if value is None:
            continue
        if line["kind"] == "sequence_parallel_decode" and field == "partial":
            continue  # a part of a step, below
        if isinstance(value, list):
            if len(value) != 3:
                raise InputError(f"{where}: {name}: expected [median, p10, p90], found {len(value)} numbers")
            times[field] = dict(zip(("median", "p10", "p90"), value, strict=True))
        else:
            times[field] = {"median": value}
    if line["kind"] == "sequence_parallel_decode":
        names = ("partial_us", "local_reduce_us", "all_gather_us", "merge_us")
        parts = {name.removesuffix("_us"): line[name] for name in names if line.get(name) is not None}
    return times | {"parts": parts}


def _caveat(line: dict[str, Any], kind: str) -> str:
    if kind in ("jenga_skip", "jenga_mask"):
        return "tflops counts the full square, not the blocks kept"
    if kind == "sequence_parallel_decode" or _FAMILIES.get(kind, ("", None))[0] == "collective":
        return "the cold time is issued from Python, nothing flushed, and host-bound when short; slowest rank"
    if kind == "decode_splitkv":
        return "two launches: the cold time is host-bound when short"
    if kind == "micro" and "matmul" in str(line.get("id")):
        return "element type not in the recording: bf16 assumed"
    return ""
