"""Which specs are accepted, against the rules written out a second time."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernbench.errors import InputError, SpecError
from kernbench.specs.rocke import (
    ARCHES,
    FmhaCommonSpec,
    FmhaShape,
    JengaSparseSpec,
    QkScaleSpec,
    SageAttentionSpec,
    VsaSparseSpec,
    find_arch,
)

PER_HEAD = QkScaleSpec("per_head")
SHAPE = FmhaShape(128, 8, 2)
COMMON = FmhaCommonSpec(SHAPE)
NARROW = ("gfx90a", "gfx942", "gfx950", "gfx1151", "gfx1201", "gfx11-generic")


def shape(**changes):
    return dataclasses.replace(SHAPE, **changes)


def common(**changes):
    return dataclasses.replace(COMMON, **changes)


def sage(common=COMMON, quant_mode="fp16_bf16", q_scale=PER_HEAD, k_scale=PER_HEAD, seqlen_q=16, seqlen_k=64, **rest):
    return SageAttentionSpec(common, quant_mode, q_scale, k_scale, seqlen_q, seqlen_k, **rest)


def jenga(common=COMMON, seqlen_q=32, seqlen_k=128, **rest):
    return JengaSparseSpec(common, seqlen_q, seqlen_k, **rest)


def vsa(common=COMMON, seqlen_q=32, seqlen_k=128, **rest):
    return VsaSparseSpec(common, seqlen_q, seqlen_k, **rest)


# Fields


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (FmhaShape, "head_size num_query_heads num_kv_heads block_size_q=16 block_size_k=64"),
        (
            FmhaCommonSpec,
            "shape dtype='f16' scale_log2=0.0 mask_mode='none' sliding_window=0 use_softcap=False use_rotary=False "
            "use_dropout=False use_sinks=False",
        ),
        (QkScaleSpec, "layout scale_block=0 stride_batch=0 stride_head=0 stride_block=1"),
        (
            SageAttentionSpec,
            "common quant_mode q_scale k_scale seqlen_q seqlen_k name='rocke_sage_attention' "
            "use_outer_scale_loop=False",
        ),
        (JengaSparseSpec, "common seqlen_q seqlen_k block_q=1 block_k=64 name='rocke_jenga_sparse_attn'"),
        (
            VsaSparseSpec,
            "common seqlen_q seqlen_k block_q=1 block_k=64 max_blocks_per_q=32 name='rocke_vsa_sparse_attn' "
            "use_wave_ballot_scatter=True",
        ),
    ],
)
def test_fields_are_the_originals(kind, fields):
    missing = dataclasses.MISSING
    found = [f.name if f.default is missing else f"{f.name}={f.default!r}" for f in dataclasses.fields(kind)]
    assert " ".join(found) == fields


def test_specs_are_frozen_and_keys():
    assert {sage(): 1}[sage()] == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        sage().seqlen_q = 3


def test_properties_of_the_common_spec():
    assert SHAPE.num_queries_per_kv == 4
    assert COMMON.head_size == 128
    assert not COMMON.use_alibi_matrix
    assert not COMMON.use_custom_mask
    assert common(mask_mode="alibi").use_alibi_matrix
    assert common(mask_mode="custom").use_custom_mask


def test_heads_that_do_not_divide_raise_value_error():
    with pytest.raises(ValueError, match="num_kv_heads=3"):
        _ = shape(num_kv_heads=3).num_queries_per_kv


@pytest.mark.parametrize(
    "bad", [{"layout": "per_row"}, {"layout": "per_block"}, {"layout": "per_block", "scale_block": -1}]
)
def test_a_bad_scale_layout_raises_at_once(bad):
    with pytest.raises(ValueError, match="cannot be"):
        QkScaleSpec(**bad)
    with pytest.raises(SpecError):
        QkScaleSpec(**bad)


# Rules that all kernels share

COMMON_RULES = [
    ({"head_size": 0}, "1..256"),
    ({"head_size": 257}, "1..256"),
    ({"head_size": 96}, "32, 64, 128, 192, 256"),
    ({"num_query_heads": 0}, "above 0"),
    ({"num_kv_heads": -1}, "above 0"),
    ({"num_kv_heads": 3}, "multiple of num_kv_heads"),
    ({"block_size_q": 256}, "block_size_q=256"),
    ({"block_size_k": 8}, "block_size_k=8"),
    ({"dtype": "f32"}, "dtype='f32'"),
    ({"mask_mode": "full"}, "mask_mode='full'"),
    ({"mask_mode": "sliding_window"}, "sliding_window above 0"),
    ({"use_sinks": True, "dtype": "bf16"}, "use_sinks"),
]


def with_changes(changes):
    names = {f.name for f in dataclasses.fields(FmhaShape)}
    inner = {name: value for name, value in changes.items() if name in names}
    outer = {name: value for name, value in changes.items() if name not in names}
    return common(shape=shape(**inner), **outer)


@pytest.mark.parametrize("make", [sage, jenga, vsa])
@pytest.mark.parametrize(("changes", "reason"), COMMON_RULES)
def test_each_common_rule_refuses(make, changes, reason):
    ok, why = make(common=with_changes(changes)).is_valid("gfx950")
    assert not ok
    assert reason in why


@pytest.mark.parametrize("first", range(len(COMMON_RULES)))
@pytest.mark.parametrize("second", range(len(COMMON_RULES)))
def test_the_first_broken_rule_is_the_reason(first, second):
    earlier, later = COMMON_RULES[min(first, second)], COMMON_RULES[max(first, second)]
    if not set(earlier[0]) & set(later[0]):
        assert earlier[1] in sage(common=with_changes(earlier[0] | later[0])).is_valid("no such arch")[1]


@pytest.mark.parametrize("make", [sage, jenga, vsa])
def test_architectures(make):
    for dtype in ("f16", "fp16", "bf16"):
        spec = make(common=common(dtype=dtype))
        for compat in (False, True):
            assert [a for a in ARCHES if spec.is_valid(a, compat=compat)[0]] == [a for a in ARCHES if a in NARROW]
    assert "16x16x16" in make().is_valid("gfx1250")[1]
    assert make().is_valid("gfx943") == (False, "unknown architecture 'gfx943' (did you mean 'gfx942'?)")
    assert make().is_valid() == (True, "ok")


def test_the_catalogue():
    assert set(ARCHES) == {*NARROW, "gfx1250"}
    assert [ARCHES[a].wave_size for a in ("gfx90a", "gfx942", "gfx950", "gfx1151", "gfx1250")] == [64, 64, 64, 32, 32]
    assert (ARCHES["gfx942"].lds_bytes, ARCHES["gfx950"].lds_bytes) == (65536, 163840)
    assert (ARCHES["gfx942"].vgprs, ARCHES["gfx942"].agprs, ARCHES["gfx942"].sgprs) == (512, 256, 102)
    assert (ARCHES["gfx942"].fp8_format, ARCHES["gfx950"].fp8_format) == ("e4m3fnuz", "e4m3fn")
    assert ARCHES["gfx90a"].fp8_format is None
    assert find_arch("gfx1250").has_atom("bf16", 16, 16, 32)
    assert find_arch("gfx950").has_atom("fp4", 16, 16, 128)
    assert not find_arch("gfx942").has_atom("f16", 16, 16, 32)
    assert find_arch("gfx1151").has_atom("iu8", 16, 16, 16, c="i32")
    with pytest.raises(InputError, match="gfx942"):
        find_arch("gfx94")


# Rules of each kernel


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"quant_mode": "fp8"}, "quant_mode"),
        ({"seqlen_q": 0}, "seqlen_q=0"),
        ({"seqlen_k": -4}, "seqlen_k=-4"),
        ({"common": common(shape=shape(head_size=32))}, "head_size=32"),
    ],
)
def test_sage_rules(changes, reason):
    for compat in (False, True):
        ok, why = sage(**changes).is_valid("gfx942", compat=compat)
        assert not ok
        assert reason in why


@pytest.mark.parametrize("make", [jenga, vsa])
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"seqlen_q": 0}, "above 0"),
        ({"seqlen_k": 0}, "above 0"),
        ({"seqlen_k": 96, "block_k": 64}, "multiple of block_k=64"),
        ({"seqlen_q": 24}, "seqlen_q=24"),
        ({"seqlen_k": 72, "block_k": 24}, "seqlen_k=72"),
        ({"seqlen_k": 96, "block_k": 24}, "block_k=24"),
    ],
)
def test_sparse_rules(make, changes, reason):
    for compat in (False, True):
        ok, why = make(**changes).is_valid("gfx942", compat=compat)
        assert not ok
        assert reason in why


def test_sparse_kernels_take_a_head_of_32():
    small = common(shape=shape(head_size=32))
    assert jenga(small).is_valid() == vsa(small).is_valid() == (True, "ok")


@pytest.mark.parametrize("changes", [{"block_q": 0}, {"block_q": -1}, {"block_k": 0}, {"block_k": -16}])
def test_blocks_must_be_above_0(changes):
    assert "above 0" in jenga(**changes).is_valid()[1]
    assert "above 0" in jenga(**changes).is_valid(compat=True)[1]
    assert "above 0" in vsa(**changes).is_valid()[1]


def test_vsa_forgets_to_check_its_blocks():
    assert vsa(block_q=0).is_valid(compat=True) == (True, "ok")
    assert "block_q=0" in vsa(block_q=0).build_error()
    with pytest.raises(ZeroDivisionError):
        vsa(block_k=0).is_valid(compat=True)
    assert vsa(max_blocks_per_q=0, block_k=0).is_valid(compat=True)[1] == "max_blocks_per_q=0 must be above 0"
    assert vsa().build_error() is None
    assert jenga().build_error() is None


@pytest.mark.parametrize("head_size", [64, 128, 192, 256])
def test_i4_passes_the_rules_but_is_built_for_128_only(head_size):
    spec = sage(common(shape=shape(head_size=head_size)), "i4_fp8_bf16")
    assert spec.is_valid(compat=True) == (True, "ok")
    assert spec.is_valid()[0] == (head_size == 128)
    assert (spec.build_error() is None) == (head_size == 128)


@pytest.mark.parametrize("mode", ["alibi", "custom"])
def test_masks_without_a_body_are_refused(mode):
    tiled, warp = sage(common(mask_mode=mode)), sage(common(mask_mode=mode), seqlen_q=8)
    assert tiled.is_valid(compat=True) == warp.is_valid(compat=True) == (True, "ok")
    assert mode in tiled.build_error()
    assert warp.build_error() is None
    assert "nothing would be masked" in warp.is_valid()[1]
    assert not tiled.is_valid()[0]


@pytest.mark.parametrize("arch", NARROW)
def test_fp8_needs_an_architecture_that_has_it(arch):
    spec = sage(quant_mode="fp8_bf16")
    assert spec.is_valid(arch, compat=True)[0]
    assert spec.is_valid(arch)[0] == (arch in ("gfx942", "gfx950"))


# Every field over its range, legal and not

INTS = st.sampled_from([-16, -1, 0, 1, 2, 3, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512]) | st.integers(-5, 300)
MASKS = ("none", "causal", "sliding_window")
ANY_SHAPE = st.builds(
    FmhaShape, st.sampled_from([0, 16, 32, 64, 96, 128, 192, 256, 512]), st.integers(-1, 8), st.integers(-1, 4),
    st.sampled_from([8, 16, 32, 64, 128, 256]), st.sampled_from([8, 16, 32, 64, 128, 256, 512]),
)  # fmt: skip
LEGAL_SHAPE = st.builds(
    lambda d, kv, group, bq, bk: FmhaShape(d, kv * group, kv, bq, bk), st.sampled_from([32, 64, 128, 192, 256]),
    st.integers(1, 4), st.integers(1, 6), st.sampled_from([16, 32, 64, 128]), st.sampled_from([16, 32, 64, 128, 256]),
)  # fmt: skip
ANY_COMMON = st.builds(
    FmhaCommonSpec, LEGAL_SHAPE | ANY_SHAPE, dtype=st.sampled_from(["f16", "fp16", "bf16", "f32"]),
    scale_log2=st.floats(-1, 1), mask_mode=st.sampled_from([*MASKS, "alibi", "custom", "x"]),
    sliding_window=st.integers(-1, 100), use_softcap=st.booleans(), use_rotary=st.booleans(),
    use_dropout=st.booleans(), use_sinks=st.booleans(),
)  # fmt: skip
ANY_SCALE = st.one_of(
    st.builds(QkScaleSpec, st.just("per_head"), stride_head=st.integers(0, 4)),
    st.builds(QkScaleSpec, st.just("per_block"), st.integers(1, 256), stride_head=st.integers(0, 4)),
)
MODES = ("fp16_bf16", "fp8_bf16", "i8_fp8_bf16", "i4_fp8_bf16")
ANY_ARCH = st.sampled_from([*ARCHES, "gfx1100"])


def common_accepts(c):
    s = c.shape
    return (
        s.head_size in {32, 64, 128, 192, 256} and s.num_query_heads > 0 and s.num_kv_heads > 0
        and s.num_query_heads % s.num_kv_heads == 0 and s.block_size_q in {16, 32, 64, 128}
        and s.block_size_k in {16, 32, 64, 128, 256} and c.dtype in {"f16", "fp16", "bf16"}
        and c.mask_mode in {"none", "causal", "sliding_window", "alibi", "custom"}
        and not (c.mask_mode == "sliding_window" and c.sliding_window <= 0)
        and not (c.use_sinks and c.dtype == "bf16")
    )  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(ANY_COMMON, st.sampled_from([*MODES, "int8"]), ANY_SCALE, ANY_SCALE, INTS, INTS, ANY_ARCH, st.booleans())
def test_sage_accepts_what_the_rules_say(c, mode, q_scale, k_scale, rows, keys, arch, flag):
    spec = SageAttentionSpec(c, mode, q_scale, k_scale, rows, keys, use_outer_scale_loop=flag)
    upstream = common_accepts(c) and arch in NARROW and mode in MODES and rows > 0 and keys > 0
    upstream = upstream and c.head_size % 64 == 0
    assert spec.is_valid(arch, compat=True)[0] == upstream
    refused = (mode == "i4_fp8_bf16" and c.head_size != 128) or c.mask_mode in ("alibi", "custom")
    refused = refused or (mode == "fp8_bf16" and arch not in ("gfx942", "gfx950"))
    assert spec.is_valid(arch)[0] == (upstream and not refused)
    assert (spec.is_valid(arch)[1] == "ok") == spec.is_valid(arch)[0]


def tiling_accepts(spec):
    return (
        spec.seqlen_q > 0 and spec.seqlen_k > 0 and spec.seqlen_k % spec.block_k == 0 and spec.seqlen_q % 16 == 0
        and spec.seqlen_k % 16 == 0 and spec.block_k % 16 == 0 and spec.common.head_size % 16 == 0
    )  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(ANY_COMMON, INTS, INTS, INTS, INTS, ANY_ARCH)
def test_jenga_accepts_what_the_rules_say(c, rows, keys, block_q, block_k, arch):
    spec = JengaSparseSpec(c, rows, keys, block_q, block_k)
    expected = common_accepts(c) and arch in NARROW and block_q > 0 and block_k > 0 and tiling_accepts(spec)
    assert spec.is_valid(arch)[0] == spec.is_valid(arch, compat=True)[0] == expected


@settings(max_examples=300, deadline=None)
@given(ANY_COMMON, INTS, INTS, INTS, INTS.filter(bool), INTS, ANY_ARCH, st.booleans())
def test_vsa_accepts_what_the_rules_say(c, rows, keys, block_q, block_k, most, arch, flag):
    spec = VsaSparseSpec(c, rows, keys, block_q, block_k, most, use_wave_ballot_scatter=flag)
    upstream = common_accepts(c) and arch in NARROW and most > 0 and tiling_accepts(spec)
    assert spec.is_valid(arch, compat=True)[0] == upstream
    assert spec.is_valid(arch)[0] == (upstream and block_q > 0 and block_k > 0)


LEGAL_COMMON = st.builds(
    FmhaCommonSpec, LEGAL_SHAPE, dtype=st.sampled_from(["f16", "fp16"]), scale_log2=st.floats(-1, 1),
    mask_mode=st.sampled_from(MASKS), sliding_window=st.integers(1, 5000), use_softcap=st.booleans(),
    use_rotary=st.booleans(), use_dropout=st.booleans(), use_sinks=st.booleans(),
) | st.builds(FmhaCommonSpec, LEGAL_SHAPE, dtype=st.just("bf16"))  # fmt: skip
TILES = st.integers(1, 300).map(lambda n: 16 * n)


@settings(deadline=None)
@given(LEGAL_COMMON, st.sampled_from(MODES), ANY_SCALE, ANY_SCALE, st.integers(1, 5000), st.integers(1, 5000))
def test_every_legal_sage_spec_is_accepted(c, mode, q_scale, k_scale, rows, keys):
    head_size = 128 if mode == "i4_fp8_bf16" else max(64, c.head_size)
    c = dataclasses.replace(c, shape=dataclasses.replace(c.shape, head_size=head_size))
    spec = SageAttentionSpec(c, mode, q_scale, k_scale, rows, keys)
    assert spec.is_valid("gfx942") == spec.is_valid("gfx942", compat=True) == (True, "ok")


@settings(deadline=None)
@given(LEGAL_COMMON, TILES, TILES, st.integers(1, 20), st.integers(1, 5000), st.integers(1, 100))
def test_every_legal_sparse_spec_is_accepted(c, rows, block_k, blocks, block_q, most):
    for spec in (
        JengaSparseSpec(c, rows, block_k * blocks, block_q, block_k),
        VsaSparseSpec(c, rows, block_k * blocks, block_q, block_k, most),
    ):
        assert spec.is_valid("gfx90a") == spec.is_valid("gfx950", compat=True) == (True, "ok")
        assert spec.num_k_blocks == blocks


# What may surprise is said


def test_notes_name_dead_flags_and_traps():
    dead = common(use_softcap=True, use_rotary=True, use_dropout=True, use_sinks=True, scale_log2=0.1)
    for spec in (sage(dead), jenga(dead), vsa(dead)):
        notes = " ".join(spec.notes("gfx942"))
        assert all(name in notes for name in ("use_softcap", "use_rotary", "use_dropout", "use_sinks", "scale_log2"))
    assert "use_outer_scale_loop" in " ".join(sage(use_outer_scale_loop=True).notes())
    assert "use_wave_ballot_scatter" in " ".join(vsa(use_wave_ballot_scatter=False).notes())
    assert "f16 bit patterns" in " ".join(sage(common(dtype="bf16"), "fp8_bf16").notes())
    assert "f16 bit patterns" not in " ".join(sage(common(dtype="bf16"), "fp8_bf16", seqlen_q=8).notes())
    assert "upper bound" in " ".join(sage(common(mask_mode="sliding_window", sliding_window=4)).notes())
    assert "top-left" in " ".join(sage(common(mask_mode="causal")).notes())
    assert "ignored" in " ".join(jenga(common(mask_mode="causal")).notes())
    assert "first row" in " ".join(vsa(block_q=24).notes())
    assert "32 lanes" in " ".join(sage().notes("gfx1151"))
    assert sage().notes("gfx942") == jenga(block_q=16).notes() == vsa(block_q=32).notes() == ()
