"""Specs on their way to the checkout: each a class name and fields, mapped one by one onto kernbench's dataclasses."""

from __future__ import annotations

import dataclasses
from typing import Any

from kernbench.specs.rocke import (
    FmhaCommonSpec,
    FmhaShape,
    JengaSparseSpec,
    QkScaleSpec,
    SageAttentionSpec,
    VsaSparseSpec,
)

Payload = dict[str, Any]
"""``{"class": name, "fields": {name: value}}``; a value may be a payload again."""
Spec = SageAttentionSpec | JengaSparseSpec | VsaSparseSpec
FAMILIES: dict[str, type[Spec]] = {
    "SageAttentionSpec": SageAttentionSpec,
    "JengaSparseSpec": JengaSparseSpec,
    "VsaSparseSpec": VsaSparseSpec,
}
CLASSES: dict[str, type[Any]] = {
    **FAMILIES,
    "FmhaCommonSpec": FmhaCommonSpec,
    "FmhaShape": FmhaShape,
    "QkScaleSpec": QkScaleSpec,
}
_NO_DEFAULT = "no default"


def payload_of(spec: Any) -> Payload:
    """Turn a spec, or a part of one, into a payload with every field.

    >>> payload_of(FmhaShape(64, 2, 1))["fields"]
    {'head_size': 64, 'num_query_heads': 2, 'num_kv_heads': 1, 'block_size_q': 16, 'block_size_k': 64}
    """
    values = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}
    fields = {name: payload_of(v) if dataclasses.is_dataclass(v) else v for name, v in values.items()}
    return {"class": type(spec).__name__, "fields": fields}


def make_spec(payload: Payload) -> Any:
    """Make kernbench's spec from a payload; raises what the dataclass raises."""
    fields = {name: make_spec(v) if isinstance(v, dict) else v for name, v in payload["fields"].items()}
    return CLASSES[payload["class"]](**fields)


def unlike_fields(theirs: dict[str, dict[str, dict[str, Any]]]) -> list[tuple[str, str, str]]:
    """Return what differs between kernbench's fields and a checkout's: ``(class.field, kernbench, checkout)``.

    Parameters
    ----------
    theirs
        For each class, its fields by name; each ``{"default": value}`` or, without a default, ``{}``.
    """
    found = []
    for name, made in CLASSES.items():
        ours = {field.name: _default(field) for field in dataclasses.fields(made)}
        for field in sorted({*ours, *theirs[name]}):
            here = _said(ours.get(field))
            there = _said(theirs[name].get(field))
            if here != there:
                found.append((f"{name}.{field}", here, there))
    return found


def _default(field: dataclasses.Field[Any]) -> dict[str, Any]:
    return {} if field.default is dataclasses.MISSING else {"default": field.default}


def _said(field: dict[str, Any] | None) -> str:
    if field is None:
        return "no such field"
    return repr(field["default"]) if "default" in field else _NO_DEFAULT
