"""Damaged and foreign files: one message each, that names file, line and column."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernbench.errors import InputError
from kernbench.realrun.importers import import_runs, parse_spec

from .rocpd_database import UUID, write

F = Path(__file__).parent / "fixtures"
CURRENT = F / "current" / "7_kernel_trace.csv"
FILES = [
    CURRENT,
    F / "old" / "kernel_trace.csv",
    F / "converted" / "out_kernel_trace.csv",
    F / "counters" / "9_counter_collection.csv",
    F / "v1" / "results.csv",
    F / "v1" / "pmc.csv",
    F / "agents" / "mixed.csv",
]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("spreadsheet", r"spreadsheet\.csv, line 2, column Start_Timestamp: '3\.2001E\+15' has lost digits"),
        ("end_before_start", r"line 2, column End_Timestamp: the end \d+ is not after the start"),
        ("fraction", r"line 2, column Start_Timestamp: '\d+\.5' is not a whole number"),
        ("grid_zero", "line 2, column Grid_Size_X: 0 is less than 1"),
        ("semicolons", "line 1: its columns are separated by semicolons"),
        ("truncated", r"line 3: has \d of 22 columns; the file is cut off"),
        ("in_quotes", "line 3: is not CSV: a quoted field does not end; the file is cut off"),
        ("duplicate_column", "line 1: the column 'LDS_Block_Size' is there twice"),
        ("joined", "line 3: the header is there again"),
        ("header_only", "no lines below it"),
        ("empty", r"empty\.csv: is empty"),
        ("unknown", "of no known format. Its columns: name, calls, total. .*lacks"),
        ("no_end", "nearest is rocprofv3 kernel trace, of which it lacks End_Timestamp"),
        ("comma_in_name", "has 25 columns and the header has 22; a kernel's name that holds commas needs quotes"),
    ],
)
def test_broken_file(name, message):
    with pytest.raises(InputError, match=message):
        import_runs([F / "broken" / f"{name}.csv"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\n \n", "is empty"),
        (CURRENT.read_text().encode("utf-16"), "UTF-16"),
        (CURRENT.read_bytes().replace(b"aiter", b"ait\xff\xfe"), "line 2: is not text in UTF-8"),
        (CURRENT.read_bytes().replace(b",", b"\t"), "separated by tabs"),
        (b'{"rocprofiler-sdk-tool": []}', "is JSON"),
        (b"SQLite format 3\0" + b"x" * 200, "corrupt|cannot be read"),
        (b"Index,KernelName,gpu-id,grd,wgr,lds,scr\n0,k,0,64,64,0,0\n", "neither times .* nor counters"),
        (CURRENT.read_bytes().replace(b"3200098838431000,", b"1,"), "more than an hour"),
    ],
)
def test_broken_content(tmp_path, content, message):
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        import_runs([path])


def test_a_missing_last_newline_is_said(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(CURRENT.read_text().rstrip("\n"))
    assert any("may be cut off" in w for w in import_runs([path]).warnings)


def test_paths(tmp_path):
    for paths, message in (
        ([], "at least one"),
        ([tmp_path], "is a directory"),
        ([tmp_path / "none.csv"], "cannot be read: No such file"),
        ([CURRENT, CURRENT], "given twice"),
        ([F / "agents" / "mixed.csv"], "agents only"),
    ):
        with pytest.raises(InputError, match=message):
            import_runs(paths)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"skip_first": -1}, "skip-first is -1"),
        ({"xcc": 0}, "xcc is 0"),
        ({"source": " "}, "source is empty"),
        ({"kernel": "("}, "not a regular expression"),
        ({"kernel": "nothing"}, "no dispatch of a kernel"),
        ({"spec": {"batsh": "1"}}, "no field 'batsh'.*batch"),
        ({"spec": {"batch": "many"}}, "spec: batch: "),
        ({"spec": {"family": "prefil"}}, "no family 'prefil'.*prefill"),
        ({"spec": {"arch": ""}}, "arch must be text"),
        ({"spec": {"grid": "1"}}, "no field 'grid'"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(InputError, match=message):
        import_runs([CURRENT], **options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("- a", "must map"),
        ("a: [", r"side\.yaml"),
        ("'(': {family: micro}", "not a regular expression"),
        ("a: 3", "must be a mapping of family"),
        ("a: {famly: micro}", "no key 'famly'.*family"),
        ("a: {spec: {batsh: 1}}", "spec has no field 'batsh'.*batch"),
        ("a: {spec: 3}", "spec must be a mapping"),
        ("a: {spec: {batch: -1}}", "batch: "),
        ("a: {time: hot}", "time is 'hot'"),
        ("a: {family: [1]}", "no family"),
        ("a: {family: micro}\na: {family: micro}", "already given"),
    ],
)
def test_bad_sidecar(tmp_path, text, message):
    path = tmp_path / "side.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        import_runs([CURRENT], sidecar=path)


def test_items_of_a_spec():
    for item, message in ((["batch"], "key=value"), (["=3"], "key=value"), (["a=1", "a=2"], "twice")):
        with pytest.raises(InputError, match=message):
            parse_spec(item)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (f'UPDATE "rocpd_kernel_dispatch{UUID}" SET "end" = 1 WHERE id = 2', "row 2, column end: .* not after"),
        (f'UPDATE "rocpd_kernel_dispatch{UUID}" SET start = 1234.5', "column start: .* is not a whole number"),
        (f'UPDATE "rocpd_kernel_dispatch{UUID}" SET kernel_id = 99', "there is no kernel 99"),
        (f'UPDATE "rocpd_kernel_dispatch{UUID}" SET grid_size_y = 0', "grid_size_y: 0 is less than 1"),
        (f'DELETE FROM "rocpd_kernel_dispatch{UUID}"', "holds no kernel dispatch"),
        (f'DROP TABLE "rocpd_info_agent{UUID}"', "rocpd_info_agent|no such table"),
        (f'ALTER TABLE "rocpd_kernel_dispatch{UUID}" RENAME COLUMN start TO begin', "lacks the columns start"),
        (f'UPDATE "rocpd_pmc_event{UUID}" SET value = 9e999', "column value: inf is not a number"),
        (f'UPDATE "rocpd_pmc_event{UUID}" SET pmc_id = 50', "there is no counter 50"),
    ],
)
def test_damaged_database(tmp_path, statement, message):
    path = write(tmp_path / "x.db", counters=True)
    with closing(sqlite3.connect(path)) as db:
        db.execute(statement)
        db.commit()
    with pytest.raises(InputError, match=message):
        import_runs([path])


def test_foreign_locked_and_cut_databases(tmp_path):
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as db:
        db.execute("CREATE TABLE bookmarks (id INTEGER)")
        db.commit()
    with pytest.raises(InputError, match=r"is SQLite but not rocpd: lacks rocpd_kernel_dispatch.*bookmarks"):
        import_runs([other])
    with closing(sqlite3.connect(other)) as db:
        db.execute("CREATE TABLE rocpd_op (id INTEGER)")
        db.execute("CREATE TABLE rocpd_kernelapi (id INTEGER)")
        db.commit()
    with pytest.raises(InputError, match="rocmProfileData"):
        import_runs([other])
    path = write(tmp_path / "x y#?.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN EXCLUSIVE")
        with pytest.raises(InputError, match="is locked"):
            import_runs([path])
        db.execute("ROLLBACK")
    assert import_runs([path]).records
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(InputError, match=r"corrupt|cannot be read"):
        import_runs([path])


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_mutated_text_gives_records_or_an_input_error(tmp_path, data):
    content = bytearray(data.draw(st.sampled_from([f.read_bytes() for f in FILES])))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, max(len(content) - 1, 0)))
        what = data.draw(st.sampled_from(["cut", "insert", "delete", "swap"]))
        noise = data.draw(
            st.sampled_from([b",", b'"', b"\n", b"\0", b"\xff", b"-", b"9" * 30, b"1e5", b"nan", b"\r", b";"])
        )
        if what == "cut":
            del content[at:]
        elif what == "delete":
            del content[at : at + data.draw(st.integers(1, 40))]
        else:
            content[at : at + (len(noise) if what == "swap" else 0)] = noise
    path = tmp_path / "mutated.csv"
    path.write_bytes(bytes(content))
    try:
        result = import_runs([path], skip_first=data.draw(st.integers(0, 3)))
    except InputError as error:
        assert str(path) in str(error) or "--skip-first" in str(error)  # noqa: PT017 (either end is right)
    else:
        assert result.records


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_mutated_database_gives_records_or_an_input_error(tmp_path, data):
    original = tmp_path / "original.db"
    if not original.exists():
        write(original, counters=True)
    content = bytearray(original.read_bytes())
    for _ in range(data.draw(st.integers(1, 20))):
        content[data.draw(st.integers(16, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "mutated.db"
    path.write_bytes(bytes(content[: data.draw(st.sampled_from([len(content), len(content) // 2]))]))
    try:
        import_runs([path], skip_first=0)
    except InputError as error:
        assert str(path) in str(error)  # noqa: PT017 (either end is right)
