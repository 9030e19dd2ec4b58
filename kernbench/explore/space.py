"""The points of a sweep: every combination of its settings, numbered, and which of them its constraints allow."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from kernbench.bench import AnyBench, Bench, apply_settings, find_bench
from kernbench.errors import InputError, SpecError, TopologyError, nearest
from kernbench.explore.expressions import MACHINE_PARTS, Expression
from kernbench.explore.sweepfile import METRICS, SweepFile
from kernbench.machine import Machine, load_machine
from kernbench.on_grid import form_for
from kernbench.provenance import setting_text

RESULTS = ("makespan_ps", "scratch_peak_bytes", "hbm_bytes", "link_bytes", "flops")
"""Results of a point that expressions may use."""
PLACES = ("pes", "cubes", "sips")
"""What of a machine's shape expressions may use by a short name."""
_MOST_POINTS = 10**15
LEVELS = ("sip", "cube", "pe")


@dataclass(frozen=True)
class Dimension:
    """One thing that is varied."""

    kind: str
    """``topology``, ``spec``, ``splits`` or ``machine``."""
    name: str
    values: tuple[Any, ...]

    @property
    def is_ordered(self) -> bool:
        """Whether its values grow: then a search may interpolate between them."""
        numbers = [v for v in self.values if isinstance(v, (int, float)) and not isinstance(v, bool)]
        return len(numbers) == len(self.values) and list(self.values) == sorted(numbers)


@dataclass(frozen=True)
class Point:
    """One combination."""

    index: tuple[int, ...]
    """Position of its value in each dimension."""
    position: int
    """Its number in the whole space."""
    topology: int
    """Index into :attr:`Sweep.machines`."""
    settings: Mapping[str, Any]
    """Fields of the spec and of the implementation that are set."""
    overrides: Mapping[str, Any]
    """Values of the machine's file that are changed."""


