"""Messages that do not match, and PEs that wait for one another: told with both PEs, both lines and the mend."""

import pytest

import kernbench as kb
from kernbench.errors import ChannelError, DeadlockError, KernelError

from .helpers import complaint, marked, small_machine

PAIR = small_machine(cubes=1, columns=2, rows=1)
RING = kb.load_machine(
    "row4_pe8", overrides={"sip.cubes.arrangement": "ring", "cube.pes.columns": 1, "cube.pes.rows": 1}
)
MODES = pytest.mark.parametrize("mode", ["values", "time"])


# ---------------------------------------------------------------- messages without a counterpart
def test_a_message_that_nobody_receives():
    def kernel(*, tl):
        t = tl.zeros((4, 4))
        if tl.program_id(0) == 0:
            for _ in range(2):
                tl.send(dir="intra_E", src=t)  # here
        else:
            tl.recv(dir="intra_W", shape=(4, 4), dtype="f32")

    text = complaint(kernel, PAIR)
    assert "message 1 from cube 0 pe 0 in direction intra_E is never received" in text
    assert "cube 0 pe 1 receives 1 of 2 messages from intra_W" in text
    assert f"sent at tests/record/{marked(kernel)}" in text
    assert 'add tl.recv(dir="intra_W", ...) on the receiver, or do not send' in text


def test_a_receive_that_nobody_sends():
    def kernel(*, tl):
        if tl.program_id(0) == 1:
            tl.recv(dir="intra_W", shape=(4, 4), dtype="f16")  # here

    text = complaint(kernel, PAIR)
    assert (
        "cube 0 pe 1 waits for message 0 from intra_W, but cube 0 pe 0 sends only 0 of 1 in direction intra_E" in text
    )
    assert f"received at tests/record/{marked(kernel)}" in text
    assert 'add tl.send(dir="intra_E", ...) on the sender, or do not receive' in text


def test_unmatched_messages_name_all_pes_concerned():
    machine = small_machine(cubes=4, columns=2, rows=2)

    def kernel(*, tl):
        if tl.program_id(1) % 2 == 0:
            tl.send(dir="E", src=tl.zeros((1,)))

    text = complaint(kernel, machine)
    assert "message 0 from cube 0,2 pe 0-3 in direction E" in text
    assert "cube 1,3 pe 0-3 receives 0 of 1 messages from W" in text


def test_a_message_to_a_pe_outside_the_grid():
    def kernel(*, tl):
        tl.send(dir="intra_E", src=tl.zeros((1,)))  # here

    text = complaint(kernel, small_machine(columns=4, rows=1), grid=(2, 2))
    assert 'send(dir="intra_E") goes over the border' in text
    assert "on cube 0-1 pe 1" in text
    assert marked(kernel) in text


