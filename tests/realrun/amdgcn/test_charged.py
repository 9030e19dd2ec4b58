"""What the simulator charges for a kernel, held against what its machine code does."""

import pytest

import kernbench
from kernbench.bench import find_bench
from kernbench.run import run_bench
from kernbench.specs.implementation import DecodeImplementation, PrefillImplementation
from tests.realrun.amdgcn.compiled import LAUNCHES, decode, prefill

MOPS = 512
MACHINES = {"gfx942": "mi300x", "gfx950": "mi355x"}


def operations(done):
    return done.counters["SQ_INSTS_VALU_MFMA_MOPS_F16"] * MOPS


def simulated(bench, arch, implementation, **spec):
    found = find_bench(bench)
    machine = kernbench.load_machine(MACHINES[arch])
    return run_bench(found, machine, found.spec(dtype="f16", **spec), implementation=implementation, mode="time")


@pytest.mark.parametrize("arch", MACHINES)
@pytest.mark.parametrize("causal", [False, True])
def test_prefill_multiplies_what_it_is_charged_for(arch, causal):
    d, keys = 64, 192
    made = LAUNCHES[f"prefill_d64.{arch}"]
    tile = {"BLOCK_M": made["constants"]["BM"], "BLOCK_N": made["constants"]["BN"], "waves": made["waves"]}
    chosen = PrefillImplementation(lds_bytes=made["lds_bytes"], **tile)
    charged = simulated("fa2_prefill", arch, chosen, T_q=keys, S_kv=keys, h_q=4, h_kv=2, d_head=d, causal=causal)
    _, _, counted = prefill(arch, d, keys, causal, heads=4, group=2)
    assert operations(counted) == charged.flops


@pytest.mark.parametrize("arch", MACHINES)
def test_every_wave_of_decode_multiplies_all_keys(arch):
    """Triton spreads the waves over the second product's columns, and gives each the whole of the first."""
    d, keys, splits, kv_heads, group = 128, 512, 4, 2, 4
    made = LAUNCHES[f"decode_d128.{arch}"]
    chosen = DecodeImplementation(splits=splits, BLOCK_N=64, waves=made["waves"], lds_bytes=made["lds_bytes"])
    sizes = {"S_kv": keys, "h_q": kv_heads * group, "h_kv": kv_heads, "d_head": d, "batch": 1, "kv_dtype": "f16"}
    charged = simulated("decode_splitkv", arch, chosen, **sizes)
    _, _, partial, reduced = decode(arch, d, keys, kv_heads=kv_heads, group=group, splits=splits)
    one_product = charged.flops // 2
    assert operations(partial) == made["waves"] * one_product + one_product
    # Memory is charged behind the caches: queries once, not for every split; the reduction's output on top.
    output = queries = kv_heads * group * d * 2
    asked = partial.counters["global_read_bytes"] + partial.counters["global_write_bytes"]
    assert asked == charged.hbm_bytes - output + (splits - 1) * queries
    assert reduced.counters["global_write_bytes"] == output
