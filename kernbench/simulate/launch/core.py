"""The compiled core: the rules of :mod:`kernbench.simulate.launch.steps` as one function over flat arrays."""

import numpy as np
from numba import njit

from kernbench.simulate.launch.steps import ENGINE_WAIT, START, Kind

_LOAD, _RUN, _WAIT, _PAUSE = int(Kind.LOAD), int(Kind.RUN), int(Kind.WAIT), int(Kind.PAUSE)
_ENGINE_WAIT, _START = ENGINE_WAIT, START


@njit(cache=True, inline="always")
def _push(heap_t, heap_w, size, t, w):
    i = size
    while i > 0:
        up = (i - 1) >> 1
        if heap_t[up] < t or (heap_t[up] == t and heap_w[up] < w):
            break
        heap_t[i], heap_w[i] = heap_t[up], heap_w[up]
        i = up
    heap_t[i], heap_w[i] = t, w
    return size + 1


@njit(cache=True, inline="always")
def _put_first(heap_t, heap_w, size, t, w):
    """Put (t, w) in the place of the first."""
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        right = child + 1
        if right < size and (
            heap_t[right] < heap_t[child] or (heap_t[right] == heap_t[child] and heap_w[right] < heap_w[child])
        ):
            child = right
        if t < heap_t[child] or (t == heap_t[child] and w < heap_w[child]):
            break
        heap_t[i], heap_w[i] = heap_t[child], heap_w[child]
        i = child
    heap_t[i], heap_w[i] = t, w


_MASK = (1 << 31) - 1


@njit(cache=True, inline="always")
def _channel(key, piece, channels):
    """As :func:`kernbench.simulate.launch.steps.channel_of`."""
    h = ((key & _MASK) * 1103515245 + piece * 12345 + 1540483477) & _MASK
    h ^= h >> 13
    h = (h * 1664525) & _MASK
    return (h ^ h >> 15) % channels


@njit(cache=True, inline="always")
def _from_memory(channel_free, t, key, pieces, over):
    """Take turns of ``over`` ps at the channels of so many pieces; return the end of the last."""
    done = np.int64(0)
    for piece in range(pieces):
        c = _channel(key, piece, len(channel_free))
        channel_free[c] = max(channel_free[c], t) + over
        done = max(done, channel_free[c])
    return done


# An entry of a cache: bytes + 1 of a tile that is there, its arrival, and its neighbours in the order of use, + 1 each.
# So 0 means none, and pages of the table that no workgroup comes near stay the system's zero page.
_SIZE, _ARRIVAL, _OLDER, _NEWER = 0, 1, 2, 3


@njit(cache=True, inline="always")
def _use(table, oldest, newest, used, capacity, cache, tile, size, arrives):
    """Make a tile the newest of a cache, put it in if it is not there, and forget what there is no room for."""
    entry = table[cache, tile]
    if newest[cache] == tile + 1:
        return
    if entry[_SIZE] > 0:
        older, newer = entry[_OLDER], entry[_NEWER]
        if older > 0:
            table[cache, older - 1, _NEWER] = newer
        else:
            oldest[cache] = newer
        table[cache, newer - 1, _OLDER] = older
    else:
        entry[_SIZE], entry[_ARRIVAL] = size + 1, arrives
        used[cache] += size
    top = newest[cache]
    entry[_OLDER], entry[_NEWER] = top, 0
    if top > 0:
        table[cache, top - 1, _NEWER] = tile + 1
    else:
        oldest[cache] = tile + 1
    newest[cache] = tile + 1
    while used[cache] > capacity and oldest[cache] != tile + 1:
        gone = table[cache, oldest[cache] - 1]
        used[cache] -= gone[_SIZE] - 1
        gone[_SIZE] = 0
        oldest[cache] = gone[_NEWER]
        table[cache, gone[_NEWER] - 1, _OLDER] = 0