@pytest.mark.parametrize(
    ("direction", "where"),
    [
        ("intra_E", "cube 0-1 pe 1,3"), ("intra_W", "cube 0-1 pe 0,2"), ("intra_N", "cube 0-1 pe 0-1"),
        ("intra_S", "cube 0-1 pe 2-3"), ("E", "cube 1 pe 0-3"), ("W", "cube 0 pe 0-3"), ("N", "cube 0-1 pe 0-3"),
        ("sip_E", "cube 0-1 pe 0-3"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("verb", ["send", "recv"])
def test_messages_over_the_border(direction, where, verb):
    def kernel(*, tl):
        if verb == "send":
            tl.send(dir=direction, src=tl.zeros((1,)))
        else:
            tl.recv(dir=direction, shape=(1,), dtype="f16")

    text = complaint(kernel, small_machine())
    assert f'{verb}(dir="{direction}") goes over the border: there is no neighbour that way' in text
    assert f"on {where}" in text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("intra_e", "unknown direction 'intra_e' (did you mean 'intra_E'?)"),
        ("east", "unknown direction 'east'"),
        ("sip-N", "unknown direction 'sip-N' (did you mean 'sip_N'?)"),
        (3, "unknown direction 3"),
    ],
)
def test_unknown_directions(name, message):
    def kernel(*, tl):
        tl.send(dir=name, src=tl.zeros((1,)))  # here

    text = complaint(kernel, PAIR)
    assert message in text
    assert marked(kernel) in text


# ---------------------------------------------------------------- messages that are not what is expected
def exchange(sent, shape, dtype):
    def kernel(*, tl):
        if tl.program_id(0) == 0:
            tl.send(dir="intra_E", src=tl.zeros(*sent))  # sent
        else:
            tl.recv(dir="intra_W", shape=shape, dtype=dtype)  # received

    return kernel


@pytest.mark.parametrize(
    ("sent", "shape", "dtype", "is_", "as_"),
    [
        (((4, 8), "f16"), (8, 4), "f16", "(4, 8) f16", "(8, 4) f16"),
        (((4, 8), "f16"), (32,), "f16", "(4, 8) f16", "(32,) f16"),
        (((4, 8), "f16"), (4, 8), "bf16", "(4, 8) f16", "(4, 8) bf16"),
        (((4, 8), "f32"), (4, 8), "f16", "(4, 8) f32", "(4, 8) f16"),
    ],
)
def test_a_message_received_as_something_else(sent, shape, dtype, is_, as_):
    kernel = exchange(sent, shape, dtype)
    text = complaint(kernel, PAIR)
    assert f"message 0 from cube 0 pe 0 in direction intra_E is {is_}, but cube 0 pe 1 receives it as {as_}" in text
    assert f"sent at     tests/record/{marked(kernel, '# sent')}" in text
    assert f"received at tests/record/{marked(kernel, '# received')}" in text
    if is_[-4:] != as_[-4:]:
        assert f'receive it as "{sent[1]}", or send tl.cast(tile, "{dtype}")' in text


def test_float16_expected_of_float32_dots_hints_at_dot_dtype():
    assert 'record with dot_dtype="f16"' in complaint(exchange(((4, 8), "f32"), (4, 8), "f16"), PAIR)
    assert "dot_dtype" not in complaint(exchange(((4, 8), "f32"), (4, 8), "f16"), PAIR, dot_dtype="f16")
    assert "dot_dtype" not in complaint(exchange(((4, 8), "f16"), (4, 8), "f32"), PAIR)


# ---------------------------------------------------------------- waiting for ever
@MODES
def test_two_pes_that_both_receive_first(mode):
    def kernel(*, tl):
        t = tl.zeros((4,))
        east = tl.program_id(0) == 0
        tl.recv(dir="intra_E" if east else "intra_W", shape=(4,), dtype="f32")  # here
        tl.send(dir="intra_E" if east else "intra_W", src=t)

    text = complaint(kernel, PAIR, mode=mode)
    assert "deadlock: 2 PEs wait for one another in a ring" in text
    assert "sip0.cube0.pe0 receives from intra_E, where sip0.cube0.pe1 has not sent" in text
    assert "sip0.cube0.pe1 receives from intra_W, where sip0.cube0.pe0 has not sent" in text
    assert text.count(f"at tests/record/{marked(kernel)}") == 2
    assert "both receive before they send: send first on one side" in text


@MODES
def test_a_ring_that_all_receives_first(mode):
    def kernel(*, tl):
        t = tl.recv(dir="W", shape=(4,), dtype="f32")  # here
        tl.send(dir="E", src=t)

    text = complaint(kernel, RING, mode=mode)
    assert "deadlock: 4 PEs wait for one another in a ring" in text
    assert "all receive before they send" in text
    assert text.count(marked(kernel)) == 4


@MODES
@pytest.mark.parametrize("depth", [1, 3])
def test_a_ring_of_full_channels(mode, depth):
    machine = RING.with_overrides({"pe.channel.depth": depth})

    def kernel(*, tl):
        t = tl.zeros((4,))
        for _ in range(depth + 1):
            tl.send(dir="E", src=t)  # here
        for _ in range(depth + 1):
            tl.recv(dir="W", shape=(4,), dtype="f32")

    text = complaint(kernel, machine, mode=mode)
    assert "deadlock: 4 PEs wait for one another in a ring" in text
    messages = f"{depth} message{'s' * (depth > 1)}"
    assert f"sends to E, where sip0.cube1.pe0 has not received the last {messages}" in text
    assert f"all send before they receive, and a channel holds {messages}" in text
    assert "receive first on one side, or raise pe.channel.depth" in text
    assert text.count(marked(kernel)) == 4


@MODES
@pytest.mark.parametrize("depth", [1, 3])
def test_as_many_messages_as_a_channel_holds_are_no_deadlock(mode, depth):
    def kernel(*, tl):
        t = tl.zeros((4,))
        for _ in range(depth):
            tl.send(dir="E", src=t)
        for _ in range(depth):
            tl.recv(dir="W", shape=(4,), dtype="f32")

    kb.launch(kernel, RING.with_overrides({"pe.channel.depth": depth}), mode=mode)


@MODES
def test_messages_received_in_another_order_than_sent(mode):
    machine = small_machine(cubes=2, columns=2, rows=1)

    def kernel(*, tl):
        """PE 0 of CUBE 0 sends along both ways at length; the last PE takes the second way first."""
        pe, cube = tl.program_id(0), tl.program_id(1)
        t = tl.zeros((1,))
        if (pe == 0) and (cube == 0):
            for direction in ("E", "intra_E"):
                for _ in range(4):
                    tl.send(dir=direction, src=t)
        elif pe + cube == 1:
            for _ in range(4):
                got = tl.recv(dir="W" if cube == 1 else "intra_W", shape=(1,), dtype="f32")
                tl.send(dir="intra_E" if cube == 1 else "E", src=got)
        else:
            for direction in ("W", "intra_W"):
                for _ in range(4):
                    tl.recv(dir=direction, shape=(1,), dtype="f32")

    with pytest.raises(DeadlockError) as caught:
        kb.launch(kernel, machine.with_overrides({"pe.channel.depth": 1}), mode=mode)
    text = str(caught.value)
    assert "4 PEs wait for one another in a ring" in text
    assert "let both keep the same order, or raise pe.channel.depth (now 1)" in text
    kb.launch(kernel, machine.with_overrides({"pe.channel.depth": 4}), mode=mode)


@MODES
def test_many_stuck_pes_are_told_in_few_lines(mode):
    machine = kb.load_machine("grid8x8_pe8")

    def kernel(*, tl):
        column = tl.program_id(1) % tl.columns(1)
        east = column % 2 == 0
        tl.recv(dir="E" if east else "W", shape=(4,), dtype="f32")
        tl.send(dir="E" if east else "W", src=tl.zeros((4,)))

    text = complaint(kernel, machine, mode=mode)
    assert "deadlock: 2 PEs wait for one another in a ring, and 512 PEs in all cannot go on" in text
    assert "stuck in all: cube 0-63 pe 0-7" in text
    assert len(text.splitlines()) <= 8


def test_both_modes_say_the_same_of_a_deadlock():
    def kernel(*, tl):
        tl.send(dir="E", src=tl.recv(dir="W", shape=(4,), dtype="f32"))

    assert complaint(kernel, RING, mode="values") == complaint(kernel, RING, mode="time")


def test_a_deadlock_is_a_channel_error():
    assert issubclass(DeadlockError, ChannelError)
    assert issubclass(ChannelError, KernelError)
