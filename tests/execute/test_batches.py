"""Batches: the same bits whatever their size, split where a message or a credit is missing, values passed on whole."""

from __future__ import annotations

import numpy as np
import pytest
import threadpoolctl
from by_hand import Program, ring, row, run, same_bits, trace_of
from hypothesis import given, settings
from hypothesis import strategies as st

from kernbench.errors import ChannelError, InputError
from kernbench.execute import execute
from kernbench.placement import replicated, split
from kernbench.tensors import empty, tensor

BATCHES = (1, 2, 5, 16)


def attention(n_pes: int, batch: int, rows: int = 37, d: int = 24, group: int = 3) -> dict[str, np.ndarray]:
    """Execute one tile of decode attention on every PE, with operations of every kind; return all that it stores."""
    rng = np.random.default_rng(0)
    machine = row(n_pes)
    over = split(0, "pe")
    tensors = {
        "q": tensor(rng.standard_normal((group, d)).astype(np.float16), machine, replicated()),
        "k": tensor(rng.standard_normal((n_pes * rows, d)).astype(np.float16), machine, over),
        "v": tensor(rng.standard_normal((n_pes * rows, d)).astype(np.float16), machine, over),
        "o": empty((n_pes * group, d), "f16", machine, over),
        "l": empty((n_pes * group, 1), "f32", machine, over),
        "t": empty((n_pes * d, 1), "bf16", machine, over),
    }
    p = Program(*range(n_pes))
    q = p.load(0, (group, d), "f16")
    k = p.load(1, (d, rows), "f16", strides=(1, d))
    s = p.vector("multiply", (group, rows), "f32", p.dot((group, rows), "f32", q, k), 0.2)
    top = p.vector("max", (group, 1), "f32", s, axis=1)
    e = p.vector("exp", (group, rows), "f32", p.vector("subtract", (group, rows), "f32", s, top))
    total = p.vector("sum", (group, 1), "f32", e, axis=1)
    v = p.load(2, (rows, d), "f16")
    acc = p.dot((group, d), "f32", p.vector("cast", (group, rows), "f16", e), v)
    p.store(3, p.vector("divide", (group, d), "f32", acc, total, function="true"), "f16")
    p.store(4, total)
    turned = p.vector("trans", (d, rows), "f16", v, axes=(1, 0))
    columns = p.vector("trans", (rows, 1), "f32", p.vector("sum", (1, rows), "f32", e, axis=0), axes=(1, 0))
    seen = p.vector("abs", (d, 1), "bf16", p.dot((d, 1), "bf16", turned, columns))
    p.store(5, p.vector("log2", (d, 1), "bf16", seen), "bf16")
    run(machine, tensors, p, batch=batch)
    return {name: tensors[name].numpy() for name in ("o", "l", "t")}


@pytest.mark.parametrize("group", [1, 3, 8])
@pytest.mark.parametrize("batch", BATCHES[1:])
def test_values_do_not_depend_on_the_batch(batch, group):
    alone, together = attention(7, 1, group=group), attention(7, batch, group=group)
    for name in alone:
        assert np.isfinite(alone[name].astype(float)).all()
        assert same_bits(alone[name], together[name])


def chain(n_pes: int, n_messages: int = 1) -> tuple[dict, list[Program]]:
    """Sum rows along a row of PEs, from the last to PE 0; those between first and last are of one class."""
    machine = row(n_pes)
    rng = np.random.default_rng(0)
    tensors = {
        "x": tensor(rng.standard_normal((n_pes, n_messages * 4)).astype(np.float32), machine, split(0, "pe")),
        "out": empty((n_pes, n_messages * 4), "f32", machine, split(0, "pe")),
    }
    first, between, last = Program(0), Program(*range(1, n_pes - 1)), Program(n_pes - 1)
    for p in (first, between, last):
        mine = [p.load(0, (4,), "f32", element=4 * i) for i in range(n_messages)]
        if p is not last:
            taken = [p.recv("intra_E", (4,), "f32") for _ in mine]
            mine = [p.vector("add", (4,), "f32", a, b) for a, b in zip(mine, taken, strict=True)]
        for i, tile in enumerate(mine):
            if p is not first:
                p.send("intra_W", tile)
            p.store(1, tile, element=4 * i)
    return tensors, [first, between, last]


