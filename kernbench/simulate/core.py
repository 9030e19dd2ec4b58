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
_AT_MEMORY = -1
_BITS = ADDRESS_BITS
_COMMAND_BITS = 32
_1 = np.uintp(1)
_jit = nb.njit(cache=True, nogil=True, error_model="numpy")


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
    # The last one belongs near the bottom again: let the smaller child move up all the way, then it up a little.
    i = np.uintp(0)
    child = np.uintp(1)
    bottom = np.uintp(max(last, 1) - 1)
    while child < bottom:
        right = child + _1
        first, second = heap_time[child], heap_time[right]
        if second < first or (second == first and heap_key[right] < heap_key[child]):
            child = right
        heap_time[i], heap_key[i], heap_slot[i] = heap_time[child], heap_key[child], heap_slot[child]
        i = child
        child = i + i + _1
    if child == bottom and last > 0:
        heap_time[i], heap_key[i], heap_slot[i] = heap_time[child], heap_key[child], heap_slot[child]
        i = child
    while i > 0:
        parent = (i - _1) >> _1
        if heap_time[parent] < time or (heap_time[parent] == time and heap_key[parent] <= key):
            break
        heap_time[i], heap_key[i], heap_slot[i] = heap_time[parent], heap_key[parent], heap_slot[parent]
        i = parent
    heap_time[i], heap_key[i], heap_slot[i] = time, key, slot


