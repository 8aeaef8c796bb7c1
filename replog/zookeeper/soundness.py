"""What no controller would say: a control request is looked at before anything is done with it (SPEC 3.12).

A broker carries out control requests one after another, and what they say becomes folders, roles and the image that clients are
answered from. Whoever reaches the listener can send one. One that cannot be carried out is refused whole.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from replog.config import Endpoint
from replog.controller.topics import LEGAL_NAME
from replog.types import METADATA_TOPIC, NO_NODE, LeaderRecoveryState
from replog.wire.messages import leader_and_isr as li
from replog.wire.messages import stop_replica as sr
from replog.wire.messages import update_metadata as um
from replog.zookeeper.requests import DELETED, NO_EPOCH

ControlRequestBody = li.LeaderAndIsrRequest | sr.StopReplicaRequest | um.UpdateMetadataRequest
CONTROLLERS_AHEAD_MAX: Final = 1000  # that a broker missed; the quorum's epochs have the same bound
RECOVERY_STATES: Final = frozenset(int(one) for one in LeaderRecoveryState)


def fault_in(request: ControlRequestBody) -> str | None:
    """Return what is wrong with a control request, None where it can be carried out."""
    return next(_faults(request), None)


def _faults(request: ControlRequestBody) -> Iterator[str]:
    if request.controller_id < 0 or request.controller_epoch < 0:
        yield f"controller {request.controller_id} in epoch {request.controller_epoch}"
    match request:
        case li.LeaderAndIsrRequest():
            yield from _in_leader_and_isr(request)
        case sr.StopReplicaRequest():
            yield from _in_stop_replica(request)
        case um.UpdateMetadataRequest():
            yield from _in_update_metadata(request)


class _Places:
    """The partitions of a request: what becomes the names of folders, each once."""

    def __init__(self) -> None:
        self._named: set[tuple[str, int]] = set()

    def faults(self, topic: str, partition: int) -> Iterator[str]:
        """Look at the next one."""
        yield from _in_place(topic, partition)
        if (topic, partition) in self._named:
            yield f"{topic}-{partition} twice"
        self._named.add((topic, partition))


def _in_leader_and_isr(request: li.LeaderAndIsrRequest) -> Iterator[str]:
    places = _Places()
    for each in request.ungrouped_partition_states:
        yield from _in_state(places, each.topic_name, each)
    for topic in request.topic_states:
        for each in topic.partition_states:
            yield from _in_state(places, topic.topic_name, each)


def _in_state(places: _Places, topic: str, state: li.LeaderAndIsrPartitionState) -> Iterator[str]:
    yield from places.faults(topic, state.partition_index)
    yield from _in_replicas(state.replicas, state.isr)
    if state.leader < NO_NODE or state.leader_epoch < 0 or state.partition_epoch < 0:
        yield f"{topic}-{state.partition_index}: leader {state.leader}, leader epoch {state.leader_epoch}, partition epoch {state.partition_epoch}"
    if state.leader_recovery_state not in RECOVERY_STATES:
        yield f"{topic}-{state.partition_index}: leader recovery state {state.leader_recovery_state}"


def _in_stop_replica(request: sr.StopReplicaRequest) -> Iterator[str]:
    places = _Places()
    for single in request.ungrouped_partitions:
        yield from places.faults(single.topic_name, single.partition_index)
    for by_name in request.topics:
        for index in by_name.partition_indexes:
            yield from places.faults(by_name.name, index)
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield from places.faults(topic.topic_name, state.partition_index)
            if state.leader_epoch < DELETED:
                yield f"{topic.topic_name}-{state.partition_index}: leader epoch {state.leader_epoch}"


def _in_update_metadata(request: um.UpdateMetadataRequest) -> Iterator[str]:
    places = _Places()
    for each in request.ungrouped_partition_states:
        yield from _in_metadata(places, each.topic_name, each)
    for topic in request.topic_states:
        for each in topic.partition_states:
            yield from _in_metadata(places, topic.topic_name, each)
    for broker in request.live_brokers:
        points = [(each.host, each.port) for each in broker.endpoints] or [(broker.v0_host, broker.v0_port)]
        if broker.id < 0 or not all(Endpoint(host, port).is_usable for host, port in points):
            yield f"broker {broker.id} at {points[:3]}"


def _in_metadata(places: _Places, topic: str, state: um.UpdateMetadataPartitionState) -> Iterator[str]:
    yield from places.faults(topic, state.partition_index)
    if state.leader == DELETED:
        return
    yield from _in_replicas(state.replicas, state.isr)
    if state.leader < NO_NODE or state.leader_epoch < 0 or state.zk_version < NO_EPOCH:
        yield f"{topic}-{state.partition_index}: leader {state.leader}, leader epoch {state.leader_epoch}, version {state.zk_version}"


def _in_place(topic: str, partition: int) -> Iterator[str]:
    """Look at what becomes the name of a folder."""
    if topic in (".", "..", METADATA_TOPIC) or not LEGAL_NAME.fullmatch(topic):
        yield f"topic {topic[:300]!r}"
    if partition < 0:
        yield f"partition {partition}"


def _in_replicas(replicas: Iterable[int], isr: Iterable[int]) -> Iterator[str]:
    replicas, isr = list(replicas), list(isr)
    if not replicas or len({*replicas}) < len(replicas) or len({*isr}) < len(isr) or min(*replicas, *isr, 0) < 0:
        yield f"replicas {replicas[:10]}, ISR {isr[:10]}"
