"""Readers of measured runs: what each row becomes, how far it is trusted, and what is said of broken files."""

import csv
import gzip
import io
import json
from collections import Counter

import pytest

from kernbench.errors import InputError
from kernbench.realrun.records import parse_record, write_records
from kernbench.realrun.sources import read_records, shipped_records
from kernbench.realrun.sources.grades import flops_counted, trust_in
from kernbench.realrun.sources.rocm_csv import COLUMNS

SHIPPED = {path.name: path for path in shipped_records()}
TLX = "facebookexperimental/triton PR"


@pytest.fixture(scope="module")
def rocm():
    return {r.id: r for r in read_records(SHIPPED["rocm_runs.csv"]).records}


@pytest.fixture(scope="module")
def h200():
    return {r.id: r for r in read_records(SHIPPED["h200_runs.jsonl"]).records}


@pytest.fixture(scope="module")
def pair():
    return {r.id: r for r in read_records(SHIPPED["h200x2_runs.jsonl"]).records}


def csv_file(path, *rows):
    """Write a CSV of rows over a good one."""
    good = {
        "id": "R1", "source": "MSLK PR #455", "gpu": "MI350X", "arch": "gfx950", "impl": "x", "kind": "fwd",
        "batch": 2, "hq": 16, "hkv": 2, "sq": 2048, "sk": 2048, "d_qk": 128, "d_v": 128, "dtype_q": "bf16",
        "dtype_kv": "bf16", "causal": 1, "time_us": 51.8,
    }  # fmt: skip
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS)
    writer.writeheader()
    for row in rows:
        writer.writerow(good | row)
    path.write_text(out.getvalue())
    return path


def test_rows_by_kind_and_grade_are_those_of_the_published_list(rocm):
    assert Counter(r.grade for r in rocm.values()) == {"A": 257, "B": 401}
    by_source = Counter(r.source.split(" @")[0].split(" (")[0] for r in rocm.values() if r.grade == "A")
    hipkittens = sum(n for source, n in by_source.items() if "HipKittens analysis" in source)
    assert hipkittens == 86
    assert by_source["moonmath-ai/amd-kernels README.md"] == 42
    assert by_source["meta-pytorch/MSLK PR #455"] == 6
    assert by_source[f"{TLX} #2040"] == 52
    assert by_source[f"{TLX} #2549"] == 12
    assert Counter(r.family for r in rocm.values() if r.grade == "A") == {
        "prefill": 122, "other": 28, "mla_decode": 43, "paged_decode": 64,
    }  # fmt: skip
    assert sum(r.spec.mode == "backward" for r in rocm.values()) == 24


def test_h200_rows_by_family(h200, pair):
    assert Counter(r.family for r in h200.values()) == {
        "decode_splitkv": 25, "prefill": 23, "block_sparse": 5, "sdpa_flash": 6, "sdpa_cudnn": 6, "micro": 12,
    }  # fmt: skip
    assert Counter(r.family for r in pair.values()) == {"collective": 45, "sequence_parallel_decode": 8}
    assert {r.grade for r in [*h200.values(), *pair.values()]} == {"A"}
    assert {r.evidence for r in [*h200.values(), *pair.values()]} == {"recorded"}


def test_a_published_time_is_kept_as_it_is(rocm):
    row = rocm["R0007"]
    assert row.times.published.median == 14472.925
    assert row.tflops == 1215.524
    assert (row.spec.batch, row.spec.h_q, row.spec.h_kv, row.spec.s_q, row.spec.s_kv) == (16, 64, 8, 8192, 8192)
    assert row.spec.causal is True
    assert row.device.gpu == "MI355X"
    assert row.implementation.name == "HipKittens"
    assert "derived" not in row.caveat


@pytest.mark.parametrize(("name", "causal", "factor"), [("R0257", False, 1.0), ("R0258", False, 1.0)])
def test_a_time_from_tflops_follows_the_convention(rocm, name, causal, factor):
    row = rocm[name]
    assert row.spec.causal is causal
    assert row.times.published.median == pytest.approx(factor * 2 * 8 * 64 * 8192**2 * 256 / row.tflops / 1e6)
    assert "time derived from TFLOPS by convention" in row.caveat


