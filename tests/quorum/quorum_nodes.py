"""Quorum nodes on real sockets and real disks in one process, each with a state machine that only remembers."""

import asyncio
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from replog.config import Endpoint, NodeConfig
from replog.host.world import RealWorld
from replog.log.log import Log
from replog.node.net.handlers import Handlers
from replog.node.net.server import Server, ServerLimits, ServerRequest
from replog.node.quorum.member import APIS, QuorumNode, SnapshotReader
from replog.node.quorum.metadata_log import open_metadata_log
from replog.types import NodeId, QuorumEpoch
from replog.wire.apis import CONTROLLER_APIS

CLUSTER = "3f1c1f6e-0000-4000-8000-000000000001"
HOST = "127.0.0.1"


class StateMachine:
    """A listener that remembers all its notifications."""

    def __init__(self) -> None:
        self.records: list[tuple[int, bytes]] = []
        self.leading: int | None = None
        self.leaders: list[tuple[int, int]] = []
        self.snapshots = 0

    @property
    def values(self) -> list[bytes]:
        return [value for _, value in self.records]

    def on_committed(self, base_offset: int, epoch: int, records: list[tuple[int, bytes]]) -> None:
        assert records[0][0] == base_offset
        assert not self.records or self.records[-1][0] < base_offset
        self.records += records

    def on_snapshot(self, reader: SnapshotReader) -> None:
        self.snapshots += 1
        values = list(reader)
        self.records = [(reader.end_offset - len(values) + index, value) for index, value in enumerate(values)]

    def on_leading(self, epoch: QuorumEpoch, next_offset: int) -> None:
        assert self.leading is None
        self.leading = epoch

    def on_resigned(self, epoch: QuorumEpoch) -> None:
        assert self.leading == epoch
        self.leading = None

    def on_leader_changed(self, leader: NodeId, epoch: QuorumEpoch) -> None:
        self.leaders.append((leader, epoch))


class Node:
    """One controller or observer."""

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.world = RealWorld(config, level="error")
        self.state = StateMachine()
        self.log: Log = open_metadata_log(self.world, config)
        self.quorum = QuorumNode(self.world, config, self.log, self.state)
        self.handlers = Handlers()
        self.handlers.serve(APIS, self.quorum)
        self.server = Server(self.world, CONTROLLER_APIS, self._handle, ServerLimits())

    def _handle(self, request: ServerRequest) -> None:
        self.handlers.by_api[request.api].handle(request)

    async def start(self) -> None:
        if "controller" in self.config.roles:
            await self.server.start(self.config.listener)
        self.quorum.start()

    async def stop(self) -> None:
        await self.quorum.stop()
        self._end()

    def kill(self) -> None:
        self.quorum.close()
        self._end()

    def _end(self) -> None:
        self.server.stop()
        self.log.close_files()
        self.world.close()


class Nodes:
    """A quorum in one process."""

    def __init__(self, folder: Path, voters: int = 3, observers: int = 0, **settings: Any) -> None:
        self._folder = folder
        self._settings = {
            "controller.quorum.election.timeout.ms": 150,
            "controller.quorum.fetch.timeout.ms": 300,
            "controller.quorum.request.timeout.ms": 400,
        } | settings
        ports = free_ports(voters)
        self._endpoints = {101 + index: Endpoint(HOST, port) for index, port in enumerate(ports)}
        self.voters = list(self._endpoints)
        self.observers = [1 + index for index in range(observers)]
        self.alive: dict[int, Node] = {}

    def config(self, node_id: int) -> NodeConfig:
        directory = self._folder / str(node_id)
        directory.mkdir(exist_ok=True)
        listener = self._endpoints.get(node_id, Endpoint(HOST, 1))
        return NodeConfig(
            {
                "process.roles": "controller" if node_id in self._endpoints else "broker",
                "node.id": node_id,
                "cluster.id": CLUSTER,
                "listeners": str(listener),
                "log.dirs": str(directory),
                "controller.quorum.voters": ",".join(f"{one}@{where}" for one, where in self._endpoints.items()),
            }
            | self._settings
        )

    def format(self, node_id: int, directory_id: str) -> None:
        """Write the directory id that a formatted node has."""
        path = Path(self.config(node_id).metadata_log_dir) / "meta.properties"
        path.write_text(f"version=1\ncluster.id={CLUSTER}\nnode.id={node_id}\ndirectory.id={directory_id}\n")

    async def start(self, *node_ids: int) -> None:
        for node_id in node_ids or (*self.voters, *self.observers):
            self.alive[node_id] = Node(self.config(node_id))
            await self.alive[node_id].start()

    def kill(self, node_id: int) -> None:
        self.alive.pop(node_id).kill()

    async def stop(self, node_id: int) -> None:
        await self.alive.pop(node_id).stop()

    def close(self) -> None:
        for node_id in list(self.alive):
            self.kill(node_id)

    @property
    def leader(self) -> Node | None:
        return next((node for node in self.alive.values() if node.quorum.is_leading), None)

    async def led(self, besides: Iterable[int] = ()) -> Node:
        await until(lambda: self.leader is not None and self.leader.config.node_id not in besides)
        assert self.leader is not None
        return self.leader

    async def agreed(self) -> None:
        """Wait until everybody alive has been notified of everything that is in the leader's log."""
        await self.led()
        await until(lambda: self.leader is not None and self._same())

    def _same(self) -> bool:
        assert self.leader is not None
        end = self.leader.quorum.log_end_offset
        return all(node.quorum.applied_offset == end for node in self.alive.values())


async def until(condition: Callable[[], bool], limit_ms: int = 15_000) -> None:
    """Look again every few milliseconds: what we wait for is in no event of ours."""
    async with asyncio.timeout(limit_ms / 1000):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind((HOST, 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
