"""Hold every shipped measured run against its prediction and print the tables of docs/cross-validation.md.

Kinds of evidence are never mixed in a row of a table, and rows that a figure may have been fitted to never with those
kept aside. With --write the tables replace what stands between their markers in docs/cross-validation.md and README.md,
the picture is drawn again, and kernbench/data/validated.json says anew what the rows cover. Takes a minute or two.
Usage: python benchmarks/cross_validation.py [--write]
"""

from __future__ import annotations

import argparse
import functools
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np

from kernbench.machine import load_machine
from kernbench.machine.describe import describe
from kernbench.realrun.calibrate import MARK
from kernbench.realrun.compare import Comparison, Row, compare, errors_of, measured_times, ordering
from kernbench.realrun.compare_plot import plot_comparison
from kernbench.realrun.predict import entry, predict
from kernbench.realrun.predict.estimate import estimate
from kernbench.realrun.records import RunRecord
from kernbench.realrun.sources import read_records, shipped_records
from kernbench.realrun.validated import covered
from kernbench.validated import write_measured_families

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = (ROOT / "docs/cross-validation.md", ROOT / "README.md")
PICTURE = ROOT / "docs/cross-validation.png"
MACHINES = ("h200", "h200x2", "mi300x", "mi300x8", "mi325x", "mi355x", "mi250x")
H200 = "NVIDIA H200"
TRITON = ("decode_splitkv", "prefill", "block_sparse")
SDPA = ("sdpa_flash", "sdpa_cudnn")
ULTRA = "ultraquant_decode"
AMD = ("MI300X", "MI355X", "MI350X", "MI350", "MI355")
WORST = 12
REASONS = 24


# ---------------------------------------------------------------- kinds of evidence
def kind(row: Row) -> str:
    """Say what a measured time is worth: recorded here, recorded and kept as a file, or published by others."""
    if row.evidence == "live":
        return "live"
    return f"published, {row.grade}" if row.field == "published" else "recorded"


@dataclass(frozen=True)
class Target:
    """One line of the table of targets."""

    what: str
    rows: Callable[[Row], bool]
    median: float
    p90: float | None = None


TARGETS = (
    Target(
        "H200, Triton kernels (decode_splitkv, prefill, block_sparse), cold and warm",
        lambda r: r.gpu == H200 and r.family in TRITON and r.field in ("cold", "warm"), 0.06, 0.16,
    ),
    Target(
        "H200, SDPA flash and cuDNN, cold and warm",
        lambda r: r.gpu == H200 and r.family in SDPA and r.field in ("cold", "warm"), 0.12, 0.30,
    ),
    Target(
        "MI300X, MI355X, MI350, published, grade A, implementation stated or assumed",
        lambda r: r.gpu.split()[-1] in AMD and r.grade == "A", 0.15, 0.35,
    ),
    Target(
        "two H200s: step of sequence-parallel decode, in a graph",
        lambda r: r.family == "sequence_parallel_decode" and r.field == "warm", 0.12,
    ),
    Target("two H200s: collectives, in a graph", lambda r: r.family == "collective", 0.15),
)  # fmt: skip
ORDERING = 0.90


def _attends(r: Row, family: str) -> bool:
    return r.family == family and r.gpu == H200 and r.field != "reduce"


