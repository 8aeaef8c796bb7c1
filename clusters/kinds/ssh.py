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
import functools
import hashlib
import io
import shlex
import socket
import ssl
import tarfile
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

import msgspec

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
from tribunal.clusters.nodes.node_events import EventFile, FileEvents
from tribunal.clusters.nodes.node_program import NodeProgram
from tribunal.clusters.nodes.node_software import ReplogSoftware
from tribunal.clusters.nodes.remote_files import RemoteFiles, RemoteHost
from tribunal.clusters.nodes.remote_node import InThread, RemoteNode
from tribunal.clusters.nodes.ssh_hosts import HostEntry, Hosts, Shell, read_hosts
from tribunal.clusters.obstacles import Obstacle
from tribunal.clusters.run_context import RunContext
from tribunal.results.unreadable import UNREADABLE

P = ParamSpec("P")
T = TypeVar("T")

CAPABILITIES: Final = ALL_CAPABILITIES - {Capability.MOUNT_DISK} - SECURED
NO_ZOOKEEPER: Final = "ZooKeeper mode runs on processes, containers and in the simulator"
RECORD: Final = "ssh.json"
CLIENT: Final = "pip install 'paramiko>=3' (the extra replog[ssh])"
NODE_PORT: Final = 29_092
RELAY_PORT: Final = 30_000
THREADS: Final = 64
# (kazoo only where the mode is zookeeper.)
NEEDED: Final = tuple(name for name in PACKAGES if name not in ("kazoo", "uvloop", "typing_extensions"))
# An id proves nothing: a host that was started anew may have given it to anybody. What a run has started works in its node's folder.
OWN: Final = (
    'for f in pid tail.pid; do p=$(cat $f 2>/dev/null); [ "$p" ] && [ "$(readlink /proc/$p/cwd)" = "$(pwd -P)" ]'
)
END_ALL: Final = f"{OWN} && kill -9 $p 2>/dev/null; done; true"
STILL: Final = f"{OWN} && kill -0 $p 2>/dev/null && echo process $p; done; true"


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
        self.hosts = Hosts(relay="", node=())
        self.shells: dict[int, Shell] = {}
        self._links = Links({})
        self._run_name = ""
        self._threads = concurrent.futures.ThreadPoolExecutor(THREADS, "ssh")
        self._furnishing: list[concurrent.futures.Future[None]] = []

    async def in_thread(self, call: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
        """Run what blocks in a thread: more of them than the loop's own executor has."""
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, functools.partial(call, *arguments, **named)
        )

    def folder(self, node: int) -> str:
        """Return the node's folder on its host."""
        return remote_folder(self.hosts.entry(node), self._run_name)

    async def open(self, run: RunContext) -> Links:
        """Connect to every host, upload the code, open the relays."""
        spec = run.spec
        self.hosts = read_hosts(Path(spec.hosts))
        entries = [self.hosts.entry(node) for node in spec.node_ids]
        self._run_name = run_name(run.directory)
        write_record(run.directory, self.hosts)
        self.shells = {entry.id: Shell(entry) for entry in entries}
        await asyncio.gather(*(self.in_thread(shell.open) for shell in self.shells.values()))
        code = _code()
        self._furnishing = [self._threads.submit(self._furnish, node, code) for node in self.shells]
        await asyncio.gather(*map(asyncio.wrap_future, self._furnishing))
        port = spec.base_port or NODE_PORT
        addresses = SshAddresses(self.hosts, port, self.shells, self.in_thread)
        self._links = Links(
            {node: RELAY_PORT + node for node in run.spec.node_ids},
            addresses,
            on_message=run.requests.note,
            zookeeper_nodes=run.spec.ensemble_ids,
        )
        try:
            await self._links.open()
        except OSError as problem:
            raise ClusterError(
                f"cannot listen on {self.hosts.relay} (relay in hosts.toml): {problem.strerror}"
            ) from None
        return self._links

    def _furnish(self, node: int, code: bytes) -> None:
        """Have a folder with our code, and a Python that can run it."""
        shell, folder = self.shells[node], shlex.quote(self.folder(node))
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
        return RemoteNode(node, program, self.shells[node], self.folder(node), endpoint, on_exit, self.in_thread)

    def listener(self, node: int) -> tuple[str, int]:
        """Return the host's own address."""
        return self._links.endpoint(node)

    def bind_host(self, node: int) -> str:
        """Return the address that the links know the node by."""
        return self.hosts.entry(node).address

    async def mounting(self, argv: Sequence[str]) -> str:
        """Refuse: that would be the host's mounts."""
        raise Unsupported("mounts of foreign hosts are left alone")

    async def close(self) -> None:
        """Leave nothing on the hosts."""
        await self._links.close()
        # One refused host ends the start; the others still unpack, and a folder that grows cannot be removed.
        await self.in_thread(concurrent.futures.wait, self._furnishing)
        shells, self.shells = self.shells, {}
        reached = [shell for shell in shells.values() if shell.is_open]
        await asyncio.gather(*(self.in_thread(_emptied, shell, self._run_name) for shell in reached))
        self._threads.shutdown(wait=True)


