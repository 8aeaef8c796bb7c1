"""What is installed on a cluster's nodes: which program each one runs, its configuration, its formatted log directory."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import msgspec

from replog.config import ConfigError, Endpoint, load
from replog.host.world import RealClock, RealDisk, RealEntropy
from replog.node.directories.meta_properties import ForeignDirectory
from replog.node.first_voters import FirstVoter, WhoVotes, format_with_voters
from replog.quorum.voters import ReplicaKey
from replog.types import NodeId
from tribunal.clusters.api import ClusterError
from tribunal.clusters.host_environment import HostEnvironment
from tribunal.clusters.kafka.releases import KAFKA_ALONE
from tribunal.clusters.links.relays import Links
from tribunal.clusters.nodes.first_votes import FirstVotes
from tribunal.clusters.nodes.node_process import toml
from tribunal.clusters.nodes.node_program import NodeProgram, ReplogProgram
from tribunal.clusters.run_context import RunContext
from tribunal.clusters.spec import ClusterSpec, Settings, SettingValue
from tribunal.clusters.zookeeper import ensemble as zookeeper
from tribunal.clusters.zookeeper.ensemble import ZooKeeperProgram

REGISTERED_TIMEOUT_MS: Final = 40_000
STOP_TIMEOUT_MS: Final = 8_000
KEYSTORE: Final = "node.pem"


class BootOrder(msgspec.Struct, frozen=True, kw_only=True):
    """In which order a cluster comes up: the nodes of one tuple together, the next when all of them serve.

    in_sync_timeout_ms:  from then on until every broker is registered and unfenced.
    """

    before_observer: tuple[tuple[int, ...], ...] = ()
    after_observer: tuple[tuple[int, ...], ...] = ()
    in_sync_timeout_ms: int = REGISTERED_TIMEOUT_MS


class NodeSoftware(Protocol):
    """What runs on the nodes of one cluster."""

    @property
    def boot_order(self) -> BootOrder:
        """In which order its nodes come up."""

    @property
    def stop_timeout_ms(self) -> int:
        """How long an orderly end may take."""

    def program(self, node: int) -> NodeProgram:
        """Return what the node runs."""

    def config(self, node: int) -> Path:
        """Return the node's configuration file on this machine."""

    def configure(self, node: int, changes: Settings) -> None:
        """Write the node's configuration, with these settings different."""

    async def prepare_format(self) -> None:
        """Do what formatting needs once."""

    def format(self, node: int) -> None:
        """Format the node's log directory, on this machine's disk."""


