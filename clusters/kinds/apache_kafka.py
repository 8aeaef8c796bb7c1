"""A real Apache Kafka: brokers and controllers of any release as local processes, from plain jars, with ELR on where it has ELR.

The same addresses, relays, clients, faults and recordings as of replog's own processes; what differs is what a foreign system
does not report. Its metadata are observed by fetching the metadata log from its controllers as any broker does, so that ISR, ELR,
epochs and registrations are known with every change and in their order; its watermarks by ListOffsets and by what consumers
fetch; how a broker's previous incarnation ended by the file that it reads itself (`clusters/kafka/disk.py`). In ZooKeeper mode
the znodes of a real ZooKeeper say what the metadata log says. Not known, and left out of the recording: watermarks and truncations as a node itself sees them, and the rare states that replog counts as probes.

Kafka cannot bind its outgoing side to an address: a relay would not know who calls. In a network namespace of its own the
kernel chooses the address for it, by a route's source hint; without namespaces faults on links are refused at plan time.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from tribunal.clusters.api import ClusterError, ClusterSpec, ClusterState, Kind
from tribunal.clusters.assembly import Observation, System, composed, launched, observer_of
from tribunal.clusters.capabilities import Capability
from tribunal.clusters.clock import RunClock
from tribunal.clusters.committed_records import CommittedRecords
from tribunal.clusters.composed_cluster import ComposedCluster
from tribunal.clusters.host_environment import HostEnvironment
from tribunal.clusters.kafka.disk import power_fail
from tribunal.clusters.kafka.events import KafkaMetadata, Registrations, seen_from_outside
from tribunal.clusters.kafka.jars import held_versions
from tribunal.clusters.kafka.jars import obstacles as obstacles_to_kafka
from tribunal.clusters.kafka.java import java_release, no_java_for, wheel_state
from tribunal.clusters.kafka.releases import (
    DYNAMIC_VOTERS,
    KRAFT_SINCE,
    ZOOKEEPER_MODE_LAST,
    Release,
    release,
)
from tribunal.clusters.kafka.software import KafkaSoftware, Runtime, runtime_of
from tribunal.clusters.kinds.processes import leftovers, sweep
from tribunal.clusters.links.relays import Links
from tribunal.clusters.loopback import Loopback
from tribunal.clusters.maven_jars import NoJars
from tribunal.clusters.namespaces.network import InNamespaces
from tribunal.clusters.namespaces.spaces import obstacle, way_in
from tribunal.clusters.nodes.node_files import LocalFiles
from tribunal.clusters.obstacles import Obstacle
from tribunal.clusters.run_context import RunContext
from tribunal.clusters.zookeeper.jars import class_path

LINK_CAPABILITIES: Final = frozenset(
    {Capability.CUT, Capability.SHAPE, Capability.RESET, Capability.HALF_OPEN, Capability.ADD_RULE}
)
# A foreign system can do only what was tried: a new capability is none of its own before it stands here.
CAPABILITIES: Final = LINK_CAPABILITIES | {
    *(Capability.START, Capability.STOP, Capability.KILL, Capability.PAUSE),
    *(Capability.WIPE, Capability.RESTORE_DISK, Capability.POWER_FAIL, Capability.DAMAGE),
    *(Capability.REASSIGN, Capability.SET_TOPIC_CONFIG, Capability.ELECT_PREFERRED, Capability.UNREGISTER),
    Capability.REMOVE_VOTER,
    *(Capability.CHANGE_RELEASE, Capability.RAISE_METADATA_VERSION),
}
LEAST: Final = {"log.segment.bytes": 1 << 20}  # KIP-1030
NO_PAIRS: Final = "Apache Kafka cannot bind its outgoing side, so that a relay would not know who calls; {}"
TOO_OLD: Final = "Apache Kafka {} takes no such request: {} was the first"
FIXED_VOTERS: Final = f"its voters are fixed by its configuration: --set cluster.settings.{DYNAMIC_VOTERS}=true"
IN_NAMESPACES: Final = "Apache Kafka {}, processes in network namespaces"
ON_LOOPBACK: Final = "Apache Kafka {}, processes on loopback (no faults on links)"


def host_environment_for(spec: ClusterSpec) -> HostEnvironment:
    """Return where nodes are to live: in namespaces where the system lets us make them, unless the spec says otherwise."""
    if spec.isolation == "proxies" or isinstance(way_in(), str):
        return Loopback(ON_LOOPBACK.format(release(spec.version).name))
    return InNamespaces(IN_NAMESPACES.format(release(spec.version).name), routes_choose_source=True)


def kafka_cluster(run: RunContext, environment: HostEnvironment, links: Links, runtime: Runtime) -> ComposedCluster:
    """Compose a cluster of Apache Kafka's nodes."""
    state = ClusterState()
    committed = CommittedRecords(state)
    registrations = Registrations(committed, run.data_dir, run.clock.now_ns)
    software = KafkaSoftware(run, environment, links, runtime, run.spec.node_ids)
    system = System(
        software=software,
        files=LocalFiles(run, software, power_fail, controlled=()),
        events=seen_from_outside(run.spec.node_ids, registrations, run.clock.now_ns),
        releases=software,
        observation=Observation(
            state=state,
            observer=observer_of(run, links, committed, fetch_version=release(run.spec.version).fetch_version),
            metadata=KafkaMetadata(registrations),
        ),
    )
    can = CAPABILITIES - missing(run.spec).keys()  # a wiped controller whose vote is fixed has it again by its number
    return composed(run, environment, links, system, kind="apache-kafka", capabilities=can)


