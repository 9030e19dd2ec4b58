"""What both bodies share: scales, masks by position, and where a row of a tensor begins."""

SENTINEL = "0xC6293E5940000000"
"""-1e30 as LLVM writes a float constant."""


def row(fn, tensor, token, head):
    """Emit the element index of a row of ``q``, ``k``, ``v`` or ``o``."""
    return fn.add(fn.mul(token, f"%stride_{tensor}_token"), fn.mul(head, f"%stride_{tensor}_head"))


def scale(fn, spec, name, head, token):
    block = fn.div(token, spec.scale_block) if spec.layout == "per_block" else 0
    return fn.load(f"%{name}", "float", spec.element(fn, head, block))


def keep_by_position(fn, common, score, query, key):
    if common.mask_mode == "causal":
        return fn.select(fn.compare("sle", key, query), score, SENTINEL)
    if common.mask_mode == "sliding_window":
        distance = fn.bits("sub", query, key)
        return fn.select(fn.compare("slt", distance, common.sliding_window), score, SENTINEL)
    return score
