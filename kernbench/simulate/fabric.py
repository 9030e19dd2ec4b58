"""What PEs share, as blocks of hardware: links, memories, and the channels and routes that lead over them.

A block is a Python object with queues inside; what travels is a SimPy process that asks one block after the other. The
rules are those of :mod:`kernbench.simulate.program`; the PEs themselves are in :mod:`kernbench.simulate.blocks`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import simpy
from simpy.events import Event, EventPriority, Process, ProcessGenerator

from kernbench.machine import Machine
from kernbench.machine.schema import MemorySpec
from kernbench.placement import ADDRESS_BITS
from kernbench.simulate.costs import transfer_ps

_AFTER_ALL_ELSE = 2
"""SimPy gives its own events priorities 0 and 1; arrivals have this one and larger."""


class Arrival(Event):
    """The moment, ``delay`` ps from now, when something reaches a shared block.

    All that arrives at one moment is handled in the order of ``key``, whoever caused it first, and only when everything
    else of that moment is settled: commands have started, releases have passed the turn on. So whichever block it is,
    requests come to its queue in the order of (arrival, PE, command), and the queue is a plain FIFO.
    """

    def __init__(self, env: simpy.Environment, delay: int, key: int) -> None:
        super().__init__(env)
        self._ok, self._value = True, None  # will happen for sure, like a simpy.Timeout
        env.schedule(self, EventPriority(_AFTER_ALL_ELSE + key), delay)


class Parcel(NamedTuple):
    """Bytes that a command moves."""

    key: int
    """Place of the command in the order of (PE, command)."""
    nbytes: int
    served: Callable[[], None]
    """Called when a memory (of a load or store) or a link (of a message) begins with them."""
    carried: Callable[[int], None]
    """Called with the number of each link that begins with them on the way of a load or store."""


def after(env: simpy.Environment, ps: int, *events: Event) -> ProcessGenerator:
    """Process: end ``ps`` after the last of ``events``."""
    yield env.all_of(events)
    yield env.timeout(ps)


def when(event: Event, note: Callable[[], None]) -> ProcessGenerator:
    """Process: call ``note`` when ``event`` happens."""
    yield event
    note()


# ---------------------------------------------------------------- servers
class Server:
    """Serves one request at a time, first come, first served."""

    def __init__(self, env: simpy.Environment) -> None:
        self.env = env
        self.busy_ps = 0
        self._turn = simpy.Resource(env, capacity=1)

    def serve(self, ps: int) -> tuple[Event, Process]:
        """Queue a request that takes ``ps``; return the events of its beginning and of its end."""
        begun = self._turn.request()
        return begun, self.env.process(self._hold(begun, ps))

    def _hold(self, turn: Any, ps: int) -> ProcessGenerator:
        yield turn
        yield self.env.timeout(ps)
        self.busy_ps += ps
        self._turn.release(turn)


class Link(Server):
    """One direction of a link."""

    def __init__(self, env: simpy.Environment, number: int, bandwidth: int, latency: int) -> None:
        super().__init__(env)
        self.number = number
        self.bandwidth = bandwidth
        self.latency = latency
        self.nbytes = 0

    def occupy(self, nbytes: int) -> tuple[Event, Process]:
        """Queue bytes; return the events when the link begins with them and when it is released."""
        self.nbytes += nbytes
        return self.serve(transfer_ps(nbytes, self.bandwidth))

    def carry(self, parcel: Parcel, tail: Event) -> ProcessGenerator:
        """Take on a parcel whose head is here and whose last byte is here at the event ``tail``.

        It is cut-through: the head goes on at once when the link begins, however far behind the tail is. Ends when the
        head is at the other end; returns the event when the tail will be there.
        """
        begun, released = self.occupy(parcel.nbytes)
        yield begun
        parcel.carried(self.number)
        tail = self.env.process(after(self.env, self.latency, released, tail))
        yield Arrival(self.env, self.latency, parcel.key)
        return tail


class Memory:
    """One memory: channels over which consecutive addresses are interleaved."""

    def __init__(self, env: simpy.Environment, spec: MemorySpec) -> None:
        self.env = env
        self.spec = spec
        self.channels = [Server(env) for _ in range(spec.channels)]

    def access(self, offset: int, nbytes: int) -> tuple[Event, Event]:
        """Queue a request; return the events when its first channel begins and when its last one ends."""
        n, bandwidth = self.spec.channels, self.spec.bandwidth
        turns = []
        for number, channel in enumerate(self.channels):
            share = self._bytes_below(offset + nbytes, number) - self._bytes_below(offset, number)
            if share:
                turns.append(channel.serve(transfer_ps(share * n, bandwidth)))  # a channel has bandwidth / n
        return self.env.any_of([begun for begun, _ in turns]), self.env.all_of([ended for _, ended in turns])

    def _bytes_below(self, offset: int, channel: int) -> int:
        """Of the bytes before ``offset``, how many lie in a channel."""
        width = self.spec.interleave
        rounds, rest = divmod(offset, width * self.spec.channels)
        return rounds * width + min(max(rest - channel * width, 0), width)


# ---------------------------------------------------------------- ways over them
class Channel:
    """A bounded FIFO of messages from one PE to a neighbour. Its credits are with the sender."""

    def __init__(self, env: simpy.Environment, link: Link, depth: int) -> None:
        self.env = env
        self.credits = simpy.Container(env, capacity=depth, init=depth)
        self.inbox = simpy.Store(env)
        self._link = link

    def send(self, message: Parcel) -> ProcessGenerator:
        """Put a message onto the link; ends when the link is released. The receiver has it one latency later."""
        yield Arrival(self.env, 0, message.key)
        begun, released = self._link.occupy(message.nbytes)
        self.env.process(when(begun, message.served))
        yield released
        self.env.process(self._deliver(message))

    def _deliver(self, message: Parcel) -> ProcessGenerator:
        yield self.env.timeout(self._link.latency)
        yield self.inbox.put(message)

    def give_credit(self) -> ProcessGenerator:
        """Process: tell the sender that a message has been taken."""
        yield self.env.timeout(self._link.latency)
        yield self.credits.put(1)


class Route(NamedTuple):
    """The way between a PE and a memory."""

    there: list[Link]
    back: list[Link]

    @property
    def request_ps(self) -> int:
        """Time that a request takes to the memory: it has no bytes, so it never waits for a link."""
        return sum(link.latency for link in self.there)

    @property
    def round_trip_ps(self) -> int:
        """Latency of all links there and back."""
        return self.request_ps + sum(link.latency for link in self.back)


class Fabric:
    """All links and memories of a machine."""

    def __init__(self, env: simpy.Environment, machine: Machine) -> None:
        self.env = env
        self._network = network = machine.network
        figures = zip(network.link_bandwidth.tolist(), network.link_latency.tolist(), strict=True)
        self.links = [Link(env, number, bandwidth, latency) for number, (bandwidth, latency) in enumerate(figures)]
        self.memories = [Memory(env, machine.memory) for _ in range(network.n_memories)]
        self._routes: dict[tuple[int, int], Route] = {}

    def route(self, pe: int, address: int) -> Route:
        """Return the way between a PE and the memory that holds an address."""
        node, memory = int(self._network.node_of_pe[pe]), address >> ADDRESS_BITS
        if (node, memory) not in self._routes:
            entry = int(self._network.entry_node(node, memory))
            ways = (self._network.route(node, entry), self._network.route(entry, node))
            self._routes[node, memory] = Route(*([self.links[i] for i in way] for way in ways))
        return self._routes[node, memory]

    def fetch(self, parcel: Parcel, address: int, route: Route, port_ps: int) -> ProcessGenerator:
        """Bring bytes from memory to a PE whose port takes ``port_ps`` for them; ends when all are there."""
        yield Arrival(self.env, route.request_ps, parcel.key)
        memory, (begun, ended) = self._access(parcel, address)
        yield begun
        parcel.served()
        latency = memory.spec.latency
        tail: Event = self.env.process(after(self.env, latency, ended))
        yield Arrival(self.env, latency, parcel.key)
        for link in route.back:
            tail = yield from link.carry(parcel, tail)
        yield self.env.timeout(port_ps)
        yield tail

    def write(self, parcel: Parcel, address: int, route: Route, port_ps: int) -> ProcessGenerator:
        """Bring bytes from a PE, whose port takes ``port_ps`` for them, to memory; ends when all are written."""
        tail: Event = self.env.timeout(port_ps)
        yield Arrival(self.env, 0, parcel.key)
        for link in route.there:
            tail = yield from link.carry(parcel, tail)
        memory, (begun, ended) = self._access(parcel, address)
        self.env.process(when(begun, parcel.served))
        yield from after(self.env, memory.spec.latency, ended, tail)

    def _access(self, parcel: Parcel, address: int) -> tuple[Memory, tuple[Event, Event]]:
        memory = self.memories[address >> ADDRESS_BITS]
        return memory, memory.access(address & ((1 << ADDRESS_BITS) - 1), parcel.nbytes)
