"""Laws that every prediction obeys, whatever the figures of the machines: bounds, monotony, reasons, determinism."""

import pytest

import kernbench as kb
from kernbench.realrun.predict import peaks_of, predict
from kernbench.realrun.predict.decode import decode_launch
from kernbench.realrun.predict.entry import kernel_of, machine_of
from kernbench.realrun.predict.estimate import ONCE, estimate
from kernbench.realrun.predict.given import shape_of
from kernbench.realrun.predict.prefill import prefill_launch
from kernbench.realrun.prediction import NotModelled
from kernbench.realrun.records import Device
from kernbench.realrun.roofline import attention_bytes, attention_flops
from kernbench.realrun.sources import read_records, shipped_records
from kernbench.simulate.launch.compiled import run_compiled

from .made import decode, prefill

RECORDS = [r for path in shipped_records() for r in read_records(path).records]
ATTENTION = ("decode_splitkv", "prefill", "ultraquant_decode", "paged_decode", "mla_decode", "sdpa_flash", "sdpa_cudnn")
SHAPES = [
    decode("small", s_kv=77, splits=2), decode("usual"), decode("one", batch=1, h_kv=1, s_kv=100_000, splits=64),
    decode("fp8", kv_dtype="fp8e4m3"), decode("i8", kv_dtype="i8", splits=3),
    decode("paged", family="paged_decode", page_size=64), decode("4 bit", family="ultraquant_decode"),
    prefill("causal"), prefill("full", causal=False), prefill("ragged", s_q=1000, s_kv=1000),
    prefill("gqa", h_kv=4, s_q=2048, s_kv=2048, batch=1), prefill("narrow", d_qk=64, d_v=64),
]  # fmt: skip


@pytest.fixture(scope="module")
def h200():
    return kb.load_machine("h200")


def us(record, machine):
    return {p.field: p.predicted_us for p in predict(record, machine)}


# ---------------------------------------------------------------- bounds
def test_nothing_is_faster_than_its_flops_or_than_its_bytes_from_memory():
    """Of every seventeenth shipped run; warm times may come from caches, so that only flops bound them."""
    judged = 0
    for record in RECORDS[::17]:
        if record.family not in ATTENTION:
            continue
        try:
            found, machine = predict(record), machine_of(record)
            peaks = peaks_of(machine)
            rate = peaks.matrix_tflops[record.spec.dtype or "bf16"]
            flops_us, bytes_us = attention_flops(record) / rate / 1e6, attention_bytes(record) / peaks.hbm_gbps / 1e3
        except NotModelled:
            continue
        for p in found:
            if p.field == "reduce":
                continue
            assert p.predicted_us > flops_us, record.id
            if p.field in ("cold", "cold_graph", "partial"):
                assert p.predicted_us > bytes_us, record.id
            judged += 1
    assert judged > 50


@pytest.mark.parametrize("record", SHAPES, ids=lambda r: r.id)
def test_bounds_of_launches_of_all_kinds(record, h200):
    peaks = peaks_of(h200)
    for p in predict(record, h200):
        assert p.predicted_us > attention_flops(record) / peaks.matrix_tflops["bf16"] / 1e6
        if p.field != "warm":
            assert p.predicted_us > attention_bytes(record) / peaks.hbm_gbps / 1e3
        assert p.reason
        assert p.regime in ("fixed-overhead", "latency", "memory", "compute")


# ---------------------------------------------------------------- monotony
@pytest.mark.parametrize("record", SHAPES, ids=lambda r: r.id)
def test_twice_the_keys_take_longer(record, h200):
    spec = record.spec
    longer = {"s_kv": 2 * spec.s_kv} | ({"s_q": 2 * spec.s_q} if spec.s_q > 1 else {})
    twice = record.model_copy(update={"spec": spec.model_copy(update=longer)})
    once = us(record, h200)
    for field, predicted in us(twice, h200).items():
        assert predicted > once[field]


@pytest.mark.parametrize("record", SHAPES, ids=lambda r: r.id)
def test_a_faster_part_is_never_much_slower(record, h200):
    """Order may change who waits for whom, by little."""
    faster = {
        "sip.memory.bandwidth": "9.6 TB/s", "sip.memory.latency": "200 ns", "sip.cache.bandwidth": "18 TB/s",
        "pe.vector.lanes": 256, "pe.matrix.rates.bf16": "16.22016 Tflop/s", "launch.graph": "100 ns",
    }  # fmt: skip
    before = us(record, h200)
    for key, value in faster.items():
        for field, predicted in us(record, h200.with_overrides({key: value})).items():
            assert predicted <= before[field] * 1.02, key


