"""Which kernel families were held against measured runs, on which machine, and of what sizes.

``benchmarks/cross_validation.py --write`` makes the file from every row that was compared, so that nothing in it is
typed; a run looks its own spec up in it (:mod:`kernbench.ledger`).
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

FILE = Path(__file__).parent / "data" / "validated.json"


class MeasuredFamily(BaseModel):
    """The measured runs of one kernel family on one machine that a prediction was held against."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    machine: str = Field(description="name of the machine that stands for the GPU, or GPUs, they ran on")
    family: str = Field(description="kernel family of the run records")
    times: int = Field(ge=1, description="measured times; a run may have several (cold, warm ...)")
    sizes: dict[str, tuple[float, float]] = Field(description="field of the runs' specs → smallest and largest value")
    formats: dict[str, tuple[str, ...]] = Field(description="dtype and kv_dtype → those that were measured")


_LIST = TypeAdapter(tuple[MeasuredFamily, ...])


@lru_cache(maxsize=1)
def measured_families() -> tuple[MeasuredFamily, ...]:
    """Return what comes with kernbench, by machine and family; read once."""
    return _LIST.validate_json(FILE.read_bytes())


def write_measured_families(found: tuple[MeasuredFamily, ...], path: Path = FILE) -> None:
    """Write the file that :func:`measured_families` reads, a line for each machine and family."""
    lines = ",\n".join(one.model_dump_json() for one in sorted(found, key=lambda f: (f.machine, f.family)))
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
