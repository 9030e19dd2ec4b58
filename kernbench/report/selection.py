"""Selections of PEs, as a user types them: ``0-7``, ``cube0``, ``sip0.cube1.pe3``, ``cube 0-3 pe 0,2``."""

from __future__ import annotations

import re

import numpy as np

from kernbench.errors import InputError, nearest
from kernbench.machine import Machine

LEVELS = ("sip", "cube", "pe")
_FORMS = "select PEs as 0-7, cube0, sip0.cube1.pe3, cube 0-3 pe 0,2 or all"
_RANGE = r"\d+(?:\s*-\s*\d+)?"
_RANGES = rf"{_RANGE}(?:\s*,\s*{_RANGE})*"
_PART = rf"(sip|cube|pe)\s*({_RANGES})"
_BY_LEVEL = re.compile(rf"{_PART}(?:[\s.]*{_PART})*")
_BETWEEN_TERMS = re.compile(r";|,(?=\s*[a-z])")


def select_pes(text: str, machine: Machine) -> np.ndarray:
    """Read a selection of PEs.

    A selection is one or more terms, with ``;`` or ``,`` between them. A term gives either PEs by their indices through
    the system (``0-7``), or indices by level (``sip``, ``cube``, ``pe``), each within the next level up; a level that
    is not named means all of it. ``all`` is every PE. What :meth:`~kernbench.machine.Machine.describe_pes` writes can
    be read again.

    Parameters
    ----------
    text
        The selection. Blanks and the case of letters do not matter.
    machine
        Whose PEs are meant.

    Returns
    -------
    ndarray
        Global indices of the PEs, int64, ascending, each once.

    Raises
    ------
    InputError
        If the text is no selection, or names what the machine does not have.

    Examples
    --------
    >>> from kernbench import load_machine
    >>> machine = load_machine("row4_pe8")
    >>> select_pes("0-2, cube1.pe7", machine).tolist()
    [0, 1, 2, 15]
    >>> select_pes("cube 2-3 pe 0,4", machine).tolist()
    [16, 20, 24, 28]
    """
    chosen = np.zeros(machine.n_pes, bool)
    for term in _BETWEEN_TERMS.split(text.lower()):
        chosen |= _members(term.strip(), text, machine)
    return np.flatnonzero(chosen).astype(np.int64)


def _members(term: str, text: str, machine: Machine) -> np.ndarray:
    """Whether each PE is meant by one term."""
    if term == "all":
        return np.ones(machine.n_pes, bool)
    if re.fullmatch(_RANGES, term):
        return _one_of(term, "PE", machine.n_pes, text, machine)
    _check_words(term, text)
    if not _BY_LEVEL.fullmatch(term):
        raise InputError(f"{text!r} is no selection of PEs: {_FORMS}")
    parts = re.findall(_PART, term)
    levels = [level for level, _ in parts]
    if len(set(levels)) < len(levels):
        raise InputError(f"{text!r} gives a level twice in {term!r}: put a comma between two places")
    pe = np.arange(machine.n_pes)
    node, own = np.divmod(pe, machine.pes_per_cube)
    sip, cube = np.divmod(node, machine.cubes_per_sip)
    chosen = np.ones(machine.n_pes, bool)
    for level, ranges in parts:
        index, count = {
            "sip": (sip, machine.n_sips), "cube": (cube, machine.cubes_per_sip), "pe": (own, machine.pes_per_cube),
        }[level]  # fmt: skip
        chosen &= _one_of(ranges, level.upper(), count, text, machine)[index]
    return chosen


def _one_of(ranges: str, what: str, count: int, text: str, machine: Machine) -> np.ndarray:
    """Whether each index below ``count`` is in the ranges."""
    chosen = np.zeros(count, bool)
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if low > high:
            raise InputError(f"{part.strip()!r} in {text!r} runs backwards: write {high}-{low}")
        if high >= count:
            inside = {"CUBE": " in each SIP", "PE": " in each CUBE"}.get(what, "") if count < machine.n_pes else ""
            have = f"{what}s 0-{count - 1}" if count > 1 else f"only {what} 0"
            raise InputError(f"there is no {what} {high} (in {text!r}): {machine.name} has {have}{inside}")
        chosen[low : high + 1] = True
    return chosen


def _check_words(term: str, text: str) -> None:
    for word in re.findall(r"[a-z_]+", term):
        if word not in LEVELS:
            raise InputError(f"{word!r} in {text!r} is no level of a machine{nearest(word, LEVELS)}; {_FORMS}")
