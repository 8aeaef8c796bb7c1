"""Nodes' files on the hosts that they live on: put there, damaged there by `on_host.py`, fetched when the run is over."""

import asyncio
import io
import shlex
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from replog.host.config_file import META_PROPERTIES
from tribunal.clusters.api import ClusterError, Proof
from tribunal.clusters.capabilities import ClockSkew, Damage, DiskTrouble
from tribunal.clusters.nodes.hosts_of_run import NOTE
from tribunal.clusters.nodes.node_files import directory_id_in
from tribunal.clusters.nodes.node_software import NodeSoftware
from tribunal.clusters.nodes.remote_node import InThread
from tribunal.clusters.nodes.ssh_hosts import COMMAND_TIMEOUT_S, Shell
from tribunal.clusters.run_context import RunContext
from tribunal.clusters.spec import Settings

CLOCK_SAMPLES: Final = 7
# Answers each line with its monotonic clock: the quickest answer says best how far the clocks are apart.
CLOCK_PROGRAM: Final = "import sys,time\nfor _ in sys.stdin: print(time.monotonic_ns(),flush=True)"
FORMAT: Final = "-m replog format --config node.toml"
FOLLOW: Final = f"{NOTE} && exec tail -n +1 -F events.jsonl 2>/dev/null"


class RemoteHost:
    """One node's host: a shell there, and the node's folder."""

    def __init__(self, shell: Shell, folder: str, in_thread: InThread) -> None:
        self.shell = shell
        self.folder = folder
        self._in_thread = in_thread

    @property
    def _python(self) -> str:
        return f"PYTHONPATH=code {shlex.quote(self.shell.entry.python)}"

    def run(self, command: str, stdin: bytes = b"") -> bytes:
        """Run a command in the folder; blocks."""
        return self.shell.run(f"cd {shlex.quote(self.folder)} && {command}", stdin)

    def run_python(self, arguments: str) -> bytes:
        """Run Python with our code in the folder; blocks."""
        return self.run(f"{self._python} {arguments}")

    def follow_events(self, path: Path) -> None:
        """Copy the node's event file as it grows; blocks until the host hangs up."""
        with path.open("ab", buffering=0) as file:
            self.shell.watched(f"cd {shlex.quote(self.folder)} && {FOLLOW}", file.write)

    async def do(self, verb: str, wanted: object = None) -> Proof:
        """Let the host do it to its own files, by the code of local processes."""
        argument = shlex.quote(msgspec.json.encode(wanted).decode())
        answer = await self._in_thread(self.run_python, f"-m tribunal.clusters.nodes.on_host {verb} . {argument}")
        return msgspec.json.decode(answer, type=Proof)


