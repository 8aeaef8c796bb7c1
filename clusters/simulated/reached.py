"""Which abstract states a simulated run came to, and at which events: the coverage that a search is led by.

An observer of the simulation: it looks after an event in which nodes sent a message that does not flow all the time, or reported something, and
it changes nothing (the trace hash is the same with and without it). What it notes are words, each with the moment of its first time:

    partition I= I= L= isr>min                                  a shape (`abstract_state.py`)
    alter_partition request @ partition I= L= O< isr=min grows  an event, and a shape that it met
    create_topics ordered @ partition ...                       an operator's act under way
"""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from replog.wire.apis import Api
from tribunal.clusters.api import CLIENTS
from tribunal.clusters.capabilities import Fate
from tribunal.clusters.links.requests import FLOWING
from tribunal.clusters.simulated.abstract_state import coordinators_shape, partition_seen, quorum_shape
from tribunal.clusters.simulated.cluster import SimulatedCluster
from tribunal.clusters.simulated.frames import Frame
from tribunal.clusters.simulated.process import NS_PER_MS
from tribunal.clusters.simulated.world import ReportedEvent, Simulation

# Sent all the time, whatever happens.
REGULAR: Final = FLOWING | {
    int(api)
    for api in (
        Api.BROKER_HEARTBEAT,
        Api.HEARTBEAT,
        Api.CONSUMER_GROUP_HEARTBEAT,
        Api.LIST_OFFSETS,
        Api.FIND_COORDINATOR,
    )
}
OF_QUORUM: Final = frozenset(
    int(api)
    for api in (
        *(Api.VOTE, Api.BEGIN_QUORUM_EPOCH, Api.END_QUORUM_EPOCH, Api.FETCH_SNAPSHOT),
        *(Api.ADD_RAFT_VOTER, Api.REMOVE_RAFT_VOTER, Api.UPDATE_RAFT_VOTER, Api.CONTROLLER_REGISTRATION),
    )
)
OF_COORDINATORS: Final = frozenset(
    int(api)
    for api in (
        *(Api.JOIN_GROUP, Api.SYNC_GROUP, Api.LEAVE_GROUP, Api.OFFSET_COMMIT, Api.OFFSET_FETCH),
        *(Api.INIT_PRODUCER_ID, Api.ADD_PARTITIONS_TO_TXN, Api.ADD_OFFSETS_TO_TXN, Api.END_TXN),
        *(Api.WRITE_TXN_MARKERS, Api.TXN_OFFSET_COMMIT, Api.ALLOCATE_PRODUCER_IDS),
    )
)
# What only operators ask for.
OPERATORS: Final = frozenset(
    int(api)
    for api in (
        *(Api.CREATE_TOPICS, Api.DELETE_TOPICS, Api.DELETE_RECORDS, Api.CREATE_PARTITIONS, Api.ELECT_LEADERS),
        *(Api.ALTER_CONFIGS, Api.INCREMENTAL_ALTER_CONFIGS, Api.ALTER_PARTITION_REASSIGNMENTS),
        *(Api.ALTER_REPLICA_LOG_DIRS, Api.DELETE_GROUPS, Api.OFFSET_DELETE, Api.UPDATE_FEATURES),
        *(Api.UNREGISTER_BROKER, Api.ADD_RAFT_VOTER, Api.REMOVE_RAFT_VOTER, Api.ELECT_DESIGNATED_LEADERS),
    )
)
REPORTS_OF_QUORUM: Final = frozenset({"quorum_leader", "controller_active", "controller_resigned"})
ALL_EVERY_NS: Final = (
    20 * NS_PER_MS
)  # shapes that no event concerns are looked at so often, or they would cost more than the run
UNDER_WAY_NS: Final = 3_000 * NS_PER_MS  # an order that was not answered until then is forgotten
NAMES: Final = {int(api): api.name.lower() for api in Api}


class Concerns(StrEnum):
    """Which shapes an event is paired with."""

    PARTITIONS = "partitions"
    QUORUM = "quorum"
    COORDINATORS = "coordinators"
    NOTHING = "nothing"


class Happened(NamedTuple):
    """An event, in words."""

    words: str
    concerns: Concerns


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """What a run came to.

    states:    words, each with the ms of virtual time at which it was first reached.
    requests:  how many requests of each API were sent, of those that do not flow all the time.
    """

    states: dict[str, int]
    requests: dict[str, int]


