"""Compile the code that comes with kernbench: ``python -m kernbench.realrun.compiled FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

from kernbench.errors import InputError, KernbenchError
from kernbench.realrun.amdgcn.assembly import ARCHITECTURES
from kernbench.realrun.compiled.code import compiled_code, write_shipped
from kernbench.realrun.compiled.recipes import shipped_recipes
from kernbench.realrun.compiled.triton_code import TRITON


def main(folder: Path) -> int:
    """Compile every shipped recipe for every architecture into a folder."""
    codes = {}
    for arch in ARCHITECTURES:
        for name, recipe in shipped_recipes(arch).items():
            codes[f"{name}.{arch}"] = code = compiled_code(recipe, arch)
            print(f"{name}.{arch}: {len(code.text)} characters, {code.lds_bytes} bytes of LDS")
    write_shipped(codes, folder, f"triton {TRITON}")
    return 0


if __name__ == "__main__":
    try:
        if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
            raise InputError("name the folder that the code is written to: python -m kernbench.realrun.compiled FOLDER")
        sys.exit(main(Path(sys.argv[1])))
    except KernbenchError as error:
        print(f"kernbench: {error}", file=sys.stderr)
        sys.exit(2)
