"""Specs: legal ranges, messages, and settings given as text."""

import math

import pytest

from kernbench.errors import SpecError
from kernbench.specs.attention import AttentionSpec, DecodeSpec, spec_from_settings


def test_group_and_scale_follow_from_the_sizes():
    spec = AttentionSpec(h_q=12, h_kv=4, d_head=100)
    assert spec.group == 3
    assert spec.scale == 1 / math.sqrt(100)
    assert spec.replace(softmax_scale=0.25).scale == 0.25


def test_the_default_spec_has_the_sizes_of_the_captured_inputs():
    spec = DecodeSpec()
    assert (spec.batch, spec.h_q, spec.h_kv, spec.d_head, spec.S_kv, spec.dtype) == (1, 9, 3, 64, 1024, "f16")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"S_kw": "4"}, "unknown spec field 'S_kw' (did you mean 'S_kv'?)"),
        ({"S_kv": "0"}, "spec field S_kv (key/value tokens of each sequence) cannot be '0': it must be greater than"),
        ({"T_q": "-2"}, "cannot be '-2'"),
        ({"batch": "many"}, "it must be a valid integer"),
        ({"dtype": "f8"}, "it must be 'f16', 'bf16' or 'f32'"),
        ({"h_q": "4"}, "h_q=4 is not a multiple of h_kv=3"),
        ({"T_q": "9", "S_kv": "8"}, "needs S_kv of at least 9, not 8"),
        ({"softmax_scale": "-1"}, "it must be greater than 0"),
        ({"softmax_scale": "inf"}, "it must be a finite number"),
        ({"causal": "perhaps"}, "it must be a valid boolean"),
        ({"buffers": "5"}, "it must be less than or equal to 4"),
        ({"TILE_S_KV": "0"}, "cannot be '0'"),
        ({"reduction": "star"}, "it must be 'chain', 'tree', 'butterfly', 'ring_all_reduce' or 'none'"),
        ({"split_heads": "cub", "split_S_kv": "pe"}, "cannot be 'cub': it must be 'sip', 'cube' or 'pe'"),
        ({"split_heads": "cube"}, "level 'cube' is named 2 times"),
    ],
)
def test_a_bad_setting_says_what_is_wrong_and_what_is_right(settings, message):
    with pytest.raises(SpecError) as error:
        spec_from_settings(DecodeSpec, settings)
    assert message in str(error.value)


def test_every_problem_is_named_at_once():
    with pytest.raises(SpecError) as error:
        DecodeSpec(S_kv=0, T_q=0)
    assert len(str(error.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("text", "levels"),
    [("none", ()), ("", ()), ("pe", ("pe",)), ("cube, pe", ("cube", "pe")), ("pe,sip", ("pe", "sip"))],
)
def test_levels_are_written_with_commas_or_as_none(text, levels):
    assert spec_from_settings(DecodeSpec, {"split_S_kv": text}).split_S_kv == levels


def test_levels_that_serve_nothing_are_idle():
    assert DecodeSpec(split_heads="cube", split_S_kv="none").idle_levels == ("sip", "pe")
    assert DecodeSpec().idle_levels == ()


def test_a_spec_cannot_be_changed_but_copied_with_changes_that_are_checked():
    spec = DecodeSpec(S_kv=10)
    with pytest.raises(ValueError, match="frozen"):
        spec.S_kv = 11
    assert spec.replace(S_kv=11).S_kv == 11
    with pytest.raises(SpecError):
        spec.replace(S_kv=0)


def test_none_as_text_is_the_default_scale():
    assert spec_from_settings(AttentionSpec, {"softmax_scale": "none"}).softmax_scale is None
