"""Fitting the few figures of a GPU's machine file that no source gives to measured runs.

A figure can be fitted if the comment behind it in the file begins with ``calibrated``; there may be at most
:data:`MOST_FIGURES`. Only records of the *training* half (:func:`~kernbench.realrun.splits.split_of`) are looked
at; the others judge. Of published records only those of grade A count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernbench.errors import InputError, KernbenchError
from kernbench.machine import Machine
from kernbench.machine.describe import describe
from kernbench.machine.load import find_machine_file
from kernbench.machine.yamlfile import lines_of
from kernbench.realrun.compare import measured_times
from kernbench.realrun.predict.entry import predict
from kernbench.realrun.quality import unreliable
from kernbench.realrun.records import RunRecord
from kernbench.realrun.splits import split_of

MOST_FIGURES = 12
MARK = "calibrated"
SHARES = ("achievable",)
"""Last parts of the keys of figures that are at most 1."""


@dataclass(frozen=True)
class Fitted:
    """One figure that was fitted."""

    key: str
    before: str
    after: str
    """As the file writes it, with its unit."""
    sensitivity: float
    """Mean |change of ln(predicted time)| over the training rows for a change of 10 % of the figure, over 0.1."""


@dataclass(frozen=True)
class Calibration:
    """What fitting a machine found."""

    machine: Machine
    """With the fitted figures."""
    figures: tuple[Fitted, ...]
    families: tuple[str, ...]
    """Kernel families that the figures were fitted to."""
    records: int
    """Records of the training half that could be predicted."""
    rows: int
    """Measured times that the figures were fitted to."""
    error_before: float
    """Median |predicted / measured - 1| over them."""
    error_after: float


def calibratable(machine: Machine) -> list[str]:
    """Return the keys of the figures that may be fitted.

    Raises
    ------
    InputError
        If there are none, or more than twelve.
    """
    keys = [f.key for f in describe(machine) if f.note.startswith(MARK)]
    if not keys:
        raise InputError(f"{machine.source}: no figure is marked '# {MARK}: ...', so there is nothing to fit")
    if len(keys) > MOST_FIGURES:
        raise InputError(f"{machine.source}: {len(keys)} figures are marked {MARK}; at most {MOST_FIGURES} may be")
    return keys


def calibrate(
    machine: Machine,
    records: Sequence[RunRecord],
    *,
    families: Sequence[str] | None = None,
    times: Sequence[str] | None = None,
    progress: Callable[[str], None] | None = None,
    rounds: int = 6,
    jobs: int = 1,
) -> Calibration:
    """Fit a machine's calibratable figures to the training half of the records.

    The figures are multiplied by factors to minimise the sum of ``soft_l1(ln(predicted / measured))`` (rows that
    the model cannot explain count less than by their square), by :func:`scipy.optimize.least_squares`; a weak pull to
    the file's values keeps those in place that the rows say nothing about. Each record weighs the same, however many
    of its times were measured.

    ``families`` and ``times`` name those to fit to (None: all): what the model explains badly is better left out than
    allowed to pull figures away. ``jobs`` processes predict side by side, with the same result as one.

    Raises
    ------
    InputError
        If no training record can be predicted.
    """
    from scipy.optimize import least_squares

    keys = calibratable(machine)
    start = [_value(machine, key) for key in keys]
    chosen = [r for r in records if families is None or r.family in families]
    rows = [r for r in _training_rows(machine, chosen) if times is None or r.field in times]
    if not rows:
        raise InputError("no record of the training half can be predicted on this machine")
    calls = 0
    predictor = _Predictor(rows, jobs)

    def changed(factors: np.ndarray) -> Machine:
        values = [_scaled(v, float(f)) for v, f in zip(start, factors, strict=True)]
        return machine.with_overrides(dict(zip(keys, values, strict=True)))

    def residuals(factors: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        found = predictor.logs(changed(factors))
        if progress is not None:
            progress(f"fit {calls}: median error {np.median(np.abs(np.expm1(found[1]))):.2%}")
        return np.concatenate([found[0], 0.02 * np.log(factors)])

    most = [1 / float(v) if k.rsplit(".", 1)[-1] in SHARES else 5.0 for k, v in zip(keys, start, strict=True)]
    with predictor:
        before = predictor.logs(machine)[1]
        fit = least_squares(
            residuals, np.ones(len(keys)), bounds=(0.2, most), loss="soft_l1", f_scale=0.08, diff_step=0.03,
            max_nfev=rounds,
        )  # fmt: skip
        best = changed(fit.x)
        after = predictor.logs(best)[1]
    slopes = np.abs(fit.jac[: len(rows)]).mean(axis=0)
    figures = tuple(
        Fitted(key, str(a), str(_scaled(a, float(f))), float(s))
        for key, a, f, s in zip(keys, start, fit.x, slopes, strict=True)
    )
    middle = [float(np.median(np.abs(np.expm1(e)))) for e in (before, after)]
    used = tuple(sorted({r.record.family for r in rows}))
    return Calibration(best, figures, used, len({id(r.record) for r in rows}), len(rows), middle[0], middle[1])


def write_machine(result: Calibration, path: Path) -> None:
    """Write the fitted machine: the file that it came from with the fitted figures in place, each with its provenance.

    Raises
    ------
    InputError
        If the machine did not come from a file.
    """
    original = find_machine_file(result.machine.source)
    text = original.read_text(encoding="utf-8")
    lines, where = text.splitlines(), lines_of(text)
    for figure in result.figures:
        line = lines[where[figure.key]]
        head, _, _ = line.partition("#")
        name, colon, _ = head.partition(":")
        if not colon or "{" in head:
            raise InputError(f"{original}: {figure.key} shares its line with others; give it one of its own")
        written = f"{name}: {figure.after}"
        origin = f"{result.rows} times of {result.records} training records ({', '.join(result.families)})"
        lines[where[figure.key]] = f"{written:<27} # {MARK}: {origin}"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class _Row:
    record: RunRecord
    field: str
    measured_us: float
    weight: float


def _training_rows(machine: Machine, records: Sequence[RunRecord]) -> list[_Row]:
    rows = []
    for record in records:
        if split_of(record) != "train" or not (record.evidence == "live" or record.grade == "A"):
            continue
        doubted = unreliable(record)
        measured = {k: us for k, us in measured_times(record).items() if k not in doubted}
        try:
            fields = [p.field for p in predict(record, machine) if p.field in measured]
        except KernbenchError:
            continue
        rows += [_Row(record, f, measured[f], 1 / math.sqrt(len(fields))) for f in fields]
    return rows


class _Predictor:
    """Predicts the training rows on one machine after another, in several processes."""

    def __init__(self, rows: Sequence[_Row], jobs: int) -> None:
        self._rows = rows
        self._records = list({id(r.record): r.record for r in rows}.values())
        self._place = {id(r): i for i, r in enumerate(self._records)}
        self._jobs = max(1, min(jobs, len(self._records)))
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> _Predictor:
        if self._jobs > 1:
            self._pool = ProcessPoolExecutor(self._jobs)
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def logs(self, machine: Machine) -> tuple[np.ndarray, np.ndarray]:
        """Return ln(predicted / measured) of each row, weighted and not."""
        parts = [self._records[i :: self._jobs] for i in range(self._jobs)]
        if self._pool is None:
            found = [_predicted(part, machine) for part in parts]
        else:
            found = list(self._pool.map(_predicted, parts, [machine] * self._jobs))
        logs = []
        for row in self._rows:
            place = self._place[id(row.record)]
            us = found[place % self._jobs][place // self._jobs][row.field]
            logs.append(math.log(us / row.measured_us))
        return np.array(logs) * np.array([r.weight for r in self._rows]), np.array(logs)


def _predicted(records: Sequence[RunRecord], machine: Machine) -> list[dict[str, float]]:
    return [{p.field: p.predicted_us for p in predict(record, machine)} for record in records]


def _value(machine: Machine, key: str) -> Any:
    value: Any = machine.document
    for step in key.split("."):
        value = value[step]
    return value


def _scaled(written: Any, factor: float) -> Any:
    """Multiply a figure as the file writes it, keeping its unit; four digits are kept."""
    if isinstance(written, str):
        number, _, unit = written.strip().partition(" ")
        return f"{float(number) * factor:.4g} {unit}"
    scaled = round(float(written) * factor, 3 - math.floor(math.log10(abs(float(written) * factor))) - 1)
    return round(scaled, 3)
