"""The recorder's loop, plans and files, with a runner that measures nothing."""

import json
from collections import Counter
from pathlib import Path

import pytest

from kernbench.errors import InputError
from kernbench.realrun.recorder import loop, record_plan
from kernbench.realrun.recorder.__main__ import main
from kernbench.realrun.recorder.loop import Measured, WrongResult
from kernbench.realrun.recorder.machine import Reading, parse_nvidia_smi, parse_rocm_smi, with_state
from kernbench.realrun.recorder.plan import Job, expand, load_plan
from kernbench.realrun.recorder.timing import quantiles
from kernbench.realrun.records import Device, Implementation, Output, Quantiles, Times, parse_record

DECODE = {
    "family": "decode_splitkv", "batch": 1, "h_q": 8, "h_kv": 2, "d": 64, "s_kv": 100, "splits": [1, 2], "block_n": 32,
    "waves": 4, "stages": 2,
}  # fmt: skip


class FakeRunner:
    """Takes a second for each spec on a clock of its own; fails, is wrong, or dies where told to."""

    def __init__(self, clock=None, bad=(), wrong=(), deadly=()):
        self.clock, self.bad, self.wrong, self.deadly = clock, bad, wrong, deadly
        self.measured: list[str] = []
        self.prepared: list[str] = []
        self.limit = "not called"

    def device(self):
        return Device(gpu="fake", arch="sm_00", versions={"triton": "0"})

    def state(self):
        return Reading(1000.0 + len(self.measured), 500.0, None)

    def prepare(self, jobs, limit_s, say):
        self.prepared = [job.id for job in jobs]
        self.limit = limit_s

    def measure(self, job):
        if self.clock:
            self.clock.now += 1
        self.measured.append(job.id)
        if job.id in self.bad:
            raise RuntimeError("out of memory")
        if job.id in self.wrong:
            raise WrongResult("relative error 0.5 is over 0.01")
        times = Times(cold=Quantiles(median=10, p10=9, p90=11, n=20))
        return Measured(job.spec(), Implementation(name="triton", grid=(1, 2)), times, Output(rel_err=0.002))

    def tidy(self):
        if self.measured[-1] in self.deadly:
            raise RuntimeError("illegal memory access")


class Clock:
    now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(loop, "time", clock)
    return clock


def read(path: Path):
    return [parse_record(line, str(path)) for line in path.read_text().splitlines()]


def smoke_ids():
    return [job.id for job in load_plan("smoke")[1]]


# --- plans -----------------------------------------------------------------------------------------------------------


def test_a_group_is_a_product_and_cases_go_together():
    group = {**DECODE, "block_n": [32, 64], "cases": [{"batch": 1, "s_kv": 100}, {"batch": 2, "s_kv": 7}]}
    jobs = expand({"groups": [group]}, "p")
    got = Counter((j.fields["batch"], j.fields["s_kv"], j.fields["splits"], j.fields["block_n"]) for j in jobs)
    want = Counter((b, s, x, n) for b, s in ((1, 100), (2, 7)) for x in (1, 2) for n in (32, 64))
    assert got == want


def test_a_spec_named_twice_counts_once():
    assert len(expand({"groups": [DECODE, DECODE]}, "p")) == 2


def test_order_does_not_depend_on_the_order_of_groups():
    plan = {"groups": [DECODE, {**DECODE, "s_kv": 10**6}, {"family": "micro", "mode": "empty", "workgroups": [1, 2]}]}
    forward = [job.id for job in expand(plan, "p")]
    assert forward == [job.id for job in expand({"groups": plan["groups"][::-1]}, "p")]
    assert all("s1000000" in name for name in forward[-2:])


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ({**DECODE, "family": "decode"}, "p: groups.0: family is 'decode'"),
        ({**DECODE, "blockn": 3}, "p: groups.0: decode_splitkv has no field 'blockn' (did you mean 'block_n'?)"),
        ({"family": "decode_splitkv", "batch": 1}, "p: groups.0: decode_splitkv needs block_n, d, h_kv"),
    ],
)
def test_a_bad_group_is_named(group, message):
    with pytest.raises(InputError) as bad:
        expand({"groups": [group]}, "p")
    assert str(bad.value).startswith(message)


