"""Nodes as processes of this machine, on addresses of their own on the loopback interface: nothing is needed for it.

Node N binds 127.0.1.N and is reached by everybody through its relay on 127.0.2.N (`links/relays.py`).
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from tribunal.clusters.api import Unsupported
from tribunal.clusters.links.addresses import open_on_free_port
from tribunal.clusters.links.relays import Links, node_host
from tribunal.clusters.nodes.node_process import NodeProcess
from tribunal.clusters.nodes.node_program import NodeProgram
from tribunal.clusters.run_context import RunContext

PLACE: Final = "processes, link proxies on loopback"


class Loopback:
    """Runs nodes as processes; `prefix` are words in front of each one's command."""

    mounts_while_running = False

    def __init__(self, place: str = PLACE, prefix: Sequence[str] = ()) -> None:
        self.place = place
        self._prefix = prefix
        self._links = Links({})
        self._run_dir = Path()

    async def open(self, run: RunContext) -> Links:
        """Find a port that is free everywhere and open the relays."""
        self._run_dir = run.directory
        self._links = await open_on_free_port(
            run.spec,
            partial(Links, on_message=run.requests.note, zookeeper_nodes=run.spec.ensemble_ids, tls=run.security),
        )
        return self._links

    def node(
        self, node: int, program: NodeProgram, config: Path, log: Path, on_exit: Callable[[str], None]
    ) -> NodeProcess:
        """Return a process that is not started yet."""
        endpoint = self._links.endpoint(node)
        return NodeProcess(node, program, config, log, endpoint, on_exit, self._run_dir, lambda: self._prefix)

    def listener(self, node: int) -> tuple[str, int]:
        """Return the node's own address."""
        return self._links.endpoint(node)

    def bind_host(self, node: int) -> str:
        """Return the node's own address: the relays know it by that."""
        return node_host(node)

    async def mounting(self, argv: Sequence[str]) -> str:
        """Refuse: without namespaces of their own these mounts would be the whole machine's."""
        raise Unsupported("processes without namespaces have no mounts of their own")

    async def close(self) -> None:
        """Close the relays."""
        await self._links.close()
