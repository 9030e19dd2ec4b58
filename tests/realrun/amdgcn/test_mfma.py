"""Matrix instructions against a plain product.

Where the lanes hold the operands is written out here from AMD's ISA documents, and does not use the package's code.
"""

import ml_dtypes
import numpy as np
import pytest

from kernbench.realrun import amdgcn
from tests.realrun.amdgcn.written import POINTER, kernel_text

SHAPES = [
    ("gfx942", 16, 16, "f16 f16", "v_mfma_f32_16x16x16_f16"),
    ("gfx942", 32, 8, "f16 f16", "v_mfma_f32_32x32x8_f16"),
    ("gfx90a", 16, 16, "f16 f16", "v_mfma_f32_16x16x16f16"),
    ("gfx90a", 32, 8, "f16 f16", "v_mfma_f32_32x32x8f16"),
    ("gfx950", 16, 32, "f16 f16", "v_mfma_f32_16x16x32_f16"),
    ("gfx950", 32, 16, "f16 f16", "v_mfma_f32_32x32x16_f16"),
    ("gfx942", 16, 16, "bf16 bf16", "v_mfma_f32_16x16x16_bf16"),
    ("gfx90a", 16, 16, "bf16 bf16", "v_mfma_f32_16x16x16bf16_1k"),
    ("gfx942", 32, 8, "bf16 bf16", "v_mfma_f32_32x32x8_bf16"),
    ("gfx950", 16, 32, "bf16 bf16", "v_mfma_f32_16x16x32_bf16"),
    ("gfx950", 32, 16, "bf16 bf16", "v_mfma_f32_32x32x16_bf16"),
    ("gfx90a", 32, 8, "bf16 bf16", "v_mfma_f32_32x32x8bf16_1k"),
    ("gfx90a", 16, 4, "f32 f32", "v_mfma_f32_16x16x4f32"),
    ("gfx90a", 32, 2, "f32 f32", "v_mfma_f32_32x32x2f32"),
    ("gfx942", 16, 4, "f32 f32", "v_mfma_f32_16x16x4_f32"),
    ("gfx942", 32, 2, "f32 f32", "v_mfma_f32_32x32x2_f32"),
    ("gfx90a", 16, 16, "i8 i8", "v_mfma_i32_16x16x16i8"),
    ("gfx90a", 32, 8, "i8 i8", "v_mfma_i32_32x32x8i8"),
    ("gfx942", 16, 32, "i8 i8", "v_mfma_i32_16x16x32_i8"),
    ("gfx942", 32, 16, "i8 i8", "v_mfma_i32_32x32x16_i8"),
    ("gfx950", 16, 64, "i8 i8", "v_mfma_i32_16x16x64_i8"),
    ("gfx950", 32, 32, "i8 i8", "v_mfma_i32_32x32x32_i8"),
    *(
        (arch, side, depth, f"{a} {b}", f"v_mfma_f32_{side}x{side}x{depth}_{a}_{b}")
        for arch in ("gfx942", "gfx950")
        for side, depth in ((16, 32), (32, 16))
        for a, b in (("fp8", "fp8"), ("fp8", "bf8"), ("bf8", "fp8"), ("bf8", "bf8"))
    ),
]
MIXED = [
    (side, depth, a, b, scaled)
    for side, depth in ((16, 128), (32, 64))
    for a, b in (
        ("fp8", "fp8"),
        ("bf8", "fp8"),
        ("fp4", "fp8"),
        ("fp8", "fp4"),
        ("fp4", "fp4"),
        ("fp6", "fp8"),
        ("bf6", "fp6"),
        ("fp4", "bf6"),
    )
    for scaled in (False, True)
]
TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "i8": np.int8}
FNUZ = {"fp8": ml_dtypes.float8_e4m3fnuz, "bf8": ml_dtypes.float8_e5m2fnuz}
OPEN = {"fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2, "fp4": ml_dtypes.float4_e2m1fn,
        "fp6": ml_dtypes.float6_e2m3fn, "bf6": ml_dtypes.float6_e3m2fn}  # fmt: skip