def test_an_unknown_plan_and_a_bad_file_are_named(tmp_path):
    with pytest.raises(InputError, match=r"no plan 'h20'.*h200"):
        load_plan("h20")
    with pytest.raises(InputError, match="cannot read"):
        load_plan(tmp_path / "none.yaml")
    (tmp_path / "list.yaml").write_text("[1]")
    with pytest.raises(InputError, match="a mapping"):
        load_plan(tmp_path / "list.yaml")


def test_the_plan_for_the_h200_covers_what_it_says():
    jobs = load_plan("h200")[1]
    count = Counter(job.family for job in jobs)
    assert len({job.id for job in jobs}) == len(jobs)
    attention = sum(count.values()) - count["micro"]
    assert attention >= 350
    least = {"prefill": 90, "block_sparse": 40, "ultraquant_decode": 30, "paged_decode": 20, "mla_decode": 20,
             "sdpa_flash": 15, "sdpa_cudnn": 15}  # fmt: skip
    assert {family: n for family, n in least.items() if count[family] < n} == {}
    decode = [job.fields for job in jobs if job.family == "decode_splitkv"]
    assert sum(f["dtype"] == "bf16" and f["kv_dtype"] is None for f in decode) >= 110
    assert sum(f["kv_dtype"] in ("fp8e4m3", "i8") for f in decode) >= 40
    first = Counter(job.family for job in jobs[:150])
    assert set(first) == set(count)  # cut short, it still covers every family
    for job in jobs:
        assert job.estimate_us() > 0 or job.family == "micro"
        job.spec()


def test_a_spec_says_what_is_computed():
    decode = expand({"groups": [{**DECODE, "kv_dtype": "i8", "scale": "token", "splits": 2}]}, "p")[0]
    spec = decode.spec()
    assert (spec.s_q, spec.s_kv, spec.d_qk, spec.d_v, spec.dtype, spec.kv_dtype) == (1, 100, 64, 64, "bf16", "i8")
    assert decode.id == "decode-bf16-i8-token-b1-hq8-hkv2-d64-s100-x2-bn32-w4-st2"
    mla = Job("mla_decode", {"batch": 2, "h_q": 16, "s_kv": 80})
    assert (mla.spec().h_kv, mla.spec().d_qk, mla.spec().d_v) == (1, 576, 512)


# --- the loop --------------------------------------------------------------------------------------------------------


def test_every_spec_becomes_a_record(tmp_path):
    out = tmp_path / "r.jsonl"
    runner = FakeRunner()
    assert record_plan("smoke", out, runner=runner) == 0
    records = read(out)
    assert [r.id for r in records] == smoke_ids() == runner.prepared
    assert {r.evidence for r in records} == {"live"}
    assert records[0].source.startswith("kernbench realrun record, plan smoke, 20")
    assert records[0].device.clock_mhz == (1000.0, 1010.0)  # one reading for ten records
    assert records[10].device.clock_mhz[0] == 1010.0
    assert records[0].device.power_w is None
    assert not (tmp_path / "r.jsonl.partial").exists()


def test_a_failure_and_a_wrong_result_are_no_records_and_stop_nothing(tmp_path):
    out = tmp_path / "r.jsonl"
    ids = smoke_ids()
    lines: list[str] = []
    assert record_plan("smoke", out, runner=FakeRunner(bad=ids[:1], wrong=ids[2:3]), progress=lines.append) == 1
    assert [r.id for r in read(out)] == [ids[1], *ids[3:]]
    failed = [json.loads(line) for line in (tmp_path / "r.jsonl.failed").read_text().splitlines()]
    assert failed == [
        {"id": ids[0], "error": "RuntimeError: out of memory"},
        {"id": ids[2], "error": "WrongResult: relative error 0.5 is over 0.01"},
    ]
    assert f"failed: {ids[0]}: RuntimeError: out of memory" in lines
    again = FakeRunner()
    assert record_plan("smoke", out, runner=again) == 1  # a failure stays one until its file is deleted
    assert again.measured == []
    (tmp_path / "r.jsonl.failed").unlink()
    assert record_plan("smoke", out, runner=again) == 0
    assert again.measured == [ids[0], ids[2]]