class ReplogSoftware:
    """replog, with a real ZooKeeper beside it in ZooKeeper mode.

    folder_of:  a node's folder as the node sees it.
    votes:      in a quorum that is formatted with its first voters, which directories have a vote; None: the configuration
                says who votes, and a directory gets its vote when it has fetched.
    """

    stop_timeout_ms = STOP_TIMEOUT_MS

    def __init__(
        self,
        run: RunContext,
        environment: HostEnvironment,
        links: Links,
        folder_of: Callable[[int], str],
        votes: FirstVotes | None = None,
    ) -> None:
        self._run = run
        self._environment = environment
        self._links = links
        self._folder_of = folder_of
        self._votes = votes

    @property
    def boot_order(self) -> BootOrder:
        """Let the observer begin before there is anything to miss; a ZooKeeper has to serve before it is observed."""
        spec = self._run.spec
        if spec.is_zookeeper_mode:
            return BootOrder(before_observer=(spec.controller_ids, spec.broker_ids))
        return BootOrder(after_observer=(spec.node_ids,))

    def program(self, node: int) -> NodeProgram:
        """Return what the node runs."""
        spec, security = self._run.spec, self._run.security
        if is_zookeeper(spec, node):
            return ZooKeeperProgram()
        return ReplogProgram(role(spec, node), None if security is None else security.context)

    def config(self, node: int) -> Path:
        """Return node.toml, or a ZooKeeper server's zoo.cfg."""
        return self._run.folder(node) / ("zoo.cfg" if is_zookeeper(self._run.spec, node) else "node.toml")

    def configure(self, node: int, changes: Settings) -> None:
        """Write the node's configuration, with these settings different."""
        spec = self._run.spec
        self._run.folder(node).mkdir(parents=True, exist_ok=True)
        if is_zookeeper(spec, node):
            configure_server(self._run, self._environment, node)
        else:
            self._give_certificate(node)
            self.config(node).write_text(toml({**self._settings(node), **changes}))

    def _give_certificate(self, node: int) -> None:
        """Issue a node's first certificate: for where the harness and the relays reach it."""
        security = self._run.security
        path = self._run.folder(node) / KEYSTORE
        if security is not None and not path.exists():
            security.issue(node, [self._links.endpoint(node)[0], self._environment.listener(node)[0]], path)

    def _settings(self, node: int) -> dict[str, SettingValue]:
        """Return the node's full configuration, by Kafka's names."""
        host, port = self._environment.listener(node)
        link, link_port = self._links.advertised(node)
        folder, security = self._folder_of(node), self._run.security
        listener = "" if security is None else f"{security.listener(role(self._run.spec, node))}://"
        return {
            **({} if security is None else security.settings(f"{folder}/{KEYSTORE}")),
            **self._source_of_metadata(node),
            "node.id": node,
            "cluster.id": self._run.cluster_id,
            "listeners": f"{listener}{host}:{port}",
            "advertised.listeners": f"{listener}{link}:{link_port}",
            "log.dirs": f"{folder}/data",
            "tribunal.bind.host": self._environment.bind_host(node),
            "tribunal.events.file": f"{folder}/events.jsonl",
            "tribunal.undo.journal": f"{folder}/undo",
            "tribunal.control.page": f"{folder}/control.page",
            "tribunal.mutants": list(self._run.spec.mutants),
            **{name: value for name, value in self._run.spec.node_settings().items() if name not in KAFKA_ALONE},
        }

    def _source_of_metadata(self, node: int) -> dict[str, SettingValue]:
        """Return where a node learns what the cluster is."""
        spec = self._run.spec
        servers = [(server, *self._links.advertised(server)) for server in spec.controller_ids]
        if spec.is_zookeeper_mode:
            return {"zookeeper.connect": ",".join(f"{host}:{port}" for _, host, port in servers)}
        if self._votes is not None:
            addresses = ",".join(f"{host}:{port}" for _, host, port in servers)
            return {"process.roles": role(spec, node), "controller.quorum.bootstrap.servers": addresses}
        return {
            "process.roles": role(spec, node),
            "controller.quorum.voters": ",".join(f"{server}@{host}:{port}" for server, host, port in servers),
        }

    async def prepare_format(self) -> None:
        """Need nothing."""

    def format(self, node: int) -> None:
        """Prepare the node's log directory as `python -m replog format` does."""
        if is_zookeeper(self._run.spec, node):
            return
        path = self.config(node)
        disk = RealDisk()
        try:
            config = load(path.read_bytes(), str(path))
            format_with_voters(
                disk,
                config,
                RealEntropy().uuid,
                self._who_votes(node),
                now_ms=RealClock().wall_ms(),
                ignore_formatted=False,
            )
        except (ConfigError, ForeignDirectory) as problem:
            raise ClusterError(f"node {node}: {problem}") from None
        finally:
            disk.close()

    def _who_votes(self, node: int) -> WhoVotes:
        """Return what the node's directory is formatted with: the first voters, where it is the first directory of one of them."""
        if self._votes is None or self._votes.taken(node) is None:
            return WhoVotes()
        return WhoVotes(
            tuple(
                FirstVoter(ReplicaKey(NodeId(voter), vote), Endpoint(*self._links.advertised(voter)))
                for voter, vote in sorted(self._votes.ids.items())
            )
        )


def configure_server(run: RunContext, environment: HostEnvironment, node: int) -> None:
    """Write the configuration of a server of the ensemble."""
    endpoints = {server: environment.listener(server) for server in run.spec.controller_ids}
    session_ms = run.spec.timeout_ms("zookeeper.session.timeout.ms")
    zookeeper.configure(run.folder(node), node, endpoints, longest_session_ms=session_ms)


def role(spec: ClusterSpec, node: int) -> str:
    """Return broker or controller."""
    return "controller" if node in spec.controller_ids else "broker"


def is_zookeeper(spec: ClusterSpec, node: int) -> bool:
    """Return whether a node is a server of the ensemble."""
    return spec.is_zookeeper_mode and node in spec.controller_ids


def replog_nodes(spec: ClusterSpec) -> tuple[int, ...]:
    """Return the nodes that run replog: all but the servers of an ensemble."""
    return tuple(node for node in spec.node_ids if not is_zookeeper(spec, node))
