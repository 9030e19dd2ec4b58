"""Atomics and dot products against plain Python, one lane after another."""

import ml_dtypes
import numpy as np
import pytest

from kernbench.errors import KernelError
from kernbench.realrun import amdgcn
from tests.realrun.amdgcn.written import BITS, LANES, POINTER, kernel_text, run, signed, words

WORDS = 24
"""Words that 64 lanes share."""


def halves_sum(kind):
    def add(old, data):
        pair = [np.array([x], np.uint32).view(kind) for x in (old, data)]
        return int((pair[0].astype(np.float32) + pair[1].astype(np.float32)).astype(kind).view(np.uint32)[0])

    return add


def of_floats(rule, size):
    kind, word = (np.float32, np.uint32) if size == 4 else (np.float64, np.uint64)

    def update(old, data):
        a, b = (np.array([x], word).view(kind)[0] for x in (old, data))
        return int(np.array([rule(a, b)], kind).view(word)[0])

    return update


def integer_rules(size):
    bits = 8 * size
    most = 2**bits - 1
    return {
        "add": lambda a, b: a + b & most, "sub": lambda a, b: a - b & most, "and": lambda a, b: a & b,
        "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "umin": min, "umax": max,
        "smin": lambda a, b: min(a, b, key=lambda x: signed(x, bits)),
        "smax": lambda a, b: max(a, b, key=lambda x: signed(x, bits)),
        "inc": lambda a, b: 0 if a >= b else a + 1, "dec": lambda a, b: b if a == 0 or a > b else a - 1,
        "swap": lambda a, b: b, "rsub": lambda a, b: b - a & most,
    }  # fmt: skip


FLOATING = {
    "add_f32": (of_floats(lambda a, b: a + b, 4), 4), "add_f64": (of_floats(lambda a, b: a + b, 8), 8),
    "min_f64": (of_floats(min, 8), 8), "max_f64": (of_floats(max, 8), 8),
    "pk_add_f16": (halves_sum(np.float16), 4), "pk_add_bf16": (halves_sum(ml_dtypes.bfloat16), 4),
}  # fmt: skip
LOCAL_NAMES = {"add_u": "add", "sub_u": "sub", "rsub_u": "rsub", "inc_u": "inc", "dec_u": "dec", "min_i": "smin",
               "max_i": "smax", "min_u": "umin", "max_u": "umax", "and_b": "and", "or_b": "or", "xor_b": "xor",
               "wrxchg_rtn_b": "swap"}  # fmt: skip
GLOBAL = {
    **{f"{name}{'_x2' * (size == 8)}": (rule, size)
       for size in (4, 8) for name, rule in integer_rules(size).items() if name != "rsub"},
    **FLOATING,
}  # fmt: skip
LOCAL = {
    **{f"{name}{8 * size}": (integer_rules(size)[rule], size) for size in (4, 8) for name, rule in LOCAL_NAMES.items()},
    **{f"{name}_f{8 * size}": (of_floats(rule, size), size) for size in (4, 8)
       for name, rule in (("add", lambda a, b: a + b), ("min", min), ("max", max))},
    "pk_add_f16": FLOATING["pk_add_f16"], "pk_add_bf16": FLOATING["pk_add_bf16"],
}  # fmt: skip
SPACES = ("global", "flat", "buffer")


