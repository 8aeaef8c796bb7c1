"""Nodes on hosts reached over ssh: code uploaded, daemons started with setsid, hurt by shell; `hosts.toml` says where.

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
import tarfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from tribunal import PACKAGE, ROOT
from tribunal.clusters.api import CLIENTS, ClusterError, ClusterSpec, Proof, Unsupported
from tribunal.clusters.capabilities import ClockSkew, Damage, DiskTrouble
from tribunal.clusters.clock import RunClock
from tribunal.clusters.host_environment import NodeLife
from tribunal.clusters.images.interpreter_base import PACKAGES
from tribunal.clusters.kinds.processes import CAPABILITIES as PROCESS_CAPABILITIES
from tribunal.clusters.kinds.processes import MOUNT_CAPABILITIES, ProcessCluster, opened
from tribunal.clusters.links.relays import Links
from tribunal.clusters.nodes.node_events import EventFile
from tribunal.clusters.nodes.node_process import toml
from tribunal.clusters.nodes.remote_node import RemoteNode
from tribunal.clusters.nodes.ssh_hosts import HostEntry, Hosts, Shell, read_hosts
from tribunal.clusters.obstacles import Obstacle

CAPABILITIES: Final = PROCESS_CAPABILITIES - MOUNT_CAPABILITIES
RECORD: Final = "ssh.json"
NODE_PORT: Final = 29_092
RELAY_PORT: Final = 30_000
THREADS: Final = 64
CLOCK_SAMPLES: Final = 7
# (kazoo only where the mode is zookeeper.)
NEEDED: Final = tuple(name for name in PACKAGES if name not in ("kazoo", "uvloop", "typing_extensions"))
# Answers each line with its monotonic clock: the quickest answer says best how far the clocks are apart.
CLOCK_PROGRAM: Final = "import sys,time\nfor _ in sys.stdin: print(time.monotonic_ns(),flush=True)"
END_ALL: Final = "for f in pid tail.pid; do [ -s $f ] && kill -9 $(cat $f) 2>/dev/null; done; true"
STILL: Final = (
    "for f in pid tail.pid; do [ -s $f ] && kill -0 $(cat $f) 2>/dev/null && echo process $(cat $f); done; true"
)


class SshAddresses:
    """Every node on its host's address, all relays on the harness's."""

    def __init__(self, hosts: Hosts, port: int, shells: dict[int, Shell], aside: Callable[..., Any]) -> None:
        self._hosts = hosts
        self._port = port
        self._shells = shells
        self._aside = aside
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

    def relay_source(self, node: int) -> tuple[str, int] | None:
        """Leave it to the system."""
        return None

    async def connect_as(self, source: int, endpoint: tuple[str, int]) -> socket.socket:
        """Connect from the node's own host, through its sshd."""
        if source != CLIENTS:
            sock: socket.socket = await self._aside(self._shells[source].forwarded, endpoint)
            sock.settimeout(0)
            return sock
        sock = socket.socket()
        sock.settimeout(0)
        try:
            await asyncio.get_running_loop().sock_connect(sock, endpoint)
        except BaseException:
            sock.close()
            raise
        return sock


