"""The kernels' values on a CPU, in Triton's interpreter, through everything of the recorder but the timing."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("torch") is None or find_spec("triton") is None:
    pytest.skip("needs PyTorch and Triton", allow_module_level=True)
if "triton" in sys.modules:
    pytest.skip("Triton was loaded to compile", allow_module_level=True)

from tests.realrun import interpreted  # first: the interpreter must be chosen before Triton is loaded

# isort: split

import torch

from kernbench.errors import InputError
from kernbench.realrun.recorder import decode, prefill, record_plan
from kernbench.realrun.recorder.gpu import GpuRunner, make_work
from kernbench.realrun.recorder.plan import load_plan
from kernbench.realrun.recorder.work import Difference, Maker, attend
from kernbench.realrun.records import parse_record


@pytest.mark.parametrize(
    "family",
    ["decode_splitkv", "paged_decode", "ultraquant_decode", "mla_decode", "prefill", "block_sparse", "sdpa_flash",
     "micro"],
)  # fmt: skip
def test_values_agree_with_float64(family, tmp_path):
    out = tmp_path / "r.jsonl"
    lines: list[str] = []
    runner = GpuRunner(interpreted.FakeTimer(), "cpu")
    assert record_plan("smoke", out, only=family, runner=runner, progress=lines.append) == 0, lines
    records = [parse_record(line, "r") for line in out.read_text().splitlines()]
    assert all(r.output.rel_err < 8e-3 for r in records)  # the interpreter cuts bf16 off where a GPU rounds
    split = family in ("decode_splitkv", "paged_decode", "ultraquant_decode", "mla_decode")
    for record in records:
        assert (record.times.cold.median, record.times.warm.median) == (10, 5)
        assert (record.times.partial is not None) == split


def test_a_wrong_kernel_is_no_record(tmp_path, monkeypatch):
    monkeypatch.setattr(decode, "LOG2E", 1.0)  # softmax in the wrong base
    out = tmp_path / "r.jsonl"
    assert record_plan("smoke", out, only="mla_decode", runner=GpuRunner(interpreted.FakeTimer(), "cpu")) == 1
    assert out.read_text() == ""
    assert "WrongResult" in Path(f"{out}.failed").read_text()


def test_an_output_that_was_not_written_is_wrong():
    diff = Difference()
    diff.add(torch.ones(4), torch.ones(4))
    assert diff.value(torch.ones(4)) == 0
    assert diff.value(torch.tensor([1.0, float("nan")])) != diff.value(torch.ones(4))


def test_the_reference_is_attention():
    q, k, v = (torch.randn(5, 8, dtype=torch.float64) for _ in range(3))
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    keep = prefill._causal(5, 5, "cpu")
    torch.testing.assert_close(attend(q, k, v, keep, rows=2), want)


def test_slots_dequantise_as_kernbench_says():
    ultraquant = pytest.importorskip("kernbench.specs.ultraquant")
    slots = torch.randint(0, 256, (3, 272), dtype=torch.uint8)
    slots[:, 128:136] = slots[:, 264:272] = 126
    k, v = decode.unpack_slots(slots, 256)
    want_k, want_v = ultraquant.dequantise_slots(slots.numpy())
    torch.testing.assert_close(k, torch.from_numpy(want_k).float())
    torch.testing.assert_close(v, torch.from_numpy(want_v).float())


def test_a_mask_keeps_its_first_column_and_is_the_same_each_time():
    mask = prefill.block_mask(40, 50, seed=3, density=0.3)
    assert mask[:, 0].all()
    assert 0.2 < mask.float().mean() < 0.4
    assert (mask == prefill.block_mask(40, 50, seed=3, density=0.3)).all()


@pytest.mark.parametrize("plan", ["smoke", "h200"])
def test_every_spec_of_a_plan_can_be_made(plan):
    for job in load_plan(plan)[1]:
        make_work(job, Maker("meta"))  # shapes and launches only


def test_heads_that_do_not_fill_a_block_are_named():
    job = next(job for job in load_plan("smoke")[1] if job.family == "mla_decode")
    with pytest.raises(InputError, match="16 heads are no multiple of block_m 32"):
        decode.mla_decode({**job.fields, "block_m": 32}, Maker("meta"))
