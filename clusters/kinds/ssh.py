"""Nodes on hosts reached over ssh: code uploaded, daemons started with setsid, sent signals by shell; `hosts.toml` says where.

The relays run in the harness, on an address that the hosts reach (`relay` in hosts.toml): every fault on links and messages
is the same here, and needs no root on any host. Each node has an address of its own, by which its links are known. What a
node writes about itself is followed with `tail`, its clock is compared with the harness's, and its disk is fetched when the
run is over. Everything on a host lies in one folder, which is removed at the end; a harness that is killed leaves daemons
and folders, which `tribunal heal` finds by the run's `ssh.json`.

A host needs a Python of at least 3.11 with the packages that a node imports.
"""

import asyncio
import concurrent.futures
import io
import shlex
import socket
import ssl
import tarfile
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from tribunal import PACKAGE, ROOT
from tribunal.clusters.api import CLIENTS, ClusterError, ClusterSpec, Kind, Unsupported
from tribunal.clusters.assembly import System, composed, launched, observed
from tribunal.clusters.capabilities import SECURED, Capability
from tribunal.clusters.clock import RunClock
from tribunal.clusters.composed_cluster import CAPABILITIES as ALL_CAPABILITIES
from tribunal.clusters.composed_cluster import ComposedCluster
from tribunal.clusters.images.interpreter_base import PACKAGES
from tribunal.clusters.links.relay import Side, Wires
from tribunal.clusters.links.relays import Links, RelayListener, connect_far, connected, listener_at
from tribunal.clusters.nodes.hosts_of_run import HostsOfRun, lacking, leftovers, sweep
from tribunal.clusters.nodes.node_events import EventFile, FileEvents
from tribunal.clusters.nodes.node_program import NodeProgram
from tribunal.clusters.nodes.node_software import ReplogSoftware
from tribunal.clusters.nodes.remote_files import RemoteFiles, RemoteHost
from tribunal.clusters.nodes.remote_node import InThread, RemoteNode
from tribunal.clusters.nodes.ssh_hosts import Hosts, Shell, read_hosts
from tribunal.clusters.obstacles import Obstacle
from tribunal.clusters.run_context import RunContext

CAPABILITIES: Final = ALL_CAPABILITIES - {Capability.MOUNT_DISK} - SECURED
NO_RELAY: Final = "relay is missing: the address of this machine that the hosts reach"
PYTHON_OF_OURS: Final = {"PYTHONPATH": "code", "PYTHONUNBUFFERED": "1"}  # in the node's folder
NO_ZOOKEEPER: Final = "ZooKeeper mode runs on processes, containers and in the simulator"
NODE_PORT: Final = 29_092
RELAY_PORT: Final = 30_000
# (kazoo only where the mode is zookeeper.)
NEEDED: Final = tuple(name for name in PACKAGES if name not in ("kazoo", "uvloop", "typing_extensions"))


class SshAddresses:
    """Every node on its host's address, all relays on the harness's."""

    def __init__(self, hosts: Hosts, port: int, shells: dict[int, Shell], in_thread: InThread) -> None:
        self._hosts = hosts
        self._port = port
        self._shells = shells
        self._in_thread = in_thread
        self._nodes = {entry.address: entry.id for entry in hosts.node}

    def endpoint(self, node: int) -> tuple[str, int]:
        """Return where the node itself listens."""
        return self._hosts.entry(node).address, self._port

    def advertised(self, node: int) -> tuple[str, int]:
        """Return where the node's relay listens."""
        return self._hosts.relay, RELAY_PORT + node

    def caller(self, host: str) -> int:
        """Return which node calls from this address."""
        return self._nodes.get(host, CLIENTS)

    def listeners(self, node: int, links: Wires) -> Iterable[RelayListener]:
        """Return where the node's relay listens."""
        return [listener_at(links, self.advertised(node))]

    async def connect_relay(self, caller: int, target: int, far: Side, tls: ssl.SSLContext | None) -> None:
        """Connect from the address that the system chooses."""
        await connect_far(far, self.endpoint(target), tls)

    async def connect_as(self, source: int, endpoint: tuple[str, int]) -> socket.socket:
        """Connect from the node's own host, through its sshd."""
        if source != CLIENTS:
            sock = await self._in_thread(self._shells[source].forwarded, endpoint)
            sock.settimeout(0)
            return sock
        return await connected(socket.socket(), endpoint, bound_to=None)


