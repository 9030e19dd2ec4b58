"""The row body: one wave serves one row of a head, one key a step; a lane owns neighbouring elements."""

from .function import LDS, Function
from .rows import SENTINEL, keep_by_position, row, scale

MASKS = (1, 2, 4, 8, 16, 32)
ENTRIES = {"i8_fp8_bf16": 256, "i4_fp8_bf16": 16}


def emit_rows(spec, signature):
    return Rows(spec, signature).emit()


class Rows:
    def __init__(self, spec, signature):
        self.spec, self.common, self.fn = spec, spec.common, Function(spec.kernel_name(), signature)
        self.kind = "bfloat" if self.common.dtype == "bf16" else "half"
        self.each = range(self.common.shape.head_size // 64)

    def emit(self):
        fn, shape, mode = self.fn, self.common.shape, self.spec.quant_mode
        self.lane, query, head = fn.lane(), fn.group("x"), fn.group("y")
        kv_head = fn.div(head, shape.num_query_heads // shape.num_kv_heads)
        self.tables = {name: self.stage(name, ENTRIES[mode]) for name in "kv"} if mode in ENTRIES else {}
        q = self.floats("Q", self.kind, self.start("q", query, head))
        q_scale = scale(fn, self.spec.q_scale, "q_scale", head, query)
        m, l = fn.variable("float", SENTINEL), fn.variable("float", "0.0")
        acc = [fn.variable("float", "0.0") for _ in self.each]
        with fn.loop("%seqlen_k") as key:
            k, v = (self.read(name, key, kv_head) for name in "kv")
            dot = "0.0"
            for a, b in zip(q, k, strict=True):
                dot = fn.fadd(dot, fn.fmul(a, b))
            dot = fn.butterfly(dot, fn.fadd, MASKS, self.lane)
            both = fn.fmul(q_scale, scale(fn, self.spec.k_scale, "k_scale", kv_head, key))
            score = fn.fmul(fn.fmul(dot, "%scale_log2"), both)
            score = keep_by_position(fn, self.common, score, query, key)
            old = fn.get(m, "float")
            top = fn.maximum(old, score)
            rescale, weight = fn.exp2(fn.fsub(old, top)), fn.exp2(fn.fsub(score, top))
            fn.set(m, "float", top)
            fn.set(l, "float", fn.fadd(fn.fmul(fn.get(l, "float"), rescale), weight))
            for slot, value in zip(acc, v, strict=True):
                fn.set(slot, "float", fn.fadd(fn.fmul(fn.get(slot, "float"), rescale), fn.fmul(weight, value)))
        factor = fn.value(f"fdiv float 1.0, {fn.get(l, 'float')}")
        start = self.start("o", query, head)
        for i in self.each:
            value = fn.fmul(fn.get(acc[i], "float"), factor)
            fn.store("%O", self.kind, fn.add(start, i), fn.cast("fptrunc", value, "float", self.kind))
        return fn.text()

    def start(self, tensor, token, head, per_lane=None):
        own = self.fn.mul(self.lane, per_lane or len(self.each))
        return self.fn.add(row(self.fn, tensor, token, head), own)

    def floats(self, name, kind, start):
        fn = self.fn
        return [fn.cast("fpext", fn.load(f"%{name}", kind, fn.add(start, i)), kind, "float") for i in self.each]

    def stage(self, name, entries):
        fn, table = self.fn, self.fn.lds(f"table_{name}", "float", entries)
        for base in range(0, entries, 64):
            slot = fn.add(self.lane, base)
            with fn.when(fn.compare("slt", slot, entries)):
                fn.store(table, "float", slot, fn.load(f"%codebook_{name}", "float", slot), LDS)
        fn.sync()
        return table

    def read(self, name, key, head):
        fn, mode = self.fn, self.spec.quant_mode
        if mode == "i4_fp8_bf16":
            byte = fn.load(f"%{name.upper()}", "i8", self.start(name, key, head, per_lane=1))
            word = fn.cast("zext", byte, "i8", "i32")
            nibbles = [fn.bits("and", word, 15), fn.bits("lshr", word, 4)]
            # Two's complement plus 8 is the nibble with its top bit turned.
            return [fn.load(self.tables[name], "float", fn.bits("xor", n, 8), LDS) for n in nibbles]
        start = self.start(name, key, head)
        if mode == "fp16_bf16":
            return self.floats(name.upper(), self.kind, start)
        loaded = [fn.load(f"%{name.upper()}", "i8", fn.add(start, i)) for i in self.each]
        if mode == "fp8_bf16":
            words = [fn.cast("zext", byte, "i8", "i32") for byte in loaded]
            return [fn.call("float", "llvm.amdgcn.cvt.f32.fp8", ("i32", w), ("i32 immarg", 0)) for w in words]
        places = [fn.add(fn.cast("sext", byte, "i8", "i32"), 128) for byte in loaded]
        return [fn.load(self.tables[name], "float", place, LDS) for place in places]
