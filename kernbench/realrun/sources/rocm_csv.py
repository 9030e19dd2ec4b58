"""Published timings of attention kernels under ROCm, one CSV row each."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from kernbench.errors import InputError
from kernbench.realrun.records import RunRecord
from kernbench.realrun.sources.grades import counts_real_bytes, flops_counted, inferred_dtype, trust_in

COLUMNS = (
    "id", "source", "gpu", "arch", "impl", "kind", "batch", "hq", "hkv", "sq", "sk", "d_qk", "d_v", "dtype_q",
    "dtype_kv", "causal", "extra", "time_us", "tflops", "gbps", "date", "caveat",
)  # fmt: skip
HEADER_START = "id,source,gpu,arch,impl,kind,"

_SIZES = {"batch": "batch", "hq": "h_q", "hkv": "h_kv", "sq": "s_q", "sk": "s_kv", "d_qk": "d_qk", "d_v": "d_v"}
_KINDS = {  # kind: family and mode
    "fwd": ("prefill", None), "fwd (append prefill)": ("prefill", None), "decode": ("decode_splitkv", None),
    "split-kv decode": ("decode_splitkv", None), "MLA decode": ("mla_decode", None),
    "MLA decode (sparse DSA)": ("mla_decode", "sparse_topk"), "fwd (block-sparse)": ("block_sparse", "skip"),
    "bwd": ("other", "backward"), "fwd (sliding window)": ("other", "sliding_window"),
    "indexer (MQA logits, DSA)": ("other", "mqa_logits"), "MLA decode (serving trace)": ("other", "serving_trace"),
    "fwd (or fwd+bwd: not stated)": ("other", "direction_not_stated"),
    "multi-GPU attention epilogue (all-reduce + residual + RMSNorm)": ("other", "all_reduce_epilogue"),
}  # fmt: skip
_DTYPES = {"bf16": "bf16", "fp16": "f16", "mxfp4": "fp4e2m1", "fp8/int8 (w8)": "i8"}
_IN_EXTRA = {  # what is looked for in `extra`, and the numbers there
    "page_size": r"page_size=(\d+)|KV block(?:_size=| )(\d+)|paged block_size=(\d+)|^block_size=(\d+)",
    "sliding_window": r"sliding_window=(\d+)",
    "topk": r"topk=(\d+)",
    "splits": r"(?:num_)?splits=(\d+)",
    "tile": r"(\d+)-token tiles",
    "density": r"density (\d+)%",
    "gpus": r"(\d+) GPUs",
}
_SHORT_US = 200.0
"""HipKittens' pair of events encloses a call from Python: below this, in microseconds, that shows."""

_MOST_DIGITS = 15
"""Of a size: beyond this it is a broken cell."""


