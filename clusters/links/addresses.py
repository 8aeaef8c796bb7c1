"""Ports for one cluster: the same number on every node's own address and on its relay's.

Relays listen from the start of a cluster to its end, so a port that their addresses have free belongs to no
other run. Ports below the system's ephemeral range are used: a node that is down must not find its port taken
by somebody's outgoing connection when it comes back.
"""

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tribunal.clusters.api import ClusterError, ClusterSpec
from tribunal.clusters.links.relays import Links, link_host, node_host

FIRST_PORT: Final = 20_000
LAST_PORT: Final = 32_000
OPEN_ATTEMPTS: Final = 5
STRIDE: Final = 7  # so that runs started one after another don't meet


def candidate_ports(base_port: int | None) -> Iterator[int]:
    """Yield the asked-for port only, or ports to try."""
    if base_port is not None:
        yield base_port
        return
    count = LAST_PORT - FIRST_PORT
    start = os.getpid() * STRIDE % count
    for step in range(200):
        yield FIRST_PORT + (start + step) % count


def taken_address(nodes: Sequence[int], port: int) -> str | None:
    """Return an address that somebody else listens on, or None."""
    for node in nodes:
        for host in (node_host(node), link_host(node)):
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((host, port))
                except OSError as problem:
                    return f"{host}:{port} ({problem.strerror})"
    return None


def free_port(nodes: Sequence[int], base_port: int | None) -> int:
    """Return a port free on all addresses of these nodes; `ClusterError` names the taken one."""
    taken = "none"
    for port in candidate_ports(base_port):
        found = taken_address(nodes, port)
        if found is None:
            return port
        taken = found
    raise ClusterError(f"port already taken: {taken}; choose another with --set cluster.base_port=N")


async def open_on_free_port(spec: ClusterSpec, links_on: Callable[[dict[int, int]], Links]) -> Links:
    """Find a port that is free everywhere and open the relays there."""
    for attempt in range(OPEN_ATTEMPTS):
        links = links_on(dict.fromkeys(spec.node_ids, free_port(spec.node_ids, spec.base_port)))
        try:
            await links.open()
        except OSError as problem:  # somebody was quicker
            if attempt == OPEN_ATTEMPTS - 1 or spec.base_port is not None:
                raise ClusterError(f"port already taken: {problem.strerror}") from None
        else:
            return links
    raise AssertionError("unreachable")
