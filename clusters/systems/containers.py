"""Nodes of a described system in containers of one image: each with an address of its own in a network of the run's.

A node's address belongs to a container beside it that does nothing and stays when the node is killed, so that cuts of its links stay (`container_links.py`).
The node's folder, the logs and the folder of system.toml (read only) are bound in under the paths that they have here. A node's container is made
once and started again; what it writes beside {data} stays in it. Clients are on this machine, and reach the containers through the
engine's bridge. Everything carries the run's label: what a killed harness leaves is found by it.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tribunal.clusters.api import CLIENTS, ClusterError, Unsupported
from tribunal.clusters.endings import to_its_end
from tribunal.clusters.images.build import LABEL, engine
from tribunal.clusters.images.builder import Wanted
from tribunal.clusters.images.half_images import remove_half
from tribunal.clusters.images.waiting import BUILD_LOG, had_image
from tribunal.clusters.links.addresses import FIRST_PORT
from tribunal.clusters.links.relays import connected
from tribunal.clusters.nodes.node_container import GATEWAY, SHELL_ENTRY, NodeContainer, made_network, named, remove_all
from tribunal.clusters.nodes.node_process import POLL_MS
from tribunal.clusters.nodes.node_program import NodeProgram
from tribunal.clusters.run_context import RunContext
from tribunal.clusters.systems.container_links import ContainerNetworks, in_containers, lacking
from tribunal.clusters.systems.description import Addresses, Elsewhere, System
from tribunal.clusters.systems.links import LocalProbes, SystemLinks
from tribunal.clusters.systems.places import Fetching, RunningNode, addresses_of, emptied_here
from tribunal.clusters.systems.ways import Streams, Ways

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

ANYBODY_WRITES: Final = 0o777  # an image may run as any user
SEEN_MS: Final = 2_000
# Waits for input that never comes.
KEEPS_NETWORK: Final = ("sh", "-c", "while read -r line; do :; done")


class Look(msgspec.Struct, frozen=True, rename="pascal"):
    """A command in a container, as the engine tells of it; its process leads a session of its own."""

    running: bool
    exit_code: int | None = None
    pid: int = 0


class InContainers:
    """A place; implements `tribunal.clusters.systems.places.Place`."""

    words = "containers"
    fetching: Fetching | None = None  # data folders are bound in

    def __init__(self, image: str | Path) -> None:
        self._given = image  # its name, or a Dockerfile
        self._image = ""
        self._client: DockerClient | None = None
        self._directory = Path()
        self._folder = Path()
        self._network = ""
        self._addresses: Addresses | None = None
        self._keepers: dict[int, Container] = {}  # of the nodes' networks
        self._containers: dict[int, Container] = {}
        self._nodes: dict[int, NodeContainer] = {}
        self._networks: ContainerNetworks | None = None
        self._links: SystemLinks | None = None
        self._ways = Ways()

    @property
    def links(self) -> SystemLinks:
        """The links, once open; refuse where nobody can cut them."""
        if self._links is None:
            raise Unsupported(f"nobody stops packets between its containers: {lacking()}")
        return self._links

    @property
    def client(self) -> "DockerClient":
        """The engine, once open."""
        if self._client is None:
            raise ClusterError("the container engine is not asked any more")
        return self._client

    async def open(self, run: RunContext, system: System, folder: Path) -> Addresses:
        """Have the image, and make the network."""
        self._directory = await asyncio.to_thread(run.directory.resolve)
        self._folder = folder
        self._client = await asyncio.to_thread(engine)
        self._image = await self._had_image(run)
        prefix, self._network = await asyncio.to_thread(made_network, self._client, self._directory)
        ports = {name: FIRST_PORT + number for number, name in enumerate(system.nodes.ports)}
        hosts = {node: f"{prefix}.{node}" for node in run.spec.broker_ids}
        there = Elsewhere(python="python3", folder=folder)
        self._addresses = addresses_of(run, folder, hosts, ports, elsewhere=dict.fromkeys(hosts, there))
        for node, host in hosts.items():
            self._keepers[node] = await asyncio.to_thread(self._kept, node, host)
        if not lacking():
            await self._open_links(hosts | {CLIENTS: f"{prefix}.{GATEWAY}"}, FIRST_PORT + len(ports))
        return self._addresses

    def _kept(self, node: int, host: str) -> "Container":
        """Make a node's network, and what keeps it."""
        from docker.errors import APIError
        from docker.types import EndpointConfig

        name = f"{named(self._directory)}-{node}-network"
        try:
            keeper = self.client.containers.create(
                self._image,
                entrypoint=list(KEEPS_NETWORK),
                name=name,
                init=True,  # else a signal from the engine does nothing
                stdin_open=True,
                network=self._network,
                networking_config={self._network: EndpointConfig(self.client.api.api_version, ipv4_address=host)},
                labels={LABEL: str(self._directory)},
            )
            keeper.start()
            keeper.reload()
        except APIError as problem:
            raise ClusterError(f"cannot make container {name}: {problem.explanation}") from None
        return keeper

    async def _open_links(self, hosts: Mapping[int, str], probe_port: int) -> None:
        pids = {node: int(keeper.attrs["State"]["Pid"]) for node, keeper in self._keepers.items()}
        self._networks = ContainerNetworks(pids)
        firewalls = in_containers(self._networks, hosts)
        await asyncio.to_thread(firewalls.open)
        self._links = SystemLinks(LocalProbes(self._networks), firewalls, hosts.__getitem__, probe_port=probe_port)
        await self._links.open([*hosts])

    async def _had_image(self, run: RunContext) -> str:
        log = run.directory / "logs" / BUILD_LOG
        if isinstance(self._given, str):
            wanted = Wanted(image=self._given, run_dir=str(self._directory), log=str(log))
        else:
            dockerfile = f"{self._given.relative_to(self._folder)}"
            wanted = Wanted(dockerfile=dockerfile, folder=str(self._folder), run_dir=str(self._directory), log=str(log))
        return await had_image(wanted, run.directory)

    def prefix(self, node: int) -> Sequence[str]:
        """Need none: clients are on this machine."""
        return ()

    async def connect(self, node: int, endpoint: tuple[str, int]) -> Streams:
        """Connect from within the node's own network; through the engine's bridge where that may not be entered, and nothing is cut."""
        if self._networks is None:
            return await asyncio.open_connection(*endpoint)
        sock = await connected(self._networks.outgoing(str(node)), endpoint, bound_to=None)
        return await asyncio.open_connection(sock=sock)

    async def reached(self, node: int, endpoint: tuple[str, int], *, past_cuts: bool) -> tuple[str, int]:
        """Return the port itself, which the engine's bridge leads to; past cuts of that a way from the node's own network."""
        if not past_cuts or self._networks is None:
            return endpoint
        return await self._ways.opened(partial(self.connect, node, endpoint))

    def node(
        self, run: RunContext, node: int, program: NodeProgram, addresses: Addresses, on_exit: Callable[[str], None]
    ) -> RunningNode:
        """Make its container."""
        log = run.log_file(node).resolve()
        command = program.command(run.folder(node), python="python3", java="java")
        self._containers[node] = self._made(node, f"{named(self._directory)}-{node}", command, log)
        self._nodes[node] = NodeContainer(node, program, self._containers[node], log, addresses.endpoint(node), on_exit)
        return self._nodes[node]

    def _made(self, node: int, name: str, command: Sequence[str], log: Path) -> "Container":
        from docker.errors import APIError

        assert self._addresses is not None
        data = self._addresses.data[node]
        # An engine makes a folder that is missing, as root: this user could write nothing there.
        for folder in (data, log.parent):
            folder.mkdir(parents=True, exist_ok=True)
        log.touch()
        for path in (data, log):
            path.chmod(ANYBODY_WRITES)
        volumes = {str(path): {"bind": str(path), "mode": "rw"} for path in (data.parent, log.parent)}
        volumes[str(self._folder)] = {"bind": str(self._folder), "mode": "ro"}
        try:
            return self.client.containers.create(
                self._image,
                list(command),
                entrypoint=["sh", "-c", SHELL_ENTRY, str(log)],
                name=name,
                init=True,  # else what was killed stays a zombie
                network_mode=f"container:{self._keepers[node].id}",
                volumes=volumes,
                labels={LABEL: str(self._directory)},
            )
        except APIError as problem:
            raise ClusterError(f"cannot make container {name}: {problem.explanation}") from None

    async def carried_out(self, node: int, command: list[str], log: Path, run_dir: Path) -> bool:
        """Run a command in a node's container, or while that is down in one of its own that is removed afterwards. Raises ClusterError.

        One that stops the node may be ended with it, and has done what it was for.
        """
        if self._nodes[node].alive:
            log = await asyncio.to_thread(_writable, log)
            try:
                is_well = await self._ended_well(node, ["sh", "-c", SHELL_ENTRY, str(log), *command])
            except ClusterError as problem:
                is_well = False
                with log.open("a") as file:
                    file.write(f"{problem}\n")
            return is_well or await self._has_ended(node)
        return await asyncio.to_thread(self._alone, node, command, log)

    def _alone(self, node: int, command: list[str], log: Path) -> bool:
        from docker.errors import APIError

        container = self._made(node, f"{named(self._directory)}-{node}-aside", command, log.resolve())
        try:
            container.start()
            return int(container.wait()["StatusCode"]) == 0
        except APIError as problem:
            raise ClusterError(f"node {node}: {' '.join(command)}: {problem.explanation}") from None
        finally:
            with contextlib.suppress(APIError):  # who gave up waiting has removed it
                container.remove(force=True)

    async def looks(self, node: int, command: list[str]) -> bool:
        """Run a command in a node's container; False where it does not run. Who gives up waiting has ended it, with its children."""
        if not self._nodes[node].alive:
            return False
        try:
            return await self._ended_well(node, command)
        except ClusterError:
            return False

    async def _ended_well(self, node: int, command: list[str]) -> bool:
        """Run a command in a node's container; no thread waits for its end. Raises ClusterError."""
        beginning = asyncio.create_task(asyncio.to_thread(self._begun, node, command))
        try:
            asked = await asyncio.shield(beginning)
            # Of an ended container the engine may go on to say that the command runs, or know nothing of it any more.
            while (look := await asyncio.to_thread(self._look, asked)).running and self._nodes[node].alive:  # noqa: ASYNC110 - only the engine knows
                await asyncio.sleep(POLL_MS / 1000)
        except asyncio.CancelledError:
            await to_its_end(self._ended(beginning))
            raise
        return look.exit_code == 0

    async def _has_ended(self, node: int) -> bool:
        """Return whether a node's container has ended; that it has is seen a little later than the end of what ran in it."""
        for _ in range(SEEN_MS // POLL_MS):
            if not self._nodes[node].alive:
                return True
            await asyncio.sleep(POLL_MS / 1000)
        return False

    async def _ended(self, beginning: "asyncio.Task[str]") -> None:
        with contextlib.suppress(ClusterError):  # it was never begun
            look = await asyncio.to_thread(self._look, await beginning)
            if look.running:  # the number of one that has ended may be anybody's
                await asyncio.to_thread(end_session, look.pid)

    def _begun(self, node: int, command: list[str]) -> str:
        from docker.errors import APIError

        try:
            asked: str = self.client.api.exec_create(self._containers[node].id, command)["Id"]
            self.client.api.exec_start(asked, detach=True)
        except APIError as problem:
            raise ClusterError(f"node {node}: {' '.join(command)}: {problem.explanation}") from None
        return asked

    def _look(self, asked: str) -> Look:
        from docker.errors import APIError

        try:
            return msgspec.convert(self.client.api.exec_inspect(asked), Look)
        except APIError as problem:
            raise ClusterError(f"a command in a container: {problem.explanation}") from None

    async def emptied(self, node: int, data: Path) -> tuple[int, bool]:
        """Empty its data folder, which lies on this machine; the image's user may write there again."""
        before, gone = await asyncio.to_thread(emptied_here, data)
        await asyncio.to_thread(data.chmod, ANYBODY_WRITES)
        return before, gone

    async def close(self) -> None:
        """Remove containers and network; the image stays."""
        await self._ways.close()
        if self._links is not None:
            await self._links.close()
        if self._networks is not None:
            self._networks.close()
        client, self._client = self._client, None
        if client is not None:
            await asyncio.to_thread(remove_all, client, self._directory)
            await asyncio.to_thread(remove_half, client, self._directory)
            client.close()


def _writable(log: Path) -> Path:
    """Return where a file of this machine lies that an image's user may write to."""
    log.touch()
    log.chmod(ANYBODY_WRITES)
    return log.resolve()


def end_session(leader: int) -> None:
    """Kill a process of this machine and its session; 0: there is none. Of other users' only root can."""
    with contextlib.suppress(OSError):  # it has ended, or is not ours to end
        if leader and os.getpgid(leader) == leader:
            os.killpg(leader, signal.SIGKILL)
        elif leader:
            os.kill(leader, signal.SIGKILL)
