"""Reads AMD assembly text: the kernels' descriptors, their metadata, and the program line by line.

It is the text that LLVM writes (``clang -S``, Triton's ``amdgcn``): instructions and labels in text sections, a block
``.amdhsa_kernel`` for each kernel, and one YAML document of metadata. What an instruction means is not known here.
"""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from kernbench.errors import InputError, nearest
from kernbench.realrun.amdgcn.code_object import is_code_object, text_of

ARCHITECTURES = ("gfx90a", "gfx942", "gfx950")
"""What can be executed, the oldest first."""
_TARGET = re.compile(r"gfx[0-9a-f]+$")
_MODIFIER = re.compile(r"[a-z_][a-z0-9_]*:\[[^\]]*\]|[a-z_][a-z0-9_]*:\S+|\S+")
_SECTION = re.compile(r"\.(text|section|data|bss|rodata)\b\s*([^,]*)")


@dataclass(frozen=True, slots=True)
class Line:
    """One instruction as it is written."""

    file: str
    number: int
    mnemonic: str
    operands: tuple[str, ...]
    modifiers: dict[str, str]
    """By name; the value is empty for a modifier that is a bare word."""
    arch: str

    @property
    def text(self) -> str:
        """The instruction as it was read, with one space between words."""
        words = [f"{name}:{value}" if value else name for name, value in self.modifiers.items()]
        return " ".join([f"{self.mnemonic} {', '.join(self.operands)}".strip(), *words])

    @property
    def place(self) -> str:
        """``file:line: instruction``, as messages begin."""
        return f"{self.file}:{self.number}: {self.text}"


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
    descriptor: dict[str, int]
    arguments: tuple[Argument, ...] = ()
    kernarg_size: int = 0


@dataclass(slots=True)
class Assembly:
    """One file: its architecture, its instructions in order, where its labels point, and its kernels."""

    file: str
    arch: str
    lines: list[Line] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    """Index of the instruction that follows each label."""
    aligned: set[int] = field(default_factory=set)
    """Indices of instructions that follow an alignment to 256 bytes."""
    kernels: dict[str, KernelText] = field(default_factory=dict)


def read_assembly(path_or_text: str | Path, arch: str | None = None) -> Assembly:
    """Read assembly text, a file of it (``.gz`` is unpacked), or a code object.

    The lines that messages name are those of the text, for a code object those of its disassembly.

    Raises
    ------
    InputError
        The text is truncated or malformed, is of another architecture than ``arch``, or of one that is not known.
    """
    file, text = _text_of(path_or_text)
    found = Assembly(file, "")
    metadata: list[str] | None = None
    complete = in_text = False
    block: KernelText | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        if metadata is not None and not complete:
            complete = raw.strip() == ".end_amdgpu_metadata"
            if not complete:
                metadata.append(raw)
            continue
        line = _without_comment(raw).strip()
        if line.startswith(".amdgcn_target"):
            if found.lines:
                raise InputError(f"{file}:{number}: .amdgcn_target comes behind code")
            found.arch = _architecture(line.split('"')[1] if line.count('"') == 2 else "", arch, f"{file}:{number}")
        elif line == ".amdgpu_metadata":
            metadata = []
        elif line == ".end_amdhsa_kernel":
            block = None
        elif line.startswith(".amdhsa_kernel"):
            name = line.removeprefix(".amdhsa_kernel").strip()
            block = found.kernels[name] = KernelText(name, number, {})
        elif block is not None and line:
            _read_descriptor_line(block, line, f"{file}:{number}")
        elif section := _SECTION.match(line):
            in_text = section[1] == "text" or section[2].strip().strip('"').startswith(".text")
        elif in_text:
            _read_program_line(found, line, number)
    if not found.arch:
        raise InputError(f"{file}: no .amdgcn_target: not AMD assembly text, or cut off at its start")
    if block is not None:
        raise InputError(f"{file}:{block.line}: .amdhsa_kernel {block.name} has no end: the text is truncated")
    if metadata is None or not complete:
        raise InputError(f"{file}: the block .amdgpu_metadata is missing or has no end: the text is truncated")
    _read_metadata(found, "\n".join(metadata))
    for name in found.kernels:
        if name not in found.labels:
            raise InputError(f"{file}: kernel {name} has a descriptor and no code")
    return found


