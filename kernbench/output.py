"""Output files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernbench.errors import InputError


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a temporary file beside ``path`` that takes its place at the end, if all goes well.

    It is made at once, so that a path that cannot be written is found before the work and not after it. A device such
    as ``/dev/stdout`` is given as it is, to be written directly.

    Raises
    ------
    InputError
        If the path cannot be written.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        yield path
        return
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        if target.is_dir():
            raise IsADirectoryError(21, "Is a directory")
        if target.exists() and not os.access(target, os.W_OK):
            raise PermissionError(13, "Permission denied")
        temporary.touch(exist_ok=False)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    try:
        yield temporary
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
