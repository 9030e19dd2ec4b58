"""The format and the decode kernel once more, written from their description and sharing nothing with the product.

Slow and scalar on purpose: what a careful reader would write down first.
"""

import math

import numpy as np

LEVELS = [-6, -4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 6]


# --- number formats ------------------------------------------------------------------------------------------------


def fp4_value(nibble):
    """E2M1 by its fields: one sign, two exponent, one mantissa bit, bias 1, subnormals."""
    sign, exponent, mantissa = nibble >> 3, nibble >> 1 & 3, nibble & 1
    size = mantissa * 0.5 if exponent == 0 else (1 + mantissa / 2) * 2.0 ** (exponent - 1)
    return -size if sign else size


def fp4_nibble(level):
    found = [n for n in range(16) if fp4_value(n) == level]
    return found[0]  # 0, not 8, for zero


def scale_value(byte):
    return math.ldexp(1.0, byte - 127) if byte else 0.0


def bf16(x):
    """Round float32 to bfloat16 by its bits, ties to even."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32).astype(np.uint64)
    bits = bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000
    return bits.astype(np.uint32).view(np.float32)


def e4m3_grid():
    grid = [m * 2.0**-9 for m in range(8)]
    grid += [(1 + m / 8) * 2.0 ** (e - 7) for e in range(1, 16) for m in range(8)]
    return np.array(grid[:-1])  # the last pattern is NaN


def e4m3(x):
    """Round to E4M3 by search: the nearest of the grid, the even pattern if two are equally near; saturates."""
    grid = e4m3_grid()
    size = np.abs(np.asarray(x, np.float64))
    above = np.searchsorted(grid, size).clip(1, len(grid) - 1)
    low, high = grid[above - 1], grid[above]
    middle = (low + high) / 2
    take_high = (size > middle) | ((size == middle) & (above % 2 == 0))
    return np.copysign(np.where(take_high, high, low), x)


# --- rotation ------------------------------------------------------------------------------------------------------


def hadamard_entry(i, j):
    return (-1) ** (i & j).bit_count() / 16


HADAMARD = np.array([[hadamard_entry(i, j) for j in range(256)] for i in range(256)])


def wht_float32(x):
    """In-place fast transform of one vector in float32, strides 1 to 128."""
    x = np.array(x, np.float32)
    stride = 1
    while stride < 256:
        for i in range(256):
            if not i & stride:
                a, b = x[i], x[i + stride]
                x[i], x[i + stride] = a + b, a - b
        stride *= 2
    return x


def rotated_query(q):
    """Q (heads, 256) of bfloat16 values to E4M3 values."""
    return np.array([e4m3(wht_float32(row) * np.float32(1 / 16)) for row in np.asarray(q, np.float32)])


# --- store ---------------------------------------------------------------------------------------------------------


def quantise_group(group):
    """32 float32 values to (nibbles, scale byte)."""
    group = [np.float32(x) for x in group]
    amax = max(abs(x) for x in group)
    if amax == 0:
        return [0] * 32, 0
    raw = float(amax * np.float32(0.156))
    log = np.float32(math.log2(raw)) if raw > 0 else np.float32(-np.inf)
    e = int(np.clip(np.floor(log + np.float32(0.5)), -126, 127))
    nibbles = []
    for x in group:
        y = float(x) / 2.0**e
        nearest = min(abs(y - level) for level in LEVELS)
        nibbles.append(fp4_nibble(min(level for level in LEVELS if abs(y - level) == nearest)))
    return nibbles, e + 127


def make_slot(k, v):
    """272 bytes of one token and head from its K (rotated here) and V, 256 each."""
    slot = bytearray(272)
    k_rot = (np.asarray(k, np.float64) @ HADAMARD).astype(np.float32)
    for x, codes_at, scales_at in ((k_rot, 0, 128), (v, 136, 264)):
        for g in range(8):
            nibbles, slot[scales_at + g] = quantise_group(x[32 * g : 32 * g + 32])
            for i in range(16):
                slot[codes_at + 16 * g + i] = nibbles[2 * i] + 16 * nibbles[2 * i + 1]
    return bytes(slot)


def read_slot(memory, spec, block, position, head):
    """K (rotated) and V of a slot of a flat byte buffer, in float64."""
    at = block * spec.kv_block_size * spec.num_kv_heads * spec.padded_slot
    at += position * spec.num_kv_heads * spec.padded_slot + head * spec.padded_slot
    found = []
    for codes_at, scales_at in ((at, at + 128), (at + 136, at + 264)):
        x = []
        for d in range(256):
            byte = memory[codes_at + d // 2]
            x.append(fp4_value(byte >> 4 if d % 2 else byte & 15) * scale_value(memory[scales_at + d // 32]))
        found.append(x)
    return found


class SlotReader:
    """Reads slots of a cache, each once."""

    def __init__(self, spec, cache):
        self.spec, self.memory, self.known = spec, cache.tobytes(), {}

    def __call__(self, *where):
        if where not in self.known:
            self.known[where] = read_slot(self.memory, self.spec, *where)
        return self.known[where]


# --- decode --------------------------------------------------------------------------------------------------------


def decode_partition(spec, read, q_rot, table, length, head, part, drop_tile=None):
    """One workgroup: its output (G, 256), sums (G,) and maxima (G,). The tile at token ``drop_tile`` is left out."""
    log2e = np.float32(1.4426950408889634)
    group = spec.query_group_size
    m = np.full(group, -np.inf, np.float32)
    l = np.zeros(group, np.float32)
    acc = np.zeros((group, 256), np.float32)
    total_groups = math.ceil(length / 256)
    trips = 0
    if total_groups > part:
        trips = min(math.ceil((total_groups - part) / spec.num_partitions), spec.tile_groups_per_partition)
    for i in range(trips):
        for t in range(16):
            start = (part + i * spec.num_partitions) * 256 + 16 * t
            if start == drop_tile:
                continue
            block = table[start // spec.kv_block_size if start < length else 0]
            rows = [read(int(block), (start + j) % spec.kv_block_size, head) for j in range(16)]
            k, v = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
            s = (q_rot @ k.T).astype(np.float32) * np.float32(
                1 / 16 if spec.softmax_scale is None else spec.softmax_scale
            )
            for j in range(16):
                if start + j >= length:
                    s[:, j] = -np.inf
            new = np.maximum(m, s.max(axis=1))
            a = np.array([1 if old == -np.inf else np.exp2((old - n) * log2e) for old, n in zip(m, new, strict=True)])
            p = np.exp2((s - new[:, None]) * log2e)
            l = (l * a.astype(np.float32) + p.sum(axis=1, dtype=np.float64)).astype(np.float32)
            acc = (acc * a.astype(np.float32)[:, None]).astype(np.float64) + bf16(p).astype(np.float64) @ v
            acc, m = acc.astype(np.float32), new
    return bf16(acc / np.where(l > 0, l, 1)[:, None].astype(np.float32)), l, m


def decode(spec, query, cache, tables, lengths, drop=None):
    """All workgroups, as (out, sums, maxima). ``drop = (seq, token)`` leaves one tile out."""
    shape = (spec.num_seqs, spec.num_kv_heads, spec.num_partitions, spec.query_group_size)
    out, sums, maxima = np.zeros((*shape, 256), np.float32), np.zeros(shape), np.zeros(shape)
    read = SlotReader(spec, cache)
    for b in range(spec.num_seqs):
        q = rotated_query(query[b])
        for h in range(spec.num_kv_heads):
            rows = q[h * spec.query_group_size : (h + 1) * spec.query_group_size]
            for p in range(spec.num_partitions):
                dropped = drop[1] if drop and drop[0] == b else None
                found = decode_partition(spec, read, rows, tables[b], lengths[b], h, p, dropped)
                out[b, h, p], sums[b, h, p], maxima[b, h, p] = found
    return out, sums, maxima


def reduce(out, sums, maxima):
    """Merge partitions, in float64: (B, Hq, 256)."""
    rows = []
    for o, l, m in zip(*(np.moveaxis(x, 2, 0) for x in (out, sums, maxima)), strict=True):
        rows.append((o.astype(np.float64), l, m))
    top = np.max([m for _, _, m in rows], axis=0)
    top = np.where(top == -np.inf, 0, top)
    weights = [np.exp(m - top) * l for _, l, m in rows]
    total = np.sum(weights, axis=0)[..., None]
    summed = np.sum([w[..., None] * o for w, (o, _, _) in zip(weights, rows, strict=True)], axis=0)
    return (summed / np.where(total == 0, 1, total)).reshape(len(out), -1, 256)


def bf16_ulp(x):
    """Distance of neighbouring bfloat16 numbers at |x|."""
    exponent = np.frexp(np.abs(x))[1]
    return np.where(x == 0, 0, 2.0 ** (exponent - 8))