def _text_of(source: str | Path) -> tuple[str, str]:
    if isinstance(source, str) and "\n" in source:
        return "<text>", source
    path = Path(source)
    if is_code_object(path):
        return str(path), text_of(path)
    try:
        raw = path.read_bytes()
        return str(path), (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8")
    except (OSError, EOFError, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as assembly text: {error}") from None


def _without_comment(line: str) -> str:
    cut = min((at for at in (line.find(";"), line.find("//")) if at >= 0), default=len(line))
    return line[:cut]


def _architecture(target: str, wanted: str | None, place: str) -> str:
    found = _TARGET.search(target.split(":")[0])
    if not found or found[0] not in ARCHITECTURES:
        known = nearest(found[0] if found else target, ARCHITECTURES)
        raise InputError(f"{place}: target {target!r} cannot be executed{known}")
    if wanted is not None and wanted != found[0]:
        raise InputError(f"{place}: compiled for {found[0]}, not for {wanted}")
    return found[0]


def _read_descriptor_line(block: KernelText, line: str, place: str) -> None:
    words = line.split(None, 1)
    if len(words) != 2 or not words[0].startswith(".amdhsa_"):
        raise InputError(f"{place}: {line!r} inside .amdhsa_kernel: expected .amdhsa_NAME VALUE")
    try:
        block.descriptor[words[0].removeprefix(".amdhsa_")] = int(words[1], 0)
    except ValueError:
        # Values may be expressions of symbols; those that matter here are always written as numbers.
        block.descriptor.pop(words[0].removeprefix(".amdhsa_"), None)


def _read_program_line(found: Assembly, line: str, number: int) -> None:
    label = re.match(r'("[^"]+"|[\w.$@]+):\s*', line)
    if label:
        found.labels[label[1].strip('"')] = len(found.lines)
        line = line[label.end() :].strip()
    if not line or line.startswith("."):
        if re.match(r"\.p2align\s+8\b", line):
            found.aligned.add(len(found.lines))
        return
    words = line.split(None, 1)
    operands, modifiers = split_operands(words[1] if len(words) == 2 else "")
    found.lines.append(Line(found.file, number, words[0], operands, modifiers, found.arch))


def split_operands(text: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Split what follows a mnemonic into operands, at commas outside brackets, and the modifiers after the last.

    >>> split_operands("v[0:1], v1, -s2 offset:16 op_sel:[1,0] nt")
    (('v[0:1]', 'v1', '-s2'), {'offset': '16', 'op_sel': '[1,0]', 'nt': ''})
    """
    parts: list[str] = []
    depth = start = 0
    for i, letter in enumerate(text):
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    words = _MODIFIER.findall(text[start:])
    if words and not re.match(r"[a-z_0-9]+:", words[0]):
        parts.append(words.pop(0))
    modifiers = {}
    for word in words:
        name, _, value = word.partition(":")
        modifiers[name] = value
    return tuple(parts), modifiers


def _read_metadata(found: Assembly, text: str) -> None:
    place = f"{found.file}: .amdgpu_metadata"
    try:
        known = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # the C one is 10 times faster
        kernels = known["amdhsa.kernels"]
        for entry in kernels:
            _read_kernel_metadata(found, entry, place)
    except yaml.YAMLError as error:
        raise InputError(f"{place}: not YAML: {str(error).splitlines()[0]}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{place}: malformed: {error}") from None
    for name, kernel in found.kernels.items():
        if not kernel.arguments and kernel.descriptor.get("kernarg_size", 0) and kernel.kernarg_size == 0:
            raise InputError(f"{place}: says nothing of kernel {name}")


def _read_kernel_metadata(found: Assembly, entry: dict[str, Any], place: str) -> None:
    name = entry[".name"]
    if name not in found.kernels:
        raise InputError(f"{place}: kernel {name!r} has no descriptor{nearest(name, found.kernels)}")
    kernel = found.kernels[name]
    kernel.kernarg_size = int(entry[".kernarg_segment_size"])
    kernel.arguments = tuple(
        Argument(int(a[".offset"]), int(a[".size"]), str(a[".value_kind"]), str(a.get(".name", f"argument {i}")))
        for i, a in enumerate(entry.get(".args") or ())
    )
    for argument in kernel.arguments:
        if argument.offset < 0 or argument.size <= 0 or argument.offset + argument.size > kernel.kernarg_size:
            raise InputError(
                f"{place}: {name}: {argument.name} ends at byte {argument.offset + argument.size}, "
                f"the argument block has {kernel.kernarg_size}"
            )
