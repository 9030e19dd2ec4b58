"""Recording many PEs together gives every one of them what recording it alone gives."""

import operator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernbench as kb
from kernbench.record.record import record_members
from kernbench.testing import programs, random_program

from .helpers import behaviour, small_machine

MACHINES = {
    "two cubes of 2 x 2": small_machine(),
    "a row of three": small_machine(cubes=1, columns=3, rows=1),
    "four sips": kb.load_machine(
        "sip4_grid4x4_pe8",
        overrides={"sip.cubes.columns": 2, "sip.cubes.rows": 1, "cube.pes.columns": 2, "cube.pes.rows": 1},
    ),
}

# ---------------------------------------------------------------- random kernels, as trees that a kernel walks
BINARY = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "&": operator.and_, "^": operator.xor,
    "//": lambda a, b: a // (b % 3 + 1), "%": lambda a, b: a % (b % 3 + 1),
    "<": operator.lt, "==": operator.eq, ">=": operator.ge, "min": min, "max": max,
}  # fmt: skip

expressions = st.recursive(
    st.sampled_from(["pe", "cube", "sip", "i", "rows", "scalar"]) | st.integers(0, 5),
    lambda inner: st.tuples(st.sampled_from(sorted(BINARY)), inner, inner),
    max_leaves=5,
)
simple = st.one_of(
    st.tuples(st.just("load"), expressions),
    st.tuples(st.just("store"), expressions),
    st.tuples(st.just("load own"), expressions),
    st.tuples(st.just("store column"), expressions),
    st.tuples(st.just("load column"), expressions),
    st.tuples(st.just("scalar"), expressions),
    st.tuples(st.just("add"), expressions),
    st.tuples(st.just("dot")),
    st.tuples(st.just("copy")),
    st.tuples(st.just("send"), st.sampled_from(["intra_E", "intra_W", "E", "W"])),
    st.tuples(st.just("recv"), st.sampled_from(["intra_E", "intra_W", "E", "W"])),
)
blocks = st.recursive(
    st.lists(simple, min_size=1, max_size=5),
    lambda inner: st.lists(
        st.one_of(
            simple,
            st.tuples(st.just("if"), expressions, inner, inner),
            st.tuples(st.just("for"), expressions, inner),
            st.tuples(st.just("scope"), st.integers(1, 3), inner),
        ),
        min_size=1,
        max_size=6,
    ),
    max_leaves=8,
)
statements = st.tuples(blocks, blocks, blocks).map(lambda parts: [s for part in parts for s in part])


class Walk:
    """One run of a random kernel."""

    def __init__(self, x, own, control, tl):
        self.x, self.own, self.control, self.tl = x, own, control, tl
        self.names = {"pe": tl.program_id(0), "cube": tl.program_id(1), "sip": tl.program_id(2), "rows": x.rows}
        self.names |= {"i": 0, "scalar": 1}
        self.kept = tl.zeros((1, 4), "f32")
        self.tile = self.kept

    def value(self, tree):
        if isinstance(tree, tuple):
            return BINARY[tree[0]](self.value(tree[1]), self.value(tree[2]))
        return self.names.get(tree, tree)

    def run(self, body):
        for statement in body:
            getattr(self, statement[0].replace(" ", "_") + "_")(*statement[1:])

    def if_(self, condition, then, otherwise):
        self.run(then if self.value(condition) else otherwise)

    def for_(self, count, body):
        outer = self.names["i"]
        for i in range(self.value(count) % 3):
            self.names["i"] = i
            self.run(body)
        self.names["i"] = outer

    def scope_(self, buffers, body):
        outer = self.tile
        with self.tl.scratch_scope(buffers=buffers):
            self.run(body)
        self.tile = outer

    def load_(self, row):
        if self.x.rows > 0:
            self.tile = self.tl.load(self.x.row(self.value(row) % self.x.rows), shape=(1, 4))

    def load_own_(self, row):
        self.tile = self.tl.load(self.own + 16 * (self.value(row) % 8), shape=(1, 4), dtype="f32")

    def store_(self, row):
        self.tl.store(self.own.row(self.value(row) % 8), self.tile)

    def store_column_(self, column):
        """Store with gaps: between two columns there is no byte in common, though their bounds overlap."""
        self.tl.store(self.own + 4 * (self.value(column) % 4), self.tile.T, strides=(4, 1))

    def load_column_(self, column):
        self.tile = self.tl.load(self.own.at(2, self.value(column) % 4), shape=(4, 1), strides=(4, 1)).T

    def scalar_(self, index):
        self.names["scalar"] = self.tl.load_scalar(self.control + 4 * (self.value(index) % 8))

    def add_(self, number):
        self.tile = self.tile + self.value(number)

    def dot_(self):
        self.tile = self.tl.dot(self.tl.dot(self.tile, self.tile.T), self.tile)

    def copy_(self):
        self.tl.copy_to(self.kept, self.tile)

    def send_(self, direction):
        if self.has_neighbour(direction):
            self.tl.send(dir=direction, src=self.tile)

    def recv_(self, direction):
        if self.has_neighbour(direction):
            self.tile = self.tl.recv(dir=direction, shape=(1, 4), dtype="f32")

    def has_neighbour(self, direction):
        axis = 0 if direction.startswith("intra") else 1
        column = self.tl.program_id(axis) % self.tl.columns(axis)
        return column < self.tl.columns(axis) - 1 if direction.endswith("E") else column > 0


def random_kernel(x, own, control, body, *, tl):
    Walk(x, own, control, tl).run(body)


@settings(max_examples=120, deadline=None)
@given(body=statements, name=st.sampled_from(sorted(MACHINES)), rows=st.integers(0, 40), seed=st.integers(0, 2**20))
def test_every_pe_does_what_it_does_alone(body, name, rows, seed):
    machine = MACHINES[name]
    everywhere = ("sip", "cube", "pe")
    x = kb.shape_only((rows, 4), "f32", machine, kb.split(axis=0, over=everywhere))
    own = kb.shape_only((8 * machine.n_pes, 4), "f32", machine, kb.split(axis=0, over=everywhere))
    control = kb.tensor(np.random.default_rng(seed).integers(0, 4, 8 * machine.n_pes).astype(np.int32), machine,
                        kb.split(axis=0, over=everywhere))  # fmt: skip
    args = (x, own, control, body)
    together = record_members(random_kernel, machine, args)
    assert sorted(pe for cls in together.classes for pe in cls.pes) == list(range(machine.n_pes))
    for pe in range(machine.n_pes):
        alone = record_members(random_kernel, machine, args, members=[pe])
        assert behaviour(together, pe) == behaviour(alone, pe)


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_with_messages_are_recorded_alike(seed, monkeypatch):
    program = random_program(seed, length=20)
    together = program.record()
    for pe in [pe for cls in together.classes for pe in cls.pes]:
        monkeypatch.setattr(programs, "record", lambda *args, pe=pe: record_members(*args, members=[pe]))
        assert behaviour(together, pe) == behaviour(program.record(), pe)