@njit(cache=True)
def simulate_launch(
    cubes, pes_per_cube, slots, dispatch_ps, start_ps,
    level_per_cube, level_latency, level_capacity, first_cache, table, first_level, dirty_bytes, memory_num, memory_den,
    channels, kind, token, depth, ahead, ps, engines, nbytes, last_nbytes, stream, offset, cause, turns, pieces,
    part_start, iterations, class_of, base, touched, n_tokens,
    begin, end, pe_of, spent, level_busy, level_bytes, engine_busy,
):  # fmt: skip
    """Fill ``begin``, ``end`` and ``pe_of`` of each workgroup, and what its time goes to.

    ``turns[step, 1 if ragged, level]`` says how long a LOAD or STORE takes at each level (at the memory: each piece of
    ``pieces[step, 1 if ragged]``), and last at the port.
    """
    n = len(class_of)
    memory = len(level_latency) - 1  # the last level
    n_pes = cubes * pes_per_cube
    places = n_pes * slots
    resident = np.zeros(n_pes, np.int64)
    matrix_free, vector_free = np.zeros(n_pes, np.int64), np.zeros(n_pes, np.int64)
    port_free = np.zeros(n_pes, np.int64)
    in_cube = np.zeros(cubes, np.int64)
    level_free = np.zeros((memory + 1, cubes), np.int64)
    channel_free = np.zeros((cubes, channels), np.int64)
    requests = np.zeros(cubes * pes_per_cube * slots, np.int64)
    oldest, newest = np.zeros(len(table), np.int64), np.zeros(len(table), np.int64)
    used = np.zeros(len(table), np.int64)
    dirty = dirty_bytes

    # a workgroup that is resident keeps its state in a row
    row_of = np.full(n, -1, np.int64)
    free_rows = np.arange(places - 1, -1, -1)
    n_free = places
    ready = np.zeros((places, max(n_tokens, 1)), np.int64)
    engine_until = np.zeros((places, max(n_tokens, 1)), np.int64)
    part, step, turn = np.zeros(places, np.int64), np.zeros(places, np.int64), np.zeros(places, np.int64)

    heap_t, heap_w = np.zeros(places + 1, np.int64), np.zeros(places + 1, np.int64)
    heap = 0
    next_of_cube = np.arange(cubes)
    next_dispatch = np.int64(0)

    # first round: launch order, while there is room
    blocked = np.zeros(cubes, np.bool_)
    for w in range(n):
        cube = w % cubes
        if blocked[cube]:
            if blocked.all():
                break
            continue
        best = _least_full(resident, cube, pes_per_cube, slots)
        if best < 0:
            blocked[cube] = True
            continue
        resident[best] += 1
        in_cube[cube] += 1
        n_free -= 1
        row_of[w] = free_rows[n_free]
        begin[w], pe_of[w] = next_dispatch, best
        next_of_cube[cube] = w + cubes
        heap = _push(heap_t, heap_w, heap, next_dispatch + start_ps, w)
        spent[w, _START] += start_ps
        next_dispatch += dispatch_ps
    done = 0
    while heap > 0:
        t, w = heap_t[0], heap_w[0]
        row, pe, c = row_of[w], pe_of[w], class_of[w]
        cube = pe // pes_per_cube
        p, s, it = part[row], step[row], turn[row]
        until = np.int64(-1)
        while True:
            first, last = part_start[c, p], part_start[c, p + 1]
            if p == 1 and iterations[c] == 0:
                s = last - first
            if first + s == last:
                if p == 1:
                    it += 1
                    if it < iterations[c]:
                        s = 0
                        if last > first:
                            continue
                p += 1
                s = 0
                it = 0
                if p == 3:
                    break
                continue
            i = first + s
            s += 1
            k = kind[i]
            at = it + ahead[i]
            if p == 1 and at >= iterations[c]:
                continue
            slot = token[i] + (at if at < depth[i] else at % depth[i])
            if k == _LOAD:
                size, ragged = nbytes[i], 0
                if last_nbytes[i] >= 0 and at == iterations[c] - 1:
                    size, ragged = last_nbytes[i], 1
                turn_end = max(port_free[pe], t) + turns[i, ragged, memory + 1]
                port_free[pe] = turn_end
                tile = np.int64(-1)
                if stream[i] >= 0:
                    tile = base[w, stream[i]] + offset[i] + at
                known = tile >= 0 and touched[tile]
                arrives = np.int64(0)
                answers = memory
                key = tile if tile >= 0 else w * 8191 + requests[row]
                requests[row] += 1
                for level in range(memory + 1):
                    here = cube if level_per_cube[level] else 0
                    over = turns[i, ragged, level]
                    level_bytes[level] += size
                    if level == memory:
                        if dirty > 0:
                            back = min(dirty, size)
                            dirty -= back
                            cut = memory_den * pieces[i, ragged]
                            over = max(1, -((-(size + back) * memory_num * channels) // cut))
                        level_busy[level] += over * pieces[i, ragged]
                        turn_end = max(turn_end, _from_memory(channel_free[here], t, key, pieces[i, ragged], over))
                        break
                    level_free[level, here] = max(level_free[level, here], t) + over
                    level_busy[level] += over
                    turn_end = max(turn_end, level_free[level, here])
                    if tile >= 0 and table[first_cache[level] + here, tile, _SIZE] > 0:
                        answers = level
                        arrives = table[first_cache[level] + here, tile, _ARRIVAL]
                        break
                    if level == first_level and not known:
                        answers = level
                        break
                arrives = max(arrives, turn_end + level_latency[answers])
                ready[row, slot] = arrives
                engine_until[row, slot] = 0  # no RUN
                if tile >= 0:
                    touched[tile] = True
                    for level in range(min(answers + 1, memory)):
                        cache = first_cache[level] + (cube if level_per_cube[level] else 0)
                        _use(table, oldest, newest, used, level_capacity[level], cache, tile, size, arrives)
            elif k == _RUN:
                begins = t
                if engines[i] & 1:
                    begins = max(begins, matrix_free[pe])
                if engines[i] & 2:
                    begins = max(begins, vector_free[pe])
                finish = begins + ps[i]
                if engines[i] & 1:
                    matrix_free[pe] = finish
                    engine_busy[0] += ps[i]
                if engines[i] & 2:
                    vector_free[pe] = finish
                    engine_busy[1] += ps[i]
                ready[row, slot] = finish
                engine_until[row, slot] = begins
            elif k == _WAIT:
                if ready[row, slot] > t:
                    until = ready[row, slot]
                    spent[w, cause[i]] += until - t
                    if cause[i] < 2:  # of a RUN: what passed before it began was not its own work
                        held_up = min(max(engine_until[row, slot] - t, 0), until - t)
                        spent[w, cause[i]] -= held_up
                        spent[w, _ENGINE_WAIT] += held_up
                    break
            elif k == _PAUSE:
                until = t + ps[i]
                spent[w, cause[i]] += ps[i]
                break
            else:
                here = cube if level_per_cube[memory] else 0
                key = w * 8191 + requests[row]
                requests[row] += 1
                _from_memory(channel_free[here], t, key, pieces[i, 0], turns[i, 0, memory])
                level_busy[memory] += turns[i, 0, memory] * pieces[i, 0]
                level_bytes[memory] += nbytes[i]
        if until >= 0:
            part[row], step[row], turn[row] = p, s, it
            _put_first(heap_t, heap_w, heap, until, w)
            continue
        heap -= 1
        _put_first(heap_t, heap_w, heap, heap_t[heap], heap_w[heap])
        end[w] = t
        done += 1
        part[row], step[row], turn[row] = 0, 0, 0
        ready[row, :] = 0
        requests[row] = 0
        resident[pe] -= 1
        in_cube[cube] -= 1
        free_rows[n_free] = row
        n_free += 1
        row_of[w] = -1
        following = next_of_cube[cube]
        if following < n:
            best = pe  # the only place, as a rule: no need to look for it
            if in_cube[cube] < pes_per_cube * slots - 1:
                best = _least_full(resident, cube, pes_per_cube, slots)
            resident[best] += 1
            in_cube[cube] += 1
            n_free -= 1
            row_of[following] = free_rows[n_free]
            at_once = max(t, next_dispatch)
            next_dispatch = at_once + dispatch_ps
            begin[following], pe_of[following] = at_once, best
            next_of_cube[cube] = following + cubes
            heap = _push(heap_t, heap_w, heap, at_once + start_ps, following)
            spent[following, _START] += start_ps
    return done


@njit(cache=True, inline="always")
def _least_full(resident, cube, pes_per_cube, slots):
    best, least = -1, slots
    for pe in range(cube * pes_per_cube, (cube + 1) * pes_per_cube):
        if resident[pe] < least:
            best, least = pe, resident[pe]
            if least == 0:
                break
    return best
