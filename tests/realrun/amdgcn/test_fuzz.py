"""Compiled kernels with one fault put into their text or their bytes.

Each must end as a result or as a message of kernbench: never as another exception, a loop without an end or a crash.
The result of a fault that only loosens the order of memory must be that of the sound kernel.

As a program, ``python -m tests.realrun.amdgcn.test_fuzz COUNT [FIRST]``, it tries more faults and prints what came of
them; where LLVM is installed, also whether its assembler would have taken what was executed.
"""

import contextlib
import re
import shutil
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from kernbench.errors import InputError, KernbenchError, KernelError
from kernbench.realrun import amdgcn
from kernbench.realrun.compiled import shipped_code
from kernbench.realrun.compiled.code import SHIPPED
from tests.realrun.amdgcn import compiled
from tests.realrun.amdgcn.compiled import decode, latent, prefill, ultraquant
from tests.realrun.amdgcn.written import FIXTURES

RUNS = {
    "prefill_d64_causal": lambda arch: prefill(arch, 64, 33, True, heads=1, group=1)[0],
    "decode_d64": lambda arch: decode(arch, 64, 70, kv_heads=1, splits=2)[0],
    "decode_d64_fp8": lambda arch: decode(arch, 64, 70, "_fp8", kv_heads=1, splits=2)[0],
    "reduce_d64": lambda arch: decode(arch, 64, 70, kv_heads=1, splits=2)[0],
    "ultraquant_d128": lambda arch: ultraquant(arch, 33, kv_heads=1, splits=1)[0],
    "mla": lambda arch: latent(arch, 33, batch=1, heads=16, splits=1)[0],
}
CASES = [(name, arch) for name in RUNS for arch in ("gfx942", "gfx950")]
MOST = 400_000
"""Instructions; the sound kernels take fewer than a tenth."""
REGISTER = re.compile(r"\b([vsa])(\d+|\[\d+:\d+\])")
NUMBER = re.compile(r"(?<![\w.:\[])-?(?:0x[0-9a-f]+|\d+)\b(?![:\]])")
OFFSET = re.compile(r"(offset[01]?:)(\d+)")


def replace_match(pattern, text, random, new):
    """Replace one match of a pattern; return None where there is none."""
    found = list(pattern.finditer(text))
    if not found:
        return None
    match = found[random.integers(len(found))]
    return text[: match.start()] + new(match) + text[match.end() :]


def other_register(match, random):
    kind, number = match[1], match[2]
    if number[0] != "[":
        return f"{kind}{random.choice([int(number) + 1, int(number) ^ 2, random.integers(0, 300)])}"
    first, last = (int(n) for n in number[1:-1].split(":"))
    step = random.choice([-2, -1, 2, 4])
    return f"{kind}[{max(0, first + step)}:{max(0, last + step)}]"


def other_number(match, random):
    value = int(match[0], 0)
    return str(random.choice([value + 1, value - 1, -value, value * 2, value ^ 16, 0, 2**31, 2**33]))


def other(pattern, new):
    """Make a change of one match of a pattern in a line."""
    return lambda line, random: replace_match(pattern, line, random, lambda match: new(match, random))


def on_a_line(change, wanted=""):
    """Make a fault that changes one line of the code that holds ``wanted``."""

    def fault(lines, random):
        places = [i for i, line in enumerate(lines) if line.startswith("\t") and wanted in line and line[1:2] != "."]
        for i in random.permutation(places)[:20] if places else []:
            new = change(lines[i], random)
            if new is not None and new != lines[i]:
                return [*lines[:i], *([new] if new else []), *lines[i + 1 :]]
        return lines

    return fault


def in_block(start, end, change):
    """Make a fault that changes one line between two others."""

    def fault(lines, random):
        first = next(i for i, line in enumerate(lines) if start in line) + 1
        last = next(i for i, line in enumerate(lines) if end in line)
        i = int(random.integers(first, last))
        return [*lines[:i], *change(lines[i], random), *lines[i + 1 :]]

    return fault