GROUPS: tuple[tuple[str, Callable[[Row, RunRecord], bool]], ...] = (
    ("block_sparse, `skip`, 4 waves", lambda r, x: _sparse(r, x, "skip") and x.implementation.waves == 4),
    ("block_sparse, `skip`, 8 waves", lambda r, x: _sparse(r, x, "skip") and x.implementation.waves == 8),
    ("block_sparse, `mask`", lambda r, x: _sparse(r, x, "mask")),
    ("mla_decode, one stage (no pipeline)", lambda r, x: _attends(r, "mla_decode") and x.implementation.stages == 1),
    ("mla_decode, two stages", lambda r, x: _attends(r, "mla_decode") and x.implementation.stages == 2),
    ("decode: the merging launch alone", lambda r, x: r.field == "reduce"),
    ("decode_splitkv, 2-byte cache", lambda r, x: _attends(r, "decode_splitkv") and _wide(x)),
    ("decode_splitkv, 1-byte cache", lambda r, x: _attends(r, "decode_splitkv") and not _wide(x)),
    ("ultraquant_decode, tiles of 32", lambda r, x: _attends(r, ULTRA) and x.implementation.block_n == 32),
    ("ultraquant_decode, tiles of 64", lambda r, x: _attends(r, ULTRA) and x.implementation.block_n == 64),
    ("prefill, one stage", lambda r, x: _attends(r, "prefill") and x.implementation.stages == 1),
    ("prefill, two stages", lambda r, x: _attends(r, "prefill") and x.implementation.stages == 2),
    ("prefill, three stages", lambda r, x: _attends(r, "prefill") and x.implementation.stages == 3),
    ("sdpa_flash, causal", lambda r, x: r.family == "sdpa_flash" and bool(x.spec.causal)),
    ("sdpa_flash, full", lambda r, x: r.family == "sdpa_flash" and not x.spec.causal),
    ("sdpa_cudnn, causal", lambda r, x: r.family == "sdpa_cudnn" and bool(x.spec.causal)),
    ("sdpa_cudnn, full", lambda r, x: r.family == "sdpa_cudnn" and not x.spec.causal),
    ("MI355X, aiter, grade A", lambda r, x: _published(r, x, "aiter", "A") and r.gpu == "MI355X"),
    ("MI355X, aiter, grade B", lambda r, x: _published(r, x, "aiter", "B") and r.gpu == "MI355X"),
    ("MI355X, HipKittens", lambda r, x: _published(r, x, "HipKittens", "A") and r.gpu == "MI355X"),
    ("MI300X, aiter", lambda r, x: _published(r, x, "aiter", "A") and r.gpu == "MI300X"),
    ("MI300X, moonmath", lambda r, x: _published(r, x, "moonmath", "A") and r.gpu == "MI300X"),
    ("two H200s: merging launches of a step", lambda r, x: r.field in ("local_reduce", "merge")),
)  # fmt: skip
"""Parts of families that differ in how well they are predicted."""


def _sparse(r: Row, record: RunRecord, mode: str) -> bool:
    return _attends(r, "block_sparse") and record.spec.mode == mode


def _wide(record: RunRecord) -> bool:
    return record.spec.kv_dtype in ("bf16", "f16")


def _published(r: Row, record: RunRecord, name: str, grade: str) -> bool:
    return name in record.implementation.name and r.grade == grade


# ---------------------------------------------------------------- tables
def table(headings: Sequence[str], lines: Iterable[Sequence[str]], left: int = 1) -> str:
    """Return a Markdown table whose first ``left`` columns are aligned left."""
    marks = ["---" if i < left else "---:" for i in range(len(headings))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headings, marks, *lines))


def percent(share: float) -> str:
    return f"{share:.1%}".replace("%", " %")


def signed(share: float) -> str:
    return f"{share:+.1%}".replace("%", " %")


