"""How many workgroups fit into a PE, and the places of a machine."""

from __future__ import annotations

import pytest

from kernbench.errors import InputError
from kernbench.machine import Machine, load_machine
from kernbench.simulate.launch.places import Resources, places_of, slots_of


@pytest.fixture(scope="module")
def h200() -> Machine:
    """64 waves of 32, 32 workgroups, 65,536 registers by 8, 233,472 bytes of scratch and 1,024 reserved for each."""
    return load_machine("h200")


@pytest.mark.parametrize(
    ("needs", "slots"),
    [
        # 72 x 32 x 4 = 9,216 registers: 7; 64 / 4 = 16; 233,472 / (38,912 + 1,024) = 5.8
        (Resources(waves=4, registers=72, lds_bytes=38912), 5),
        # 256 x 32 x 4 = 32,768 registers: 2
        (Resources(waves=4, registers=256, lds_bytes=38912), 2),
        # 40 x 32 x 8 = 10,240 registers: 6; 32 x 32 x 8 = 8,192: 8, as 64 / 8 waves
        (Resources(waves=8, registers=40, lds_bytes=0), 6),
        (Resources(waves=8, registers=32, lds_bytes=0), 8),
        # 64 / 8 waves, though there are registers for 16
        (Resources(waves=8, registers=16, lds_bytes=0), 8),
        # 32 workgroups, though there are 64 waves and registers for 64
        (Resources(waves=1, registers=32, lds_bytes=0), 32),
        # no more registers than one granule
        (Resources(waves=2, registers=0, lds_bytes=0), 32),
    ],
)
def test_the_scarcest_resource_decides(h200: Machine, needs: Resources, slots: int) -> None:
    assert slots_of(h200, needs) == slots


def test_registers_are_rounded_up_to_the_granule(h200: Machine) -> None:
    # 65,536 / (32 x 4) = 512 registers for all workgroups of 4 waves: 4 of 128, 3 of 129 (136), 3 of 136 and of 168
    found = {registers: slots_of(h200, Resources(4, registers, 0)) for registers in (128, 129, 136, 168, 169)}
    assert found == {128: 4, 129: 3, 136: 3, 168: 3, 169: 2}


def test_each_workgroup_takes_the_reserved_scratch_beside_its_own(h200: Machine) -> None:
    third = 233472 // 3
    assert slots_of(h200, Resources(4, 32, third - 1024)) == 3
    assert slots_of(h200, Resources(4, 32, third - 1023)) == 2
    assert slots_of(h200, Resources(4, 32, 233472 - 1024)) == 1


@pytest.mark.parametrize(
    ("needs", "lack"),
    [
        (Resources(65, 8, 0), "65 waves, a PE holds 64"),
        (Resources(32, 72, 0), "73,728 registers, a PE has 65,536"),
        (Resources(4, 32, 233472), "233,472 bytes of scratch, a PE has 233,472"),
    ],
)
def test_a_workgroup_that_does_not_fit_is_told_why(h200: Machine, needs: Resources, lack: str) -> None:
    with pytest.raises(InputError, match=f"a workgroup does not fit into a PE of h200: it needs {lack}"):
        slots_of(h200, needs)


def test_a_mesh_has_no_places() -> None:
    with pytest.raises(InputError, match=r"gives each PE one program of its own: .* such as h200 or mi300x"):
        slots_of(load_machine("cube1_pe8"), Resources(4, 32, 0))


def test_the_places_of_a_machine(h200: Machine) -> None:
    places = places_of(h200, Resources(4, 72, 38912))
    assert (places.cubes, places.pes_per_cube, places.slots) == (1, 132, 5)
    assert [level.name for level in places.levels] == ["cache", "memory"]
    memory = h200.memory
    assert places.levels[-1].bandwidth == places.store_bandwidth == round(memory.bandwidth * memory.achievable)
    assert [level.capacity for level in places.levels] == [40 << 20, 0]


def test_caches_of_cubes_come_before_the_shared_one() -> None:
    places = places_of(load_machine("mi300x"), Resources(4, 64, 0))
    assert [(level.name, level.per_cube) for level in places.levels] == [
        ("l2", True), ("cache", False), ("memory", False)
    ]  # fmt: skip
