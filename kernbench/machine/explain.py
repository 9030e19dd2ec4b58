"""From a document to a spec, with every fault in it told as one line: file, key path, what would be right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from kernbench.errors import TopologyError, nearest
from kernbench.machine.checks import faults
from kernbench.machine.schema import MachineSpec, json_schema
from kernbench.machine.units import shown

Path = tuple[str | int, ...]


def validate(document: Any, source: str, overridden: Iterable[str] = ()) -> MachineSpec:
    """Check a document and return its spec.

    Parameters
    ----------
    document : mapping
        A machine file as parsed.
    source : str
        File name that messages begin with.
    overridden : iterable of str
        Key paths whose values came from overrides; messages about them say so.

    Raises
    ------
    TopologyError
        With one line for each fault.
    """
    try:
        spec = MachineSpec.model_validate(document)
    except ValidationError as error:
        found = _translate(error)
    else:
        found = faults(spec)
        if not found:
            return spec
    marks = tuple(overridden)
    lines = [f"{source}: {path + ': ' if path else ''}{message}{_origin(path, marks)}" for path, message in found]
    raise TopologyError("\n".join(lines))


def path_text(path: Path) -> str:
    """Write a key path as messages and overrides do.

    >>> path_text(("links", 0, "to"))
    'links[0].to'
    """
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else str(key)
    return text


def _origin(path: str, overridden: tuple[str, ...]) -> str:
    return " (from an override)" if is_under(path.replace("[", ".").replace("]", ""), overridden) else ""


def is_under(path: str, keys: Iterable[str]) -> bool:
    """Whether a dotted key path is one of ``keys`` or lies inside one."""
    return any(path == key or path.startswith(f"{key}.") for key in keys)


def _translate(error: ValidationError) -> list[tuple[str, str]]:
    found = error.errors(include_url=False)
    typos = {_intended(_path(e["loc"])) for e in found if e["type"] == "extra_forbidden"}
    lines = []
    for e in found:
        path = _path(e["loc"])
        # A misspelt key is also a missing one: say it once.
        if e["type"] != "missing" or path not in typos:
            lines.append((path_text(path[:-1] if e["type"] == "invalid_key" else path), _message(e, path)))
    return lines


def _path(location: tuple[str | int, ...]) -> Path:
    return tuple(key for key in location if key != "[key]")


def _intended(path: Path) -> Path:
    known = schema_at(path[:-1]).get("properties", {})
    close = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.6)
    return (*path[:-1], close[0]) if close else path


def _message(error: Mapping[str, Any], path: Path) -> str:
    kind, found = error["type"], error.get("input")
    if kind == "value_error":
        return str(error["ctx"]["error"])
    if kind == "missing":
        return f"missing; {_advice(path)}"
    if kind == "extra_forbidden":
        return f"unknown key{nearest(str(path[-1]), schema_at(path[:-1]).get('properties', {}))}"
    if kind == "invalid_key":
        return f"a key must be text, found {shown(path[-1])}"
    if kind == "too_short":
        return f"is empty; {_expected(path)}"
    return f"{_expected(path)}, found {shown(found)}"


def _advice(path: Path) -> str:
    schema = schema_at(path)
    if "examples" in schema:
        return f"add e.g. '{path[-1]}: {schema['examples'][0]}'"
    return f"add a mapping with the keys {', '.join(schema.get('required', schema.get('properties', ())))}"


def _expected(path: Path) -> str:
    schema = schema_at(path)
    if schema.get("type") == "array":
        return "expected a list of mappings, each after a dash"
    if "examples" in schema:
        return f"expected a mapping such as {schema['examples'][0]}"
    return f"expected a mapping with the keys {', '.join(schema.get('properties', ()))}"


def schema_at(path: Path) -> dict[str, Any]:
    """Return the JSON Schema of what stands at a key path; empty if nothing may."""
    schema: dict[str, Any] = _schema()
    for key in path:
        step = schema.get("items") if isinstance(key, int) else schema.get("properties", {}).get(key)
        schema = _resolve(step or {})
    return schema


def _resolve(schema: dict[str, Any]) -> dict[str, Any]:
    """Follow a reference, and look through "or nothing"."""
    for choice in schema.get("anyOf", ()):
        if choice.get("type") != "null":
            return _resolve(choice)
    if "$ref" in schema:
        target: dict[str, Any] = _schema()["$defs"][schema["$ref"].rsplit("/", 1)[1]]
        return target
    return schema


@lru_cache(maxsize=1)
def _schema() -> dict[str, Any]:
    return json_schema()