class RemoteFiles:
    """The files of nodes on hosts of their own."""

    def __init__(
        self, run: RunContext, software: NodeSoftware, hosts: Mapping[int, RemoteHost], in_thread: InThread
    ) -> None:
        self._run = run
        self._software = software
        self._hosts = hosts
        self._in_thread = in_thread
        self._clock_offsets: dict[int, int] = {}
        self._tails: list[asyncio.Future[None]] = []

    async def prepare(self) -> None:
        """Put each node's configuration on its host, format there, follow its events."""
        for node in self._hosts:
            self._software.configure(node, {})
        await asyncio.gather(*(self._in_thread(self._set_up, node) for node in self._hosts))
        for node, host in self._hosts.items():
            path = self.event_file(node)
            self._tails.append(asyncio.ensure_future(self._in_thread(host.follow_events, path)))

    def event_file(self, node: int) -> Path:
        """Return this machine's copy of the node's event file."""
        return self._run.folder(node) / "events.jsonl"

    def _set_up(self, node: int) -> None:
        host = self._hosts[node]
        self._upload_config(node)
        host.run("touch events.jsonl log && head -c 4096 /dev/zero >control.page")
        host.run_python(FORMAT)
        self._clock_offsets[node] = clock_offset_ns(host.shell)

    def _upload_config(self, node: int) -> None:
        self._hosts[node].run("cat >node.toml", self._software.config(node).read_bytes())

    async def reconfigure(self, node: int, settings: Settings) -> None:
        """Write the configuration anew, and bring it to the host."""
        self._software.configure(node, settings)
        await self._in_thread(self._upload_config, node)

    async def wipe(self, node: int) -> Proof:
        """Remove the log directory and format it again."""
        proof = await self._hosts[node].do("wipe")
        await self._in_thread(self._hosts[node].run_python, FORMAT)
        return proof

    async def save_disk(self, node: int) -> None:
        """Copy the log directory on the host."""
        await self._hosts[node].do("save_disk")

    async def restore_disk(self, node: int) -> Proof:
        """Put the copy in the log directory's place."""
        return await self._hosts[node].do("restore_disk")

    async def directory_id(self, node: int) -> str | None:
        """Read it on the host."""
        return directory_id_in((await self._in_thread(self._hosts[node].run, f"cat data/{META_PROPERTIES}")).decode())

    async def power_fail(self, node: int) -> Proof:
        """Take back from the disk what was not synced."""
        return await self._hosts[node].do("power_fail")

    async def damage(self, node: int, damage: Damage) -> Proof:
        """Damage the log files."""
        return await self._hosts[node].do("damage", damage)

    async def set_clock(self, node: int, skew: ClockSkew) -> Proof:
        """Move a running node's clock."""
        return await self._hosts[node].do("set_clock", skew)

    async def trouble_disk(self, node: int, trouble: DiskTrouble) -> Proof:
        """Make a running node's disk misbehave."""
        return await self._hosts[node].do("trouble_disk", trouble)

    async def log_ends_now(self, node: int) -> Mapping[str, int] | None:
        """Return None: the files of a running node are on its host."""
        return None

    async def fetch(self) -> None:
        """Fetch what the nodes' disks hold."""
        reached = [node for node, host in self._hosts.items() if host.shell.is_open]
        await asyncio.gather(*(self._in_thread(self._fetch, node) for node in reached))

    def _fetch(self, node: int) -> None:
        local, host = self._run.folder(node), self._hosts[node]
        if (local / "fetched").exists():
            return
        code, content, _ = host.shell.tried(f"cd {shlex.quote(host.folder)} && tar -cf - data log")
        if code == 0:
            unpack(content, local)
            log = self._run.log_file(node)
            log.parent.mkdir(exist_ok=True)
            (local / "log").rename(log)
            (local / "fetched").touch()

    def clock_offset_ns(self, node: int) -> int:
        """Return by how much a node's monotonic clock was ahead of ours at the start."""
        return self._clock_offsets.get(node, 0)

    def at_ns(self, node: int, node_ns: int) -> int:
        """Return a reading of the node's monotonic clock as ns since the run began."""
        return self._run.clock.at_ns(node_ns - self.clock_offset_ns(node))

    async def close(self) -> None:
        """Wait for the tails, which end when the hosts are left."""
        await asyncio.gather(*self._tails, return_exceptions=True)


def unpack(content: bytes, folder: Path) -> None:
    """Unpack what a host has sent into a folder of this machine; `ClusterError` where something in it would lie, or leads, elsewhere."""
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            archive.extractall(folder, filter="data")
    except tarfile.TarError as problem:
        raise ClusterError(f"what a host has sent cannot be unpacked in {folder}: {problem}") from None


def clock_offset_ns(shell: Shell) -> int:
    """Return by how much the host's monotonic clock is ahead of ours, by the quickest of a few answers. Raises ClusterError."""
    import paramiko

    channel = shell.channel()
    channel.settimeout(COMMAND_TIMEOUT_S)
    try:
        channel.exec_command(f"{shlex.quote(shell.entry.python)} -u -c {shlex.quote(CLOCK_PROGRAM)}")
        answers = channel.makefile("r")
        best = (1 << 62, 0)
        for _ in range(CLOCK_SAMPLES):
            asked_ns = time.monotonic_ns()
            channel.sendall(b"\n")
            theirs_ns = int(answers.readline())
            answered_ns = time.monotonic_ns()
            best = min(best, (answered_ns - asked_ns, theirs_ns - (asked_ns + answered_ns) // 2))
        return best[1]
    except (OSError, EOFError, ValueError, paramiko.SSHException) as problem:
        why = str(problem) or type(problem).__name__
        raise ClusterError(
            f"host {shell.entry.endpoint[0]} of node {shell.entry.id} does not say what its clock reads: {why}"
        ) from None
    finally:
        channel.close()
