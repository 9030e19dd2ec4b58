"""PEs are selected by index, by name, or as kernbench itself describes them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernbench.errors import InputError
from kernbench.machine import Machine, load_machine
from kernbench.report.selection import select_pes

ROW = load_machine("row4_pe8")
MANY = load_machine("sip4_grid4x4_pe8")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0-7", range(8)),
        ("3", [3]),
        (" 5 , 1 - 3 ", [1, 2, 3, 5]),
        ("cube0", range(8)),
        ("CUBE 0-3", range(32)),
        ("sip0.cube1.pe3", [11]),
        ("sip 0 cube 1 pe 3", [11]),
        ("cube1pe3", [11]),
        ("pe0", [0, 8, 16, 24]),
        ("cube 0,2 pe 0,2-3", [0, 2, 3, 16, 18, 19]),
        ("cube0.pe1, cube3.pe7", [1, 31]),
        ("cube 0 pe 1; cube 3 pe 7", [1, 31]),
        ("0,2, cube1.pe1", [0, 2, 9]),
        ("pe 0 cube 2", [16]),
        ("all", range(32)),
        ("cube3, all", range(32)),
        ("4,4,3-5", [3, 4, 5]),
    ],
)
def test_a_selection_gives_its_pes(text: str, expected: list[int]) -> None:
    found = select_pes(text, ROW)
    assert found.dtype == np.int64
    assert found.tolist() == list(expected)


def test_a_level_that_is_not_named_means_all_of_it() -> None:
    assert select_pes("cube5.pe1", MANY).tolist() == [sip * 128 + 41 for sip in range(4)]
    assert select_pes("sip2", MANY).tolist() == list(range(256, 384))


@settings(deadline=None)
@given(st.sets(st.integers(0, 511), min_size=1), st.sampled_from([ROW, MANY]))
def test_what_kernbench_describes_can_be_selected(pes: set[int], machine: Machine) -> None:
    inside = {pe % machine.n_pes for pe in pes}
    assert select_pes(machine.describe_pes(inside), machine).tolist() == sorted(inside)
    names = ", ".join(machine.pe_name(pe) for pe in inside)
    assert select_pes(names, machine).tolist() == sorted(inside)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("32", "there is no PE 32 (in '32'): row4_pe8 has PEs 0-31"),
        ("0-99", "there is no PE 99"),
        ("cube4", "there is no CUBE 4 (in 'cube4'): row4_pe8 has CUBEs 0-3 in each SIP"),
        ("cube0.pe8", "there is no PE 8 (in 'cube0.pe8'): row4_pe8 has PEs 0-7 in each CUBE"),
        ("sip1", "there is no SIP 1 (in 'sip1'): row4_pe8 has only SIP 0"),
        ("7-3", "'7-3' in '7-3' runs backwards: write 3-7"),
        ("cubes0", "'cubes' in 'cubes0' is no level of a machine (did you mean 'cube'?)"),
        ("everything", "'everything' in 'everything' is no level of a machine"),
        ("", "'' is no selection of PEs: select PEs as 0-7, cube0, sip0.cube1.pe3, cube 0-3 pe 0,2 or all"),
        ("cube", "'cube' is no selection of PEs"),
        ("0 cube1", "is no selection of PEs"),
        ("cube0;", "is no selection of PEs"),
        ("1.5", "is no selection of PEs"),
        ("-1", "is no selection of PEs"),
        ("cube0 cube1", "gives a level twice in 'cube0 cube1': put a comma between two places"),
        ("99999999999999999999", "there is no PE 99999999999999999999"),
    ],
)
def test_what_is_no_selection_is_told(text: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        select_pes(text, ROW)
