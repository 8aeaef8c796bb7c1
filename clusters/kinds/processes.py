"""The embedded default: every node a process of this machine, on loopback addresses of its own.

Node N binds 127.0.1.N and is reached by everybody through its relay on 127.0.2.N (`relays.py`). Nodes' data
lies in the run's folder, or where `data_dir` says; what nodes print goes to `logs/<node>.log`. Everything that
lives outside the files ends with the harness: relays are its own sockets, processes ask the kernel to end with their parent.
"""

import asyncio
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from replog.config import ConfigError, load
from replog.host.world import RealDisk, RealEntropy
from replog.node.directories.meta_properties import ForeignDirectory, format_directories
from tribunal.clusters.api import (
    ClusterError,
    ClusterSpec,
    ClusterState,
    LogEntry,
    MetadataEntry,
    NodeEvent,
    Proof,
    TopicPartition,
    Unsupported,
    until,
)
from tribunal.clusters.capabilities import ClockSkew, Damage, DiskTrouble
from tribunal.clusters.clients.administration import Administration
from tribunal.clusters.clients.confluent import ConfluentClients
from tribunal.clusters.clients.list_offsets import Leader
from tribunal.clusters.clients.membership import Membership
from tribunal.clusters.clock import RunClock
from tribunal.clusters.host_environment import HostEnvironment, NodeLife
from tribunal.clusters.links.addresses import open_on_free_port, taken_address
from tribunal.clusters.links.link_faults import LINK_CAPABILITIES, LinkFaults
from tribunal.clusters.links.relays import Links, node_host
from tribunal.clusters.links.requests import RequestLog, RequestSeen
from tribunal.clusters.metadata import MetadataObserver, MetadataView
from tribunal.clusters.namespaces.network import InNamespaces
from tribunal.clusters.namespaces.spaces import obstacle, way_in
from tribunal.clusters.nodes import on_host
from tribunal.clusters.nodes.final_logs import log_bytes, log_entries
from tribunal.clusters.nodes.leftovers import end_processes, node_processes
from tribunal.clusters.nodes.log_damage import do_damage
from tribunal.clusters.nodes.mounts import MountedDisks
from tribunal.clusters.nodes.node_control import NodeControl
from tribunal.clusters.nodes.node_events import EventFile
from tribunal.clusters.nodes.node_process import NodeProcess, toml
from tribunal.clusters.obstacles import Obstacle
from tribunal.clusters.zookeeper import ensemble as zookeeper
from tribunal.clusters.zookeeper.ensemble import ZnodeObserver, ZooKeeperProcess
from tribunal.clusters.zookeeper.znode_view import ZnodeView

NODE_CAPABILITIES: Final = frozenset({"start", "stop", "kill", "pause", "wipe", "power_fail", "damage"})
MOUNT_CAPABILITIES: Final = frozenset({"mount_disk"})
PORT_CAPABILITIES: Final = frozenset({"set_clock", "trouble_disk"})  # through the node's clock and disk ports
ADMIN_CAPABILITIES: Final = frozenset({"reassign", "set_topic_config", "elect_preferred"})
MEMBER_CAPABILITIES: Final = frozenset({"unregister", "remove_voter"})
CAPABILITIES: Final = (
    NODE_CAPABILITIES
    | LINK_CAPABILITIES
    | MOUNT_CAPABILITIES
    | PORT_CAPABILITIES
    | ADMIN_CAPABILITIES
    | MEMBER_CAPABILITIES
)
REGISTERED_TIMEOUT_MS: Final = 40_000
STOP_TIMEOUT_MS: Final = 8_000


class Loopback:
    """Nodes are processes on addresses of their own on the loopback interface."""

    kind = "processes"
    mounts_while_running = False
    place = "processes, link proxies on loopback"

    def __init__(self) -> None:
        self._links = Links({})

    async def open(self, spec: ClusterSpec, directory: Path) -> Links:
        """Find a port that is free everywhere and open the relays."""
        self._links = await open_on_free_port(spec, Links)
        return self._links

    def node(self, node: int, role: str, config: Path, log: Path) -> NodeLife:
        """Return a process that is not started yet."""
        return NodeProcess(node, role, config, log, self._links.endpoint(node))

    def zookeeper(self, node: int, config: Path, log: Path) -> NodeLife:
        """Return a server of ZooKeeper that is not started yet."""
        return ZooKeeperProcess(node, "zookeeper", config, log, self._links.endpoint(node))

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


