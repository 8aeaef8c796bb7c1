"""A real Apache Kafka: brokers and controllers of version 4.3.1 as local processes, from plain jars, with ELR on.

The same addresses, relays, clients, faults and recordings as of replog's own processes; what differs is what a foreign system
does not tell. Its metadata are observed by fetching the metadata log from its controllers as any broker does, so that ISR, ELR,
epochs and registrations are known with every change and in their order; its watermarks by ListOffsets and by what consumers
fetch; how a broker's former life ended by the file that it reads itself (`disk.py`). Not known, and left out of
the recording: watermarks and truncations as a node itself sees them, and the rare states that replog counts as probes.

Kafka cannot bind its outgoing side to an address: a relay would not know who calls. In a network namespace of its own the
kernel chooses the address for it, by a route's source hint; without namespaces faults on links are refused at plan time.
"""

import asyncio
from pathlib import Path
from typing import Any, Final

from replog.host.world import RealEntropy
from tribunal.clusters.api import ClusterError, ClusterSpec, MetadataEntry, NodeEvent, Proof, until
from tribunal.clusters.clients.confluent import ConfluentClients
from tribunal.clusters.clock import RunClock
from tribunal.clusters.host_environment import NodeLife
from tribunal.clusters.kafka.disk import lose_unflushed, previous_broker_epoch
from tribunal.clusters.kafka.jars import VERSION, kafka_jars
from tribunal.clusters.kafka.jars import obstacles as obstacles_to_kafka
from tribunal.clusters.kafka.node import FRUGAL, KafkaProcess, copy_formatted, formatted_by_kafka, properties
from tribunal.clusters.kinds.processes import ADMIN_CAPABILITIES, NODE_CAPABILITIES, Loopback, ProcessCluster, opened
from tribunal.clusters.kinds.processes import leftovers as leftovers
from tribunal.clusters.kinds.processes import sweep as sweep
from tribunal.clusters.links.link_faults import LINK_CAPABILITIES
from tribunal.clusters.links.relays import LINK_NET, Links, node_host
from tribunal.clusters.maven_jars import NoJars
from tribunal.clusters.metadata import MetadataObserver
from tribunal.clusters.namespaces.network import InNamespaces
from tribunal.clusters.namespaces.spaces import obstacle, way_in
from tribunal.clusters.nodes.log_damage import log_ends
from tribunal.clusters.obstacles import Obstacle

CAPABILITIES: Final = NODE_CAPABILITIES | LINK_CAPABILITIES | ADMIN_CAPABILITIES | {"unregister"}
UP_TIMEOUT_MS: Final = 120_000
STOP_TIMEOUT_MS: Final = 40_000
LEAST: Final = {"log.segment.bytes": 1 << 20}  # KIP-1030
ELR: Final = "eligible.leader.replicas.enable"
NO_PAIRS: Final = "Apache Kafka cannot bind its outgoing side, so that a relay would not know who calls; {}"


class KafkaInNamespaces(InNamespaces):
    """Every node in a namespace whose kernel gives its calls the address that relays know it by."""

    kind = "apache-kafka"
    place = f"Apache Kafka {VERSION}, processes in network namespaces"

    def __init__(self, jars: Path) -> None:
        super().__init__()
        self._jars = jars

    async def open(self, spec: ClusterSpec, directory: Path) -> Links:
        """Make the namespaces, and the routes that choose the nodes' source addresses."""
        links = await super().open(spec, directory)
        for node in spec.node_ids:
            route = [
                "ip",
                "route",
                "add",
                "local",
                f"{LINK_NET}0/24",
                "dev",
                "lo",
                "src",
                node_host(node),
                "table",
                "local",
            ]
            self.spaces.run(route, name=str(node))
        return links

    def node(self, node: int, role: str, config: Path, log: Path) -> NodeLife:
        """Return a process that is not started yet."""
        endpoint = self._links.endpoint(node)
        return KafkaProcess(node, role, config, log, endpoint, self._jars, into=lambda: self.spaces.command(str(node)))


