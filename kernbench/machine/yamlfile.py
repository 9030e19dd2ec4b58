"""Reading a machine file: YAML with duplicate keys refused, and each figure's trailing comment kept as its note."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from kernbench.errors import TopologyError
from kernbench.machine import explain

_COMMENT = re.compile(r"(?:^|\s)#\s*(.*?)\s*$")


class _Loader(yaml.SafeLoader):
    """Safe YAML in which a mapping that repeats a key is an error."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # Here rather than on construction: merging (<<) repeats keys legitimately, and comes later.
        node = super().compose_mapping_node(anchor)
        seen: dict[str, int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    problem = f"the key {key.value!r} is already given on line {seen[key.value]}"
                    raise yaml.composer.ComposerError(None, None, problem, key.start_mark)
                seen[key.value] = key.start_mark.line + 1
        return node


def read(path: Path, source: str) -> tuple[Any, dict[str, str]]:
    """Read a machine file.

    Parameters
    ----------
    path : Path
    source : str
        File name that messages begin with.

    Returns
    -------
    document
        The parsed YAML.
    notes : dict[str, str]
        Key path -> comment that trails the value, or the mapping that it stands in.

    Raises
    ------
    TopologyError
        If the file cannot be read or is not YAML; gives the line and column.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise TopologyError(f"{source}: is not a text file in UTF-8") from None
    except OSError as error:
        raise TopologyError(f"{source}: cannot be read: {error.strerror}") from None
    return parse(text, source)


def parse(text: str, source: str) -> tuple[Any, dict[str, str]]:
    """Parse the text of a machine file; as :func:`read`."""
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            document = loader.construct_document(node) if node is not None else None
            notes = dict(_notes(node, text.splitlines())) if node is not None else {}
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        raise TopologyError(_fault(source, error, text)) from None
    except yaml.YAMLError as error:
        raise TopologyError(f"{source}: is not YAML: {error}".splitlines()[0]) from None
    except RecursionError:
        raise TopologyError(f"{source}: is nested too deeply") from None
    except ValueError as error:  # an integer of thousands of digits, a date of month 13
        raise TopologyError(f"{source}: holds a value that YAML cannot read: {error}") from None
    if node is None:
        raise TopologyError(f"{source}: is empty; a machine file has the keys name, sip, cube and pe")
    return document, notes


def lines_of(text: str) -> dict[str, int]:
    """Return the line, from 0, on which the value of each key path ends; ``text`` is that of a valid machine file.

    >>> lines_of("pe:\\n  clock: 1 GHz  # fast\\n\\nlaunch:\\n  cold: 3 us")["launch.cold"]
    4
    """
    node = yaml.compose(text, _Loader)
    leaves = _leaves(node, (), []) if node is not None else ()
    return {explain.path_text(path): ends[0][0] for path, ends in leaves}


def _fault(source: str, error: yaml.MarkedYAMLError, text: str) -> str:
    mark = error.problem_mark or error.context_mark
    problem = error.problem or error.context or "is not YAML"
    if mark is None:
        return f"{source}: {problem}"
    lines = text.splitlines()
    message = f"{source}: line {mark.line + 1}, column {mark.column + 1}: {problem}"
    if mark.line < len(lines) and len(lines[mark.line]) <= 160:
        message += f"\n    {lines[mark.line]}\n    {' ' * mark.column}^"
    return message


def _notes(node: yaml.Node, lines: list[str]) -> Iterator[tuple[str, str]]:
    """Each scalar's key path and note, where it has one."""
    leaves = list(_leaves(node, (), []))
    last_column: dict[int, int] = {}
    for _, ends in leaves:
        for line, column in ends:
            last_column[line] = max(last_column.get(line, 0), column)
    for path, ends in leaves:
        # The value's own line first, then the lines of the keys that it stands under, innermost first.
        for line, column in ends:
            found = _COMMENT.search(lines[line][last_column[line] :]) if line < len(lines) else None
            # A mapping's comment speaks of its figures only if it says where they come from.
            if found and ((line, column) == ends[0] or found[1].startswith(("source", "assumed"))):
                yield explain.path_text(path), found[1]
                break


_Ends = list[tuple[int, int]]


def _leaves(node: yaml.Node, path: explain.Path, above: _Ends) -> Iterator[tuple[explain.Path, _Ends]]:
    """Key path of each scalar, and where a comment about it may begin: (line, column), best first."""
    end = (node.end_mark.line, node.end_mark.column)
    if isinstance(node, yaml.MappingNode):
        inside = [end, *above] if node.flow_style else above
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                at_key = (key.end_mark.line, key.end_mark.column)
                yield from _leaves(value, (*path, key.value), [at_key, *inside])
    elif isinstance(node, yaml.SequenceNode):
        inside = [end, *above] if node.flow_style else above
        for i, value in enumerate(node.value):
            yield from _leaves(value, (*path, i), inside)
    else:
        yield path, [end, *above]
