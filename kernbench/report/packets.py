"""Packets of a Perfetto trace: tracks, slices, counter values and flows as protobuf, written one by one to a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

ROOT_UUID = 0
"""Perfetto's own track above all processes."""
_PACKET_FIELD = b"\x0a"
"""Key of ``Trace.packet``: field 1, with a length."""


class PacketWriter:
    """Writes packets of one sequence as they come; none is kept.

    Times are integers in the trace's unit. Names and texts are interned: written once, referred to by number.
    """

    def __init__(self, file: BinaryIO) -> None:
        # Imported here: the schema takes a fifth of a second to load, and only this file needs it.
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

        self._schema: Any = schema
        self._file = file
        self._numbers: dict[str, dict[str, int]] = {}
        self._new_names = schema.InternedData()
        self._has_new_names = False
        self._counter_packet = self._packet()
        self._counter_packet.track_event.type = schema.TrackEvent.TYPE_COUNTER
        self._end_packet = self._packet()
        self._end_packet.track_event.type = schema.TrackEvent.TYPE_SLICE_END
        self.nbytes = 0

    def begin(self, title: str) -> None:
        """Write what comes first: the title, and that processes are shown in the order of their ranks."""
        first = self._schema.TracePacket(trusted_packet_sequence_id=1, first_packet_on_sequence=True)
        first.sequence_flags = self._schema.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        first.track_descriptor.uuid = ROOT_UUID
        first.track_descriptor.process_ordering = self._schema.TrackDescriptor.PROCESS_ORDERING_EXPLICIT
        self._write(first)
        named = self._packet()
        named.trace_config.unique_session_name = title
        self._write(named)

    def process(self, uuid: int, pid: int, name: str, rank: int) -> None:
        """Describe a process."""
        packet = self._packet()
        track = packet.track_descriptor
        track.uuid, track.sibling_order_rank = uuid, rank
        track.process.pid, track.process.process_name = pid, name
        track.child_ordering = self._schema.TrackDescriptor.EXPLICIT
        self._write(packet)

    def track(self, uuid: int, parent: int, name: str, rank: int) -> None:
        """Describe a track of slices."""
        self._write(self._described(uuid, parent, name, rank))

    def counter_track(self, uuid: int, parent: int, name: str, rank: int, is_bytes: bool) -> None:
        """Describe a track of counter values."""
        packet = self._described(uuid, parent, name, rank)
        unit = self._schema.CounterDescriptor
        packet.track_descriptor.counter.unit = unit.UNIT_SIZE_BYTES if is_bytes else unit.UNIT_COUNT
        self._write(packet)

    def counter_value(self, uuid: int, time: int, value: int) -> None:
        """Write the value that a counter has from ``time`` on."""
        packet = self._counter_packet
        packet.timestamp = time
        packet.track_event.track_uuid, packet.track_event.counter_value = uuid, value
        self._write(packet)

    def slices(self, name: str, category: str, facts: Mapping[str, int | str]) -> SliceWriter:
        """Return what writes slices that have the name and these facts in common."""
        packet = self._packet()
        event = packet.track_event
        event.type = self._schema.TrackEvent.TYPE_SLICE_BEGIN
        event.name_iid = self._number("event_names", name)
        event.category_iids.append(self._number("event_categories", category))
        self._annotate(event, facts)
        return SliceWriter(self, packet)

    # ------------------------------------------------------------------ parts
    def _packet(self) -> Any:
        packet = self._schema.TracePacket(trusted_packet_sequence_id=1)
        packet.sequence_flags = self._schema.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        return packet

    def _described(self, uuid: int, parent: int, name: str, rank: int) -> Any:
        packet = self._packet()
        track = packet.track_descriptor
        track.uuid, track.parent_uuid, track.name, track.sibling_order_rank = uuid, parent, name, rank
        return packet

    def _annotate(self, event: Any, facts: Mapping[str, int | str]) -> list[Any]:
        """Add facts to an event; return the notes that hold them."""
        notes = []
        for name in facts:
            notes.append(event.debug_annotations.add())
            notes[-1].name_iid = self._number("debug_annotation_names", name)
        self._fill(notes, facts.values())
        return notes

    def _fill(self, notes: list[Any], values: Iterable[int | str]) -> None:
        for note, value in zip(notes, values, strict=True):
            if isinstance(value, str):
                note.string_value_iid = self._number("debug_annotation_string_values", value)
            else:
                note.int_value = value

    def _number(self, table: str, text: str) -> int:
        """Return the number of an interned text; a new one is written before the next packet."""
        numbers = self._numbers.setdefault(table, {})
        number = numbers.get(text)
        if number is None:
            number = numbers[text] = len(numbers) + 1
            entry = getattr(self._new_names, table).add()
            entry.iid = number
            self._has_new_names = True
            if table == "debug_annotation_string_values":
                entry.str = text.encode()
            else:
                entry.name = text
        return number

    def _write(self, packet: Any) -> None:
        if self._has_new_names:
            self._has_new_names = False
            names = self._packet()
            names.interned_data.CopyFrom(self._new_names)
            self._new_names.Clear()
            self._write(names)
        data = packet.SerializeToString()
        self.nbytes += self._file.write(_PACKET_FIELD + _varint(len(data)) + data)


class SliceWriter:
    """Writes slices that differ only in track, time, flows and a few facts."""

    def __init__(self, writer: PacketWriter, packet: Any) -> None:
        self._writer = writer
        self._packet = packet
        self._n_common = len(packet.track_event.debug_annotations)
        self._names: tuple[str, ...] = ()
        self._notes: list[Any] = []

    def write(
        self,
        uuids: Iterable[int],
        start: int,
        end: int,
        facts: Mapping[str, int | str],
        flow_out: int = 0,
        flow_in: int = 0,
    ) -> None:
        """Write one slice on each of the tracks. A flow leads from the slice that has its id as ``flow_out`` to the one
        that has it as ``flow_in``; 0 is none.
        """
        writer, packet, event = self._writer, self._packet, self._packet.track_event
        names = tuple(facts)
        if names == self._names:
            writer._fill(self._notes, facts.values())  # saves a quarter of the whole time
        else:
            del event.debug_annotations[self._n_common :]
            self._names, self._notes = names, writer._annotate(event, facts)
        del event.flow_ids[:], event.terminating_flow_ids[:]
        if flow_out:
            event.flow_ids.append(flow_out)
        if flow_in:
            event.terminating_flow_ids.append(flow_in)
        closing = writer._end_packet
        for uuid in uuids:
            packet.timestamp, event.track_uuid = start, uuid
            writer._write(packet)
            closing.timestamp, closing.track_event.track_uuid = end, uuid
            writer._write(closing)


def _varint(number: int) -> bytes:
    """Write a number as protobuf does: seven bits a byte, the lowest first."""
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes((*parts, number))