class KafkaOnLoopback(Loopback):
    """Every node on an address of its own on the loopback interface; who calls whom cannot be told."""

    kind = "apache-kafka"
    place = f"Apache Kafka {VERSION}, processes on loopback (no faults on links)"

    def __init__(self, jars: Path) -> None:
        super().__init__()
        self._jars = jars

    def node(self, node: int, role: str, config: Path, log: Path) -> NodeLife:
        """Return a process that is not started yet."""
        return KafkaProcess(node, role, config, log, self._links.endpoint(node), self._jars)


class KafkaCluster(ProcessCluster):
    """A cluster of Apache Kafka; see `tribunal.clusters.api.Cluster`."""

    capabilities = CAPABILITIES

    def __init__(
        self, spec: ClusterSpec, directory: Path, clock: RunClock, cluster_id: str, jars: Path, *, in_namespaces: bool
    ) -> None:
        super().__init__(
            spec, directory, clock, cluster_id, KafkaInNamespaces(jars) if in_namespaces else KafkaOnLoopback(jars)
        )
        self._jars = jars
        self._entropy = RealEntropy()
        self._lives: dict[int, list[tuple[int, int]]] = {}  # node -> when each began, and how the one before ended
        self._entries: list[MetadataEntry] = []

    # --- begin -----------------------------------------------------------------------------

    async def open(self) -> None:
        """Bring all of it up; return when every broker is unfenced."""
        self.links = await self.environment.open(self.spec, self.directory)
        self.links.on_message = self._requests.note
        advertised = [self.links.advertised(broker) for broker in self.spec.broker_ids]
        self.clients = ConfluentClients(advertised, self._leader)
        for node in self.spec.node_ids:
            self._prepare(node)
        await self._format_all()
        controllers = {node: self.links.endpoint(node) for node in self.spec.controller_ids}
        self._observer = MetadataObserver(self._view, controllers, self.cluster_id)
        self._observer.start()
        for node in self.spec.node_ids:
            await self.nodes[node].spawn()
        await asyncio.gather(*(self.nodes[node].serving() for node in self.spec.node_ids))
        what = "all brokers registered and unfenced"
        await until(lambda: self.state.whole(self.spec), timeout_ms=UP_TIMEOUT_MS, what=what, cluster=self)

    def _prepare(self, node: int) -> None:
        folder = self.directory / "nodes" / str(node)
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "server.properties"
        config.write_text(properties(self.settings(node)))
        process = self.environment.node(node, self.role(node), config, self.directory / "logs" / f"{node}.log")
        assert isinstance(process, KafkaProcess)
        process.on_exit = lambda exit_reason: self._on_exit(node, exit_reason)
        process.before_start = lambda: self._on_start(node)
        self.nodes[node] = process

    def settings(self, node: int) -> dict[str, Any]:
        """Return the node's whole configuration, by Kafka's names."""
        host, port = self.environment.listener(node)
        link, link_port = self.links.advertised(node)
        voters = ((voter, *self.links.advertised(voter)) for voter in self.spec.controller_ids)
        listener = "PLAINTEXT" if self.role(node) == "broker" else "CONTROLLER"
        own: dict[str, Any] = {
            "process.roles": self.role(node),
            "node.id": node,
            "listeners": f"{listener}://{host}:{port}",
            "advertised.listeners": f"{listener}://{link}:{link_port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.quorum.voters": ",".join(f"{voter}@{host}:{port}" for voter, host, port in voters),
            "log.dirs": self.data_dir(node).resolve(),
        }
        if self.role(node) == "broker":
            own["inter.broker.listener.name"] = "PLAINTEXT"
        return {**FRUGAL, **own, **self.spec.node_settings()}

    @property
    def _template(self) -> Path:
        return self.data_dir(self.spec.node_ids[0]).resolve().parent / "formatted"

    async def _format_all(self) -> None:
        """Let Kafka format one directory; every node's is a copy."""
        first = self.spec.node_ids[0]
        config = self._template.with_name("format.properties")
        config.write_text(properties(self.settings(first) | {"log.dirs": self._template}))
        elr = bool(self.spec.node_settings().get(ELR, True))
        await asyncio.to_thread(formatted_by_kafka, self._jars, config, self.cluster_id, elr=elr)
        await super()._format_all()

    def _format(self, node: int) -> None:
        copy_formatted(self._template, self.data_dir(node), node, self._entropy.uuid())

    # --- hurting ---------------------------------------------------------------------------

    async def stop(self, node: int) -> None:
        """Ask a node to end in good order."""
        if not await self._node(node).terminate(STOP_TIMEOUT_MS):
            raise ClusterError(f"node {node} does not end within {STOP_TIMEOUT_MS} ms of SIGTERM")
        self._tell(node, "stop")

    async def power_fail(self, node: int) -> Proof:
        """Kill -9, then take from the disk what Kafka does not claim to have flushed."""
        gone = await self.kill(node)
        data = self.data_dir(node)
        before = log_ends(data)
        lost = await asyncio.to_thread(lose_unflushed, data)
        after = log_ends(data)
        return Proof(
            holds=gone.holds and all(after[name] <= end for name, end in before.items()),
            facts={
                **gone.facts,
                "files_cut": lost.file_count,
                "bytes_lost": lost.byte_count,
                "log_end_offsets_before": before,
                "log_end_offsets_after": after,
            },
        )

    # --- seeing ----------------------------------------------------------------------------

    def _on_start(self, node: int) -> None:
        self._lives.setdefault(node, []).append((self.clock.now_ns(), previous_broker_epoch(self.data_dir(node))))
        self._tell(node, "start")

    def drain_events(self) -> list[NodeEvent]:
        """Return what was seen of nodes' lives since the last call."""
        self._take_in()
        return super().drain_events()

    def drain_metadata(self) -> list[MetadataEntry]:
        """Return committed metadata records since the last call."""
        self._take_in()
        taken, self._entries = self._entries, []
        return taken

    def _take_in(self) -> None:
        for entry in self._view.drain():
            self._entries.append(entry)
            if entry.record_type == "RegisterBrokerRecord":
                self._on_registered(entry)

    def _on_registered(self, entry: MetadataEntry) -> None:
        """Say what the broker said of its former life: the metadata log does not keep it (KIP-966)."""
        node = entry.body["broker_id"]
        former = [previous for began_ns, previous in self._lives.get(node, []) if began_ns <= entry.at_ns]
        fields = {name: entry.body[name] for name in ("broker_epoch", "incarnation_id")}
        self._own_events.append(
            NodeEvent(
                node=node,
                name="registered",
                node_ns=None,
                at_ns=entry.at_ns,
                fields={
                    "broker_epoch": fields["broker_epoch"],
                    "incarnation": fields["incarnation_id"],
                    "previous_broker_epoch": former[-1] if former else None,
                },
            )
        )