@_jit
def _serve_memory(address, nbytes, arrival, free, busy, channels, interleave, num, den):
    """Serve a request in the channels that its bytes fall into; return (first begin, last end)."""
    one = np.uint64(1)  # numbers without a sign are divided faster
    start = np.uint64(address & ((np.int64(1) << _BITS) - 1))
    width, many, up, down = np.uint64(interleave), np.uint64(channels), np.uint64(num), np.uint64(den)
    stop = start + np.uint64(nbytes)
    first, last = start // width, (stop - one) // width
    stripes = last - first + one
    whole, more = stripes // many, stripes % many
    head_cut, tail_cut = start - first * width, (last + one) * width - stop
    even = more == 0 and head_cut == 0 and tail_cut == 0
    duration = np.int64((whole * width * up + down - one) // down) if even else np.int64(0)
    head, tail = np.int64(-1), np.int64(0)
    base, last_channel, channel = np.uint64(address >> _BITS) * many, last % many, first % many
    for j in range(min(stripes, many)):
        if not even:
            share = whole * width
            if np.uint64(j) < more:
                share += width
            if j == 0:
                share -= head_cut
            if channel == last_channel:
                share -= tail_cut
            duration = np.int64((share * up + down - one) // down)
        at = base + channel
        begin = max(arrival, free[at])
        free[at] = begin + duration
        busy[at] += duration
        if head < 0 or begin < head:
            head = begin
        tail = max(tail, begin + duration)
        channel += one
        if channel == many:
            channel = np.uint64(0)
    return head, tail


@_jit
def run(
    # program, by command
    class_start, kind, duration, body, tail_ps, nbytes, direction, message, column, offset,
    engines, wait_start, wait_on, slot_start, slot_on,
    sends, send_start, recvs, recv_start,
    # program, by PE
    pe_of, rank_of, class_of, lane_of, out, lane_values, lane_start, lanes_in_class,
    # machine
    peer, link_of, opposite, link_num, link_den, link_latency, message_latency,
    node_of_pe, memory_of_node, next_node, next_link, route_latency, cubes_per_sip, memory_per_sip,
    channels, interleave, channel_num, channel_den, memory_latency, outstanding,
    issue_ps, depth,
    # state
    memory_free, memory_busy, link_free, link_busy, link_bytes,
    issue, start, end, served_at,
    pointer, next_issue, held, window, window_size, window_engines,
    heap_time, heap_key, heap_slot, event_node, event_tail, free_slots, counters,
    stack, on_stack,
    hop_place, hop_link, hop_begin,
    max_events,
):  # fmt: skip
    """Time a program, or go on with it for up to ``max_events`` events. Return the number of events still waiting.

    It also returns when there is no room to note another hop of a load or store.

    ``wait_on`` holds the commands whose ends are waited for, and ``~j`` for the start of command j.

    ``counters`` holds [events in the heap, free event slots, events served, hops noted]. ``pointer[r]`` is the next
    command that PE r issues, ``next_issue[r]`` when it may, ``held[r]`` the command whose start or end issue waits for
    (-1: none). ``window[r, :window_size[r]]`` are the commands that are issued but not started, in order, and
    ``window_engines[r]`` has a bit for each engine that one of them occupies.
    """
    heap_size, n_free, served, n_hops = counters[0], counters[1], counters[2], counters[3]
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
            next_to_issue, ready, hold = pointer[r], next_issue[r], held[r]
            in_window, stay = window_engines[r], 0  # engines that the commands in the window occupy: before, and now
            blocked = 0  # engines whose next command cannot start yet
            while True:
                # next candidate: first the window, in order; then newly issued commands
                if w < waiting:
                    if blocked & in_window == in_window:  # so is all that follows
                        stay |= in_window
                        for x in range(w, waiting if kept < w else w):
                            window[r, kept + x - w] = window[r, x]
                        kept += waiting - w
                        w = waiting
                        continue
                    i = window[r, w]
                    w += 1
                else:
                    if hold >= 0:
                        h = np.uintp(at + hold)
                        free = end[h] if kind[base + hold] == _SCALAR else start[h]
                        if free < 0:
                            break
                        ready = max(ready, free)
                        hold = -1
                    i = next_to_issue
                    if i >= n:
                        break
                    t = ready
                    g = np.uintp(base + i)
                    known = True
                    for x in range(slot_start[g], slot_start[g + _1]):
                        begun = start[np.uintp(at + slot_on[np.uintp(x)])]
                        if begun < 0:
                            known = False
                            break
                        t = max(t, begun)
                    if not known:
                        break
                    k = kind[g]
                    if (k == _SEND or k == _SEND_SHARED) and message[g] >= depth:
                        d = direction[g]
                        other = rank_of[peer[pe, d]]
                        slot = recv_start[class_of[other] * 12 + opposite[d]] + message[g] - depth
                        taken = start[out[other] + recvs[slot]]
                        if taken < 0:
                            break
                        t = max(t, taken + message_latency[link_of[pe, d]])
                    issue[np.uintp(at + i)] = t
                    ready = t + issue_ps
                    next_to_issue = i + 1
                    if k == _RECV or k == _SCALAR:
                        hold = i

                # try to start command i
                g, p = np.uintp(base + i), np.uintp(at + i)
                if engines[g] & blocked:
                    stay |= engines[g]
                    window[r, kept] = i
                    kept += 1
                    continue
                k = kind[g]
                t = issue[p]
                known = True
                for wait in range(wait_start[g], wait_start[g + _1]):
                    j = wait_on[np.uintp(wait)]
                    moment = end[np.uintp(at + j)] if j >= 0 else start[np.uintp(at + ~j)]
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
                    sent = end[out[other] + sends[slot]]
                    if sent < 0:
                        known = False
                    else:
                        t = max(t, sent + message_latency[link_of[source, back]])
                if not known:
                    blocked |= engines[g]
                    stay |= engines[g]
                    window[r, kept] = i
                    kept += 1
                    continue
                start[p] = t
                if k == _WORK:
                    end[p] = t + duration[g]
                elif k == _RECV or k == _SEND:
                    d = direction[g]
                    if k == _RECV:
                        end[at + i] = t + duration[g]
                    else:
                        link = link_of[pe, d]
                        occupied = -(-nbytes[g] * link_num[link] // link_den[link])
                        end[at + i] = t + occupied
                        served_at[at + i] = t
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
            window_size[r], window_engines[r] = kept, stay
            pointer[r], next_issue[r], held[r] = next_to_issue, ready, hold

        if heap_size == 0 or budget == 0 or n_hops == len(hop_place):
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
                hop_place[n_hops], hop_link[n_hops], hop_begin[n_hops] = at + i, link, begin
                n_hops += 1
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
    counters[0], counters[1], counters[2], counters[3] = heap_size, n_free, served, n_hops
    return heap_size
