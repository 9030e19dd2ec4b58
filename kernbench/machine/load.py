"""Finding machine files and reading them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernbench.errors import TopologyError, nearest
from kernbench.machine import yamlfile
from kernbench.machine.model import Machine

_SUFFIXES = (".yaml", ".yml")


def load_machine(what: str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> Machine:
    """Read a machine.

    Parameters
    ----------
    what : str, Path or mapping
        A file (its suffix ``.yaml`` or ``.yml`` may be left out), the name of a machine in ``topologies/`` of the
        working directory or of kernbench itself, or a mapping with what a file would hold.
    overrides : mapping, optional
        Dotted key path -> value as the file would hold it, as ``{"sip.cubes.columns": 3}``.

    Raises
    ------
    TopologyError
        If there is no such machine, or with one line for each fault in it.

    >>> load_machine("row4_pe8").n_pes
    32
    """
    if isinstance(what, Mapping):
        return Machine.from_document(copy.deepcopy(dict(what)), "machine", changes=overrides)
    path, source = _find(what)
    document, notes = yamlfile.read(path, source)
    return Machine.from_document(document, source, notes, overrides)


def topology_names() -> dict[str, Path]:
    """Return the machines that can be loaded by name: those of the working directory, then kernbench's own."""
    found: dict[str, Path] = {}
    for folder in (Path("topologies"), _shipped()):
        if folder.is_dir():
            for path in sorted(folder.iterdir()):
                if path.suffix in _SUFFIXES and path.is_file():
                    found.setdefault(path.stem, path)
    return found


@lru_cache(maxsize=16)
def shipped_machine(name: str) -> Machine:
    """Return the machine of this name that comes with kernbench, whatever the working directory has; read once.

    Raises
    ------
    TopologyError
        If none does.
    """
    return load_machine(_shipped() / f"{name}.yaml")


def find_machine_file(source: str) -> Path:
    """Return the file of a machine, by what :attr:`Machine.source` says of it.

    Raises
    ------
    TopologyError
        If there is none: the machine was made from a mapping.
    """
    path, _ = _find(source.removesuffix(".yaml").removesuffix(".yml") if "/" not in source else source)
    return path


def _find(what: str | Path) -> tuple[Path, str]:
    """Return the file that ``what`` means, and how messages name it."""
    text = str(what)
    for suffix in ("", *_SUFFIXES):
        path = Path(text + suffix)
        if text and path.is_file():
            return path, str(path)
    known = topology_names()
    if text in known:
        return known[text], known[text].name
    if text and Path(text).is_dir():
        raise TopologyError(f"{text}: is a directory; name a machine file in it")
    if Path(text).suffix in _SUFFIXES or Path(text).parent != Path("."):
        raise TopologyError(f"{text}: there is no such file; machines known by name: {', '.join(sorted(known))}")
    hint = nearest(text, known)
    everything = "" if "known:" in hint else f"; known: {', '.join(sorted(known))}"
    raise TopologyError(f"unknown machine {text!r}{hint}{everything}")


def _shipped() -> Path:
    package = Path(__file__).resolve().parent.parent
    installed = package / "_topologies"
    return installed if installed.is_dir() else package.parent / "topologies"
