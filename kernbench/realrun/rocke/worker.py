"""The child process of ``kernbench realrun rocke``: imports a checkout of rocke and answers questions about it.

The checkout's top-level packages have names that clash with others (``kernels``, ``builders``), and it is not
kernbench's code; so it gets a process of its own. This file stands alone: it is run by path as
``python -I -B worker.py PLATFORM LIBRARY FLAVOUR`` and imports nothing of kernbench.

Each line on stdin is a request, each line on stdout its answer, both JSON: ``{"id": 3, "do": "describe", ...}``, then
``{"id": 3, "answer": ...}`` or ``{"id": 3, "error": "..."}``. What the checkout itself prints goes to stderr. A call
that may raise is answered with ``{"is": value}`` or ``{"raises": "ValueError", "says": "..."}``.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FUNCTIONS = {
    "SageAttentionSpec": {
        "valid": "is_valid_sage_attention_spec", "build": "build_sage_attention",
        "grid": "sage_attention_grid", "signature": "sage_attention_signature",
    },
    "JengaSparseSpec": {
        "valid": "is_valid_jenga_spec", "build": "build_jenga_sparse_attention",
        "grid": "jenga_sparse_attention_grid", "signature": "jenga_sparse_attention_signature",
    },
    "VsaSparseSpec": {
        "valid": "is_valid_vsa_spec", "build": "build_vsa_sparse_attention",
        "grid": "vsa_sparse_attention_grid", "signature": "vsa_sparse_attention_signature",
    },
}  # fmt: skip
"""Names of the package ``kernels`` that serve each spec."""
WITHIN_SPECS = {"FmhaCommonSpec": "kernels", "FmhaShape": "kernels", "QkScaleSpec": "rocke.helpers.qk_scale"}
LOWERING, LOWER = "rocke.core.lower_llvm", "lower_kernel_to_llvm"


class Checkout:
    """The modules of one checkout, as far as they are asked about."""

    def __init__(self, platform: str, library: str, flavour: str) -> None:
        sys.path[:0] = [platform, library]
        self.flavour = flavour
        self.roots = [Path(platform).resolve(), Path(library).resolve()]
        self.lower: Any = None
        self.classes: dict[str, Any] = {}
        self.functions: dict[str, dict[str, Any]] = {}

    def load(self) -> dict[str, Any]:
        """Import what is needed; answer the fields of each spec class: by name, with the default if there is one."""
        kernels = self._module("kernels")
        self.lower = self._names(LOWERING, self._module(LOWERING), [LOWER])[LOWER]
        self.classes = self._names("kernels", kernels, list(FUNCTIONS))
        for name, module in WITHIN_SPECS.items():
            self.classes |= self._names(module, self._module(module), [name])
        for spec, wanted in FUNCTIONS.items():
            found = self._names("kernels", kernels, list(wanted.values()))
            self.functions[spec] = {role: found[name] for role, name in wanted.items()}
        return {name: _fields(made) for name, made in self.classes.items()}

    def describe(self, spec: dict[str, Any], arches: list[str], build: list[str]) -> dict[str, Any]:
        """Answer everything about a spec that takes no compiler."""
        made = _outcome(self._make, spec)
        if "raises" in made:
            return {"made": made}
        subject, functions = made["is"], self.functions[spec["class"]]
        return {
            "made": {"is": None},
            "valid": {arch: _outcome(_verdict, functions["valid"], subject, arch) for arch in arches},
            "builds": {arch: _outcome(_builds, functions["build"], subject, arch) for arch in build},
            "name": _outcome(lambda: str(subject.kernel_name())),
            "grid": _outcome(lambda: [int(n) for n in functions["grid"](subject)]),
            "signature": _outcome(lambda: [_argument(entry) for entry in functions["signature"](subject)]),
        }

    def lower_spec(self, spec: dict[str, Any], arch: str) -> dict[str, Any]:
        """Answer the LLVM IR of a spec's kernel as text."""
        return _outcome(self._text, spec, arch)

    def _text(self, spec: dict[str, Any], arch: str) -> str:
        kernel = self.functions[spec["class"]]["build"](self._make(spec), arch=arch)
        return str(self.lower(kernel, llvm_flavor=self.flavour, arch=arch))

    def _module(self, name: str) -> Any:
        module = importlib.import_module(name)
        file = Path(str(module.__file__)).resolve()
        if not any(root in file.parents for root in self.roots):
            raise ImportError(f"{name} was imported from {file}, which is not in the checkout")
        return module

    @staticmethod
    def _names(module_name: str, module: Any, wanted: list[str]) -> dict[str, Any]:
        missing = [name for name in wanted if not hasattr(module, name)]
        if missing:
            raise ImportError(f"{module_name} has no {', '.join(missing)}")
        return {name: getattr(module, name) for name in wanted}

    def _make(self, spec: dict[str, Any]) -> Any:
        fields = {k: self._make(v) if isinstance(v, dict) else v for k, v in spec["fields"].items()}
        return self.classes[spec["class"]](**fields)


def _fields(made: Any) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for field in dataclasses.fields(made):
        if field.default is not dataclasses.MISSING:
            found[field.name] = {"default": field.default}
        elif field.default_factory is not dataclasses.MISSING:
            found[field.name] = {"default": f"made by {field.default_factory!r}"}
        else:
            found[field.name] = {}
    return found


def _verdict(valid: Callable[..., tuple[bool, str]], spec: Any, arch: str) -> list[Any]:
    ok, reason = valid(spec, arch)
    return [bool(ok), str(reason)]


def _builds(build: Callable[..., Any], spec: Any, arch: str) -> bool:
    return build(spec, arch=arch) is not None


def _argument(entry: dict[str, Any]) -> dict[str, str]:
    return {"name": str(entry["name"]), "type": str(entry["type"])}


def _outcome(call: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    try:
        return {"is": call(*arguments)}
    except Exception as error:
        return {"raises": type(error).__name__, "says": str(error)}


def main() -> None:
    """Answer requests until stdin ends."""
    # The checkout may print, and whatever it starts may read: both streams of the protocol are put out of reach.
    requests, answers = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    platform, library, flavour = sys.argv[1:]
    os.environ |= {"ROCKE_BACKEND": "python", "ROCKE_LLVM_FLAVOR": flavour}
    checkout = Checkout(platform, library, flavour)
    verbs: dict[str, Callable[..., Any]]
    verbs = {"load": checkout.load, "describe": checkout.describe, "lower": checkout.lower_spec}
    for line in requests:
        request = json.loads(line)
        answer = {"id": request.pop("id")}
        try:
            text = json.dumps(answer | {"answer": verbs[request.pop("do")](**request)})
        except Exception as error:
            text = json.dumps(answer | {"error": f"{type(error).__name__}: {error}"})
        print(text, file=answers, flush=True)


if __name__ == "__main__":
    main()