def test_causal_rows_of_that_source_count_half(rocm):
    causal = [r for r in rocm.values() if "cpp/mha/README" in r.source and r.spec.causal]
    assert len(causal) == 3 * 34
    for r in causal:
        s = r.spec
        square = 2 * s.batch * s.h_q * s.s_q * s.s_kv * (s.d_qk + s.d_v)
        assert r.times.published.median == pytest.approx(square / 2 / r.tflops / 1e6)
        assert "causal counted half" in r.caveat


def test_conventions_hold_on_every_row_that_gives_time_and_tflops(rocm):
    checked = 0
    for r in rocm.values():
        counted = flops_counted(r.source, r.spec.causal)
        if r.tflops and counted and r.times.published and "derived" not in r.caveat:
            s = r.spec
            square = 2 * s.batch * s.h_q * s.s_q * s.s_kv * (s.d_qk + s.d_v)
            assert counted * square / r.times.published.median / 1e6 == pytest.approx(r.tflops, rel=0.02), r.id
            checked += 1
    assert checked == 86 + 3 + 9 + 6 + 5


def test_a_time_from_bytes_of_real_caches(rocm):
    row = rocm["R0988"]  # batch 32, 8 KV heads, 32,768 tokens, head dim 64, bf16 K and V at 5,933.5 GB/s
    assert row.times.published.median == pytest.approx(32 * 8 * 32768 * 2 * 64 * 2 / 5933.5e3)
    assert row.times.published.median == pytest.approx(362, abs=1)


def test_tflops_of_an_unknown_convention_make_no_time(rocm):
    rows = [r for r in rocm.values() if f"{TLX} #1874" in r.source or "attention-performance.png" in r.source]
    assert len(rows) == 33 + 30
    assert all(r.times.published is None and "no time" in r.caveat for r in rows)


@pytest.mark.parametrize(
    ("source", "batch", "grade"),
    [
        (f"{TLX} #2040 (commit)", 4, "A"), (f"{TLX} #2040 (commit)", 5, "C"), (f"{TLX} #2040 (commit)", None, "C"),
        (f"{TLX} #2281 (c)", 1, "C"), (f"{TLX} #2288 (c)", 1, "C"), (f"{TLX} #2306 (c)", 1, "C"),
        (f"{TLX} #20401 (c)", 1, None), ("ROCm/aiter PR #3222 (d)", 1, "C"), ("ROCm/aiter PR #3188 (c)", 1, None),
        ("ROCm/triton issue #507 (comment)", 1, "C"), ("ROCm/aiter PR #4538 (c)", 1, "C"), ("nobody knows", 1, None),
        ("x/gfx950/attention/decode/decode_shapes_perf.csv @1", 1, "C"), ("ROCm/FlyDSL PR #1155 (d)", 1, "B"),
    ],
)  # fmt: skip
def test_grades_hang_on_source_and_conditions(source, batch, grade):
    assert trust_in(source, batch).grade == grade


def test_what_extra_says_becomes_fields(rocm):
    assert rocm["R0629"].spec.page_size == 64
    assert rocm["R0629"].family == "paged_decode"
    assert rocm["R1185"].spec.page_size == 1
    assert rocm["R0512"].implementation.notes["rounding"] == "RTNE"
    assert rocm["R0512"].spec.causal is False
    sparse = rocm["R1254"].spec
    assert (sparse.density, sparse.block_q, sparse.block_k, sparse.batch) == (0.1, 64, 64, 1)
    assert (rocm["R1238"].spec.s_kv, rocm["R1238"].spec.mode) == (2048, "sparse_topk")
    assert rocm["R1185"].spec.dtype == "fp8e4m3"
    assert {r.spec.page_size for r in rocm.values() if "flashinfer" in r.source} == {None, 16, 256}


def test_a_window_that_cuts_keys_off_is_no_plain_prefill(rocm):
    rows = [r for r in rocm.values() if "gqa_head_fold" in r.source]
    assert Counter((r.family, r.spec.mode) for r in rows) == {("prefill", None): 12, ("other", "sliding_window"): 4}
    assert {r.spec.s_kv for r in rows if r.family == "other"} == {8192}
    assert all(r.implementation.notes["sliding_window"] == 4096 for r in rows)


def test_short_times_with_the_launch_inside_say_so(rocm):
    short = [r for r in rocm.values() if "HipKittens analysis" in r.source and r.times.published.median < 200]
    assert short
    assert all("below 200 us" in r.caveat for r in short)
    assert "below 200 us" not in rocm["R0007"].caveat