def sums_from_behind(x: np.ndarray) -> np.ndarray:
    wanted = x.copy()
    for pe in reversed(range(len(x) - 1)):
        wanted[pe] = x[pe] + wanted[pe + 1]
    return wanted


@pytest.mark.parametrize("batch", BATCHES)
def test_a_chain_within_one_class_splits_its_batches(batch):
    tensors, programs = chain(8)
    report = run(row(8), tensors, *programs, batch=batch)
    np.testing.assert_array_equal(tensors["out"].numpy(), sums_from_behind(tensors["x"].numpy()))
    assert report.messages == 7
    assert report.pes == 8
    assert report.commands == sum(len(p.pes) * len(p.commands) for p in programs)
    assert (report.splits > 0) == (batch > 1)


def test_a_long_chain():
    tensors, programs = chain(200)
    report = run(row(200), tensors, *programs)
    np.testing.assert_array_equal(tensors["out"].numpy(), sums_from_behind(tensors["x"].numpy()))
    assert report.batches == 1 + 13 + 1 + report.splits


def test_a_batch_is_not_split_while_others_can_run():
    """Everyone sends before it receives: the first batch may wait for the last one, whole."""
    machine = ring(64)
    x = np.arange(64, dtype=np.float32).reshape(64, 1)
    tensors = {"x": tensor(x, machine, split(0, "cube")), "out": empty((64, 1), "f32", machine, split(0, "cube"))}
    p = Program(*range(64))
    tile = p.load(0, (1,), "f32")
    for _ in range(5):
        p.send("E", tile)
        tile = p.recv("W", (1,), "f32")
    p.store(1, tile)
    report = run(machine, tensors, p)
    np.testing.assert_array_equal(tensors["out"].numpy(), np.roll(x, 5, axis=0))
    assert (report.batches, report.splits, report.messages) == (4, 0, 64 * 5)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("batch", BATCHES)
def test_senders_wait_for_credits_and_messages_keep_their_order(depth, batch):
    machine = row(6, depth)
    out = empty((6, 10), "f32", machine, split(0, "pe"))
    senders, receivers = Program(0, 2, 4), Program(1, 3, 5)
    for i in range(10):
        senders.send("intra_E", senders.vector("fill", (1,), "f32", senders.lane(100, 200, 300, offset=i)))
        receivers.store(0, receivers.recv("intra_W", (1,), "f32"), element=i)
    run(machine, {"out": out}, senders, receivers, batch=batch)
    np.testing.assert_array_equal(out.numpy()[1::2], np.add.outer([100, 200, 300], np.arange(10)))


