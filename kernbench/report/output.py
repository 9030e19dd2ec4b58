"""Output files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from kernbench.errors import InputError


@contextmanager
def open_whole(path: Path | str) -> Iterator[BinaryIO]:
    """Open a file under a temporary name beside ``path``; it takes its place at the end, if all goes well.

    A device such as ``/dev/stdout`` is written directly.

    Raises
    ------
    InputError
        If the path cannot be written, at once or later on.
    """
    path = Path(path)
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            with path.open("wb") as file:
                yield file
            return
        target = path.resolve()
        if target.is_dir():
            raise IsADirectoryError(21, "Is a directory")
        if target.exists() and not os.access(target, os.W_OK):
            raise PermissionError(13, "Permission denied")
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            with temporary.open("wb") as file:
                yield file
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None
