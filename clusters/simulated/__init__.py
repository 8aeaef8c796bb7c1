"""The simulated world: the same nodes, clients and faults on one deterministic loop in virtual time."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from clusters.clock import RunClock
from clusters.spec import ClusterSpec

if TYPE_CHECKING:
    from clusters.simulated.cluster import SimulatedCluster

CAPABILITIES: Final = frozenset(
    {
        *("start", "stop", "kill", "pause", "wipe", "cut"),
        *("shape", "reset", "half_open", "add_rule", "power_fail", "damage", "set_clock", "trouble_disk"),
        *("mount_disk", "reassign", "set_topic_config", "elect_preferred", "unregister", "remove_voter"),
    }
)


async def launch(spec: ClusterSpec, directory: Path, clock: RunClock, cluster_id: str) -> "SimulatedCluster":
    """Start a cluster in the simulation whose loop is running (see `cluster.launch`)."""
    # Imported here: who wants only a simulated disk should not have to load all of replog.
    from clusters.simulated import cluster

    return await cluster.launch(spec, directory, clock, cluster_id)
