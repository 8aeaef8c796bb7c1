"""How a cluster is put together: the parts that all kinds share, around those that a kind's module gives.

A kind of cluster says where its nodes live (`HostEnvironment`) and what runs there (`System`). The relays are opened
first, because every other part needs to know the addresses.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from tribunal.clusters.api import ClusterState, TopicPartition
from tribunal.clusters.capabilities import Capability
from tribunal.clusters.clients.administration import Administration
from tribunal.clusters.clients.confluent import ConfluentClients
from tribunal.clusters.clients.list_offsets import Leader, Leaders
from tribunal.clusters.clients.membership import Membership
from tribunal.clusters.clock import moment_s
from tribunal.clusters.committed_records import CommittedRecords
from tribunal.clusters.composed_cluster import ComposedCluster, MetadataSource, Observer, Parts, Releases, Systems
from tribunal.clusters.endings import brought_up, to_its_end
from tribunal.clusters.host_environment import HostEnvironment
from tribunal.clusters.kafka.releases import release
from tribunal.clusters.links.answers import ClientAnswers
from tribunal.clusters.links.link_faults import LinkFaults
from tribunal.clusters.links.relays import Links
from tribunal.clusters.metadata import MetadataObserver, MetadataView
from tribunal.clusters.nodes import on_host
from tribunal.clusters.nodes.mounts import MountedDisks
from tribunal.clusters.nodes.node_events import EventFile, FileEvents, NodeEvents
from tribunal.clusters.nodes.node_exits import NodeExits
from tribunal.clusters.nodes.node_files import LocalFiles, NodeFiles
from tribunal.clusters.nodes.node_software import NodeSoftware, ReplogSoftware, replog_nodes
from tribunal.clusters.run_context import RunContext
from tribunal.clusters.secured.door import OPEN, Door
from tribunal.clusters.secured.secured_operation import SecuredOperation
from tribunal.clusters.zookeeper.ensemble import ZnodeObserver
from tribunal.clusters.zookeeper.znode_view import ZnodeView

Compose = Callable[[Links], ComposedCluster]

FETCH_VERSION: Final = 17  # of replog's controllers


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """Who follows the committed metadata, and what is known of them."""

    state: ClusterState
    observer: Observer
    metadata: MetadataSource


class System(msgspec.Struct, frozen=True, kw_only=True):
    """The system whose nodes make up a cluster: its software, its files, what is seen of it."""

    software: NodeSoftware
    files: NodeFiles
    events: NodeEvents
    observation: Observation
    releases: Releases | None = None
    systems: Systems | None = None


async def launched(run: RunContext, environment: HostEnvironment, compose: Compose) -> ComposedCluster:
    """Open the environment, compose a cluster there and bring it up; whatever goes wrong, nothing of it stays."""
    try:
        cluster = compose(await environment.open(run))
    except BaseException:
        await to_its_end(environment.close())
        raise
    return await brought_up(cluster)


def replog_cluster(
    run: RunContext, environment: HostEnvironment, links: Links, *, kind: str, capabilities: frozenset[Capability]
) -> ComposedCluster:
    """Compose a cluster of replog's nodes whose files lie in the run's folder."""
    nodes = replog_nodes(run.spec)
    software = ReplogSoftware(run, environment, links, lambda node: str(run.folder(node).resolve()))
    files = {node: EventFile(node, run.folder(node) / "events.jsonl", run.clock.at_ns) for node in nodes}
    system = System(
        software=software,
        files=LocalFiles(run, software, on_host.power_fail, controlled=nodes),
        events=FileEvents(files, run.clock.now_ns),
        observation=observed(run, links),
    )
    return composed(run, environment, links, system, kind=kind, capabilities=capabilities)


def observed(run: RunContext, links: Links) -> Observation:
    """Observe the controllers' metadata log, or the ensemble's znodes."""
    state = ClusterState()
    committed = CommittedRecords(state)
    observer = observer_of(run, links, committed, fetch_version=FETCH_VERSION)
    return Observation(state=state, observer=observer, metadata=committed)


def observer_of(run: RunContext, links: Links, committed: CommittedRecords, *, fetch_version: int) -> Observer:
    """Return who follows the controllers' metadata log, or the ensemble's znodes."""
    endpoints = {node: links.endpoint(node) for node in run.spec.controller_ids}
    if run.spec.is_zookeeper_mode:
        connect = ",".join(f"{host}:{port}" for host, port in endpoints.values())
        return ZnodeObserver(ZnodeView(committed, run.clock.now_ns, run.clock.wall_start_ms), connect)
    view = MetadataView(committed, now_ns=run.clock.now_ns, wall_start_ms=run.clock.wall_start_ms)
    return MetadataObserver(view, endpoints, run.cluster_id, fetch_version=fetch_version, door=door_of(run))


def composed(
    run: RunContext,
    environment: HostEnvironment,
    links: Links,
    system: System,
    *,
    kind: str,
    capabilities: frozenset[Capability],
) -> ComposedCluster:
    """Compose a cluster of a system's nodes in this environment."""
    spec, state = run.spec, system.observation.state
    exits = NodeExits(system.events)
    answers = ClientAnswers(lambda: state.topic_ids, moment_s)
    links.listener = answers.listener
    nodes = {
        node: environment.node(
            node,
            system.software.program(node),
            system.software.config(node),
            run.log_file(node),
            partial(exits.note, node),
        )
        for node in spec.node_ids
    }
    administration = Administration(
        lambda: {broker: links.endpoint(broker) for broker in spec.broker_ids}, door_of(run)
    )
    parts = Parts(
        kind=kind,
        capabilities=capabilities,
        environment=environment,
        software=system.software,
        nodes=nodes,
        files=system.files,
        mounts=MountedDisks(
            environment.mounting,
            lambda node: run.folder(node).resolve(),
            while_running=environment.mounts_while_running,
        ),
        events=system.events,
        exits=exits,
        links=links,
        link_faults=LinkFaults(links),
        requests=run.requests,
        state=state,
        observer=system.observation.observer,
        releases=system.releases,
        systems=system.systems,
        metadata=system.observation.metadata,
        clients=ConfluentClients(
            [links.advertised(broker) for broker in spec.broker_ids],
            committed_leaders(state, links),
            answers,
            administration,
            list_offsets_version=release(spec.version).list_offsets_version,
            security=run.security,
        ),
        administration=administration,
        membership=Membership(administration),
        answers=answers,
        secured=None
        if run.security is None
        else SecuredOperation(run.security, administration, {node: links.endpoint(node) for node in spec.node_ids}),
    )
    return ComposedCluster(run, parts)


def door_of(run: RunContext) -> Door:
    """Return how the harness gets in at nodes' listeners."""
    return OPEN if run.security is None else run.security.administrator


def committed_leaders(state: ClusterState, links: Links) -> Leaders:
    """Return what finds a partition's committed leader, and where it is reached."""

    def leader(partition: TopicPartition) -> Leader | None:
        known = state.partitions.get(partition)
        if known is None or known.leader < 0:
            return None
        return Leader(known.leader, links.advertised(known.leader), known.leader_epoch)

    return leader
