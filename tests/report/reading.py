"""Read a Perfetto trace back with the schema, into plain rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema


@dataclass
class Slice:
    """A slice; ``args`` holds its debug annotations, with interned texts looked up."""

    process: str
    track: str
    name: str
    category: str
    start: int
    end: int
    args: dict[str, Any]
    flows_out: list[int]
    flows_in: list[int]


@dataclass
class Read:
    """What a trace shows."""

    title: str = ""
    processes: list[str] = field(default_factory=list)
    slices: list[Slice] = field(default_factory=list)
    """Those of commands, in the order of the file."""
    run: list[Slice] = field(default_factory=list)
    """Those of the first process."""
    counters: dict[tuple[str, str], list[tuple[int, int]]] = field(default_factory=dict)
    """(process, counter) -> (time, value)."""


_TEXTS = ("event_names", "event_categories", "debug_annotation_names", "debug_annotation_string_values")


def read(path: Path) -> Read:
    """Read a trace; fail on anything that Perfetto would not understand."""
    trace = schema.Trace.FromString(path.read_bytes())
    found = Read()
    tracks: dict[int, Any] = {}
    texts: dict[str, dict[int, str]] = {table: {} for table in _TEXTS}
    events: dict[int, list[tuple[int, int, Any]]] = {}
    for order, packet in enumerate(trace.packet):
        assert packet.trusted_packet_sequence_id == 1
        for table in _TEXTS:
            for entry in getattr(packet.interned_data, table):
                assert entry.iid not in texts[table]
                texts[table][entry.iid] = entry.str.decode() if table.endswith("values") else entry.name
        if packet.HasField("trace_config"):
            found.title = packet.trace_config.unique_session_name
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid not in tracks, "each track has a uuid of its own"
            assert not track.parent_uuid or track.parent_uuid in tracks, "a parent comes first"
            tracks[track.uuid] = track
            if track.HasField("process"):
                found.processes.append(track.process.process_name)
        if packet.HasField("track_event"):
            event = packet.track_event
            _look_up(event, texts)
            assert event.track_uuid in tracks, "a track is described before it is used"
            events.setdefault(event.track_uuid, []).append((packet.timestamp, order, event))
    assert trace.packet[0].sequence_flags == schema.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    pids = [t.process.pid for t in tracks.values() if t.HasField("process")]
    assert len(set(pids)) == len(pids)
    assert min(pids) > 0
    for uuid, mine in events.items():
        _read_track(found, tracks, uuid, [(time, event) for time, _, event in sorted(mine, key=lambda e: e[:2])])
    return found


def _look_up(event: Any, texts: dict[str, dict[int, str]]) -> None:
    """Put texts in place of numbers, as they stand when the packet is read."""
    if event.name_iid:
        event.name = texts["event_names"][event.name_iid]
    for number in event.category_iids:
        event.categories.append(texts["event_categories"][number])
    for note in event.debug_annotations:
        note.name = texts["debug_annotation_names"][note.name_iid]
        if note.HasField("string_value_iid"):
            note.string_value = texts["debug_annotation_string_values"][note.string_value_iid]


def _read_track(found: Read, tracks: dict[int, Any], uuid: int, events: list[tuple[int, Any]]) -> None:
    """Read one track's events, in the order of time: values, or slices that never overlap."""
    track = tracks[uuid]
    process = tracks[track.parent_uuid].process.process_name
    if track.HasField("counter"):
        assert all(event.type == schema.TrackEvent.TYPE_COUNTER for _, event in events)
        assert (process, track.name) not in found.counters
        found.counters[process, track.name] = [(time, event.counter_value) for time, event in events]
        return
    assert len(events) % 2 == 0
    for (start, begin), (end, finish) in zip(events[::2], events[1::2], strict=True):
        assert begin.type == schema.TrackEvent.TYPE_SLICE_BEGIN
        assert finish.type == schema.TrackEvent.TYPE_SLICE_END
        args = {n.name: n.string_value if n.HasField("string_value") else n.int_value for n in begin.debug_annotations}
        assert len(args) == len(begin.debug_annotations)
        found_slice = Slice(
            process, track.name, begin.name, begin.categories[0], start, end, args,
            list(begin.flow_ids), list(begin.terminating_flow_ids),
        )  # fmt: skip
        (found.run if track.name == "run" else found.slices).append(found_slice)
