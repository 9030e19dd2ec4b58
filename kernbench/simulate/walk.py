"""The compiled walk along the critical path; see :mod:`kernbench.simulate.path`."""

from __future__ import annotations

import numba as nb

from kernbench.placement import ADDRESS_BITS

_WORK, _LOAD, _STORE, _SEND, _SEND_SHARED, _RECV, _STREAM, _SCALAR = range(8)
_MATRIX, _VECTOR, _MEMORY, _MEMORY_WAIT, _PORT, _LINK, _LINK_WAIT, _LATENCY, _RECEIVE, _ISSUE, _CREDIT = range(11)
_E_OPERAND, _E_REUSE, _E_ENGINE, _E_MESSAGE, _E_CREDIT, _E_QUEUE, _E_ISSUE = range(7)
_W_OPERAND, _W_REUSE, _W_ENGINE, _W_ORDER = range(4)
_AT_END, _AT_START, _AT_ISSUE = range(3)
_BITS = ADDRESS_BITS


@nb.njit(cache=True)
def _emit(segments, n, begin, end, cause, rank, command):
    """Note a segment of the path; return how many there are. Past the end of ``segments`` they are only counted."""
    if end <= begin:
        return n
    if n < len(segments):
        segments[n, 0], segments[n, 1], segments[n, 2] = begin, end, cause
        segments[n, 3], segments[n, 4] = rank, command
    return n + 1


@nb.njit(cache=True)
def walk(
    class_start, kind, duration, direction, message, nbytes, column, offset,
    wait_start, wait_on, wait_kind, slot_start, slot_on,
    sends, send_start, recvs, recv_start,
    pe_of, rank_of, class_of, lane_of, out, lane_values, lane_start, lanes_in_class, is_vector,
    peer, link_of, opposite, link_latency, node_of_pe, memory_of_node, route_latency, cubes_per_sip, memory_per_sip,
    memory_latency, outstanding, issue_ps, depth,
    issue, start, end, served,
    rank, command, segments, edges,
):  # fmt: skip
    """Walk back from the end of a command; return the number of segments, which may exceed ``len(segments)``."""
    n = 0
    r, i = rank, command
    phase = _AT_END
    while True:
        c, at = class_of[r], out[r]
        g = class_start[c] + i
        pe = pe_of[r]
        k = kind[g]
        if phase == _AT_END:
            # -- the command's own time, last part first
            begin, t = start[at + i], end[at + i]
            if k == _WORK:
                n = _emit(segments, n, begin, t, _VECTOR if is_vector[g] else _MATRIX, r, i)
            elif k == _RECV:
                n = _emit(segments, n, begin, t, _RECEIVE, r, i)
            elif k == _SEND or k == _SEND_SHARED:
                on_link = begin if k == _SEND else served[at + i]
                n = _emit(segments, n, on_link, t, _LINK, r, i)
                n = _emit(segments, n, begin, on_link, _LINK_WAIT, r, i)
            else:
                address = lane_values[lane_start[c] + column[g] * lanes_in_class[c] + lane_of[r]] + offset[g]
                memory, node = address >> _BITS, node_of_pe[pe]
                home = node
                if memory_of_node[node] != memory:
                    home = memory * cubes_per_sip + node % cubes_per_sip if memory_per_sip else memory
                there, back = route_latency[node, home], route_latency[home, node]
                head = served[at + i]
                port = duration[g]
                if k == _STORE:
                    # port, links, wait for channels, channels, latency
                    n = _emit(segments, n, t - memory_latency, t, _LATENCY, r, i)
                    n = _emit(segments, n, head, t - memory_latency, _MEMORY, r, i)
                    arrival = min(begin + there, head)
                    n = _emit(segments, n, arrival, head, _MEMORY_WAIT if home == node else _LINK_WAIT, r, i)
                    n = _emit(segments, n, begin, arrival, _LATENCY, r, i)
                else:
                    if outstanding > 0:
                        port = max(port, -(-nbytes[g] * (there + memory_latency + back) // outstanding))
                    first = head + memory_latency  # the head leaves the memory
                    travelled = min(first + back, t)
                    if k == _STREAM:
                        # what follows the data belongs to the matrix engine
                        moved = min(travelled + port, t)
                        n = _emit(segments, n, moved, t, _MATRIX, r, i)
                        n = _emit(segments, n, travelled, moved, _PORT, r, i)
                    elif t == travelled + port:
                        n = _emit(segments, n, travelled, t, _PORT, r, i)
                    else:
                        n = _emit(segments, n, travelled, t, _MEMORY if home == node else _LINK, r, i)
                    n = _emit(segments, n, head, travelled, _LATENCY, r, i)
                    n = _emit(segments, n, begin + there, head, _MEMORY_WAIT, r, i)
                    n = _emit(segments, n, begin, begin + there, _LATENCY, r, i)
            phase = _AT_START
        if phase == _AT_START:
            # -- what the start waited for: an operand before a message, a buffer, the engine, and issue last
            t = start[at + i]
            found, edge = -1, -1
            for x in range(wait_start[g], wait_start[g + 1]):
                j = wait_on[x]
                w = wait_kind[x]
                moment = start[at + j] if w == _W_ORDER else end[at + j]
                rank_of_edge = min(w, _W_ENGINE)
                if moment == t and (edge < 0 or rank_of_edge < edge):
                    found, edge = x, rank_of_edge
            if edge != _E_OPERAND and k == _RECV:
                source = peer[pe, direction[g]]
                back_way = opposite[direction[g]]
                other = rank_of[source]
                j = sends[send_start[class_of[other] * 12 + back_way] + message[g]]
                latency = link_latency[link_of[source, back_way]]
                if end[out[other] + j] + latency == t:
                    edges[_E_MESSAGE] += 1
                    n = _emit(segments, n, t - latency, t, _LATENCY, r, i)
                    r, i, phase = other, j, _AT_END
                    continue
            if found >= 0:
                edges[edge] += 1
                phase = _AT_START if wait_kind[found] == _W_ORDER else _AT_END
                i = wait_on[found]
                continue
            phase = _AT_ISSUE
        # -- what issue waited for
        t = issue[at + i]
        moved = False
        for x in range(slot_start[g], slot_start[g + 1]):
            if start[at + slot_on[x]] == t and (i == 0 or t > issue[at + i - 1] + issue_ps):
                edges[_E_QUEUE] += 1
                i, phase, moved = slot_on[x], _AT_START, True
                break
        if moved:
            continue
        if (k == _SEND or k == _SEND_SHARED) and message[g] >= depth:
            d = direction[g]
            other = rank_of[peer[pe, d]]
            j = recvs[recv_start[class_of[other] * 12 + opposite[d]] + message[g] - depth]
            latency = link_latency[link_of[pe, d]]
            if start[out[other] + j] + latency == t and (i == 0 or t > issue[at + i - 1] + issue_ps):
                edges[_E_CREDIT] += 1
                n = _emit(segments, n, t - latency, t, _CREDIT, r, i)
                r, i, phase = other, j, _AT_START
                continue
        if i == 0:
            return n
        before = kind[g - 1]
        if before == _RECV and start[at + i - 1] == t:
            edges[_E_MESSAGE] += 1
            i, phase = i - 1, _AT_START
        elif before == _SCALAR and end[at + i - 1] == t:
            edges[_E_OPERAND] += 1
            i, phase = i - 1, _AT_END
        else:
            edges[_E_ISSUE] += 1
            n = _emit(segments, n, t - issue_ps, t, _ISSUE, r, i)
            i, phase = i - 1, _AT_ISSUE