def cells(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the statistics of rows; the roofline's is of whole runs only, not of the merging launch of a decode."""
    e = errors_of(rows)
    whole = [r for r in rows if r.field != "reduce"]
    roofline = percent(errors_of(whole).roofline_median) if whole else "–"
    return str(e.n), percent(e.median), percent(e.mean), percent(e.p90), signed(e.bias), roofline


STATISTICS = ("rows", "median", "mean", "p90", "bias", "roofline's median")


def targets(found: Comparison) -> str:
    """Return the targets and what was measured, judged on rows kept aside."""
    lines = []
    for target in TARGETS:
        mine = [r for r in found.rows if target.rows(r)]
        aside = [r for r in mine if r.split == "test"]
        wanted = f"{target.median:.0%}" + (f", {target.p90:.0%}" if target.p90 else "")
        if not aside:
            lines.append((target.what, wanted.replace("%", " %"), "0", "", "not judged", ""))
            continue
        e, every = errors_of(aside), errors_of(mine)
        reached = e.median <= target.median and (target.p90 is None or e.p90 <= target.p90)
        p90 = target.p90 is not None
        lines.append(
            (
                target.what, wanted.replace("%", " %"), str(e.n),
                percent(e.median) + (f", {percent(e.p90)}" if p90 else ""),
                "reached" if reached else "**not reached**",
                f"{percent(every.median)}" + (f", {percent(every.p90)}" if p90 else "") + f" ({every.n})",
            )
        )  # fmt: skip
    aside_order, order = ordering([r for r in found.rows if r.split == "test"]), found.ordering
    if aside_order.share is not None and order.share is not None:
        lines.append(
            (
                "which of two implementations of the same work is faster, where they differ by > 10 %",
                f"≥ {ORDERING:.0%}".replace("%", " %"), f"{aside_order.pairs} pairs", percent(aside_order.share),
                "reached" if aside_order.share >= ORDERING else "**not reached**",
                f"{percent(order.share)} ({order.pairs} pairs)",
            )
        )  # fmt: skip
    heads = ("what", "at most: median, p90", "rows kept aside", "measured: median, p90", "", "all rows")
    return table(heads, lines)


def half(found: Comparison, side: str) -> str:
    """Return the errors of one half by kernel family, GPU and kind of evidence."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for r in found.rows:
        if r.split == side:
            groups.setdefault((r.family, r.gpu, kind(r)), []).append(r)
    lines = [(f"`{key[0]}`", *key[1:], *cells(mine)) for key, mine in sorted(groups.items())]
    return table(("family", "GPU", "evidence", *STATISTICS), lines, left=3)


def by_time(found: Comparison) -> str:
    """Return the errors of the live rows kept aside by which time was measured."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for r in found.rows:
        if r.split == "test" and kind(r) == "live":
            groups.setdefault((r.family, r.field), []).append(r)
    lines = [(f"`{family}`", f"`{field}`", *cells(mine)) for (family, field), mine in sorted(groups.items())]
    return table(("family", "time", *STATISTICS), lines, left=2)


def groups(found: Comparison, records: Sequence[RunRecord]) -> str:
    """Return the errors of parts of families, of rows kept aside."""
    by_id = {r.id: r for r in records}
    aside = [(r, by_id.get(r.id) or by_id[r.id.rpartition(":")[0]]) for r in found.rows if r.split == "test"]
    lines = []
    for name, belongs in GROUPS:
        mine = [row for row, record in aside if belongs(row, record)]
        if mine:
            lines.append((name, *cells(mine)[:-1]))
    return table(("part", *STATISTICS[:-1]), lines)


def worst(found: Comparison) -> str:
    """Return the worst rows that were kept aside."""
    rows = sorted((r for r in found.rows if r.split == "test"), key=lambda r: -abs(r.log_ratio))[:WORST]
    lines = [
        (f"`{r.id}`", kind(r), signed(r.signed), f"{r.measured_us:,.1f}", f"{r.predicted_us:,.1f}", r.reason)
        for r in rows
    ]
    return table(
        ("row", "evidence", "error", "measured, µs", "predicted, µs", "what bounds it, says the model"), lines, left=2
    )


def skipped(found: Comparison, records: Sequence[RunRecord]) -> str:
    """Return how many rows were not compared, by reason."""
    gpu = {r.id: r.device.gpu or r.device.arch for r in records}
    groups: dict[str, list[str]] = {}
    for skip in found.skipped:
        plain = re.sub(r"it needs .*", "it needs more than a PE has", skip.reason)
        groups.setdefault(plain, []).append(gpu.get(skip.id.split(":")[0], ""))
    ranked = sorted(groups.items(), key=lambda item: -len(item[1]))
    lines = [
        (reason, str(len(where)), ", ".join(f"{name} {n}" for name, n in Counter(filter(None, where)).most_common(4)))
        for reason, where in ranked[:REASONS]
    ]
    if ranked[REASONS:]:
        lines.append((f"{len(ranked) - REASONS} more reasons", str(sum(len(w) for _, w in ranked[REASONS:])), ""))
    lines.append(("**all**", str(len(found.skipped)), ""))
    return table(("reason", "rows", "GPUs"), lines)


def figures() -> str:
    """Return the fitted figures of each machine file, with what the file says of them."""
    lines = []
    before: set[tuple[str, str]] = set()
    for name in MACHINES:
        fitted = [f for f in describe(load_machine(name)) if f.note.startswith(MARK)]
        if name == "h200x2":  # what it shares with one H200 stands there
            fitted = [f for f in fitted if (f.key, f.value) not in before]
        for f in fitted:
            note = f.note.removeprefix(MARK).lstrip(": ")
            lines.append((f"`{name}`", f"`{f.key}`", f.value, note))
        if not fitted:
            lines.append((f"`{name}`", "none", "", ""))
        before |= {(f.key, f.value) for f in fitted}
    return table(("machine", "figure", "value", "fitted to"), lines, left=4)


def evidence(found: Comparison) -> str:
    """Return how many rows of each kind of evidence were compared."""
    counts = Counter((kind(r), r.gpu, r.split) for r in found.rows)
    places = sorted({key[:2] for key in counts})
    lines = [(k, gpu, str(counts[k, gpu, "train"]), str(counts[k, gpu, "test"])) for k, gpu in places]
    return table(("evidence", "GPU", "rows for fitting", "rows kept aside"), lines, left=2)


def carried_on(found: Comparison, records: Sequence[RunRecord]) -> str:
    """Return how far long launches that are simulated in part are from the same ones simulated whole.

    Of every fifth record of which at least a tenth of the tiles was simulated.
    """
    shares = {r.id: re.search(r"carried on from (\d+)%", r.reason) for r in found.rows}
    part = {name: int(m[1]) for name, m in shares.items() if m}
    long = [r for r in records if max((part.get(f"{r.id}:{f}", 0) for f in measured_times(r)), default=0) >= 10]
    long += [r for r in records if part.get(r.id, 0) >= 10]
    groups: dict[str, list[float]] = {}
    for record in long[::5]:
        with mock.patch.object(entry, "estimate", functools.partial(estimate, most=1 << 40)):
            whole = {p.field: p.predicted_us for p in predict(record)}
        errors = [p.predicted_us / whole[p.field] - 1 for p in predict(record) if "carried on" in p.reason]
        groups.setdefault(record.family, []).extend(errors)
    every = [e for mine in groups.values() for e in mine]
    lines = []
    for family, mine in [*sorted(groups.items()), ("all", every)]:
        e = np.abs(mine)
        shown = (float(np.median(e)), float(np.percentile(e, 90)), float(e.max()))
        lines.append((f"`{family}`" if family != "all" else "all", str(len(mine)), *map(percent, shown)))
    return table(("family", "times", "median", "p90", "most"), lines)


BLIND = ROOT / "kernbench/data/h200_blind.jsonl"
"""Runs of other sizes, recorded after the model's rules were settled; not among those that anything is fitted to."""


def blind(found: Comparison) -> str:
    """Return the errors over runs that were recorded after the model, and how often it names the faster right."""
    groups: dict[str, list[Row]] = {}
    for r in found.rows:
        if r.field in ("cold", "warm"):
            groups.setdefault(r.family, []).append(r)
    lines = [(f"`{family}`", *cells(mine)) for family, mine in sorted(groups.items())]
    for name, families in (("Triton, first target", TRITON), ("SDPA, second target", SDPA)):
        mine = [r for family in families for r in groups.get(family, [])]
        lines.append((f"**{name}**", *cells(mine)))
    order = found.ordering
    if order.share is not None:
        lines.append((f"faster of two named right, of {order.pairs} pairs", "", percent(order.share), *[""] * 4))
    return table(("family, cold and warm", *STATISTICS), lines)


def summary(found: Comparison) -> str:
    """Return the small table of the README: rows kept aside by GPU and evidence."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for r in found.rows:
        if r.split == "test" and r.grade != "B":
            groups.setdefault((r.gpu, kind(r)), []).append(r)
    lines = []
    for (gpu, what), mine in sorted(groups.items(), key=lambda item: -len(item[1])):
        e = errors_of(mine)
        known = (str(e.n), percent(e.median), percent(e.p90), cells(mine)[-1])
        families = ", ".join(sorted({f"`{r.family}`" for r in mine}))
        lines.append((gpu, what, families, *known))
    return table(("GPU", "evidence", "families", "rows", "median", "p90", "roofline's median"), lines, left=3)


# ---------------------------------------------------------------- the document
def replaced(text: str, sections: dict[str, str]) -> str:
    """Return a document with each section between its markers."""
    for name, body in sections.items():
        begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
        pattern = re.compile(re.escape(begin) + r".*?" + re.escape(end), flags=re.DOTALL)
        text = pattern.sub(f"{begin}\n{body}\n{end}".replace("\\", r"\\"), text)
    return text


def main() -> None:
    """Compare and print, or write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the tables into the documents")
    options = parser.parse_args()
    records: list[RunRecord] = []
    unread: list[tuple[str, str]] = []
    for path in shipped_records():
        loaded = read_records(path)
        records += loaded.records
        unread += loaded.skipped

    def tell(done: int, total: int) -> None:
        if sys.stderr.isatty():
            print(f"\rpredict {done}/{total}", end="" if done < total else "\n", file=sys.stderr, flush=True)

    found = compare(records, predict, progress=tell, skipped=unread)
    unseen_records = read_records(BLIND).records
    unseen = compare(unseen_records, predict)
    sections = {
        "evidence": evidence(found), "targets": targets(found), "kept-aside": half(found, "test"),
        "fitted-to": half(found, "train"), "by-time": by_time(found), "groups": groups(found, records),
        "worst": worst(found), "skipped": skipped(found, records), "figures": figures(), "summary": summary(found),
        "carried-on": carried_on(found, records), "blind": blind(unseen),
    }  # fmt: skip
    for name, body in sections.items():
        print(f"\n## {name}\n\n{body}")
    if options.write:
        for path in DOCUMENTS:
            path.write_text(replaced(path.read_text(encoding="utf-8"), sections), encoding="utf-8")
        plot_comparison(found, PICTURE)
        write_measured_families(covered([*found.rows, *unseen.rows], [*records, *unseen_records]))


if __name__ == "__main__":
    main()