def test_memory_bound_decode_follows_the_bandwidth(h200):
    record = decode(batch=16, s_kv=16384, splits=8, fields=("cold_graph",))
    half = h200.with_overrides({"sip.memory.bandwidth": "2.4 TB/s"})
    assert 1.6 < us(record, half)["cold_graph"] / us(record, h200)["cold_graph"] < 2.1


def test_flushed_caches_are_never_faster_than_warm_ones(h200):
    for record in SHAPES:
        found = us(record, h200)
        assert found["cold"] > found["cold_graph"]
        assert found["cold_graph"] >= found["warm"] * 0.98


def test_the_two_launches_of_a_decode_add_up(h200):
    found = us(decode(fields=("cold", "partial", "reduce", "warm", "cold_graph")), h200)
    assert found["partial"] < found["cold"] < found["partial"] + found["reduce"]


# ---------------------------------------------------------------- a part carried on
@pytest.mark.parametrize(
    "record",
    [
        prefill("full", causal=False, batch=16, s_q=2048, s_kv=2048),
        prefill("causal", batch=16, s_q=4096, s_kv=4096),
        decode("decode", batch=64, s_kv=8192, splits=16),
    ],
    ids=lambda r: r.id,
)
def test_carried_on_from_a_part_is_close_to_the_whole(record, h200):
    shape = shape_of(record)
    kernel = kernel_of(record, shape, h200)
    if record.family == "prefill":
        launch, repeats = prefill_launch(shape, kernel, h200)
    else:
        launch, repeats = decode_launch(shape, kernel, h200), ONCE
    found = estimate(launch, repeats)
    assert found.simulated < 0.9
    assert found.ps == pytest.approx(run_compiled(launch).makespan_ps, rel=0.05)


def test_a_launch_that_is_short_enough_is_simulated_whole(h200):
    record = decode()
    shape = shape_of(record)
    launch = decode_launch(shape, kernel_of(record, shape, h200), h200)
    found = estimate(launch)
    assert found.simulated == 1
    assert found.ps == run_compiled(launch).makespan_ps


# ---------------------------------------------------------------- the same, and reasons
def test_the_same_record_is_predicted_the_same():
    for record in SHAPES[::3]:
        assert predict(record) == predict(record)


def test_neither_measured_times_nor_where_they_come_from_matter():
    for record in SHAPES[::4]:
        slower = {f: q.model_copy(update={"median": 777.0}) for f, q in _times(record).items()}
        other = record.model_copy(
            update={"id": "z", "source": "elsewhere", "times": record.times.model_copy(update=slower)}
        )
        assert predict(other) == predict(record)


def _times(record):
    return {f: q for f in ("cold", "warm", "cold_graph") if (q := getattr(record.times, f))}


def _with(record, **implementation):
    changed = record.implementation.model_copy(update=implementation)
    return record.model_copy(update={"implementation": changed})


def _spec(record, **spec):
    return record.model_copy(update={"spec": record.spec.model_copy(update=spec)})


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (_with(decode(), registers=None), "registers not stated"),
        (_with(decode(), lds_bytes=None), "shared memory not stated"),
        (_with(decode(), lds_bytes=1 << 20), "a workgroup does not fit"),
        (_with(prefill(), block_n=None), "tile of keys not stated"),
        (_with(prefill(), spills=500), "spilled registers"),
        (_spec(decode(), s_kv=None), "key length not stated"),
        (_spec(decode(), h_kv=5), "no multiple"),
        (_spec(prefill(), s_q=1), "no model for decode by this kernel"),
        (decode(family="other"), "no model for other"),
        (decode(fields=()), "no measured time that the model predicts"),
        (decode().model_copy(update={"device": Device(gpu=None, arch="gfx942")}), "GPU not named"),
        (decode().model_copy(update={"device": Device(gpu="TPU v9", arch="tpu")}), "no machine for TPU v9"),
    ],
)
def test_what_is_not_modelled_is_a_reason(record, why):
    with pytest.raises(NotModelled, match=why):
        predict(record)


def test_predictions_say_for_which_time_they_are():
    for record in SHAPES:
        assert {p.field for p in predict(record)} <= {"cold", "warm", "cold_graph"}
        assert all(p.roofline_us > 0 for p in predict(record))
