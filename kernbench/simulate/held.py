"""The compiled part of :mod:`kernbench.simulate.waits`: what held each command back, and for how long."""

from __future__ import annotations

import numba as nb
import numpy as np

from kernbench.placement import ADDRESS_BITS
from kernbench.simulate import journey as journeys
from kernbench.simulate.journey import LINK_WAIT, MEMORY_WAIT, home_of, hops_of, journey, most_bytes
from kernbench.simulate.stale import compiled_with

_BITS = ADDRESS_BITS
_WORK, _LOAD, _STORE, _SEND, _SEND_SHARED, _RECV, _STREAM, _SCALAR = range(8)  # kernbench.simulate.program.Kind
_W_OPERAND, _W_REUSE, _W_ENGINE, _W_ORDER = range(4)  # kernbench.simulate.program.Wait
_ISSUE, _OPERAND, _MESSAGE, _REUSE, _ENGINE, _QUEUE, _CREDIT, _MEMORY, _LINK = range(9)  # kernbench.simulate.waits.Held
_1 = np.uintp(1)


@compiled_with(journeys)
@nb.njit(cache=True, nogil=True, error_model="numpy")
def held_back(
    class_start, kind, duration, body, tail, nbytes, direction, message, column, offset, is_vector,
    wait_start, wait_on, wait_kind, slot_start, slot_on, sends, send_start, recvs, recv_start,
    pe_of, rank_of, class_of, lane_of, out, lane_values, lane_start, lanes_in_class,
    peer, link_of, opposite, link_num, link_den, link_latency, message_latency,
    node_of_pe, memory_of_node, next_node, next_link, route_latency, cubes_per_sip, memory_per_sip, n_memories,
    channels, interleave, channel_num, channel_den, memory_latency, outstanding, issue_ps, depth,
    issue, start, end, served, hop_place, hop_link, hop_begin,
    ranks, ps, held, on, cause, spans,
):  # fmt: skip
    """Write what held each command of some PEs back, one PE after the other; return the number of spans.

    ``ps`` are the waits before the issue, before the start, at memory and at links; ``held`` what the first two were
    for, ``on`` the command that the later of these two was about (-1: none); none of this is written if ``on`` has no
    room. ``spans`` are the times of waits at memory and links: row of the command,
    begin, end, 0 or 1; those that have no room are only counted.
    """
    keep = len(on) > 0
    parts = np.empty((3 * len(next_node) + 8, 3), np.int64)
    n_spans = 0
    done = 0
    for r in ranks:
        c, base, at = class_of[r], class_start[class_of[r]], out[r]
        pe = pe_of[r]
        node = np.int64(node_of_pe[pe])
        own = np.int64(memory_of_node[node])
        ready = np.int64(0)
        for i in range(out[r + 1] - at):
            g, p = np.uintp(base + i), np.uintp(at + i)
            issued, begun, k = issue[p], start[p], kind[g]

            # -- before the issue; what the shorter of the two waits was for matters only if all is kept
            why, which = _ISSUE, -1
            before, wait = issued - ready, begun - issued
            if before > 0 and (keep or before >= wait):
                why = _CREDIT  # nothing else can hold the issue of a SEND
                for x in range(slot_start[g], slot_start[g + _1]):
                    j = np.int64(slot_on[x])
                    if start[at + j] == issued and (why != _QUEUE or j < which):
                        why, which = _QUEUE, j
                if i > 0 and kind[g - _1] == _RECV and start[p - _1] == issued:
                    why, which = _MESSAGE, i - 1
                elif i > 0 and kind[g - _1] == _SCALAR and end[p - _1] == issued:
                    why, which = _OPERAND, i - 1
            ready = issued + issue_ps
            best, reason, issue_why = before, why, why

            # -- before the start
            why = _ISSUE
            if wait > 0 and (keep or wait >= before):
                why, which = _LINK, -1
                for x in range(wait_start[g], wait_start[g + _1]):
                    w, j = wait_kind[np.uintp(x)], np.int64(wait_on[np.uintp(x)])
                    moment = start[np.uintp(at + j)] if w == _W_ORDER else end[np.uintp(at + j)]
                    if moment == begun:
                        this = _OPERAND if w == _W_OPERAND else (_REUSE if w == _W_REUSE else _ENGINE)
                        if this < why or (this == why and j < which):
                            why, which = this, j
                            if this == _OPERAND and not keep:
                                break
                if k == _RECV and why > _MESSAGE:
                    d = direction[g]
                    source, back = peer[pe, d], opposite[d]
                    other = rank_of[source]
                    j = np.int64(sends[send_start[class_of[other] * 12 + back] + message[g]])
                    if end[out[other] + j] + message_latency[link_of[source, back]] == begun:
                        why, which = _MESSAGE, -1
                if wait > best or (wait == best and why < reason):
                    best, reason = wait, why

            # -- at memory and links
            at_memory, at_links = np.int64(0), np.int64(0)
            if k == _SEND_SHARED:
                at_links = served[p] - begun
                if at_links > 0:
                    n_spans = _note(spans, n_spans, done + i, begun, served[p], 1)
            elif k == _LOAD or k == _STORE or k == _STREAM or k == _SCALAR:
                address = lane_values[lane_start[c] + column[g] * lanes_in_class[c] + lane_of[r]] + offset[g]
                memory = address >> _BITS
                home = home_of(node, memory, own, cubes_per_sip, memory_per_sip)
                port = duration[g]
                if outstanding > 0 and k != _STORE:
                    trip = route_latency[node, home] + memory_latency + route_latency[home, node]
                    port = max(port, -(-nbytes[g] * trip // outstanding))
                left = end[p] - memory_latency
                by_port = served[p] + port == left
                simple = home == node and (k == _LOAD or k == _SCALAR)
                alone = np.int64(0)
                if not simple or not by_port or served[p] > begun:
                    most = most_bytes(address, nbytes[g], channels, interleave)
                    alone = -(-most * channel_num // channel_den)
                if simple:  # what a journey in the own CUBE comes down to
                    if begun + alone != left:
                        at_memory = served[p] - begun if by_port else left - alone - begun
                    if at_memory > 0:
                        n_spans = _note(spans, n_spans, done + i, begun, begun + at_memory, 0)
                else:
                    first, last = 0, 0
                    if home != node:
                        first, last = hops_of(hop_place, p)
                    n_parts = journey(
                        k, begun, end[p], served[p], nbytes[g], port, body[g], tail[g],
                        route_latency[node, home], memory_latency, alone,
                        first, last, hop_link, hop_begin, link_num, link_den, link_latency, parts,
                    )  # fmt: skip
                    for x in range(n_parts):
                        if parts[x, 2] == MEMORY_WAIT:
                            at_memory += parts[x, 1] - parts[x, 0]
                            n_spans = _note(spans, n_spans, done + i, parts[x, 0], parts[x, 1], 0)
                        elif parts[x, 2] == LINK_WAIT:
                            at_links += parts[x, 1] - parts[x, 0]
                            n_spans = _note(spans, n_spans, done + i, parts[x, 0], parts[x, 1], 1)
                if at_memory > best:
                    best, reason = at_memory, _MEMORY
            if at_links > best:
                reason = _LINK

            row = np.uintp(done + i)
            cause[row] = reason
            if keep:
                ps[row, 0], ps[row, 1], ps[row, 2], ps[row, 3] = before, wait, at_memory, at_links
                held[row, 0], held[row, 1], on[row] = issue_why, why, which
        done += out[r + 1] - at
    return n_spans


@nb.njit("int64(int64[:, ::1], int64, int64, int64, int64, int64)", cache=True, nogil=True)
def _note(spans, n, row, begin, end, at_link):
    if n < len(spans):
        spans[n, 0], spans[n, 1], spans[n, 2], spans[n, 3] = row, begin, end, at_link
    return n + 1
