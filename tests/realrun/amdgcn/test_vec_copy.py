"""A compiled copy does the work that profilers recorded on real GPUs.

The recordings are public: ROCm/rocm-systems, projects/rocprofiler-compute/tests/workloads/vcopy, MI200, MI300X_A1 and
MI350, of 2**20 elements in workgroups of 256.
"""

import numpy as np
import pytest

from kernbench.realrun import amdgcn
from tests.realrun.amdgcn.written import FIXTURES

COUNT = 1 << 20
MI300X = {
    "SQ_WAVES": 16384, "SQ_INSTS": 327680, "SQ_INSTS_VALU": 98304, "SQ_INSTS_SALU": 49152, "SQ_INSTS_SMEM": 65536,
    "SQ_INSTS_VMEM_RD": 16384, "SQ_INSTS_VMEM_WR": 16384, "SQ_INSTS_BRANCH": 16384,
}  # fmt: skip
MI200 = MI300X | {"SQ_INSTS": 393216, "SQ_INSTS_VALU": 163840}
WRITTEN_LINES = 131072


def copy(arch, count, block=256, elements=None):
    kernel = amdgcn.load(FIXTURES / f"vec_copy.{arch}.s", arch)["vec_copy"]
    source = np.random.default_rng(count).standard_normal(elements or count)
    target = np.zeros_like(source)
    done = kernel.launch(-(-count // block), block, [source, None, target, count, 0])
    return source, target, done


@pytest.mark.parametrize(("arch", "recorded"), [("gfx90a", MI200), ("gfx942", MI300X), ("gfx950", MI300X)])
def test_the_counters_equal_those_of_real_gpus(arch, recorded):
    source, target, done = copy(arch, COUNT)
    np.testing.assert_array_equal(target, source)
    assert {name: done.counters[name] for name in recorded} == recorded
    assert done.counters["global_write_lines_64B"] == WRITTEN_LINES
    assert done.counters["global_read_bytes"] == done.counters["global_write_bytes"] == source.nbytes


@pytest.mark.parametrize("count", [1, 63, 65, 1000])
def test_a_ragged_end_is_left_alone(count):
    source, target, done = copy("gfx942", count, block=192, elements=2000)
    np.testing.assert_array_equal(target[:count], source[:count])
    assert not target[count:].any()
    assert done.counters["global_write_bytes"] == 8 * count


def test_opcodes_add_up_to_the_instructions():
    _, _, done = copy("gfx942", 1000)
    assert sum(done.opcodes.values()) == done.counters["SQ_INSTS"]


def test_arguments_are_named_by_their_kinds():
    kernel = amdgcn.load(FIXTURES / "vec_copy.gfx942.s")["vec_copy"]
    assert [a.kind for a in kernel.arguments] == ["global_buffer"] * 3 + ["by_value"] * 2