def swapped(lines, random):
    i, j = (int(n) for n in random.integers(5, len(lines) - 1, 2))
    out = list(lines)
    out[i], out[j] = out[j], out[i]
    return out


def other_label(line, random):
    return replace_match(re.compile(r"\.LBB0_(\d+)"), line, random, lambda m: f".LBB0_{random.integers(0, 30)}")


def other_mnemonic(lines, random):
    code = [i for i, line in enumerate(lines) if re.match(r"\t[vsdgbf]\w+ ", line)]
    i, j = (code[n] for n in random.integers(0, len(code), 2))
    return [*lines[:i], "\t" + lines[j].split()[0] + " " + lines[i].split(None, 1)[1], *lines[i + 1 :]]


def other_letter(lines, random):
    text = "\n".join(lines)
    at = int(random.integers(len(text)))
    return (text[:at] + chr(random.integers(32, 127)) + text[at + 1 :]).split("\n")


def other_value(line, random):
    return [replace_match(re.compile(r"\b\d+\b"), line, random, lambda m: other_number(m, random)) or line]


def other_text(line, random):
    at = int(random.integers(len(line) + 1))
    return [line[:at] + random.choice([*"x-:[]{}\"'#|& \t", "~", "!!int ", "*a", "&a ", "2024-13-45"]) + line[at + 1 :]]


def wait_count(line, random):
    return replace_match(re.compile(r"\((\d+)\)"), line, random, lambda m: f"({random.integers(int(m[1]), 16)})")


FAULTS = {
    "register": on_a_line(other(REGISTER, other_register)),
    "immediate": on_a_line(other(NUMBER, other_number)),
    "offset": on_a_line(
        lambda line, random: replace_match(OFFSET, line, random, lambda m: m[1] + other_number(m_of(m[2]), random)),
        "offset",
    ),
    "label": on_a_line(other_label, "branch"),
    "line dropped": on_a_line(lambda line, random: ""),
    "line doubled": on_a_line(lambda line, random: f"{line}\n{line}"),
    "lines swapped": swapped,
    "mnemonic": other_mnemonic,
    "wait raised": on_a_line(wait_count, "s_waitcnt"),
    "wait dropped": on_a_line(lambda line, random: "", "s_waitcnt"),
    "barrier dropped": on_a_line(lambda line, random: "", "s_barrier"),
    "truncated": lambda lines, random: "\n".join(lines)[: random.integers(len("\n".join(lines)))].split("\n"),
    "letter": other_letter,
    "descriptor": in_block(".amdhsa_kernel ", ".end_amdhsa_kernel", other_value),
    "descriptor text": in_block(".amdhsa_kernel ", ".end_amdhsa_kernel", other_text),
    "metadata": in_block(".amdgpu_metadata", ".end_amdgpu_metadata", other_value),
    "metadata text": in_block(".amdgpu_metadata", ".end_amdgpu_metadata", other_text),
    "metadata line": in_block(".amdgpu_metadata", ".end_amdgpu_metadata", lambda line, random: []),
    "target": lambda lines, random: [
        re.sub(r"gfx9\w\w", str(random.choice(["gfx90a", "gfx942", "gfx950", "gfx900"])), lines[0]), *lines[1:]
    ],
}  # fmt: skip
ORDER_ONLY = ("wait raised", "wait dropped", "barrier dropped")
"""Faults that can change nothing but when memory is read and written."""


def m_of(text):
    return re.match(r".*", text)


def text_of(name, arch):
    return shipped_code(f"{name}.{arch}").text


def run_with(source, name, arch):
    """Load a kernel and run its case with it in the place of the sound one."""
    made = compiled.LAUNCHES[f"{name}.{arch}"]
    plain = compiled.load
    kernel = amdgcn.load(source).get(made["kernel"])
    if kernel is None:
        raise InputError("the kernel is not there")
    launch = type(kernel).launch

    class Limited:
        def launch(self, *args, **more):
            return launch(kernel, *args, **more, max_instructions=MOST)

    compiled.load = lambda n, a: (Limited(), made) if (n, a) == (name, arch) else plain(n, a)
    try:
        with np.errstate(all="ignore"):
            return RUNS[name](arch)
    finally:
        compiled.load = plain


