"""The compiled walk along the critical path; see :mod:`kernbench.simulate.path`."""

from __future__ import annotations

import numba as nb
import numpy as np

from kernbench.placement import ADDRESS_BITS
from kernbench.simulate import journey, serve
from kernbench.simulate.journey import decides, home_of, hops_of, most_bytes
from kernbench.simulate.serve import bytes_in_channel, first_at, serve_again
from kernbench.simulate.stale import compiled_with

_BITS = ADDRESS_BITS
_WORK, _LOAD, _STORE, _SEND, _SEND_SHARED, _RECV, _STREAM, _SCALAR = range(8)  # kernbench.simulate.program.Kind
_W_OPERAND, _W_REUSE, _W_ENGINE, _W_ORDER = range(4)  # kernbench.simulate.program.Wait
_E_OPERAND, _E_REUSE, _E_ENGINE, _E_MESSAGE, _E_CREDIT, _E_QUEUE, _E_ISSUE, _E_MEMORY, _E_LINK = range(9)  # path.Edge
_MATRIX, _VECTOR, _MEMORY, _PORT, _LINK, _LATENCY, _RECEIVE, _ISSUE, _CREDIT = range(9)  # path.Cause
_AT_END, _AT_START, _AT_ISSUE, _AT_MEMORY, _AT_LINK = range(5)
_AT_PE = -1


@nb.njit("int64(int64[:, ::1], int64, int64, int64, int64, int64, int64, int64)", cache=True)
def _note(segments, n, begin, end, cause, place, rank, command):
    """Note a segment of the path; return how many there are. Past the end of ``segments`` they are only counted."""
    if begin == end:
        return n
    if n < len(segments):
        segments[n, 0], segments[n, 1], segments[n, 2], segments[n, 3] = begin, end, cause, place
        segments[n, 4], segments[n, 5] = rank, command
    return n + 1