def memory(name, size, count):
    """Random words that are numbers of the type that the name says."""
    rng = np.random.default_rng(count)
    kind = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}.get(
        name.split("_")[-1]
    )
    if kind is None and name.endswith(("f32", "f64")):
        kind = np.float32 if size == 4 else np.float64
    if kind is not None:
        octets = (rng.standard_normal(count * size // np.dtype(kind).itemsize) * 9).astype(kind)
        return octets.view(np.uint32 if size == 4 else np.uint64)
    return rng.integers(0, 2 ** (8 * size - 1), count).astype(np.uint32 if size == 4 else np.uint64) >> (
        rng.integers(0, 2, count).astype(np.uint32 if size == 4 else np.uint64) * 26
    )


def expected(before, data, places, rule):
    """Memory after all lanes in turn, and what each lane met."""
    after, met = before.tolist(), []
    for lane, place in enumerate(places):
        met.append(after[place])
        after[place] = rule(after[place], *(int(d[lane]) for d in data))
    return after, met


def launch(body, before, data, places, size, out_words=0, lds=0):
    """v[4:5] is the address of the lane's word, v6 its offset, v[8:11] its data; v[12:13] are stored at the end."""
    loads = "".join(
        f"\tglobal_load_dword v{8 + i}, v7, s[6:7] offset:{256 * i}\n" for i in range(len(data) * size // 4)
    )
    text = f"""\
\ts_load_dwordx8 s[4:11], s[0:1], 0x0
\tv_lshlrev_b32_e32 v7, 2, v0
\tv_mov_b32_e32 v12, 0
\tv_mov_b32_e32 v13, 0
\ts_waitcnt lgkmcnt(0)
\tglobal_load_dword v6, v7, s[8:9]
{loads}\ts_waitcnt vmcnt(0)
\tv_mov_b32_e32 v5, s5
\tv_add_co_u32_e32 v4, vcc, s4, v6
\tv_addc_co_u32_e32 v5, vcc, 0, v5, vcc
\ts_mov_b64 s[12:13], s[4:5]
\ts_mov_b64 s[14:15], {WORDS * size}
{body}
\ts_waitcnt vmcnt(0) lgkmcnt(0)
\tglobal_store_dword v7, v12, s[10:11]
\tglobal_store_dword v7, v13, s[10:11] offset:256
"""
    arranged = np.concatenate([d.view(np.uint32).reshape(LANES, -1).T.ravel() for d in data])
    out, offsets = np.zeros((2, LANES), np.uint32), (np.array(places) * size).astype(np.uint32)
    kernel = amdgcn.load(kernel_text(text, [POINTER] * 4, "gfx950", lds=lds))["k"]
    after = before.copy()
    kernel.launch(1, LANES, [after, arranged, offsets, out])
    low, high = out.astype(np.uint64)
    return after, (low | high << np.uint64(32)) if size == 8 else low


def register(first, size, count=1):
    return f"v[{first}:{first + size * count // 4 - 1}]" if size * count > 4 else f"v{first}"


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("name", [*GLOBAL, "cmpswap", "cmpswap_x2"])
def test_an_atomic_on_memory(space, name):
    swaps = name.startswith("cmpswap")
    size = (8 if name.endswith("_x2") else 4) if swaps else GLOBAL[name][1]
    rule = (lambda old, new, wanted: new if old == wanted else old) if swaps else GLOBAL[name][0]
    places = np.random.default_rng(3).integers(0, WORDS, LANES)
    before, data = memory(name, size, WORDS), [memory(name, size, LANES)]
    if swaps:  # half of the comparisons hold when the lane's turn comes
        wanted = memory(name, size, LANES + 1)[:LANES].copy()
        wanted[::2] = before[places[::2]]
        data.append(wanted)
    source, dest = register(8, size, len(data)), register(12, size)
    for returns in (False, True):
        back = f"{dest}, " if returns else ""
        last = " sc0" if returns else ""
        operands = {"global": f"{back}v[4:5], {source}, off{last}", "flat": f"{back}v[4:5], {source}{last}",
                    "buffer": f"{source}, v6, s[12:15], 0 offen{last}"}[space]  # fmt: skip
        body = f"\t{space}_atomic_{name} {operands}"
        if space == "buffer" and returns:
            body += "\n\ts_waitcnt vmcnt(0)\n" + "\n".join(
                f"\tv_mov_b32_e32 v{12 + i}, v{8 + i}" for i in range(size // 4)
            )
        after, met = launch(body, before, data, places, size)
        memory_after, met_by = expected(before, data, places, rule)
        assert after.tolist() == memory_after
        assert met.tolist() == (met_by if returns else [0] * LANES)


@pytest.mark.parametrize("name", [*LOCAL, "cmpst_b32", "cmpst_b64"])
def test_an_atomic_on_lds(name):
    swaps = name.startswith("cmpst")
    rule, size = LOCAL.get(name, (lambda old, wanted, new: new if old == wanted else old, int(name[-2:]) // 8 % 16))
    places = np.random.default_rng(4).integers(0, WORDS, LANES)
    data = [memory(name, size, LANES)]
    before = np.zeros(WORDS, data[0].dtype)
    if swaps:
        wanted = np.zeros_like(data[0])
        wanted[1::2] = 1
        data = [wanted, data[0]]
    returned = name if "rtn" in name else "_rtn_".join(name.rsplit("_", 1))
    sources = ", ".join(register(8 + i * size // 4, size) for i in range(len(data)))
    memory_after, met_by = expected(before, data, places, rule)
    for full_name, returns in {returned: True, name: "rtn" in name}.items():
        body = f"\tds_{full_name} {register(12, size) + ', ' if returns else ''}v6, {sources}\n\ts_waitcnt lgkmcnt(0)\n"
        body += f"\tv_lshlrev_b32_e32 v20, {size.bit_length() - 1}, v0\n\tv_cmp_gt_u32_e32 vcc, {WORDS}, v0\n"
        body += f"\ts_and_saveexec_b64 s[16:17], vcc\n\tds_read_b{8 * size} {register(22, size)}, v20\n"
        body += "\ts_waitcnt lgkmcnt(0)\n"
        body += "".join(f"\tglobal_store_dword v20, v{22 + i}, s[4:5] offset:{4 * i}\n" for i in range(size // 4))
        after, met = launch(body + "\ts_mov_b64 exec, s[16:17]", before, data, places, size, lds=WORDS * size)
        assert after.tolist() == memory_after
        assert met.tolist() == (met_by if returns else [0] * LANES)


def test_workgroups_count_together():
    body = """\
\ts_load_dwordx2 s[4:5], s[0:1], 0x0
\tv_mov_b32_e32 v1, 0
\tv_mov_b32_e32 v2, 1
\ts_waitcnt lgkmcnt(0)
\tglobal_atomic_add v3, v1, v2, s[4:5] sc0
\ts_waitcnt vmcnt(0)
\tv_lshlrev_b32_e32 v3, 2, v3
\tglobal_store_dword v3, v2, s[4:5] offset:4"""
    out = np.zeros(1 + 5 * 128, np.uint32)
    amdgcn.load(kernel_text(body))["k"].launch(5, 128, [out])
    assert out[0] == 5 * 128
    assert (out[1:] == 1).all()  # each lane met a number of its own


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("v_mov_b32_e32 v4, 2\n\tds_add_u32 v4, v0", "lane 0 updates 4 bytes at 0x2, no multiple"),
        ("v_mov_b32_e32 v4, 0\n\tds_add_rtn_u32 v5, v4, v0\n\tv_mov_b32_e32 v6, v5", "v5 before s_waitcnt lgkmcnt"),
        ("v_mov_b32_e32 v4, 0\n\tglobal_atomic_add v4, v0, s[0:1]", "writes to the argument block, which is read-only"),
    ],
)  # fmt: skip
def test_an_atomic_that_is_refused(body, message):
    kernel = amdgcn.load(kernel_text(f"\t{body}", lds=64))["k"]
    with pytest.raises(KernelError, match=message):
        kernel.launch(1, 64, [None])


def parts(x, count, is_signed):
    bits = 32 // count
    values = [x >> bits * i & (1 << bits) - 1 for i in range(count)]
    return [signed(v, bits) for v in values] if is_signed else values


INTEGER_DOTS = ["2_i32_i16", "4_i32_i8", "8_i32_i4", "2_u32_u16", "4_u32_u8", "8_u32_u4", "2c_i32_i16", "4c_i32_i8",
                "8c_i32_i4"]  # fmt: skip
DOTS = [*INTEGER_DOTS, *(f"2{c}_f32_{kind}" for c in ("", "c") for kind in ("f16", "bf16"))]


@pytest.mark.parametrize("name", INTEGER_DOTS)
def test_a_dot_product_of_integers(name):
    a, b, c = (words("u", seed) for seed in (1, 2, 3))
    count, is_signed = int(name[0]), "_i32" in name
    if "c_" in name:
        found = [run(f"\tv_mov_b32_e32 v10, v3\n\tv_dot{name}_e32 v10, v1, v2", [a, b, c])[0], None]
    else:
        found = run(f"\tv_dot{name} v10, v1, v2, v3\n\tv_dot{name} v11, v1, v2, v3 clamp", [a, b, c], 2)
    least, most = (-(2**31), 2**31 - 1) if is_signed else (0, BITS)
    for lane in range(LANES):
        x, y, z = (int(v[lane]) for v in (a, b, c))
        products = zip(parts(x, count, is_signed), parts(y, count, is_signed), strict=True)
        exact = sum(p * q for p, q in products) + (signed(z) if is_signed else z)
        assert found[0][lane] == exact & BITS
        if found[1] is not None:
            assert found[1][lane] == min(max(exact, least), most) & BITS


@pytest.mark.parametrize(("kind", "name"), [(np.float16, "f16"), (ml_dtypes.bfloat16, "bf16")])
def test_a_dot_product_of_halves(kind, name):
    """Of small integers, so that every order of the sum is exact."""
    rng = np.random.default_rng(5)
    a, b = (np.ascontiguousarray(rng.integers(-99, 99, (LANES, 2)).astype(kind)).view(np.uint32)[:, 0] for _ in "ab")
    c = rng.integers(-999, 999, LANES).astype(np.float32)
    body = f"""\
\tv_mov_b32_e32 v10, v3
\tv_dot2c_f32_{name}_e32 v10, v1, v2
\tv_dot2_f32_{name} v11, v1, v2, v3
\tv_dot2_f32_{name} v12, v1, v2, v3 op_sel:[1,0,0] op_sel_hi:[0,1,1] neg_lo:[1,0,0] neg_hi:[0,0,0]"""
    found = run(body, [a, b, c.view(np.uint32)], 3, "gfx950").view(np.float32)
    (x0, x1), (y0, y1) = (v.view(kind).reshape(LANES, 2).astype(np.float32).T for v in (a, b))
    np.testing.assert_array_equal(found[0], x0 * y0 + x1 * y1 + c)
    np.testing.assert_array_equal(found[1], x0 * y0 + x1 * y1 + c)
    np.testing.assert_array_equal(found[2], -x1 * y0 + x0 * y1 + c)
