"""Reads code objects (the ELF files that a GPU loads) through the tools of an installed LLVM.

``llvm-objdump`` gives the instructions and the kernels' descriptors, ``llvm-readelf`` the metadata. They are put
together to assembly text, so that a code object means the same as the text that it was made from.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from kernbench.errors import InputError

MAGIC = b"\x7fELF"
VERSIONS = (*(f"-{n}" for n in range(29, 18, -1)), "")
"""Endings of the tools' names, as distributions have them: the newest first, then the one of unknown age."""
_SYMBOL = re.compile(r"([0-9a-f]{8,16}) <(.+)>:$")
_INSTRUCTION = re.compile(r"\t(?P<text>\S.*?)\s*// (?P<address>[0-9A-F]{8,16}):")
_TARGET = re.compile(r"^amdhsa\.target:\s*(\S+)", re.MULTILINE)
_PADDING = ("s_code_end", "v_illegal")
SECONDS = 120
"""How long a tool may take."""
HEADER_BYTES = 256
"""Code in front of a kernel whose arguments are preloaded."""


def is_code_object(path: Path) -> bool:
    """Whether a file begins as an ELF file does."""
    try:
        with path.open("rb") as file:
            return file.read(4) == MAGIC
    except OSError:
        return False


def text_of(path: Path) -> str:
    """Return a code object as assembly text.

    Raises
    ------
    InputError
        No LLVM is installed, or its tools cannot read the file.
    """
    code = _run("llvm-objdump", "-d", "--symbolize-operands", str(path))
    data = _run("llvm-objdump", "-D", "--section=.rodata", str(path))
    notes = _run("llvm-readelf", "--notes", str(path))
    start, end = notes.find("---\n"), notes.rfind("...")
    target = _TARGET.search(notes)
    if start < 0 or end < 0 or target is None:
        raise InputError(f"{path}: has no metadata of AMD kernels")
    descriptors = re.findall(r"^\.amdhsa_kernel .*?^\.end_amdhsa_kernel$", data, re.MULTILINE | re.DOTALL)
    return "\n".join(
        [
            f'.amdgcn_target "{target[1]}"',
            ".text",
            *_program(code),
            *descriptors,
            ".amdgpu_metadata",
            notes[start + 4 : end],
            ".end_amdgpu_metadata\n",
        ]
    )


def _run(tool: str, *args: str) -> str:
    found = next((path for version in VERSIONS if (path := shutil.which(tool + version))), None)
    if found is None:
        raise InputError(f"{args[-1]}: a code object is read through {tool}, which is not installed (LLVM 22 has it)")
    try:
        done = subprocess.run(
            [found, *args], capture_output=True, text=True, errors="replace", check=False, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"{args[-1]}: {tool} did not end within {SECONDS} s") from None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[0]
        raise InputError(f"{args[-1]}: {tool} cannot read it: {reason}")
    return done.stdout


def _program(listing: str) -> Iterator[str]:
    """Yield the lines of a disassembly as assembly text, with labels that are unique in the file."""
    function, start = "", 0
    for line in listing.splitlines():
        if symbol := _SYMBOL.match(line):
            if re.fullmatch(r"L\d+", symbol[2]):
                yield f".{function}.{symbol[2]}:"
            else:
                function, start = symbol[2], int(symbol[1], 16)
                yield f"{function}:"
        elif found := _INSTRUCTION.match(line):
            if int(found["address"], 16) == start + HEADER_BYTES:
                yield "\t.p2align 8"
            words = [".long", "0"] if found["text"].startswith(_PADDING) else found["text"].split()
            jumps = words[0].startswith(("s_branch", "s_cbranch"))
            yield f"\t{words[0]} .{function}.{words[1]}" if jumps and len(words) == 2 else f"\t{' '.join(words)}"
