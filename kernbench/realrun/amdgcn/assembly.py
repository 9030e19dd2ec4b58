"""Reads AMD assembly text: the kernels' descriptors, their metadata, and the program line by line.

It is the text that LLVM writes (``clang -S``, Triton's ``amdgcn``): instructions and labels in text sections, a block
``.amdhsa_kernel`` for each kernel, and one YAML document of metadata. What an instruction means is not known here.
"""

from __future__ import annotations

import gzip
import re
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from kernbench.errors import InputError, nearest
from kernbench.realrun.amdgcn.code_object import is_code_object, text_of
from kernbench.realrun.amdgcn.metadata import KernelText, end_descriptor, read_descriptor_line, read_metadata

ARCHITECTURES = ("gfx90a", "gfx942", "gfx950")
"""What can be executed, the oldest first."""
MOST_BYTES = 256 << 20
"""Of text; more is taken for a fault of the file."""
DATA = re.compile(
    r"\.(byte|[248]byte|short|hword|word|long|int|quad|octa|half|float|single|double|fill|zero|skip|space|ascii|asciz"
    r"|string|incbin|inst)\b"
)
"""Directives that put data among the instructions."""
_REFUSED = re.compile(r"\.(macro|rept|irpc?|if\w*|else\w*|include|org|pushsection|popsection|previous|subsection)\b")
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
            if found.lines or found.arch:
                raise InputError(f"{file}:{number}: .amdgcn_target comes behind code, or again")
            found.arch = _architecture(line.split('"')[1] if line.count('"') == 2 else "", arch, f"{file}:{number}")
        elif line == ".amdgpu_metadata":
            if metadata is not None:
                raise InputError(f"{file}:{number}: .amdgpu_metadata comes again")
            metadata = []
        elif line == ".end_amdhsa_kernel":
            if block is None:
                raise InputError(f"{file}:{number}: .end_amdhsa_kernel without a beginning")
            end_descriptor(block, f"{file}:{block.line}")
            block = None
        elif re.match(r"\.amdhsa_kernel\s", line):
            name = line.removeprefix(".amdhsa_kernel").strip()
            if name in found.kernels or block is not None:
                raise InputError(f"{file}:{number}: .amdhsa_kernel {name} comes again, or inside another")
            block = found.kernels[name] = KernelText(name, number)
        elif block is not None and line:
            read_descriptor_line(block, line, f"{file}:{number}")
        elif line.startswith(".amdhsa_") and not line.startswith(".amdhsa_code_object_version"):
            raise InputError(f"{file}:{number}: {line.split()[0]} outside .amdhsa_kernel")
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
    read_metadata(found.kernels, "\n".join(metadata), f"{file}: .amdgpu_metadata")
    for name in found.kernels:
        if name not in found.labels:
            raise InputError(f"{file}: kernel {name} has a descriptor and no code")
    return found


def _text_of(source: str | Path) -> tuple[str, str]:
    if isinstance(source, str) and "\n" in source:
        return "<text>", source
    path = Path(source)
    try:
        if is_code_object(path):
            return str(path), text_of(path)
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            raw = stream.read(MOST_BYTES + 1)
        if len(raw) > MOST_BYTES:
            raise InputError(f"{path}: has more than {MOST_BYTES >> 20} MiB of text")
        return str(path), raw.decode("utf-8")
    except (OSError, EOFError, zlib.error, ValueError) as error:
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


def _read_program_line(found: Assembly, line: str, number: int) -> None:
    label = re.match(r'("[^"]+"|[\w.$@]+):\s*', line)
    place = f"{found.file}:{number}"
    if label:
        name = label[1].strip('"')
        if name in found.labels:
            raise InputError(f"{place}: label {name} comes again")
        found.labels[name] = len(found.lines)
        line = line[label.end() :].strip()
    if _REFUSED.match(line):
        raise InputError(f"{place}: {line.split()[0]} is not supported")
    if not line or (line.startswith(".") and not DATA.match(line)):
        if re.match(r"\.p2align\s+8\b", line):
            found.aligned.add(len(found.lines))
        return
    words = line.split(None, 1)
    try:
        operands, modifiers = split_operands(words[1] if len(words) == 2 else "")
    except ValueError as error:
        raise InputError(f"{place}: {line}: {error}") from None
    found.lines.append(Line(found.file, number, words[0], operands, modifiers, found.arch))


def split_operands(text: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Split what follows a mnemonic into operands, at commas outside brackets, and the modifiers after the last.

    >>> split_operands("v[0:1], v1, -s2 offset:16 op_sel:[1,0] nt")
    (('v[0:1]', 'v1', '-s2'), {'offset': '16', 'op_sel': '[1,0]', 'nt': ''})

    Raises
    ------
    ValueError
        A modifier is repeated.
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
        if name in modifiers and name != "&":
            raise ValueError(f"{name} is repeated")
        modifiers[name] = value
    return tuple(parts), modifiers
