"""Matrix instructions against a plain product.

Where the lanes hold the operands is written out here from AMD's ISA documents, and does not use the package's code.
"""

import ml_dtypes
import numpy as np
import pytest

from kernbench.realrun import amdgcn
from tests.realrun.amdgcn.written import POINTER, kernel_text

SHAPES = [
    ("gfx942", 16, 16, "f16", "v_mfma_f32_16x16x16_f16"),
    ("gfx942", 32, 8, "f16", "v_mfma_f32_32x32x8_f16"),
    ("gfx90a", 16, 16, "f16", "v_mfma_f32_16x16x16f16"),
    ("gfx90a", 32, 8, "f16", "v_mfma_f32_32x32x8f16"),
    ("gfx950", 16, 32, "f16", "v_mfma_f32_16x16x32_f16"),
    ("gfx950", 32, 16, "f16", "v_mfma_f32_32x32x16_f16"),
    ("gfx942", 16, 16, "bf16", "v_mfma_f32_16x16x16_bf16"),
    ("gfx90a", 16, 16, "bf16", "v_mfma_f32_16x16x16bf16_1k"),
    ("gfx942", 32, 8, "bf16", "v_mfma_f32_32x32x8_bf16"),
    ("gfx950", 16, 32, "bf16", "v_mfma_f32_16x16x32_bf16"),
    ("gfx950", 32, 16, "bf16", "v_mfma_f32_32x32x16_bf16"),
    ("gfx942", 16, 4, "f32", "v_mfma_f32_16x16x4_f32"),
    ("gfx942", 32, 2, "f32", "v_mfma_f32_32x32x2_f32"),
    ("gfx90a", 16, 16, "i8", "v_mfma_i32_16x16x16i8"),
    ("gfx90a", 32, 8, "i8", "v_mfma_i32_32x32x8i8"),
    ("gfx942", 16, 32, "i8", "v_mfma_i32_16x16x32_i8"),
    ("gfx942", 32, 16, "i8", "v_mfma_i32_32x32x16_i8"),
    ("gfx950", 16, 64, "i8", "v_mfma_i32_16x16x64_i8"),
    ("gfx950", 32, 32, "i8", "v_mfma_i32_32x32x32_i8"),
]
TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "i8": np.int8}


def draw(rng, kind, shape):
    return (
        rng.integers(-128, 128, shape).astype(np.int8)
        if kind == "i8"
        else rng.standard_normal(shape).astype(TYPES[kind])
    )


def operand_words(matrix, side, depth):
    """Lay out A[row, k] (or B[column, k]) by lane: ``uint32[lane, word]``."""
    held = depth * side // 64
    lanes = [matrix[lane % side, lane // side * held : lane // side * held + held] for lane in range(64)]
    return np.stack(lanes).view(np.uint32).reshape(64, -1)


def result_place(lane, register, side):
    """Row and column of D that a lane's register holds."""
    if side == 16:
        return 4 * (lane // 16) + register, lane % 16
    return 8 * (register // 4) + 4 * (lane // 32) + register % 4, lane % 32


def program(name, words, results):
    """Load A, B and C, multiply, store D; each argument is ``[register, lane]``."""
    lines = ["\ts_load_dwordx4 s[4:7], s[0:1], 0x0", "\ts_load_dwordx4 s[8:11], s[0:1], 0x10",
             "\tv_lshlrev_b32_e32 v60, 2, v0", "\ts_waitcnt lgkmcnt(0)"]  # fmt: skip
    for base, first, count in (("s[4:5]", 0, words), ("s[6:7]", 8, words), ("s[8:9]", 16, results)):
        lines += [f"\tglobal_load_dword v{first + r}, v60, {base} offset:{256 * r}" for r in range(count)]
    span = lambda first, count: f"v[{first}:{first + count - 1}]" if count > 1 else f"v{first}"  # noqa: E731
    lines += [
        "\ts_waitcnt vmcnt(0)",
        f"\t{name} {span(16, results)}, {span(0, words)}, {span(8, words)}, {span(16, results)}",
    ]
    lines += [f"\tglobal_store_dword v60, v{16 + r}, s[10:11] offset:{256 * r}" for r in range(results)]
    return "\n".join(lines)


@pytest.mark.parametrize(("arch", "side", "depth", "kind", "name"), SHAPES, ids=[f"{s[0]}-{s[4]}" for s in SHAPES])
def test_a_matrix_instruction_is_a_product(arch, side, depth, kind, name):
    rng = np.random.default_rng(side * depth)
    number = np.int32 if kind == "i8" else np.float32
    a, b = draw(rng, kind, (side, depth)), draw(rng, kind, (side, depth))
    c = rng.integers(-99, 99, (side, side)).astype(number)
    results = side * side // 64
    places = [[result_place(lane, r, side) for lane in range(64)] for r in range(results)]
    c_words = np.array([[c[place] for place in row] for row in places], number)
    a_words, b_words = (np.ascontiguousarray(operand_words(m, side, depth).T) for m in (a, b))
    d_words = np.zeros_like(c_words)
    kernel = amdgcn.load(kernel_text(program(name, len(a_words), results), [POINTER] * 4, arch), arch)["k"]
    done = kernel.launch(1, 64, [a_words, b_words, c_words, d_words])
    d = np.zeros((side, side), np.float64)
    for r, row in enumerate(places):
        for lane, place in enumerate(row):
            d[place] = d_words[r, lane]
    expected = a.astype(np.float64) @ b.astype(np.float64).T + c
    np.testing.assert_allclose(d, expected, rtol=1e-5, atol=1e-4)
    mops = {"f16": "F16", "bf16": "BF16", "f32": "F32", "i8": "I8"}[kind]
    assert done.counters[f"SQ_INSTS_VALU_MFMA_MOPS_{mops}"] == 2 * side * side * depth // 512


def test_all_lanes_take_part_whatever_exec_is():
    text = kernel_text(
        program("v_mfma_f32_16x16x4_f32", 1, 4)
        .replace("\tv_mfma", "\ts_mov_b64 exec, 1\n\tv_mfma")
        .replace("\tglobal_store_dword v60, v16,", "\ts_mov_b64 exec, -1\n\tglobal_store_dword v60, v16,"),
        [POINTER] * 4,
    )
    ones, out = np.ones((1, 64), np.float32), np.zeros((4, 64), np.float32)
    amdgcn.load(text)["k"].launch(1, 64, [ones, ones, np.zeros_like(out), out])
    assert (out == 4).all()
