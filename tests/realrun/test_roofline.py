"""The plain roofline, held against figures worked out by hand or published beside the measurements."""

import pytest

from kernbench.realrun.prediction import NotModelled
from kernbench.realrun.records import Device, Implementation, RunRecord, RunSpec
from kernbench.realrun.roofline import Peaks, attention_bytes, attention_flops, roofline_us
from kernbench.realrun.sources import read_records, shipped_records

PEAKS = {
    "gfx950": Peaks({"bf16": 2516.0, "f16": 2516.0, "fp8e4m3": 5033.0}, 8000.0),
    "gfx942": Peaks({"bf16": 1307.4, "f16": 1307.4}, 5300.0),
}


def record(family, **spec):
    return RunRecord(
        id="x", family=family, spec=RunSpec(**spec), implementation=Implementation(name="k"),
        device=Device(gpu="G", arch="gfx950"), evidence="live", source="test",
    )  # fmt: skip


@pytest.fixture(scope="module")
def rocm():
    (path,) = (p for p in shipped_records() if p.name == "rocm_runs.csv")
    return {r.id: r for r in read_records(path).records}


@pytest.mark.parametrize(
    ("name", "us", "over"),
    [
        ("R0007", 6991, 2.07), ("R0008", 6991, 2.09), ("R0035", 874, 2.05), ("R0063", 437, 2.80), ("R0001", 109, 3.5),
        ("R1072", 13.7, 3.8), ("R0512", 1262, 2.4), ("R0518", 1262, 2.6), ("R1185", 109, 3.2), ("R1191", 437, 3.0),
        ("R0391", 218, 2.3), ("R0389", 1.7, 14), ("R1052", 60, 6.4), ("R1054", 121, 5.9), ("R0629", 67, 7.3),
        ("R0615", 67, 2.5), ("R0633", 269, 2.1), ("R0988", 269, 1.35), ("R1238", 9.7, 2.8), ("R1244", 78, 0.95),
        ("R1254", 2097, 5.1), ("R0258", 6991, 1.9), ("R0257", 13455, 2.3),
    ],
)  # fmt: skip
def test_rooflines_of_published_rows(rocm, name, us, over):
    row = rocm[name]
    found = roofline_us(row, PEAKS[row.device.arch])
    assert found == pytest.approx(us, rel=0.02)
    assert row.times.published.median / found == pytest.approx(over, rel=0.03)


def test_causal_counts_half_of_a_square_and_only_keys_before_an_appended_query():
    square = {"batch": 1, "h_q": 1, "h_kv": 1, "d_qk": 1, "d_v": 1, "dtype": "bf16"}
    assert attention_flops(record("prefill", s_q=64, s_kv=64, causal=True, **square)) == 2 * 2 * 64 * 64 / 2
    assert attention_flops(record("prefill", s_q=64, s_kv=128, causal=True, **square)) == 2 * 2 * 64 * (128 - 32)
    assert attention_flops(record("decode_splitkv", s_q=1, s_kv=128, causal=True, **square)) == 2 * 2 * 128


def test_bytes_count_each_tensor_once_and_a_latent_cache_once():
    gqa = record(
        "decode_splitkv", batch=2, h_q=8, h_kv=2, s_q=1, s_kv=100, d_qk=64, d_v=64, dtype="bf16", kv_dtype="fp8e4m3"
    )
    assert attention_bytes(gqa) == 2 * 2 * 100 * 128 * 1 + 2 * 8 * 128 * 2
    mla = record(
        "mla_decode", batch=2, h_q=8, h_kv=1, s_q=1, s_kv=100, d_qk=576, d_v=512, dtype="bf16", kv_dtype="bf16"
    )
    assert attention_bytes(mla) == 2 * 100 * 576 * 2 + 2 * 8 * (576 + 512) * 2
    packed = record(
        "ultraquant_decode", batch=1, h_q=1, h_kv=1, s_q=1, s_kv=64, d_qk=32, d_v=32, dtype="bf16", kv_dtype="fp4e2m1"
    )
    assert attention_bytes(packed) == 64 * 64 * (0.5 + 1 / 32) + 64 * 2


def test_a_sequence_over_two_gpus_halves_keys_and_flops():
    sizes = {"batch": 1, "h_q": 8, "h_kv": 8, "s_q": 1, "d_qk": 128, "d_v": 128, "dtype": "bf16"}
    two = roofline_us(record("sequence_parallel_decode", s_kv=200_000, world=2, **sizes), PEAKS["gfx950"])
    one = roofline_us(record("decode_splitkv", s_kv=100_000, **sizes), PEAKS["gfx950"])
    assert two == pytest.approx(one)


def test_microbenchmarks_and_collectives():
    peaks = Peaks({"bf16": 1000.0}, 4000.0, link_gbps=400.0)
    assert roofline_us(record("micro", nbytes=4_000_000, mode="read"), peaks) == 1.0
    assert roofline_us(record("micro", m=10_000), peaks) == pytest.approx(2000.0)
    assert roofline_us(record("micro", mode="empty_launch"), peaks) == 0.0
    for mode, us in (("all_reduce", 1.5), ("all_gather", 3.0), ("reduce_scatter", 0.75), ("send_recv", 1.0)):
        assert roofline_us(record("collective", mode=mode, nbytes=400_000, world=4), peaks) == pytest.approx(us)


@pytest.mark.parametrize(
    ("family", "spec", "why"),
    [
        ("collective", {"nbytes": 1}, "no peak bandwidth between GPUs"),
        ("other", {"mode": "mqa_logits"}, "no roofline for other mqa_logits"),
        (
            "prefill",
            {"dtype": "f32", "s_q": 1, "s_kv": 1, "batch": 1, "h_q": 1, "h_kv": 1, "d_qk": 1},
            "no matrix peak",
        ),
        ("prefill", {"dtype": "bf16"}, "does not give the query length"),
        ("block_sparse", {"dtype": "bf16", "s_q": 1, "s_kv": 1}, "density"),
        ("prefill", {}, "element type"),
    ],
)
def test_what_is_not_known_is_said(family, spec, why):
    with pytest.raises(NotModelled, match=why):
        roofline_us(record(family, **spec), PEAKS["gfx950"])


def test_a_backward_pass_is_two_and_a_half_forward_passes(rocm):
    backward = [r for r in rocm.values() if r.spec.mode == "backward"]
    for r in backward:
        assert roofline_us(r, PEAKS["gfx950"]) == pytest.approx(r.tflops / 2516 * r.times.published.median, rel=0.01)
    assert len(backward) == 24
