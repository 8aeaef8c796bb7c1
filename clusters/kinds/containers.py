"""Nodes in containers: one each with a static address in a network of the run's own, files bound in from the run's folder.

The same relays as for local processes, in the harness: node N has the subnet's address N, the relays listen on the
gateway's. So every fault on links and messages is the same here; signals go through the engine. Everything
carries the label `tribunal.run`: what a crashed run left is found by it, and nothing else is touched.

The engine has to be on this machine: the harness reads its network, its processes and the nodes' files.
"""

import asyncio
import contextlib
import errno
import os
import shutil
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tribunal.clusters.api import CLIENTS, ClusterError, ClusterSpec, Kind
from tribunal.clusters.assembly import launched, replog_cluster
from tribunal.clusters.capabilities import SECURED, Capability
from tribunal.clusters.clock import RunClock
from tribunal.clusters.composed_cluster import CAPABILITIES as ALL_CAPABILITIES
from tribunal.clusters.composed_cluster import ComposedCluster
from tribunal.clusters.images.build import LABEL, NoClient, engine
from tribunal.clusters.images.builder import Wanted
from tribunal.clusters.images.half_images import half_made, remove_half
from tribunal.clusters.images.waiting import BUILD_LOG, had_image
from tribunal.clusters.links.relay import Side, Wires
from tribunal.clusters.links.relays import Links, RelayListener, connect_far, connected, listener_at
from tribunal.clusters.nodes.mounts import below, mount_here, unmount_all
from tribunal.clusters.nodes.node_container import (
    GATEWAY,
    SHELL_ENTRY,
    NodeContainer,
    left_of,
    made_network,
    named,
    remove_all,
    socket_in_namespace_of,
)
from tribunal.clusters.nodes.node_program import NodeProgram
from tribunal.clusters.obstacles import Obstacle, with_tool
from tribunal.clusters.run_context import RunContext

if TYPE_CHECKING:
    from docker import DockerClient

CAPABILITIES: Final = ALL_CAPABILITIES - SECURED
NODE_PORT: Final = 9092
RELAY_PORT: Final = 30_000
LAST_NODE: Final = 199
REMEDY: Final = (
    with_tool(
        "ensure_docker.sh",
        "tools/ensure_docker.sh start (Debian: apt-get install docker.io iptables)",
        otherwise="apt-get install docker.io iptables, then systemctl start docker (where nothing starts services: dockerd)",
    )
    + "; a rootful Podman by DOCKER_HOST=unix:///run/podman/podman.sock; or --cluster processes"
)
CLIENT: Final = "pip install 'docker>=7' (the extra replog[containers])"
FORBIDDEN: Final = "let your user talk to it: sudo usermod -aG docker $USER, then log in again; or --cluster processes"
# What a container runs (where this machine's folders hide the image's Python, `SHELL_ENTRY`): its output goes to the run's log file, like any node's.
ENTRY: Final = (
    "import os, sys\n"
    "log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)\n"
    "os.dup2(log, 1); os.dup2(log, 2)\n"
    "os.execvp(sys.argv[2], sys.argv[2:])\n"
)


class ContainerAddresses:
    """Every node on its number in the subnet, all relays on the gateway."""

    def __init__(self, prefix: str, pid_of: Callable[[int], int | None]) -> None:
        self.prefix = prefix
        self._pid_of = pid_of

    def endpoint(self, node: int) -> tuple[str, int]:
        """Return where the node itself listens."""
        return f"{self.prefix}.{node}", NODE_PORT

    def advertised(self, node: int) -> tuple[str, int]:
        """Return where the node's relay listens."""
        return f"{self.prefix}.{GATEWAY}", RELAY_PORT + node

    def caller(self, host: str) -> int:
        """Return which node calls from this address."""
        prefix, _, number = host.rpartition(".")
        return int(number) if prefix == self.prefix and int(number) <= LAST_NODE else CLIENTS

    def listeners(self, node: int, links: Wires) -> Iterable[RelayListener]:
        """Return where the node's relay listens."""
        return [listener_at(links, self.advertised(node))]

    async def connect_relay(self, caller: int, target: int, far: Side, tls: ssl.SSLContext | None) -> None:
        """Connect from the address that the system chooses: the gateway."""
        await connect_far(far, self.endpoint(target), tls)

    async def connect_as(self, source: int, endpoint: tuple[str, int]) -> socket.socket:
        """Connect from within the node's network namespace."""
        pid = None if source == CLIENTS else self._pid_of(source)
        if source != CLIENTS and pid is None:
            raise OSError(f"node {source} is down")
        sock = socket.socket() if pid is None else await asyncio.to_thread(socket_in_namespace_of, pid)
        return await connected(sock, endpoint, bound_to=None)


