"""Run records that tests make: small launches of our own kernels, and times that the model itself gives for them."""

from kernbench.realrun.predict import predict
from kernbench.realrun.records import Device, Implementation, Quantiles, RunRecord, RunSpec, Times

H200 = Device(gpu="NVIDIA H200", arch="sm_90")
FIELDS = ("cold", "warm", "cold_graph")


def times(fields=FIELDS, us=1.0):
    """Times that are only there to be asked for."""
    return Times(**{field: Quantiles(median=us) for field in fields})


def decode(name="d", fields=FIELDS, splits=8, block_n=64, stages=2, waves=4, family="decode_splitkv", **spec):
    """A split-KV decode as our Triton kernel does it; ``spec`` overrides sizes."""
    sizes = {
        "batch": 4, "h_q": 32, "h_kv": 8, "s_q": 1, "s_kv": 4096, "d_qk": 128, "d_v": 128, "dtype": "bf16",
        "kv_dtype": "bf16", "causal": False,
    }  # fmt: skip
    kernel = Implementation(
        name="triton", block_m=16, block_n=block_n, waves=waves, stages=stages, splits=splits, registers=72,
        lds_bytes=38912,
    )  # fmt: skip
    return RunRecord(
        id=name, family=family, spec=RunSpec(**(sizes | spec)), implementation=kernel, device=H200,
        times=times(fields), evidence="live", source="made",
    )  # fmt: skip


def prefill(name="p", fields=FIELDS, waves=8, stages=3, block_m=128, block_n=64, family="prefill", **spec):
    """A prefill as our Triton kernel does it; ``spec`` overrides sizes."""
    sizes = {
        "batch": 2, "h_q": 16, "h_kv": 16, "s_q": 1024, "s_kv": 1024, "d_qk": 128, "d_v": 128, "dtype": "bf16",
        "kv_dtype": "bf16", "causal": True,
    }  # fmt: skip
    kernel = Implementation(
        name="triton", block_m=block_m, block_n=block_n, waves=waves, stages=stages, registers=160, lds_bytes=98304
    )
    return RunRecord(
        id=name, family=family, spec=RunSpec(**(sizes | spec)), implementation=kernel, device=H200,
        times=times(fields), evidence="live", source="made",
    )  # fmt: skip


def measured_on(record, machine):
    """Return the record with the times that a machine would take by the model."""
    found = {p.field: Quantiles(median=p.predicted_us) for p in predict(record, machine)}
    return record.model_copy(update={"times": Times(**found)})
