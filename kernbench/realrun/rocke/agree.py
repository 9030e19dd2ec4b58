"""Specs without their kernels: whether kernbench and a checkout agree on validity, grid, signature and name.

Reasons for a refusal are information, not compared: only that there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernbench.realrun.rocke.checkout import Checkout
from kernbench.realrun.rocke.payloads import Payload, make_spec
from kernbench.specs.rocke import ARCHES, RockeSpecError

UNKNOWN_ARCH = "gfx000"
ARCHES_ASKED = (*ARCHES, UNKNOWN_ARCH)
"""Validity is asked for each: the catalogue, and one that no catalogue has."""
Outcome = dict[str, Any]
"""``{"is": value}``, or ``{"raises": "ValueError", "says": "..."}``."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that kernbench and the checkout do not agree on."""

    what: str
    """``fields``, ``validity on gfx942``, ``grid`` ..."""
    subject: str
    """The spec, or the field."""
    kernbench: str
    checkout: str


@dataclass(frozen=True, slots=True)
class Said:
    """What one side says; the reason is not compared."""

    answer: str
    reason: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.answer}: {self.reason}" if self.reason else self.answer


@dataclass(slots=True)
class Agreement:
    """What was compared, and what differed."""

    compared: dict[str, int] = field(default_factory=dict)
    """Comparisons by what was compared."""
    legal: int = 0
    """Specs that kernbench's rules, those of the original alone, accept on some architecture."""
    differences: list[Difference] = field(default_factory=list)

    def hold(self, what: str, subject: str, ours: Said, theirs: Said) -> None:
        """Compare what both sides say."""
        kind = what.split(" on ")[0]
        self.compared[kind] = self.compared.get(kind, 0) + 1
        if ours != theirs:
            self.differences.append(Difference(what, subject, str(ours), str(theirs)))


def compare_specs(checkout: Checkout, payloads: Sequence[Payload], build: Sequence[str]) -> Agreement:
    """Compare each spec.

    Parameters
    ----------
    checkout
        Where the other answers come from; its fields are kernbench's.
    payloads
        The specs.
    build
        Architectures for which a legal spec is also built: kernbench says which legal specs cannot be.
    """
    found = Agreement()
    for payload in payloads:
        _compare_spec(checkout, payload, list(build), found)
    return found


def _compare_spec(checkout: Checkout, payload: Payload, build: list[str], found: Agreement) -> None:
    subject = spec_text(payload)
    made = outcome(make_spec, payload)
    spec = made.get("is")
    verdicts = {} if spec is None else {arch: outcome(spec.is_valid, arch, compat=True) for arch in ARCHES_ASKED}
    legal = [arch for arch, verdict in verdicts.items() if _accepts(verdict)]
    found.legal += bool(legal)
    buildable = [arch for arch in build if arch in legal]
    theirs = checkout.ask("describe", subject, spec=payload, arches=list(ARCHES_ASKED), build=buildable)
    found.hold("making", subject, _judged(made), _judged(theirs["made"]))
    if spec is None or "raises" in theirs["made"]:
        return
    for arch, verdict in verdicts.items():
        found.hold(f"validity on {arch}", subject, _judged(verdict), _judged(theirs["valid"][arch]))
    for arch in buildable:
        refused = spec.build_error(arch)
        built = Said("done") if refused is None else Said("raises ValueError", refused)
        found.hold(f"building on {arch}", subject, built, _judged(theirs["builds"][arch]))
    if legal:
        ours = {"name": spec.kernel_name(), "grid": list(spec.grid()), "signature": spec.signature()}
        for what, value in ours.items():
            found.hold(what, subject, _said({"is": value}), _said(theirs[what]))


def outcome(call: Callable[..., Any], *arguments: Any, **options: Any) -> Outcome:
    """Call, and write down what came of it as the worker does."""
    try:
        return {"is": call(*arguments, **options)}
    except Exception as error:  # whatever the original would raise is what is compared
        kind = ValueError if isinstance(error, RockeSpecError) else type(error)
        return {"raises": kind.__name__, "says": str(error)}


def _accepts(verdict: Outcome) -> bool:
    return bool("is" in verdict and verdict["is"][0])


def _judged(answer: Outcome) -> Said:
    if "raises" in answer:
        return Said(f"raises {answer['raises']}", answer["says"])
    if isinstance(answer["is"], list | tuple):
        ok, reason = answer["is"]
        return Said("accepted") if ok else Said("refused", reason)
    return Said("done")


def _said(answer: Outcome) -> Said:
    if "raises" in answer:
        return _judged(answer)
    value = answer["is"]
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return Said(", ".join(f"{entry.get('name')}: {entry.get('type')}" for entry in value))
    return Said(str(value))


def spec_text(payload: Payload) -> str:
    """Write a spec on one line, as the call that makes it.

    >>> spec_text({"class": "FmhaShape", "fields": {"head_size": 64, "num_query_heads": 2}})
    'FmhaShape(head_size=64, num_query_heads=2)'
    """
    fields = (f"{k}={spec_text(v) if isinstance(v, dict) else repr(v)}" for k, v in payload["fields"].items())
    return f"{payload['class']}({', '.join(fields)})"
