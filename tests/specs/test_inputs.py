"""Inputs: random, captured, and from files, with every message."""

import ml_dtypes
import numpy as np
import pytest

from kernbench.errors import InputError, SpecError
from kernbench.specs.attention import DecodeSpec
from kernbench.specs.inputs import default_source, make_inputs


@pytest.fixture
def arrays():
    rng = np.random.default_rng(5)
    return {
        "q": rng.normal(size=(2, 6, 16)).astype(np.float16),
        "k": rng.normal(size=(40, 3, 16)).astype(np.float16),
        "v": rng.normal(size=(40, 3, 16)).astype(np.float16),
    }


@pytest.fixture
def save(tmp_path):
    def save(**arrays):
        np.savez(tmp_path / "qkv.npz", **arrays)
        return str(tmp_path / "qkv.npz")

    return save


# ---------------------------------------------------------------- random
@pytest.mark.parametrize(("dtype", "kind"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16), ("f32", np.float32)])
def test_random_inputs_have_the_sizes_and_the_format_of_the_spec(dtype, kind):
    spec = DecodeSpec(batch=2, T_q=3, S_kv=50, h_q=4, h_kv=2, d_head=8, dtype=dtype)
    made = make_inputs(spec, "random").arrays
    assert {name: a.shape for name, a in made.items()} == {"q": (2, 3, 4, 8), "k": (2, 50, 2, 8), "v": (2, 50, 2, 8)}
    assert {a.dtype for a in made.values()} == {np.dtype(kind)}


def test_the_seed_decides_random_inputs():
    spec = DecodeSpec(S_kv=50)
    once, again, other = (make_inputs(spec, "random", seed).arrays for seed in (1, 1, 2))
    for name in "qkv":
        assert np.array_equal(once[name], again[name])
        assert not np.array_equal(once[name], other[name])


def test_random_inputs_are_standard_normal_and_independent():
    made = make_inputs(DecodeSpec(S_kv=4000), "random").arrays
    k, v = (made[name].astype(np.float64).ravel() for name in "kv")
    assert abs(k.mean()) < 0.01
    assert k.std() == pytest.approx(1, abs=0.01)
    assert abs(np.corrcoef(k, v)[0, 1]) < 0.01


# ---------------------------------------------------------------- captured
def test_captured_inputs_are_the_last_queries_of_the_first_tokens():
    whole = make_inputs(DecodeSpec(T_q=1024), "captured").arrays
    part = make_inputs(DecodeSpec(T_q=3, S_kv=100), "captured").arrays
    assert np.array_equal(part["q"], whole["q"][:, 97:100])
    assert np.array_equal(part["k"], whole["k"][:, :100])
    assert np.array_equal(part["v"], whole["v"][:, :100])


def test_captured_inputs_look_like_attention_and_not_like_noise():
    k = make_inputs(DecodeSpec(), "captured").arrays["k"][0, :, 0].astype(np.float64)
    singular = np.linalg.svd(k, compute_uv=False)
    assert singular[0] / singular[len(singular) // 2] > 10  # random keys: about 1.3


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"h_q": 8, "h_kv": 2}, "h_q=8 (captured: 9)"),
        ({"d_head": 128}, "d_head=128 (captured: 64)"),
        ({"S_kv": 2000}, "S_kv=2000 (captured: up to 1024)"),
        ({"batch": 2}, "batch=2 (captured: 1)"),
        ({"T_q": 20, "S_kv": 10, "causal": False}, "T_q=20 (captured: up to S_kv=10)"),
    ],
)
def test_a_spec_that_the_captured_inputs_do_not_fit_says_where(settings, named):
    spec = DecodeSpec(**settings)
    assert default_source(spec) == "random"
    with pytest.raises(SpecError) as error:
        make_inputs(spec, "captured")
    assert named in str(error.value)
    assert "use random inputs" in str(error.value)


