"""A kernel whose waits or barriers are loosened computes the same, or is refused under strict; never a wrong answer."""

import re

import numpy as np
import pytest

from kernbench.errors import KernelError
from kernbench.realrun import amdgcn
from kernbench.realrun.compiled import shipped_code
from tests.realrun.amdgcn import compiled
from tests.realrun.amdgcn.written import POINTER, kernel_text

TURN = """\
\ts_load_dwordx4 s[4:7], s[0:1], 0x0
\tv_lshlrev_b32_e32 v2, 2, v0
\tv_sub_u32_e32 v3, 0x2fc, v2
\ts_mov_b32 s8, 3
\ts_waitcnt lgkmcnt(0)
\tglobal_load_dword v4, v2, s[4:5]
\tglobal_load_dword v5, v2, s[4:5] offset:768
\tv_mov_b32_e32 v1, 0
.LOOP:
\ts_waitcnt vmcnt(1)
\tds_write_b32 v2, v4
\ts_waitcnt lgkmcnt(0)
\ts_barrier
\tds_read_b32 v6, v3
\ts_waitcnt vmcnt(0)
\tds_write_b32 v2, v5 offset:768
\ts_waitcnt lgkmcnt(1)
\tv_add_u32_e32 v1, v1, v6
\ts_waitcnt lgkmcnt(0)
\ts_barrier
\tds_read_b32 v7, v3 offset:768
\ts_waitcnt lgkmcnt(0)
\tv_xor_b32_e32 v1, v1, v7
\tv_add_u32_e32 v4, v4, v1
\ts_sub_i32 s8, s8, 1
\ts_cmp_lg_u32 s8, 0
\ts_cbranch_scc1 .LOOP
\tglobal_store_dword v2, v1, s[6:7]"""
"""Three waves exchange words through two buffers in LDS, each with waits that are needed and no more."""
ITEMS = 192


def turn(text):
    data, out = np.arange(2 * ITEMS, dtype=np.uint32) * 977, np.zeros(ITEMS, np.uint32)
    amdgcn.load(kernel_text(text, [POINTER] * 2, lds=8 * ITEMS))["k"].launch(2, ITEMS, [data, out])
    return out


def turned():
    """What the kernel computes, in plain NumPy."""
    data = np.arange(2 * ITEMS, dtype=np.uint32) * 977
    a, b, total = data[:ITEMS].copy(), data[ITEMS:], np.zeros(ITEMS, np.uint32)
    for _ in range(3):
        total = (total + a[::-1]) ^ b[::-1]
        a = a + total
    return total


def same_or_refused(text, expected):
    """Run; return whether it was refused."""
    try:
        out = turn(text)
    except KernelError:
        return True
    np.testing.assert_array_equal(out, expected)
    return False


def test_the_exchange_is_right_as_it_is_written():
    np.testing.assert_array_equal(turn(TURN), turned())


def test_raising_any_count_of_any_wait_is_refused_or_changes_nothing():
    expected, lines = turned(), TURN.split("\n")
    refused = {}
    for i, line in enumerate(lines):
        for counter, count in re.findall(r"(vmcnt|lgkmcnt)\((\d)\)", line):
            for more in (*range(int(count) + 1, 5), {"vmcnt": 63, "lgkmcnt": 15}[counter]):
                raised = line.replace(f"{counter}({count})", f"{counter}({more})")
                text = "\n".join([*lines[:i], raised, *lines[i + 1 :]])
                refused.setdefault(i, []).append(same_or_refused(text, expected))
    # Every wait is needed, so raised far enough every one is refused.
    assert all(some[-1] for some in refused.values())
    assert len(refused) == 7


def test_without_a_barrier_another_waves_word_is_read_too_early_or_overwritten():
    lines = TURN.split("\n")
    places = [i for i, line in enumerate(lines) if "s_barrier" in line]
    assert [same_or_refused("\n".join(lines[:i] + lines[i + 1 :]), turned()) for i in places] == [True, True]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("ds_write_b32 v2, v0\n\ts_barrier\n\tds_read_b32 v1, v3", "reads LDS before s_waitcnt lgkmcnt covers the"),
        ("ds_write_b32 v2, v0\n\ts_waitcnt lgkmcnt(0)\n\tds_read_b32 v1, v3", "before a barrier follows the write"),
        ("ds_read_b32 v1, v3\n\ts_waitcnt lgkmcnt(0)\n\tds_write_b32 v2, v0", "writes LDS that wave 1 read, with no"),
        (
            "v_mov_b32_e32 v4, 0\n\tds_read_b32 v1, v4\n\tv_and_b32_e32 v5, 64, v0\n\tds_write_b32 v5, v0",
            "writes LDS that other waves read, with no barrier in between",
        ),
    ],
)  # fmt: skip
def test_what_a_race_is_called(body, message):
    body = f"\tv_lshlrev_b32_e32 v2, 2, v0\n\tv_xor_b32_e32 v3, 0x100, v2\n\t{body}"
    kernel = amdgcn.load(kernel_text(body, [POINTER], lds=512))["k"]
    with pytest.raises(KernelError, match=message):
        kernel.launch(1, 128, [None])
    kernel.launch(1, 128, [None], strict=False)


def test_a_wave_may_use_its_own_words_without_a_barrier():
    step = "\tds_write_b32 v2, v0\n\tds_read_b32 v1, v2\n\ts_waitcnt lgkmcnt(0)\n"
    loop = f"\tv_lshlrev_b32_e32 v2, 2, v0\n\ts_movk_i32 s8, 0x100\n.L1:\n{step}\ts_sub_i32 s8, s8, 1\n"
    body = f"{loop}\ts_cmp_lg_u32 s8, 0\n\ts_cbranch_scc1 .L1"
    kernel = amdgcn.load(kernel_text(body, [POINTER], lds=512))["k"]
    kernel.launch(3, 128, [None])
    late = body + "\n\tv_xor_b32_e32 v3, 0x100, v2\n\tds_read_b32 v1, v3"
    with pytest.raises(KernelError, match="before a barrier follows the write to it of wave 1"):
        amdgcn.load(kernel_text(late, [POINTER], lds=512))["k"].launch(3, 128, [None])


def test_a_compiled_kernel_without_one_of_its_barriers(monkeypatch):
    lines = shipped_code("prefill_d64_causal.gfx950").text.split("\n")
    places = [i for i, line in enumerate(lines) if line.strip() == "s_barrier"]
    assert len(places) == 4
    plain = compiled.load
    for i in places:
        kernel = amdgcn.load("\n".join(lines[:i] + lines[i + 1 :]))["prefill"]
        monkeypatch.setattr(compiled, "load", lambda n, a, kernel=kernel: (kernel, plain(n, a)[1]))
        with pytest.raises(KernelError, match=r"before a barrier follows|with no barrier in between"):
            compiled.prefill("gfx950", 64, 97, True)