class ReachedStates:
    """Notes the states of one simulation; made before anything happens in it."""

    def __init__(self, simulation: Simulation) -> None:
        self._loop = simulation.loop
        self._simulation = simulation
        self._cluster: SimulatedCluster | None = None
        self._states: dict[str, int] = {}
        self._requests: Counter[str] = Counter()
        self._events: list[Happened] = []
        self._ordered: dict[tuple[int, int], tuple[str, int]] = {}  # by connection and correlation id: what, and when
        self._is_due = False
        self._all_due_ns = 0
        simulation.on_cluster = self._follow

    def reached(self) -> Reached:
        """Return what was reached up to now."""
        return Reached(states=dict(self._states), requests=dict(self._requests))

    def _follow(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        frames = self._simulation.network.frames
        note_before = frames.on_message

        def on_message(frame: Frame, fate: Fate) -> None:
            note_before(frame, fate)
            self._message(frame, fate)

        frames.on_message = on_message
        self._simulation.listeners.append(self._report)

    def _message(self, frame: Frame, fate: Fate) -> None:
        if frame.api in REGULAR and fate is Fate.DELIVERED:
            return
        name = NAMES.get(frame.api, "unknown")
        if frame.is_request and frame.api not in REGULAR:
            self._requests[name] += 1
        if frame.api in OPERATORS and frame.source == CLIENTS:
            self._ordered[frame.transport.number, frame.correlation_id] = (name, self._loop.now_ns)
        elif frame.api in OPERATORS and frame.target == CLIENTS:
            self._ordered.pop((frame.transport.peer.number, frame.correlation_id), None)
        words = f"{name} {'request' if frame.is_request else 'answer'}"
        self._happened(words if fate is Fate.DELIVERED else f"{words} {fate}", _concerns(frame.api))

    def _report(self, event: ReportedEvent) -> None:
        if event.name in REPORTS_OF_QUORUM:
            self._happened(event.name, Concerns.QUORUM)
        else:
            self._happened(event.name, Concerns.NOTHING if event.name == "high_watermark" else Concerns.PARTITIONS)

    def _happened(self, words: str, concerns: Concerns) -> None:
        self._events.append(Happened(words, concerns))
        if not self._is_due:
            self._is_due = True
            self._loop.after_event(self._look)

    def _look(self) -> None:
        """Note the shapes as they are now, and what happened in them."""
        self._is_due = False
        events, self._events = self._events, []
        cluster = self._cluster
        if cluster is None:
            return
        concerned = {event.concerns for event in events}
        if self._loop.now_ns >= self._all_due_ns:
            self._all_due_ns = self._loop.now_ns + ALL_EVERY_NS
            concerned |= {Concerns.PARTITIONS, Concerns.QUORUM}
        ordered = self._under_way()
        partitions: list[str] = []
        quorum: list[str] = []
        coordinators: list[str] = []
        if Concerns.PARTITIONS in concerned:
            partitions = list(self._partitions(cluster))
        if Concerns.QUORUM in concerned:
            controllers = [cluster.nodes[node] for node in cluster.spec.controller_ids]
            quorum = [str(quorum_shape(controllers, cluster.watch, cluster.committed.state.metadata_offset + 1))]
        if Concerns.COORDINATORS in concerned:
            coordinators = [str(coordinators_shape(cluster.nodes[node] for node in cluster.spec.broker_ids))]
        for shape in (*partitions, *quorum, *coordinators):
            self._note(shape)
            for what in ordered:
                self._note(f"{what} ordered @ {shape}")
        paired: dict[Concerns, list[str]] = {
            Concerns.PARTITIONS: partitions,
            Concerns.QUORUM: quorum,
            Concerns.COORDINATORS: coordinators,
            Concerns.NOTHING: [],
        }
        for event in dict.fromkeys(events):
            for shape in paired[event.concerns]:
                self._note(f"{event.words} @ {shape}")

    def _partitions(self, cluster: SimulatedCluster) -> Iterable[str]:
        """Return the shapes of all partitions, each once."""
        committed, watch = cluster.committed, cluster.watch
        shapes = {
            partition_seen(partition, now, committed=committed, watch=watch, nodes=cluster.nodes).shape(): None
            for partition, now in committed.state.partitions.items()
        }
        return map(str, shapes)

    def _under_way(self) -> list[str]:
        """Return what operators have ordered and were not answered."""
        if not self._ordered:
            return []
        since_ns = self._loop.now_ns - UNDER_WAY_NS
        self._ordered = {key: ordered for key, ordered in self._ordered.items() if ordered[1] >= since_ns}
        return list(dict.fromkeys(name for name, _ in self._ordered.values()))

    def _note(self, words: str) -> None:
        if words not in self._states:
            self._states[words] = self._loop.now_ns // NS_PER_MS


def _concerns(api: int) -> Concerns:
    if api in OF_QUORUM:
        return Concerns.QUORUM
    return Concerns.COORDINATORS if api in OF_COORDINATORS else Concerns.PARTITIONS
