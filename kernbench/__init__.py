"""kernbench: how fast, and how right, is this attention kernel on that machine?

>>> import numpy as np
>>> import numpy as np
>>> import kernbench as kb
>>> machine = kb.load_machine("pe1")
>>> x = kb.tensor(np.ones((4, 8), np.float32), machine)
>>> y = kb.empty((4, 8), "f32", machine)
>>> def double(x, y, *, tl):
...     tl.store(y, tl.load(x, shape=(4, 8)) * 2)
>>> result = kb.launch(double, machine, args=(x, y))
>>> float(y.numpy().sum()), result.makespan_ps > 0
(64.0, True)
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kernbench._version import __version__

if TYPE_CHECKING:
    from kernbench.errors import KernbenchError
    from kernbench.execute import execute
    from kernbench.launcher import LaunchResult, launch
    from kernbench.machine import Machine, load_machine
    from kernbench.packing import pack
    from kernbench.placement import Placement, on, replicated, split
    from kernbench.record import Trace, record
    from kernbench.simulate import simulate
    from kernbench.simulate.timeline import Timeline
    from kernbench.tensors import Tensor, empty, shape_only, tensor

# Loaded on first use: `kernbench --help` must not wait for NumPy.
_HOMES = {
    "KernbenchError": "kernbench.errors",
    "LaunchResult": "kernbench.launcher",
    "Machine": "kernbench.machine",
    "Placement": "kernbench.placement",
    "Tensor": "kernbench.tensors",
    "Timeline": "kernbench.simulate.timeline",
    "Trace": "kernbench.record",
    "empty": "kernbench.tensors",
    "execute": "kernbench.execute",
    "launch": "kernbench.launcher",
    "load_machine": "kernbench.machine",
    "on": "kernbench.placement",
    "pack": "kernbench.packing",
    "record": "kernbench.record",
    "replicated": "kernbench.placement",
    "shape_only": "kernbench.tensors",
    "simulate": "kernbench.simulate",
    "split": "kernbench.placement",
    "tensor": "kernbench.tensors",
}

__all__ = [
    "KernbenchError", "LaunchResult", "Machine", "Placement", "Tensor", "Timeline", "Trace", "__version__", "empty",
    "execute", "launch", "load_machine", "on", "pack", "record", "replicated", "shape_only", "simulate", "split",
    "tensor",
]  # fmt: skip


class _Package(ModuleType):
    """This package, with its public names loaded on first use.

    ``record``, ``execute`` and ``simulate`` are rooms *and* functions (ADR 9). Importing a room makes Python set it as
    an attribute here; properties of the class keep the attribute the function, whatever is imported when.
    """

    def __getattr__(self, name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'kernbench' has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)

    def __dir__(self) -> list[str]:
        return __all__


def _function(name: str) -> Any:
    return property(lambda self: _Package.__getattr__(self, name), lambda self, room: None)


for _name in ("record", "execute", "simulate"):
    setattr(_Package, _name, _function(_name))
sys.modules[__name__].__class__ = _Package