class ProcessCluster(LinkFaults):
    """A cluster whose nodes are processes that see the same files as the harness; see `tribunal.clusters.api.Cluster`."""

    capabilities = CAPABILITIES

    def __init__(
        self,
        spec: ClusterSpec,
        directory: Path,
        clock: RunClock,
        cluster_id: str,
        environment: HostEnvironment | None = None,
    ) -> None:
        self.environment: HostEnvironment = Loopback() if environment is None else environment
        self.kind = self.environment.kind
        self.place = self.environment.place
        self.spec = spec
        self.directory = directory
        self.clock = clock
        self.cluster_id = cluster_id
        self.state = ClusterState()
        self.links = Links({})
        self.nodes: dict[int, NodeLife] = {}
        self._view = (
            ZnodeView(self.state, clock.now_ns)
            if spec.is_zookeeper_mode
            else MetadataView(self.state, clock.wall_start_ms)
        )
        self._observer: MetadataObserver | ZnodeObserver | None = None
        self._event_files: dict[int, EventFile] = {}
        self._own_events: list[NodeEvent] = []
        self._requests = RequestLog(clock.now_ns)
        self._failures: list[str] = []
        self._excused: dict[int, str] = {}
        self._controls: dict[int, NodeControl] = {}
        self._mounts = MountedDisks(self.environment.mounting, lambda node: self.data_dir(node).resolve().parent)
        self._administration = Administration(lambda: [self.links.endpoint(broker) for broker in spec.broker_ids])
        self._membership = Membership(self._administration)
        self.clients = ConfluentClients([], self._leader)

    def now_ns(self) -> int:
        """Return the run's clock."""
        return self.clock.now_ns()

    # --- begin and end ---------------------------------------------------------------------

    async def open(self) -> None:
        """Bring all of it up: relays, files, processes; return when every broker is unfenced."""
        self.links = await self.environment.open(self.spec, self.directory)
        self.links.on_message = self._requests.note
        self.clients = ConfluentClients(
            [self.links.advertised(broker) for broker in self.spec.broker_ids], self._leader
        )
        if self.spec.is_zookeeper_mode:
            self.links.zookeeper_nodes = frozenset(self.spec.controller_ids)
        for node in self.spec.node_ids:
            self._prepare(node)
        await self._format_all()
        self._observer = self._new_observer()
        if self.spec.is_zookeeper_mode:
            await self._bring_up(self.spec.controller_ids)
            await self._bring_up(self.spec.broker_ids)
            self._observer.start()
        else:
            self._observer.start()  # before there is anything to miss
            await self._bring_up(self.spec.node_ids)
        await until(
            lambda: self.state.whole(self.spec),
            timeout_ms=REGISTERED_TIMEOUT_MS,
            what="all brokers registered and unfenced",
            cluster=self,
        )

    async def _bring_up(self, nodes: Sequence[int]) -> None:
        await asyncio.gather(*(self.nodes[node].spawn() for node in nodes))
        await asyncio.gather(*(self.nodes[node].serving() for node in nodes))

    def _new_observer(self) -> MetadataObserver | ZnodeObserver:
        endpoints = {node: self.links.endpoint(node) for node in self.spec.controller_ids}
        if isinstance(self._view, ZnodeView):
            return ZnodeObserver(self._view, ",".join(f"{host}:{port}" for host, port in endpoints.values()))
        return MetadataObserver(self._view, endpoints, self.cluster_id)

    def is_zookeeper(self, node: int) -> bool:
        """Tell whether a node is a server of the ensemble."""
        return self.spec.is_zookeeper_mode and node in self.spec.controller_ids

    def _prepare_zookeeper(self, node: int) -> None:
        folder = self.directory / "nodes" / str(node)
        endpoints = {server: self.environment.listener(server) for server in self.spec.controller_ids}
        config = zookeeper.configure(folder, node, endpoints)
        life = self.environment.zookeeper(node, config, self.directory / "logs" / f"{node}.log")
        life.on_exit = lambda exit_reason: self._on_exit(node, exit_reason)
        self.nodes[node] = life

    def _prepare(self, node: int) -> None:
        if self.is_zookeeper(node):
            self._prepare_zookeeper(node)
            return
        folder = self.directory / "nodes" / str(node)
        folder.mkdir(parents=True, exist_ok=True)
        self._controls[node] = NodeControl(folder / "control.page")
        config = folder / "node.toml"
        config.write_text(toml(self.settings(node)))
        process = self.environment.node(node, self.role(node), config, self.directory / "logs" / f"{node}.log")
        process.on_exit = lambda exit_reason: self._on_exit(node, exit_reason)
        self.nodes[node] = process
        self._event_files[node] = EventFile(node, folder / "events.jsonl", self.clock)

    def role(self, node: int) -> str:
        """Return broker or controller."""
        return "controller" if node in self.spec.controller_ids else "broker"

    def data_dir(self, node: int) -> Path:
        """Return the node's log directory."""
        return self.directory / "nodes" / str(node) / "data"

    def undo_dir(self, node: int) -> Path:
        """Return the folder of what a power failure would undo."""
        return self.directory / "nodes" / str(node) / "undo"

    def settings(self, node: int) -> dict[str, Any]:
        """Return the node's whole configuration, by Kafka's names."""
        host, port = self.environment.listener(node)
        link, link_port = self.links.advertised(node)
        return {
            **self._told_by(node),
            "node.id": node,
            "cluster.id": self.cluster_id,
            "listeners": f"{host}:{port}",
            "advertised.listeners": f"{link}:{link_port}",
            "log.dirs": str(self.data_dir(node).resolve()),
            "tribunal.bind.host": self.environment.bind_host(node),
            "tribunal.events.file": str((self.directory / "nodes" / str(node) / "events.jsonl").resolve()),
            "tribunal.undo.journal": str(self.undo_dir(node).resolve()),
            "tribunal.control.page": str((self.directory / "nodes" / str(node) / "control.page").resolve()),
            "tribunal.mutants": list(self.spec.mutants),
            **self.spec.node_settings(),
        }

    def _told_by(self, node: int) -> dict[str, Any]:
        """Return where a node hears what the cluster is."""
        servers = [(server, *self.links.advertised(server)) for server in self.spec.controller_ids]
        if self.spec.is_zookeeper_mode:
            return {"zookeeper.connect": ",".join(f"{host}:{port}" for _, host, port in servers)}
        return {
            "process.roles": self.role(node),
            "controller.quorum.voters": ",".join(f"{server}@{host}:{port}" for server, host, port in servers),
        }

    async def _format_all(self) -> None:
        for node in self.spec.node_ids:
            self._format(node)

    def _format(self, node: int) -> None:
        """Prepare the node's log directory as `python -m replog format` does."""
        if self.is_zookeeper(node):
            return
        path = self.nodes[node].config
        disk = RealDisk()
        try:
            config = load(path.read_bytes(), str(path))
            format_directories(disk, config, RealEntropy().uuid, ignore_formatted=False)
        except (ConfigError, ForeignDirectory) as problem:
            raise ClusterError(f"node {node}: {problem}") from None
        finally:
            disk.close()

    def _on_exit(self, node: int, exit_reason: str) -> None:
        if node not in self._excused:
            self._failures.append(exit_reason)
        self._tell(node, "exit", reason=exit_reason)

    def _tell(self, node: int, name: str, **fields: Any) -> None:
        at_ns = self.clock.now_ns()
        self._own_events.append(NodeEvent(node=node, name=name, node_ns=None, at_ns=at_ns, fields=fields))

    async def shut_down(self) -> None:
        """End every node at once: what they wrote is in the page cache, so the files are whole."""
        if self._observer is not None:
            await self._observer.stop()
        await asyncio.gather(*(process.kill() for process in self.nodes.values()))
        await self._mounts.close()

    async def close(self) -> None:
        """Leave nothing behind but files."""
        try:
            await self.shut_down()
        finally:
            await self.environment.close()
            for control in self._controls.values():
                control.close()
            self._controls.clear()

    # --- hurting ---------------------------------------------------------------------------

    def _node(self, node: int) -> NodeLife:
        try:
            return self.nodes[node]
        except KeyError:
            raise ClusterError(f"there is no node {node}; nodes are {sorted(self.nodes)}") from None

    async def start(self, node: int) -> None:
        """Start a node that is down; return when it serves."""
        process = self._node(node)
        await process.spawn()
        await process.serving()

    async def stop(self, node: int) -> None:
        """Ask a node to end in good order."""
        if not await self._node(node).terminate(STOP_TIMEOUT_MS):
            raise ClusterError(f"node {node} does not end within {STOP_TIMEOUT_MS} ms of SIGTERM")

    async def kill(self, node: int) -> Proof:
        """Kill -9."""
        proof = await self._node(node).kill()
        self._tell(node, "killed", pid=proof.facts["pid"])
        return proof

    async def pause(self, node: int) -> Proof:
        """SIGSTOP."""
        return await self._node(node).pause()

    async def resume(self, node: int) -> Proof:
        """SIGCONT."""
        return await self._node(node).resume()

    async def reconfigure(self, node: int, settings: Mapping[str, Any]) -> None:
        """Give a node that is down other settings; they hold for its later lives."""
        self._node(node).config.write_text(toml({**self.settings(node), **settings}))

    async def wipe(self, node: int) -> Proof:
        """Remove a dead node's log directory and format it again: a new disk."""
        process = self._node(node)
        if self.is_zookeeper(node):
            raise Unsupported("the disk of a ZooKeeper server is not wiped: what a majority loses is no loss of ours")
        if process.alive:
            raise ClusterError(f"node {node} runs: kill it before its disk is wiped")
        data = self.data_dir(node)
        before, old_directory_id = log_bytes(data), directory_id(data)
        shutil.rmtree(data, ignore_errors=True)
        shutil.rmtree(self.undo_dir(node), ignore_errors=True)
        self._format(node)
        left, new_directory_id = log_bytes(data), directory_id(data)
        return Proof(
            holds=bool(before) and not any(left.values()) and old_directory_id != new_directory_id,
            facts={
                "log_bytes_before": before,
                "log_end_offsets_after": left or dict.fromkeys(before, 0),
                "directory_id_before": old_directory_id,
                "directory_id_after": new_directory_id,
            },
        )

    async def power_fail(self, node: int) -> Proof:
        """Kill -9, then take back from the disk what was not synced."""
        gone = await self.kill(node)
        lost = await asyncio.to_thread(on_host.power_fail, self.data_dir(node).parent, None)
        return Proof(holds=gone.holds and lost.holds, facts={**gone.facts, **lost.facts})

    async def damage(self, node: int, damage: Damage) -> Proof:
        """Damage the log files of a dead node."""
        if self._node(node).alive:
            raise ClusterError(f"node {node} runs: kill it before its files are damaged")
        return await asyncio.to_thread(do_damage, self.data_dir(node), damage)

    async def set_clock(self, node: int, skew: ClockSkew) -> Proof:
        """Move a running node's clock."""
        self._node(node)
        return await self._controls[node].set_clock(skew)

    async def trouble_disk(self, node: int, trouble: DiskTrouble) -> Proof:
        """Make a running node's disk misbehave."""
        self._node(node)
        return await self._controls[node].trouble_disk(trouble)

    async def mount_disk(self, node: int, writes: Literal["full", "read-only"]) -> Proof:
        """Let the kernel refuse a node's writes."""
        while_running = self.environment.mounts_while_running
        if writes == "read-only" and while_running:
            return await self._mounts.freeze(node)
        await self.kill(node)
        if writes == "read-only":
            proof = await self._mounts.freeze(node)
            await self.nodes[node].spawn()  # it will not get far
            return proof
        await self._mounts.move(node)
        await self.start(node)
        return await self._mounts.fill(node)

    async def mend_mount(self, node: int) -> Proof:
        """Give a dead node its old disk back."""
        return await self._mounts.mend(node)

    def excuse(self, node: int, why: str | None) -> None:
        """Expect (or no longer expect) the node to end by itself."""
        if why is None:
            self._excused.pop(node, None)
        else:
            self._excused[node] = why

    async def reassign(self, partition: TopicPartition, replicas: Sequence[int]) -> None:
        """Ask for these replicas."""
        await self._administration.reassign(partition, replicas)

    async def set_topic_config(self, topic: str, name: str, value: str | None) -> None:
        """Set one of a topic's settings."""
        await self._administration.set_topic_config(topic, name, value)

    async def elect_preferred(self, partitions: Sequence[TopicPartition]) -> None:
        """Give each partition's lead to its first replica."""
        await self._administration.elect_preferred(partitions)

    async def unregister(self, node: int) -> None:
        """Let the controllers forget a broker."""
        await self._membership.unregister(node)

    async def voters(self) -> list[int]:
        """Return who votes."""
        return await self._membership.voters()

    async def remove_voter(self, node: int) -> None:
        """Take a controller's vote."""
        await self._membership.remove_voter(node)

    async def add_voter(self, node: int) -> None:
        """Give an observing controller a vote."""
        await self._membership.add_voter(node, self.links.advertised(node))

    # --- seeing ----------------------------------------------------------------------------

    def alive(self, node: int) -> bool:
        """Tell whether the node's process exists."""
        return self._node(node).alive

    def _leader(self, partition: TopicPartition) -> Leader | None:
        state = self.state.partitions.get(partition)
        if state is None or state.leader < 0:
            return None
        return Leader(state.leader, self.links.advertised(state.leader), state.leader_epoch)

    def failures(self) -> list[str]:
        """Return what went wrong with nodes that nobody hurt."""
        overtaken = self._observer.overtaken if isinstance(self._observer, MetadataObserver) else ""
        return [*self._failures, overtaken] if overtaken else list(self._failures)

    def drain_events(self) -> list[NodeEvent]:
        """Return what nodes told, and what was seen of their lives, since the last call."""
        own, self._own_events = self._own_events, []
        told = [event for file in self._event_files.values() for event in file.drain()]
        return sorted(own + told, key=lambda event: event.at_ns)

    def drain_metadata(self) -> list[MetadataEntry]:
        """Return committed metadata records since the last call."""
        return self._view.drain()

    def drain_requests(self) -> list[RequestSeen]:
        """Return the messages between nodes that the relays saw since the last call."""
        return self._requests.drain()

    def final_logs(self) -> Iterator[LogEntry]:
        """Read every replica's log."""
        for node in self.spec.broker_ids:
            yield from log_entries(node, self.data_dir(node))


