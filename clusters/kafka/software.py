"""Apache Kafka as what is installed on a cluster's nodes: server.properties, directories formatted by Kafka's own tool.

In ZooKeeper mode there is nothing to format, and a real ZooKeeper stands beside the brokers.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec

from replog.host.world import RealEntropy
from tribunal.clusters.api import ClusterError, Proof
from tribunal.clusters.host_environment import HostEnvironment
from tribunal.clusters.kafka.jars import kafka_jars
from tribunal.clusters.kafka.java import java_for
from tribunal.clusters.kafka.node import (
    FRUGAL,
    ZOOKEEPER_CONNECT,
    KafkaProgram,
    copy_formatted,
    formatted_by_kafka,
    formatting_command,
    properties,
    voter,
)
from tribunal.clusters.kafka.releases import DYNAMIC_VOTERS, Release, release
from tribunal.clusters.links.relays import Links
from tribunal.clusters.maven_jars import NoJars
from tribunal.clusters.nodes.first_votes import FirstVotes
from tribunal.clusters.nodes.leftovers import command_line
from tribunal.clusters.nodes.node_program import NodeProgram
from tribunal.clusters.nodes.node_software import BootOrder, configure_server, is_zookeeper, role
from tribunal.clusters.run_context import RunContext
from tribunal.clusters.spec import ClusterSpec, Settings, SettingValue
from tribunal.clusters.zookeeper.ensemble import ZooKeeperProgram

UP_TIMEOUT_MS: Final = 120_000
STOP_TIMEOUT_MS: Final = 40_000
SHUTDOWN_RETRY_MS: Final = 500  # else 5 s after each refusal of a controlled shutdown
ELR: Final = "eligible.leader.replicas.enable"


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """What runs a release: its jars and a Java."""

    jars: Path
    java: str


def runtime_of(chosen: Release) -> Runtime:
    """Return what a release runs by, after fetching what is not here; `NoJars` when that is impossible."""
    return Runtime(jars=kafka_jars(chosen.name), java=java_for(chosen))


def first_votes(spec: ClusterSpec, new_id: Callable[[], UUID]) -> FirstVotes | None:
    """Return whose directories vote first where a spec asks for voters that can be changed; None: the configuration says who votes."""
    return FirstVotes(spec.controller_ids, new_id) if spec.settings.get(DYNAMIC_VOTERS) else None


class KafkaSoftware:
    """Brokers and controllers of Apache Kafka, from plain jars.

    nodes:     which nodes of the cluster run it.
    begins_as: with which release's metadata.version the cluster begins; None: that of the spec's.
    votes:     in a quorum of several systems whose voters can be changed, which directories have a vote; None: those of
               its own, where the spec asks for such a quorum.
    """

    stop_timeout_ms = STOP_TIMEOUT_MS

    def __init__(
        self,
        run: RunContext,
        environment: HostEnvironment,
        links: Links,
        runtime: Runtime,
        nodes: Sequence[int],
        begins_as: Release | None = None,
        votes: FirstVotes | None = None,
    ) -> None:
        self._run = run
        self._environment = environment
        self._links = links
        self._nodes = nodes
        self._begins_as = begins_as
        self._first = release(run.spec.version)  # with which directories are formatted
        self._runtimes = {self._first.name: runtime}
        self._programs: dict[int, KafkaProgram] = {}
        self._entropy = RealEntropy()
        self._votes = votes or first_votes(run.spec, self._entropy.uuid)

    @property
    def boot_order(self) -> BootOrder:
        """Let the observer begin before there is anything to miss; a ZooKeeper has to serve before it is observed."""
        spec = self._run.spec
        if spec.is_zookeeper_mode:
            nodes = (spec.controller_ids, spec.broker_ids)
            return BootOrder(before_observer=nodes, in_sync_timeout_ms=UP_TIMEOUT_MS)
        return BootOrder(after_observer=(spec.node_ids,), in_sync_timeout_ms=UP_TIMEOUT_MS)

    def program(self, node: int) -> NodeProgram:
        """Return what the node runs."""
        if is_zookeeper(self._run.spec, node):
            return ZooKeeperProgram()
        if node not in self._programs:
            runtime = self._runtimes[self._first.name]
            program = KafkaProgram(role(self._run.spec, node), self._first, runtime.jars, runtime.java)
            self._programs[node] = program
        return self._programs[node]

    async def fetch_release(self, version: str) -> None:
        """Have a release's jars and a Java for it here; `ClusterError` where that is impossible."""
        if version not in self._runtimes:
            try:
                self._runtimes[version] = await asyncio.to_thread(runtime_of, release(version))
            except NoJars as problem:
                raise ClusterError(str(problem)) from None

    def change_release(self, node: int, version: str) -> Proof:
        """Let a node that is down run another release, which was fetched, from its next start on."""
        program, runtime = self._programs[node], self._runtimes[version]
        former = program.release.name
        program.install(release(version), runtime.jars, runtime.java)
        self.configure(node, {})
        return Proof(holds=True, facts={"former": former, "next": version})

    def runs_release(self, pid: int | None, version: str) -> Proof:
        """Say whether a process runs that release's jars, as its command line has them."""
        jars = self._runtimes[version].jars
        holds = any(f"{jars}/" in word for word in command_line(pid))
        return Proof(holds=holds, facts={"pid": pid, "jars": jars.name})

    def config(self, node: int) -> Path:
        """Return server.properties, or a ZooKeeper server's zoo.cfg."""
        return self._run.folder(node) / ("zoo.cfg" if is_zookeeper(self._run.spec, node) else "server.properties")

    def configure(self, node: int, changes: Settings) -> None:
        """Write the node's configuration, with these settings different."""
        self._run.folder(node).mkdir(parents=True, exist_ok=True)
        if is_zookeeper(self._run.spec, node):
            configure_server(self._run, self._environment, node)
        else:
            self.config(node).write_text(properties({**self._settings(node), **changes}))

    def _release_of(self, node: int) -> Release:
        return self._programs[node].release if node in self._programs else self._first

    def _settings(self, node: int) -> dict[str, SettingValue]:
        """Return the node's full configuration, by Kafka's names."""
        spec, links = self._run.spec, self._links
        if spec.is_zookeeper_mode:
            return {**FRUGAL, **self._with_zookeeper(node), **spec.node_settings()}
        host, port = self._environment.listener(node)
        link, link_port = links.advertised(node)
        controllers = [(controller, *links.advertised(controller)) for controller in spec.controller_ids]
        listener = "PLAINTEXT" if role(spec, node) == "broker" else "CONTROLLER"
        own: dict[str, SettingValue] = {
            "process.roles": role(spec, node),
            "node.id": node,
            "listeners": f"{listener}://{host}:{port}",
            "advertised.listeners": f"{listener}://{link}:{link_port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self._run.data_dir(node).resolve()),
        }
        if self._votes is not None:
            own["controller.quorum.bootstrap.servers"] = ",".join(f"{host}:{port}" for _, host, port in controllers)
        else:
            own["controller.quorum.voters"] = ",".join(
                f"{controller}@{host}:{port}" for controller, host, port in controllers
            )
        if role(spec, node) == "broker":
            own["inter.broker.listener.name"] = "PLAINTEXT"
        elif not self._release_of(node).controllers_advertise:
            del own["advertised.listeners"]
        return {**FRUGAL, **own, **spec.node_settings()}

    def _with_zookeeper(self, node: int) -> dict[str, SettingValue]:
        """Return what a broker of ZooKeeper mode has of its own."""
        host, port = self._environment.listener(node)
        link, link_port = self._links.advertised(node)
        servers = [self._links.advertised(server) for server in self._run.spec.controller_ids]
        return {
            "broker.id": node,
            "listeners": f"PLAINTEXT://{host}:{port}",
            "advertised.listeners": f"PLAINTEXT://{link}:{link_port}",
            ZOOKEEPER_CONNECT: ",".join(f"{server}:{at}" for server, at in servers),
            "log.dirs": str(self._run.data_dir(node).resolve()),
            "controlled.shutdown.retry.backoff.ms": SHUTDOWN_RETRY_MS,
        }

    @property
    def _template(self) -> Path:
        return self._run.folder(self._nodes[0]).resolve() / "formatted"

    async def prepare_format(self) -> None:
        """Let Kafka format one directory; every node's is a copy."""
        if self._run.spec.is_zookeeper_mode:
            return
        config = self._template.with_name("format.properties")
        config.write_text(properties(self._settings(self._nodes[0]) | {"log.dirs": str(self._template)}))
        elr = bool(self._run.spec.node_settings().get(ELR, True))
        ids = {} if self._votes is None else self._votes.ids
        voters = [voter(node, self._links.advertised(node), vote) for node, vote in ids.items()]
        first = self._runtimes[self._first.name]
        command = formatting_command(
            first.java, first.jars, config, self._run.cluster_id,
            release=self._first, elr=elr, voters=voters, begins_as=self._begins_as,
        )  # fmt: skip
        await asyncio.to_thread(formatted_by_kafka, command)

    def format(self, node: int) -> None:
        """Copy the formatted directory; a broker of ZooKeeper mode takes an empty one.

        A controller's first directory has the vote that the quorum was formatted with, none that comes later does.
        """
        if self._run.spec.is_zookeeper_mode:
            self._run.data_dir(node).mkdir(parents=True, exist_ok=True)
            return
        vote = None if self._votes is None else self._votes.taken(node)
        votes = vote is not None or self._votes is None
        copy_formatted(self._template, self._run.data_dir(node), node, vote or self._entropy.uuid(), votes=votes)