@dataclass(frozen=True)
class Sweep:
    """A sweep file that is checked against its bench and its machines."""

    file: SweepFile
    bench: AnyBench
    machines: tuple[Machine, ...]
    """As their files say, without overrides."""
    dimensions: tuple[Dimension, ...]
    before: tuple[Expression, ...]
    """Constraints that are known before a point is timed."""
    after: tuple[Expression, ...]
    """Constraints on results: a point that breaks one is kept as infeasible."""
    cost: Expression | None = field(default=None)

    @classmethod
    def of(cls, file: SweepFile, source: str) -> Sweep:
        """Check a sweep file against what it names.

        Raises
        ------
        KernbenchError
            For an unknown bench, machine, field, key or name in an expression, and for values that are wrong whatever
            the others are; the message gives the key path.
        """
        bench = find_bench(file.bench)
        machines = tuple(load_machine(name) for name in file.topology)
        bench = _one_form(bench, machines, source)
        fields = _fields(bench)
        dimensions = (
            Dimension("topology", "topology", tuple(range(len(machines)))),
            *(Dimension("spec", name, values) for name, values in file.spec.items()),
            *_splits(file, bench, machines, source),
            *(Dimension("machine", name, values) for name, values in file.machine.items()),
        )
        if math.prod(len(dimension.values) for dimension in dimensions) > _MOST_POINTS:
            raise InputError(f"{source}: has more than {_MOST_POINTS:,} combinations; give fewer values")
        for dimension in dimensions:
            _check_values(dimension, bench, machines, fields, source)
        before: list[Expression] = []
        after: list[Expression] = []
        for i, text in enumerate(file.constraints):
            expression = Expression(text, f"{source}: constraints[{i}]")
            expression.check_names({*fields, *RESULTS, *PLACES, "topology"})
            (after if expression.uses(RESULTS) else before).append(expression)
        cost = Expression(file.cost, f"{source}: cost") if file.cost is not None else None
        if cost is not None:
            cost.check_names({*fields, *RESULTS, *PLACES, "topology"})
        if cost is None and "cost" in file.objectives:
            raise InputError(f"{source}: objectives: cost is an objective, but there is no expression `cost`")
        for expression in (*before, *after, *([cost] if cost else [])):
            expression.machine_values(machines[0].spec)  # an unknown key is found here, not at the first point
        return cls(file, bench, machines, dimensions, tuple(before), tuple(after), cost)

    @property
    def size(self) -> int:
        """Points of the whole space, constraints aside."""
        return math.prod(len(dimension.values) for dimension in self.dimensions)

    @property
    def objectives(self) -> tuple[str, ...]:
        """Columns of the results that are minimised, the most important first."""
        return tuple(METRICS[name] for name in self.file.objectives)

    def points(self) -> Iterator[Point]:
        """Yield every point, those that share a trace one after the other."""
        for position, index in enumerate(itertools.product(*(range(len(d.values)) for d in self.dimensions))):
            yield self._point(index, position)

    def at(self, index: Sequence[int]) -> Point:
        """Return the point with these values."""
        position = 0
        for i, dimension in zip(index, self.dimensions, strict=True):
            position = position * len(dimension.values) + i
        return self._point(tuple(index), position)

    def numbered(self, position: int) -> Point:
        """Return the point of this number."""
        index, rest = [], position
        for dimension in reversed(self.dimensions):
            rest, i = divmod(rest, len(dimension.values))
            index.append(i)
        return self._point(tuple(reversed(index)), position)

    def _point(self, index: tuple[int, ...], position: int) -> Point:
        settings: dict[str, Any] = {}
        overrides: dict[str, Any] = {}
        for i, dimension in zip(index, self.dimensions, strict=True):
            value = dimension.values[i]
            if dimension.kind == "spec":
                settings[dimension.name] = value
            elif dimension.kind == "splits":
                settings.update(value)
            elif dimension.kind == "machine":
                overrides[dimension.name] = value
        return Point(index, position, index[0], settings, overrides)

    def machine(self, point: Point) -> Machine:
        """Return the machine of a point. Raises TopologyError if its overrides make none."""
        return overridden(self.machines[point.topology], json.dumps(point.overrides, sort_keys=True))

    def excluded_by(self, point: Point) -> Expression | None:
        """Return the first constraint that forbids a point before it is timed; None: it is allowed."""
        if not self.before:
            return None
        try:
            values = self.values(point, *self.before)
        except (SpecError, TopologyError):
            return None  # it is no point at all: timing it says why
        return next((expression for expression in self.before if not expression.holds(values)), None)

    def values(self, point: Point, *expressions: Expression) -> dict[str, Any]:
        """Return what the names of expressions mean at a point, results aside."""
        spec, implementation = apply_settings(self.bench, point.settings)
        values = {**_plain(spec)} | (_plain(implementation) if implementation is not None else {})
        if any(expression.uses_machine or expression.uses((*PLACES, "topology")) for expression in expressions):
            machine = self.machine(point)
            for expression in expressions:
                values |= expression.machine_values(machine.spec)
            values |= {"pes": machine.n_pes, "cubes": machine.n_cubes, "sips": machine.n_sips, "topology": machine.name}
        return values


def work_of(spec: Any) -> tuple[int, str]:
    """Return how much a spec asks for: the elements of its inputs, and these as text. Equal work is the same inputs.

    >>> from kernbench.specs.attention import DecodeSpec
    >>> work_of(DecodeSpec(S_kv=64, TILE_S_KV=16)) == work_of(DecodeSpec(S_kv=64)) < work_of(DecodeSpec(S_kv=65))
    True
    """
    shapes = dict(sorted(spec.input_shapes.items()))
    return sum(math.prod(shape) for shape in shapes.values()), json.dumps([spec.dtype, shapes])


@lru_cache(maxsize=512)
def overridden(machine: Machine, overrides: str) -> Machine:
    """Return a machine with overrides (as JSON) applied."""
    changes = json.loads(overrides)
    return machine.with_overrides(changes) if changes else machine


def sharding_text(spec: Mapping[str, Any], machine: Machine) -> str:
    """Return how the work is split over the levels of a machine that have more than one place.

    >>> from kernbench.machine import load_machine
    >>> sharding_text({"split_heads": ["pe"], "split_S_kv": ["sip", "cube"]}, load_machine("row4_pe8"))
    'heads=pe S_kv=cube'
    """
    sizes = dict(zip(LEVELS, reversed(machine.shape), strict=True))
    parts = []
    for name, levels in spec.items():
        if name.startswith("split_") and isinstance(levels, (list, tuple)):
            used = [level for level in levels if sizes.get(level, 1) > 1]
            parts += [f"{name.removeprefix('split_')}={','.join(used)}"] if used else []
    return " ".join(parts) or "none"


def _plain(model: Any) -> dict[str, Any]:
    return {
        name: setting_text(value) if isinstance(value, (list, tuple)) else value
        for name, value in model.model_dump(mode="json").items()
    }


