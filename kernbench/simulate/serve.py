"""The compiled part of :mod:`kernbench.simulate.servers`: what memories and links serve, and when."""

from __future__ import annotations

import numba as nb
import numpy as np

from kernbench.placement import ADDRESS_BITS
from kernbench.simulate import journey
from kernbench.simulate.journey import home_of, hops_of
from kernbench.simulate.stale import compiled_with

_BITS = ADDRESS_BITS
_LOAD, _STORE, _SEND, _SEND_SHARED, _RECV, _STREAM, _SCALAR = range(1, 8)  # kernbench.simulate.program.Kind
_jit = nb.njit(cache=True, nogil=True, error_model="numpy")


@compiled_with(journey)
@_jit
def gather(
    class_start, kind, duration, body, tail, nbytes, direction, message, column, offset, is_vector,
    wait_start, wait_on, wait_kind, slot_start, slot_on, sends, send_start, recvs, recv_start,
    pe_of, rank_of, class_of, lane_of, out, lane_values, lane_start, lanes_in_class,
    peer, link_of, opposite, link_num, link_den, link_latency, message_latency,
    node_of_pe, memory_of_node, next_node, next_link, route_latency, cubes_per_sip, memory_per_sip, n_memories,
    channels, interleave, channel_num, channel_den, memory_latency, outstanding, issue_ps, depth,
    issue, start, end, served, hop_place, hop_link, hop_begin,
    server_start, arrival, rank, command, hop,
):  # fmt: skip
    """Write down what each server serves: memories first, then links. Return how many services there are.

    With empty columns the services of server x are only counted, in ``server_start[x + 1]``; otherwise
    ``server_start[x]`` is where those of server x go. ``arrival`` is when the request comes to a memory, and when the
    link begins with it; ``hop`` is -1 for a message.

    PEs are taken in the order of their index: in that order requests are served that come at the same moment.
    """
    fill = len(arrival) > 0
    total = 0
    for pe in range(len(rank_of)):
        r = rank_of[pe]
        if r < 0:
            continue
        c, base, at = class_of[r], class_start[class_of[r]], out[r]
        node = np.int64(node_of_pe[pe])
        for i in range(out[r + 1] - at):
            g, p = base + i, at + i
            k = kind[g]
            if k == _SEND_SHARED:
                x = n_memories + link_of[pe, direction[g]]
                total += 1
                if fill:
                    _write(server_start, arrival, rank, command, hop, x, served[p], r, i, -1)
                else:
                    server_start[x + 1] += 1
            elif k == _LOAD or k == _STORE or k == _STREAM or k == _SCALAR:
                address = lane_values[lane_start[c] + column[g] * lanes_in_class[c] + lane_of[r]] + offset[g]
                memory = address >> _BITS
                home = home_of(node, memory, np.int64(memory_of_node[node]), cubes_per_sip, memory_per_sip)
                when = start[p] if k == _STORE else start[p] + route_latency[node, home]
                if home != node:
                    first, last = hops_of(hop_place, p)
                    for h in range(first, last):
                        x = n_memories + hop_link[h]
                        total += 1
                        if fill:
                            _write(server_start, arrival, rank, command, hop, x, hop_begin[h], r, i, h)
                        else:
                            server_start[x + 1] += 1
                    if k == _STORE:
                        when = hop_begin[last - 1] + link_latency[hop_link[last - 1]]
                total += 1
                if fill:
                    _write(server_start, arrival, rank, command, hop, memory, when, r, i, -1)
                else:
                    server_start[memory + 1] += 1
    return total


@nb.njit(
    "void(int64[::1], int64[::1], int32[::1], int32[::1], int64[::1], int64, int64, int64, int64, int64)", cache=True
)
def _write(server_start, arrival, rank, command, hop, server, when, r, i, h):
    x = server_start[server]
    arrival[x], rank[x], command[x], hop[x] = when, r, i, h
    server_start[server] = x + 1


@_jit
def first_at(arrival, first, last, when):
    """Find the first service of a server, between ``first`` and ``last``, that is at ``when`` or later."""
    while first < last:
        middle = (first + last) >> 1
        if arrival[middle] < when:
            first = middle + 1
        else:
            last = middle
    return first


@_jit
def serve_again(
    first, last, arrival, rank, command, begin,
    class_start, nbytes, column, offset, class_of, lane_of, lane_values, lane_start, lanes_in_class,
    channels, interleave, num, den,
):  # fmt: skip
    """Find when each channel of a memory began with each request: ``begin[service, channel]``, -1 if it had no part."""
    free = np.zeros(channels, np.int64)
    for x in range(first, last):
        c = class_of[rank[x]]
        g = class_start[c] + command[x]
        address = lane_values[lane_start[c] + column[g] * lanes_in_class[c] + lane_of[rank[x]]] + offset[g]
        for channel in range(channels):
            share = bytes_in_channel(address, nbytes[g], channel, channels, interleave)
            begin[x, channel] = -1
            if share > 0:
                begin[x, channel] = max(arrival[x], free[channel])
                free[channel] = begin[x, channel] + -(-share * num // den)


@_jit
def bytes_in_channel(address, nbytes, channel, channels, interleave):
    """Of a request's bytes, those that lie in a channel."""
    start = address & ((np.int64(1) << _BITS) - 1)
    return _below(start + nbytes, channel, channels, interleave) - _below(start, channel, channels, interleave)


@_jit
def _below(offset, channel, channels, interleave):
    """Of the bytes before ``offset``, those that lie in a channel."""
    rounds, rest = offset // (interleave * channels), offset % (interleave * channels)
    return rounds * interleave + min(max(rest - channel * interleave, 0), interleave)
