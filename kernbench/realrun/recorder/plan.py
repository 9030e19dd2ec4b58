"""Plans: lists of specs to time, written compactly as products and expanded in a fixed order.

A plan is YAML: ``name`` and ``groups``. A group has a ``family`` and fields; a field with a list stands for one spec
for each element (write a list of one list for a value that is a list). ``cases`` is a list of mappings, for fields that
go together. All combinations are taken; one that is named twice counts once. Specs come shorter first in three tiers,
and inside a tier in an order that mixes the families, so that a plan that is cut short still covers them.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernbench.errors import InputError, nearest
from kernbench.realrun.records import Family, RunSpec

PLANS = Path(__file__).parent.parent / "plans"
"""Where the plans that come with kernbench are."""

_DECODE = {"batch", "h_q", "h_kv", "d", "s_kv", "splits", "block_n", "waves", "stages"}
_PREFILL = {"batch", "h_q", "h_kv", "d", "s_kv", "block_m", "block_n", "waves", "stages"}
FIELDS: dict[str, tuple[set[str], dict[str, Any]]] = {
    "decode_splitkv": (_DECODE, {"dtype": "bf16", "kv_dtype": None, "scale": None}),
    "paged_decode": (_DECODE | {"page_size"}, {}),
    "ultraquant_decode": (_DECODE, {}),
    "mla_decode": ({"batch", "h_q", "s_kv", "block_m", "splits", "block_n", "waves", "stages"}, {}),
    "prefill": (_PREFILL | {"causal"}, {"dtype": "bf16", "diagonal_only": False}),
    "block_sparse": (_PREFILL | {"mode", "density"}, {"mask_seed": 1, "block_q": None, "block_k": None}),
    "sdpa_flash": ({"batch", "h_q", "h_kv", "d", "s_q", "s_kv", "causal"}, {}),
    "sdpa_cudnn": ({"batch", "h_q", "h_kv", "d", "s_q", "s_kv", "causal"}, {}),
    "micro": ({"mode"}, dict.fromkeys(
        ["nbytes", "workgroups", "waves", "block", "unroll", "steps", "m", "tile", "dtype"])),
}  # fmt: skip
"""Fields of each family: those that a group must give, and those that it may, with their defaults."""

_SHORT = {"batch": "b", "h_q": "hq", "h_kv": "hkv", "d": "d", "s_q": "sq", "s_kv": "s", "page_size": "p",
          "density": "density", "mask_seed": "seed", "block_q": "bq", "block_k": "bk", "block_m": "bm", "splits": "x",
          "block_n": "bn", "waves": "w", "stages": "st", "workgroups": "wg", "block": "blk", "unroll": "u", "m": "m",
          "steps": "n"}  # fmt: skip


@dataclass(frozen=True)
class Job:
    """One spec of a plan: its family, the values of the family's fields, and the id that these give."""

    family: Family
    fields: Mapping[str, Any]

    @property
    def id(self) -> str:
        """What the record will be called; tells any two specs apart."""
        f = self.fields
        words = [self.family.split("_")[0] if not self.family.startswith("sdpa") else self.family.replace("_", "-")]
        words += [str(f[key]) for key in ("mode", "dtype", "kv_dtype", "scale") if f.get(key) is not None]
        words += [f"{short}{f[key]}" for key, short in _SHORT.items() if f.get(key) is not None]
        words += ["x".join(str(n) for n in f["tile"])] if f.get("tile") else []
        words += [f"{f['nbytes']}B"] if f.get("nbytes") is not None else []
        words += ["causal" if f["causal"] else "full"] if "causal" in f else []
        return "-".join(words + (["diag"] if f.get("diagonal_only") else []))

    def spec(self, **known: Any) -> RunSpec:
        """Return what is computed, with fields that are ``known`` only once the inputs are made."""
        f = dict(self.fields)
        values = {key: f.get(key) for key in RunSpec.model_fields if f.get(key) is not None}
        if self.family == "micro":
            return RunSpec(**{**values, **known})
        values.setdefault("dtype", "bf16")
        values.setdefault("kv_dtype", values["dtype"])
        if self.family == "mla_decode":
            values |= {"h_kv": 1, "d_qk": 576, "d_v": 512}
        else:
            values |= {"d_qk": f["d"], "d_v": f["d"]}
        if self.family == "ultraquant_decode":
            values["kv_dtype"] = "fp4e2m1"
        decode = self.family in ("decode_splitkv", "paged_decode", "ultraquant_decode", "mla_decode")
        values.setdefault("s_q", 1 if decode else f["s_kv"])
        values.setdefault("causal", False)
        return RunSpec(**{**values, **known})

    def estimate_us(self) -> float:
        """Guess the length of a launch, to put short ones first; within a factor of three or so on a fast GPU."""
        f = self.fields
        if self.family == "micro":
            return float((f.get("nbytes") or 0) / 4e6 + 2 * (f.get("m") or 0) ** 3 / 6e8 + (f.get("steps") or 0) / 2)
        if self.family == "mla_decode":
            return float(f["batch"] * f["s_kv"] * 1152 / 2e6 * max(1, f["h_q"] / 32))
        heads = f["batch"] * f["h_kv"]
        width = {"fp8e4m3": 1, "i8": 1}.get(str(f.get("kv_dtype")), 2) if self.family != "ultraquant_decode" else 0.53
        bytes_us = heads * f["s_kv"] * 2 * f["d"] * width / 4e6
        rows = f["batch"] * f["h_q"] * (1 if "splits" in f else f.get("s_q") or f["s_kv"])
        share = f["density"] if f.get("mode") == "skip" else 0.5 if f.get("causal") else 1.0
        return float(bytes_us + 4 * rows * f["s_kv"] * f["d"] * share / 4e8)


