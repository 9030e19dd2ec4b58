"""The loop over tiles of keys and values that every attention kernel has, as steps of a workgroup."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernbench.simulate.launch.steps import (
    MATRIX,
    START,
    VECTOR,
    Engines,
    Kind,
    Step,
    Workgroup,
    load,
    pause,
    run,
    store,
    wait,
    work,
)


def _unrolled(steps: list[Step], iteration: int, before: int) -> list[Step]:
    """Return steps of a body as one iteration of it does them, ``before`` tiles further on."""
    plain = []
    for s in steps:
        at = iteration + s.ahead
        offset = s.offset + before + at if s.kind == Kind.LOAD else 0
        plain.append(replace(s, token=s.token + at % s.depth, depth=1, ahead=0, offset=offset, last_nbytes=-1))
    return plain


@dataclass(frozen=True)
class TileLoop:
    """What a workgroup does: queries in, tiles of keys and values, results out."""

    q_bytes: int
    k_bytes: int
    """Of one tile."""
    v_bytes: int
    """Of one tile; 0 if the values are a part of the keys (MLA)."""
    last_bytes: tuple[int, int]
    """Of the last tile's keys and values: fewer, if the tail is ragged."""
    scores_ps: int
    """Matrix work of queries x keys."""
    softmax_ps: int
    """Vector work of a tile."""
    values_ps: int
    """Matrix work of probabilities x values."""
    barrier_ps: int
    """Waiting that occupies nothing: the reduction across waves."""
    buffers: int
    """Tiles that are asked for before the loop needs them; 0: a tile is asked for when its turn comes."""
    overlaps: bool
    """Whether the matrix work of the next tile goes on beside the vector work of this one."""
    shared: bool
    """Whether other workgroups read the same tiles."""
    out_bytes: int
    prologue_ps: int
    epilogue_ps: int
    q_stream: int = -1
    """Stream of the queries, if other workgroups read the same ones (the other splits)."""
    look_ps: int = 0
    """Reading what says whether a tile is skipped."""

    def workgroup(self, tiles: int, skipped: int = 0) -> Workgroup:
        """Return a workgroup that goes through ``tiles`` tiles and skips others."""
        head: list[Step] = [*pause(self.prologue_ps, START), load(0, self.q_bytes, stream=self.q_stream)]
        head += [wait(0)] if tiles else []  # without tiles nothing needs the queries
        tail = [store(self.out_bytes), *pause(self.look_ps * skipped), *pause(self.epilogue_ps, START)]
        if self.buffers and self.overlaps:
            first, body = self._overlapped(tiles)
        elif self.buffers:
            first, body = self._prefetched(tiles)
        else:
            first, body = [], self._on_demand()
        return Workgroup((*head, *first), tuple(body), tuple(tail), tiles)

    def followed_by(self, tiles: int, last: TileLoop, last_tiles: int) -> Workgroup:
        """Return a workgroup with a second loop behind the first, which fills its own pipeline.

        The second loop goes on with the tiles behind the first's ``tiles``.
        """
        group = self.workgroup(tiles)
        first, body = last._prefetched(last_tiles) if last.buffers else ([], last._on_demand())
        steps = _unrolled(first, 0, tiles)
        for i in range(last_tiles):
            steps += _unrolled([s for s in body if i + s.ahead < last_tiles], i, tiles)
        return replace(group, epilogue=(*steps, *group.epilogue))

    def _k(self, token: int, depth: int, ahead: int) -> Step:
        return self._load(token, self.k_bytes, self.last_bytes[0], 0, depth, ahead)

    def _v(self, token: int, depth: int, ahead: int) -> Step:
        return self._load(token, self.v_bytes, self.last_bytes[1], 1, depth, ahead)

    def _load(self, token: int, nbytes: int, last: int, stream: int, depth: int, ahead: int) -> Step:
        stream = stream if self.shared else -1
        return load(token, nbytes, stream=stream, depth=depth, ahead=ahead, last=last if last != nbytes else -1)

    def _fetch(self, ahead: int) -> list[Step]:
        """Ask for one tile of keys and one of values."""
        b = self.buffers
        return [self._k(1, b, ahead)] + ([self._v(1 + b, b, ahead)] if self.v_bytes else [])

    def _prefetched(self, tiles: int) -> tuple[list[Step], list[Step]]:
        b = self.buffers
        first = [step for j in range(min(b, tiles)) for step in self._fetch(j)]
        busy = 1 + 2 * b
        body = [wait(1, depth=b), *work(busy, self.scores_ps, Engines.BOTH, MATRIX)]
        body += [*work(busy, self.softmax_ps, Engines.BOTH, VECTOR), *pause(self.barrier_ps)]
        body += [wait(1 + b, depth=b)] if self.v_bytes else []
        return first, [*body, *work(busy, self.values_ps, Engines.BOTH, MATRIX), *self._fetch(b)]

    def _on_demand(self) -> list[Step]:
        body = [*pause(self.look_ps), self._k(1, 1, 0), wait(1), *work(3, self.scores_ps, Engines.BOTH, MATRIX)]
        body += [*work(3, self.softmax_ps, Engines.BOTH, VECTOR)]
        body += [*pause(self.barrier_ps)]
        body += [self._v(2, 1, 0), wait(2)] if self.v_bytes else []
        return [*body, *work(3, self.values_ps, Engines.BOTH, MATRIX)]

    def _overlapped(self, tiles: int) -> tuple[list[Step], list[Step]]:
        """Issue the next tile's scores before this tile's softmax: the engines work side by side."""
        b = self.buffers
        scores, values, softmax = 1 + 2 * b, 3 + 2 * b, 4 + 2 * b
        first = [step for j in range(min(b, tiles)) for step in self._fetch(j)]
        if tiles:
            first += [wait(1, depth=b), run(scores, max(self.scores_ps, 1), Engines.MATRIX, depth=2)]
        ahead = [
            wait(1, depth=b, ahead=1),
            run(scores, max(self.scores_ps, 1), Engines.MATRIX, depth=2, ahead=1),
        ]
        # with its scores done a tile's keys are no longer needed: their buffer takes those of a later tile
        body = [wait(scores, depth=2, cause=MATRIX), self._k(1, b, b), *ahead]
        body += [*work(softmax, self.softmax_ps, Engines.VECTOR, VECTOR), *pause(self.barrier_ps)]
        body += [wait(1 + b, depth=b)] if self.v_bytes else []
        body += [*work(values, self.values_ps, Engines.MATRIX, MATRIX)]
        return first, [*body, *([self._v(1 + b, b, b)] if self.v_bytes else [])]
