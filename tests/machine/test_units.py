"""Quantities are read exactly or refused with advice."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernbench.errors import TopologyError
from kernbench.machine import units
from kernbench.machine.units import BANDWIDTH, KINDS, bytes_per_s, flops_per_s, hertz, nbytes, picoseconds, rational


@pytest.mark.parametrize(
    ("read", "written", "value"),
    [
        (picoseconds, "40 ns", 40_000),
        (picoseconds, "40ns", 40_000),
        (picoseconds, "  1.5 us ", 1_500_000),
        (picoseconds, "1.5 \u00b5s", 1_500_000),
        (picoseconds, "0 ns", 0),
        (picoseconds, "1e3 ps", 1000),
        (picoseconds, "0.001 ns", 1),
        (picoseconds, "1 s", 10**12),
        (nbytes, "1 MiB", 2**20),
        (nbytes, "1 MB", 10**6),
        (nbytes, "1 kB", 1000),
        (nbytes, "1 KB", 1000),
        (nbytes, "8 bit", 1),
        (nbytes, "24 GiB", 24 * 2**30),
        (bytes_per_s, "1.2 TB/s", 1_200_000_000_000),
        (bytes_per_s, "100 Gbit/s", 12_500_000_000),
        (bytes_per_s, "256 GB / s", 256_000_000_000),
        (bytes_per_s, "1 GiB/s", 2**30),
        (hertz, "1.7 GHz", 1_700_000_000),
        (flops_per_s, "8 Tflop/s", 8 * 10**12),
        (flops_per_s, "8 TFLOP/s", 8 * 10**12),
        (flops_per_s, "8 Tflops", 8 * 10**12),
        (flops_per_s, "8 TFLOPS", 8 * 10**12),
        (flops_per_s, "16 TOPS", 16 * 10**12),
    ],
)
def test_a_quantity_is_read_into_whole_base_units(read, written, value):
    assert read(written) == value


@pytest.mark.parametrize(
    ("read", "written", "value"),
    [
        (bytes_per_s, "256 B/ns", 256 * 10**9),
        (bytes_per_s, "1 bit/ps", 125 * 10**9),
        (nbytes, "8 Kibit", 1024),
        (picoseconds, "2 ks", 2 * 10**15),
        (flops_per_s, "4 flop/ns", 4 * 10**9),
    ],
)
def test_unusual_combinations_are_read_too(read, written, value):
    assert read(written) == value


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.base)
def test_the_table_of_everyday_units_agrees_with_pint(kind):
    for unit, factor in kind.units.items():
        assert units._pint_factor(unit, kind) == factor, unit


def test_reading_everyday_units_does_not_import_pint():
    code = (
        "import sys; from kernbench.machine import load_machine; load_machine('row4_pe8'); print('pint' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.base)
@given(value=st.integers(0, 2**62 - 1))
def test_what_is_written_is_read_back(kind, value):
    assert units.parse(units.text(value, kind), kind) == value


@given(thousandths=st.integers(0, 10**12), unit=st.sampled_from(["ns", "us", "ms"]))
def test_decimals_are_exact(thousandths, unit):
    written = f"{thousandths // 1000}.{thousandths % 1000:03d} {unit}"
    assert picoseconds(written) == Fraction(thousandths, 1000) * units.TIME.units[unit]


@pytest.mark.parametrize(
    ("read", "written", "parts"),
    [
        (picoseconds, 40, ["missing unit: 40", "write e.g. '40 ns'"]),
        (picoseconds, 0, ["missing unit: 0", "'40 ns'"]),
        (picoseconds, "40", ["missing unit: 40", "'40 ns'"]),
        (picoseconds, 2.5, ["missing unit: 2.5", "'2.5 ns'"]),
        (nbytes, 4096, ["missing unit: 4096", "'4096 MiB'"]),
        (picoseconds, "-1 ns", ["'-1 ns' is negative"]),
        (picoseconds, "0.5 ps", ["'0.5 ps'", "resolution is 1 ps"]),
        (picoseconds, "1 fs", ["resolution is 1 ps"]),
        (bytes_per_s, "1 bit/s", ["resolution is 1 B/s"]),
        (picoseconds, "1 GB", ["expected a time such as '40 ns'", "'1 GB', a size"]),
        (bytes_per_s, "1.2 TB", ["expected a bandwidth", "a size"]),
        (bytes_per_s, "1 Tflops", ["expected a bandwidth", "a rate of arithmetic"]),
        (picoseconds, "1 ns/s", ["expected a time such as '40 ns'", "'1 ns/s'"]),
        (bytes_per_s, "1 tb/s", ["unknown unit 'tb/s'", "did you mean 'TB/s'"]),
        (bytes_per_s, "1 GBs", ["unknown unit 'GBs'", "did you mean 'GB/s'"]),
        (nbytes, "1 Mib", ["unknown unit 'Mib'", "did you mean 'MiB'"]),
        (picoseconds, "3 parsecs", ["unknown unit 'parsecs'", "known: ", "ns"]),
        (picoseconds, "fast", ["expected a time such as '40 ns', found 'fast'"]),
        (picoseconds, "", ["expected a time", "found ''"]),
        (picoseconds, True, ["expected a time", "found true"]),
        (picoseconds, None, ["expected a time", "found nothing"]),
        (picoseconds, [1], ["expected a time", "found a list"]),
        (nbytes, "1e30 B", ["more than 2**62 B"]),
        (nbytes, "1e999999999 B", ["unknown unit"]),
        (picoseconds, "2 s ** 9", ["unknown unit"]),
    ],
)
def test_a_quantity_that_cannot_be_read_is_explained(read, written, parts):
    with pytest.raises(TopologyError) as caught:
        read(written)
    for part in parts:
        assert part in str(caught.value)


@given(st.text(max_size=30))
def test_no_text_breaks_the_reader(written):
    with contextlib.suppress(TopologyError):
        assert units.parse(written, BANDWIDTH) >= 0


@given(
    num_bytes=st.integers(0, 2**35), bandwidth=st.sampled_from([1_200_000_000_000, 64 * 10**9, 2**30, 10**9 + 10**4])
)
def test_a_rational_gives_the_exact_picoseconds_and_fits_an_int64(num_bytes, bandwidth):
    num, den = rational(bandwidth)
    assert Fraction(num, den) == Fraction(10**12, bandwidth)
    assert num_bytes * num < 2**63


def refusal(bandwidth: int) -> str:
    """What a user reads about a bandwidth; empty if it can be used."""
    try:
        rational(bandwidth)
    except TopologyError as error:
        return str(error)
    return ""


@given(st.integers(1, 2**61))
def test_an_odd_bandwidth_is_refused_with_a_rounder_one_that_works(bandwidth):
    text = refusal(bandwidth)
    if text:
        assert "too odd" in text
        advice = bytes_per_s(text.rsplit("'", 2)[1])
        assert refusal(advice) == ""
        if bandwidth > 10**8:
            assert abs(advice - bandwidth) < bandwidth / 1000


def test_a_bandwidth_of_nothing_has_no_rational():
    with pytest.raises(TopologyError, match="must be more than zero"):
        rational(0)