class OnHosts:
    """Runs nodes on hosts."""

    place = "hosts over ssh, link proxies in the harness"
    mounts_while_running = False

    def __init__(self) -> None:
        self.on_hosts = HostsOfRun()
        self._links = Links({})
        self._furnishing: list[concurrent.futures.Future[None]] = []

    async def open(self, run: RunContext) -> Links:
        """Connect to every host, upload the code, open the relays."""
        spec = run.spec
        hosts = read_hosts(Path(spec.hosts))
        if not hosts.relay:
            raise ClusterError(f"{spec.hosts}: {NO_RELAY}")
        await self.on_hosts.open(run.directory, hosts, spec.node_ids)
        code = _code()
        shells = self.on_hosts.shells
        self._furnishing = [self.on_hosts.begun(partial(self._furnish, node, code)) for node in shells]
        await asyncio.gather(*map(asyncio.wrap_future, self._furnishing))
        port = spec.base_port or NODE_PORT
        addresses = SshAddresses(hosts, port, shells, self.on_hosts.in_thread)
        self._links = Links(
            {node: RELAY_PORT + node for node in run.spec.node_ids},
            addresses,
            on_message=run.requests.note,
            zookeeper_nodes=run.spec.ensemble_ids,
        )
        try:
            await self._links.open()
        except OSError as problem:
            raise ClusterError(f"cannot listen on {hosts.relay} (relay in hosts.toml): {problem.strerror}") from None
        return self._links

    def _furnish(self, node: int, code: bytes) -> None:
        """Have a folder with our code, and a Python that can run it."""
        shell, folder = self.on_hosts.shells[node], shlex.quote(self.on_hosts.folder(node))
        shell.run(f"mkdir -p {folder}/code && tar -xf - -C {folder}/code", code)
        python, needed = shlex.quote(shell.entry.python), ", ".join(NEEDED)
        checked, _, complaint = shell.tried(f"{python} -c 'import sys, {needed}; sys.exit(sys.version_info < (3, 11))'")
        if checked != 0:
            said = complaint.splitlines()[-1] if complaint else "older than 3.11"
            raise ClusterError(f"host {shell.entry.address} of node {node}: {python}: {said}; needs {needed}")

    def node(
        self, node: int, program: NodeProgram, config: Path, log: Path, on_exit: Callable[[str], None]
    ) -> RemoteNode:
        """Return a node that is not started yet; its configuration and its log are on its host."""
        endpoint = self._links.endpoint(node)
        return RemoteNode(node, program, self.on_hosts, endpoint, on_exit, PYTHON_OF_OURS)

    def listener(self, node: int) -> tuple[str, int]:
        """Return the host's own address."""
        return self._links.endpoint(node)

    def bind_host(self, node: int) -> str:
        """Return the address that the links know the node by."""
        return self.on_hosts.hosts.entry(node).address

    async def mounting(self, argv: Sequence[str]) -> str:
        """Refuse: that would be the host's mounts."""
        raise Unsupported("mounts of foreign hosts are left alone")

    async def close(self) -> None:
        """Leave nothing on the hosts."""
        await self._links.close()
        # One refused host ends the start; the others still unpack, and a folder that grows cannot be removed.
        await self.on_hosts.in_thread(concurrent.futures.wait, self._furnishing)
        await self.on_hosts.close()


def _code() -> bytes:
    """Return what nodes and their hosts run, as a tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(PACKAGE / "__init__.py", "tribunal/__init__.py", recursive=False)
        for package in (ROOT / "replog", PACKAGE / "clusters"):
            for path in sorted(package.rglob("*.py")):
                archive.add(path, str(path.relative_to(ROOT)), recursive=False)
        # What clusters import of the recording there is among these; whatever needs pyarrow is not imported on a host.
        for path in sorted((PACKAGE / "results").glob("*.py")):
            archive.add(path, f"tribunal/results/{path.name}", recursive=False)
    return buffer.getvalue()


def refused(spec: ClusterSpec) -> str:
    """Return why nodes on hosts cannot be what is asked for; empty: they can."""
    return NO_ZOOKEEPER if spec.is_zookeeper_mode else ""


def obstacles() -> list[Obstacle]:
    """Return why there can be no nodes on hosts here."""
    if missing := lacking():
        return missing
    try:
        read_hosts(Path(ClusterSpec().hosts))
    except ClusterError as problem:
        return [Obstacle(reason=str(problem), remedy="write hosts.toml: clusters/nodes/ssh_hosts.py shows its form")]
    return []


def cluster_on_hosts(run: RunContext, environment: OnHosts, links: Links) -> ComposedCluster:
    """Compose a cluster of replog's nodes whose files lie on hosts."""
    software = ReplogSoftware(run, environment, links, environment.on_hosts.folder)
    reached = environment.on_hosts
    hosts = {node: RemoteHost(shell, reached.folder(node), reached.in_thread) for node, shell in reached.shells.items()}
    files = RemoteFiles(run, software, hosts, reached.in_thread)
    events = {node: EventFile(node, files.event_file(node), partial(files.at_ns, node)) for node in hosts}
    system = System(
        software=software,
        files=files,
        events=FileEvents(events, run.clock.now_ns),
        observation=observed(run, links),
    )
    return composed(run, environment, links, system, kind="ssh", capabilities=CAPABILITIES)


async def launch(spec: ClusterSpec, directory: Path, clock: RunClock, cluster_id: str) -> ComposedCluster:
    """Start a cluster on hosts; whatever goes wrong, nothing of it stays running."""
    if missing := lacking():
        raise ClusterError(f"{missing[0].reason}: {missing[0].remedy}")
    if reason := refused(spec):
        raise Unsupported(reason)
    run, environment = RunContext(spec, directory, clock, cluster_id), OnHosts()
    return await launched(run, environment, lambda links: cluster_on_hosts(run, environment, links))


KIND: Final = Kind(
    launch=launch,
    capabilities=CAPABILITIES,
    obstacles=obstacles,
    refused=refused,
    leftovers=leftovers,
    sweep=sweep,
)