async def launch(spec: ClusterSpec, directory: Path, clock: RunClock, cluster_id: str) -> KafkaCluster:
    """Start a cluster in this folder; whatever goes wrong, nothing of it stays running."""
    reason = refused(spec)
    if reason:
        raise ClusterError(reason)
    try:
        jars = await asyncio.to_thread(kafka_jars)
    except NoJars as problem:
        raise ClusterError(str(problem)) from None
    return await opened(KafkaCluster(spec, directory, clock, cluster_id, jars, in_namespaces=_in_namespaces(spec)))


def _in_namespaces(spec: ClusterSpec) -> bool:
    return spec.isolation != "proxies" and not isinstance(way_in(), str)


def refused(spec: ClusterSpec) -> str:
    """Return why Apache Kafka cannot be what is asked for; empty: it can."""
    if spec.mutants:
        return f"mutants are bugs of replog: {', '.join(spec.mutants)} cannot be switched on in Apache Kafka"
    return f"Apache Kafka {VERSION} has no ZooKeeper mode" if spec.is_zookeeper_mode else ""


def lacking() -> dict[str, str]:
    """Return which of the kind's capabilities this machine does not give, and why."""
    found = way_in()
    return dict.fromkeys(sorted(LINK_CAPABILITIES), NO_PAIRS.format(found)) if isinstance(found, str) else {}


def places() -> str:
    """Return where nodes live on this machine."""
    return KafkaInNamespaces.place if _in_namespaces(ClusterSpec()) else KafkaOnLoopback.place


def obstacles() -> list[Obstacle]:
    """Return why Apache Kafka cannot be run here."""
    comfort = obstacle()
    return [*obstacles_to_kafka(), *([] if comfort is None else [comfort])]
