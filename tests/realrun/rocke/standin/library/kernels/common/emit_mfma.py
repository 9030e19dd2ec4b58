"""The tiled body: one wave serves 16 rows of a head, 16 keys a step, with 16x16x16 matrix instructions."""

from .function import LDS, Function
from .rows import SENTINEL, keep_by_position, row, scale

FOUR = "<4 x float>"
ZERO = "zeroinitializer"


def emit_tiled(spec, signature):
    return Tiled(spec, signature).emit()


class Tiled:
    def __init__(self, spec, signature):
        self.spec, self.common, self.fn = spec, spec.common, Function(spec.kernel_name(), signature)
        self.sage = hasattr(spec, "quant_mode")
        self.fp8 = self.sage and spec.quant_mode == "fp8_bf16"
        self.bf16 = self.common.dtype == "bf16" and not self.fp8
        self.kind = "i16" if self.bf16 else "half"
        self.chunks = range(self.common.shape.head_size // 16)

    def emit(self):
        fn, shape = self.fn, self.common.shape
        self.lane, tile, self.head = fn.lane(), fn.group("x"), fn.group("y")
        self.column, self.quad = fn.bits("and", self.lane, 15), fn.bits("lshr", self.lane, 4)
        self.four = fn.mul(self.quad, 4)
        self.kv_head = fn.div(self.head, shape.num_query_heads // shape.num_kv_heads)
        self.first = fn.mul(tile, 16)
        self.p = fn.lds("p_tile", self.kind, 256)
        self.bitmap = None if self.sage else self.stage_bitmap()
        q = self.operands("q", fn.add(self.first, self.column), self.head, narrow=False)
        factor = self.first_factor()
        self.m = [fn.variable("float", SENTINEL) for _ in range(4)]
        self.l = [fn.variable("float", "0.0") for _ in range(4)]
        self.acc = [fn.variable(FOUR, ZERO) for _ in self.chunks]
        with fn.loop(fn.div("%seqlen_k", 16)) as step:
            self.take_in(step, q, factor)
        self.store_rows()
        return fn.text()

    def operands(self, tensor, token, head, narrow):
        fn = self.fn
        start = fn.add(row(fn, tensor, token, head), self.four)
        return [self.load_four(tensor, fn.add(start, 16 * c), narrow) for c in self.chunks]

    def load_four(self, tensor, index, narrow):
        fn, pointer = self.fn, f"%{tensor.upper()}"
        if not narrow:
            return fn.load(pointer, self.kind, index, wide=f"<4 x {self.kind}>", align=8)
        word = fn.load(pointer, "i8", index, wide="i32", align=4)
        return fn.vector("half", [self.widen(word, i) for i in range(4)])

    def widen(self, word, i):
        value = self.fn.call("float", "llvm.amdgcn.cvt.f32.fp8", ("i32", word), ("i32 immarg", i))
        return self.fn.cast("fptrunc", value, "float", "half")

    def multiply(self, a, b, c):
        name = "bf16.1k" if self.bf16 else "f16"
        kind = f"<4 x {self.kind}>"
        zeros = [("i32 immarg", 0)] * 3
        return self.fn.call(FOUR, f"llvm.amdgcn.mfma.f32.16x16x16{name}", (kind, a), (kind, b), (FOUR, c), *zeros)

    def first_factor(self):
        if not self.sage:
            return "%scale_log2"
        fn, spec = self.fn, self.spec
        factor = scale(fn, spec.q_scale, "q_scale", self.head, self.first)
        if spec.k_scale.layout == "per_head":
            factor = fn.fmul(factor, scale(fn, spec.k_scale, "k_scale", self.kv_head, 0))
        return fn.fmul("%scale_log2", factor)

    def take_in(self, step, q, factor):
        fn = self.fn
        key = fn.mul(step, 16)
        k = self.operands("k", fn.add(key, self.column), self.kv_head, self.fp8)
        product = ZERO
        for a, b in zip(q, k, strict=True):
            product = self.multiply(a, b, product)
        kept = None if self.sage else self.is_kept(key)
        by_block = self.sage and self.spec.k_scale.layout == "per_block"
        second = scale(fn, self.spec.k_scale, "k_scale", self.kv_head, key) if by_block else None
        rescale = [self.soften(i, product, factor, second, kept, key) for i in range(4)]
        fn.sync()
        p = fn.load(self.p, self.kind, fn.add(fn.mul(self.column, 16), self.four), LDS, f"<4 x {self.kind}>", 8)
        fn.sync()
        rescale = fn.vector("float", rescale)
        for c, v in enumerate(self.values(key)):
            scaled = fn.value(f"fmul {FOUR} {fn.get(self.acc[c], FOUR)}, {rescale}")
            fn.set(self.acc[c], FOUR, self.multiply(p, v, scaled))

    def soften(self, i, product, factor, second, kept, key):
        """Turn the scores of one row into weights, put them into LDS, return the factor on what was summed before."""
        fn = self.fn
        score = fn.fmul(fn.element("float", 4, product, i), factor)
        if second is not None:
            score = fn.fmul(score, second)
        query = fn.add(self.first, fn.add(self.four, i))
        if self.sage:
            score = keep_by_position(fn, self.common, score, query, fn.add(key, self.column))
        if kept is not None:
            score = fn.select(kept, score, SENTINEL)
        old = fn.get(self.m[i], "float")
        top = fn.maximum(old, fn.butterfly(score, fn.maximum, (1, 2, 4, 8), self.lane))
        rescale, weight = fn.exp2(fn.fsub(old, top)), fn.exp2(fn.fsub(score, top))
        total = fn.butterfly(weight, fn.fadd, (1, 2, 4, 8), self.lane)
        fn.set(self.l[i], "float", fn.fadd(fn.fmul(fn.get(self.l[i], "float"), rescale), total))
        fn.set(self.m[i], "float", top)
        place = fn.add(fn.mul(fn.add(self.four, i), 16), self.column)
        fn.store(self.p, self.kind, place, self.rounded(weight), LDS)
        return rescale

    def rounded(self, value):
        if not self.bf16:
            return self.fn.cast("fptrunc", value, "float", "half")
        return self.fn.cast("bitcast", self.fn.cast("fptrunc", value, "float", "bfloat"), "bfloat", "i16")

    def values(self, key):
        fn = self.fn
        rows = [row(fn, "v", fn.add(key, fn.add(self.four, j)), self.kv_head) for j in range(4)]
        for c in self.chunks:
            at = fn.add(self.column, 16 * c)
            yield fn.vector(self.kind, [self.value_at(fn.add(start, at)) for start in rows])

    def value_at(self, index):
        if not self.fp8:
            return self.fn.load("%V", self.kind, index)
        return self.widen(self.fn.cast("zext", self.fn.load("%V", "i8", index), "i8", "i32"), 0)

    def store_rows(self):
        fn = self.fn
        for i in range(4):
            total = fn.get(self.l[i], "float")
            empty = fn.value(f"fcmp oeq float {total}, 0.0")
            factor = fn.select(empty, "0.0", fn.value(f"fdiv float 1.0, {total}"))
            start = fn.add(row(fn, "o", fn.add(self.first, fn.add(self.four, i)), self.head), self.column)
            for c in self.chunks:
                value = fn.fmul(fn.element("float", 4, fn.get(self.acc[c], FOUR), i), factor)
                fn.store("%O", self.kind, fn.add(start, 16 * c), self.rounded(value))

    # ---------------------------------------------------------------- blocks of keys
    def stage_bitmap(self):
        fn, spec = self.fn, self.spec
        blocks = -(-spec.seqlen_k // spec.block_k)
        bitmap = fn.lds("bitmap", "i8", blocks)
        q_block = fn.div(self.first, spec.block_q)
        if hasattr(spec, "max_blocks_per_q"):
            self.for_each(blocks, lambda slot: fn.store(bitmap, "i8", slot, 0, LDS))
            fn.sync()
            count = fn.load("%block_count", "i32", q_block)
            self.for_each(spec.max_blocks_per_q, lambda slot: self.mark(bitmap, q_block, count, slot))
        else:
            start = fn.mul(q_block, blocks)
            self.for_each(blocks, lambda slot: self.copy(bitmap, start, slot))
        fn.sync()
        return bitmap

    def for_each(self, total, body):
        for base in range(0, total, 64):
            slot = self.fn.add(self.lane, base)
            with self.fn.when(self.fn.compare("slt", slot, total)):
                body(slot)

    def copy(self, bitmap, start, slot):
        byte = self.fn.load("%mask", "i8", self.fn.add(start, slot))
        self.fn.store(bitmap, "i8", slot, byte, LDS)

    def mark(self, bitmap, q_block, count, slot):
        fn = self.fn
        with fn.when(fn.compare("slt", slot, count)):
            listed = fn.load("%block_lut", "i32", fn.add(fn.mul(q_block, self.spec.max_blocks_per_q), slot))
            fn.store(bitmap, "i8", listed, 1, LDS)

    def is_kept(self, key):
        byte = self.fn.load(self.bitmap, "i8", self.fn.div(key, self.spec.block_k), LDS)
        return self.fn.value(f"icmp ne i8 {byte}, 0")