def _products(group: Mapping[str, Any], where: str) -> Iterator[Job]:
    fields = dict(group)
    family = fields.pop("family", None)
    if family not in FIELDS:
        raise InputError(f"{where}: family is {family!r}{nearest(str(family), FIELDS)}")
    needed, optional = FIELDS[family]
    cases = fields.pop("cases", [{}])
    names = list(fields)
    for case in cases:
        for values in itertools.product(*(v if isinstance(v, list) else [v] for v in fields.values())):
            given = {**dict(zip(names, values, strict=True)), **case}
            for name in given:
                if name not in needed and name not in optional:
                    raise InputError(f"{where}: {family} has no field {name!r}{nearest(name, needed | set(optional))}")
            missing = sorted(needed - set(given))
            if missing:
                raise InputError(f"{where}: {family} needs {', '.join(missing)}")
            yield Job(family, {**optional, **given})


def expand(plan: Mapping[str, Any], where: str) -> list[Job]:
    """Expand a plan that was read.

    Raises
    ------
    InputError
        If a group names an unknown family or field, or lacks one; names ``where`` and the group.
    """
    jobs: dict[str, Job] = {}
    for i, group in enumerate(plan.get("groups") or []):
        for job in _products(group, f"{where}: groups.{i}"):
            jobs.setdefault(job.id, job)
    if not jobs:
        raise InputError(f"{where}: no groups")

    def place(job: Job) -> tuple[int, str]:
        us = job.estimate_us()
        return (0 if us < 300 else 1 if us < 2000 else 2, hashlib.sha256(job.id.encode()).hexdigest())

    return sorted(jobs.values(), key=place)


def load_plan(plan: Path | str) -> tuple[str, list[Job]]:
    """Read and expand a plan: a file, or the name of one that comes with kernbench. Returns its name and specs.

    Raises
    ------
    InputError
        If there is no such plan, or it is none.
    """
    import yaml

    path = Path(plan)
    if not path.suffix:
        path = PLANS / f"{plan}.yaml"
        if not path.exists():
            raise InputError(f"no plan {str(plan)!r}{nearest(str(plan), [p.stem for p in PLANS.glob('*.yaml')])}")
    try:
        read = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{path}: no YAML: {error}") from None
    if not isinstance(read, dict):
        raise InputError(f"{path}: a plan is a mapping with name and groups")
    return str(read.get("name", path.stem)), expand(read, str(path))
