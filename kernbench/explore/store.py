"""Results that survive anything: an SQLite file, keyed by what each result depends on.

Every chunk of points is one transaction, so that a process that is killed at any moment leaves whole points and no
half ones. Several processes may write to one store.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from kernbench._version import __version__
from kernbench.errors import InputError, nearest
from kernbench.explore.evaluate import Outcome

_APPLICATION = 0x6B626E63  # "kbnc"
_SCHEMA = 2
_PATIENCE_S = 60
"""How long a writer waits for another one's transaction."""
_TABLES = """
CREATE TABLE points (
    key TEXT PRIMARY KEY,
    bench TEXT NOT NULL, topology TEXT NOT NULL, overrides TEXT NOT NULL, settings TEXT NOT NULL,
    sharding TEXT NOT NULL, machine_sha256 TEXT NOT NULL, sources_sha256 TEXT NOT NULL, version TEXT NOT NULL,
    status TEXT NOT NULL, error TEXT, spec TEXT NOT NULL, pes INTEGER, commands INTEGER, makespan_ps INTEGER,
    scratch_peak_bytes INTEGER, hbm_bytes INTEGER, link_bytes INTEGER, flops INTEGER
) WITHOUT ROWID;
CREATE TABLE sweeps (name TEXT PRIMARY KEY, definition TEXT NOT NULL, basis TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE members (
    sweep TEXT NOT NULL, position INTEGER NOT NULL, key TEXT NOT NULL, feasible INTEGER, cost REAL,
    topology TEXT NOT NULL, overrides TEXT NOT NULL, settings TEXT NOT NULL,
    PRIMARY KEY (sweep, position)
) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Origin:
    """What a point is, beside its outcome."""

    bench: str
    topology: str
    """How ``--topology`` names the machine's file."""
    overrides: str
    settings: str
    sharding: str
    machine_sha256: str
    sources_sha256: str
    version: str


@dataclass(frozen=True)
class Member:
    """A point's place in a sweep, and how the sweep writes it: others may write the same point otherwise."""

    position: int
    key: str
    feasible: bool | None
    """Whether it is done and breaks no constraint."""
    cost: float | None
    topology: str
    overrides: str
    settings: str


def point_key(sources_sha256: str, settings: str, machine_sha256: str, version: str) -> str:
    """Return the key of a result: a hash of all that it depends on."""
    return hashlib.sha256("\0".join((sources_sha256, settings, machine_sha256, version)).encode()).hexdigest()


def version_text(code_sha256: str) -> str:
    """Return the version that results are keyed by: that of kernbench, and the fingerprint of its code."""
    return f"{__version__}+{code_sha256[:16]}"


