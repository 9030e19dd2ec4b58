"""Every instruction of the decoders' tables is executed by some test; here are those that the other files leave out."""

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from kernbench.realrun import amdgcn
from kernbench.realrun.amdgcn.decode import DECODERS
from kernbench.realrun.amdgcn.vector import base_name
from tests.realrun.amdgcn import test_atomics, test_memory, test_mfma, test_scalar
from tests.realrun.amdgcn.test_pairs_and_masks import KINDS, ORDER, ORDERED, bits, halves
from tests.realrun.amdgcn.written import BITS, LANES, POINTER, kernel_text, run, signed, words

HERE = Path(__file__).parent
NARROW = {"fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2, "fp4": ml_dtypes.float4_e2m1fn}
NOTHING = {
    "gfx90a": ["buffer_wbl2", "buffer_invl2", "buffer_wbinvl1", "buffer_wbinvl1_vol"],
    "gfx942": ["buffer_wbl2 sc1", "buffer_inv sc1", "s_dcache_inv", "s_dcache_wb", "s_icache_inv", "s_setprio 2",
               "s_sleep 1", "s_nop 3", "v_nop"],
}  # fmt: skip


@pytest.mark.parametrize("arch", NOTHING)
def test_instructions_that_steer_caches_and_turns_change_no_register(arch):
    a = words("u", 1)
    body = "\n\t".join(["\tv_mov_b32_e32 v10, v1", *NOTHING[arch]])
    (found,) = run(body, [a], arch=arch)
    np.testing.assert_array_equal(found, a)


def compare_operands(kind):
    """Two operands with equal, unordered and random elements, as elements and as registers."""
    rng, dtype = np.random.default_rng(21), KINDS[kind]
    size = np.dtype(dtype).itemsize
    octets = np.zeros((2, LANES, 8), np.uint8)
    octets[:, :, :size] = rng.integers(0, 256, (2, LANES, size))
    octets[1, ::3] = octets[0, ::3]
    values = [np.ascontiguousarray(x[:, :size]).view(dtype)[:, 0] for x in octets]
    if kind[0] == "f":
        values[0][20] = values[1][31] = values[0][40] = values[1][40] = np.nan
        octets[:, :, :size] = np.stack(values)[..., None].view(np.uint8)
    return values, octets.view(np.uint32).transpose(0, 2, 1).reshape(4, LANES)


@pytest.mark.parametrize("kind", KINDS)
def test_every_compare_that_switches_lanes_off(kind):
    (a, b), registers = compare_operands(kind)
    names = [n for n in ORDERED if (n in (*ORDER, "ne") if kind[0] != "f" else n != "ne")]
    left, right = ("v[2:3]", "v[4:5]") if kind.endswith("64") else ("v2", "v4")
    body = ""
    for i, name in enumerate(names):
        body += f"\tv_mov_b32_e32 v{10 + i}, 7\n\tv_cmpx_{name}_{kind}_e64 s[30:31], {left}, {right}\n"
        body += f"\tv_mov_b32_e32 v{10 + i}, 8\n\ts_mov_b64 exec, -1\n"
    found = run(body, [registers[0], *registers], len(names))
    for name, row in zip(names, found, strict=True):
        assert row.tolist() == [7 + int(ORDERED[name](x, y)) for x, y in zip(a, b, strict=True)], name


CLASSES = ["signalling", "quiet", "-inf", "-normal", "-subnormal", "-zero", "zero", "subnormal", "normal", "inf"]


def class_number(pattern, exponent_bits, mantissa_bits):
    """Number of the class that the bits of a floating-point number say."""
    sign, rest = divmod(pattern, 1 << exponent_bits + mantissa_bits)
    exponent, mantissa = divmod(rest, 1 << mantissa_bits)
    if exponent == 2**exponent_bits - 1 and mantissa:
        return mantissa >> mantissa_bits - 1
    name = "inf" if exponent == 2**exponent_bits - 1 else "normal" if exponent else "subnormal" if mantissa else "zero"
    return CLASSES.index("-" * sign + name)


@pytest.mark.parametrize(("kind", "exponent_bits", "mantissa_bits"), [("f16", 5, 10), ("f32", 8, 23), ("f64", 11, 52)])
def test_classes_of_numbers(kind, exponent_bits, mantissa_bits):
    rng, size = np.random.default_rng(22), 1 + exponent_bits + mantissa_bits
    top = (2**exponent_bits - 1) << mantissa_bits
    magnitudes = [0, 1, 1 << mantissa_bits, top, top | 1, top | 1 << mantissa_bits - 1, top - 1]
    patterns = [s << size - 1 | m for s in (0, 1) for m in magnitudes]
    patterns += [int(n) % 2**size for n in rng.integers(0, 2**63, LANES - len(patterns))]
    low, high = (np.array([p >> 32 * i & BITS for p in patterns], np.uint32) for i in (0, 1))
    source = "v[2:3]" if size == 64 else "v2"
    body = ""
    for number in range(len(CLASSES)):
        body += f"\tv_mov_b32_e32 v6, {hex(1 << number)}\n\tv_cmp_class_{kind}_e64 s[30:31], {source}, v6\n"
        body += f"\tv_cndmask_b32_e64 v{10 + number}, 0, 1, s[30:31]\n"
    body += f"\tv_mov_b32_e32 v20, 0\n\tv_mov_b32_e32 v6, 0x3\n\tv_cmpx_class_{kind}_e64 vcc, {source}, v6\n"
    body += "\tv_mov_b32_e32 v20, 1\n\ts_mov_b64 exec, -1"
    found = run(body, [low, low, high], 11)
    numbers = [class_number(p, exponent_bits, mantissa_bits) for p in patterns]
    np.testing.assert_array_equal(found[:10], np.eye(10, dtype=np.uint32)[:, numbers])
    assert found[10].tolist() == [int(n < 2) for n in numbers]


@pytest.mark.parametrize("to", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("of", NARROW)
def test_every_conversion_from_a_narrow_format_with_a_scale(to, of):
    octets = np.random.default_rng(23).integers(0, 256, (LANES, 4)).astype(np.uint8)
    if of != "fp4":  # NaN is left out: their bits may differ
        octets[np.isnan(octets.view(NARROW[of]).astype(np.float32))] = 0x11
    place, picked = ("op_sel:[0,1,0]", octets[:, 2:3]) if of == "fp4" else ("op_sel:[1,0,0]", octets[:, 2:])
    codes = np.stack([picked[:, 0] & 15, picked[:, 0] >> 4], 1) if of == "fp4" else picked
    dest = "v[10:11]" if to == "f32" else "v10"
    body = f"\tv_mov_b32_e32 v30, 0.5\n\tv_cvt_scalef32_pk_{to}_{of} {dest}, v1, v30 {place}"
    found = run(body, [bits(octets)[:, 0]], 2, "gfx950")
    values = np.ascontiguousarray(codes).view(NARROW[of]).astype(np.float64) / 2
    with np.errstate(over="ignore"):
        if to == "f32":
            np.testing.assert_array_equal(found.view(np.float32), values.T)
        else:
            kind = np.float16 if to == "f16" else ml_dtypes.bfloat16
            np.testing.assert_array_equal(found[0].view(kind).reshape(LANES, 2), values.astype(kind))


@pytest.mark.parametrize(
    ("name", "width"), [("ubyte", 1), ("ushort", 2), ("dword", 4), ("dwordx3", 12), ("dwordx4", 16)]
)
def test_every_load_straight_to_lds(name, width):
    """Lane i's bytes go to M0 + offset + i times the width, a part of a word with zeros above it."""
    data = np.random.default_rng(24).integers(0, 256, (LANES, 16)).astype(np.uint8)
    out = np.zeros((LANES, 4), np.uint32)
    step = max(4, width)
    body = f"""\
\ts_load_dwordx4 s[4:7], s[0:1], 0x0
\tv_lshlrev_b32_e32 v2, 4, v0
\ts_mov_b32 m0, 32
\ts_waitcnt lgkmcnt(0)
\tglobal_load_lds_{name} v2, s[4:5]
\ts_waitcnt vmcnt(0)
\tv_mul_u32_u24_e32 v3, {step}, v0
"""
    for j in range(step // 4):
        body += f"\tds_read_b32 v{4 + j}, v3 offset:{32 + 4 * j}\n"
    body += "\ts_waitcnt lgkmcnt(0)\n"
    body += "".join(f"\tglobal_store_dword v2, v{4 + j}, s[6:7] offset:{4 * j}\n" for j in range(step // 4))
    amdgcn.load(kernel_text(body, [POINTER] * 2, "gfx950", lds=2048))["k"].launch(1, LANES, [data, out])
    expected = np.zeros((LANES, 16), np.uint8)
    expected[:, :width] = data[:, :width]
    np.testing.assert_array_equal(out.view(np.uint8), expected)


def test_sixteen_words_are_loaded_at_once():
    data = np.arange(100, 164, dtype=np.uint32)
    body = "\ts_load_dwordx16 s[32:47], s[20:21], 0x10\n\ts_waitcnt lgkmcnt(0)\n"
    body += "".join(f"\tv_mov_b32_e32 v{10 + j}, s{32 + j}\n" for j in range(16))
    found = run(body, [data], 16)
    assert found[:, 0].tolist() == data[4:20].tolist()


@pytest.mark.parametrize(("value", "taken"), [("0", True), ("0x100", False)])
def test_a_branch_on_an_empty_mask(value, taken):
    body = f"\ts_mov_b64 vcc, {value}\n\tv_mov_b32_e32 v10, 1\n\ts_cbranch_vccz .L1\n\tv_mov_b32_e32 v10, 2\n.L1:"
    (found,) = run(body, [])
    assert (found == (1 if taken else 2)).all()


def test_a_signed_product_and_sum_of_64_bits():
    a, b, low, high = (words("u", seed) for seed in (1, 2, 3, 4))
    body = "\tv_mad_i64_i32 v[10:11], s[30:31], v1, v2, v[4:5]\n\tv_cndmask_b32_e64 v12, 0, 1, s[30:31]"
    found = run(body, [a, b, low, low, high], 3)
    for lane in range(LANES):
        exact = signed(int(a[lane])) * signed(int(b[lane])) + signed(int(low[lane]) | int(high[lane]) << 32, 64)
        assert int(found[0][lane]) | int(found[1][lane]) << 32 == exact % 2**64
        assert found[2][lane] == exact >> 64 & 1


def test_the_reversed_subtraction_with_a_borrow():
    a, b = words("u", 1), words("u", 2)
    body = "\tv_subrev_co_u32_e32 v10, vcc, v1, v2\n\tv_subbrev_co_u32_e32 v11, vcc, v2, v1, vcc"
    low, high = run(body, [a, b], 2)
    for x, y, d, e in zip(a.tolist(), b.tolist(), low.tolist(), high.tolist(), strict=True):
        assert d | e << 32 == ((x << 32 | y) - (y << 32 | x)) % 2**64


def test_the_lesser_of_two_halves():
    x = np.random.default_rng(25).standard_normal((2, LANES, 2)).astype(np.float16)
    (found,) = run("\tv_pk_min_f16 v10, v1, v2", [bits(x[0])[:, 0], bits(x[1])[:, 0]])
    np.testing.assert_array_equal(np.stack(list(halves(found)), 1), np.minimum(*x))


def names_in_tests():
    """Mnemonics that the tests of this folder write out, and those that they make of tables."""
    files = [path for path in sorted(HERE.glob("test_*.py")) if path.name != "test_refusals.py"]
    text = "".join(path.read_text() for path in (*files, HERE / "written.py"))
    found = set(re.findall(r"(?:(?<=\\t)|\b)(?:s|v|ds|global|flat|buffer|scratch)_\w+(?!\w*\{)", text))
    found |= {f"{space}_load_{n}" for space in test_memory.AT for n in test_memory.LOADS}
    found |= {f"{space}_store_{n}" for space in test_memory.AT for n in test_memory.STORES}
    found |= {
        f"v_cmp{x}_{name}_{kind}"
        for x in ("", "x") for kind in KINDS for name in ORDERED
        if (name in (*ORDER, "ne") if kind[0] != "f" else name != "ne")
    }  # fmt: skip
    found |= {f"v_cmp{x}_class_{kind}" for x in ("", "x") for kind in ("f16", "f32", "f64")}
    found |= {f"s_{name}_saveexec_b64" for name in test_scalar.SAVE_EXEC}
    found |= {shape[4] for shape in test_mfma.SHAPES}
    found |= {f"v_mfma_{'scale_' * m[4]}f32_{m[0]}x{m[0]}x{m[1]}_f8f6f4" for m in test_mfma.MIXED}
    found |= {f"v_cvt_scalef32_pk_{a}_{b}" for wide in ("f32", "f16", "bf16") for n in NARROW
              for a, b in ((wide, n), (n, wide))}  # fmt: skip
    found |= {f"{pk}{name}" for name in ("fp8", "bf8") for pk in ("v_cvt_pk_f32_", "v_cvt_f32_")}
    found |= {f"v_cvt_pk_{name}_f32" for name in ("fp8", "bf8")}
    found |= {f"v_cvt_f32_ubyte{n}" for n in range(4)} | {f"ds_read_b64_tr_b{n}" for n in (4, 8, 16)}
    local = [*test_atomics.LOCAL, "cmpst_b32", "cmpst_b64"]
    found |= {f"ds_{name}" for name in local} | {f"ds_{'_rtn_'.join(name.rsplit('_', 1))}" for name in local}
    found |= {f"{space}_atomic_{name}" for space in test_atomics.SPACES
              for name in (*test_atomics.GLOBAL, "cmpswap", "cmpswap_x2")}  # fmt: skip
    found |= {f"v_dot{name}" for name in test_atomics.DOTS}
    found |= {f"v_permlane{n}_swap_b32" for n in (16, 32)}
    found |= {f"global_load_lds_{n}" for n in ("ubyte", "ushort", "dword", "dwordx3", "dwordx4")}
    return found


def test_every_opcode_is_executed_by_a_test():
    written = {name if name in DECODERS else base_name(name) for name in names_in_tests()}
    assert not set(DECODERS) - written
