"""What assembly text says of a kernel beside its code: the block ``.amdhsa_kernel``, and the document of metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from kernbench.errors import InputError, nearest

FLAG = (0, 1)
DESCRIPTOR = {
    "group_segment_fixed_size": (0, 2**32 - 1), "private_segment_fixed_size": (0, 2**32 - 1),
    "kernarg_size": (0, 2**32 - 1), "user_sgpr_count": (0, 16), "user_sgpr_kernarg_preload_length": (0, 16),
    "user_sgpr_kernarg_preload_offset": (0, 511), "system_vgpr_workitem_id": (0, 2), "next_free_vgpr": (0, 512),
    "next_free_sgpr": (0, 102), "accum_offset": (4, 256), "float_round_mode_32": (0, 3),
    "float_round_mode_16_64": (0, 3), "float_denorm_mode_32": (0, 3), "float_denorm_mode_16_64": (0, 3),
    **dict.fromkeys(
        ("user_sgpr_private_segment_buffer", "user_sgpr_dispatch_ptr", "user_sgpr_queue_ptr",
         "user_sgpr_kernarg_segment_ptr", "user_sgpr_dispatch_id", "user_sgpr_flat_scratch_init",
         "user_sgpr_private_segment_size", "uses_dynamic_stack", "enable_private_segment",
         "system_sgpr_private_segment_wavefront_offset", "system_sgpr_workgroup_id_x", "system_sgpr_workgroup_id_y",
         "system_sgpr_workgroup_id_z", "system_sgpr_workgroup_info", "reserve_vcc", "reserve_flat_scratch",
         "reserve_xnack_mask", "dx10_clamp", "ieee_mode", "fp16_overflow", "tg_split",
         "exception_fp_ieee_invalid_op", "exception_fp_denorm_src", "exception_fp_ieee_div_zero",
         "exception_fp_ieee_overflow", "exception_fp_ieee_underflow", "exception_fp_ieee_inexact",
         "exception_int_div_zero"),
        FLAG,
    ),
}  # fmt: skip
"""By name, without ``.amdhsa_``: the least and the greatest value that the block can have on these architectures."""
REGISTERS = ("next_free_vgpr", "accum_offset")
"""What a block must have. Code that calls functions has expressions here; they count as all registers."""
POINTER, LDS_POINTER = "global_buffer", "dynamic_shared_pointer"
HIDDEN = {
    f"hidden_{name}"
    for name in (
        *(f"{part}_{axis}" for part in ("block_count", "group_size", "remainder", "global_offset") for axis in "xyz"),
        "grid_dims", "dynamic_lds_size", "none", "printf_buffer", "hostcall_buffer", "multigrid_sync_arg", "heap_v1",
        "default_queue", "completion_action", "queue_ptr", "private_base", "shared_base",
    )
}  # fmt: skip
KINDS = {"by_value", POINTER, LDS_POINTER, *HIDDEN}
MOST_BYTES = 1 << 16
"""Of an argument block; more is taken for a fault of the text."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One entry of the kernel's argument block."""

    offset: int
    size: int
    kind: str
    """As metadata say it: ``global_buffer``, ``by_value``, ``hidden_block_count_x`` ..."""
    name: str


@dataclass(slots=True)
class KernelText:
    """What the text says of one kernel."""

    name: str
    line: int
    descriptor: dict[str, int] = field(default_factory=dict)
    arguments: tuple[Argument, ...] = ()
    kernarg_size: int = 0


def read_descriptor_line(block: KernelText, line: str, place: str) -> None:
    """Read one line of a block ``.amdhsa_kernel``.

    Raises
    ------
    InputError
        It is none, is repeated, or has a value that the block cannot have.
    """
    words = line.split(None, 1)
    if len(words) != 2 or not words[0].startswith(".amdhsa_"):
        raise InputError(f"{place}: {line!r} inside .amdhsa_kernel: expected .amdhsa_NAME VALUE")
    name = words[0].removeprefix(".amdhsa_")
    if name not in DESCRIPTOR:
        raise InputError(f"{place}: {words[0]} is not known{nearest(name, DESCRIPTOR)}")
    if name in block.descriptor:
        raise InputError(f"{place}: {words[0]} is repeated")
    least, most = DESCRIPTOR[name]
    try:
        value = int(words[1], 0)
    except ValueError:
        if name not in (*REGISTERS, "next_free_sgpr") or words[1][0].isdigit():
            raise InputError(f"{place}: {words[0]} {words[1]!r} is not a number") from None
        block.descriptor[name] = 0
        return
    if not least <= value <= most:
        raise InputError(f"{place}: {words[0]} is {value}, not from {least} to {most}")
    block.descriptor[name] = value


