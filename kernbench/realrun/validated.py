"""What a comparison covers: sizes and formats of the runs that were held against predictions, by family and machine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kernbench.realrun.compare import Row
from kernbench.realrun.predict import machine_of
from kernbench.realrun.records import RunRecord
from kernbench.validated import MeasuredFamily

_SIZES = ("batch", "h_q", "h_kv", "s_q", "s_kv", "d_qk", "d_v", "density", "page_size", "nbytes")
_FORMATS = ("dtype", "kv_dtype")


def covered(rows: Iterable[Row], records: Iterable[RunRecord]) -> tuple[MeasuredFamily, ...]:
    """Return what the rows of a comparison of ``records`` cover, by machine and family.

    Records that no row came from (host-bound, not modelled, of grade C ...) cover nothing.
    """
    by_id = {record.id: record for record in reversed([*records])}  # the first of an id, as compare takes it
    groups: dict[tuple[str, str], list[RunRecord]] = {}
    for row in rows:
        record = by_id.get(row.id) or by_id[row.id.rpartition(":")[0]]
        groups.setdefault((machine_of(record).name, row.family), []).append(record)
    return tuple(
        MeasuredFamily(
            machine=machine, family=family, times=len(mine),
            sizes={name: (min(v), max(v)) for name in _SIZES if (v := _values(mine, name))},
            formats={name: tuple(sorted(set(v))) for name in _FORMATS if (v := _values(mine, name))},
        )
        for (machine, family), mine in sorted(groups.items())
    )  # fmt: skip


def _values(records: list[RunRecord], name: str) -> list[Any]:
    return [value for r in records if (value := getattr(r.spec, name)) is not None]
