"""Heat is busy time over the makespan, of every memory and every link that is drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import kernbench as kb
from kernbench.bench import find_bench
from kernbench.errors import InputError
from kernbench.report.plots.heat import heat_data, heat_figure
from kernbench.report.plots.style import picture_bytes

MACHINES = ["row4_pe8", "grid8x8_pe8", "sip4_grid4x4_pe8"]


@pytest.mark.parametrize("machine", MACHINES)
def test_shares_are_busy_time_over_the_makespan(timeline_of, machine) -> None:
    timeline = timeline_of(machine)
    data, network = heat_data(timeline), timeline.program.machine.network
    channels = timeline.memory_busy_ps.reshape(network.n_memories, -1)
    assert len(data.memories) == network.n_memories
    for memory, busy in zip(data.memories, channels, strict=True):
        assert memory.channel_busy_ps == tuple(busy)
        assert memory.share * data.makespan_ps * len(busy) == pytest.approx(busy.sum())
    assert [link.name for link in data.links] == network.link_names()[: network.n_shared]
    for i, link in enumerate(data.links):
        assert link.busy_ps == timeline.link_busy_ps[i]
        assert link.nbytes == timeline.link_nbytes[i]
        assert link.share * data.makespan_ps == pytest.approx(link.busy_ps)
    every = [m.share for m in data.memories] + [link.share for link in data.links] + list(data.pe_links)
    assert all(0 <= share <= 1 for share in every)
    assert any(share > 0 for share in every)


def test_links_between_pes_are_a_mean_over_their_cube(timeline_of) -> None:
    timeline = timeline_of("row4_pe8")
    data, network = heat_data(timeline), timeline.program.machine.network
    ends = network.link_ends[network.n_shared :] // network.pes_per_cube
    assert (ends[:, 0] == ends[:, 1]).all()
    for cube, share in enumerate(data.pe_links):
        busy = timeline.link_busy_ps[network.n_shared : network.n_links][ends[:, 0] == cube]
        assert share == pytest.approx(busy.mean() / timeline.makespan_ps)


def test_a_run_of_no_time_has_no_heat(timeline_of) -> None:
    timeline = timeline_of("row4_pe8")
    with pytest.raises(InputError, match="the run took no time"):
        heat_data(replace(timeline, end_ps=np.zeros_like(timeline.end_ps)))


@pytest.mark.parametrize(
    ("machine", "changes"),
    [
        ("row4_pe8", {}),
        ("sip4_grid4x4_pe8", {"sip.cubes.arrangement": "torus", "system.sips.arrangement": "fully_connected"}),
    ],
)
def test_it_is_drawn_the_same_twice(machine, changes) -> None:
    loaded, bench = kb.load_machine(machine).with_overrides(changes), find_bench("gqa_decode_long")
    args, _ = bench.arguments(bench.spec(S_kv=2048, h_q=8, h_kv=1, d_head=64), loaded, None)
    data = heat_data(kb.simulate(kb.record(bench.kernel, loaded, args=args)))
    assert picture_bytes(heat_figure(data), "svg") == picture_bytes(heat_figure(data), "svg")
    assert picture_bytes(heat_figure(data), "png").startswith(b"\x89PNG")
