"""The parts of a load's or store's time: requests, waits, bytes and latencies, one after the other from start to end.

Of the things that a load or store needs, one decides when it ends: the port of the PE, a link on its way, or the
memory channels. Its time is told along what decides. If several do at once, the first of these counts: for a load the
memory if nobody came before it there, the links from the first one on, the port, the memory; for a store the port, the
links from the first one on, the memory. So a command has waited exactly if it ended later than it would have alone.

What a request that nobody else disturbs takes is *memory*, *link* or *port*; what it takes longer is *wait*.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from kernbench.placement import ADDRESS_BITS

_BITS = ADDRESS_BITS
_STORE, _STREAM = 2, 6  # kernbench.simulate.program.Kind
MATRIX, VECTOR, MEMORY, PORT, LINK, LATENCY, RECEIVE, ISSUE, CREDIT = range(9)
"""As :class:`kernbench.simulate.path.Cause`."""
MEMORY_WAIT, LINK_WAIT = 9, 10
_jit = nb.njit(cache=True, nogil=True, error_model="numpy")


@_jit
def home_of(node, memory, own, cubes_per_sip, memory_per_sip):
    """Node at which requests from ``node``, whose own memory is ``own``, reach a memory."""
    if own == memory:
        return node
    return memory * cubes_per_sip + node % cubes_per_sip if memory_per_sip else memory


@_jit
def most_bytes(address, nbytes, channels, interleave):
    """Of a request's bytes, the most that fall into one memory channel."""
    offset = address & ((np.int64(1) << _BITS) - 1)
    first, last = offset // interleave, (offset + nbytes - 1) // interleave
    stripes = last - first + 1
    whole, more = stripes // channels, stripes % channels
    head_cut = offset - first * interleave
    tail_cut = (last + 1) * interleave - (offset + nbytes)
    fullest = more if more else channels  # channels with the most stripes; their first and last are cut short
    most = (whole + (1 if more else 0)) * interleave
    if fullest == 1:
        most -= head_cut + tail_cut
        if channels > 1 and whole:
            most = max(most, whole * interleave)
    elif fullest == 2:
        most -= min(head_cut, tail_cut)
    return most


@_jit
def hops_of(hop_place, place):
    """Return where the hops of a command begin and end."""
    first, last = 0, len(hop_place)
    while first < last:
        middle = (first + last) >> 1
        if hop_place[middle] < place:
            first = middle + 1
        else:
            last = middle
    while last < len(hop_place) and hop_place[last] == place:
        last += 1
    return first, last


@_jit
def decides(
    kind, start, end, served, nbytes, port, body, tail, request, memory_latency, alone,
    first, last, hop_link, hop_begin, link_num, link_den, link_latency,
):  # fmt: skip
    """Find what decides when a load, store or streaming composite ends.

    ``request`` is the latency of its way to the memory, ``alone`` the time that its bytes take in memory channels that
    serve nobody else, ``first:last`` are its hops.

    Returns
    -------
    cause
        PORT, LINK, MEMORY, or MATRIX for a composite whose engines decide.
    hop
        The deciding link's.
    data
        When all bytes have come to the PE, or into the memory but for its latency.
    way
        Latency of all links.
    """
    data = end
    if kind == _STORE:
        data = end - memory_latency
    elif kind == _STREAM:
        if end == start + body:
            return MATRIX, last, end, np.int64(0)
        data = end - tail
    deciding = last
    way = np.int64(0)
    for hop in range(last - 1, first - 1, -1):
        link = hop_link[hop]
        way += link_latency[link]
        if hop_begin[hop] + -(-nbytes * link_num[link] // link_den[link]) + way == data:
            deciding = hop
    if kind == _STORE:
        if start + port + way == data:
            return PORT, last, data, way
    elif start + request + alone + memory_latency + way == data:
        return MEMORY, last, data, way
    if deciding < last:
        return LINK, deciding, data, way
    if kind != _STORE:
        at_port = served + memory_latency
        if last > first:
            at_port = hop_begin[last - 1] + link_latency[hop_link[last - 1]]
        if at_port + port == data:
            return PORT, last, data, way
    return MEMORY, last, data, way


@nb.njit("UniTuple(int64, 2)(int64[:, ::1], int64, int64, int64, int64)", cache=True, nogil=True)
def put(parts, n, begin, end, cause):
    """Add a part, unless it is empty; return the number of parts and where the last one ends."""
    if end == begin:
        return n, end
    parts[n, 0], parts[n, 1], parts[n, 2] = begin, end, cause
    return n + 1, end


@_jit
def journey(
    kind, start, end, served, nbytes, port, body, tail, request, memory_latency, alone,
    first, last, hop_link, hop_begin, link_num, link_den, link_latency, parts,
):  # fmt: skip
    """Write down the parts of a load, store or streaming composite; return how many there are.

    The arguments are those of :func:`decides`. ``parts`` is int64[n, 3]: begin, end, cause. They follow one another
    without a gap from start to end.
    """
    cause, deciding, data, way = decides(
        kind, start, end, served, nbytes, port, body, tail, request, memory_latency, alone,
        first, last, hop_link, hop_begin, link_num, link_den, link_latency,
    )  # fmt: skip
    n, t = 0, start
    if cause == MATRIX:
        n, t = put(parts, n, t, end, MATRIX)
        return n
    if kind == _STORE:
        if cause == PORT:
            n, t = put(parts, n, t, t + port, PORT)
    else:
        n, t = put(parts, n, t, t + request, LATENCY)
        if cause == MEMORY:
            done = data - way - memory_latency
            n, t = put(parts, n, t, done - alone, MEMORY_WAIT)
            n, t = put(parts, n, t, done, MEMORY)
        else:
            n, t = put(parts, n, t, served, MEMORY_WAIT)
        n, t = put(parts, n, t, t + memory_latency, LATENCY)

    # Over the links: with the head up to the link that decides, with the last byte from there on.
    with_head = cause != (PORT if kind == _STORE else MEMORY)
    for hop in range(first, last):
        if with_head:
            n, t = put(parts, n, t, hop_begin[hop], LINK_WAIT)
        link = hop_link[hop]
        if hop == deciding:
            with_head = False
            n, t = put(parts, n, t, t + -(-nbytes * link_num[link] // link_den[link]), LINK)
        n, t = put(parts, n, t, t + link_latency[link], LATENCY)

    if kind == _STORE:
        if cause == MEMORY:
            n, t = put(parts, n, t, data - alone, MEMORY_WAIT)
            n, t = put(parts, n, t, data, MEMORY)
        n, t = put(parts, n, t, end, LATENCY)
    else:
        n, t = put(parts, n, t, data, PORT)
        n, t = put(parts, n, t, end, MATRIX)
    return n
