"""A file of makespans that were found right, and what sets a run apart from them.

It is JSON, one entry for each case of a bench, sorted, so that a change of it is read line by line. Times are
simulated, so the same kernel on the same machine gives the same picosecond everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from kernbench.errors import InputError
from kernbench.output import whole_file
from kernbench.report.shares import parts_of
from kernbench.run import RunResult


class Entry(BaseModel):
    """What a baseline keeps of one case."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    makespan_ps: Annotated[int, Field(gt=0)]
    ps_by_cause: dict[str, int]
    """Picoseconds of the makespan that go to each cause; they add up to it."""
    topology_sha256: str
    """Fingerprint of the machine's figures."""

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        total = sum(self.ps_by_cause.values())
        if total != self.makespan_ps:
            raise ValueError(f"ps_by_cause adds up to {total}, not to makespan_ps, {self.makespan_ps}")
        return self

    @classmethod
    def of(cls, result: RunResult) -> Entry:
        """Return the entry of a run that was timed."""
        assert result.makespan_ps is not None
        assert result.time_by_cause is not None
        by_cause = parts_of(result.time_by_cause, result.makespan_ps)
        return cls(
            makespan_ps=result.makespan_ps, ps_by_cause=by_cause, topology_sha256=result.topology_sha256
        )  # fmt: skip


_ENTRIES = TypeAdapter(dict[str, Entry])


def read_baseline(path: Path) -> dict[str, Entry]:
    """Read a baseline: case → entry.

    Raises
    ------
    InputError
        If the file cannot be read or has another form; names the file and the entry.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_without_doubles)
        return _ENTRIES.validate_python(document)
    except OSError as error:
        raise InputError(f"cannot read the baseline {path}: {error.strerror}") from None
    except ValidationError as bad:
        first = bad.errors(include_url=False)[0]
        where = ": ".join(str(key) for key in first["loc"]) or "the whole"
        raise InputError(f"{path} is not a kernbench baseline: {where}: {first['msg']}") from None
    except ValueError as error:  # not JSON, or not UTF-8
        raise InputError(f"{path} is not a kernbench baseline: {error}") from None


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; a name that stands in it twice, as after a bad merge, is an error."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} is there twice")
        found[name] = value
    return found


def write_baseline(path: Path, entries: Mapping[str, Entry]) -> None:
    """Write a baseline, sorted; the file appears whole or not at all. Raises InputError if it cannot be written."""
    document = {case: entry.model_dump() for case, entry in entries.items()}
    with whole_file(path) as file:
        text = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False)
        file.write_text(text + "\n", encoding="utf-8")


def difference(before: Entry, now: Entry, topology: str, tolerance_percent: float = 0.0) -> str:
    """Say how a run differs from its baseline, with what its time goes to; nothing if the makespan is as it was.

    Parameters
    ----------
    before, now
        The baseline's entry and the run's.
    topology
        Name of the machine.
    tolerance_percent
        Percent of the baseline's makespan that the run may be slower or faster.
    """
    change = now.makespan_ps - before.makespan_ps
    if abs(change) * 100 <= Fraction(tolerance_percent) * before.makespan_ps:
        return ""
    allowed = f"; {tolerance_percent:g} % is allowed" if tolerance_percent else ""
    lines = [
        f"{'slower' if change > 0 else 'faster'} than the baseline: {now.makespan_ps:,} ps, not "
        f"{before.makespan_ps:,} ps ({100 * change / before.makespan_ps:+.3g} %{allowed})"
    ]
    if now.topology_sha256 != before.topology_sha256:
        lines.append(
            f"the machine has changed: {topology} has sha256 {now.topology_sha256[:12]}... now, "
            f"not {before.topology_sha256[:12]}..."
        )
    return "\n".join([*lines, *_table(before, now)])


def _table(before: Entry, now: Entry) -> list[str]:
    """Return the makespan by cause, before and now: what grew most first, if the run became faster what shrank most."""
    was, is_now = before.ps_by_cause, now.ps_by_cause
    grew = {cause: is_now.get(cause, 0) - was.get(cause, 0) for cause in sorted({*was, *is_now})}
    slower = now.makespan_ps > before.makespan_ps
    order = sorted(grew, key=lambda cause: -grew[cause] if slower else grew[cause])
    rows = [("cause", "baseline, ps", "now, ps", "difference, ps")]
    rows += [(c, f"{was.get(c, 0):,}", f"{is_now.get(c, 0):,}", _signed(grew[c])) for c in order]
    change = now.makespan_ps - before.makespan_ps
    rows.append(("makespan", f"{before.makespan_ps:,}", f"{now.makespan_ps:,}", _signed(change)))
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    return [
        f"  {name:{first}}" + "".join(f"  {cell:>{width}}" for cell, width in zip(cells, others, strict=True))
        for name, *cells in rows
    ]


def _signed(number: int) -> str:
    return f"{number:+,}" if number else "0"
