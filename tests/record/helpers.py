"""What tests of recording share."""

import inspect
from pathlib import Path

import pytest

import kernbench as kb
from kernbench.errors import KernbenchError
from kernbench.record.record import record_members


def small_machine(**sizes):
    """Return a machine of few PEs; sizes as ``cubes=2, columns=2, rows=2``."""
    changes = {
        "sip.cubes.columns": sizes.get("cubes", 2),
        "cube.pes.columns": sizes.get("columns", 2),
        "cube.pes.rows": sizes.get("rows", 2),
    }
    return kb.load_machine("row4_pe8", overrides=changes)


def commands(kernel, machine, args=(), pe=0, **options):
    """Return the commands that one PE issues, recorded without the checks that concern several PEs."""
    return list(record_members(kernel, machine, args, **options).commands_of(pe))


def dependencies(command, kind):
    """Return the commands that a command waits for, of one kind (OPERAND or REUSE)."""
    return [index for index, of_kind in command.deps if of_kind == kind]


def behaviour(trace, pe):
    """Return all that a PE does, in terms that do not depend on which other PEs were recorded with it.

    Line numbers become the lines themselves, lane columns the PE's own numbers.
    """
    cls = next(c for c in trace.classes if pe in c.pes)
    commands = [c._replace(line=str(trace.lines[c.line])) for c in trace.commands_of(pe)]
    tiles = [tile._replace(line=str(trace.lines[tile.line])) for tile in cls.tiles]
    by_line = {str(trace.lines[line]): n for line, n in cls.scratch_by_line.items()}
    return {"commands": commands, "tiles": tiles, "peak": cls.scratch_peak_bytes, "by_line": by_line}


def complaint(kernel, machine, args=(), mode=None, **options):
    """Return the message of the error that recording (or, with a mode, launching) the kernel ends with."""
    if mode is not None:
        options["mode"] = mode
    with pytest.raises(KernbenchError) as caught:
        (kb.record if mode is None else kb.launch)(kernel, machine, args, **options)
    return str(caught.value)


def marked(kernel, mark="# here"):
    """Return how messages name the line of a kernel that ends in ``mark``."""
    lines, first = inspect.getsourcelines(kernel)
    (i,) = (i for i, line in enumerate(lines) if line.rstrip().endswith(mark))
    return f"{Path(inspect.getsourcefile(kernel)).name}:{first + i}: {lines[i].strip()}"
