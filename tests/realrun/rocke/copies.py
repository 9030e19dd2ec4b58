"""Copies of the stand-in, which a test may break."""

import shutil
import subprocess
from pathlib import Path

STANDIN = Path(__file__).parent / "standin"
COMMON = Path("library/kernels/common")
SAGE, SPARSE, SHARED = (COMMON / f"{name}.py" for name in ("sage_attention", "sparse_attention", "_fmha_common"))
TILED, ROWS = COMMON / "emit_mfma.py", COMMON / "emit_warp.py"
KERNELS = Path("library/kernels/__init__.py")
LOWERING = Path("platform/python/rocke/core/lower_llvm.py")
QK_SCALE = Path("platform/python/rocke/helpers/qk_scale.py")


def copy_to(path):
    """Copy the stand-in, and return where it is."""
    return Path(shutil.copytree(STANDIN, path / "rocke", ignore=shutil.ignore_patterns("__pycache__")))


def edit(root, file, old, new):
    """Replace a piece of text, which must be there."""
    text = (root / file).read_text()
    assert old in text
    (root / file).write_text(text.replace(old, new))


def append(root, file, text):
    with open(root / file, "a") as opened:
        opened.write(text)


def commit(root):
    """Put a directory under git, and return the commit."""
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "all"], ["rev-parse", "HEAD"]):
        done = subprocess.run(["git", "-C", root, *command], check=True, capture_output=True, text=True)
    return done.stdout.strip()