def end_descriptor(block: KernelText, place: str) -> None:
    """Refuse a block without what it must have."""
    for name in REGISTERS:
        if name not in block.descriptor:
            raise InputError(f"{place}: .amdhsa_kernel {block.name} has no .amdhsa_{name}")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # the C one is 10 times faster
    """Refuses a key that comes twice, of which YAML's own would take the last."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise yaml.YAMLError(f"key {twice!r} comes twice")
        return super().construct_mapping(node, deep)


def read_metadata(kernels: Mapping[str, KernelText], text: str, place: str) -> None:
    """Read the arguments of kernels from the document of metadata.

    Raises
    ------
    InputError
        It is not YAML, or does not say what it must, or contradicts the kernels' descriptors.
    """
    try:
        known = yaml.load(text, Loader=_Loader)
        entries = known["amdhsa.kernels"]
        if not isinstance(entries, list):
            raise TypeError("amdhsa.kernels is not a list")
        for entry in entries:
            _read_kernel(kernels, entry, place)
    except yaml.YAMLError as error:
        raise InputError(f"{place}: not YAML: {str(error).splitlines()[0]}") from None
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"{place}: malformed: {error}") from None
    for name, kernel in kernels.items():
        if not kernel.arguments and kernel.descriptor.get("kernarg_size", 0):
            raise InputError(f"{place}: says nothing of the arguments of kernel {name}")


def _read_kernel(kernels: Mapping[str, KernelText], entry: dict[str, Any], place: str) -> None:
    name = _word(entry, ".name")
    if name not in kernels:
        raise InputError(f"{place}: kernel {name!r} has no descriptor{nearest(name, kernels)}")
    kernel = kernels[name]
    kernel.kernarg_size = _number(entry, ".kernarg_segment_size")
    if kernel.kernarg_size > MOST_BYTES:
        raise InputError(f"{place}: {name}: an argument block of {kernel.kernarg_size} bytes")
    for field_name, said in (("group_segment_fixed_size", "LDS"), ("private_segment_fixed_size", "scratch"),
                             ("kernarg_size", "arguments")):  # fmt: skip
        key = ".kernarg_segment_size" if field_name == "kernarg_size" else f".{field_name}"
        described = kernel.descriptor.get(field_name)
        if described is not None and key in entry and described != _number(entry, key):
            raise InputError(f"{place}: {name}: {entry[key]} bytes of {said}, the descriptor has {described}")
    kernel.arguments = tuple(_argument(a, f"argument {i}") for i, a in enumerate(entry.get(".args") or ()))
    end = 0
    for argument in kernel.arguments:
        told = f"{place}: {name}: {argument.name}"
        if argument.kind not in KINDS:
            raise InputError(f"{told} is of kind {argument.kind!r}, which is not known{nearest(argument.kind, KINDS)}")
        if argument.kind == POINTER and argument.size != 8:
            raise InputError(f"{told} is a pointer of {argument.size} bytes")
        if argument.offset < end:
            raise InputError(f"{told} begins at byte {argument.offset}, inside the argument before it")
        end = argument.offset + argument.size
        if argument.size == 0 or end > kernel.kernarg_size:
            raise InputError(f"{told} ends at byte {end}, the argument block has {kernel.kernarg_size}")


def _argument(entry: dict[str, Any], default: str) -> Argument:
    name = _word(entry, ".name") if ".name" in entry else default
    return Argument(_number(entry, ".offset"), _number(entry, ".size"), _word(entry, ".value_kind"), name)


def _number(entry: dict[str, Any], key: str) -> int:
    value = entry[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(f"{key} is no number of bytes")
    return value


def _word(entry: dict[str, Any], key: str) -> str:
    value = entry[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is no word")
    return value