def _fields(bench: AnyBench) -> dict[str, Any]:
    fields = dict(bench.spec.model_fields)
    if not isinstance(bench, Bench):
        fields |= bench.implementation.model_fields
    return fields


def _one_form(bench: AnyBench, machines: Sequence[Machine], source: str) -> AnyBench:
    """Return the form of the bench that the machines run: one for all, since its settings are."""
    from kernbench.run import check_fits

    forms = [form_for(bench, machine)[0] for machine in machines]
    for form, machine in zip(forms, machines, strict=True):
        check_fits(form, machine)
    if len({form.name for form in forms}) > 1 or len({type(form) for form in forms}) > 1:
        raise InputError(
            f"{source}: topology: some of these are meshes and some have PEs that hold workgroups; {bench.name} takes "
            "other settings on each: write a sweep for each kind"
        )
    return forms[0]


def _splits(file: SweepFile, bench: AnyBench, machines: Sequence[Machine], source: str) -> Iterator[Dimension]:
    """Yield the dimension of split assignments, if there is one."""
    if not file.splits:
        return
    names = [name.removeprefix("split_") for name in bench.spec.model_fields if name.startswith("split_")]
    if not names:
        raise InputError(f"{source}: splits: bench {bench.name} has no splits to assign")
    for name in names:
        if f"split_{name}" in file.spec:
            raise InputError(f"{source}: spec.split_{name}: is also assigned by splits; give it once")
    if file.splits == "all":
        levels = [x for i, x in enumerate(LEVELS) if any(machine.shape[2 - i] > 1 for machine in machines)]
        able = [name for name in names if _extents(file, bench, name) != {1}] or names
        choices = [
            {name: ",".join(x for x, owner in zip(levels, owners, strict=True) if owner == name) for name in names}
            for owners in itertools.product(able, repeat=len(levels))
        ]
    else:
        choices = []
        for i, given in enumerate(file.splits):
            for name in given:
                if name not in names:
                    raise InputError(f"{source}: splits[{i}]: unknown split {name!r}{nearest(name, names)}")
            choices.append({name: given.get(name, "none") for name in names})
    values = [{f"split_{name}": levels or "none" for name, levels in choice.items()} for choice in choices]
    for i, value in enumerate(values):
        if value in values[:i]:
            raise InputError(f"{source}: splits[{i}]: this assignment is given twice")
        try:
            apply_settings(bench, value)
        except SpecError as error:
            raise InputError(f"{source}: splits[{i}]: {error}") from None
    yield Dimension("splits", "splits", tuple(values))


def _extents(file: SweepFile, bench: AnyBench, split: str) -> set[Any]:
    """Return the extents that a sweep gives the dimension of a split; {None} if no field has that name."""
    name = {"heads": "h_kv"}.get(split, split)
    if name not in bench.spec.model_fields:
        return {None}
    return set(file.spec.get(name, (bench.spec.model_fields[name].default,)))


def _check_values(
    dimension: Dimension, bench: AnyBench, machines: Sequence[Machine], fields: Mapping[str, Any], source: str
) -> None:
    """Check what can be said of each value by itself; whether it fits the others is found at each point."""
    name, where = dimension.name, f"{source}: {dimension.kind}.{dimension.name}"
    if dimension.kind == "spec" and name not in fields:
        raise InputError(f"{where}: unknown field{nearest(name, fields)}")
    if dimension.kind == "machine" and name.split(".")[0] not in MACHINE_PARTS and not name.startswith("links"):
        raise InputError(f"{where}: unknown key{nearest(name, MACHINE_PARTS)}")
    for value in dimension.values:
        try:
            if dimension.kind == "spec":
                apply_settings(bench, {name: value})
            elif dimension.kind == "machine":
                for machine in machines:
                    machine.with_overrides({name: value})
        except (SpecError, TopologyError) as error:
            # What is wrong only beside the defaults of the others may be right beside their values here.
            if isinstance(error, TopologyError) and (f": {name}: " in str(error) or f": {name}." in str(error)):
                if isinstance(value, dict):
                    first = str(error).splitlines()[0]
                    hint = "keys are written with dots, as cube.memory.bandwidth"
                    raise InputError(f"{where}: {first}; {hint}") from None
                raise InputError(f"{where}: {str(error).removesuffix(' (from an override)')}") from None
            if str(error).startswith(f"spec field {name} "):
                raise InputError(f"{where}: {error}") from None
