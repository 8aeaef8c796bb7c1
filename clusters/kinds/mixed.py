"""Nodes of Apache Kafka among replog's in one cluster: local processes, brokers and controllers of both, the same faults and the same judge.

The spec says which nodes are Apache Kafka (`cluster.kafka`); all others are replog, as the kind `processes` runs them.
What only one of both systems can do is refused with the plan. Both write the same files, so that all final logs are read
alike. Of the recording, what a node itself sees (watermarks, truncations, probes) is of replog's nodes alone; registrations
are read off the committed metadata, whoever leads the controllers.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from replog.host.world import RealEntropy
from tribunal.clusters.api import ClusterError, ClusterSpec, ClusterState, Kind, Proof
from tribunal.clusters.assembly import Observation, System, composed, launched, observer_of
from tribunal.clusters.capabilities import Capability
from tribunal.clusters.clock import RunClock
from tribunal.clusters.committed_records import CommittedRecords
from tribunal.clusters.composed_cluster import ComposedCluster
from tribunal.clusters.host_environment import HostEnvironment
from tribunal.clusters.kafka.disk import power_fail as kafka_power_fail
from tribunal.clusters.kafka.events import KafkaMetadata, RegisteredEvents, Registrations
from tribunal.clusters.kafka.mixed_software import MixedSoftware
from tribunal.clusters.kafka.releases import DYNAMIC_VOTERS, KAFKA_ALONE, release
from tribunal.clusters.kafka.software import KafkaSoftware, Runtime, first_votes
from tribunal.clusters.kinds import apache_kafka
from tribunal.clusters.kinds.processes import leftovers, sweep
from tribunal.clusters.links.relays import Links
from tribunal.clusters.loopback import Loopback
from tribunal.clusters.namespaces.network import InNamespaces
from tribunal.clusters.namespaces.spaces import way_in
from tribunal.clusters.nodes.node_events import EventFile, FileEvents
from tribunal.clusters.nodes.node_files import LocalFiles
from tribunal.clusters.nodes.node_software import ReplogSoftware
from tribunal.clusters.nodes.on_host import power_fail as replog_power_fail
from tribunal.clusters.run_context import RunContext

# Of what was tried with both; replog's processes can do all of it.
CAPABILITIES: Final = apache_kafka.CAPABILITIES - {Capability.CHANGE_RELEASE} | {Capability.CHANGE_SYSTEM}
SINCE: Final = (4, 0, 0)  # the first that knows the metadata.version that replog's controllers begin with
BEGINS_AS: Final = release("4.0.0")  # whose metadata.version replog's controllers begin with, whoever is active first
RECOVERY_MANAGER: Final = "unclean.recovery.manager.enabled"


def host_environment_for(spec: ClusterSpec) -> HostEnvironment:
    """Return where nodes are to live: in namespaces where the system lets us make them, unless the spec says otherwise."""
    who = f"nodes {', '.join(map(str, spec.kafka))} Apache Kafka {release(spec.version).name}, the others replog"
    if spec.isolation == "proxies" or isinstance(way_in(), str):
        return Loopback(f"processes on loopback (no faults on links); {who}")
    return InNamespaces(f"processes in network namespaces; {who}", routes_choose_source=True)


def mixed_cluster(run: RunContext, environment: HostEnvironment, links: Links, runtime: Runtime) -> ComposedCluster:
    """Compose a cluster of both systems' nodes."""
    votes = first_votes(run.spec, RealEntropy().uuid)
    replog = ReplogSoftware(run, environment, links, lambda node: str(run.folder(node).resolve()), votes)
    kafka = KafkaSoftware(run, environment, links, runtime, run.spec.kafka, BEGINS_AS, votes)
    software = MixedSoftware(run, replog, kafka)
    nodes = run.spec.node_ids  # also those that begin as Apache Kafka: they may go over
    files = {node: EventFile(node, run.folder(node) / "events.jsonl", run.clock.at_ns) for node in nodes}
    state = ClusterState()
    committed = CommittedRecords(state)
    registrations = Registrations(committed, run.data_dir, run.clock.now_ns)
    seen = FileEvents(files, run.clock.now_ns, silent=software.kafka_nodes)
    system = System(
        software=software,
        files=LocalFiles(run, software, power_failure_of(run, software), controlled=nodes),
        events=RegisteredEvents(seen, registrations),
        observation=Observation(
            state=state,
            observer=observer_of(run, links, committed, fetch_version=release(run.spec.version).fetch_version),
            metadata=KafkaMetadata(registrations),
        ),
        systems=software,
    )
    can = CAPABILITIES - missing(run.spec).keys()  # a wiped controller whose vote is fixed has it again by its number
    return composed(run, environment, links, system, kind="mixed", capabilities=can)


def power_failure_of(run: RunContext, software: MixedSoftware) -> Callable[[Path], Proof]:
    """Return what takes from the disk in a node's folder what the system that it runs has not synced."""
    nodes = {run.folder(node): node for node in run.spec.node_ids}

    def fail(folder: Path) -> Proof:
        runs_kafka = nodes[folder] in software.kafka_nodes
        return kafka_power_fail(folder) if runs_kafka else replog_power_fail(folder)

    return fail


async def launch(spec: ClusterSpec, directory: Path, clock: RunClock, cluster_id: str) -> ComposedCluster:
    """Start a cluster in this folder; whatever goes wrong, nothing of it stays running."""
    reason = refused(spec) or ("" if spec.kafka else "none of its nodes is Apache Kafka (cluster.kafka)")
    if reason:
        raise ClusterError(reason)
    runtime = await asyncio.to_thread(apache_kafka.fetched, spec)
    run, environment = RunContext(spec, directory, clock, cluster_id), host_environment_for(spec)
    return await launched(run, environment, lambda links: mixed_cluster(run, environment, links, runtime))


def refused(spec: ClusterSpec) -> str:
    """Return why the two systems cannot be one cluster as it is asked for; empty: they can."""
    if foreign := sorted((KAFKA_ALONE - {DYNAMIC_VOTERS}) & spec.settings.keys()):
        return f"replog's nodes have no setting {foreign[0]}: it is for --cluster apache-kafka"
    if spec.is_zookeeper_mode:
        return "in ZooKeeper mode the two systems were never tried together: --mode kraft"
    if spec.settings.get(RECOVERY_MANAGER):
        return f"Apache Kafka's brokers do not report their log ends to controllers: leave {RECOVERY_MANAGER} off"
    if release(spec.version).numbers < SINCE:
        since = ".".join(map(str, SINCE))
        return (
            f"Apache Kafka {release(spec.version).name} does not know replog's metadata.version: {since} is the first"
        )
    return apache_kafka.refused(msgspec.structs.replace(spec, mutants=()))


def missing(spec: ClusterSpec) -> dict[Capability, str]:
    """Return which of the kind's capabilities a cluster of this spec does not have, and why."""
    return {} if spec.settings.get(DYNAMIC_VOTERS) else {Capability.REMOVE_VOTER: apache_kafka.FIXED_VOTERS}


def places() -> str:
    """Return where nodes live on this machine, and of which releases the jars are here."""
    return f"replog beside {apache_kafka.places()}"


KIND: Final = Kind(
    launch=launch,
    capabilities=CAPABILITIES,
    least=apache_kafka.LEAST,
    places=places,
    obstacles=apache_kafka.obstacles,
    lacking=apache_kafka.lacking,
    has_releases=True,
    is_mixed=True,
    refused=refused,
    missing=missing,
    prepare=apache_kafka.prepare,
    leftovers=leftovers,
    sweep=sweep,
)