def try_fault(number):
    """Put fault ``number`` into a kernel; return its kind, what came of it, and the text."""
    random = np.random.default_rng(number)
    name, arch = CASES[int(random.integers(len(CASES)))]
    kind = list(FAULTS)[number % len(FAULTS)]
    text = "\n".join(FAULTS[kind](text_of(name, arch).split("\n"), random))
    try:
        out = run_with(text, name, arch)
    except (InputError, KernelError) as error:
        return kind, f"{type(error).__name__}", text, arch
    same = np.array_equal(out, sound(name, arch), equal_nan=True)
    assert same or kind not in ORDER_ONLY, f"fault {number}: a wrong result of {name}.{arch}"
    return kind, "same" if same else "another result", text, arch


SOUND = {}


def sound(name, arch):
    if (name, arch) not in SOUND:
        SOUND[name, arch] = RUNS[name](arch)
    return SOUND[name, arch]


@pytest.mark.parametrize("number", range(len(FAULTS)), ids=list(FAULTS))
def test_a_fault_in_the_text_ends_as_a_result_or_a_message(number):
    try_fault(number)


@pytest.mark.parametrize("number", range(40))
def test_a_fault_in_an_archive_ends_as_a_message(number, tmp_path):
    random = np.random.default_rng(number)
    packed = bytearray((SHIPPED / "reduce_d64.gfx942.s.gz").read_bytes())
    if number % 2:
        packed = packed[: random.integers(len(packed))]
    else:
        packed[random.integers(len(packed))] ^= 1 << random.integers(8)
    path = tmp_path / "k.s.gz"
    path.write_bytes(packed)
    with contextlib.suppress(InputError):
        amdgcn.load(path)


def try_fault_in_code_object(number, path):
    """Change a byte of a code object, or cut it off; return what came of it."""
    random = np.random.default_rng(number)
    octets = bytearray((FIXTURES / "decode_d64.gfx950.co").read_bytes())
    if number % 4 == 0:
        octets = octets[: random.integers(4, len(octets))]
    else:
        for _ in range(number % 4):
            octets[random.integers(4, len(octets))] = random.integers(256)
    path.write_bytes(octets)
    try:
        run_with(path, "decode_d64", "gfx950")
    except KernbenchError as error:
        return type(error).__name__
    return "a result"


@pytest.mark.skipif(shutil.which("llvm-objdump-22") is None, reason="needs LLVM 22")
def test_a_fault_in_a_code_object_ends_as_a_result_or_a_message(tmp_path):
    for number in range(2):
        try_fault_in_code_object(number, tmp_path / "k.co")


def complaint_of_llvm(text, arch):
    """Return the first error of LLVM's assembler, or nothing."""
    command = ["llvm-mc-22", "-triple=amdgcn-amd-amdhsa", f"-mcpu={arch}", "-filetype=obj", "-o", "/dev/null"]
    text = re.sub(
        r"\.amdgcn_target.*", f'.amdgcn_target "amdgcn-amd-amdhsa--{arch}"', text
    )  # triples differ by version
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return next((line for line in done.stderr.splitlines() if "error:" in line), "")


def main(count, first=0):
    found, complaints = Counter(), []
    for number in range(first, first + count):
        kind, outcome, text, arch = try_fault(number)
        found[kind, outcome] += 1
        executed = outcome in ("same", "another result") and kind != "target"
        complaint = complaint_of_llvm(text, arch) if executed and shutil.which("llvm-mc-22") else ""
        complaints += [f"{number} {kind}, {outcome}: {complaint}"] if complaint else []
    outcomes = ["InputError", "KernelError", "same", "another result"]
    print(f"{'fault':18s}", *(f"{o:>14s}" for o in outcomes))
    for kind in FAULTS:
        print(f"{kind:18s}", *(f"{found[kind, o]:14d}" for o in outcomes))
    print(*["executed, and not taken by LLVM's assembler:", *complaints], sep="\n")


if __name__ == "__main__":
    main(*(int(n) for n in sys.argv[1:]))