def directory_id(data: Path) -> str | None:
    """Return the id that formatting gave a log directory."""
    try:
        lines = (data / "meta.properties").read_text().splitlines()
    except OSError:
        return None
    return next((line.partition("=")[2] for line in lines if line.startswith("directory.id=")), None)


def host_environment_for(spec: ClusterSpec) -> HostEnvironment:
    """Return where nodes are to live: in namespaces where the system lets us make them, unless the spec says otherwise."""
    if spec.isolation == "proxies" or (spec.isolation == "auto" and isinstance(way_in(), str)):
        return Loopback()
    return InNamespaces()


AnyCluster = TypeVar("AnyCluster", bound=ProcessCluster)


async def opened(cluster: AnyCluster) -> AnyCluster:
    """Start a cluster and return it; whatever goes wrong, nothing of it stays running."""
    try:
        await cluster.open()
    except BaseException:
        await asyncio.shield(cluster.close())
        raise
    return cluster


async def launch(spec: ClusterSpec, directory: Path, clock: RunClock, cluster_id: str) -> ProcessCluster:
    """Start a cluster in this folder; whatever goes wrong, nothing of it stays running."""
    return await opened(ProcessCluster(spec, directory, clock, cluster_id, host_environment_for(spec)))


def lacking() -> dict[str, str]:
    """Return which of the kind's capabilities this machine does not give, and why."""
    found = way_in()
    return {"mount_disk": found} if isinstance(found, str) else {}


def places() -> str:
    """Return where nodes live on this machine unless a run says otherwise."""
    return host_environment_for(ClusterSpec()).place


def obstacles() -> list[Obstacle]:
    """Return why local processes cannot be run here."""
    taken = taken_address([1, 101], 0)
    if taken is None:
        comfort = obstacle()
        return [] if comfort is None else [comfort]
    remedy = "use --cluster containers, or give the loopback interface 127.0.1.0/24 and 127.0.2.0/24"
    return [Obstacle(reason=f"cannot bind {taken}", remedy=remedy)]


def leftovers(run_dir: Path) -> list[str]:
    """Return what a run of this folder has left: processes; its relays' sockets ended with the harness."""
    return [f"process {pid}" for pid in node_processes(run_dir)]


def sweep(run_dir: Path) -> list[str]:
    """End what a run of this folder has left; return what was done."""
    return end_processes(node_processes(run_dir))
