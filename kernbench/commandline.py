"""What every command shares: exit codes, errors without tracebacks, output files, progress, ``key=value`` options."""

from __future__ import annotations

import errno
import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernbench.errors import InputError, KernbenchError
from kernbench.output import whole_file

if TYPE_CHECKING:
    from kernbench.run import Progress

GOOD, CHECK_FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
"""Exit codes."""

_FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a disk that is full."""
DEFAULT_STORE = Path("kernbench.sqlite")
"""Where the results of sweeps are kept, in the working directory."""
StoreOption = Annotated[Path, typer.Option("--store", help="File of the results of sweeps.")]
NoProgress = Annotated[bool, typer.Option("--no-progress", help="Do not show what is going on.")]


def reports_errors(command: Callable[..., int]) -> Callable[..., None]:
    """Turn bad input into one message without a traceback, and what a command returns into the exit code."""

    @functools.wraps(command)
    def guarded(*args: Any, **kwargs: Any) -> None:
        try:
            code = command(*args, **kwargs)
        except KernbenchError as error:
            typer.echo(f"kernbench: {error}", err=True)
            code = BAD_INPUT
        except MemoryError as error:
            typer.echo(f"kernbench: out of memory: {error or 'smaller sizes are needed'}", err=True)
            code = BAD_INPUT
        except OSError as error:
            if error.errno not in _FULL:
                raise
            typer.echo(f"kernbench: cannot write {error.filename or 'the output'}: {error.strerror}", err=True)
            code = BAD_INPUT
        except KeyboardInterrupt as stopped:
            say_interrupted(*stopped.args)
            code = INTERRUPTED
        raise typer.Exit(code)

    return guarded


def say_interrupted(left: str = "nothing was written") -> None:
    """Tell the user what an interruption left behind."""
    typer.echo(f"kernbench: interrupted; {left}", err=True)


def parse_settings(settings: list[str], option: str = "--set", example: str = "S_kv=4096") -> dict[str, str]:
    """Split ``key=value`` texts of an option that may be repeated.

    Raises
    ------
    InputError
        If one has another form, or a key is given twice.
    """
    parsed: dict[str, str] = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise InputError(f"{option} takes key=value, e.g. {option} {example}, not {text!r}")
        if key.strip() in parsed:
            raise InputError(f"{option} {key.strip()} is given twice")
        parsed[key.strip()] = value.strip()
    return parsed


def parse_override_options(overrides: list[str] | None) -> dict[str, Any]:
    """Read ``--override key=value`` options; raises InputError as :func:`parse_settings` does, or for no YAML."""
    if not overrides:
        return {}
    from kernbench.provenance import parse_overrides

    return parse_overrides(parse_settings(overrides, "--override", "pe.clock='2 GHz'"))


def output_file(path: Path | None) -> AbstractContextManager[Path | None]:
    """Give :func:`~kernbench.output.whole_file` for an option that may be absent."""
    return nullcontext() if path is None else whole_file(path)


@contextmanager
def shown_progress(hidden: bool) -> Iterator[Progress | None]:
    """Show the current stage on stderr, if that is a terminal."""
    if hidden or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield lambda stage: status.update(stage)