def test_an_h200_decode(h200):
    r = h200["decode-bf16-same-b1-hq64-hkv8-d128-s8192-x16-bn64-w4"]
    assert (r.times.cold.median, r.times.cold.p10, r.times.cold.p90) == (48.096, 38.144, 63.379)
    assert (r.times.warm.median, r.times.partial.median, r.times.reduce.median) == (15.012, 23.52, 5.984)
    made = r.implementation
    assert (made.name, made.grid, made.splits, made.block_n, made.waves, made.stages) == (
        "triton",
        (8, 16),
        16,
        64,
        4,
        2,
    )
    assert (made.registers, made.spills, made.lds_bytes) == (72, 0, 38912)
    assert (r.device.gpu, r.device.arch, r.device.count) == ("NVIDIA H200", "sm_90", 1)
    assert r.device.versions["triton"] == "3.6.0"
    assert r.source == "kernbench's own recording on one NVIDIA H200, PyTorch 2.11.0 and Triton 3.6.0"
    assert made.notes == {"flush": "written"}


def test_h200_masks_and_microbenchmarks(h200):
    assert Counter(r.spec.mode for r in h200.values() if r.family == "block_sparse") == {"skip": 3, "mask": 2}
    assert h200["micro-matmul-4096"].spec.m == 4096
    assert h200["micro-read-16MiB"].spec.nbytes == 2**24
    assert h200["micro-empty-launch-132"].spec.mode == "empty_launch"


def test_two_h200s(pair):
    r = pair["all_reduce-1048576"]
    assert (r.spec.mode, r.spec.nbytes, r.spec.world, r.device.count) == ("all_reduce", 2**20, 2, 2)
    assert (r.times.cold.median, r.times.warm.median) == (50.617, 17.173)
    assert pair["send_recv-1024"].times.warm is None
    step = pair["sp-decode-w2-b1-hkv8-g8-d128-s16384-x16"]
    assert step.times.parts == {"partial": 13.526, "local_reduce": 2.311, "all_gather": 10.943, "merge": 1.662}
    assert (step.times.warm.median, step.spec.s_q, step.spec.s_kv, step.spec.world) == (24.436, 1, 16384, 2)


def test_records_survive_being_written_and_read(tmp_path, rocm, h200, pair):
    records = [r for r in (*rocm.values(), *h200.values(), *pair.values()) if r.device.gpu is not None]
    write_records(records, tmp_path / "all.jsonl")
    again = read_records(tmp_path / "all.jsonl")
    assert again.records == records
    assert again.skipped == []


def test_gzipped_files_are_read_and_listed(tmp_path, h200):
    packed = tmp_path / "h200_live.jsonl.gz"
    packed.write_bytes(gzip.compress(SHIPPED["h200_runs.jsonl"].read_bytes()))
    assert len(read_records(packed).records) == len(h200)
    assert shipped_records(tmp_path) == [packed]


def test_rows_that_can_be_no_record_are_listed(tmp_path):
    path = csv_file(tmp_path / "x.csv", {}, {"id": "R2", "time_us": ""}, {"id": "R3", "kind": "dance"})
    loaded = read_records(path)
    assert [r.id for r in loaded.records] == ["R1"]
    assert loaded.skipped == [("R2", "neither a time nor TFLOPS nor GB/s"), ("R3", "kind 'dance' is not known")]
    lines = [
        {"kind": "machine", "gpu": "NVIDIA H200"},
        {"id": "a", "kind": "dance", "time_us": 1},
        {"id": "b", "kind": "micro"},
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert read_records(tmp_path / "x.jsonl").skipped == [("a", "kind 'dance' is not known"), ("b", "no time")]


def test_a_row_of_grade_c_keeps_its_label(tmp_path):
    row = {"source": f"{TLX} #2306 (c)", "kind": "split-kv decode", "sq": 1, "extra": "paged, page_size=16"}
    (record,) = read_records(csv_file(tmp_path / "x.csv", row)).records
    assert (record.family, record.grade) == ("paged_decode", "C")
    assert "four sequences" in record.caveat


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"batch": "two"}, "x.csv:2: batch: expected a whole number or nothing, found 'two'"),
        ({"batch": "0"}, "x.csv:2: spec.batch: Input should be greater than or equal to 1"),
        ({"batch": "9" * 5000}, "x.csv:2: batch: expected a whole number"),
        ({"time_us": "-3"}, "x.csv:2: time_us: expected a positive number or nothing, found '-3'"),
        ({"time_us": "inf"}, "x.csv:2: time_us"), ({"tflops": "nan"}, "x.csv:2: tflops"),
        ({"causal": "maybe"}, "x.csv:2: causal: expected 1, 0 or nothing, found 'maybe'"),
        ({"source": ""}, "x.csv:2: source"), ({"id": ""}, "x.csv:2: id"),
    ],
)  # fmt: skip
def test_broken_cells_are_named(tmp_path, row, said):
    with pytest.raises(InputError) as error:
        read_records(csv_file(tmp_path / "x.csv", row))
    assert said in str(error.value)


