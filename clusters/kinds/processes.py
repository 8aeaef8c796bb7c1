"""The embedded default: every node a process of this machine, in network namespaces or on loopback addresses of its own.

Nodes' data lies in the run's folder; what nodes print goes to `logs/<node>.log`. Everything that lives outside the files ends
with the harness: relays are its own sockets, processes ask the kernel to end with their parent.
"""

from pathlib import Path
from typing import Final

from tribunal.clusters.api import Kind
from tribunal.clusters.assembly import launched, replog_cluster
from tribunal.clusters.capabilities import SECURED, Capability
from tribunal.clusters.clock import RunClock
from tribunal.clusters.composed_cluster import CAPABILITIES, ComposedCluster
from tribunal.clusters.host_environment import HostEnvironment
from tribunal.clusters.links.addresses import taken_address
from tribunal.clusters.loopback import Loopback
from tribunal.clusters.namespaces.network import InNamespaces
from tribunal.clusters.namespaces.spaces import obstacle, way_in
from tribunal.clusters.nodes.leftovers import end_processes, node_processes, own_processes
from tribunal.clusters.obstacles import Obstacle
from tribunal.clusters.run_context import RunContext
from tribunal.clusters.secured.authority import obstacle as no_certificates
from tribunal.clusters.spec import ClusterSpec


def host_environment_for(spec: ClusterSpec) -> HostEnvironment:
    """Return where nodes are to live: in namespaces where the system lets us make them, unless the spec says otherwise."""
    if spec.isolation == "proxies" or (spec.isolation == "auto" and isinstance(way_in(), str)):
        return Loopback()
    return InNamespaces()


async def launch(spec: ClusterSpec, directory: Path, clock: RunClock, cluster_id: str) -> ComposedCluster:
    """Start a cluster in this folder; whatever goes wrong, nothing of it stays running."""
    run, environment = RunContext(spec, directory, clock, cluster_id), host_environment_for(spec)
    return await launched(
        run,
        environment,
        lambda links: replog_cluster(run, environment, links, kind="processes", capabilities=CAPABILITIES),
    )


def lacking() -> dict[Capability, str]:
    """Return which of the kind's capabilities this machine does not give, and why."""
    found = way_in()
    return {Capability.MOUNT_DISK: found} if isinstance(found, str) else {}


def places() -> str:
    """Return where nodes live on this machine unless a run says otherwise."""
    return host_environment_for(ClusterSpec()).place


def obstacles() -> list[Obstacle]:
    """Return why local processes cannot be run here."""
    taken = taken_address([1, 101], 0)
    if taken is None:
        comfort = obstacle()
        return [] if comfort is None else [comfort]
    remedy = "use --cluster containers, or give the loopback interface 127.0.1.0/24 and 127.0.2.0/24"
    return [Obstacle(reason=f"cannot bind {taken}", remedy=remedy)]


def refused(spec: ClusterSpec) -> str:
    """Return why a cluster cannot be secured here."""
    return no_certificates() if spec.security else ""


def missing(spec: ClusterSpec) -> dict[Capability, str]:
    """Return which of the kind's capabilities a cluster of this spec does not have."""
    return {} if spec.security else dict.fromkeys(sorted(SECURED), "--set cluster.security=sasl_ssl has it")


def leftovers(run_dir: Path) -> list[str]:
    """Return what a run of this folder has left: processes; its relays' sockets ended with the harness."""
    return [f"process {pid}" for pid in own_processes(run_dir)]


def sweep(run_dir: Path) -> list[str]:
    """End what a run of this folder has left; return what was done."""
    own = own_processes(run_dir)
    foreign = [pid for pid in node_processes(run_dir) if pid not in own]
    words = "names this folder, but nothing proves that the run started it: left alone"
    return end_processes(own) + [f"process {pid} {words}" for pid in foreign]


KIND: Final = Kind(
    launch=launch,
    capabilities=CAPABILITIES,
    can_be_secured=True,
    refused=refused,
    missing=missing,
    places=places,
    obstacles=obstacles,
    lacking=lacking,
    leftovers=leftovers,
    sweep=sweep,
)
