"""Constraints and costs: arithmetic over settings, results and the machine, in base units."""

import time

import pytest

import kernbench as kb
from kernbench.errors import InputError
from kernbench.explore.expressions import Expression, quantity


def test_names_may_be_dotted_keys_of_the_machine():
    expression = Expression("cube.memory.bandwidth / pe.clock >= 2 * pe.matrix.rates.f16", "here")
    assert expression.names == ("cube.memory.bandwidth", "pe.clock", "pe.matrix.rates.f16")
    values = expression.machine_values(kb.load_machine("row4_pe8").spec)
    assert values == {"cube.memory.bandwidth": 12 * 10**11, "pe.clock": 10**9, "pe.matrix.rates.f16": 8 * 10**12}
    assert not expression.holds(values)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a + 2 * b", 11),
        ("a ** 2 if b > 3 else 0", 9),
        ("max(a, b, 7) + ceil(a / 2) + log2(8)", 12),
        ("a < b and not a == b", True),
        ("a < '1 KiB'", True),
        ("'40 ns' + '1 us'", 1_040_000),
        ("dtype == 'f16'", True),
        ("dtype in ['f16', 'bf16']", True),
        ("min(a, '2 B')", 2),
    ],
)
def test_values(text, value):
    assert Expression(text, "here").evaluate({"a": 3, "b": 4, "dtype": "f16"}) == value


def test_quantities_are_told_from_other_texts():
    assert quantity("0.5 TB/s")[0] == 5 * 10**11
    assert quantity("f16") is None
    assert quantity("cube,pe") is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a <", r"here: cannot read 'a <': invalid syntax"),
        ("", "cannot read ''"),
        ("sqr(a)", r"unknown function 'sqr' \(did you mean 'sqrt'\?\)"),
        ("__import__('os')", "unknown function '__import__'"),
    ],
)
def test_what_is_no_expression_is_refused(text, says):
    with pytest.raises(InputError, match=says):
        Expression(text, "here")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a / 0 > 1", "here: cannot evaluate 'a / 0 > 1': division by zero"),
        ("a > c", "cannot evaluate 'a > c': 'c' is not defined"),
        ("a > 'f16'", "not supported"),
        ("9 ** 9 ** 9 > a", "cannot evaluate"),
        ("a.__class__ > 1", "cannot evaluate"),
        ("[a][5] > 1", "cannot evaluate"),
    ],
)
def test_what_cannot_be_evaluated_says_so(text, says):
    with pytest.raises(InputError, match=says):
        Expression(text, "here").evaluate({"a": 3})


@pytest.mark.parametrize("text", ["4000000 ** 4000000", "f'{a:900000000}'", "'%900000000d' % a"])
def test_a_short_text_cannot_take_much_time_or_memory(text):
    begin = time.perf_counter()
    with pytest.raises(InputError, match="cannot evaluate"):
        Expression(text, "here").evaluate({"a": 3})
    assert time.perf_counter() - begin < 0.5


def test_a_constraint_is_true_or_false():
    assert Expression("a > 2 and a < 4", "here").holds({"a": 3})
    for text in ("a - 1", "'a > 5'"):  # a number; a comparison that is quoted twice
        with pytest.raises(InputError, match="neither true nor false"):
            Expression(text, "here").holds({"a": 3})


def test_a_cost_is_a_finite_number():
    assert Expression("a / 2", "cost").number({"a": 3}) == 1.5
    with pytest.raises(InputError, match="gives True, not a number"):
        Expression("a > 2", "cost").number({"a": 3})
    with pytest.raises(InputError, match="gives inf"):
        Expression("a * 1e308 * 10.0", "cost").number({"a": 1e10})
    with pytest.raises(InputError, match="a larger number than can be kept, not a finite"):
        Expression("10 ** 400", "cost").number({})


def test_unknown_names_are_found_before_anything_runs():
    expression = Expression("TILE_SKV * 2 < pe.scratch", "here")
    with pytest.raises(InputError, match=r"unknown name 'TILE_SKV' \(did you mean 'TILE_S_KV'\?\)"):
        expression.check_names({"TILE_S_KV", "buffers"})
    with pytest.raises(InputError, match=r"here: .*the machine has no value 'pe.scrtch' \(did you mean 'scratch'\?\)"):
        Expression("pe.scrtch > 1", "here").machine_values(kb.load_machine("row4_pe8").spec)
