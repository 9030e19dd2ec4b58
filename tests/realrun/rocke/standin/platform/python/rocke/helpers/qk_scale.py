from dataclasses import dataclass


@dataclass(frozen=True)
class QkScaleSpec:
    layout: str
    scale_block: int = 0
    stride_batch: int = 0
    stride_head: int = 0
    stride_block: int = 1

    def __post_init__(self):
        if self.layout not in {"per_head", "per_block"}:
            raise ValueError(f"bad layout: {self.layout}")
        if self.layout == "per_block" and self.scale_block < 1:
            raise ValueError("per_block wants a scale_block")

    def element(self, fn, head, block):
        """Emit the index of a scale: ``head`` and ``block`` are i32 values."""
        at = fn.mul(head, self.stride_head)
        return fn.add(at, fn.mul(block, self.stride_block)) if self.layout == "per_block" else at