@given(st.permutations(range(6)), st.sampled_from(BATCHES), st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_order_of_classes_does_not_matter(order, batch, depth):
    machine = row(6, depth)
    out = empty((6, 1), "f32", machine, split(0, "pe"))
    programs = []
    for pe in range(6):
        p = Program(pe)
        tile = p.recv("intra_W", (1,), "f32") if pe else p.vector("fill", (1,), "f32", 1.0)
        tile = p.vector("multiply", (1,), "f32", tile, 2.0 + pe)
        if pe < 5:
            p.send("intra_E", tile)
        p.store(0, tile)
        programs.append(p)
    run(machine, {"out": out}, *(programs[i] for i in order), batch=batch)
    np.testing.assert_array_equal(out.numpy()[:, 0], np.cumprod(np.arange(2.0, 8.0)))


def test_a_message_is_what_was_sent_though_the_tile_changes_later():
    machine = row(2)
    out = empty((2, 1), "f32", machine, split(0, "pe"))
    a, b = Program(0), Program(1)
    tile = a.vector("fill", (1,), "f32", 1.0)
    a.send("intra_E", tile)
    a.copy(tile, 2.0)
    a.send("intra_E", tile)
    b.store(0, b.recv("intra_W", (1,), "f32"))
    b.recv("intra_W", (1,), "f32")
    run(machine, {"out": out}, a, b)
    assert out.numpy()[1, 0] == 1


def test_a_message_has_the_shape_in_which_it_was_sent():
    machine = row(2)
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    tensors = {"x": tensor(x, machine, split(0, "pe")), "out": empty((2, 6), "f32", machine, split(0, "pe"))}
    a, b = Program(0), Program(1)
    a.send("intra_E", a.load(0, (2, 3), "f32")._replace(shape=(3, 2)))
    b.store(1, b.recv("intra_W", (3, 2), "f32"))
    run(machine, tensors, a, b)
    np.testing.assert_array_equal(tensors["out"].numpy()[1], x[0])


def test_split_batches_keep_their_tiles_lanes_and_columns():
    """Middle PEs read a lane value and a tile made before the split, after it."""
    machine = row(6)
    x = np.random.default_rng(0).standard_normal((6, 6)).astype(np.float32)
    tensors = {"x": tensor(x, machine, split(0, "pe")), "out": empty((6, 6), "f32", machine, split(0, "pe"))}
    first, rest = Program(0), Program(1, 2, 3, 4, 5)
    first.send("intra_E", first.load(0, (2,), "f32"))
    tile = rest.vector("negate", (2, 3), "f32", rest.load(0, (2, 3), "f32"))
    view = rest.vector("trans", (3, 2), "f32", tile, axes=(1, 0))
    got = rest.recv("intra_W", (2,), "f32")
    rest.send("intra_E", got)
    shifted = rest.vector("add", (3, 2), "f32", view, got)
    rest.store(1, rest.vector("add", (3, 2), "f32", shifted, rest.lane(1, 2, 3, 4, 5)))
    # The last PE's message has no receiver: leave it out by a class of its own.
    last = Program(5)
    last.tiles, last.columns = rest.tiles, [c[4:] for c in rest.columns]
    last.commands = [c for c in rest.commands if c.op != "send"]
    rest.pes, rest.columns = rest.pes[:4], [c[:4] for c in rest.columns]
    report = run(machine, tensors, first, rest, last)
    assert report.splits == 3
    wanted = -x.reshape(6, 2, 3).transpose(0, 2, 1) + x[0, :2] + np.arange(6)[:, None, None]
    np.testing.assert_allclose(tensors["out"].numpy()[1:].reshape(5, 3, 2), wanted[1:], rtol=1e-6)


def test_a_message_of_another_shape_or_format_is_an_error():
    for shape, dtype in (((2, 1), "f32"), ((1, 2), "f16")):
        a, b = Program(0), Program(1)
        a.send("intra_E", a.vector("fill", shape, dtype, 1.0))
        b.recv("intra_W", (1, 2), "f32")
        with pytest.raises(ChannelError, match=r"pe1 receives \(1, 2\) of f32 from intra_W, but \S+pe0 sent"):
            run(row(2), {}, a, b)


def test_a_channel_that_does_not_exist_is_an_error():
    p = Program(0, 1)
    p.recv("intra_W", (1,), "f32")
    with pytest.raises(ChannelError, match="pe0 has no neighbour in direction intra_W"):
        run(row(2), {}, p)


# ---------------------------------------------------------------------- the call itself
def test_progress_reaches_the_total_and_never_goes_back():
    tensors, programs = chain(8, n_messages=3)
    trace = trace_of(row(8), tensors, *programs)
    calls: list[tuple[int, int]] = []
    execute(trace, progress=lambda done, total: calls.append((done, total)))
    assert {total for _, total in calls} == {trace.n_commands}
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert calls[-1] == (trace.n_commands, trace.n_commands)
    assert len(calls) < trace.n_commands


@pytest.mark.parametrize("batch", [0, -3])
def test_batch_must_be_a_number_of_pes(batch):
    tensors, programs = chain(4)
    with pytest.raises(InputError, match="at least 1"):
        run(row(4), tensors, *programs, batch=batch)


def test_no_global_state_is_left_behind_even_by_an_interrupt():
    tensors, programs = chain(8)

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    threads = [pool["num_threads"] for pool in threadpoolctl.threadpool_info()]
    errors = np.geterr()
    with pytest.raises(KeyboardInterrupt):
        execute(trace_of(row(8), tensors, *programs), progress=interrupt)
    assert [pool["num_threads"] for pool in threadpoolctl.threadpool_info()] == threads
    assert np.geterr() == errors


def test_blas_has_one_thread_while_executing():
    seen = []
    tensors, programs = chain(4)
    execute(
        trace_of(row(4), tensors, *programs),
        progress=lambda *_: seen.extend(
            p["num_threads"] for p in threadpoolctl.threadpool_info() if p["user_api"] == "blas"
        ),
    )
    assert set(seen) == {1}


def test_executing_twice_gives_the_same():
    tensors, programs = chain(5)
    run(row(5), tensors, *programs)
    once = tensors["out"].numpy()
    run(row(5), tensors, *programs)
    assert same_bits(once, tensors["out"].numpy())
