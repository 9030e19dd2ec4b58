"""A machine as a networkx graph, and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kernbench.machine.model import Machine
from kernbench.machine.places import Place

if TYPE_CHECKING:
    import networkx


def to_networkx(machine: Machine) -> networkx.DiGraph:
    """Return the graph of a machine's PEs, CUBE routers and memories.

    Parameters
    ----------
    machine : Machine

    Returns
    -------
    networkx.DiGraph
        Nodes are named ``sip0.cube1.pe3`` (kind ``pe``), ``sip0.cube1`` (kind ``router``) and ``sip0.cube1.memory``
        or ``sip0.memory`` (kind ``memory``, with ``capacity`` in bytes). Edges have ``bandwidth`` in bytes/s and
        ``latency`` in ps; those that are links also have ``link``, the id in ``Network``, which several edges share
        where a link between SIPs serves all their CUBEs.
    """
    import networkx as nx

    graph = nx.DiGraph(name=machine.name)
    _add_places(graph, machine)
    _add_links(graph, machine)
    return graph


def _add_places(graph: networkx.DiGraph, machine: Machine) -> None:
    """PEs and memories, each joined to the router of its CUBE (a shared memory to those of its SIP)."""
    pe, memory, network = machine.pe, machine.memory, machine.network
    for node in range(machine.n_cubes):
        place = Place(*divmod(node, machine.cubes_per_sip))
        router = str(place)
        graph.add_node(router, kind="router")
        store = f"{router if machine.memory_scope == 'cube' else Place(place.sip)}.memory"
        graph.add_node(store, kind="memory", capacity=memory.capacity)
        graph.add_edge(store, router, bandwidth=memory.bandwidth, latency=memory.latency)
        graph.add_edge(router, store, bandwidth=memory.bandwidth, latency=memory.latency)
    for index, node in enumerate(network.node_of_pe.tolist()):
        router, name = str(Place(*divmod(node, machine.cubes_per_sip))), machine.pe_name(index)
        graph.add_node(name, kind="pe")
        graph.add_edge(router, name, bandwidth=pe.load.bandwidth, latency=0)
        graph.add_edge(name, router, bandwidth=pe.store.bandwidth, latency=0)


def _add_links(graph: networkx.DiGraph, machine: Machine) -> None:
    network = machine.network
    for link, name in enumerate(network.link_names()):
        start, end = name.split(" -> ")
        # A link between SIPs joins the CUBEs of equal index.
        cubes = [f".cube{c}" for c in range(machine.cubes_per_sip)] if link < network.n_sip_links else [""]
        figures = {"bandwidth": int(network.link_bandwidth[link]), "latency": int(network.link_latency[link])}
        for cube in cubes:
            graph.add_edge(start + cube, end + cube, link=link, **figures)


def draw(machine: Machine, path: str | Path) -> None:
    """Draw a machine to a PNG file: SIPs as frames, CUBEs as boxes, PEs as squares, memories as bars.

    Parameters
    ----------
    machine : Machine
        If its PEs would come out too small, CUBEs are plain boxes and one CUBE is shown enlarged.
    path : str or Path
        The file to write; it appears whole or not at all.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    from kernbench.machine.drawing.picture import draw as draw_picture

    draw_picture(machine, Path(path))
