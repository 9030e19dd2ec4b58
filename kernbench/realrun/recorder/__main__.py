"""``python -m kernbench.realrun.recorder``: the recorder on a machine that has only PyTorch, Triton and pydantic."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kernbench.errors import KernbenchError
from kernbench.realrun.recorder import record_plan


def main(arguments: list[str] | None = None) -> int:
    """Parse arguments and record. Returns the exit code: see ``record_plan``; 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m kernbench.realrun.recorder", description=__doc__)
    parser.add_argument("--plan", required=True, help="a plan's name (h200, smoke) or a YAML file")
    parser.add_argument("--out", required=True, type=Path, help="records, JSON lines; a rerun goes on with it")
    parser.add_argument("--only", action="append", metavar="FAMILY", help="run this family only; may be repeated")
    parser.add_argument("--budget-s", type=float, metavar="N", help="begin no spec after N seconds")
    parser.add_argument("--quiet", action="store_true", help="say nothing of specs that succeed")
    given = parser.parse_args(arguments)

    def say(line: str) -> None:
        if not given.quiet or not line.endswith(" us"):
            print(line, flush=True)

    try:
        return record_plan(given.plan, given.out, only=given.only, budget_s=given.budget_s, progress=say)
    except KernbenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
