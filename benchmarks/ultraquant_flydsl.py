"""Execute the UltraQuant decode kernel of vLLM, compiled by FlyDSL, on the CPU, and hold it against kernbench.

    python benchmarks/ultraquant_flydsl.py VLLM [--python PYTHON] [--query-group 6,8,16] ...

``docs/machine-code-ultraquant.md`` says what to install. Exit codes: 0 all within tolerance, 1 not, 2 bad input.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from kernbench.commandline import CHECK_FAILED, GOOD, reports_errors
from kernbench.errors import InputError
from kernbench.realrun import amdgcn
from kernbench.realrun.flydsl import build, check

HEAD = "  G Hk  bs     P    LDS  max rel  sum rel  out ulp  out abs  same bits  cosine      rel L2   counts"


def numbers(text: str, option: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{option} takes numbers, as 6,8,16, not {text!r}") from None


def row(spec, found: check.Check) -> str:
    sizes = f"{spec.num_partitions}x{spec.tile_groups_per_partition}"
    unequal = [f"{c.name} {c.counted} not {c.expected}" for c in found.unequal]
    counts = ", ".join(unequal) or "equal"
    return (
        f"{spec.query_group_size:3d} {spec.num_kv_heads:2d} {spec.kv_block_size:3d} {sizes:>5s} {found.lds.counted:6d}"
        f"  {found.max_relative:7.1e}  {found.sum_relative:7.1e}"
        f"  {found.out_ulps:7.2f}  {found.out_absolute:7.1e}  {found.out_equal:9.5f}"
        f"  {found.merged.cosine:.8f}  {found.merged.rel_l2:.1e}  {counts}{'' if found.passed else '  FAILED'}"
    )


def print_totals(results: list[check.Check], specs: list, lengths: list[int]) -> None:
    print(f"\n{'all launches together':28s} {'counted':>12s} {'expected':>12s}")
    for same in zip(*(found.counts for found in results), strict=True):
        print(f"{same[0].name:28s} {sum(c.counted for c in same):12d} {sum(c.expected for c in same):12d}")
    charged = [check.charged(spec, lengths) for spec in specs]
    counted = sum(check.operations(spec, found.counts) for spec, found in zip(specs, results, strict=True))
    print(f"{'matrix operations':28s} {counted:12d} {sum(flops for flops, _ in charged):12d} charged by the simulator")
    print(f"{'bytes of memory':28s} {'-':>12s} {sum(nbytes for _, nbytes in charged):12d} charged, behind its caches")


@reports_errors
def main(
    vllm: Annotated[Path, typer.Argument(help="Directory that holds vllm/, or vLLM's wheel.")],
    python: Annotated[str, typer.Option(help="Python that has FlyDSL and PyTorch.")] = sys.executable,
    query_group: Annotated[str, typer.Option(help="Query heads to a key/value head.")] = "6,8,16",
    kv_heads: Annotated[str, typer.Option(help="Key/value heads.")] = "1,2",
    block_size: Annotated[str, typer.Option(help="Tokens of a cache block.")] = "16,64,256",
    tile_groups: Annotated[str, typer.Option(help="Most tile-groups of a partition.")] = "1,2",
    partitions: Annotated[int | None, typer.Option(help="Partitions; else just enough for the longest.")] = None,
    lengths: Annotated[str, typer.Option(help="Tokens of each sequence.")] = "0,1,15,16,17,255,256,257,1000",
    seed: Annotated[int, typer.Option(help="Of inputs and block tables.")] = 0,
) -> int:
    """Compile, execute and compare one build for each combination of the options."""
    seqs, specs = numbers(lengths, "--lengths"), []
    chosen = ((query_group, "--query-group"), (kv_heads, "--kv-heads"), (block_size, "--block-size"),
              (tile_groups, "--tile-groups"))  # fmt: skip
    for g, h, b, t in itertools.product(*(numbers(text, option) for text, option in chosen)):
        enough = max(1, -(-max(seqs) // (256 * max(t, 1))))
        specs.append(check.make_spec(g, h, b, seqs, enough if partitions is None else partitions, t))
    with tempfile.TemporaryDirectory() as directory:
        versions = build.find_versions(python)
        root = build.find_kernel(vllm, Path(directory))
        print(f"vLLM {build.VLLM}, FlyDSL {versions['flydsl']}, PyTorch {versions['torch']}, {build.ARCH}; "
              f"lengths {', '.join(map(str, seqs))}")  # fmt: skip
        print(HEAD, flush=True)
        results = []
        for i, spec in enumerate(specs):
            work = Path(directory, f"build{i}")
            work.mkdir()
            (kernel,) = amdgcn.load(build.compile_kernel(spec, python, root, work), build.ARCH).values()
            results.append(check.check_launch(kernel, spec, check.make_inputs(spec, seqs, seed)))
            print(row(spec, results[-1]), flush=True)
    print_totals(results, specs, seqs)
    good = sum(found.passed for found in results)
    print(f"{good} of {len(results)} builds within tolerance")
    return GOOD if good == len(results) else CHECK_FAILED


if __name__ == "__main__":
    typer.run(main)
