"""Read a file of measured runs, whatever its format: the content tells."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernbench.errors import InputError
from kernbench.realrun.records import RunRecord, parse_record
from kernbench.realrun.sources.recordings import Recordings
from kernbench.realrun.sources.rocm_csv import HEADER_START, read_rocm_csv


@dataclass
class Loaded:
    """What a file of runs held."""

    records: list[RunRecord] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    """Id and reason of each row that is well formed but cannot become a record."""


def read_records(path: Path | str) -> Loaded:
    """Read a file of run records, of H200 recordings or of published timings; each may be gzipped.

    Raises
    ------
    InputError
        If the file cannot be read, is of no known format, or has a broken line: names the file, the line and what is
        wrong.
    """
    path = Path(path)
    text = _text(path)
    first = text.lstrip()
    if first.startswith(HEADER_START):
        loaded = Loaded()
        for record, reason in read_rocm_csv(text, str(path)):
            if isinstance(record, RunRecord):
                loaded.records.append(record)
            else:
                loaded.skipped.append((record, reason))
        return loaded
    if first.startswith("{"):
        return _json_lines(text, path)
    if not first:
        raise InputError(f"{path}: the file is empty; expected run records as JSON lines, or a CSV of timings")
    raise InputError(
        f"{path}:1: neither JSON lines of run records nor a CSV that starts with {HEADER_START!r}: {first[:40]!r}"
    )


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputError(f"{path}:{line}: not UTF-8 text") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path}: broken gzip file: {error}") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def _json_lines(text: str, path: Path) -> Loaded:
    loaded = Loaded()
    lines = list(_objects(text, path))
    recordings = Recordings([(where, line) for where, line, _ in lines if "kind" in line and "family" not in line])
    for where, line, raw in lines:
        if "family" in line:
            loaded.records.append(parse_record(raw, where))
        elif "kind" in line:
            made = recordings.convert(line, where)
            if isinstance(made, RunRecord):
                loaded.records.append(made)
            elif made is not None:
                loaded.skipped.append((str(line.get("id", where)), made))
        else:
            raise InputError(f"{where}: has neither 'family' (a run record) nor 'kind' (a recording)")
    return loaded


def _objects(text: str, path: Path) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield where it stands, the object and its text for each line that is not blank."""
    for number, raw in enumerate(text.split("\n"), 1):
        if not raw.strip():
            continue
        where = f"{path}:{number}"
        try:
            found = json.loads(raw, parse_constant=_no_constant, parse_float=_finite)
        except ValueError as error:
            raise InputError(f"{where}: not JSON: {error}") from None
        except RecursionError:
            raise InputError(f"{where}: not JSON that can be read: nested too deeply") from None
        if not isinstance(found, dict):
            raise InputError(f"{where}: expected a JSON object, found {type(found).__name__}")
        yield where, found, raw


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number here")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large")
    return value
