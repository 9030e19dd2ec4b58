"""Hold predicted times against measured ones: errors by kernel family and GPU, and which launch is the faster."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from kernbench.errors import InputError, KernbenchError, nearest
from kernbench.output import whole_file
from kernbench.realrun.prediction import NotModelled, Prediction
from kernbench.realrun.quality import unreliable
from kernbench.realrun.records import Evidence, Family, RunRecord
from kernbench.realrun.splits import Half, launch_key, split_of

Predict = Callable[[RunRecord], list[Prediction]]

FASTER_BY = 0.10
"""Two measured times must differ by more than this share of the shorter one for their order to count."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Row(_Part):
    """One measured time of one record, and what the model makes of it. Times in microseconds."""

    id: str = Field(description="the record's id, and ':field' if several of its times are predicted")
    measured_us: float
    predicted_us: float
    roofline_us: float
    reason: str = Field(description="what bounds it, in the model's words")
    regime: str
    family: Family
    gpu: str
    field: str
    grade: Literal["A", "B", "C"] | None
    evidence: Evidence
    error: float = Field(description="|predicted / measured - 1|")
    log_ratio: float = Field(description="ln(predicted / measured): above 0 is predicted too slow")
    split: Half
    comparable: str = Field(exclude=True, description="equal for rows whose order may be judged")
    launch: str = Field(exclude=True, description="equal for rows of the same launch")

    @property
    def signed(self) -> float:
        """predicted / measured - 1."""
        return self.predicted_us / self.measured_us - 1

    @property
    def roofline_error(self) -> float:
        """|roofline / measured - 1|."""
        return abs(self.roofline_us / self.measured_us - 1)


class Skip(_Part):
    """A record, or one time of it, that was not compared."""

    id: str
    reason: str


class Errors(_Part):
    """Statistics of rows. An error is |predicted / measured - 1|."""

    n: int
    median: float
    mean: float
    p90: float = Field(description="90th percentile, linear between rows")
    bias: float = Field(description="mean of predicted / measured - 1: above 0 is predicted too slow")
    roofline_median: float = Field(description="median of |roofline / measured - 1| on the same rows")


class FamilyErrors(Errors):
    """Statistics of a kernel family on one GPU."""

    gpu: str


class Ordering(_Part):
    """How often the model names the faster of two launches of the same work."""

    pairs: int = Field(description="whose measured times differ by more than 10 %")
    right: int
    tied: int = Field(description="predicted equal: counted as not right")
    share: float | None = Field(description="right / pairs; None without pairs")


class Comparison(_Part):
    """What :func:`compare` found."""

    families: dict[str, FamilyErrors] = Field(description="by family, or 'family@gpu' if it ran on several GPUs")
    kept_aside: dict[str, FamilyErrors] = Field(description="the same, of the rows that no figure was fitted to only")
    rows: list[Row]
    skipped: list[Skip]
    ordering: Ordering
    halves: dict[Half, Errors] = Field(description="of the rows a model may be fitted to, and of those kept aside")


def compare(
    records: Iterable[RunRecord],
    predict: Predict,
    *,
    families: Sequence[str] | None = None,
    gpu: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    skipped: Iterable[tuple[str, str]] = (),
) -> Comparison:
    """Predict every record and hold the result against what was measured.

    Rows of grade C are listed as skipped: they are for trying out readers, never for a statistic.

    Parameters
    ----------
    records
        Measured runs.
    predict
        The model: predictions of a record, each for one of its measured times. Raises :class:`NotModelled` for a
        record that it has no answer for; any :class:`KernbenchError` is kept as a reason too.
    families
        Only these kernel families; None: all.
    gpu
        Only runs on this GPU: its name, a word of its name, or its architecture, in any case; None: all.
    progress
        Called with the number of records done and of all.
    skipped
        Ids and reasons of rows that a reader could make no record of, to be listed with the others.

    Raises
    ------
    InputError
        If a family is not known or nothing was run on such a GPU.
    """
    for name in families or ():
        if name not in get_args(Family):
            raise InputError(f"no kernel family {name!r}{nearest(name, get_args(Family))}")
    chosen = [r for r in records if families is None or r.family in families]
    if gpu is not None:
        chosen = of_gpu(chosen, gpu)
    rows: list[Row] = []
    left_out = [Skip(id=name, reason=reason) for name, reason in skipped]
    seen: set[str] = set()
    for done, record in enumerate(chosen, 1):
        if record.id in seen:
            left_out.append(Skip(id=record.id, reason="a record of this id came before"))
        elif record.grade == "C":
            left_out.append(Skip(id=record.id, reason="grade C: never for an error statistic"))
        else:
            found, missing = _judge(record, predict)
            rows += found
            left_out += missing
        seen.add(record.id)
        if progress is not None:
            progress(done, len(chosen))
    halves: dict[Half, Errors] = {}
    for half in get_args(Half):
        mine = [r for r in rows if r.split == half]
        if mine:
            halves[half] = errors_of(mine)
    return Comparison(
        families=by_family(rows), kept_aside=by_family(rows, "test"), rows=rows, skipped=left_out,
        ordering=ordering(rows), halves=halves,
    )  # fmt: skip


