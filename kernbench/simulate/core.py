"""The compiled core: the rules of :mod:`kernbench.simulate.program` as one function over flat arrays.

It runs ahead: what only one PE can influence (its engines, its queues, its private links) is a maximum of times
already known and is settled at once, in whatever order. Only what PEs share (memory channels, links between CUBEs and
SIPs) needs the order of time, so only that goes through the heap of events, by (arrival, PE, command).

A PE is never parked at a time: :func:`_advance` goes over the commands that it has issued but not started, and settles
those whose waits are all known. This is exact because every service of a shared thing takes at least 1 ps: whatever an
event at time T makes known lies after T, so no request can come to light that should have been served before it.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from kernbench.placement import ADDRESS_BITS

_WORK, _LOAD, _STORE, _SEND, _SEND_SHARED, _RECV, _STREAM, _SCALAR = range(8)
_ENGINE_ORDER = 3
_AT_MEMORY = -1
_BITS = ADDRESS_BITS
_COMMAND_BITS = 32
_jit = nb.njit(cache=True, nogil=True)


@_jit
def _push(heap_time, heap_key, heap_slot, size, time, key, slot):
    """Add an event; a binary heap by (time, key)."""
    i = size
    while i > 0:
        parent = (i - 1) >> 1
        if heap_time[parent] < time or (heap_time[parent] == time and heap_key[parent] <= key):
            break
        heap_time[i], heap_key[i], heap_slot[i] = heap_time[parent], heap_key[parent], heap_slot[parent]
        i = parent
    heap_time[i], heap_key[i], heap_slot[i] = time, key, slot


@_jit
def _pop(heap_time, heap_key, heap_slot, size):
    """Take the first event out of a heap of ``size`` (which the caller counts down)."""
    last = size - 1
    time, key, slot = heap_time[last], heap_key[last], heap_slot[last]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= last:
            break
        if child + 1 < last and (
            heap_time[child + 1] < heap_time[child]
            or (heap_time[child + 1] == heap_time[child] and heap_key[child + 1] < heap_key[child])
        ):
            child += 1
        if time < heap_time[child] or (time == heap_time[child] and key <= heap_key[child]):
            break
        heap_time[i], heap_key[i], heap_slot[i] = heap_time[child], heap_key[child], heap_slot[child]
        i = child
    heap_time[i], heap_key[i], heap_slot[i] = time, key, slot


@_jit
def _serve_memory(address, nbytes, arrival, free, busy, channels, interleave, num, den):
    """Serve a request in the channels that its bytes fall into; return (first begin, last end)."""
    mask = (np.int64(1) << _BITS) - 1
    memory, offset = address >> _BITS, address & mask
    first, last = offset // interleave, (offset + nbytes - 1) // interleave
    stripes = last - first + 1
    whole, more = stripes // channels, stripes % channels
    head_cut = offset - first * interleave
    tail_cut = (last + 1) * interleave - (offset + nbytes)
    even = more == 0 and head_cut == 0 and tail_cut == 0
    duration = -(-(whole * interleave) * num // den) if even else np.int64(0)
    head, tail = np.int64(-1), np.int64(0)
    last_channel = last % channels
    channel = first % channels
    for j in range(min(stripes, channels)):
        if not even:
            share = (whole + (1 if j < more else 0)) * interleave
            if j == 0:
                share -= head_cut
            if channel == last_channel:
                share -= tail_cut
            duration = -(-share * num // den)
        at = memory * channels + channel
        begin = max(arrival, free[at])
        free[at] = begin + duration
        busy[at] += duration
        if head < 0 or begin < head:
            head = begin
        tail = max(tail, begin + duration)
        channel += 1
        if channel == channels:
            channel = 0
    return head, tail


@_jit
def run(
    # program, by command
    class_start, kind, duration, body, tail_ps, nbytes, direction, message, column, offset,
    wait_start, wait_on, wait_kind, slot_start, slot_on,
    sends, send_start, recvs, recv_start,
    # program, by PE
    pe_of, rank_of, class_of, lane_of, out, lane_values, lane_start, lanes_in_class,
    # machine
    peer, link_of, opposite, link_num, link_den, link_latency,
    node_of_pe, memory_of_node, next_node, next_link, route_latency, cubes_per_sip, memory_per_sip,
    channels, interleave, channel_num, channel_den, memory_latency, outstanding,
    issue_ps, depth,
    # state
    memory_free, memory_busy, link_free, link_busy, link_bytes,
    issue, start, end, served_at,
    pointer, next_issue, held, window, window_size,
    heap_time, heap_key, heap_slot, event_node, event_tail, free_slots, counters,
    stack, on_stack,
    max_events,
):  # fmt: skip
    """Time a program, or go on with it for up to ``max_events`` events. Return the number of events still waiting.

    ``counters`` holds [events in the heap, free event slots, events served]. ``pointer[r]`` is the next command that PE
    r issues, ``next_issue[r]`` when it may, ``held[r]`` the command whose start or end issue waits for (-1: none).
    ``window[r, :window_size[r]]`` are the commands that are issued but not started, in order.
    """
    heap_size, n_free, served = counters[0], counters[1], counters[2]
    top = 0
    if served == 0 and heap_size == 0:
        for r in range(len(pe_of) - 1, -1, -1):
            stack[top] = r
            on_stack[r] = True
            top += 1
    budget = max_events
    while True:
        # -- settle everything that is private, PE by PE
        while top > 0:
            top -= 1
            r = stack[top]
            on_stack[r] = False
            c, base, at = class_of[r], class_start[class_of[r]], out[r]
            n = class_start[c + 1] - base
            pe, lane = pe_of[r], lane_of[r]
            kept, waiting = 0, window_size[r]
            w = 0
            issuing = False
            while True:
                # next candidate: first the window, in order; then newly issued commands
                if w < waiting:
                    i = window[r, w]
                    w += 1
                else:
                    if not issuing:
                        issuing = True
                    if held[r] >= 0:
                        h = held[r]
                        if kind[base + h] == _SCALAR:
                            if end[at + h] < 0:
                                break
                            next_issue[r] = max(next_issue[r], end[at + h])
                        else:
                            if start[at + h] < 0:
                                break
                            next_issue[r] = max(next_issue[r], start[at + h])
                        held[r] = -1
                    i = pointer[r]
                    if i >= n:
                        break
                    t = next_issue[r]
                    known = True
                    for s in range(slot_start[base + i], slot_start[base + i + 1]):
                        begun = start[at + slot_on[s]]
                        if begun < 0:
                            known = False
                            break
                        t = max(t, begun)
                    if not known:
                        break
                    k = kind[base + i]
                    if (k == _SEND or k == _SEND_SHARED) and message[base + i] >= depth:
                        d = direction[base + i]
                        other = rank_of[peer[pe, d]]
                        slot = recv_start[class_of[other] * 12 + opposite[d]] + message[base + i] - depth
                        taken = start[out[other] + recvs[slot]]
                        if taken < 0:
                            break
                        t = max(t, taken + link_latency[link_of[pe, d]])
                    issue[at + i] = t
                    next_issue[r] = t + issue_ps
                    pointer[r] = i + 1
                    if k == _RECV or k == _SCALAR:
                        held[r] = i

                # try to start command i
                g = base + i
                k = kind[g]
                t = issue[at + i]
                known = True
                for x in range(wait_start[g], wait_start[g + 1]):
                    j = at + wait_on[x]
                    moment = start[j] if wait_kind[x] == _ENGINE_ORDER else end[j]
                    if moment < 0:
                        known = False
                        break
                    t = max(t, moment)
                if known and k == _RECV:
                    d = direction[g]
                    source = peer[pe, d]
                    other = rank_of[source]
                    back = opposite[d]
                    slot = send_start[class_of[other] * 12 + back] + message[g]
                    left = end[out[other] + sends[slot]]
                    if left < 0:
                        known = False
                    else:
                        t = max(t, left + link_latency[link_of[source, back]])
                if not known:
                    window[r, kept] = i
                    kept += 1
                    continue
                start[at + i] = t
                if k == _WORK:
                    end[at + i] = t + duration[g]
                elif k == _RECV or k == _SEND:
                    d = direction[g]
                    if k == _RECV:
                        end[at + i] = t + duration[g]
                    else:
                        link = link_of[pe, d]
                        occupied = -(-nbytes[g] * link_num[link] // link_den[link])
                        end[at + i] = t + occupied
                        served_at[at + i] = t
                        link_free[link] = t + occupied
                        link_busy[link] += occupied
                        link_bytes[link] += nbytes[g]
                    other = rank_of[peer[pe, d]]
                    if not on_stack[other] and other != r:
                        stack[top] = other
                        on_stack[other] = True
                        top += 1
                else:
                    n_free -= 1
                    slot = free_slots[n_free]
                    arrival = t
                    event_tail[slot] = 0
                    if k == _SEND_SHARED:
                        event_node[slot] = 0
                    else:
                        node = node_of_pe[pe]
                        address = lane_values[lane_start[c] + column[g] * lanes_in_class[c] + lane] + offset[g]
                        memory = address >> _BITS
                        home = node
                        if memory_of_node[node] != memory:
                            home = memory * cubes_per_sip + node % cubes_per_sip if memory_per_sip else memory
                        if k == _STORE:
                            event_tail[slot] = t + duration[g]
                            event_node[slot] = node if node != home else _AT_MEMORY
                        else:
                            arrival = t + route_latency[node, home]
                            event_node[slot] = _AT_MEMORY
                    key = (np.int64(pe) << _COMMAND_BITS) | i
                    _push(heap_time, heap_key, heap_slot, heap_size, arrival, key, slot)
                    heap_size += 1
            window_size[r] = kept

        if heap_size == 0 or budget == 0:
            break
        budget -= 1
        served += 1

        # -- serve the next request of a shared thing
        now, key, slot = heap_time[0], heap_key[0], heap_slot[0]
        _pop(heap_time, heap_key, heap_slot, heap_size)
        heap_size -= 1
        pe = key >> _COMMAND_BITS
        i = key & ((np.int64(1) << _COMMAND_BITS) - 1)
        r = rank_of[pe]
        c = class_of[r]
        g = class_start[c] + i
        at = out[r]
        k = kind[g]
        finished = False
        if k == _SEND_SHARED:
            d = direction[g]
            link = link_of[pe, d]
            begin = max(now, link_free[link])
            occupied = -(-nbytes[g] * link_num[link] // link_den[link])
            link_free[link] = begin + occupied
            link_busy[link] += occupied
            link_bytes[link] += nbytes[g]
            end[at + i] = begin + occupied
            served_at[at + i] = begin
            finished = True
            other = rank_of[peer[pe, d]]
            if not on_stack[other]:
                stack[top] = other
                on_stack[other] = True
                top += 1
        else:
            address = lane_values[lane_start[c] + column[g] * lanes_in_class[c] + lane_of[r]] + offset[g]
            memory = address >> _BITS
            node = node_of_pe[pe]
            home = node
            if memory_of_node[node] != memory:
                home = memory * cubes_per_sip + node % cubes_per_sip if memory_per_sip else memory
            here = event_node[slot]
            head, tail = now, event_tail[slot]
            is_store = k == _STORE
            arrived = False
            if here == _AT_MEMORY:
                begin, done = _serve_memory(
                    address, nbytes[g], now, memory_free, memory_busy, channels, interleave, channel_num, channel_den
                )
                served_at[at + i] = begin
                if is_store:
                    end[at + i] = max(tail, done) + memory_latency
                    finished = True
                else:
                    head, tail = begin + memory_latency, done + memory_latency
                    here = home
                    arrived = home == node
            else:
                goal = home if is_store else node
                link = next_link[here, goal]
                begin = max(now, link_free[link])
                occupied = -(-nbytes[g] * link_num[link] // link_den[link])
                link_free[link] = begin + occupied
                link_busy[link] += occupied
                link_bytes[link] += nbytes[g]
                head = begin + link_latency[link]
                tail = max(begin + occupied, tail) + link_latency[link]
                here = next_node[here, goal]
                arrived = here == goal
                if is_store and arrived:
                    here = _AT_MEMORY
                    arrived = False
            if arrived:
                port = duration[g]
                if outstanding > 0:
                    trip = route_latency[node, home] + memory_latency + route_latency[home, node]
                    port = max(port, -(-nbytes[g] * trip // outstanding))
                data = max(tail, head + port)
                end[at + i] = max(data + tail_ps[g], start[at + i] + body[g]) if k == _STREAM else data
                finished = True
            elif not finished:
                event_node[slot] = here
                event_tail[slot] = tail
                _push(heap_time, heap_key, heap_slot, heap_size, head, key, slot)
                heap_size += 1
        if finished:
            free_slots[n_free] = slot
            n_free += 1
            if not on_stack[r]:
                stack[top] = r
                on_stack[r] = True
                top += 1
    counters[0], counters[1], counters[2] = heap_size, n_free, served
    return heap_size
