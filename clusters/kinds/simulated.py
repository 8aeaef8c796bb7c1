"""The simulator: the same nodes, clients and faults on one deterministic loop in virtual time."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from tribunal.clusters.api import Kind
from tribunal.clusters.capabilities import OF_SIMULATOR
from tribunal.clusters.clock import RunClock
from tribunal.clusters.spec import ClusterSpec

if TYPE_CHECKING:
    from tribunal.clusters.simulated.cluster import SimulatedCluster


async def launch(spec: ClusterSpec, directory: Path, clock: RunClock, cluster_id: str) -> "SimulatedCluster":
    """Start a cluster in the simulation whose loop is running (see `cluster.launch`)."""
    # Imported here: who wants only a simulated disk should not have to load all of replog.
    from tribunal.clusters.simulated import cluster

    return await cluster.launch(spec, directory, clock, cluster_id)


KIND: Final = Kind(launch=launch, capabilities=OF_SIMULATOR, is_simulated=True)
