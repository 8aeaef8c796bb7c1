"""Controllers and brokers of one cluster on one event loop and real sockets; clients in threads beside."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from replog.config import NodeConfig
from replog.host.world import RealWorld
from replog.node.broker import Broker
from replog.node.controller import ControllerNode
from replog.node.zookeeper.broker import ZooKeeperBroker

T = TypeVar("T")
Node = Broker | ControllerNode | ZooKeeperBroker
QUICK = {
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 300,
    "controller.quorum.election.timeout.ms": 300,
    "controller.quorum.fetch.timeout.ms": 1000,
    "replica.lag.time.max.ms": 3000,
    "replica.fetch.backoff.ms": 100,
    "replica.fetch.wait.max.ms": 100,
}


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Loopback:
    """A cluster in this process."""

    def __init__(self, folder: Path, controllers: int, brokers: int, settings: dict[str, Any]) -> None:
        self.folder = folder
        self.cluster_id = str(UUID(int=99))
        ids = [101 + i for i in range(controllers)] + [1 + i for i in range(brokers)]
        self.ports = dict(zip(ids, free_ports(len(ids)), strict=True))
        self.has_racks = settings.pop("racks", False)  # then each broker is in one of its own
        self.protocol = settings.pop("protocol", "PLAINTEXT")  # of every listener
        self.settings = settings
        self.log_dirs: dict[int, str] = {}
        self.worlds: dict[int, RealWorld] = {}
        self.nodes: dict[int, Node] = {}

    @property
    def is_secured(self) -> bool:
        """Whether any listener may speak TLS."""
        return self.protocol != "PLAINTEXT"

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for node, port in self.ports.items() if node < 100)

    def config(self, node: int) -> NodeConfig:
        return NodeConfig(self.values(node))

    def values(self, node: int) -> dict[str, Any]:
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in self.ports.items() if node > 100)
        own = {
            "process.roles": "controller" if node > 100 else "broker",
            "node.id": node,
            "cluster.id": self.cluster_id,
            "listeners": f"{'CONTROLLER' if node > 100 else self.protocol}://127.0.0.1:{self.ports[node]}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": f"CONTROLLER:{self.protocol}",
            "inter.broker.listener.name": self.protocol,
            "log.dirs": self.log_dirs.get(node, str(self.folder / f"node-{node}")),
            "controller.quorum.voters": voters,
            "tribunal.events.file": str(self.folder / f"events-{node}.jsonl"),
        }
        rack = {"broker.rack": f"rack-{node}"} if self.has_racks and node < 100 else {}
        return own | QUICK | rack | self.settings

    async def start(self, node: int) -> None:
        config = self.config(node)
        format_directory(config)
        self.worlds[node] = RealWorld(config, level="warning")
        self.nodes[node] = self.made(node, config)
        await self.nodes[node].start()

    def made(self, node: int, config: NodeConfig) -> Node:
        return (ControllerNode if node > 100 else Broker)(self.worlds[node], config)

    async def stop(self, node: int) -> None:
        await self.nodes.pop(node).stop()
        self.worlds.pop(node).close()

    async def restart_with(self, node: int, log_dirs: str) -> None:
        """Start a node again with other log directories."""
        await self.stop(node)
        self.log_dirs[node] = log_dirs
        await self.start(node)
        await self.serving()

    async def stop_all(self) -> None:
        for node in sorted(self.nodes):
            await self.stop(node)
        if self.is_secured:
            # TLS is closed by both ends; what ends with the loop would be reported as left open.
            await asyncio.sleep(0.2)

    async def serving(self) -> None:
        """Wait until all brokers are unfenced."""
        brokers = [node for node in self.nodes.values() if not isinstance(node, ControllerNode)]
        async with asyncio.timeout(30):
            while not all(len(_alive(broker)) == len(brokers) and broker.is_serving for broker in brokers):  # noqa: ASYNC110
                await asyncio.sleep(0.05)


def format_directory(config: NodeConfig) -> None:
    for number, directory in enumerate(config.log_dirs):
        properties = Path(directory) / "meta.properties"
        if not properties.exists():
            properties.parent.mkdir(parents=True, exist_ok=True)
            directory_id = UUID(int=config.node_id + (number << 32))
            identity = f"cluster.id={config.cluster_id}\nnode.id={config.node_id}\ndirectory.id={directory_id}"
            properties.write_text(f"version=1\n{identity}\n")


def _alive(broker: Broker | ZooKeeperBroker) -> list[int]:
    return [node for node, view in broker.plane.metadata.brokers.items() if not view.fenced]


async def in_thread(call: Callable[..., T], *arguments: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, call, *arguments)


@asynccontextmanager
async def running(folder: Path, *, controllers: int, brokers: int, **settings: Any) -> AsyncGenerator[Loopback]:
    """A serving cluster; stopped in order at the end."""
    cluster = Loopback(folder, controllers, brokers, {name.replace("__", "."): v for name, v in settings.items()})
    async with started(cluster):
        yield cluster


@asynccontextmanager
async def started(cluster: Loopback) -> AsyncGenerator[Loopback]:
    for node in cluster.ports:
        await cluster.start(node)
    try:
        await cluster.serving()
        yield cluster
    finally:
        await cluster.stop_all()
