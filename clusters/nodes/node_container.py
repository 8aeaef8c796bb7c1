"""A node in a container of its own, and what a run has of a container engine: a network, containers, all with the run's label.

The engine has to be on this machine: the harness reads its network and its processes.
"""

import asyncio
import contextlib
import ctypes
import hashlib
import os
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tribunal.clusters.api import ClusterError, Proof
from tribunal.clusters.images.build import LABEL
from tribunal.clusters.nodes.leftovers import started_at
from tribunal.clusters.nodes.node_process import EXIT_TIMEOUT_MS, POLL_MS, SIGNAL_WAIT_MS, last_lines, process_exists
from tribunal.clusters.nodes.node_program import NodeProgram
from tribunal.clusters.nodes.own_end import OwnEnd
from tribunal.clusters.nodes.serving import came_to_serve

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

GATEWAY: Final = 254
NEW_NETWORK: Final = 0x40000000  # CLONE_NEWNET
FREEZE_ATTEMPTS: Final = 4
REMOVED_S: Final = 20.0
NO_LETTER: Final = re.compile(r"[^a-zA-Z0-9_.-]")  # of a container's name
SUBNETS: Final = tuple(f"10.213.{number}" for number in range(1, 255))
# What a container runs: its output goes to the run's log file, like any node's.
SHELL_ENTRY: Final = 'exec "$@" >>"$0" 2>&1'


class Ended(msgspec.Struct, frozen=True, rename="pascal"):
    """The end of a container, as the engine tells of it."""

    exit_code: int | None = None