@compiled_with(journey, serve)
@nb.njit(cache=True, error_model="numpy")
def walk(
    class_start, kind, duration, body, tail, nbytes, direction, message, column, offset, is_vector,
    wait_start, wait_on, wait_kind, slot_start, slot_on, sends, send_start, recvs, recv_start,
    pe_of, rank_of, class_of, lane_of, out, lane_values, lane_start, lanes_in_class,
    peer, link_of, opposite, link_num, link_den, link_latency, message_latency,
    node_of_pe, memory_of_node, next_node, next_link, route_latency, cubes_per_sip, memory_per_sip, n_memories,
    channels, interleave, channel_num, channel_den, memory_latency, outstanding, issue_ps, depth,
    issue, start, end, served, hop_place, hop_link, hop_begin,
    server_start, arrival, server_rank, server_command, server_hop, channel_begin, is_laid_out,
    rank, command, segments, edges,
):  # fmt: skip
    """Walk back from the end of a command; return the number of segments, which may exceed ``len(segments)``.

    ``segments`` is int64[n, 6]: begin, end, cause, place, rank, command; ``edges`` counts why each step waited for the
    one before it in time. The segments of a way to a memory stand in the order of the way, all others the last first.
    The columns of servers are those of :class:`kernbench.simulate.servers.Services`; ``channel_begin`` is filled for a
    memory when it is needed, and then ``is_laid_out`` is true of it.
    """
    n = 0
    r, i = rank, command
    phase = _AT_END
    hop = np.int64(-1)  # at a link: which one of the way of a load or store; -1: that of a message
    service, channel = np.int64(-1), np.int64(-1)  # at a memory: -1 if they are to be found
    done = np.int64(-1)  # when that channel was done; -1: it was the first to begin
    while True:
        c, at = class_of[r], out[r]
        g, p = class_start[c] + i, at + i
        pe = pe_of[r]
        k = kind[g]
        touches = k == _LOAD or k == _STORE or k == _STREAM or k == _SCALAR
        node = home = memory = address = np.int64(0)
        first, last = np.int64(0), np.int64(0)
        if touches:
            address = lane_values[lane_start[c] + column[g] * lanes_in_class[c] + lane_of[r]] + offset[g]
            memory, node = address >> _BITS, np.int64(node_of_pe[pe])
            home = home_of(node, memory, np.int64(memory_of_node[node]), cubes_per_sip, memory_per_sip)
            if home != node:
                first, last = hops_of(hop_place, p)

        if phase == _AT_END:
            # -- the command's own time, down to where it may have waited for others
            begin, t = start[p], end[p]
            phase = _AT_START
            if k == _WORK:
                n = _note(segments, n, begin, t, _VECTOR if is_vector[g] else _MATRIX, _AT_PE, r, i)
            elif k == _RECV:
                n = _note(segments, n, begin, t, _RECEIVE, _AT_PE, r, i)
            elif not touches:
                n = _note(segments, n, served[p], t, _LINK, n_memories + link_of[pe, direction[g]], r, i)
                hop = -1
                if k == _SEND_SHARED:
                    phase = _AT_LINK
            else:
                port = duration[g]
                if outstanding > 0 and k != _STORE:
                    trip = route_latency[node, home] + memory_latency + route_latency[home, node]
                    port = max(port, -(-nbytes[g] * trip // outstanding))
                alone = -(-most_bytes(address, nbytes[g], channels, interleave) * channel_num // channel_den)
                cause, hop, data, _ = decides(
                    k, begin, t, served[p], nbytes[g], port, body[g], tail[g],
                    route_latency[node, home], memory_latency, alone,
                    first, last, hop_link, hop_begin, link_num, link_den, link_latency,
                )  # fmt: skip
                if cause == _MATRIX:
                    n = _note(segments, n, begin, t, _MATRIX, _AT_PE, r, i)
                    continue
                if k == _STORE:
                    n = _note(segments, n, data, t, _LATENCY, memory, r, i)
                else:
                    n = _note(segments, n, data, t, _MATRIX, _AT_PE, r, i)  # what a composite does behind the data
                t = data
                if cause == _PORT and k != _STORE:
                    n = _note(segments, n, t - port, t, _PORT, _AT_PE, r, i)
                    t -= port
                    hop = last - 1
                    if last > first:
                        n = _note(segments, n, hop_begin[hop], t, _LATENCY, n_memories + hop_link[hop], r, i)
                        phase = _AT_LINK
                    else:
                        n = _note(segments, n, served[p], t, _LATENCY, memory, r, i)
                        phase, service, done = _AT_MEMORY, -1, -1
                    continue
                if not (cause == _MEMORY and k == _STORE):
                    for h in range(last - 1, (hop if cause == _LINK else first) - 1, -1):
                        latency = link_latency[hop_link[h]]
                        n = _note(segments, n, t - latency, t, _LATENCY, n_memories + hop_link[h], r, i)
                        t -= latency
                if cause == _PORT:
                    n = _note(segments, n, begin, t, _PORT, _AT_PE, r, i)
                elif cause == _LINK:
                    n = _note(segments, n, hop_begin[hop], t, _LINK, n_memories + hop_link[hop], r, i)
                    phase = _AT_LINK
                else:
                    if k != _STORE:
                        n = _note(segments, n, t - memory_latency, t, _LATENCY, memory, r, i)
                        t -= memory_latency
                    phase, service, done = _AT_MEMORY, -1, t

        if phase == _AT_MEMORY:
            # -- when a memory channel began with the bytes: behind another request, or when they came
            lo, hi = server_start[memory], server_start[memory + 1]
            if not is_laid_out[memory]:
                is_laid_out[memory] = True
                serve_again(
                    lo, hi, arrival, server_rank, server_command, channel_begin, class_start, nbytes, column, offset,
                    class_of, lane_of, lane_values, lane_start, lanes_in_class,
                    channels, interleave, channel_num, channel_den,
                )  # fmt: skip
            if service < 0:
                came = start[p] + route_latency[node, home]
                if k == _STORE:
                    came = start[p]
                    if last > first:
                        came = hop_begin[last - 1] + link_latency[hop_link[last - 1]]
                service = first_at(arrival, lo, hi, came)
                while server_rank[service] != r or server_command[service] != i:
                    service += 1
                for x in range(channels):
                    begin = channel_begin[service, x]
                    share = bytes_in_channel(address, nbytes[g], x, channels, interleave)
                    released = begin + -(-share * channel_num // channel_den)
                    if begin >= 0 and (begin == served[p] if done < 0 else released == done):
                        channel = np.int64(x)
                        break
                if done >= 0:
                    n = _note(segments, n, channel_begin[service, channel], done, _MEMORY, memory, r, i)
            t, came = channel_begin[service, channel], arrival[service]
            if t > came:
                edges[_E_MEMORY] += 1
                service -= 1
                while channel_begin[service, channel] < 0:
                    service -= 1
                r, i = np.int64(server_rank[service]), np.int64(server_command[service])
                n = _note(segments, n, channel_begin[service, channel], t, _MEMORY, memory, r, i)
                continue
            if k == _STORE:
                phase = _AT_START
                if last > first:
                    hop = last - 1
                    n = _note(segments, n, hop_begin[hop], t, _LATENCY, n_memories + hop_link[hop], r, i)
                    phase = _AT_LINK
                    continue
            else:
                phase = _AT_START
                here, far = node, t - route_latency[node, home]
                while here != home:
                    link = next_link[here, home]
                    n = _note(segments, n, far, far + link_latency[link], _LATENCY, n_memories + link, r, i)
                    far += link_latency[link]
                    here = np.int64(next_node[here, home])
        elif phase == _AT_LINK:
            # -- when a link began with the bytes: behind others, or when they came
            if hop < 0:
                link, t, came = np.int64(link_of[pe, direction[g]]), served[p], start[p]
            else:
                link, t = np.int64(hop_link[hop]), hop_begin[hop]
                if hop > first:
                    came = hop_begin[hop - 1] + link_latency[hop_link[hop - 1]]
                else:
                    came = start[p] if k == _STORE else served[p] + memory_latency
            if t > came:
                edges[_E_LINK] += 1
                server = n_memories + link
                before = first_at(arrival, server_start[server], server_start[server + 1], t) - 1
                r, i, hop = np.int64(server_rank[before]), np.int64(server_command[before]), server_hop[before]
                n = _note(segments, n, arrival[before], t, _LINK, server, r, i)
                continue
            if hop > first:
                hop -= 1
                n = _note(segments, n, hop_begin[hop], t, _LATENCY, n_memories + hop_link[hop], r, i)
                continue
            if hop >= 0 and k != _STORE:
                n = _note(segments, n, served[p], t, _LATENCY, memory, r, i)
                phase, service, done = _AT_MEMORY, -1, -1
                continue
            phase = _AT_START

        if phase == _AT_START:
            # -- what the start waited for: an operand before a message, a buffer, the engine, and issue last
            t = start[p]
            found, edge = -1, -1
            for x in range(wait_start[g], wait_start[g + 1]):
                j = wait_on[x]
                w = wait_kind[x]
                moment = start[at + j] if w == _W_ORDER else end[at + j]
                why = min(w, _W_ENGINE)  # as _E_OPERAND, _E_REUSE, _E_ENGINE
                if moment == t and (edge < 0 or why < edge):
                    found, edge = x, why
            if edge != _E_OPERAND and k == _RECV:
                source = peer[pe, direction[g]]
                back_way = opposite[direction[g]]
                other = rank_of[source]
                j = sends[send_start[class_of[other] * 12 + back_way] + message[g]]
                link = link_of[source, back_way]
                if end[out[other] + j] + message_latency[link] == t:
                    edges[_E_MESSAGE] += 1
                    n = _note(segments, n, t - message_latency[link], t, _LATENCY, n_memories + link, r, i)
                    r, i, phase = np.int64(other), np.int64(j), _AT_END
                    continue
            if found >= 0:
                edges[edge] += 1
                phase = _AT_START if wait_kind[found] == _W_ORDER else _AT_END
                i = np.int64(wait_on[found])
                continue

        # -- what issue waited for
        t = issue[p]
        if i == 0 or t > issue[p - 1] + issue_ps:
            moved = False
            for x in range(slot_start[g], slot_start[g + 1]):
                if start[at + slot_on[x]] == t:
                    edges[_E_QUEUE] += 1
                    i, phase, moved = np.int64(slot_on[x]), _AT_START, True
                    break
            if moved:
                continue
            if (k == _SEND or k == _SEND_SHARED) and message[g] >= depth:
                d = direction[g]
                other = rank_of[peer[pe, d]]
                j = recvs[recv_start[class_of[other] * 12 + opposite[d]] + message[g] - depth]
                link = link_of[pe, d]
                if start[out[other] + j] + message_latency[link] == t:
                    edges[_E_CREDIT] += 1
                    n = _note(segments, n, t - message_latency[link], t, _CREDIT, n_memories + link, r, i)
                    r, i, phase = np.int64(other), np.int64(j), _AT_START
                    continue
        if i == 0:
            return n
        before = kind[g - 1]
        if before == _RECV and start[p - 1] == t:
            edges[_E_MESSAGE] += 1
            i, phase = i - 1, _AT_START
        elif before == _SCALAR and end[p - 1] == t:
            edges[_E_OPERAND] += 1
            i, phase = i - 1, _AT_END
        else:
            edges[_E_ISSUE] += 1
            n = _note(segments, n, t - issue_ps, t, _ISSUE, _AT_PE, r, i)
            i, phase = i - 1, _AT_ISSUE
