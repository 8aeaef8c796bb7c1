"""A real Apache Kafka: brokers and controllers of any release with KRaft as local processes, from plain jars, with ELR on where it has ELR.

The same addresses, relays, clients, faults and recordings as of replog's own processes; what differs is what a foreign system
does not report. Its metadata are observed by fetching the metadata log from its controllers as any broker does, so that ISR, ELR,
epochs and registrations are known with every change and in their order; its watermarks by ListOffsets and by what consumers
fetch; how a broker's previous incarnation ended by the file that it reads itself (`clusters/kafka/disk.py`). Not known, and left out of
the recording: watermarks and truncations as a node itself sees them, and the rare states that replog counts as probes.

Kafka cannot bind its outgoing side to an address: a relay would not know who calls. In a network namespace of its own the
kernel chooses the address for it, by a route's source hint; without namespaces faults on links are refused at plan time.
"""

import asyncio
from pathlib import Path
from typing import Final

from tribunal.clusters.api import ClusterError, ClusterSpec, ClusterState, Kind
from tribunal.clusters.assembly import Observation, System, composed, launched
from tribunal.clusters.capabilities import Capability
from tribunal.clusters.clock import RunClock
from tribunal.clusters.committed_records import CommittedRecords
from tribunal.clusters.composed_cluster import ComposedCluster
from tribunal.clusters.host_environment import HostEnvironment
from tribunal.clusters.kafka.disk import power_fail
from tribunal.clusters.kafka.events import KafkaEvents, KafkaMetadata
from tribunal.clusters.kafka.jars import held_versions, java_release, kafka_jars
from tribunal.clusters.kafka.jars import obstacles as obstacles_to_kafka
from tribunal.clusters.kafka.releases import KRAFT_SINCE, Release, release
from tribunal.clusters.kafka.software import KafkaSoftware
from tribunal.clusters.kinds.processes import leftovers, sweep
from tribunal.clusters.links.relays import Links
from tribunal.clusters.loopback import Loopback
from tribunal.clusters.maven_jars import NoJars
from tribunal.clusters.metadata import MetadataObserver, MetadataView
from tribunal.clusters.namespaces.network import InNamespaces
from tribunal.clusters.namespaces.spaces import obstacle, way_in
from tribunal.clusters.nodes.node_files import LocalFiles
from tribunal.clusters.obstacles import Obstacle
from tribunal.clusters.run_context import RunContext

LINK_CAPABILITIES: Final = frozenset(
    {Capability.CUT, Capability.SHAPE, Capability.RESET, Capability.HALF_OPEN, Capability.ADD_RULE}
)
# A foreign system can do only what was tried: a new capability is none of its own before it stands here.
CAPABILITIES: Final = LINK_CAPABILITIES | {
    *(Capability.START, Capability.STOP, Capability.KILL, Capability.PAUSE),
    *(Capability.WIPE, Capability.POWER_FAIL, Capability.DAMAGE),
    *(Capability.REASSIGN, Capability.SET_TOPIC_CONFIG, Capability.ELECT_PREFERRED, Capability.UNREGISTER),
}
LEAST: Final = {"log.segment.bytes": 1 << 20}  # KIP-1030
NO_PAIRS: Final = "Apache Kafka cannot bind its outgoing side, so that a relay would not know who calls; {}"
IN_NAMESPACES: Final = "Apache Kafka {}, processes in network namespaces"
ON_LOOPBACK: Final = "Apache Kafka {}, processes on loopback (no faults on links)"


def host_environment_for(spec: ClusterSpec) -> HostEnvironment:
    """Return where nodes are to live: in namespaces where the system lets us make them, unless the spec says otherwise."""
    if spec.isolation == "proxies" or isinstance(way_in(), str):
        return Loopback(ON_LOOPBACK.format(release(spec.version).name))
    return InNamespaces(IN_NAMESPACES.format(release(spec.version).name), routes_choose_source=True)


def kafka_cluster(run: RunContext, environment: HostEnvironment, links: Links, jars: Path) -> ComposedCluster:
    """Compose a cluster of Apache Kafka's nodes."""
    state = ClusterState()
    committed = CommittedRecords(state)
    view = MetadataView(committed, now_ns=run.clock.now_ns, wall_start_ms=run.clock.wall_start_ms)
    controllers = {node: links.endpoint(node) for node in run.spec.controller_ids}
    events = KafkaEvents(committed, run.data_dir, run.clock.now_ns)
    software = KafkaSoftware(run, environment, links, jars)
    system = System(
        software=software,
        files=LocalFiles(run, software, power_fail, controlled=()),
        events=events,
        observation=Observation(
            state=state,
            observer=MetadataObserver(
                view, controllers, run.cluster_id, fetch_version=release(run.spec.version).fetch_version
            ),
            metadata=KafkaMetadata(events),
        ),
    )
    return composed(run, environment, links, system, kind="apache-kafka", capabilities=CAPABILITIES)


async def launch(spec: ClusterSpec, directory: Path, clock: RunClock, cluster_id: str) -> ComposedCluster:
    """Start a cluster in this folder; whatever goes wrong, nothing of it stays running."""
    reason = refused(spec)
    if reason:
        raise ClusterError(reason)
    try:
        jars = await asyncio.to_thread(kafka_jars, release(spec.version).name)
    except NoJars as problem:
        raise ClusterError(str(problem)) from None
    run, environment = RunContext(spec, directory, clock, cluster_id), host_environment_for(spec)
    return await launched(run, environment, lambda links: kafka_cluster(run, environment, links, jars))


def refused(spec: ClusterSpec) -> str:
    """Return why Apache Kafka cannot be what is asked for; empty: it can."""
    if spec.mutants:
        return f"mutants are bugs of replog: {', '.join(spec.mutants)} cannot be switched on in Apache Kafka"
    try:
        chosen = release(spec.version)
    except ValueError as problem:
        return str(problem)
    return "Apache Kafka's ZooKeeper mode is not offered" if spec.is_zookeeper_mode else _unfit(chosen)


def _unfit(chosen: Release) -> str:
    if not chosen.has_kraft:
        since = ".".join(map(str, KRAFT_SINCE))
        return f"Apache Kafka {chosen.name} runs with ZooKeeper alone, and this kind runs it without: {since} and newer"
    java = java_release()
    if java is not None and java < chosen.java_least:
        return f"Apache Kafka {chosen.name} needs Java {chosen.java_least} or newer, and `java` is version {java}"
    return ""


def lacking() -> dict[Capability, str]:
    """Return which of the kind's capabilities this machine does not give, and why."""
    found = way_in()
    return dict.fromkeys(sorted(LINK_CAPABILITIES), NO_PAIRS.format(found)) if isinstance(found, str) else {}


def places() -> str:
    """Return where nodes live on this machine, and of which releases the jars are here: others are fetched when asked for."""
    place, held = host_environment_for(ClusterSpec()).place, held_versions()
    return f"{place}; jars are here of {', '.join(held)}" if held else place


def obstacles() -> list[Obstacle]:
    """Return why Apache Kafka cannot be run here."""
    comfort = obstacle()
    return [*obstacles_to_kafka(), *([] if comfort is None else [comfort])]


KIND: Final = Kind(
    launch=launch,
    capabilities=CAPABILITIES,
    least=LEAST,
    places=places,
    obstacles=obstacles,
    lacking=lacking,
    has_releases=True,
    refused=refused,
    leftovers=leftovers,
    sweep=sweep,
)
