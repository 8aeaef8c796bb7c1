"""The disks of a described system's nodes that forget what was not synced: a file system for each, `forgetful_disk.py`.

It is mounted in the namespaces of the run, where the nodes and what prepares them see it in their data folders; outside these
folders are empty. For nodes in containers it is mounted on this machine, which takes root: an engine binds what it finds there into
each container that it starts. Everything on it is in the memory of its process, which ends with the harness.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from tribunal.clusters.api import ClusterError, Proof
from tribunal.clusters.capabilities import DiskTrouble, Failing, PartLost
from tribunal.clusters.nodes.mounts import unmount_all
from tribunal.clusters.nodes.node_process import last_lines, put_to_end, start_to_speak

PROGRAM: Final = Path(__file__).with_name("forgetful_disk.py")
DEVICE: Final = Path("/dev/fuse")
POLL_MS: Final = 10
ANSWER_MS: Final = 30_000  # a busy machine takes its time
MET_MS: Final = 10_000  # within which a node that works asks something of its disk
IDLE: Final = "a request of the node that the disk refused or held up: an idle node proves nothing"


class Forgotten(msgspec.Struct, frozen=True):
    """What a disk no longer has, or how it is.

    bytes:    written and not synced, of files that had a name; lengths: of how many of them the length is another one now.
    files:    how many of them are as they were before in any way; names: how many names mean something else now.
    kept:     bytes that were not synced and had reached the disk all the same.
    matching: of a loss of some files: how many there were; others: where there were none, some that there are.
    open:     how many files and folders are open; held: how many it has, with and without a name.
    """

    bytes: int = 0
    lengths: int = 0
    files: int = 0
    names: int = 0
    kept: int = 0
    matching: int = 0
    others: tuple[str, ...] = ()
    open: int = 0
    held: int = 0


class Met(msgspec.Struct, frozen=True, rename={"read_only": "read-only"}):
    """How many requests a disk has refused since it was mounted, each way, and how many it has held up to their end."""

    full: int
    read_only: int
    failing: int
    delayed: int

    def of(self, trouble: DiskTrouble, failing: Failing) -> dict[str, int]:
        """Return those that such a misbehaviour makes."""
        made: dict[str, int] = {}
        if trouble.writes != "fine":
            made[trouble.writes] = self.full if trouble.writes == "full" else self.read_only
        if failing != "nothing":
            made["failing"] = self.failing
        return made | ({"delayed": self.delayed} if trouble.fsync_delay_ms else {})


def lacking(*, in_containers: bool = False) -> str:
    """Return why there can be none on this machine, or none of nodes in containers; empty: nothing is in the way."""
    if in_containers and os.geteuid() != 0:
        return "mounting them for containers takes root"
    return "" if os.access(DEVICE, os.R_OK | os.W_OK) else f"{DEVICE} is missing or forbidden here"


class ForgetfulDisk:
    """The disk of one node, from its mounting to its end."""

    def __init__(self, data: Path, log: Path, run_dir: Path) -> None:
        self._data = data
        self._log = log
        self._run_dir = run_dir
        self._process: asyncio.subprocess.Process | None = None
        self._asking = asyncio.Lock()  # one question at a time: whoever else asks would read its answer
        self._trouble = DiskTrouble()
        self._failing: Failing = "nothing"

    async def mount(self, prefix: Sequence[str]) -> None:
        """Mount it on the data folder, where the prefix leads to. Raises ClusterError."""
        command = [sys.executable, "-I", "-S", str(PROGRAM), str(self._data), f"{self._run_dir}{os.sep}"]
        self._process = await start_to_speak(prefix, command, self._log, self._run_dir)
        await self._answer()

    async def ask(self, command: Literal["forget", "wipe", "opened"]) -> Forgotten:
        """Let it forget what was not synced, or everything; return what that was. Raises ClusterError."""
        return msgspec.json.decode(await self._asked(command), type=Forgotten)

    async def forget_part(self, loss: PartLost) -> Forgotten:
        """Let it forget what was not synced but for a part; return what that was. Raises ClusterError."""
        return msgspec.json.decode(await self._asked(f"forget {msgspec.json.encode(loss).decode()}"), type=Forgotten)

    async def trouble(self, trouble: DiskTrouble, *, within_ms: int = MET_MS) -> Proof:
        """Let it be full, read-only or slow, or none of that; proven by requests that met it in time. Raises ClusterError."""
        self._trouble = trouble
        return await self._misbehaves(trouble, "nothing", within_ms)

    async def fail(self, failing: Failing, *, within_ms: int = MET_MS) -> Proof:
        """Let it fail, or work again; proven by requests that it refused in time. Raises ClusterError."""
        self._failing = failing
        return await self._misbehaves(DiskTrouble(), failing, within_ms)

    async def _misbehaves(self, trouble: DiskTrouble, failing: Failing, within_ms: int) -> Proof:
        given = {
            "writes": self._trouble.writes,
            "failing": self._failing,
            "sync_delay_ms": self._trouble.fsync_delay_ms,
        }
        before = await self._met(f"trouble {msgspec.json.encode(given).decode()}")
        was, deadline = before.of(trouble, failing), asyncio.get_running_loop().time() + within_ms / 1000
        while True:
            met = (await self._met("met")).of(trouble, failing)
            made = {how: count - was[how] for how, count in met.items()}
            if all(made.values()) or asyncio.get_running_loop().time() >= deadline:
                break
            await asyncio.sleep(POLL_MS / 1000)
        facts: dict[str, object] = {**given, "requests": made}
        return Proof(holds=all(made.values()), facts=facts if all(made.values()) else {**facts, "missing": IDLE})

    async def _met(self, line: str) -> Met:
        return msgspec.json.decode(await self._asked(line), type=Met)

    async def _asked(self, line: str) -> bytes:
        async with self._asking:
            assert self._process is not None
            assert self._process.stdin is not None
            stdin = self._process.stdin
            with contextlib.suppress(OSError):  # then it does not answer either
                if not stdin.is_closing():  # (uvloop calls a write to what has gone a RuntimeError)
                    stdin.write(f"{line}\n".encode())
                await stdin.drain()
            return await self._answer()

    async def is_closed(self, within_ms: int) -> bool:
        """Wait until nobody has a file open there; return whether that came in time. Raises ClusterError."""
        deadline = asyncio.get_running_loop().time() + within_ms / 1000
        while (await self.ask("opened")).open:
            if asyncio.get_running_loop().time() >= deadline:
                return False
            await asyncio.sleep(POLL_MS / 1000)
        return True

    async def _answer(self) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        line = b""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_MS / 1000):
                line = await self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise ClusterError(
                f"the disk of {self._data} does not answer; its log {self._log} ends:\n{last_lines(self._log)}"
            )
        return line

    async def close(self) -> None:
        """End it, and with it the mount."""
        process, self._process = self._process, None
        if process is not None:
            await put_to_end(process)
            # Namespaces end with their mounts; this machine's own does not.
            await asyncio.to_thread(unmount_all, self._data)