class Containers:
    """Runs nodes in containers."""

    mounts_while_running = False  # what is mounted later does not reach a container
    place = "containers, link proxies on their network's gateway"

    def __init__(self) -> None:
        self._client: DockerClient | None = None
        self._links = Links({})
        self._network = ""
        self._nodes: dict[int, NodeContainer] = {}
        self._image = ""
        self._directory = Path()

    async def open(self, run: RunContext) -> Links:
        """Have an image, make a network, open the relays on its gateway."""
        # By the same name as `leftovers` and `sweep`, which look for it: a folder may be reached by a symbolic link.
        self._directory = await asyncio.to_thread(run.directory.resolve)
        self._client = await asyncio.to_thread(engine)
        log = run.directory / "logs" / BUILD_LOG
        self._image = await had_image(Wanted(run_dir=str(self._directory), log=str(log)), self._directory)
        prefix, self._network = await asyncio.to_thread(made_network, self._client, self._directory)
        addresses = ContainerAddresses(prefix, self._pid_of)
        self._links = Links(
            {node: RELAY_PORT + node for node in run.spec.node_ids},
            addresses,
            on_message=run.requests.note,
            zookeeper_nodes=run.spec.ensemble_ids,
        )
        try:
            await self._links.open()
        except OSError as problem:
            raise ClusterError(f"cannot listen on the network's gateway: {problem}") from None
        return self._links

    def _pid_of(self, node: int) -> int | None:
        found = self._nodes.get(node)
        return found.pid if found is not None and found.alive else None

    def node(
        self, node: int, program: NodeProgram, config: Path, log: Path, on_exit: Callable[[str], None]
    ) -> NodeContainer:
        """Make a container that is not started yet; what it needs of this machine is bound in, read only."""
        from docker.errors import APIError
        from docker.types import EndpointConfig

        assert self._client is not None
        # An engine makes a folder that is missing, as root: this user could write nothing there.
        for folder in (config.parent, log.parent):
            folder.mkdir(parents=True, exist_ok=True)
        config, log = config.resolve(), log.resolve()
        endpoint = self._links.endpoint(node)
        command = program.command(config, python="python3", java=os.path.realpath(shutil.which("java") or "java"))
        shared = program.needed_folders(command)
        entry = ["sh", "-c", SHELL_ENTRY] if shared else ["python3", "-c", ENTRY]
        volumes = {str(folder): {"bind": str(folder), "mode": "rw"} for folder in (config.parent, log.parent)}
        name = f"{named(self._directory)}-{node}"
        try:
            container = self._client.containers.create(
                self._image,
                [*entry, str(log), *command],
                name=name,
                init=True,  # else what was killed stays a zombie
                network=self._network,
                networking_config={
                    self._network: EndpointConfig(self._client.api.api_version, ipv4_address=endpoint[0])
                },
                volumes=volumes | {path: {"bind": path, "mode": "ro"} for path in shared},
                labels={LABEL: str(self._directory)},
            )
        except APIError as problem:
            raise ClusterError(f"cannot make container {name}: {problem.explanation}") from None
        self._nodes[node] = NodeContainer(node, program, container, log, endpoint, on_exit)
        return self._nodes[node]

    def listener(self, node: int) -> tuple[str, int]:
        """Return the container's own address."""
        return self._links.endpoint(node)

    def bind_host(self, node: int) -> str:
        """Leave it to the system: a container has one address."""
        return ""

    async def mounting(self, argv: Sequence[str]) -> str:
        """Mount on this machine: as root, in the run's folder."""
        return await asyncio.to_thread(mount_here, list(argv))

    async def close(self) -> None:
        """Remove containers and network; the image stays for the next run."""
        await self._links.close()
        client, self._client = self._client, None
        if client is not None:
            await asyncio.to_thread(remove_all, client, self._directory)
            await asyncio.to_thread(remove_half, client, self._directory)
            client.close()


def obstacles() -> list[Obstacle]:
    """Return why containers cannot be run here."""
    try:
        engine().close()
    except NoClient as problem:
        return [Obstacle(reason=str(problem), remedy=CLIENT)]
    except ClusterError as problem:
        remedy = FORBIDDEN if os.strerror(errno.EACCES) in str(problem) else REMEDY
        return [Obstacle(reason=str(problem), remedy=remedy)]
    return []


def leftovers(run_dir: Path) -> list[str]:
    """Return what a run of this folder has left."""
    with contextlib.closing(engine()) as client:
        return left_of(client, run_dir) + half_made(client, run_dir) + [f"mount {path}" for path in below(run_dir)]


def sweep(run_dir: Path) -> list[str]:
    """Remove what a run of this folder has left; return what was done."""
    with contextlib.closing(engine()) as client:
        return remove_all(client, run_dir) + remove_half(client, run_dir) + unmount_all(run_dir)


def lacking() -> dict[Capability, str]:
    """Return which of the kind's capabilities this machine does not give, and why."""
    return {} if os.geteuid() == 0 else {Capability.MOUNT_DISK: "mounting into containers takes root"}


async def launch(spec: ClusterSpec, directory: Path, clock: RunClock, cluster_id: str) -> ComposedCluster:
    """Start a cluster of containers; whatever goes wrong, nothing of it stays."""
    run, environment = RunContext(spec, directory, clock, cluster_id), Containers()
    return await launched(
        run,
        environment,
        lambda links: replog_cluster(run, environment, links, kind="containers", capabilities=CAPABILITIES),
    )


KIND: Final = Kind(
    launch=launch,
    capabilities=CAPABILITIES,
    obstacles=obstacles,
    lacking=lacking,
    leftovers=leftovers,
    sweep=sweep,
)
