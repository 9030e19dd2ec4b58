"""What is known of kernels by their names: complete, sourced, buildable, and never in place of a record's figures."""

import re

import pytest

from kernbench.realrun.predict import machine_of, predict
from kernbench.realrun.predict.entry import kernel_of
from kernbench.realrun.predict.given import shape_of
from kernbench.realrun.predict.implementations import KNOWN, find
from kernbench.realrun.prediction import NotModelled
from kernbench.realrun.records import Implementation
from kernbench.realrun.sources import read_records, shipped_records

from .made import prefill

RECORDS = [r for path in shipped_records() for r in read_records(path).records]


def served(known):
    """Records that an entry is for."""
    return [
        r for r in RECORDS
        if r.family == known.family and r.spec.d_qk in known.widths and r.implementation.waves is None
        and find(known.family, r.implementation.name, r.device.arch, r.spec.d_qk) is known
    ]  # fmt: skip


@pytest.mark.parametrize("known", KNOWN, ids=lambda k: f"{k.family}-{k.name}-{k.arch}-{k.widths}")
def test_each_serves_a_record_and_fits_its_machine(known):
    mine = [r for r in served(known) if r.spec.s_q and r.spec.h_kv and r.device.gpu]
    assert mine, "no shipped record uses it"
    fits = 0
    for r in mine[:5]:
        try:
            machine = machine_of(r)
        except NotModelled:
            continue
        kernel = known.kernel(machine)
        assert kernel.places(machine).slots >= 1
        assert kernel.origin == known.source
        fits += 1
    assert fits


@pytest.mark.parametrize("known", KNOWN, ids=lambda k: f"{k.family}-{k.name}-{k.arch}-{k.widths}")
def test_each_says_where_it_comes_from(known):
    assert re.match(r"(source|assumed): \w", known.source)


def test_predictions_that_rest_on_one_say_so():
    sdpa = next(r for r in RECORDS if r.family == "sdpa_flash" and r.spec.s_q != 1 and r.times.cold)
    for p in predict(sdpa):
        assert "implementation source: block sizes of FlashAttention-2" in p.reason


def test_the_records_own_figures_come_first():
    own = prefill(family="sdpa_flash")
    own = own.model_copy(update={"implementation": own.implementation.model_copy(update={"name": "torch-sdpa-flash"})})
    kernel = kernel_of(own, shape_of(own), machine_of(own))
    assert kernel.resources.registers == own.implementation.registers
    assert kernel.origin == ""


@pytest.mark.parametrize(
    ("family", "name", "arch", "width"),
    [
        ("sdpa_flash", "torch-sdpa-flash", "sm_90", 96), ("sdpa_flash", "torch-sdpa-cudnn", "sm_90", 128),
        ("prefill", "HipKittens", "gfx942", 128), ("mla_decode", "aiter", "gfx950", 128), ("prefill", "", "", 128),
    ],
)  # fmt: skip
def test_what_is_not_known_is_not_guessed(family, name, arch, width):
    assert find(family, name, arch, width) is None


def test_an_unknown_implementation_is_a_reason():
    bare = prefill().model_copy(update={"implementation": Implementation(name="somebody's")})
    with pytest.raises(NotModelled, match="waves not stated"):
        predict(bare)
