"""What may stand as an argument of ``tl``: checks that turn it into plain data, or into an error that helps."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from kernbench.dtypes import DTYPES, DType, promote
from kernbench.dtypes import dtype as to_dtype
from kernbench.errors import ChannelError, KernbenchError, KernelError, nearest
from kernbench.machine.network import DIRECTIONS
from kernbench.tl.lanes import LaneInt
from kernbench.tl.pointer import Pointer
from kernbench.tl.tile import Tile

if TYPE_CHECKING:
    from kernbench.record.recorder import Recorder

E = TypeVar("E", bound=KernbenchError)
Shape = tuple[int, ...]
Epilogue = tuple[tuple[Any, ...], ...]

_FLOAT_RESULT = {"exp", "exp2", "log", "log2", "sqrt", "rsqrt"}


class Arguments:
    """Checks of arguments, for the operations of :class:`~kernbench.tl.Language`."""

    def __init__(self, recorder: Recorder, dot_dtype: DType) -> None:
        self._recorder = recorder
        self._dot_dtype = dot_dtype

    def error(self, kind: type[E], message: str) -> E:
        """Return an error that names the kernel's source line and the PEs; the caller raises it."""
        return self._recorder.error(kind, message)

    # ------------------------------------------------------------------ handles and names
    def _axis(self, axis: int) -> int:
        if axis not in (0, 1, 2):
            raise self.error(KernelError, f"program axis {axis}: 0 = PE in its CUBE, 1 = CUBE in its SIP, 2 = SIP")
        return axis

    def _direction(self, name: str, verb: Literal["send", "recv"]) -> int:
        if name not in DIRECTIONS:
            raise self.error(ChannelError, f"{verb}: unknown direction {name!r}{nearest(str(name), DIRECTIONS)}")
        return DIRECTIONS.index(name)

    def _tile(self, x: Any, where: str) -> Tile:
        if not isinstance(x, Tile):
            raise self.error(KernelError, f"{where} needs a tile, not {type(x).__name__} {x!r}")
        self._recorder.check_alive(x)
        return x

    def _pointer(self, ptr: Any, where: str) -> Pointer:
        if not isinstance(ptr, Pointer):
            raise self.error(
                KernelError,
                f"{where} needs a pointer (a tensor among the kernel's own arguments, plus bytes), "
                f"not {type(ptr).__name__} {ptr!r}",
            )
        if ptr.binding.group is not self._recorder.group:
            raise self.error(KernelError, f"{where}: {ptr!r} is of another run of the kernel; do not keep it outside")
        return ptr

    # ------------------------------------------------------------------ formats
    def _dtype(self, name: Any) -> DType:
        try:
            return to_dtype(name)
        except KernbenchError as bad:
            raise self.error(KernelError, str(bad)) from None

    def _element(self, ptr: Pointer, dtype: Any, where: str, bitcast: bool | None = None) -> DType:
        """Return the format in which elements behind a pointer are read; ``bitcast`` is None where there is no such."""
        mine = ptr.binding.dtype
        kind = mine if dtype is None else self._dtype(dtype)
        if kind is mine:
            return kind
        if not bitcast:
            mend = f'read it as "{mine}" and cast'
            if bitcast is not None:
                mend += ", or say bitcast=True to reinterpret its bytes"
            raise self.error(KernelError, f"{where} as {kind} from {ptr.binding.name}, which holds {mine}: {mend}")
        if kind.bits != mine.bits:
            mend = f'; load the bytes as they are and say tl.unpack(tile, "{kind}")' if kind.is_packed else ""
            raise self.error(KernelError, f"bitcast from {mine} to {kind}: their widths differ{mend}")
        return kind

    def _result_dtype(self, name: str, operands: Sequence[Any], function: str | None = None) -> DType:
        kind: DType | None = None
        floats = False
        for x in operands:
            if isinstance(x, Tile):
                kind = x.dtype if kind is None or kind is x.dtype else promote(kind, x.dtype)
            elif isinstance(x, (float, np.floating)):
                floats = True
        if kind is None:
            return DTYPES["f32" if floats else "i32"]
        if name == "logical":
            if kind.kind == "float" or floats:
                raise self.error(KernelError, f"bitwise operators need integers or conditions, not {kind}")
            return kind
        if kind.kind == "float":
            return kind
        if floats or name in _FLOAT_RESULT or function == "true":
            return DTYPES["f32"]
        return DTYPES["i32"] if kind.kind == "bool" and name != "where" else kind

    # ------------------------------------------------------------------ shapes and numbers
    def _shape(self, shape: Any, known: int | None = None) -> Shape:
        extents = (shape,) if isinstance(shape, (int, np.integer, LaneInt)) else shape
        try:
            sizes = tuple([operator.index(n) for n in extents])
        except TypeError:
            raise self.error(KernelError, f"a shape is made of integers, not {shape!r}") from None
        if known is not None and sizes.count(-1) == 1:
            rest = -math.prod(sizes)
            sizes = tuple(known // rest if n == -1 and rest else n for n in sizes)
        if not sizes or min(sizes) < 1:
            raise self.error(KernelError, f"a tile's shape is made of sizes of 1 or more, not {sizes}")
        return sizes

    def _strides(self, strides: Sequence[Any] | None, shape: Shape) -> Shape:
        if strides is None:
            packed = [1]
            for n in reversed(shape[1:]):
                packed.append(packed[-1] * n)
            return tuple(reversed(packed))
        steps = self._integers(strides, "strides")
        if len(steps) != len(shape):
            raise self.error(KernelError, f"{len(steps)} strides for a shape of {len(shape)} axes")
        return steps

    def _valid(self, valid: Any, shape: Shape) -> Shape | None:
        if valid is None:
            return None
        given = self._integers((valid,) if isinstance(valid, (int, np.integer, LaneInt)) else valid, "valid")
        if len(given) > len(shape):
            raise self.error(KernelError, f"valid={valid!r} has more axes than the shape {shape}")
        bounds = given + shape[len(given) :]
        bounds = tuple(min(max(b, 0), n) for b, n in zip(bounds, shape, strict=True))
        return None if bounds == shape else bounds

    def _integers(self, numbers: Any, where: str) -> Shape:
        try:
            return tuple([operator.index(n) for n in numbers])
        except TypeError:
            raise self.error(KernelError, f"{where} is made of integers, not {numbers!r}") from None

    def _number(self, x: Any, where: str) -> Any:
        """Return a plain or per-PE number."""
        if isinstance(x, (int, float, LaneInt)):  # bool is an int
            return int(x) if isinstance(x, bool) else x
        if isinstance(x, (np.integer, np.floating, np.bool_)):
            return x.item()
        raise self.error(KernelError, f"{where}: needs a number or a per-PE integer, not {type(x).__name__} {x!r}")

    def _of_integers(self, function: Any, x: Any, y: Any, where: str) -> Any:
        a, b = self._number(x, where), self._number(y, where)
        lanes = [v for v in (a, b) if isinstance(v, LaneInt)]
        if not lanes:
            return function(a, b).item()
        if isinstance(a, float) or isinstance(b, float):
            raise self.error(KernelError, f"{where} of {a!r} and {b!r}: per-PE arithmetic is in whole numbers")
        values = [v.values if isinstance(v, LaneInt) else v for v in (a, b)]
        return LaneInt(lanes[0].group, function(*values))

    def _broadcast(self, name: str, operands: Sequence[Any]) -> Shape:
        shapes = [x.shape for x in operands if isinstance(x, Tile)]
        if not shapes:
            raise self.error(KernelError, f"{name} needs a tile among its operands")
        common: Shape = shapes[0]
        for shape in shapes[1:]:
            if shape != common:
                found = common_shape(common, shape)
                if found is None:
                    raise self.error(KernelError, f"{name}: shapes {' and '.join(map(str, shapes))} do not broadcast")
                common = found
        return common

    def _dot_sizes(self, a: Any, b: Any, where: str = "dot") -> tuple[int, int, int, int]:
        self._tile(a, where)
        self._tile(b, where)
        if a.ndim != b.ndim or a.ndim not in (2, 3) or a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
            raise self.error(
                KernelError,
                f"{where}: shapes {a.shape} and {b.shape} do not match: (m, k) and (k, n) have k in common",
            )
        if (a.dtype.kind == "float") != (b.dtype.kind == "float") or "bool" in (a.dtype.kind, b.dtype.kind):
            raise self.error(KernelError, f"{where} of {a.dtype} and {b.dtype}: cast one of them first")
        return (a.shape[0] if a.ndim == 3 else 1, a.shape[-2], b.shape[-1], a.shape[-1])

    def _dot_acc(self, acc: Any, shape: Shape, where: str = "dot") -> tuple[Tile, ...]:
        if acc is None:
            return ()
        if self._tile(acc, where).shape != shape:
            raise self.error(KernelError, f"{where}: acc is {acc.shape}, the product is {shape}")
        return (acc,)

    # ------------------------------------------------------------------ composite
    def _epilogue(self, steps: Sequence[Any], m: int, before: int) -> tuple[Epilogue, list[Any], DType]:
        """Return the steps as plain data, the operands they name, and the format of the result.

        An operand is named by its index in the command's ``srcs``, where ``before`` others stand first.
        """
        legal = ("scale", "max", "exp", "cast")
        plain: list[tuple[Any, ...]] = []
        operands: list[Any] = []
        kind = self._dot_dtype
        for i, step in enumerate(steps):
            name, *rest = (step,) if isinstance(step, str) else step
            if name not in legal:
                raise self.error(KernelError, f"composite: unknown epilogue step {name!r}{nearest(str(name), legal)}")
            if name == "cast":
                if i != len(steps) - 1 or len(rest) != 1:
                    raise self.error(KernelError, 'composite: ("cast", dtype) comes last')
                kind = self._dtype(rest[0])
                continue
            self._check_step(name, rest, plain)
            if rest:
                operands.append(self._step_operand(name, rest[0], m))
            plain.append((name, before + len(operands) - 1) if rest else (name,))
        return tuple(plain), operands, kind

    def _check_step(self, name: str, rest: list[Any], before: list[tuple[Any, ...]]) -> None:
        fault = None
        if name == "scale" and len(rest) != 1:
            fault = '("scale", x) needs its factor'
        elif name == "max" and (rest or ("max",) in before):
            fault = '("max",) takes no operand and comes once'
        elif name == "exp" and len(rest) > 1:
            fault = '("exp", t) takes one operand'
        elif name == "exp" and not rest and ("max",) not in before:
            fault = '("exp",) subtracts the row maxima: put ("max",) before it'
        if fault:
            raise self.error(KernelError, f"composite: {fault}")

    def _step_operand(self, name: str, operand: Any, m: int) -> Any:
        if not isinstance(operand, Tile):
            return self._number(operand, "composite")
        self._tile(operand, "composite")
        if operand.shape != (m, 1) or name == "scale":
            takes = "scale takes a number" if name == "scale" else f"exp takes ({m}, 1)"
            raise self.error(KernelError, f"composite: {name} by a tile {operand.shape}; {takes}")
        return operand


def common_shape(a: Shape, b: Shape) -> Shape | None:
    """Return what two shapes broadcast to, as NumPy does it, or None."""
    if len(a) < len(b):
        a = (1,) * (len(b) - len(a)) + a
    elif len(b) < len(a):
        b = (1,) * (len(a) - len(b)) + b
    found = []
    for m, n in zip(a, b, strict=True):
        if m != n and m != 1 and n != 1:
            return None
        found.append(n if m == 1 else m)
    return tuple(found)
