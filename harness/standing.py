"""A standing cluster of replog on this machine, for clients that are tried by hand: N combined nodes whose data outlive them.

Node I of N listens for clients on PORT + I - 1 of 127.0.0.1 and as a controller 10,000 ports above. Its configuration, its data and
its log lie in DIRECTORY/node-I; a cluster that was stopped goes on from there. The nodes end with this process, however it ends.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from replog.config import ConfigError, load
from replog.host.directory_locks import DirectoryInUse, DirectoryLocks
from replog.host.world import RealDisk, RealEntropy
from replog.node.directories.meta_properties import ForeignDirectory, directories_of, format_directories
from replog.wire.messages import metadata as md
from tribunal.clusters.api import ClusterError
from tribunal.clusters.clients.asking import FAILURES, Asking
from tribunal.clusters.endings import to_its_end
from tribunal.clusters.nodes.node_process import NodeProcess, toml
from tribunal.clusters.nodes.node_program import SERVING_TIMEOUT_MS, ReplogProgram
from tribunal.clusters.spec import SettingValue

HOST: Final = "127.0.0.1"
CONTROLLER_PORTS: Final = 10_000  # above the brokers'
PORT_MAX: Final = 65_535 - CONTROLLER_PORTS
CLUSTER_ID: Final = "cluster.id"  # the file that keeps it
STOP_MS: Final = 30_000
LEAVE_MS: Final = 3_000
ASK_MS: Final = 2_000
POLL_MS: Final = 100


class BadCluster(ValueError):
    """What was asked for cannot be."""


class StandingCluster:
    """N combined nodes; `settings` are replog's, for all of them; `on_exit` gets the reason of an end that nobody asked for.

    Raises BadCluster for ports that there are not; `start` does for settings that replog refuses, and ClusterError where a
    directory is another's or in use, or a node does not serve.
    """

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int,
        port: int,
        settings: Mapping[str, SettingValue],
        on_exit: Callable[[str], None],
    ) -> None:
        if not 1 <= port <= PORT_MAX - nodes + 1:
            raise BadCluster(f"port {port}: {nodes} nodes need one of 1 to {PORT_MAX - nodes + 1}")
        self._directory = directory.resolve()
        self._endpoints = {node: (HOST, port + node - 1) for node in range(1, nodes + 1)}
        self._settings = settings
        self._on_exit = on_exit
        self._all_ended = asyncio.Event()
        self._nodes = {
            node: NodeProcess(
                node,
                ReplogProgram("combined"),
                self._config(node),
                self._folder(node) / "log",
                endpoint,
                self._note,
                self._directory,
            )
            for node, endpoint in self._endpoints.items()
        }

    @property
    def bootstrap(self) -> str:
        """What clients are given as bootstrap servers."""
        return ",".join(f"{host}:{port}" for host, port in self._endpoints.values())

    async def start(self) -> None:
        """Start all nodes and wait until each knows all of them as brokers; ends them again where that does not come about."""
        try:
            await asyncio.to_thread(self._prepare)
            for node in self._nodes.values():
                await node.spawn()
            for node in self._nodes.values():
                await node.serving()
            await self._complete()
        except BaseException:
            await to_its_end(self.stop())
            raise

    async def stop(self) -> list[int]:
        """Stop all nodes in good order, at once; return those that had to be killed."""
        ended = await asyncio.gather(*(node.terminate(STOP_MS) for node in self._nodes.values()))
        late = [number for number, in_time in zip(self._nodes, ended, strict=True) if not in_time]
        for number in late:
            await self._nodes[number].kill()
        return late

    async def ended(self) -> None:
        """Wait until every node has ended by itself."""
        await self._all_ended.wait()

    def _note(self, reason: str) -> None:
        self._on_exit(reason)
        if not any(node.alive for node in self._nodes.values()):
            self._all_ended.set()

    # --- files -----------------------------------------------------------------------------

    def _folder(self, node: int) -> Path:
        return self._directory / f"node-{node}"

    def _config(self, node: int) -> Path:
        return self._folder(node) / "node.toml"

    def _prepare(self) -> None:
        """Write every node's configuration and format what is new."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            # A folder without a configuration is what a start has left whose settings were refused.
            known = sorted(self._directory.glob("node-*/node.toml"))
            if known and len(known) != len(self._nodes):
                raise BadCluster(
                    f"{self._directory}: a cluster of {len(known)} nodes lies there (--nodes {len(known)})"
                )
            kept = self._directory / CLUSTER_ID
            if not kept.exists():
                kept.write_text(f"{RealEntropy().uuid()}\n")
            cluster_id = kept.read_text().strip()
            for node in self._nodes:
                self._prepare_node(node, cluster_id)
        except UnicodeDecodeError:
            words = f"not a cluster's id, but bytes; write the one into it that {self._folder(1) / 'data'}/meta.properties states"
            raise ClusterError(f"{self._directory / CLUSTER_ID}: {words}") from None
        except OSError as problem:
            raise ClusterError(str(problem)) from None

    def _prepare_node(self, node: int, cluster_id: str) -> None:
        path, disk = self._config(node), RealDisk()
        path.parent.mkdir(exist_ok=True)
        content = toml(self._settings_of(node, cluster_id))
        try:
            config = load(content.encode(), str(path))
            # Nobody else's configuration is written over: its nodes may be running.
            DirectoryLocks([one for one in directories_of(config) if Path(one).is_dir()]).close()
            path.write_text(content)
            format_directories(disk, config, RealEntropy().uuid, ignore_formatted=True)
        except ConfigError as problem:
            raise BadCluster(str(problem)) from None
        except (ForeignDirectory, DirectoryInUse) as problem:
            raise ClusterError(f"node {node}: {problem}") from None
        finally:
            disk.close()

    def _settings_of(self, node: int, cluster_id: str) -> dict[str, SettingValue]:
        replicas = min(3, len(self._nodes))
        in_sync = max(1, replicas - 1)
        host, port = self._endpoints[node]
        voters = (f"{other}@{host}:{at + CONTROLLER_PORTS}" for other, (host, at) in self._endpoints.items())
        return {
            "node.id": node,
            "cluster.id": cluster_id,
            "process.roles": "broker,controller",
            "controller.quorum.voters": ",".join(voters),
            "listeners": f"{host}:{port}",
            "controller.listeners": f"{host}:{port + CONTROLLER_PORTS}",
            "log.dirs": str(self._folder(node) / "data"),
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "controlled.shutdown.timeout.ms": LEAVE_MS,  # all stop at once: the last ones find no controller
            **self._settings,
        }

    # --- waiting ---------------------------------------------------------------------------

    async def _complete(self) -> None:
        """Wait until every node names all of them as brokers."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SERVING_TIMEOUT_MS / 1000
        for node, endpoint in self._endpoints.items():
            while (known := await _brokers(endpoint)) != {*self._nodes}:
                if loop.time() > deadline:
                    found = ", ".join(map(str, sorted(known))) or "none"
                    raise ClusterError(f"node {node} knows these brokers after {SERVING_TIMEOUT_MS} ms: {found}")
                await asyncio.sleep(POLL_MS / 1000)


async def _brokers(endpoint: tuple[str, int]) -> set[int]:
    """Return the brokers that a node names to clients; none where it does not answer."""
    try:
        asking = await Asking.open(endpoint, "tribunal-up", ASK_MS)
    except FAILURES:
        return set()
    try:
        body = md.MetadataRequest(topics=[], allow_auto_topic_creation=False)
        answer = await asking.ask(md.EXCHANGE, 12, body, ASK_MS)
    except FAILURES:
        return set()
    finally:
        asking.close()
    return {broker.node_id for broker in answer.brokers}


async def stand(cluster: StandingCluster, ready: Callable[[], None]) -> list[int]:
    """Run a cluster until this task is cancelled or none of its nodes lives; return the nodes that had to be killed."""
    await cluster.start()
    ready()
    try:
        await cluster.ended()
    except asyncio.CancelledError:
        return await cluster.stop()
    raise ClusterError("no node is alive any more")
