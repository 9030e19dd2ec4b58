"""What the GPU is and how it runs at the moment: name, clocks, power, versions. Every figure is None if not known."""

from __future__ import annotations

import contextlib
import importlib
import json
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any

from kernbench.realrun.records import Device


@dataclass(frozen=True)
class Reading:
    """Clocks in MHz and power in watts at one moment."""

    clock: float | None = None
    memory: float | None = None
    power: float | None = None


def _call(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return ""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _number(text: Any) -> float | None:
    digits = "".join(c for c in str(text) if c.isdigit() or c == ".")
    try:
        return float(digits)
    except ValueError:
        return None


def parse_nvidia_smi(line: str) -> Reading:
    """Read ``nvidia-smi --query-gpu=clocks.sm,clocks.mem,power.draw --format=csv,noheader,nounits``.

    >>> parse_nvidia_smi("1980, 3201, 512.34")
    Reading(clock=1980.0, memory=3201.0, power=512.34)
    >>> parse_nvidia_smi("1980, [N/A], [N/A]")
    Reading(clock=1980.0, memory=None, power=None)
    """
    cells = [_number(cell) for cell in line.strip().splitlines()[0].split(",")] if line.strip() else []
    cells += [None] * (3 - len(cells))
    return Reading(*cells[:3])


def parse_rocm_smi(text: str) -> Reading:
    """Read ``rocm-smi -d 0 -c -P --json``.

    >>> parse_rocm_smi('{"card0": {"sclk clock speed:": "(2100Mhz)", "mclk clock speed:": "(1300Mhz)"}}')
    Reading(clock=2100.0, memory=1300.0, power=None)
    """
    try:
        card = next(iter(json.loads(text).values()))
    except (ValueError, StopIteration, AttributeError):
        return Reading()
    found: dict[str, float | None] = {}
    for key, value in card.items():
        name = key.lower()
        for word, part in (("sclk clock speed", "clock"), ("mclk clock speed", "memory"), ("power", "power")):
            if word in name:
                found.setdefault(part, _number(value))
    return Reading(found.get("clock"), found.get("memory"), found.get("power"))


def read_state() -> Reading:
    """Ask the vendor's library, or else its tool, which takes a tenth of a second or more."""
    with contextlib.suppress(Exception):  # absent, or another maker's
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
        gpu = nvml.nvmlDeviceGetHandleByIndex(0)
        clock, memory = (nvml.nvmlDeviceGetClockInfo(gpu, kind) for kind in (nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM))
        return Reading(float(clock), float(memory), nvml.nvmlDeviceGetPowerUsage(gpu) / 1000)
    line = _call(
        "nvidia-smi", "-i", "0", "--query-gpu=clocks.sm,clocks.mem,power.draw", "--format=csv,noheader,nounits"
    )
    if line:
        return parse_nvidia_smi(line)
    return parse_rocm_smi(_call("rocm-smi", "-d", "0", "-c", "-P", "--json"))


def describe() -> Device:
    """Name the current GPU of PyTorch and the versions of what runs on it."""
    import torch
    import triton

    properties = torch.cuda.get_device_properties(0)
    versions = {"torch": str(torch.__version__), "triton": str(triton.__version__)}
    if torch.version.hip:
        arch = str(properties.gcnArchName).split(":")[0]
        versions["hip"] = str(torch.version.hip)
    else:
        arch = "sm_{}{}".format(*torch.cuda.get_device_capability(0))
        versions["cuda"] = str(torch.version.cuda)
        driver = _call("nvidia-smi", "-i", "0", "--query-gpu=driver_version", "--format=csv,noheader").strip()
        if driver:
            versions["driver"] = driver
        if torch.backends.cudnn.is_available():
            versions["cudnn"] = str(torch.backends.cudnn.version())
    return Device(gpu=str(properties.name), arch=arch, versions=versions)


def with_state(device: Device, before: Reading, after: Reading) -> Device:
    """Return ``device`` with the clocks and power read before and after a batch of records."""

    def both(a: float | None, b: float | None) -> tuple[float, float] | None:
        return None if a is None or b is None else (a, b)

    update = {
        "clock_mhz": both(before.clock, after.clock),
        "memory_clock_mhz": both(before.memory, after.memory),
        "power_w": both(before.power, after.power),
    }
    return device.model_copy(update=update)