def run_name(directory: Path) -> str:
    """Return the name of a run's folders on hosts: readable, and of this very run."""
    path = str(directory.resolve())
    return f"{directory.name}-{hashlib.sha256(path.encode()).hexdigest()[:8]}"


def write_record(directory: Path, hosts: Hosts) -> None:
    """Say in the run's folder where it has been, before it goes there."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / RECORD).write_bytes(msgspec.json.encode(hosts))


def remote_folder(entry: HostEntry, name: str) -> str:
    """Return a node's folder on its host."""
    return f"{entry.directory}/{name}/{entry.id}"


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


def _emptied(shell: Shell, name: str) -> list[str]:
    """End what a run has on a host and remove its folder; return what was done."""
    folder = shlex.quote(remote_folder(shell.entry, name))
    try:
        said = shell.run(
            f"[ -d {folder} ] || exit 0; cd {folder} && {END_ALL}; cd / && rm -rf {folder} && echo {folder}"
        )
        shell.tried(
            f"rmdir {shlex.quote(f'{shell.entry.directory}/{name}')}"
        )  # when the last node of this machine has gone
    finally:
        shell.close()
    return [f"{shell.entry.address}: {line} removed" for line in said.decode().splitlines()]


def _recorded(run_dir: Path) -> list[Shell]:
    """Return shells, not open yet, on the hosts that a run used."""
    path = run_dir / RECORD
    try:
        hosts = msgspec.json.decode(path.read_bytes(), type=Hosts)
    except OSError:
        return []
    except UNREADABLE as problem:
        raise ClusterError(
            f"{path}: {problem}; nobody knows its hosts: look at those of hosts.toml, then remove the file"
        ) from None
    return [Shell(entry) for entry in hosts.node]


def _on_all(run_dir: Path, ask: Callable[[Shell], list[str]]) -> list[str]:
    """Ask every host that a run used, also where one of them fails; `ClusterError` with all that failed."""
    said, problems = [], []
    for shell in _recorded(run_dir):
        try:
            shell.open()
            said += ask(shell)
        except ClusterError as problem:
            problems.append(str(problem))
        finally:
            shell.close()
    if problems:
        raise ClusterError("; ".join([*problems, *said]))
    return said


def leftovers(run_dir: Path) -> list[str]:
    """Return what a run of this folder has left on its hosts."""

    def left(shell: Shell) -> list[str]:
        folder = shlex.quote(remote_folder(shell.entry, run_name(run_dir)))
        said = shell.run(f"[ -d {folder} ] || exit 0; echo {folder}; cd {folder} && {STILL}").decode()
        return [f"{shell.entry.address}: {line}" for line in said.splitlines()]

    return _on_all(run_dir, left)


def sweep(run_dir: Path) -> list[str]:
    """End what a run of this folder has left on its hosts; return what was done."""
    return _on_all(run_dir, lambda shell: _emptied(shell, run_name(run_dir)))


def refused(spec: ClusterSpec) -> str:
    """Return why nodes on hosts cannot be what is asked for; empty: they can."""
    return NO_ZOOKEEPER if spec.is_zookeeper_mode else ""


def obstacles() -> list[Obstacle]:
    """Return why there can be no nodes on hosts here."""
    try:
        import paramiko  # noqa: F401
    except ImportError:
        return [Obstacle(reason="the package 'paramiko' is not installed", remedy=CLIENT)]
    try:
        read_hosts(Path(ClusterSpec().hosts))
    except ClusterError as problem:
        return [Obstacle(reason=str(problem), remedy="write hosts.toml: clusters/nodes/ssh_hosts.py shows its form")]
    return []


def cluster_on_hosts(run: RunContext, environment: OnHosts, links: Links) -> ComposedCluster:
    """Compose a cluster of replog's nodes whose files lie on hosts."""
    software = ReplogSoftware(run, environment, links, environment.folder)
    hosts = {
        node: RemoteHost(shell, environment.folder(node), environment.in_thread)
        for node, shell in environment.shells.items()
    }
    files = RemoteFiles(run, software, hosts, environment.in_thread)
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
    if missing := [obstacle for obstacle in obstacles() if "paramiko" in obstacle.reason]:
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
