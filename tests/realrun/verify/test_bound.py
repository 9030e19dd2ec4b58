"""A lower bound on time: cycles of published tables, spread over the units that there are."""

import pytest

from kernbench.realrun.verify.bound import bound_of, lds_cycles, matrix_cycles

CYCLES = [
    ("gfx90a", "v_mfma_f32_32x32x8_f16", 64),
    ("gfx90a", "v_mfma_f32_16x16x16_bf16_1k", 32),
    ("gfx90a", "v_mfma_f32_32x32x4_bf16", 64),
    ("gfx942", "v_mfma_f32_16x16x16_f16", 16),
    ("gfx942", "v_mfma_f32_32x32x8_bf16", 32),
    ("gfx942", "v_mfma_f32_16x16x32_fp8_fp8", 16),
    ("gfx942", "v_mfma_f32_32x32x16_fp8_bf8", 32),
    ("gfx942", "v_mfma_i32_32x32x16_i8", 32),
    ("gfx942", "v_mfma_f32_16x16x4_f32", 32),
    ("gfx942", "v_mfma_f32_4x4x4_16b_f16", 8),
    ("gfx950", "v_mfma_f32_16x16x16_f16", 16),
    ("gfx950", "v_mfma_f32_32x32x8_f16", 32),
    ("gfx950", "v_mfma_f32_16x16x32_bf16", 16),
    ("gfx950", "v_mfma_f32_32x32x16_f16", 32),
    ("gfx950", "v_mfma_i32_16x16x32_i8", 16),
    ("gfx950", "v_mfma_f32_32x32x16_fp8_fp8", 32),
    ("gfx950", "v_mfma_f64_16x16x4_f64", 64),
    ("gfx950", "v_mfma_scale_f32_16x16x128_f8f6f4", 16),
    ("gfx950", "v_mfma_f32_32x32x64_f8f6f4", 32),
]
"""gfx90a and gfx942: ROCm/amd_matrix_instruction_calculator @2ef91896; gfx950: LLVM's schedule, and for f8f6f4 without
fp8 operands FlyDSL's notes @11c4174d."""


@pytest.mark.parametrize(("arch", "opcode", "cycles"), CYCLES)
def test_matrix_instructions_take_the_published_cycles(arch, opcode, cycles):
    assert matrix_cycles(opcode, arch) == cycles


@pytest.mark.parametrize(
    ("arch", "opcode", "phases"),
    [("gfx950", "ds_read_b128", 4), ("gfx950", "ds_read_b64", 2), ("gfx950", "ds_read_b64_tr_b16", 2),
     ("gfx950", "ds_write_b64", 4), ("gfx942", "ds_read_b64", 4), ("gfx942", "ds_read2_b32", 4),
     ("gfx942", "ds_read2st64_b64", 8), ("gfx942", "ds_read_u16_d16", 1), ("gfx942", "ds_bpermute_b32", 2)],
)  # fmt: skip
def test_lds_takes_the_measured_phases(arch, opcode, phases):
    """gfx950's are measured (HipKittens, phases/ @f09e9685)."""
    assert lds_cycles(opcode, arch) == phases


def test_units_work_side_by_side_and_work_is_spread_evenly():
    opcodes = {"v_mfma_f32_16x16x16_f16": 64, "v_exp_f32_e32": 8, "v_add_f32_e32": 16, "ds_read_b128": 4, "s_nop": 99}
    found = bound_of(opcodes, "gfx942", compute_units=2, groups=4, waves=4)
    assert (found.matrix, found.vector, found.transcendental, found.lds) == (128, 24, 16, 16)
    assert (found.cycles, found.unit) == (128, "matrix")


@pytest.mark.parametrize(("groups", "waves", "share"), [(1, 1, 1), (1, 4, 4), (3, 2, 6), (1000, 4, 16)])
def test_a_launch_that_does_not_fill_the_machine(groups, waves, share):
    """Of 4 units with 4 SIMDs, a launch of few waves uses as many SIMDs as it has waves."""
    found = bound_of({"v_add_f32_e32": 16}, "gfx942", compute_units=4, groups=groups, waves=waves)
    assert found.vector == -(-64 // share)


@pytest.mark.parametrize(
    ("arch", "opcode", "cycles"),
    [("gfx942", "v_exp_f32_e32", 16), ("gfx942", "v_rcp_f64_e32", 32), ("gfx90a", "v_rcp_iflag_f32_e32", 16),
     ("gfx950", "v_exp_f32_e32", 8), ("gfx950", "v_pk_fma_f32", 4)],
)  # fmt: skip
def test_vector_instructions_take_the_published_cycles(arch, opcode, cycles):
    assert bound_of({opcode: 1}, arch, compute_units=1, groups=1, waves=1).vector == cycles


@pytest.mark.parametrize(("groups", "share"), [(1, 1), (3, 3), (9, 4)])
def test_a_workgroup_uses_the_lds_of_one_unit(groups, share):
    found = bound_of({"ds_read_b32": 96}, "gfx942", compute_units=4, groups=groups, waves=4)
    assert found.lds == -(-2 * 96 // share)
