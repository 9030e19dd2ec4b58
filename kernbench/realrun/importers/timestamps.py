"""Numbers of profiles, read strictly: a figure that a spreadsheet rounded is refused and never guessed."""

from __future__ import annotations

import re

from kernbench.errors import InputError

_INTEGER = re.compile(r"[0-9]{1,20}", re.ASCII)
_SCIENTIFIC = re.compile(r"[0-9][0-9.,]*[eE][+-]?[0-9]+", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?", re.ASCII)
_LONGEST_NS = 3600 * 10**9
LARGEST = 1e30
"""No counter gets there, and sums of such stay finite."""


def integer(text: str, where: str, column: str, at_least: int = 0) -> int:
    """Read a whole number.

    Parameters
    ----------
    text : str
    where : str
        File and line that messages begin with.
    column : str
    at_least : int, default 0

    Raises
    ------
    InputError
        If it is not one, or too small; names file, line and column.
    """
    if not _INTEGER.fullmatch(text):
        if _SCIENTIFIC.fullmatch(text):
            raise InputError(
                f"{where}, column {column}: {text!r} has lost digits, as when a spreadsheet opens and saves the file; "
                "take the profiler's own file"
            )
        raise InputError(f"{where}, column {column}: {text!r} is not a whole number")
    number = int(text)
    if number < at_least:
        raise InputError(f"{where}, column {column}: {number} is less than {at_least}")
    return number


def optional_integer(text: str, where: str, column: str) -> int | None:
    """Read a whole number; None of an empty field. As :func:`integer` otherwise."""
    return integer(text, where, column) if text else None


def number(text: str, where: str, column: str) -> float:
    """Read a number of plausible size; as :func:`integer` otherwise."""
    if not _NUMBER.fullmatch(text) or abs(float(text)) > LARGEST:
        raise InputError(f"{where}, column {column}: {text!r} is not a number")
    return float(text)


def check_span(start: int, end: int, where: str, columns: tuple[str, str]) -> None:
    """Check the two timestamps of a dispatch.

    Parameters
    ----------
    start, end : int
        Nanoseconds.
    where : str
        File and line that messages begin with.
    columns : tuple[str, str]
        Their columns.

    Raises
    ------
    InputError
        If the end is not after the start, or more than an hour after it.
    """
    if end <= start:
        raise InputError(f"{where}, column {columns[1]}: the end {end} is not after the start {start} ({columns[0]})")
    if end - start > _LONGEST_NS:
        raise InputError(
            f"{where}, column {columns[1]}: the end {end} is more than an hour after the start {start} ({columns[0]}): "
            "a timestamp is damaged"
        )
