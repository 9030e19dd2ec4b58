"""The JSON Schema for editors agrees with what is accepted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from kernbench.machine import json_schema, load_machine, topology_names

from .helpers import MEMORY

SCHEMA = json_schema()


def faults(value: Any, schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """A validator for the part of JSON Schema that machine files use."""
    if "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].rsplit("/", 1)[1]]
    if "anyOf" in schema:
        if all(list(faults(value, choice, path)) for choice in schema["anyOf"]):
            yield f"{path}: no choice fits"
        return
    types = {"object": dict, "array": list, "string": str, "integer": int, "null": type(None), "number": (int, float)}
    if not isinstance(value, types[schema["type"]]):
        yield f"{path}: is not {schema['type']}"
    elif schema["type"] == "object":
        properties = schema.get("properties", {})
        forms = schema.get("patternProperties", {})
        yield from (f"{path}.{key}: missing" for key in schema.get("required", ()) if key not in value)
        for key, inner in value.items():
            fitting = [properties[key]] if key in properties else [f for p, f in forms.items() if re.search(p, key)]
            if fitting:
                yield from faults(inner, fitting[0], f"{path}.{key}")
            else:
                yield f"{path}.{key}: unknown"
    elif schema["type"] == "array":
        for i, inner in enumerate(value):
            yield from faults(inner, schema["items"], f"{path}[{i}]")
    elif schema["type"] == "string":
        if not re.search(schema.get("pattern", ""), value) or value not in schema.get("enum", [value]):
            yield f"{path}: {value!r} does not fit"
    elif schema["type"] in ("integer", "number"):
        least = schema.get("minimum", schema.get("exclusiveMinimum"))
        if not least <= value <= schema["maximum"] or value == schema.get("exclusiveMinimum"):
            yield f"{path}: out of range"


@pytest.mark.parametrize("name", topology_names())
def test_the_schema_accepts_each_shipped_machine(name):
    assert list(faults(load_machine(name).document, SCHEMA)) == []


@pytest.mark.parametrize(
    "overrides",
    [
        {"links": [{"from": "sip0.cube1", "to": "sip0.cube2", "bandwidth": "64 GB/s"}]},
        {"cube.memory": None, "sip.memory": MEMORY},
        {"pe.issue": "1.5 ns", "cube.memory.bandwidth": "9 Tbit / s"},
    ],
)
def test_the_schema_accepts_what_is_accepted(overrides):
    assert list(faults(load_machine("row4_pe8", overrides).document, SCHEMA)) == []


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("pe", "clock"), 1),
        (("pe", "clock"), "fast"),
        (("pe", "clock"), "-1 GHz"),
        (("pe", "clok"), "1 GHz"),
        (("pe", "queue_depth"), 65),
        (("pe", "vector", "cost", "exxp"), 1),
        (("sip", "cubes", "arrangement"), "line"),
        (("links",), [{"from": "cube1", "to": "sip0.cube2"}]),
        (("pe",), 4),
    ],
)
def test_the_schema_refuses_what_is_refused(keys, value):
    document = load_machine("row4_pe8").with_overrides({"pe.clock": "1 GHz"}).document
    holder = document
    for key in keys[:-1]:
        holder = holder[key]
    holder[keys[-1]] = value
    assert list(faults(document, SCHEMA))


def test_every_key_is_described():
    for model in [SCHEMA, *SCHEMA["$defs"].values()]:
        assert model["description"]
        for key, field in model["properties"].items():
            # One that says the same as its model has the model's.
            assert field.get("description") or "$ref" in field, key


def test_examples_are_accepted_by_their_own_schema():
    for model in [SCHEMA, *SCHEMA["$defs"].values()]:
        for key, field in model["properties"].items():
            choice = next((c for c in field.get("anyOf", ()) if c.get("type") != "null"), field)
            if choice.get("type") in ("string", "integer", "number"):
                assert choice["examples"], key
                assert list(faults(choice["examples"][0], choice, key)) == []