class NodeContainer(OwnEnd):
    """One node's container, started again for each of its processes."""

    def __init__(
        self,
        node: int,
        program: NodeProgram,
        container: "Container",
        log: Path,
        endpoint: tuple[str, int],
        on_exit: Callable[[str], None],
    ) -> None:
        self.node = node
        self.pid: int | None = None
        self._program = program
        self._container = container
        self._log = log
        self._endpoint = endpoint
        self._on_exit = on_exit
        self._started: int | None = None
        self._ending = False
        self._watch: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """Whether the container's first process exists."""
        return self._started is not None and started_at(self.pid or -1) == self._started

    async def spawn(self) -> None:
        """Start the container."""
        assert not self.alive, f"node {self.node} runs already"
        await self._noted()
        self._ending = False
        await self._engine(self._container.start, must=True)
        await asyncio.to_thread(self._container.reload)
        self.pid = int(self._container.attrs["State"]["Pid"])
        self._started = started_at(self.pid)
        self._watch = asyncio.create_task(self._wait_for_end(), name=f"watch container {self.node}")

    async def _wait_for_end(self) -> None:
        while self.alive:  # noqa: ASYNC110 - only the system's table of processes shows it
            await asyncio.sleep(POLL_MS / 1000)
        if not self._ending:
            self._on_exit(f"node {self.node} (container) ended; its log {self._log} ends:\n{last_lines(self._log)}")

    async def _answers(self, *, wait_ms: int) -> bool:
        return await self._program.answers(self._endpoint, wait_ms=wait_ms)

    async def serving(self) -> None:
        """Wait until the node answers requests."""
        program = self._program
        came = await came_to_serve(
            lambda: self._answers(wait_ms=program.answer_wait_ms),
            lambda: self.alive,
            within_ms=program.serving_timeout_ms,
            poll_ms=POLL_MS,
        )
        if came != "serves":
            state = "ended" if came == "ended" else "does not serve"
            raise ClusterError(f"node {self.node} {state}; its log {self._log} ends:\n{last_lines(self._log)}")

    async def exit_code(self) -> int | None:
        """Return how the engine says that it ended; None: it runs."""
        if self.alive:
            return None
        await self._noted()
        return msgspec.convert(self._container.attrs["State"], Ended).exit_code

    async def kill(self) -> Proof:
        """Kill -9 through the engine."""
        self._ending = True
        pid = self.pid
        if self.alive:
            await self._engine(self._container.kill)
        await self._dies()
        gone, silent = not process_exists(pid), not await self._answers(wait_ms=100)
        return Proof(holds=gone and silent, facts={"pid": pid, "process_gone": gone, "silent": silent})

    async def _ask_to_end(self) -> None:
        await self._engine(lambda: self._container.kill(signal="SIGTERM"))

    async def _ended(self) -> None:
        if self._watch is not None:
            await asyncio.shield(self._watch)
        await self._noted()

    async def _noted(self) -> None:
        """Wait until the engine has noted the end: it lags behind, and a start before would do nothing."""
        for _ in range(EXIT_TIMEOUT_MS // POLL_MS):
            await asyncio.to_thread(self._container.reload)
            if self._container.status in ("exited", "created"):
                return
            await asyncio.sleep(POLL_MS / 1000)
        raise ClusterError(f"node {self.node}: the engine has not noted its end after {EXIT_TIMEOUT_MS} ms")

    async def pause(self) -> Proof:
        """Freeze the container; on a busy machine cgroups sometimes need to be asked again."""
        for _ in range(FREEZE_ATTEMPTS - 1):
            with contextlib.suppress(ClusterError):
                await self._engine(self._container.pause)
                break
        else:
            await self._engine(self._container.pause)
        await asyncio.to_thread(self._container.reload)
        stopped = self._container.status == "paused"
        silent = not await self._answers(wait_ms=100)
        return Proof(holds=stopped and silent, facts={"pid": self.pid, "stopped": stopped, "silent": silent})

    async def resume(self) -> Proof:
        """Thaw it."""
        await self._engine(self._container.unpause)
        await asyncio.to_thread(self._container.reload)
        running = self._container.status == "running"
        answered = await self._answers(wait_ms=SIGNAL_WAIT_MS)
        return Proof(
            holds=running and answered,
            facts={"pid": self.pid, "running": running, "answers": answered},
            undone=running,
        )

    async def _engine(self, action: Callable[[], object], *, must: bool = False) -> None:
        """Ask the engine; what it refuses for a container that has ended is nothing, unless it must be done."""
        from docker.errors import APIError

        try:
            await asyncio.to_thread(action)
        except APIError as problem:
            if must or self.alive:
                raise ClusterError(f"node {self.node}: the engine says: {problem.explanation}") from None


def named(run_dir: Path) -> str:
    """Return what a run's network is called, and its containers begin with: runs of one name may lie in several folders."""
    # A scenario may be called by any words; an engine knows fewer letters.
    name = NO_LETTER.sub("-", run_dir.name)
    return f"tribunal-{hashlib.sha256(str(run_dir).encode()).hexdigest()[:8]}-{name}"[:60]


def made_network(client: "DockerClient", directory: Path) -> tuple[str, str]:
    """Make a run's network; return the first three numbers of its addresses, and its name. Raises ClusterError."""
    from docker.errors import APIError
    from docker.types import IPAMConfig, IPAMPool

    name, problem = named(directory), "no subnet is free"
    start = os.getpid() % len(SUBNETS)
    for prefix in (*SUBNETS[start:], *SUBNETS[:start])[:20]:
        pool = IPAMPool(subnet=f"{prefix}.0/24", gateway=f"{prefix}.{GATEWAY}")
        try:
            client.networks.create(
                name,
                ipam=IPAMConfig(pool_configs=[pool]),
                labels={LABEL: str(directory)},
            )
        except APIError as refusal:
            problem = str(refusal.explanation)
        else:
            return prefix, name
    raise ClusterError(f"cannot make a network: {problem}")


def socket_in_namespace_of(pid: int) -> socket.socket:
    """Make a socket that lives in another process's network."""
    with open(f"/proc/{pid}/ns/net") as away:  # noqa: PTH123
        return socket_in(away.fileno())


def socket_in(space: int) -> socket.socket:
    """Make a socket that lives in another network, by a descriptor of it; only the calling thread visits it."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as home:  # noqa: PTH123
        if libc.setns(space, NEW_NETWORK) != 0:
            raise OSError(ctypes.get_errno(), "cannot enter a container's network")
        try:
            return socket.socket()
        finally:
            if libc.setns(home.fileno(), NEW_NETWORK) != 0:
                os._exit(70)  # this thread would go on in a foreign network


def left_of(client: "DockerClient", run_dir: Path) -> list[str]:
    """Return what carries the run's label."""
    wanted: dict[str, str | list[str] | bool] = {"label": f"{LABEL}={run_dir.resolve()}"}
    containers = client.containers.list(all=True, filters=wanted, ignore_removed=True)
    found = [f"container {container.name}" for container in containers]
    return found + [f"network {network.name}" for network in client.networks.list(filters=wanted)]


def remove_all(client: "DockerClient", run_dir: Path) -> list[str]:
    """Remove what carries the run's label; return what was removed."""
    from docker.errors import APIError, NotFound

    removed = []
    wanted: dict[str, str | list[str] | bool] = {"label": f"{LABEL}={run_dir.resolve()}"}
    deadline = time.monotonic() + REMOVED_S
    while containers := client.containers.list(all=True, filters=wanted, ignore_removed=True):
        for container in containers:
            with contextlib.suppress(NotFound, APIError):  # it is being removed already
                container.remove(force=True)
                removed.append(f"container {container.name} removed")
        if time.monotonic() > deadline:
            break  # who asks what is left is answered
        time.sleep(POLL_MS / 1000)  # noqa: TID251 - the harness is no node
    for network in client.networks.list(filters=wanted):
        with contextlib.suppress(NotFound, APIError):
            network.remove()
            removed.append(f"network {network.name} removed")
    return removed
