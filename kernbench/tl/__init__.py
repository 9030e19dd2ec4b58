"""The language: what a kernel may say, and the handles that it gets back.

A kernel is a plain function ``def kernel(x_ptr, ..., *, tl)``. Its ``tl`` is a :class:`Language`; its tensors
arrive as :class:`Pointer`, its program ids as :class:`LaneInt`, its values as :class:`Tile`.
"""

from kernbench.tl.lanes import Group, LaneInt
from kernbench.tl.language import DIRECTIONS, Language
from kernbench.tl.pointer import Binding, Pointer
from kernbench.tl.tile import Tile

__all__ = ["DIRECTIONS", "Binding", "Group", "LaneInt", "Language", "Pointer", "Tile"]
