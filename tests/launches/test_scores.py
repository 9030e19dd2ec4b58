"""Waves that make the same scores, each for itself, are charged for each of them."""

import pytest

import kernbench as kb
from kernbench.bench import find_bench
from kernbench.record import record
from kernbench.run import run_bench
from kernbench.simulate.launch.scores import commands_on_scores
from kernbench.specs.implementation import DecodeImplementation

MACHINE = kb.load_machine("mi300x")
KEYS, HEADS, WIDTH = 256, 2, 64


def ran(copies, **more):
    bench = find_bench("decode_splitkv")
    spec = bench.spec(S_kv=KEYS, h_q=HEADS, h_kv=HEADS, d_head=WIDTH, dtype="f16", kv_dtype="f16")
    chosen = DecodeImplementation(splits=1, score_copies=copies, **more)
    return run_bench(bench, MACHINE, spec, implementation=chosen, mode="time")


def test_each_copy_multiplies_and_exponentiates_again():
    once, twice, thrice = (ran(copies) for copies in (1, 2, 3))
    product = 2 * HEADS * 16 * KEYS * WIDTH
    assert [r.flops for r in (once, twice, thrice)] == [2 * product, 3 * product, 4 * product]
    assert once.makespan_ps < twice.makespan_ps < thrice.makespan_ps
    assert once.hbm_bytes == twice.hbm_bytes == thrice.hbm_bytes


@pytest.mark.parametrize("copies", [1, 3])
def test_both_engines_agree(copies):
    bench = find_bench("decode_splitkv")
    spec, chosen = bench.spec(S_kv=KEYS), DecodeImplementation(splits=2, score_copies=copies)
    times = [
        run_bench(bench, MACHINE, spec, implementation=chosen, mode="time", engine=engine).makespan_ps
        for engine in ("compiled", "simpy")
    ]
    assert times[0] == times[1]


def test_scores_are_what_maxima_are_taken_of_and_what_is_made_of_them():
    def kernel(q, k, v, o, *, tl):
        queries, keys = tl.load(q, shape=(16, 32)), tl.load(k, shape=(32, 64))
        other = tl.dot(queries, keys)
        s = tl.dot(queries, keys, acc=other * 2.0) * 0.5
        m = tl.max(s, axis=-1)
        p = tl.exp2(s - m)
        unrelated = tl.exp2(tl.load(v, shape=(64, 16)))
        tl.store(o, tl.dot(tl.cast(p, "f16"), tl.cast(unrelated, "f16")) / tl.sum(p, axis=-1))

    shapes = ((16, 32), (32, 64), (64, 16), (16, 16))
    args = tuple(kb.shape_only(shape, "f16", MACHINE) for shape in shapes)
    (cls,) = record(kernel, MACHINE, args, grid=(1,)).classes
    found = [(cls.commands[i].op, cls.commands[i].name) for i in sorted(commands_on_scores(cls))]
    assert [name for op, name in found if op == "dot"] == ["dot", "dot"], "both make scores, the last one takes them up"
    assert [name for op, name in found if op == "vector"] == [
        "multiply",
        "multiply",
        "max",
        "subtract",
        "exp2",
        "cast",
        "sum",
    ]


def test_a_tile_that_is_written_again_is_another():
    def kernel(q, k, v, w, o, *, tl):
        other = tl.load(v, shape=(16, 64))
        buffer = tl.zeros((16, 64))
        tl.copy_to(buffer, tl.exp(other))
        tl.store(o, buffer)
        tl.copy_to(buffer, tl.dot(tl.load(q, shape=(16, 32)), tl.load(k, shape=(32, 64))))
        p = tl.exp2(buffer - tl.max(buffer, axis=-1))
        tl.store(o, tl.dot(tl.cast(p, "f16"), tl.load(w, shape=(64, 64))))
        tl.copy_to(buffer, other)
        tl.store(o, tl.sqrt(buffer))

    args = tuple(kb.shape_only(shape, "f16", MACHINE) for shape in ((16, 32), (32, 64), (16, 64), (64, 64), (16, 64)))
    (cls,) = record(kernel, MACHINE, args, grid=(1,)).classes
    found = [cls.commands[i].name for i in sorted(commands_on_scores(cls))]
    assert found == ["dot", "copy", "max", "subtract", "exp2", "cast"]


def test_a_maximum_that_no_product_takes_up_makes_no_scores():
    """Quantising what was loaded or computed takes maxima of rows, too."""

    def kernel(q, k, o, *, tl):
        queries = tl.load(q, shape=(16, 32))
        top = tl.max(queries, axis=-1)
        product = tl.dot(tl.cast(queries / top, "f16"), tl.load(k, shape=(32, 64)))
        tl.store(o, product / tl.max(product, axis=-1))

    args = tuple(kb.shape_only(shape, "f16", MACHINE) for shape in ((16, 32), (32, 64), (16, 64)))
    (cls,) = record(kernel, MACHINE, args, grid=(1,)).classes
    assert not commands_on_scores(cls)


def test_copies_of_the_second_product():
    once, twice = ran(1), ran(1, value_copies=2)
    product = 2 * HEADS * 16 * KEYS * WIDTH
    assert twice.flops - once.flops == product
    assert twice.makespan_ps > once.makespan_ps
