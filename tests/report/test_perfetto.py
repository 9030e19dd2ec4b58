"""A Perfetto trace, read back with the schema, says what the Timeline says."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernbench as kb
from kernbench.errors import DeadlockError, InputError
from kernbench.machine import DIRECTIONS, OPPOSITE
from kernbench.record.trace import Ref, Trace
from kernbench.report.perfetto import write_perfetto
from kernbench.simulate.timeline import Timeline
from kernbench.testing import random_program

from .reading import Read, Slice, read

SEEDS = range(40)


def timelines() -> Iterator[tuple[int, Timeline]]:
    """Timelines of random programs: all kinds of commands on all kinds of machines."""
    for seed in SEEDS:
        trace = random_program(seed).record()
        try:
            yield seed, kb.simulate(trace)
        except DeadlockError:
            continue


@pytest.fixture(scope="module")
def random_traces(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Timeline, Read]]:
    folder = tmp_path_factory.mktemp("traces")
    found = []
    for seed, timeline in timelines():
        write_perfetto(timeline, folder / f"{seed}.pftrace")
        found.append((timeline, read(folder / f"{seed}.pftrace")))
    assert len(found) > 20
    return found


def tiles(x: Any, y: Any, *, tl: Any) -> None:
    """Two tiles through one buffer, a product of each, and a sum that goes one PE east."""
    total = tl.zeros((16, 16), "f32")
    for k in range(4):
        with tl.scratch_scope():
            a = tl.load(x + 512 * k, shape=(16, 16))
            tl.copy_to(total, total + tl.dot(a, a))
    me, last = tl.program_id(0), tl.num_programs(0) - 1
    if me > 0:
        tl.copy_to(total, total + tl.recv(dir="intra_W", shape=(16, 16), dtype="f32"))
    if me < last:
        tl.send(dir="intra_E", src=total)
    else:
        tl.store(y, total)


@pytest.fixture(scope="module")
def chain() -> Timeline:
    machine = kb.load_machine("row4_pe8")
    x, y = kb.shape_only((64, 16), "f16", machine), kb.shape_only((16, 16), "f32", machine, kb.on(0, 0, 0))
    return kb.simulate(kb.record(tiles, machine, (x, y), grid=4))


@cache
def commands_of(timeline: Timeline, pe: int) -> list[Any]:
    return list(timeline.program.trace.commands_of(pe))


def by_command(found: Read) -> dict[tuple[str, int], list[Slice]]:
    slices: dict[tuple[str, int], list[Slice]] = {}
    for each in found.slices:
        slices.setdefault((each.process, each.args["command"]), []).append(each)
    return slices


def occupied(command: Any) -> set[str]:
    """The engines that a command works on, as their tracks are named."""
    if command.op == "composite":
        return {"matrix", "vector"} | ({"load"} if command.access else set())
    engine = {"dot": "matrix"}.get(command.op, command.op)
    return {f"{engine} {DIRECTIONS[command.direction]}" if command.direction >= 0 else engine}


# ---------------------------------------------------------------- slices
def test_each_command_has_one_slice_on_each_engine_that_it_occupies(
    random_traces: list[tuple[Timeline, Read]],
) -> None:
    seen: Counter[str] = Counter()
    for timeline, found in random_traces:
        slices, machine = by_command(found), timeline.program.machine
        for pe in timeline.program.pe.tolist():
            for i, command in enumerate(commands_of(timeline, pe)):
                mine = slices.pop((machine.pe_name(pe), i))
                engines = [s.track.rstrip("0123456789 ") for s in mine]
                assert sorted(engines) == sorted(occupied(command))
                seen.update(occupied(command) & {"load", "store", "matrix", "vector"})
                seen[command.op] += 1
        assert not slices
    assert min(seen[name] for name in ("load", "store", "matrix", "vector", "send", "recv", "composite")) > 5


def test_slices_begin_and_end_when_the_timeline_says(random_traces: list[tuple[Timeline, Read]]) -> None:
    for timeline, found in random_traces:
        machine = timeline.program.machine
        slices = by_command(found)
        for pe in timeline.program.pe.tolist():
            for i, (issue, start, end) in enumerate(zip(*(t.tolist() for t in timeline.of_pe(pe)), strict=True)):
                for each in slices[machine.pe_name(pe), i]:
                    assert (each.start, each.end) == (start, end)  # 1 ns shown is 1 ps: nothing is rounded
                    args = each.args
                    assert (args["start_ps"], args["duration_ps"], args["issue_ps"]) == (start, end - start, issue)
        (run,) = found.run
        assert (run.start, run.end, run.args["makespan_ps"]) == (0, timeline.makespan_ps, timeline.makespan_ps)


def test_slices_of_a_track_follow_one_another(random_traces: list[tuple[Timeline, Read]]) -> None:
    queues = set()
    for _, found in random_traces:
        tracks: dict[tuple[str, str], list[Slice]] = {}
        for each in found.slices:
            tracks.setdefault((each.process, each.track), []).append(each)
        for (_, track), mine in tracks.items():
            queues.add(track)
            assert all(a.end <= b.start for a, b in pairwise(mine))
            order = [s.args["command"] for s in mine]
            assert order == sorted(order)
    assert {"load", "load 0", "load 1", "load 2", "store", "store 1", "matrix", "vector"} <= queues


def test_slices_name_the_command_its_source_line_and_its_sizes(chain: Timeline, tmp_path: Path) -> None:
    write_perfetto(chain, tmp_path / "t.pftrace")
    found = read(tmp_path / "t.pftrace")
    source = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert {s.name for s in found.slices} == {"fill", "load x", "dot", "add", "copy", "recv", "send", "store y"}
    for each in found.slices:
        where, text = each.args["source"].split(": ", 1)
        file, number = where.rsplit(":", 1)
        assert file.endswith("test_perfetto.py")
        assert source[int(number) - 1].strip() == text
        command = commands_of(chain, int(each.process[-1]))[each.args["command"]]
        assert each.category == command.op
        assert each.args.get("bytes", 0) == command.nbytes
    load, dot, add = (next(s for s in found.slices if s.name == name) for name in ("load x", "dot", "add"))
    assert load.args["result"].startswith("f16 (16, 16) at scratch ")
    assert load.args["access"] == "f16 (16, 16), strides (16, 1)"
    assert load.args["memory"] == "sip0.cube0"
    assert "a = tl.load(x + 512 * k" in load.args["source"]
    assert dot.args["work"] == "batch 1, m 16, n 16, k 16"
    assert add.args["work"] == "256 elements"
    assert add.args["operands"].count("f32 (16, 16) at scratch") == 2


def test_remote_addresses_name_the_memory_that_holds_them(random_traces: list[tuple[Timeline, Read]]) -> None:
    remote = 0
    for timeline, found in random_traces:
        slices, machine = by_command(found), timeline.program.machine
        for pe in timeline.program.pe.tolist():
            for i, command in enumerate(commands_of(timeline, pe)):
                if command.access is not None:
                    args = slices[machine.pe_name(pe), i][0].args
                    assert args["address"] == command.access.address % 2**44
                    place = [int(part.lstrip("sipcube")) for part in args["memory"].split(".")]
                    home = place[0] if len(place) == 1 else place[0] * machine.cubes_per_sip + place[1]
                    assert home == command.access.address >> 44
                    remote += not machine.pe_name(pe).startswith(args["memory"] + ".")
    assert remote > 20


# ---------------------------------------------------------------- what slices waited for
def test_what_a_slice_waited_for_ended_when_it_went_on(random_traces: list[tuple[Timeline, Read]]) -> None:
    seen: Counter[str] = Counter()
    for timeline, found in random_traces:
        machine = timeline.program.machine
        pe_of = {machine.pe_name(pe): pe for pe in timeline.program.pe.tolist()}
        for each in found.slices:
            pe, i = pe_of[each.process], each.args["command"]
            _check_wait(timeline, pe, i, each.args)
            seen[each.args["waited_for"]] += 1
    assert set(seen) == {"issue", "operand", "message", "reuse", "engine", "queue", "credit"}


def _check_wait(timeline: Timeline, pe: int, i: int, args: dict[str, Any]) -> None:
    machine = timeline.program.machine
    issue, start, end = timeline.of_pe(pe)
    ready = int(issue[i - 1]) + machine.pe.issue if i else 0
    assert args["waited_ps"] == start[i] - ready >= 0
    went_on = start[i] if start[i] > issue[i] else issue[i]
    reason, on = args["waited_for"], args.get("waited_for_command")
    assert (reason == "issue") == (args["waited_ps"] == 0)
    command = commands_of(timeline, pe)[i]
    if on is not None:
        assert on < i
        assert went_on in (start[on], end[on])
    if reason in ("operand", "reuse") and start[i] > issue[i]:
        assert (on, ("operand", "reuse").index(reason)) in command.deps
        assert went_on == end[on]
    elif reason == "engine":
        assert on is not None
        assert occupied(commands_of(timeline, pe)[on]) & occupied(command)
    elif reason == "queue":
        assert on is not None
        assert went_on == start[on] == issue[i]
    elif reason == "credit":
        assert command.op == "send"
        assert on is None
        taken = _partner(timeline, pe, command, args["message"] - machine.pe.channel.depth)
        assert went_on == taken[1] + _latency(timeline, pe, command.direction)
    elif reason == "message" and on is None:
        assert command.op == "recv"
        sender = int(machine.network.peer[pe, command.direction])
        sent = _partner(timeline, pe, command, args["message"])
        assert went_on == sent[2] + _latency(timeline, sender, int(OPPOSITE[command.direction]))


def _latency(timeline: Timeline, sender: int, direction: int) -> int:
    network = timeline.program.machine.network
    return int(network.link_latency[network.link_of[sender, direction]])


def _partner(timeline: Timeline, pe: int, command: Any, message: int) -> tuple[int, int, int]:
    """(index, start, end) of the SEND or RECV at the other end of a message."""
    other = int(timeline.program.machine.network.peer[pe, command.direction])
    op = "recv" if command.op == "send" else "send"
    there = [
        i for i, c in enumerate(commands_of(timeline, other))
        if c.op == op and c.direction == OPPOSITE[command.direction]
    ]  # fmt: skip
    _, start, end = timeline.of_pe(other)
    return there[message], int(start[there[message]]), int(end[there[message]])


# ---------------------------------------------------------------- flows
def test_flows_lead_from_each_send_to_its_receive(random_traces: list[tuple[Timeline, Read]]) -> None:
    total = 0
    for timeline, found in random_traces:
        machine = timeline.program.machine
        pe_of = {machine.pe_name(pe): pe for pe in timeline.program.pe.tolist()}
        arrivals = {flow: s for s in found.slices for flow in s.flows_in}
        departures = [s for s in found.slices if s.category == "send"]
        assert len(arrivals) == len(departures) == sum(s.category == "recv" for s in found.slices)
        for send in departures:
            (flow,) = send.flows_out
            recv = arrivals.pop(flow)
            pe, command = pe_of[send.process], commands_of(timeline, pe_of[send.process])[send.args["command"]]
            assert recv.args["command"] == _partner(timeline, pe, command, send.args["message"])[0]
            assert recv.process == send.args["peer"]
            assert send.process == recv.args["peer"]
            assert recv.args["message"] == send.args["message"]
            assert send.start < recv.start
            total += 1
    assert total > 50


def test_flows_are_left_out_where_one_end_is(chain: Timeline, tmp_path: Path) -> None:
    summary = write_perfetto(chain, tmp_path / "t.pftrace", pes=[0, 1, 3])
    found = read(tmp_path / "t.pftrace")
    assert summary.flows == 1
    ends = [(s.process[-1], len(s.flows_out), len(s.flows_in)) for s in found.slices if s.flows_out or s.flows_in]
    assert sorted(ends) == [("0", 1, 0), ("1", 0, 1)]


# ---------------------------------------------------------------- counters
def test_counters_are_never_negative_and_end_at_zero(random_traces: list[tuple[Timeline, Read]]) -> None:
    for timeline, found in random_traces:
        for values in found.counters.values():
            times = [time for time, _ in values]
            assert times == sorted(set(times))
            assert times[-1] <= timeline.makespan_ps
            assert min(value for _, value in values) >= 0
            assert values[-1][1] == 0
            assert values[0][1] > 0


def integral(values: list[tuple[int, int]]) -> int:
    """Sum of value x time."""
    return sum(v * (after - t) for (t, v), (after, _) in pairwise(values))


def test_scratch_stays_below_the_recorded_peak(random_traces: list[tuple[Timeline, Read]]) -> None:
    for timeline, found in random_traces:
        peaks = _scratch_peaks(timeline.program.trace)
        for (process, name), values in found.counters.items():
            if name == "scratch":
                assert max(v for _, v in values) <= peaks[process]


def _scratch_peaks(trace: Trace) -> dict[str, int]:
    return {trace.machine.pe_name(pe): c.scratch_peak_bytes for c in trace.classes for pe in c.pes.tolist()}


def test_scratch_holds_what_lives(chain: Timeline, tmp_path: Path) -> None:
    write_perfetto(chain, tmp_path / "t.pftrace", pes=[0])
    found = read(tmp_path / "t.pftrace")
    commands, (_, start, end) = commands_of(chain, 0), chain.of_pe(0)
    trace = chain.program.trace
    cls = next(c for c in trace.classes if 0 in c.pes)
    area = 0
    for tile, info in enumerate(cls.tiles):
        read_by = [i for i, c in enumerate(commands) if tile in [s.tile for s in c.srcs if isinstance(s, Ref)]]
        users = [i for i, c in enumerate(commands) if tile in c.dst] + read_by
        area += info.nbytes * int(end[users].max() - start[users].min())
    values = found.counters["sip0.cube0.pe0", "scratch"]
    assert integral(values) == area
    assert max(v for _, v in values) == 1024 + 512 + 1024 + 1024  # total, a, a @ a, total + a @ a


def test_messages_in_flight_never_exceed_the_channel(random_traces: list[tuple[Timeline, Read]]) -> None:
    full = 0
    for timeline, found in random_traces:
        depth = timeline.program.machine.pe.channel.depth
        sends = {(s.process, s.track.partition(" ")[2]) for s in found.slices if s.category == "send"}
        channels = {(p, n.rpartition(" ")[2]): v for (p, n), v in found.counters.items() if n.startswith("messages")}
        assert channels.keys() == sends
        for values in channels.values():
            assert max(v for _, v in values) <= depth
            full += max(v for _, v in values) == depth
    assert full > 10


def test_requests_at_a_memory_are_those_of_all_pes(random_traces: list[tuple[Timeline, Read]]) -> None:
    for _, found in random_traces:
        open_time: Counter[str] = Counter()
        seen = set()
        for each in found.slices:
            if "memory" in each.args and (each.process, each.args["command"]) not in seen:
                seen.add((each.process, each.args["command"]))
                open_time[each.args["memory"]] += each.end - each.start
        counted = {name.partition(" at ")[2]: integral(v) for (_, name), v in found.counters.items() if " at " in name}
        assert counted == dict(open_time)


def test_requests_of_pes_that_are_not_shown_count_too(chain: Timeline, tmp_path: Path) -> None:
    write_perfetto(chain, tmp_path / "all.pftrace")
    write_perfetto(chain, tmp_path / "one.pftrace", pes=[2])
    (every,), (one,) = (
        [v for (_, name), v in read(tmp_path / f"{which}.pftrace").counters.items() if name.startswith("requests")]
        for which in ("all", "one")
    )
    assert every == one


# ---------------------------------------------------------------- selection and limit
def test_only_the_pes_selected_are_shown(chain: Timeline, tmp_path: Path) -> None:
    summary = write_perfetto(chain, tmp_path / "t.pftrace", pes=(pe for pe in (3, 1)))
    found = read(tmp_path / "t.pftrace")
    assert found.processes[1:] == ["sip0.cube0.pe1", "sip0.cube0.pe3"]
    assert {s.process for s in found.slices} == set(found.processes[1:])
    assert (summary.pes, summary.pes_not_selected, summary.pes_left_out) == (2, 2, 0)
    assert summary.slices == len(found.slices)
    assert summary.counter_values == sum(map(len, found.counters.values()))
    assert summary.is_complete
    assert "2 PEs not selected" in str(summary)


@pytest.mark.parametrize("limit", [1, 5, 30, 60, 100, 150, 200, 1000])
def test_the_limit_leaves_whole_pes_out(chain: Timeline, tmp_path: Path, limit: int) -> None:
    full = write_perfetto(chain, tmp_path / "full.pftrace")
    summary = write_perfetto(chain, tmp_path / "t.pftrace", max_events=limit)
    found = read(tmp_path / "t.pftrace")
    assert len(found.slices) + sum(map(len, found.counters.values())) <= limit
    assert summary.slices == len(found.slices)
    assert summary.slices + summary.slices_left_out == full.slices
    assert summary.pes + summary.pes_left_out == 4
    assert summary.is_complete == (limit == 1000)
    shown = by_command(found)
    if found.counters:
        whole = {(f"sip0.cube0.pe{pe}", i) for pe in range(summary.pes) for i in range(len(commands_of(chain, pe)))}
        assert shown.keys() == whole
    else:  # not even one PE fits: its first commands
        assert sorted(shown) == [("sip0.cube0.pe0", i) for i in range(limit)][: len(shown)]
        assert len(shown) == min(limit, len(commands_of(chain, 0)))
    if not summary.is_complete:
        assert f"left out by the limit of {limit} events" in str(summary)


def test_pes_that_take_no_part_are_passed_over(chain: Timeline, tmp_path: Path) -> None:
    summary = write_perfetto(chain, tmp_path / "t.pftrace", pes=[0, 31])
    assert summary.pes == 1
    with pytest.raises(InputError, match=r"none of the PEs selected takes part in this run, only cube 0 pe 0-3"):
        write_perfetto(chain, tmp_path / "none.pftrace", pes=[31])
    assert not (tmp_path / "none.pftrace").exists()


@pytest.mark.parametrize("pe", [-1, 32])
def test_pes_that_do_not_exist_are_refused(chain: Timeline, tmp_path: Path, pe: int) -> None:
    with pytest.raises(InputError, match=rf"there is no PE {pe}: row4_pe8 has PEs 0-31"):
        write_perfetto(chain, tmp_path / "t.pftrace", pes=[0, pe])


def test_a_limit_below_one_is_refused(chain: Timeline, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="max_events is at least 1, not 0"):
        write_perfetto(chain, tmp_path / "t.pftrace", max_events=0)


# ---------------------------------------------------------------- the file
def test_the_trace_says_how_to_read_its_times(chain: Timeline, tmp_path: Path) -> None:
    write_perfetto(chain, tmp_path / "t.pftrace")
    found = read(tmp_path / "t.pftrace")
    assert found.title == "tiles on row4_pe8: 1 ns shown = 1 ps simulated"
    assert found.processes[0] == "tiles on row4_pe8 (1 ns shown = 1 ps simulated)"
    assert found.run[0].args["machine_sha256"] == chain.program.machine.sha256


def test_the_same_timeline_gives_the_same_bytes(chain: Timeline, tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.pftrace" for i in range(2)]
    summaries = [write_perfetto(chain, path) for path in paths]
    data = [path.read_bytes() for path in paths]
    assert data[0] == data[1]
    assert summaries[0].nbytes == len(data[0])


def test_both_engines_give_the_same_bytes(chain: Timeline, tmp_path: Path) -> None:
    write_perfetto(chain, tmp_path / "compiled.pftrace")
    write_perfetto(kb.simulate(chain.program.trace, engine="simpy"), tmp_path / "simpy.pftrace")
    assert (tmp_path / "compiled.pftrace").read_bytes() == (tmp_path / "simpy.pftrace").read_bytes()


def test_how_many_pes_are_handled_together_changes_no_slice(
    chain: Timeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_perfetto(chain, tmp_path / "together.pftrace")
    monkeypatch.setattr("kernbench.report.perfetto._BATCH", 1)
    write_perfetto(chain, tmp_path / "single.pftrace")
    together, single = (read(tmp_path / f"{name}.pftrace") for name in ("together", "single"))
    assert by_command(together) == by_command(single)
    assert together.counters == single.counters


def test_a_file_that_cannot_be_written_is_refused_and_leaves_nothing(chain: Timeline, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write .*no/t\.pftrace: No such file or directory"):
        write_perfetto(chain, tmp_path / "no" / "t.pftrace")
    with pytest.raises(InputError, match="Is a directory"):
        write_perfetto(chain, tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_earlier_trace_stays_if_writing_fails(
    chain: Timeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.pftrace"
    write_perfetto(chain, path)
    before = path.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kernbench.report.packets.PacketWriter.counter_value", full)
    with pytest.raises(InputError, match="No space left on device"):
        write_perfetto(chain, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_schema_is_loaded_only_to_write() -> None:
    code = "import sys, kernbench.report.perfetto; print([m for m in sys.modules if m.partition('.')[0] == 'perfetto'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_run_with_idle_pes_shows_them_without_tracks(tmp_path: Path) -> None:
    machine = kb.load_machine("cube1_pe8")
    x = kb.tensor(np.ones((8, 4), np.float32), machine)

    def one_works(x: Any, *, tl: Any) -> None:
        if tl.program_id(0) == 2:
            tl.store(x, tl.load(x, shape=(8, 4)))

    summary = write_perfetto(kb.simulate(kb.record(one_works, machine, (x,))), tmp_path / "t.pftrace")
    found = read(tmp_path / "t.pftrace")
    assert len(found.processes) == 9
    assert {s.process for s in found.slices} == {"sip0.cube0.pe2"}
    assert (summary.pes, summary.slices) == (8, 2)