def test_a_line_after_a_cell_of_two_lines_is_numbered_as_editors_do(tmp_path):
    path = csv_file(tmp_path / "x.csv", {"caveat": "two\nlines"}, {"batch": "x"})
    with pytest.raises(InputError, match=r"x\.csv:4: batch"):
        read_records(path)


H = {"kind": "machine", "gpu": "NVIDIA H200"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("hello\n", ":1: neither JSON lines of run records nor a CSV"),
        ("{\n", ":1: not JSON"),
        (json.dumps(H) + "\n[1]\n", ":2: expected a JSON object, found list"),
        (json.dumps(H) + '\n{"x": 1}\n', ":2: has neither 'family'"),
        (json.dumps(H) + '\n\n{"kind": "micro", "id": "m", "time_us": NaN}\n', ":3: not JSON: NaN"),
        (json.dumps(H) + '\n{"kind": "micro", "id": "m", "time_us": 1e999}\n', ":2: not JSON: 1e999"),
        (json.dumps(H) + '\n{"kind": "micro", "id": "m", "time_us": [1, 2]}\n', ":2: time_us: expected [median"),
        (json.dumps(H) + '\n{"kind": "micro", "id": "m", "time_us": "x"}\n', ":2: times.cold.median"),
        (json.dumps(H) + '\n{"kind": "micro", "time_us": 1}\n', ":2: id"),
        (json.dumps(H) + '\n{"kind": ["micro"], "id": "m", "time_us": 1}\n', ":2: kind"),
        ('{"kind": "machine", "gpu": "?"}\n', ":1: gpu"),
        ('{"family": "prefill"}\n', ":1: id: Field required"),
        ("id,source,gpu,arch,impl,kind,more\n", ":1: expected the columns"),
        (",".join(COLUMNS) + "\nR1,x\n", ":2: 2 cells, expected 22"),
        (",".join(COLUMNS) + '\n"R1\n', "unexpected end of data"),
    ],
)
def test_broken_files_are_named_by_line(tmp_path, text, said):
    path = tmp_path / "x"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_records(path)
    assert said in str(error.value)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b"\x1f\x8bbroken", gzip.compress(b"{}" * 999, mtime=0)[:20]])
def test_bytes_that_are_no_text(tmp_path, data):
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(InputError, match="x"):
        read_records(tmp_path / "x")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*No such file"):
        read_records(tmp_path / "none.jsonl")


def test_shipped_files_are_run_records_or_convert_whole():
    assert set(SHIPPED) >= {"h200_runs.jsonl", "h200x2_runs.jsonl", "rocm_runs.csv"}
    for path in SHIPPED.values():
        loaded = read_records(path)
        assert loaded.skipped == []
        assert len({r.id for r in loaded.records}) == len(loaded.records)
        for r in loaded.records[:3]:
            assert parse_record(r.model_dump_json(), "here") == r


def test_lines_without_a_machine_are_taken_for_the_h200_that_they_were_made_on(tmp_path, h200):
    lines = SHIPPED["h200_runs.jsonl"].read_text().splitlines()
    part = tmp_path / "part.jsonl"
    part.write_text("\n".join(line for line in lines if '"kind": "machine"' not in line) + "\n")
    found = {r.id: r for r in read_records(part).records}
    assert found.keys() == h200.keys()
    for name, record in found.items():
        assert (record.device.gpu, record.times) == ("NVIDIA H200", h200[name].times)
        assert record.caveat.startswith("the file does not say where")
