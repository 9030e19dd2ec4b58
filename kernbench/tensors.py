"""Device tensors: arrays that live in the memories of a machine."""

from __future__ import annotations

import operator
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from kernbench.dtypes import DType
from kernbench.dtypes import dtype as to_dtype
from kernbench.errors import InputError
from kernbench.placement import Layout, Placement, lay_out, replicated

if TYPE_CHECKING:
    from kernbench.machine import Machine


class Tensor:
    """A tensor in the memories of a machine. Made by :func:`tensor`, :func:`empty` and :func:`shape_only`.

    Attributes
    ----------
    shape, dtype, placement
        What it is and where it lies.
    layout
        The parts that it is cut into.
    """

    def __init__(
        self, shape: tuple[int, ...], dtype: DType, machine: Machine, placement: Placement, array: np.ndarray | None
    ) -> None:
        if dtype.is_packed:
            raise InputError(
                f"{dtype} is packed two a byte, and a tensor is made of whole bytes: place kernbench.pack(array), "
                "which is u8, and read it with tl.unpack"
            )
        self.shape = shape
        self.dtype = dtype
        self.machine_signature = machine.signature
        self.placement = placement
        self.layout: Layout = lay_out(shape, placement, machine)
        self._array = array
        self._parts: list[np.ndarray] | None = None

    def __repr__(self) -> str:
        held = "" if self.is_held else ", shape only"
        return f"Tensor(shape={self.shape}, dtype={self.dtype}, parts={self.layout.n_parts}{held})"

    def seen_by(self, machine: Machine) -> Tensor:
        """Return this tensor as the workgroups of a launch see it: the same values, whole, at each of them.

        Raises
        ------
        InputError
            If it is split over the machine: a launch's workgroups have no parts of their own.
        """
        if self.placement.splits:
            raise InputError(f"{self!r} is split over PEs, but workgroups of a grid see whole tensors: do not place it")
        view = copy(self)
        if self.is_held:
            view._parts = self.parts()  # one list for both, so that each sees what the other's kernel stores
        view.machine_signature = machine.signature
        view.layout = lay_out(self.shape, replicated(), machine)
        return view

    @property
    def is_held(self) -> bool:
        """Whether the tensor has values; one made by :func:`shape_only` has none."""
        return self._array is not None

    @property
    def nbytes(self) -> int:
        """Bytes of one copy."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.nbytes

    def parts(self) -> list[np.ndarray]:
        """Return the values of each part, flat, in the type that executing holds them in (float32 for f16).

        The arrays are the tensor's own: writing to them writes the tensor.
        """
        if self._array is None:
            raise InputError(f"{self!r} has no values: it can be timed (mode 'time'), not executed")
        if self._parts is None:
            whole = np.array(self._array, dtype=self.dtype.held_as, order="C")
            self._parts = [np.ascontiguousarray(whole[where]).reshape(-1) for where in self._slices()]
        return self._parts

    def numpy(self) -> np.ndarray:
        """Return the values as one array of the tensor's own dtype (``ml_dtypes.bfloat16`` for bf16)."""
        if self._array is None:
            raise InputError(f"{self!r} has no values")
        if self._parts is None:
            return self._array.copy()
        whole = np.empty(self.shape, self.dtype.external)
        for where, part in zip(self._slices(), self._parts, strict=True):
            target = whole[where]
            with np.errstate(over="ignore"):
                target[...] = part.reshape(target.shape)
        return whole

    def _slices(self) -> list[tuple[slice, ...]]:
        ends = self.layout.starts + self.layout.extents
        return [
            tuple(slice(int(a), int(b)) for a, b in zip(s, e, strict=True))
            for s, e in zip(self.layout.starts, ends, strict=True)
        ]


def tensor(array: Any, machine: Machine, placement: Placement | None = None) -> Tensor:
    """Place a NumPy or ``ml_dtypes`` array in the memories of ``machine``.

    Parameters
    ----------
    array
        float16, bfloat16, float32, an ``ml_dtypes`` float of 8 bits, integer or bool; its type is the tensor's dtype.
        It is copied. Formats of 4 bits go through :func:`~kernbench.pack`.
    placement
        :func:`~kernbench.replicated` (the default), :func:`~kernbench.split` or :func:`~kernbench.on`.

    Raises
    ------
    InputError
        If the array's type has no counterpart on a device (float64, complex, object).
    """
    values = np.array(array, order="C")
    if values.dtype.name in ("float64", "complex64", "complex128", "object"):
        raise InputError(f"an array of {values.dtype.name} cannot be placed on a device: cast it, e.g. to np.float16")
    if values.ndim == 0:
        raise InputError("a tensor needs at least one axis; pass scalars to the kernel as plain numbers")
    return Tensor(values.shape, to_dtype(values.dtype), machine, placement or replicated(), values)


def empty(shape: Any, dtype: Any, machine: Machine, placement: Placement | None = None) -> Tensor:
    """Make a tensor for results. Its floats are NaN, its integers 0, until a kernel stores there."""
    kind = to_dtype(dtype)
    sizes = _shape(shape)
    fill = np.nan if kind.kind == "float" else 0
    return Tensor(sizes, kind, machine, placement or replicated(), np.full(sizes, fill, kind.external))


def shape_only(shape: Any, dtype: Any, machine: Machine, placement: Placement | None = None) -> Tensor:
    """Make a tensor that is timed but never held: a KV cache of any size costs nothing."""
    return Tensor(_shape(shape), to_dtype(dtype), machine, placement or replicated(), None)


def _shape(shape: Any) -> tuple[int, ...]:
    try:
        sizes = tuple(operator.index(n) for n in (np.atleast_1d(shape) if np.isscalar(shape) else shape))
    except TypeError:
        sizes = ()
    if not sizes or any(n < 0 for n in sizes):
        raise InputError(f"a tensor's shape must be one or more sizes of 0 or more, not {shape!r}")
    return sizes
