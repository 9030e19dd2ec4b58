"""How long a user waits: `kernbench --help`, the first run after an install (compilation included), and later runs.

Prints host seconds of whole processes, measured in this run. Usage: python benchmarks/startup.py
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

RUN = ("run", "gqa_decode_long", "--no-progress")


def seconds(arguments: tuple[str, ...], cache: str) -> float:
    """Wall time of one `kernbench` process with numba's compiled code in ``cache``."""
    environment = os.environ | {"NUMBA_CACHE_DIR": cache}
    command = [sys.executable, "-c", "from kernbench.cli import main; main()", *arguments]
    begin = time.perf_counter()
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as cache:
        first = seconds(RUN, cache)
        later = statistics.median(seconds(RUN, cache) for _ in range(5))
        helped = statistics.median(seconds(("--help",), cache) for _ in range(5))
    print(f"kernbench --help                                   {helped:6.2f} s")
    print(f"kernbench {' '.join(RUN[:2])}, nothing compiled yet   {first:6.2f} s   {first / later:4.1f} x a later run")
    print(f"kernbench {' '.join(RUN[:2])}, later                  {later:6.2f} s")


if __name__ == "__main__":
    main()