CODES = {"fp8": 0, "bf8": 1, "fp6": 2, "bf6": 3, "fp4": 4}
NARROWER = (OPEN["fp4"], OPEN["fp6"], OPEN["bf6"])


def draw(rng, kind, shape, arch):
    values = rng.integers(-128, 128, shape) if kind == "i8" else rng.standard_normal(shape)
    return values.astype(TYPES.get(kind) or (FNUZ if arch == "gfx942" else OPEN)[kind])


def words_of(elements):
    """Pack each row of elements to words."""
    if elements.dtype in NARROWER:
        bits = 4 if elements.dtype == OPEN["fp4"] else 6
        codes = elements.view(np.uint8) & (2**bits - 1)
        rows = [sum(int(code) << bits * i for i, code in enumerate(row)) for row in codes]
        octets = b"".join(row.to_bytes(codes.shape[1] * bits // 8, "little") for row in rows)
        elements = np.frombuffer(octets, np.uint8).reshape(len(rows), -1)
    return np.ascontiguousarray(elements).view(np.uint32).reshape(len(elements), -1)


def operand_words(matrix, side, depth):
    """Lay out A[row, k] (or B[column, k]) by lane: ``uint32[word, lane]``."""
    held = depth * side // 64
    lanes = [matrix[lane % side, lane // side * held : lane // side * held + held] for lane in range(64)]
    return np.ascontiguousarray(words_of(np.stack(lanes)).T)


def mixed_words(matrix, side, depth):
    """The same for the instructions of mixed formats: elements of 8 bits lie in two parts of 16."""
    if matrix.dtype in NARROWER:
        return operand_words(matrix, side, depth)
    lanes = []
    for lane in range(64):
        first = 16 * (lane // side)
        parts = [matrix[lane % side, at : at + 16] for at in (first, first + depth // 2)]
        lanes.append(np.concatenate(parts))
    return np.ascontiguousarray(words_of(np.stack(lanes)).T)


def result_place(lane, register, side):
    """Row and column of D that a lane's register holds."""
    if side == 16:
        return 4 * (lane // 16) + register, lane % 16
    return 8 * (register // 4) + 4 * (lane // 32) + register % 4, lane % 32


def program(name, words, results, more="", last=""):
    """Load A, B, C and scales, multiply, store D; each argument is ``[register, lane]``."""
    lines = ["\ts_load_dwordx8 s[4:11], s[0:1], 0x0", "\ts_load_dwordx4 s[12:15], s[0:1], 0x20",
             "\tv_lshlrev_b32_e32 v60, 2, v0", "\ts_waitcnt lgkmcnt(0)"]  # fmt: skip
    loads = [("s[4:5]", 0, words[0]), ("s[6:7]", 8, words[1]), ("s[8:9]", 16, results)]
    loads += [("s[12:13]", 40, 1), ("s[14:15]", 41, 1)] if more else []
    for base, first, count in loads:
        lines += [f"\tglobal_load_dword v{first + r}, v60, {base} offset:{256 * r}" for r in range(count)]
    span = lambda first, count: f"v[{first}:{first + count - 1}]" if count > 1 else f"v{first}"  # noqa: E731
    c = span(16, results)
    lines += ["\ts_waitcnt vmcnt(0)", f"\t{name} {c}, {span(0, words[0])}, {span(8, words[1])}, {c}{more} {last}"]
    lines += [f"\tglobal_store_dword v60, v{16 + r}, s[10:11] offset:{256 * r}" for r in range(results)]
    return "\n".join(lines)


def multiply(arch, side, name, a_words, b_words, c, scales=(), last=""):
    """Run one matrix instruction; return D ``[row, column]`` and the counters."""
    results = side * side // 64
    places = [[result_place(lane, r, side) for lane in range(64)] for r in range(results)]
    c_words = np.array([[c[place] for place in row] for row in places], c.dtype)
    d_words = np.zeros_like(c_words)
    more = ", v40, v41" if scales else ""
    body = program(name, (len(a_words), len(b_words)), results, more, last)
    kernel = amdgcn.load(kernel_text(body, [POINTER] * 6, arch), arch)["k"]
    done = kernel.launch(1, 64, [a_words, b_words, c_words, d_words, *(scales or (None, None))])
    d = np.zeros((side, side))
    for r, row in enumerate(places):
        for lane, place in enumerate(row):
            d[place] = d_words[r, lane]
    return d, done.counters


@pytest.mark.parametrize(("arch", "side", "depth", "kinds", "name"), SHAPES, ids=[f"{s[0]}-{s[4]}" for s in SHAPES])
def test_a_matrix_instruction_is_a_product(arch, side, depth, kinds, name):
    rng = np.random.default_rng(side * depth)
    a, b = (draw(rng, kind, (side, depth), arch) for kind in kinds.split())
    c = rng.integers(-99, 99, (side, side)).astype(np.int32 if "i8" in kinds else np.float32)
    d, counters = multiply(arch, side, name, operand_words(a, side, depth), operand_words(b, side, depth), c)
    np.testing.assert_allclose(d, a.astype(np.float64) @ b.astype(np.float64).T + c, rtol=1e-5, atol=1e-4)
    (mops,) = (n for counter, n in counters.items() if "MFMA_MOPS" in counter)
    assert mops == 2 * side * side * depth // 512


@pytest.mark.parametrize(("side", "depth", "a_kind", "b_kind", "scaled"), MIXED)
def test_a_matrix_instruction_of_mixed_formats_is_a_product(side, depth, a_kind, b_kind, scaled):
    rng = np.random.default_rng(side)
    a, b = (draw(rng, kind, (side, depth), "gfx950") for kind in (a_kind, b_kind))
    c = rng.integers(-9, 9, (side, side)).astype(np.float32)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    name = f"v_mfma_{'scale_' * scaled}f32_{side}x{side}x{depth}_f8f6f4"
    last, scales = f"cbsz:{CODES[a_kind]} blgp:{CODES[b_kind]}", []
    if scaled:  # the second byte scales A, the third scales B
        octets = rng.integers(0, 256, (2, 64, 4)).astype(np.uint8)
        octets[0, :, 1], octets[1, :, 2] = rng.integers(120, 134, (2, 64))
        scales = [np.ascontiguousarray(octets[i]).view(np.uint32).reshape(1, 64) for i in (0, 1)]
        last = f"op_sel:[1,0,0] op_sel_hi:[0,1,0] {last}"
        for wide, byte in ((wide_a, octets[0, :, 1]), (wide_b, octets[1, :, 2])):
            for lane in range(64):
                block = slice(32 * (lane // side), 32 * (lane // side) + 32)
                wide[lane % side, block] *= 2.0 ** (int(byte[lane]) - 127)
    a_words, b_words = mixed_words(a, side, depth), mixed_words(b, side, depth)
    d, _ = multiply("gfx950", side, name, a_words, b_words, c, scales, last)
    expected = wide_a @ wide_b.T + c
    np.testing.assert_allclose(d, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_all_lanes_take_part_whatever_exec_is():
    body = program("v_mfma_f32_16x16x4_f32", (1, 1), 4)
    body = body.replace("\tv_mfma", "\ts_mov_b64 exec, 1\n\tv_mfma")
    body = body.replace("\tglobal_store_dword v60, v16,", "\ts_mov_b64 exec, -1\n\tglobal_store_dword v60, v16,")
    ones, out = np.ones((1, 64), np.float32), np.zeros((4, 64), np.float32)
    amdgcn.load(kernel_text(body, [POINTER] * 6))["k"].launch(1, 64, [ones, ones, np.zeros_like(out), out, None, None])
    assert (out == 4).all()