def read_rocm_csv(text: str, where: str) -> Iterator[tuple[RunRecord | str, str]]:
    """Yield a record and "", or the id of a row that can be none and the reason.

    Raises
    ------
    InputError
        If a row has missing or extra cells, or a cell that is no number where one is due; names file and line.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next(cells for cells in reader if cells)
        if tuple(header) != COLUMNS:
            raise InputError(f"{where}:{reader.line_num}: expected the columns {','.join(COLUMNS)}")
        start = reader.line_num + 1
        for cells in reader:
            if cells:
                yield _record(cells, f"{where}:{start}")
            start = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"{where}:{reader.line_num}: {error}") from None


def _record(cells: list[str], where: str) -> tuple[RunRecord | str, str]:
    if len(cells) != len(COLUMNS):
        raise InputError(f"{where}: {len(cells)} cells, expected {len(COLUMNS)}")
    row = {name: cell.strip() for name, cell in zip(COLUMNS, cells, strict=True)}
    if row["kind"] not in _KINDS:
        return row["id"], f"kind {row['kind']!r} is not known"
    found = _found_in(row)
    family, mode = _KINDS[row["kind"]]
    if family == "decode_splitkv" and found.get("page_size"):
        family = "paged_decode"
    caveats = [row["caveat"]] if row["caveat"] else []
    spec = _spec(row, where, found, caveats) | {"mode": mode}
    if mode == "sliding_window" and (spec["s_kv"] or math.inf) <= found.get("sliding_window", 0):
        family, spec["mode"] = "prefill", None  # the window holds every key: plain causal attention
    trust = trust_in(row["source"], spec["batch"])
    time, tflops, gbps = (_number(row, name, where) for name in ("time_us", "tflops", "gbps"))
    if time is None and tflops is None and gbps is None:
        return row["id"], "neither a time nor TFLOPS nor GB/s"
    if time is None:
        time = _derived(row["source"], spec, tflops, gbps, caveats)
    elif "HipKittens analysis" in row["source"] and time < _SHORT_US:
        caveats.append(f"below {_SHORT_US:.0f} us the launch from Python, which is timed with it, shows")
    if trust.grade != "A":
        caveats.append(f"grade {trust.grade}: {trust.why}" if trust.grade else trust.why)
    data = {
        "id": row["id"], "family": family, "spec": spec, "implementation": _implementation(row, found),
        "device": {"gpu": row["gpu"] or None, "arch": row["arch"], "count": found.get("gpus", 1)},
        "times": {} if time is None else {"published": {"median": time}}, "tflops": tflops, "gbps": gbps,
        "evidence": "recorded", "grade": trust.grade, "source": row["source"], "date": row["date"] or None,
        "caveat": "; ".join(caveats),
    }  # fmt: skip
    try:
        return RunRecord.model_validate(data), ""
    except ValidationError as bad:
        first = bad.errors(include_url=False)[0]
        field = ".".join(str(key) for key in first["loc"])
        raise InputError(f"{where}: {field}: {first['msg']}, found {str(first.get('input'))[:60]!r}") from None


def _found_in(row: dict[str, str]) -> dict[str, int]:
    """Find the numbers that `extra` names; a density is in percent."""
    found = {}
    for name, pattern in _IN_EXTRA.items():
        match = re.search(pattern, row["extra"])
        if match and not row["extra"][match.end() :].startswith(" supported"):  # "page_size 64 supported": not what ran
            found[name] = int(next(group for group in match.groups() if group))
    if "page_size not shown" in row["extra"]:  # "(1 inferred)"
        found["page_size"] = 1
    return found


def _spec(row: dict[str, str], where: str, found: dict[str, int], caveats: list[str]) -> dict[str, Any]:
    spec: dict[str, Any] = {ours: _whole(row, theirs, where) for theirs, ours in _SIZES.items()}
    if row["causal"] not in ("", "0", "1"):
        raise InputError(f"{where}: causal: expected 1, 0 or nothing, found {row['causal']!r}")
    spec["causal"] = {"1": True, "0": False}.get(row["causal"])
    spec["dtype"], spec["kv_dtype"] = _dtype(row, "dtype_q", caveats), _dtype(row, "dtype_kv", caveats)
    inferred = inferred_dtype(row["source"])
    if inferred and spec["dtype"] is None and spec["kv_dtype"] is None:
        spec["dtype"] = spec["kv_dtype"] = inferred
        caveats.append(f"element type not stated: {inferred} inferred")
    spec["page_size"] = found.get("page_size")
    if "moonmath" in row["source"] and spec["causal"] is None:
        spec["causal"] = False  # inferred from its flop rate, as its caveat says
    if "topk" in found and spec["s_kv"] is None:
        spec["s_kv"] = found["topk"]
        caveats.append("s_kv is the number of keys selected for each query")
    if "density" in found:
        spec |= {"density": found["density"] / 100, "block_q": found.get("tile"), "block_k": found.get("tile")}
        if spec["batch"] is None and "FastVideo" in row["source"]:
            spec["batch"] = 1  # its caveat: 1 reproduces the TFLOPS
    spec["world"] = found.get("gpus")
    return spec


def _dtype(row: dict[str, str], column: str, caveats: list[str]) -> str | None:
    text = row[column]
    plain_fp8 = "fp8e4m3fnuz" if row["arch"] == "gfx942" else "fp8e4m3"
    if text == "fp8":
        return plain_fp8
    if text.startswith("fp8") and "64" in text:  # latent attention: 448 dims of fp8 and 64 of bf16 in one row
        if column == "dtype_kv":
            caveats.append("stored as 448 fp8 and 64 bf16 dims; kv_dtype names the 448")
            return plain_fp8
        return "bf16"  # what the product runs in
    return _DTYPES.get(text)


def _derived(
    source: str, spec: dict[str, Any], tflops: float | None, gbps: float | None, caveats: list[str]
) -> float | None:
    """Turn TFLOPS or GB/s into microseconds under the source's convention, if it is known."""
    heads = (spec["batch"], spec["h_q"], spec["s_q"], spec["s_kv"])
    counted = flops_counted(source, spec["causal"])
    if tflops and counted and all(heads) and spec["d_qk"] and spec["d_v"]:
        how = "causal counted half" if counted == 0.5 else f"{counted:g} of the full square counted"
        caveats.append(f"time derived from TFLOPS by convention: {how}")
        return counted * 2.0 * math.prod(heads) * (spec["d_qk"] + spec["d_v"]) / (tflops * 1e6)
    caches = (spec["batch"], spec["h_kv"], spec["s_kv"])
    if gbps and counts_real_bytes(source) and all(caches) and spec["kv_dtype"] in ("bf16", "f16"):
        caveats.append("time derived from GB/s by convention: bytes of the key and value tensors")
        return 2.0 * math.prod(caches) * (spec["d_qk"] + spec["d_v"]) / (gbps * 1e3)
    caveats.append(f"no time: what its {'TFLOPS' if tflops else 'GB/s'} count is not known")
    return None


def _implementation(row: dict[str, str], found: dict[str, int]) -> dict[str, Any]:
    notes: dict[str, Any] = {"kind": row["kind"]}
    if row["extra"]:
        notes["extra"] = row["extra"]
    notes |= {name: found[name] for name in ("sliding_window", "topk") if name in found}
    if rounding := re.search(r"rounding=(\w+)", row["extra"]):
        notes["rounding"] = rounding[1]
    for column in ("dtype_q", "dtype_kv"):
        if row[column] not in ("", "bf16", "fp16", "fp8"):
            notes[f"{column}_as_published"] = row[column]
    block_k = re.search(r"BLOCK_K=(\d+)", row["impl"])
    block_n = int(block_k[1]) if block_k else None
    return {"name": row["impl"], "splits": found.get("splits"), "block_n": block_n, "notes": notes}


def _whole(row: dict[str, str], name: str, where: str) -> int | None:
    text = row[name]
    if text == "":
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise InputError(f"{where}: {name}: expected a whole number or nothing, found {text!r}")
    return int(text)


def _number(row: dict[str, str], name: str, where: str) -> float | None:
    text = row[name]
    if text == "":
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{where}: {name}: expected a positive number or nothing, found {text!r}")
    return value
