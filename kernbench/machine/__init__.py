"""The machine room: from a topology file to a machine, and from a machine to arrays of links and routes.

``units`` reads quantities; ``fields`` and ``schema`` say what a file may hold and ``checks`` what must agree in it;
``explain`` turns every fault into a line that a user can act on; ``load`` finds files and gives a ``Machine``;
``network`` lays its links, routes and channels out flat; ``describe`` and ``graph`` show it.

>>> machine = load_machine("row4_pe8")
>>> machine.shape, machine.pe_name(11)
((8, 4, 1), 'sip0.cube1.pe3')
"""

from kernbench.machine.describe import Figure, describe
from kernbench.machine.load import load_machine, topology_names
from kernbench.machine.model import Machine
from kernbench.machine.network import DIRECTIONS, OPPOSITE, Network, network_of, rational
from kernbench.machine.schema import MachineSpec, MemorySpec, PeSpec, json_schema

__all__ = [
    "DIRECTIONS",
    "OPPOSITE",
    "Figure",
    "Machine",
    "MachineSpec",
    "MemorySpec",
    "Network",
    "PeSpec",
    "describe",
    "json_schema",
    "load_machine",
    "network_of",
    "rational",
    "topology_names",
]