async def launch(spec: ClusterSpec, directory: Path, clock: RunClock, cluster_id: str) -> ComposedCluster:
    """Start a cluster in this folder; whatever goes wrong, nothing of it stays running."""
    reason = refused(spec)
    if reason:
        raise ClusterError(reason)
    runtime = await asyncio.to_thread(fetched, spec)
    run, environment = RunContext(spec, directory, clock, cluster_id), host_environment_for(spec)
    return await launched(run, environment, lambda links: kafka_cluster(run, environment, links, runtime))


def fetched(spec: ClusterSpec) -> Runtime:
    """Return what the spec's release runs by, after fetching what is not here; `ClusterError` when that is impossible."""
    try:
        if spec.is_zookeeper_mode:
            class_path()
        return runtime_of(release(spec.version))
    except NoJars as problem:
        raise ClusterError(str(problem)) from None


def prepare(spec: ClusterSpec, releases: Sequence[str]) -> None:
    """Have the release here before a run begins, and the others that nodes come to run."""
    for version in dict.fromkeys([spec.version, *releases]):
        fetched(msgspec.structs.replace(spec, version=version))


def refused(spec: ClusterSpec) -> str:
    """Return why Apache Kafka cannot be what is asked for; empty: it can."""
    if spec.mutants:
        return f"mutants are bugs of replog: {', '.join(spec.mutants)} cannot be switched on in Apache Kafka"
    try:
        chosen = release(spec.version)
    except ValueError as problem:
        return str(problem)
    lacks = _lacks_mode(chosen, spec) or _lacks_voters(chosen, spec)
    return lacks or ("" if java_release() is None else no_java_for(chosen))


def _lacks_voters(chosen: Release, spec: ClusterSpec) -> str:
    if not spec.settings.get(DYNAMIC_VOTERS):
        return ""
    if spec.is_zookeeper_mode:
        return f"{DYNAMIC_VOTERS}: in ZooKeeper mode there are no voters of a metadata quorum"
    return "" if chosen.has_dynamic_voters else f"{DYNAMIC_VOTERS}: {TOO_OLD.format(chosen.name, '3.9')}"


def _lacks_mode(chosen: Release, spec: ClusterSpec) -> str:
    if spec.is_zookeeper_mode and not chosen.has_zookeeper:
        return f"Apache Kafka {chosen.name} has no ZooKeeper mode: {ZOOKEEPER_MODE_LAST} was the last that had it"
    if not (spec.is_zookeeper_mode or chosen.has_kraft):
        since = ".".join(map(str, KRAFT_SINCE))
        return f"Apache Kafka {chosen.name} runs with ZooKeeper alone, without it since {since}: --mode zookeeper"
    return ""


def missing(spec: ClusterSpec) -> dict[Capability, str]:
    """Return which of the kind's capabilities the spec's release does not have, and why."""
    chosen = release(spec.version)
    found: dict[Capability, str] = {}
    if not chosen.reassigns_on_request:
        found |= dict.fromkeys((Capability.REASSIGN, Capability.ELECT_PREFERRED), TOO_OLD.format(chosen.name, "2.4"))
    if not chosen.alters_single_settings:
        found[Capability.SET_TOPIC_CONFIG] = TOO_OLD.format(chosen.name, "2.3")
    if not spec.settings.get(DYNAMIC_VOTERS):
        found[Capability.REMOVE_VOTER] = FIXED_VOTERS
    if spec.is_zookeeper_mode:
        found[Capability.UNREGISTER] = "in ZooKeeper mode a registration ends with its session"
        found[Capability.CHANGE_RELEASE] = "in ZooKeeper mode an upgrade was never tried"
        found[Capability.RAISE_METADATA_VERSION] = "in ZooKeeper mode there is no metadata.version"
    return found


def lacking() -> dict[Capability, str]:
    """Return which of the kind's capabilities this machine does not give, and why."""
    found = way_in()
    return dict.fromkeys(sorted(LINK_CAPABILITIES), NO_PAIRS.format(found)) if isinstance(found, str) else {}


def places() -> str:
    """Return where nodes live on this machine, and of which releases the jars are here: others are fetched when asked for."""
    place, held = host_environment_for(ClusterSpec()).place, held_versions()
    jars = f"; jars are here of {', '.join(held)}" if held else ""
    return f"{place}{jars}; older than 2.6: {wheel_state()}"


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
    missing=missing,
    has_releases=True,
    refused=refused,
    prepare=prepare,
    leftovers=leftovers,
    sweep=sweep,
)
