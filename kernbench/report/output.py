"""Output files written as a stream, which appear whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from kernbench.errors import InputError
from kernbench.output import whole_file


@contextmanager
def open_whole(path: Path | str) -> Iterator[BinaryIO]:
    """Open a file under a temporary name beside ``path``; it takes its place at the end, if all goes well.

    A device such as ``/dev/stdout`` is written directly.

    Raises
    ------
    InputError
        If the path cannot be written, at once or later on.
    """
    try:
        with whole_file(Path(path)) as temporary, temporary.open("wb") as file:
            yield file
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None