def test_captured_inputs_are_the_default_where_they_fit():
    assert default_source(DecodeSpec()) == "captured"
    assert default_source(DecodeSpec(S_kv=77, T_q=5)) == "captured"
    assert default_source(DecodeSpec(dtype="bf16")) == "random"
    assert make_inputs(DecodeSpec(dtype="bf16"), "captured").arrays["q"].dtype == ml_dtypes.bfloat16


# ---------------------------------------------------------------- files
def test_a_file_fixes_the_sizes_of_the_spec(arrays, save):
    made = make_inputs(DecodeSpec(TILE_S_KV=8), save(**arrays))
    spec = made.spec
    assert (spec.batch, spec.T_q, spec.S_kv, spec.h_q, spec.h_kv, spec.d_head) == (1, 2, 40, 6, 3, 16)
    assert spec.TILE_S_KV == 8
    assert np.array_equal(made.arrays["q"][0], arrays["q"])
    assert not made.warnings


def test_a_size_that_was_set_must_be_that_of_the_file(arrays, save):
    path = save(**arrays)
    make_inputs(DecodeSpec(S_kv=40), path)
    with pytest.raises(SpecError, match=r"S_kv was set to 41, but .* holds S_kv=40; leave it out"):
        make_inputs(DecodeSpec(S_kv=41), path)


def test_nan_in_a_file_is_counted_and_located(arrays, save):
    arrays["k"][7, 1, 3:5] = np.nan
    (warning,) = make_inputs(DecodeSpec(), save(**arrays)).warnings
    assert "k as float16 holds 2 NaN or infinite values of 1,920" in warning
    assert "(7, 1, 3)" in warning


def test_values_too_large_for_the_format_are_reported(arrays, save):
    arrays["v"] = arrays["v"].astype(np.float32)
    arrays["v"][0, 0, 0] = 1e6
    path = save(**arrays)
    assert len(make_inputs(DecodeSpec(), path).warnings) == 1
    assert not make_inputs(DecodeSpec(dtype="f32"), path).warnings


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.pop("v"), "has no array v (it has: q, k)"),
        (lambda a: a.update(q=a["q"][0]), "q has shape (6, 16); (token, head, dim) is needed"),
        (lambda a: a.update(k=a["k"][:, :2]), "k (40, 2, 16) and v (40, 3, 16) must have the same shape"),
        (lambda a: a.update(q=a["q"][..., :8]), "q has heads of 8 elements, k of 16"),
        (lambda a: a.update(q=a["q"].astype(np.int32)), "q holds int32; float16, float32 or float64 is needed"),
        (lambda a: a.update(q=a["q"][:0]), "none of them 0"),
    ],
)
def test_a_file_that_does_not_fit_says_why(arrays, save, change, message):
    change(arrays)
    with pytest.raises(InputError) as error:
        make_inputs(DecodeSpec(), save(**arrays))
    assert message in str(error.value)


def test_heads_of_a_file_must_be_groups(arrays, save):
    arrays["q"] = arrays["q"][:, :5]
    with pytest.raises(SpecError, match="h_q=5 is not a multiple of h_kv=3"):
        make_inputs(DecodeSpec(), save(**arrays))


def test_a_missing_file_names_what_there_is():
    with pytest.raises(InputError, match=r"random, captured or an \.npz file; there is no file captred"):
        make_inputs(DecodeSpec(), "captred")


@pytest.mark.parametrize("content", [b"", b"no zip file", b"PK\x03\x04 broken"])
def test_a_file_of_another_kind_is_refused(tmp_path, content):
    path = tmp_path / "qkv.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"is not an \.npz file"):
        make_inputs(DecodeSpec(), str(path))


def test_a_single_array_and_a_directory_are_refused(tmp_path):
    np.save(tmp_path / "q.npy", np.zeros(3))
    for path in (tmp_path / "q.npy", tmp_path):
        with pytest.raises(InputError, match=r"is not an \.npz file"):
            make_inputs(DecodeSpec(), str(path))
