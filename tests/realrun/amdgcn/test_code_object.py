"""A code object means what its assembly text means.

``decode_d64.gfx950.llvm-22.json.gz`` is what LLVM 22's tools print of the code object, by the first argument.
"""

import gzip
import json
import shutil
import sys

import pytest

from kernbench.errors import InputError
from kernbench.realrun import amdgcn
from kernbench.realrun.amdgcn.assembly import read_assembly
from kernbench.realrun.compiled.code import SHIPPED
from tests.realrun.amdgcn import compiled
from tests.realrun.amdgcn.written import FIXTURES

CODE_OBJECT = FIXTURES / "decode_d64.gfx950.co"
TOOLS = ("llvm-objdump", "llvm-readelf")
HAS_LLVM = all(shutil.which(f"{tool}-22") for tool in TOOLS)


@pytest.fixture
def recorded_tools(tmp_path, monkeypatch):
    """Put tools into PATH that print what LLVM printed."""
    printed = json.loads(gzip.decompress((FIXTURES / "decode_d64.gfx950.llvm-22.json.gz").read_bytes()))
    file = tmp_path / "printed.json"
    file.write_text(json.dumps(printed))
    for tool in TOOLS:
        script = tmp_path / tool
        body = f"import json, sys\nprint(json.load(open({str(file)!r}))[sys.argv[1]], end='')\n"
        script.write_text(f"#!{sys.executable}\n{body}")
        script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def check_it_is_the_same_kernel(monkeypatch):
    o, _, partial, _ = compiled.decode("gfx950", 64, 193)
    kernel = amdgcn.load(CODE_OBJECT, "gfx950")["decode_partial"]
    plain = compiled.load

    def load(name, arch):
        return (kernel, plain(name, arch)[1]) if name == "decode_d64" else plain(name, arch)

    monkeypatch.setattr(compiled, "load", load)
    again, _, other, _ = compiled.decode("gfx950", 64, 193)
    assert again.tobytes() == o.tobytes()
    assert other == partial


def test_a_code_object_computes_and_counts_the_same(recorded_tools, monkeypatch):
    check_it_is_the_same_kernel(monkeypatch)


@pytest.mark.skipif(not HAS_LLVM, reason="needs LLVM 22")
def test_the_installed_llvm_reads_it(monkeypatch):
    check_it_is_the_same_kernel(monkeypatch)


def test_the_disassembly_has_the_instructions_of_the_text(recorded_tools):
    text = read_assembly(SHIPPED / "decode_d64.gfx950.s.gz")
    read = read_assembly(CODE_OBJECT)
    start = text.labels[".LBB0_0"]
    (first,) = (at for at in read.aligned if at > 0)
    padding = ("s_nop", ".fill", ".long")
    assert [x.mnemonic for x in read.lines[first:] if x.mnemonic not in padding] == [
        x.mnemonic for x in text.lines[start:] if x.mnemonic not in padding
    ]


def test_llvm_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="read through llvm-objdump, which is not installed"):
        amdgcn.load(CODE_OBJECT)


def test_another_elf_file_is_refused(recorded_tools):
    printed = json.loads((recorded_tools / "printed.json").read_text())
    (recorded_tools / "printed.json").write_text(json.dumps(printed | {"--notes": "nothing\n"}))
    with pytest.raises(InputError, match="no metadata of AMD kernels"):
        amdgcn.load(CODE_OBJECT)


def test_a_file_that_the_tools_refuse_is_refused(recorded_tools):
    (recorded_tools / "llvm-objdump").write_text("#!/bin/sh\necho truncated >&2\nexit 1\n")
    with pytest.raises(InputError, match="llvm-objdump cannot read it: truncated"):
        amdgcn.load(CODE_OBJECT)
