"""The store: whole points or none, whatever happens; a file that exists is never harmed by an error."""

import os
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from kernbench.errors import InputError
from kernbench.explore.evaluate import Outcome
from kernbench.explore.store import Member, Origin, Store

ORIGIN = Origin("bench", "row4_pe8", "{}", "{}", "none", "machine", "kernel", "1")


def results(first, count):
    found = [
        (ORIGIN, Outcome(f"key{i}", "done", None, "{}", 8, 100, 1000 + i, 64, 10, 20, 30))
        for i in range(first, first + count)
    ]
    return found, [Member(i, f"key{i}", True, None, "row4_pe8", "{}", "{}") for i in range(first, first + count)]


def test_what_is_stored_is_read_back(tmp_path):
    with Store(tmp_path / "s.sqlite", create=True) as store:
        store.begin("sweep", "{}", "basis")
        store.add("sweep", *results(0, 3))
    with Store(tmp_path / "s.sqlite") as store:
        assert store.outcomes(["key1", "none"]) == {"key1": results(1, 1)[0][0][1]}
        assert [(row["position"], row["makespan_ps"]) for row in store.rows("sweep")] == [
            (0, 1000),
            (1, 1001),
            (2, 1002),
        ]
        assert store.counts() == {"sweep": (3, 3, 3)}


def test_a_result_that_is_there_stays_as_it_is(tmp_path):
    with Store(tmp_path / "s.sqlite", create=True) as store:
        store.begin("sweep", "{}", "basis")
        store.add("sweep", *results(0, 1))
        store.add("sweep", [(ORIGIN, Outcome("key0", "failed", "other"))], [])
        assert store.outcomes(["key0"])["key0"].status == "done"


def test_a_sweep_whose_file_has_changed_counts_its_points_anew_and_keeps_results(tmp_path):
    with Store(tmp_path / "s.sqlite", create=True) as store:
        store.begin("sweep", "{}", "basis")
        store.add("sweep", *results(0, 3))
        store.begin("sweep", "{}", "basis")
        assert len(list(store.rows("sweep"))) == 3
        store.begin("sweep", '{"bench": "other"}', "basis")
        assert list(store.rows("sweep")) == []
        assert len(list(store.rows())) == 3


def test_a_sweep_on_another_basis_counts_its_points_anew_and_keeps_results(tmp_path):
    with Store(tmp_path / "s.sqlite", create=True) as store:
        store.begin("sweep", "{}", "a machine")
        store.add("sweep", *results(0, 3))
        store.begin("sweep", "{}", "another machine")
        assert list(store.rows("sweep")) == []
        assert len(list(store.rows())) == 3


def test_a_sweep_whose_machine_or_kernel_has_changed_counts_its_points_anew(tmp_path):
    with Store(tmp_path / "s.sqlite", create=True) as store:
        store.begin("sweep", "{}", "machine 1")
        store.add("sweep", *results(0, 3))
        store.begin("sweep", "{}", "machine 2")
        assert list(store.rows("sweep")) == []


def test_two_sweeps_of_one_name_at_once_are_not_mixed(tmp_path):
    with Store(tmp_path / "s.sqlite", create=True) as one, Store(tmp_path / "s.sqlite") as other:
        one.begin("sweep", "{}", "basis")
        one.add("sweep", *results(0, 1))
        other.begin("sweep", '{"bench": "other"}', "basis")
        other.add("sweep", *results(5, 1))
        with pytest.raises(InputError, match="another process has begun another sweep that is called sweep"):
            one.add("sweep", *results(1, 1))
        assert [row["key"] for row in other.rows("sweep")] == ["key5"]


def test_reading_changes_nothing_and_needs_no_right_to_write(tmp_path):
    path = tmp_path / "s.sqlite"
    path.write_bytes(b"")
    with pytest.raises(InputError, match="is no store of kernbench: empty"):
        Store(path)
    assert path.read_bytes() == b""
    with Store(path, create=True) as store:
        store.begin("sweep", "{}", "")
        store.add("sweep", *results(0, 1))
    with sqlite3.connect(path) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with Store(path) as store:  # does not wait for the writer
            assert len(list(store.rows("sweep"))) == 1