class Store:
    """An open store.

    Parameters
    ----------
    path
        The file.
    create
        Whether to make it if it does not exist.

    Raises
    ------
    InputError
        If it does not exist, is no store, is damaged, or cannot be read or written. A file that exists is never
        changed by an error.
    """

    def __init__(self, path: Path, create: bool = False) -> None:
        self.path = path
        self._begun: dict[str, tuple[str, str]] = {}
        if not create and not path.exists():
            raise InputError(f"there is no store {path}; `kernbench sweep FILE` makes one")
        if path.is_dir():
            raise InputError(f"{path} is a directory; a store is a file")
        with self._clear_errors():
            file = path.absolute()  # some relative paths mean another thing to SQLite, as :memory:
            self._connection = sqlite3.connect(file, timeout=_PATIENCE_S, isolation_level=None)
            if create:
                with self._transaction():
                    self._prepare(create)
            else:
                self._prepare(create)

    def _prepare(self, create: bool) -> None:
        application = self._one("PRAGMA application_id")
        empty = not self._one("SELECT count(*) FROM sqlite_master")
        if create and empty and application == 0:
            for statement in _TABLES.split(";"):
                self._connection.execute(statement)
            self._connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            self._connection.execute(f"PRAGMA user_version = {_SCHEMA}")
        elif application != _APPLICATION:
            raise InputError(
                f"{self.path} is no store of kernbench: empty, or another program's; name another with --store"
            )
        elif self._one("PRAGMA user_version") != _SCHEMA:
            raise InputError(f"{self.path} is a store of another version of kernbench; name another with --store")

    def _one(self, query: str, *values: Any) -> Any:
        return self._connection.execute(query, values).fetchone()[0]

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise InputError(f"{self.path}: {_explained(error)}") from None

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    # ---------------------------------------------------------------- writing
    def begin(self, sweep: str, definition: str, basis: str) -> None:
        """Note what a sweep is; where that has changed, its points are counted anew (results are kept).

        Parameters
        ----------
        sweep, definition
            Its name, and its file as JSON.
        basis
            What its points depend on beside the file: the kernel, the machines, kernbench.
        """
        self._begun[sweep] = (definition, basis)
        with self._clear_errors(), self._transaction():
            if self._noted(sweep) != (definition, basis):
                self._connection.execute("DELETE FROM members WHERE sweep = ?", [sweep])
                self._connection.execute("INSERT OR REPLACE INTO sweeps VALUES (?, ?, ?)", [sweep, definition, basis])

    def _noted(self, sweep: str) -> tuple[str, str] | None:
        query = "SELECT definition, basis FROM sweeps WHERE name = ?"
        found: tuple[str, str] | None = self._connection.execute(query, [sweep]).fetchone()
        return found

    def add(self, sweep: str, points: Iterable[tuple[Origin, Outcome]], members: Iterable[Member]) -> None:
        """Add results and their places in a sweep, all or none; a result that is there already stays as it is.

        Raises
        ------
        InputError
            If it cannot be written, or another process has begun another sweep of this name since.
        """
        rows = [
            (
                outcome.key, origin.bench, origin.topology, origin.overrides, origin.settings, origin.sharding,
                origin.machine_sha256, origin.sources_sha256, origin.version,
                outcome.status, outcome.error, outcome.spec, outcome.pes, outcome.commands, outcome.makespan_ps,
                outcome.scratch_peak_bytes, outcome.hbm_bytes, outcome.link_bytes, outcome.flops,
            )
            for origin, outcome in points
        ]  # fmt: skip
        places = [(sweep, m.position, m.key, m.feasible, m.cost, m.topology, m.overrides, m.settings) for m in members]
        with self._clear_errors(), self._transaction():
            if self._noted(sweep) != self._begun.get(sweep):
                raise InputError(
                    f"{self.path}: another process has begun another sweep that is called {sweep}; the points that "
                    "were stored are kept: give one of the two another name"
                )
            self._connection.executemany(f"INSERT OR IGNORE INTO points VALUES ({','.join('?' * 19)})", rows)
            self._connection.executemany("INSERT OR REPLACE INTO members VALUES (?, ?, ?, ?, ?, ?, ?, ?)", places)

    # ---------------------------------------------------------------- reading
    def outcomes(self, keys: Sequence[str]) -> dict[str, Outcome]:
        """Return the results that are there, by key."""
        names = [field.name for field in fields(Outcome)]
        found: dict[str, Outcome] = {}
        with self._clear_errors():
            for first in range(0, len(keys), 500):
                some = keys[first : first + 500]
                query = f"SELECT {','.join(names)} FROM points WHERE key IN ({','.join('?' * len(some))})"
                found |= {row[0]: Outcome(*row) for row in self._connection.execute(query, some)}
        return found

    def sweeps(self) -> dict[str, str]:
        """Return the definitions of the sweeps (JSON), by name."""
        with self._clear_errors():
            return dict(self._connection.execute("SELECT name, definition FROM sweeps ORDER BY name"))

    def definition(self, sweep: str) -> dict[str, Any]:
        """Return the definition of a sweep. Raises InputError if there is none of this name."""
        known = self.sweeps()
        if sweep not in known:
            hint = nearest(sweep, known) if known else "; it holds no sweeps yet"
            raise InputError(f"{self.path} holds no sweep {sweep!r}{hint}")
        return dict(json.loads(known[sweep]))

    def rows(self, sweep: str | None = None) -> Iterator[dict[str, Any]]:
        """Yield every point: of a sweep with its place in it, in order, or of the whole store by key."""
        query = "SELECT p.*, NULL AS sweep, NULL AS position, NULL AS feasible, NULL AS cost FROM points p ORDER BY key"
        values: list[str] = []
        if sweep is not None:
            query = (
                "SELECT p.*, m.* FROM members m JOIN points p ON p.key = m.key WHERE m.sweep = ? ORDER BY m.position"
            )
            values = [sweep]
        with self._clear_errors():
            cursor = self._connection.execute(query, values)
            names = [column[0] for column in cursor.description]
            for row in cursor:
                yield dict(zip(names, row, strict=True))

    def counts(self) -> dict[str, tuple[int, int, int]]:
        """Return (points, done, feasible) of each sweep, by name."""
        query = (
            "SELECT s.name, count(p.key), coalesce(sum(p.status = 'done'), 0), coalesce(sum(m.feasible), 0) "
            "FROM sweeps s LEFT JOIN members m ON m.sweep = s.name LEFT JOIN points p ON p.key = m.key "
            "GROUP BY s.name ORDER BY s.name"
        )
        with self._clear_errors():
            return {row[0]: (row[1], row[2], row[3]) for row in self._connection.execute(query)}


def _explained(error: sqlite3.DatabaseError) -> str:
    """Say what an error of SQLite means for the user."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    kept = "the points that were stored before are kept"
    if code == sqlite3.SQLITE_FULL:
        return f"the disk is full; {kept}: make room and run the same command again"
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return f"is no store of kernbench, or is damaged ({error}); it was left as it is: name another with --store"
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"another process has been writing to it for {_PATIENCE_S} s; {kept}: run the same command again"
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return f"cannot be opened for writing ({error})"
    return f"{error}; {kept}"