def test_the_budget_ends_a_run_and_the_next_goes_on(tmp_path, clock):
    out = tmp_path / "r.jsonl"
    ids = smoke_ids()
    runner = FakeRunner(clock)
    lines: list[str] = []
    assert record_plan("smoke", out, budget_s=4, runner=runner, progress=lines.append) == 0
    assert runner.measured == ids[:4]
    assert runner.limit == 2
    assert any(f"{len(ids) - 4} specs left" in line for line in lines)
    rest = FakeRunner(clock)
    assert record_plan("smoke", out, runner=rest) == 0
    assert rest.measured == rest.prepared == ids[4:]
    assert [r.id for r in read(out)] == ids


def test_an_interruption_loses_ten_records_at_most(tmp_path):
    out = tmp_path / "r.jsonl"
    ids = smoke_ids()

    class Killed(FakeRunner):
        def measure(self, job):
            if len(self.measured) == 13:
                raise SystemExit  # stands for a kill: no handler of the loop may swallow it
            return super().measure(job)

    with pytest.raises(SystemExit):
        record_plan("smoke", out, runner=Killed())
    partial = tmp_path / "r.jsonl.partial"
    assert not out.exists()
    assert [r.id for r in read(partial)] == ids[:13]
    partial.write_text(partial.read_text()[:-30])  # a line cut off
    rest = FakeRunner()
    assert record_plan("smoke", out, runner=rest) == 0
    assert rest.measured == ids[12:]
    assert {r.id for r in read(out)} == set(ids)


def test_a_gpu_that_failed_for_good_ends_the_process_with_its_own_code(tmp_path):
    out = tmp_path / "r.jsonl"
    ids = smoke_ids()
    deadly = FakeRunner(bad=ids[3:4], deadly=ids[3:4])
    assert record_plan("smoke", out, runner=deadly) == 3
    assert [r.id for r in read(out)] == ids[:3]
    rest = FakeRunner()
    assert record_plan("smoke", out, runner=rest) == 1
    assert rest.measured == ids[4:]


def test_only_takes_families(tmp_path):
    runner = FakeRunner()
    record_plan("smoke", tmp_path / "r.jsonl", only=["prefill", "mla_decode"], runner=runner)
    assert {r.family for r in read(tmp_path / "r.jsonl")} == {"prefill", "mla_decode"}
    with pytest.raises(InputError, match=r"no family 'prefil'.*did you mean 'prefill'"):
        record_plan("smoke", tmp_path / "r.jsonl", only="prefil", runner=runner)


def test_a_path_that_cannot_be_written_is_found_before_the_work(tmp_path):
    runner = FakeRunner()
    with pytest.raises(InputError, match="cannot write"):
        record_plan("smoke", tmp_path / "none" / "r.jsonl", runner=runner)
    assert runner.measured == []


def test_the_command_names_bad_input(tmp_path, capsys):
    assert main(["--plan", "nothing", "--out", str(tmp_path / "r")]) == 2
    assert capsys.readouterr().err.startswith("error: no plan 'nothing'")


# --- measuring -------------------------------------------------------------------------------------------------------


def test_quantiles():
    got = quantiles([3.0, 1.0, 2.0])
    assert got == Quantiles(median=2.0, p10=1.2, p90=2.8, n=3)
    assert quantiles([]) is None
    assert quantiles([-1.0, -2.0, 3.0]) is None  # a difference of two times may come out negative
    assert quantiles([-0.1, 1.0, 2.0]).p10 is not None


def test_state_that_is_not_known_is_none():
    assert parse_nvidia_smi("") == Reading()
    assert parse_rocm_smi("no json") == Reading()
    here = with_state(Device(gpu="g", arch="a"), Reading(1.0, None, 3.0), Reading(2.0, 5.0, 4.0))
    assert (here.clock_mhz, here.memory_clock_mhz, here.power_w) == ((1.0, 2.0), None, (3.0, 4.0))