def test_a_store_is_a_file_whatever_its_name_means_to_sqlite(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Store(Path(":memory:"), create=True) as store:
        store.begin("sweep", "{}", "")
    assert os.listdir() == [":memory:"]


def test_a_chunk_is_stored_whole_or_not_at_all(tmp_path):
    with Store(tmp_path / "s.sqlite", create=True) as store:
        store.begin("sweep", "{}", "basis")
        rows, members = results(0, 2)
        with pytest.raises(InputError):
            store.add("sweep", rows, [*members, replace(members[0], position=None)])
        assert list(store.rows()) == []
        store.add("sweep", rows, members)
        assert len(list(store.rows("sweep"))) == 2


def test_several_writers_lose_nothing(tmp_path):
    path = tmp_path / "s.sqlite"
    failures = []

    def write(writer):
        try:
            with Store(path, create=True) as store:
                store.begin(f"sweep{writer % 2}", "{}", "basis")
                for chunk in range(20):
                    store.add(f"sweep{writer % 2}", *results(100 * writer + 5 * chunk, 5))
        except Exception as error:
            failures.append(error)

    writers = [threading.Thread(target=write, args=[i]) for i in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert not failures
    with Store(path) as store:
        assert store.counts() == {"sweep0": (200, 200, 200), "sweep1": (200, 200, 200)}


def test_a_full_disk_is_a_clear_error_and_keeps_what_was_stored(tmp_path):
    with Store(tmp_path / "s.sqlite", create=True) as store:
        store.begin("sweep", "{}", "basis")
        store.add("sweep", *results(0, 10))
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count = {pages}")  # SQLite's own word for a disk that is full
        with pytest.raises(InputError, match="the disk is full; the points that were stored before are kept"):
            store.add("sweep", *results(10, 1000))
    with Store(tmp_path / "s.sqlite") as store:
        assert store.counts() == {"sweep": (10, 10, 10)}


def use(path):
    with Store(path, create=True) as store:
        store.begin("sweep", '{"a": 1}', "basis")
        store.add("sweep", *results(500, 500))
        list(store.rows("sweep"))


@pytest.mark.parametrize("damage", ["text", "head", "middle", "other"])
def test_a_file_that_is_damaged_or_no_store_is_refused_and_left_as_it_was(tmp_path, damage):
    path = tmp_path / "s.sqlite"
    if damage == "text":
        path.write_text("my thesis, the only copy\n" * 100)
    elif damage == "other":
        with sqlite3.connect(path) as other:
            other.execute("CREATE TABLE photographs (name TEXT)")
    else:
        with Store(path, create=True) as store:
            store.begin("sweep", "{}", "basis")
            store.add("sweep", *results(0, 500))
        content = bytearray(path.read_bytes())
        at = slice(0, 64) if damage == "head" else slice(4096, len(content) - 4096)
        content[at] = b"\xff" * len(content[at])
        path.write_bytes(content)
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"s.sqlite.*(is no store|no store of kernbench)"):
        use(path)
    assert path.read_bytes() == before


def test_a_store_of_another_version_is_refused(tmp_path):
    with Store(tmp_path / "s.sqlite", create=True) as store:
        store._connection.execute("PRAGMA user_version = 99")
    with pytest.raises(InputError, match="is a store of another version of kernbench"):
        Store(tmp_path / "s.sqlite")


def test_what_cannot_be_opened_says_so(tmp_path):
    with pytest.raises(InputError, match=r"there is no store .*none.sqlite; `kernbench sweep FILE` makes one"):
        Store(tmp_path / "none.sqlite")
    with pytest.raises(InputError, match="is a directory; a store is a file"):
        Store(tmp_path, create=True)
    with pytest.raises(InputError, match="cannot be opened"):
        Store(tmp_path / "no" / "such" / "folder.sqlite", create=True)
    with Store(tmp_path / "s.sqlite", create=True) as store:
        store.begin("first", "{}", "basis")
        with pytest.raises(InputError, match=r"holds no sweep 'firs' \(did you mean 'first'\?\)"):
            store.definition("firs")
