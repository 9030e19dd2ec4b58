"""The compiled part of :mod:`kernbench.simulate.engine_time`."""

from __future__ import annotations

import numba as nb
import numpy as np

_BUSY, _FIRST, _IDLE = 0, 1, 10  # kernbench.simulate.engine_time.COLUMNS: those of Held begin at _FIRST
_ISSUE, _MEMORY, _LINK = 0, 7, 8  # kernbench.simulate.waits.Held
_jit = nb.njit(cache=True, nogil=True, error_model="numpy")


@_jit
def use_of_engines(
    start, end, out, class_of, ranks, class_engines, list_start, lists, lanes, rows, waits, why, spans, makespan, ps,
):  # fmt: skip
    """Write the time of each engine of some PEs; ``waits``, ``why`` and ``spans`` are as ``held_back`` writes them."""
    first_row = out[ranks[0]]
    # Which spans are whose: they come in the order of the commands.
    span_start = np.zeros(len(waits) + 1, np.int64)
    for x in range(len(spans)):
        span_start[spans[x, 0] + 1] += 1
    for x in range(len(waits)):
        span_start[x + 1] += span_start[x]
    for which in range(len(ranks)):
        r = ranks[which]
        c, at = class_of[r], out[r]
        for e in range(class_engines[c], class_engines[c + 1]):
            time = ps[rows[which] + e - class_engines[c]]
            reach = np.int64(0)
            waiting = False
            for x in range(list_start[e], list_start[e + 1]):
                p = at + lists[x]
                row = p - first_row
                gap = start[p] - reach
                if gap > 0:
                    by_start = min(gap, waits[row, 1])
                    by_issue = min(gap - by_start, waits[row, 0])
                    time[_FIRST + why[row, 1]] += by_start
                    time[_FIRST + why[row, 0]] += by_issue
                    time[_FIRST + _ISSUE] += gap - by_start - by_issue
                time[_BUSY] += max(end[p] - max(start[p], reach), 0)
                reach = max(reach, end[p])
                if lanes[e] == 1:
                    time[_BUSY] -= waits[row, 2] + waits[row, 3]
                    time[_FIRST + _MEMORY] += waits[row, 2]
                    time[_FIRST + _LINK] += waits[row, 3]
                waiting = waiting or waits[row, 2] + waits[row, 3] > 0
            if waiting and lanes[e] > 1:
                mine = lists[list_start[e] : list_start[e + 1]]
                memory, link = _waiting_only(start, end, at, mine, span_start, spans, first_row)
                time[_BUSY] -= memory + link
                time[_FIRST + _MEMORY] += memory
                time[_FIRST + _LINK] += link
            time[_IDLE] += makespan - reach


@_jit
def _waiting_only(start, end, at, commands, span_start, spans, first_row):
    """Time in which commands are at work but all of them wait, at memory (or else) at links.

    The moments when commands start, end, begin to wait and go on are sorted and passed one by one.
    """
    count = 0
    for i in commands:
        row = at + i - first_row
        count += 2 + 2 * (span_start[row + 1] - span_start[row])
    moment, change = np.empty(count, np.int64), np.empty(count, np.int64)
    n = 0
    for i in commands:
        row = at + i - first_row
        moment[n], change[n], moment[n + 1], change[n + 1] = start[at + i], 1, end[at + i], -1
        n += 2
        for x in range(span_start[row], span_start[row + 1]):
            step = 2 + spans[x, 3]
            moment[n], change[n], moment[n + 1], change[n + 1] = spans[x, 1], step, spans[x, 2], -step
            n += 2
    order = _sorted(moment)
    at_work = at_memory = at_link = 0
    memory = link = np.int64(0)
    for x in range(count):
        step = change[order[x]]
        if abs(step) == 1:
            at_work += step
        elif abs(step) == 2:
            at_memory += step // 2
        else:
            at_link += step // 3
        if x + 1 < count and at_work > 0 and at_work == at_memory + at_link:
            passed = moment[order[x + 1]] - moment[order[x]]
            if at_memory > 0:
                memory += passed
            else:
                link += passed
    return memory, link


@_jit
def _sorted(values):
    """Order of the values, by merging runs: they come nearly sorted."""
    n = len(values)
    order, other = np.arange(n), np.empty(n, np.int64)
    width = 1
    while width < n:
        for low in range(0, n, 2 * width):
            middle, high = min(low + width, n), min(low + 2 * width, n)
            a, b = low, middle
            for x in range(low, high):
                if a < middle and (b >= high or values[order[a]] <= values[order[b]]):
                    other[x] = order[a]
                    a += 1
                else:
                    other[x] = order[b]
                    b += 1
        order, other = other, order
        width *= 2
    return order