def _judge(record: RunRecord, predict: Predict) -> tuple[list[Row], list[Skip]]:
    measured = measured_times(record)
    if not measured:
        known = "only TFLOPS" if record.tflops else "only GB/s" if record.gbps else "nothing"
        return [], [Skip(id=record.id, reason=f"no measured time: {known} published, by a convention not known")]
    try:
        predictions = predict(record)
    except NotModelled as reason:
        return [], [Skip(id=record.id, reason=str(reason))]
    except KernbenchError as error:
        return [], [Skip(id=record.id, reason=f"{type(error).__name__}: {error}")]
    if not predictions:
        return [], [Skip(id=record.id, reason="nothing predicted")]
    rows, missing = [], []
    untold = unreliable(record)
    for p in predictions:
        name = record.id if len(predictions) == 1 else f"{record.id}:{p.field}"
        if p.field not in measured:
            missing.append(Skip(id=name, reason=f"predicted, but no {p.field} time was measured"))
            continue
        if p.field in untold:
            missing.append(Skip(id=name, reason=untold[p.field]))
            continue
        rows.append(_row(name, record, p, measured[p.field]))
    return rows, missing


def _row(name: str, record: RunRecord, p: Prediction, measured_us: float) -> Row:
    ratio = p.predicted_us / measured_us
    work = record.spec.model_dump_json(exclude_none=True)
    return Row(
        id=name, measured_us=measured_us, predicted_us=p.predicted_us, roofline_us=p.roofline_us, reason=p.reason,
        regime=p.regime, family=record.family, gpu=gpu_name(record), field=p.field, grade=record.grade,
        evidence=record.evidence, error=abs(ratio - 1), log_ratio=math.log(ratio), split=split_of(record),
        # clocks differ from one occasion to the next by as much as kernels do, so only within one source
        comparable="|".join((gpu_name(record), str(record.device.count), p.field, record.source, work)),
        launch=launch_key(record),
    )  # fmt: skip


def measured_times(record: RunRecord) -> dict[str, float]:
    """Return every measured time of a record by its field, or its part's name: medians in microseconds.

    A time that is a quantile wins over a part of the same name.
    """
    found = {name: us for name, us in record.times.parts.items() if us > 0}
    for name in ("cold", "warm", "cold_graph", "partial", "reduce", "published"):
        quantiles = getattr(record.times, name)
        if quantiles is not None:
            found[name] = quantiles.median
    return found


def gpu_name(record: RunRecord) -> str:
    """Return what a GPU is called in tables."""
    return record.device.gpu or f"unnamed {record.device.arch}"


def of_gpu(records: Sequence[RunRecord], gpu: str) -> list[RunRecord]:
    """Return the runs on one GPU: its name, a word of its name, or its architecture, in any case.

    Raises
    ------
    InputError
        If there are runs, but none on such a GPU.
    """
    found = [r for r in records if _is_gpu(r, gpu)]
    if records and not found:
        raise InputError(f"no run on {gpu!r}{nearest(gpu, {gpu_name(r) for r in records})}")
    return found


def _is_gpu(record: RunRecord, wanted: str) -> bool:
    name, arch = gpu_name(record).lower(), record.device.arch.lower()
    return wanted.lower() in {name, arch, *name.split()}


def errors_of(rows: Sequence[Row]) -> Errors:
    """Return the statistics of at least one row."""
    errors = np.array([r.error for r in rows])
    return Errors(
        n=len(rows),
        median=float(np.median(errors)),
        mean=float(errors.mean()),
        p90=float(np.percentile(errors, 90)),
        bias=float(np.mean([r.signed for r in rows])),
        roofline_median=float(np.median([r.roofline_error for r in rows])),
    )


def by_family(rows: Sequence[Row], half: Half | None = None) -> dict[str, FamilyErrors]:
    """Return the statistics of each family on each GPU, in order of name; of one half's rows if it is given.

    The names are those of all rows, so that a half's can be put beside them.
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.family, row.gpu), []).append(row)
    gpus: dict[str, int] = {}
    for family, _ in groups:
        gpus[family] = gpus.get(family, 0) + 1
    found = {}
    for (family, gpu), group in sorted(groups.items()):
        mine = [row for row in group if half is None or row.split == half]
        if mine:
            name = family if gpus[family] == 1 else f"{family}@{gpu}"
            found[name] = FamilyErrors(gpu=gpu, **errors_of(mine).model_dump())
    return found


def ordering(rows: Sequence[Row]) -> Ordering:
    """Count how often the model names the faster of two launches right.

    Pairs have the same spec, GPU, measured field and source but different implementations (splits, tiles, kernels),
    and measured times that differ by more than :data:`FASTER_BY`.
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.comparable, []).append(row)
    pairs = right = tied = 0
    for mine in groups.values():
        for a, b in combinations(mine, 2):
            fast, slow = sorted((a, b), key=lambda r: r.measured_us)
            if a.launch == b.launch or slow.measured_us <= fast.measured_us * (1 + FASTER_BY):
                continue
            pairs += 1
            right += fast.predicted_us < slow.predicted_us
            tied += fast.predicted_us == slow.predicted_us
    return Ordering(pairs=pairs, right=right, tied=tied, share=right / pairs if pairs else None)


def write_comparison(comparison: Comparison, path: Path) -> None:
    """Write a comparison as JSON; the file appears whole or not at all.

    Raises
    ------
    InputError
        If the path cannot be written.
    """
    with whole_file(path) as file:
        file.write_text(comparison.model_dump_json(indent=1) + "\n", encoding="utf-8")