class OnHosts:
    """Runs nodes on hosts."""

    kind = "ssh"
    place = "hosts over ssh, link proxies in the harness"
    mounts_while_running = False

    def __init__(self) -> None:
        self.hosts = Hosts(relay="", node=())
        self.shells: dict[int, Shell] = {}
        self._links = Links({})
        self._run_name = ""
        self._threads = concurrent.futures.ThreadPoolExecutor(THREADS, "ssh")

    async def aside(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Run what blocks in a thread: more of them than the loop's own executor has."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, functools.partial(call, *arguments))

    def folder(self, node: int) -> str:
        """Return the node's folder on its host."""
        return remote_folder(self.hosts.entry(node), self._run_name)

    async def open(self, spec: ClusterSpec, directory: Path) -> Links:
        """Connect to every host, upload the code, open the relays."""
        self.hosts = read_hosts(Path(spec.hosts))
        entries = [self.hosts.entry(node) for node in spec.node_ids]
        self._run_name = run_name(directory)
        write_record(directory, self.hosts)
        self.shells = {entry.id: Shell(entry) for entry in entries}
        await asyncio.gather(*(self.aside(shell.open) for shell in self.shells.values()))
        code = _code()
        await asyncio.gather(*(self.aside(self._furnish, node, code) for node in self.shells))
        port = spec.base_port or NODE_PORT
        addresses = SshAddresses(self.hosts, port, self.shells, self.aside)
        self._links = Links({node: RELAY_PORT + node for node in spec.node_ids}, addresses)
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

    def node(self, node: int, role: str, config: Path, log: Path) -> NodeLife:
        """Return a node that is not started yet."""
        endpoint = self._links.endpoint(node)
        return RemoteNode(node, role, config, self.shells[node], self.folder(node), endpoint, self.aside)

    def listener(self, node: int) -> tuple[str, int]:
        """Return the host's own address."""
        return self._links.endpoint(node)

    def zookeeper(self, node: int, config: Path, log: Path) -> NodeLife:
        """Refuse: servers of ZooKeeper are not brought to hosts."""
        raise Unsupported("ZooKeeper mode runs on processes, containers and in the simulator")

    def bind_host(self, node: int) -> str:
        """Return the address that the links know the node by."""
        return self.hosts.entry(node).address

    async def mounting(self, argv: Sequence[str]) -> str:
        """Refuse: that would be the host's mounts."""
        raise Unsupported("mounts of foreign hosts are left alone")

    async def close(self) -> None:
        """Leave nothing on the hosts."""
        await self._links.close()
        shells, self.shells = self.shells, {}
        reached = [shell for shell in shells.values() if shell.is_open]
        await asyncio.gather(*(self.aside(_emptied, shell, self._run_name) for shell in reached))
        self._threads.shutdown(wait=True)


class OffsetClock(RunClock):
    """The run's clock, told the time by a host whose monotonic clock is another."""

    def __init__(self, clock: RunClock, offset_ns: int) -> None:
        self.start_ns = clock.start_ns
        self.wall_start_ms = clock.wall_start_ms
        self.offset_ns = offset_ns

    def at_ns(self, node_ns: int) -> int:
        """Return a reading of the host's monotonic clock as ns since the run began."""
        return super().at_ns(node_ns - self.offset_ns)


class SshCluster(ProcessCluster):
    """A cluster whose files are elsewhere; see `tribunal.clusters.api.Cluster`."""

    capabilities = CAPABILITIES
    environment: OnHosts

    def __init__(self, spec: ClusterSpec, directory: Path, clock: RunClock, cluster_id: str) -> None:
        super().__init__(spec, directory, clock, cluster_id, OnHosts())
        self._clock_offsets: dict[int, int] = {}
        self._tails: list[asyncio.Future[Any]] = []

    def clock_offset_ns(self, node: int) -> int:
        """Return by how much a node's monotonic clock was ahead of ours at the start."""
        return self._clock_offsets.get(node, 0)

    def settings(self, node: int) -> dict[str, Any]:
        """Return the node's configuration, its paths those of the host."""
        folder = self.environment.folder(node)
        return {
            **super().settings(node),
            "log.dirs": f"{folder}/data",
            "tribunal.events.file": f"{folder}/events.jsonl",
            "tribunal.undo.journal": f"{folder}/undo",
            "tribunal.control.page": f"{folder}/control.page",
            **self.spec.node_settings(),
        }

    async def _format_all(self) -> None:
        """Put each node's configuration on its host, format there, follow its events."""
        await asyncio.gather(*(self.environment.aside(self._set_up, node) for node in self.spec.node_ids))
        for node in self.spec.node_ids:
            path = self._event_files[node].path
            self._event_files[node] = EventFile(node, path, OffsetClock(self.clock, self._clock_offsets[node]))
            self._tails.append(asyncio.ensure_future(self.environment.aside(self._follow, node, path)))

    def _set_up(self, node: int) -> None:
        shell, folder = self.environment.shells[node], shlex.quote(self.environment.folder(node))
        shell.run(f"cd {folder} && cat >node.toml && touch events.jsonl log", toml(self.settings(node)).encode())
        shell.run(
            f"cd {folder} && head -c 4096 /dev/zero >control.page && {self._python(node)} -m replog format --config node.toml"
        )
        self._clock_offsets[node] = clock_offset_ns(shell)

    def _python(self, node: int) -> str:
        return f"PYTHONPATH=code {shlex.quote(self.environment.shells[node].entry.python)}"

    def _follow(self, node: int, path: Path) -> None:
        folder = shlex.quote(self.environment.folder(node))
        with path.open("ab", buffering=0) as file:
            command = f"cd {folder} && echo $$ >tail.pid && exec tail -n +1 -F events.jsonl 2>/dev/null"
            self.environment.shells[node].watched(command, file.write)

    async def _on_host(self, node: int, verb: str, wanted: Any = None) -> Proof:
        """Let the host do it to its own files."""
        told = shlex.quote(msgspec.json.encode(wanted).decode())
        command = f"cd {shlex.quote(self.environment.folder(node))} && {self._python(node)} -m tribunal.clusters.nodes.on_host {verb} . {told}"
        return msgspec.json.decode(await self.environment.aside(self.environment.shells[node].run, command), type=Proof)

    def _must_be_down(self, node: int) -> None:
        if self._node(node).alive:
            raise ClusterError(f"node {node} runs: kill it before its disk is touched")

    async def wipe(self, node: int) -> Proof:
        """Remove a dead node's log directory and format it again."""
        self._must_be_down(node)
        proof = await self._on_host(node, "wipe")
        folder = shlex.quote(self.environment.folder(node))
        command = f"cd {folder} && {self._python(node)} -m replog format --config node.toml"
        await self.environment.aside(self.environment.shells[node].run, command)
        return proof

    async def power_fail(self, node: int) -> Proof:
        """Kill -9, then take back from the disk what was not synced."""
        gone = await self.kill(node)
        lost = await self._on_host(node, "power_fail")
        return Proof(holds=gone.holds and lost.holds, facts={**gone.facts, **lost.facts})

    async def damage(self, node: int, damage: Damage) -> Proof:
        """Damage the log files of a dead node."""
        self._must_be_down(node)
        return await self._on_host(node, "damage", damage)

    async def set_clock(self, node: int, skew: ClockSkew) -> Proof:
        """Move a running node's clock."""
        self._node(node)
        return await self._on_host(node, "set_clock", skew)

    async def trouble_disk(self, node: int, trouble: DiskTrouble) -> Proof:
        """Make a running node's disk misbehave."""
        self._node(node)
        return await self._on_host(node, "trouble_disk", trouble)

    async def shut_down(self) -> None:
        """End every node, and fetch what the brokers' disks hold."""
        await super().shut_down()
        reached = [node for node, shell in self.environment.shells.items() if shell.is_open]
        await asyncio.gather(*(self.environment.aside(self._fetch, node) for node in reached))

    def _fetch(self, node: int) -> None:
        local = self.directory / "nodes" / str(node)
        if (local / "fetched").exists():
            return
        shell, folder = self.environment.shells[node], shlex.quote(self.environment.folder(node))
        code, content, _ = shell.tried(f"cd {folder} && tar -cf - data log")
        if code == 0:
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                archive.extractall(local, filter="data")
            (self.directory / "logs").mkdir(exist_ok=True)
            (local / "log").rename(self.directory / "logs" / f"{node}.log")
            (local / "fetched").touch()

    async def close(self) -> None:
        """Leave nothing behind but files."""
        await super().close()
        await asyncio.gather(*self._tails, return_exceptions=True)


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


def clock_offset_ns(shell: Shell) -> int:
    """Return by how much the host's monotonic clock is ahead of ours, by the quickest of a few answers."""
    channel = shell.channel()
    try:
        channel.exec_command(f"{shlex.quote(shell.entry.python)} -u -c {shlex.quote(CLOCK_PROGRAM)}")
        told = channel.makefile("r")
        best = (1 << 62, 0)
        for _ in range(CLOCK_SAMPLES):
            asked_ns = time.monotonic_ns()
            channel.sendall(b"\n")
            theirs_ns = int(told.readline())
            answered_ns = time.monotonic_ns()
            best = min(best, (answered_ns - asked_ns, theirs_ns - (asked_ns + answered_ns) // 2))
        return best[1]
    finally:
        channel.close()


def _code() -> bytes:
    """Return what nodes and their hosts run, as a tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(PACKAGE / "__init__.py", "tribunal/__init__.py", recursive=False)
        for package in (ROOT / "replog", PACKAGE / "clusters"):
            for path in sorted(package.rglob("*.py")):
                archive.add(path, str(path.relative_to(ROOT)), recursive=False)
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
    """Return open shells on the hosts that a run used."""
    try:
        hosts = msgspec.json.decode((run_dir / RECORD).read_bytes(), type=Hosts)
    except OSError:
        return []
    shells = [Shell(entry) for entry in hosts.node]
    for shell in shells:
        shell.open()
    return shells


def leftovers(run_dir: Path) -> list[str]:
    """Return what a run of this folder has left on its hosts."""
    found = []
    for shell in _recorded(run_dir):
        folder = shlex.quote(remote_folder(shell.entry, run_name(run_dir)))
        said = shell.run(f"[ -d {folder} ] || exit 0; echo {folder}; cd {folder} && {STILL}").decode()
        found += [f"{shell.entry.address}: {line}" for line in said.splitlines()]
        shell.close()
    return found


def sweep(run_dir: Path) -> list[str]:
    """End what a run of this folder has left on its hosts; return what was done."""
    return [done for shell in _recorded(run_dir) for done in _emptied(shell, run_name(run_dir))]


def obstacles() -> list[Obstacle]:
    """Return why there can be no nodes on hosts here."""
    try:
        import paramiko  # noqa: F401
    except ImportError:
        return [Obstacle(reason="the package 'paramiko' is not installed", remedy="pip install 'tribunal[ssh]'")]
    try:
        read_hosts(Path(ClusterSpec().hosts))
    except ClusterError as problem:
        return [Obstacle(reason=str(problem), remedy="write hosts.toml: clusters/nodes/ssh_hosts.py shows its form")]
    return []


async def launch(spec: ClusterSpec, directory: Path, clock: RunClock, cluster_id: str) -> SshCluster:
    """Start a cluster on hosts; whatever goes wrong, nothing of it stays running."""
    if missing := [obstacle for obstacle in obstacles() if "paramiko" in obstacle.reason]:
        raise ClusterError(f"{missing[0].reason}: {missing[0].remedy}")
    return await opened(SshCluster(spec, directory, clock, cluster_id))
