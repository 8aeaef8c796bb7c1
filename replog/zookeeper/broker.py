"""A broker's part in control requests: which count, what each changes here, what is answered (KIP-380, KIP-704; SPEC 3.12).

LeaderAndIsr moves hosted partitions between roles, StopReplica ends them, UpdateMetadata is what clients are answered with; the last
becomes records in the image that a broker of KRaft mode has too, so that everything that reads it is the same.

A request to an earlier registration is refused whole and leaves no trace. The first LeaderAndIsr of a registration names all partitions
the broker hosts; only from then on may what it does not name be forgotten, high-watermark checkpoints included.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from replog.broker.identity import BrokerIdentity
from replog.broker.isr import PartitionState
from replog.broker.metadata import BrokerMetadata
from replog.controller.events import Probe
from replog.errors import Error
from replog.metadata import records as r
from replog.metadata.state import TOPIC_RESOURCE
from replog.types import (
    NO_BROKER_EPOCH,
    ZERO_UUID,
    BrokerEpoch,
    LeaderEpoch,
    LeaderRecoveryState,
    NodeId,
    PartitionEpoch,
    TopicIdPartition,
    TopicPartition,
)
from replog.wire.messages import leader_and_isr as li
from replog.wire.messages import stop_replica as sr
from replog.wire.messages import update_metadata as um
from replog.zookeeper import acceptance
from replog.zookeeper.acceptance import KnownEpochs
from replog.zookeeper.requests import DELETED, FULL, NO_EPOCH
from replog.zookeeper.soundness import CONTROLLERS_AHEAD_MAX, ControlRequestBody, fault_in

LISTENER: Final = "PLAINTEXT"


class Assign(NamedTuple):
    """Host the partition, or move it to this state."""

    key: TopicIdPartition
    name: TopicPartition
    state: PartitionState


class Rename(NamedTuple):
    """The topic's true id is known now: it was called by one made of its name."""

    topic: str
    topic_id: UUID


class GiveUp(NamedTuple):
    """Host the partition no more; its log stays unless `delete`."""

    name: TopicPartition
    delete: bool


class KeepOnly(NamedTuple):
    """Logs of partitions that are not among these belong to nobody."""

    names: tuple[TopicPartition, ...]


class Answer(NamedTuple):
    """Answer the request."""

    body: msgspec.Struct


LAST_EPOCH: Final = (1 << 31) - 1
ENDED_MAX: Final = 10_000  # replicas: a request that is older than so many ends is as unlikely as it is dear to know of
Effect = Assign | Rename | GiveUp | KeepOnly | Answer | Probe


class Ended(NamedTuple):
    """A replica that was ended, and the leader epoch of the order."""

    topic_id: UUID | None
    leader_epoch: int

    def is_older(self, topic_id: UUID, leader_epoch: int) -> bool:
        """Return whether a state of this leader epoch was written before the order."""
        return topic_id == self.topic_id and leader_epoch < self.leader_epoch


class ControlledBroker:
    """What one broker process makes of control requests."""

    def __init__(
        self,
        metadata: BrokerMetadata,
        identity: BrokerIdentity,
        hosted: Callable[[TopicPartition], PartitionState | None],
        hosted_id: Callable[[TopicPartition], UUID | None] = lambda _: None,
    ) -> None:
        """`hosted` gives the state of a partition that is hosted now, `hosted_id` its topic's id.

        topic_ids:  what ZooKeeper says, for requests that name none.
        """
        self.topic_ids: dict[str, UUID] = {}
        self.metadata = metadata
        self.node_id = metadata.node_id
        self.identity = identity
        self.controller_epoch = -1
        self.controller_id: NodeId = NodeId(-1)
        self.has_metadata = False
        self._complete_broker_epoch = (
            NO_BROKER_EPOCH  # the latest registration of which all hosted partitions have been named
        )
        self._complete_controller_epoch = -1  # the latest controller epoch in which they have been
        self._fully_informed_in = KnownEpochs(NO_BROKER_EPOCH, -1)  # the latest epochs that all metadata came in
        self._hosted = hosted
        self._hosted_id = hosted_id
        # Replicas that this registration was ordered to end, the oldest first.
        self._ended: dict[TopicPartition, Ended] = {}

    @property
    def is_complete(self) -> bool:
        """Return whether all partitions that this registration hosts have been named."""
        return self.identity.is_registered and self._complete_broker_epoch >= self.identity.broker_epoch

    @property
    def known_epochs(self) -> KnownEpochs:
        """What control requests are compared with."""
        return KnownEpochs(self.identity.broker_epoch, self.controller_epoch)

    def registered(self, broker_epoch: BrokerEpoch) -> None:
        """Take a new registration in ZooKeeper, the first or a later one of this process."""
        self.identity.broker_epoch = broker_epoch
        self.topic_ids.clear()  # topics may have been deleted since the last registration
        self._ended.clear()  # requests to the last one are stale by its epoch (KIP-380)

    def handle(self, request: ControlRequestBody) -> list[Effect]:
        """Take one control request; return what has to be done about it, in order."""
        error = acceptance.control_error(self.known_epochs, request.broker_epoch, request.controller_epoch)
        if error is not Error.NONE:
            probes = [Probe("stale_broker_epoch_refused")] if error is Error.STALE_BROKER_EPOCH else []
            return [*probes, Answer(refusal(request, error))]
        if fault_in(request) is not None or self._is_out_of_reach(request.controller_epoch):
            return [Probe("unsound_control_request_refused"), Answer(refusal(request, Error.INVALID_REQUEST))]
        self.controller_epoch = request.controller_epoch
        self.controller_id = NodeId(request.controller_id)
        match request:
            case li.LeaderAndIsrRequest():
                return self._on_leader_and_isr(request)
            case sr.StopReplicaRequest():
                return self._on_stop_replica(request)
            case um.UpdateMetadataRequest():
                return self._on_update_metadata(request)

    def _is_out_of_reach(self, controller_epoch: int) -> bool:
        """Return whether so many controllers cannot have been elected since the last that is known.

        Whoever reaches the listener could otherwise name the last epoch that there is, and every true controller would be stale.
        A broker that knows of none takes whatever epoch comes; so does one that starts again.
        """
        return self.controller_epoch >= 0 and controller_epoch > self.controller_epoch + CONTROLLERS_AHEAD_MAX

    # --- LeaderAndIsr ------------------------------------------------------------------------

    def _on_leader_and_isr(self, request: li.LeaderAndIsrRequest) -> list[Effect]:
        effects: list[Effect] = []
        errors: list[tuple[str, UUID, int, Error]] = []
        named: list[TopicPartition] = []
        for topic, topic_id, partition_state in _leader_and_isr_states(request):
            name = TopicPartition(topic, partition_state.partition_index)
            named.append(name)
            known_id, renaming = self._topic_id(topic, topic_id)
            effects += renaming
            error, assigned = self._assigned(TopicIdPartition(known_id, name.partition), name, partition_state)
            effects += assigned
            errors.append((topic, known_id, partition_state.partition_index, error))
        if self._names_all(request):
            self._complete_broker_epoch = max(self._complete_broker_epoch, BrokerEpoch(request.broker_epoch))
            self._complete_controller_epoch = request.controller_epoch
            effects.append(KeepOnly(tuple(named)))
        effects.append(Answer(_leader_and_isr_answer(errors)))
        return effects

    def _names_all(self, request: li.LeaderAndIsrRequest) -> bool:
        """Return whether the request surely names all that is hosted (SPEC 3.12.8): without an epoch nobody knows.

        It may come before the answer to our own registration (3.12.3); the next one is then no longer the first. So does
        the first of a new controller, which says so: the earlier one may have ended before it took from us what a
        reassignment moved away. Another copy of it may be late, and no longer name all.
        """
        if request.broker_epoch > self._complete_broker_epoch:
            return True
        return request.type == FULL and request.controller_epoch > self._complete_controller_epoch

    def _assigned(
        self, key: TopicIdPartition, name: TopicPartition, partition_state: li.LeaderAndIsrPartitionState
    ) -> tuple[Error, list[Effect]]:
        """Compare with the leader epoch that is lived in (SPEC 3.12.7)."""
        if self.node_id not in partition_state.replicas:
            return Error.UNKNOWN_TOPIC_OR_PARTITION, []
        state = _state(partition_state)
        known = self._hosted(name)
        if known is not None and not self._is_of_former_topic(key, name):
            if state.leader_epoch < known.leader_epoch:
                return Error.STALE_CONTROLLER_EPOCH, []
            # KIP-704, "Topic Partition Follower": "will not ignore request that have the same leader epoch". It has one leader, whoever says otherwise.
            is_same = state.recovery is known.recovery or state.leader != known.leader
            if state.leader_epoch == known.leader_epoch and is_same:
                return Error.NONE, []
        elif (ended := self._ended.get(name)) is not None and ended.is_older(key.topic_id, state.leader_epoch):
            return Error.STALE_CONTROLLER_EPOCH, []
        return Error.NONE, [Assign(key, name, state)]

    def _is_of_former_topic(self, key: TopicIdPartition, name: TopicPartition) -> bool:
        """Return whether what is hosted by this name is of a topic that is gone: then its leader epoch says nothing."""
        hosted, made = self._hosted_id(name), id_of_name(name.topic)
        return hosted not in (None, made, key.topic_id) and key.topic_id != made

    def _topic_id(self, topic: str, named: UUID) -> tuple[UUID, list[Effect]]:
        """Return the id to call a topic by: requests before 2.8 name none, then one is made of the name."""
        known = self.metadata.image.topics_by_name.get(topic)
        made = id_of_name(topic)
        true = self.topic_ids.get(topic) if named == ZERO_UUID else named
        if true is None:
            return (known.topic_id if known else made), []
        return true, [Rename(topic, true)] if true != made and known is not None and known.topic_id == made else []

    # --- StopReplica -------------------------------------------------------------------------

    def _on_stop_replica(self, request: sr.StopReplicaRequest) -> list[Effect]:
        effects: list[Effect] = []
        errors = []
        for name, leader_epoch, delete in _stopped(request):
            known = self._hosted(name)
            sentinel = leader_epoch in (NO_EPOCH, DELETED)
            if known is not None and not sentinel and leader_epoch < known.leader_epoch:
                error = Error.FENCED_LEADER_EPOCH
            else:
                error = Error.NONE
                effects.append(GiveUp(name, delete))
                self._remember_end(name, leader_epoch, known)
            partition_error = sr.StopReplicaPartitionError(
                topic_name=name.topic, partition_index=name.partition, error_code=error
            )
            errors.append(partition_error)
        effects.append(Answer(sr.StopReplicaResponse(partition_errors=errors)))
        return effects

    def _remember_end(self, name: TopicPartition, leader_epoch: int, known: PartitionState | None) -> None:
        """Keep in mind what a request of before would bring back: one may wait on a connection that broke, longer than the order to go.

        Only of a topic with an id: one that is made again by the same name begins with its own leader epochs.
        """
        topic_id = self._hosted_id(name)
        if topic_id in (None, id_of_name(name.topic)):
            return
        if leader_epoch == DELETED:
            leader_epoch = LAST_EPOCH
        elif leader_epoch == NO_EPOCH:
            leader_epoch = NO_EPOCH if known is None else known.leader_epoch
        self._ended.pop(name, None)
        self._ended[name] = Ended(topic_id, leader_epoch)
        if len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]

    # --- UpdateMetadata ----------------------------------------------------------------------

    def _on_update_metadata(self, request: um.UpdateMetadataRequest) -> list[Effect]:
        effects: list[Effect] = []
        records: list[r.MetadataRecord] = list(self._broker_records(request))
        deleted: dict[str, None] = {}
        image = self.metadata.image
        new: dict[str, UUID] = {}
        for topic, topic_id, partition_state in _metadata_states(request):
            if partition_state.leader == DELETED:
                deleted[topic] = None
                continue
            known_id, renaming = self._topic_id(topic, topic_id)
            effects += renaming
            known = image.topics_by_name.get(topic)
            if topic not in new and (known is None or known.topic_id != known_id):
                settings = self._settings(topic)
                if known is not None:
                    records.append(r.RemoveTopicRecord(topic_id=known.topic_id))
                records.append(r.TopicRecord(name=topic, topic_id=known_id))
                records += settings  # they come from ZooKeeper, and went with the earlier id
            new[topic] = known_id
            records.append(_partition_record(known_id, partition_state))
        if self._is_full_update(request):
            deleted |= {topic: None for topic in image.topics_by_name if topic not in new}
        for topic in deleted:
            known = image.topics_by_name.get(topic)
            if known is not None:
                records.append(r.RemoveTopicRecord(topic_id=known.topic_id))
        self.metadata.replay(list(enumerate(records, start=image.last_offset + 1)))
        self.has_metadata = True
        return [*effects, Answer(um.UpdateMetadataResponse())]

    def _is_full_update(self, request: um.UpdateMetadataRequest) -> bool:
        """Return whether this is the first in a broker or controller epoch: what it does not name was deleted meanwhile."""
        before = self._fully_informed_in
        self._fully_informed_in = KnownEpochs(
            max(before.broker_epoch, BrokerEpoch(request.broker_epoch)),
            max(before.controller_epoch, request.controller_epoch),
        )
        return self._fully_informed_in != before

    def _settings(self, topic: str) -> list[r.ConfigRecord]:
        values = self.metadata.image.configs.get((TOPIC_RESOURCE, topic), {})
        return [
            r.ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic, name=name, value=value)
            for name, value in values.items()
        ]

    def _broker_records(self, request: um.UpdateMetadataRequest) -> Iterator[r.MetadataRecord]:
        alive = {NodeId(broker.id): broker for broker in request.live_brokers}
        for node in sorted(self.metadata.image.brokers):
            if node not in alive:
                yield r.UnregisterBrokerRecord(broker_id=node, broker_epoch=NO_BROKER_EPOCH)
        for _, broker in sorted(alive.items()):
            yield _registration(broker)


def topics_without_id(request: ControlRequestBody) -> list[str]:
    """Return the topics that a request names without their ids, as requests before 2.8 do."""
    match request:
        case li.LeaderAndIsrRequest():
            return list(dict.fromkeys(t for t, topic_id, _ in _leader_and_isr_states(request) if topic_id == ZERO_UUID))
        case um.UpdateMetadataRequest():
            return list(dict.fromkeys(t for t, topic_id, _ in _metadata_states(request) if topic_id == ZERO_UUID))
        case sr.StopReplicaRequest():
            return []


def id_of_name(topic: str) -> UUID:
    """Return the id that stands for a topic while its true one is unknown: the same on every broker."""
    return UUID(bytes=hashlib.sha256(topic.encode()).digest()[:16], version=5)


def _state(sent: li.LeaderAndIsrPartitionState) -> PartitionState:
    return PartitionState(
        leader=NodeId(sent.leader),
        leader_epoch=LeaderEpoch(sent.leader_epoch),
        partition_epoch=PartitionEpoch(sent.partition_epoch),
        replicas=tuple(NodeId(node) for node in sent.replicas),
        isr=tuple(NodeId(node) for node in sent.isr),
        recovery=LeaderRecoveryState(sent.leader_recovery_state),
    )


def _leader_and_isr_states(
    request: li.LeaderAndIsrRequest,
) -> Iterator[tuple[str, UUID, li.LeaderAndIsrPartitionState]]:
    for each in request.ungrouped_partition_states:
        yield each.topic_name, ZERO_UUID, each
    for topic in request.topic_states:
        for each in topic.partition_states:
            yield topic.topic_name, topic.topic_id, each


def _metadata_states(
    request: um.UpdateMetadataRequest,
) -> Iterator[tuple[str, UUID, um.UpdateMetadataPartitionState]]:
    for each in request.ungrouped_partition_states:
        yield each.topic_name, ZERO_UUID, each
    for topic in request.topic_states:
        for each in topic.partition_states:
            yield topic.topic_name, topic.topic_id, each


def _stopped(request: sr.StopReplicaRequest) -> Iterator[tuple[TopicPartition, int, bool]]:
    for single in request.ungrouped_partitions:
        yield TopicPartition(single.topic_name, single.partition_index), NO_EPOCH, request.delete_partitions
    for by_name in request.topics:
        for index in by_name.partition_indexes:
            yield TopicPartition(by_name.name, index), NO_EPOCH, request.delete_partitions
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield TopicPartition(topic.topic_name, state.partition_index), state.leader_epoch, state.delete_partition


def _leader_and_isr_answer(errors: list[tuple[str, UUID, int, Error]]) -> li.LeaderAndIsrResponse:
    """Return an answer that can go out in any version: by topic id, and one by one."""
    grouped: dict[UUID, list[li.LeaderAndIsrPartitionError]] = {}
    flat = []
    for topic, topic_id, index, error in errors:
        partition_error = li.LeaderAndIsrPartitionError(topic_name=topic, partition_index=index, error_code=error)
        flat.append(partition_error)
        grouped.setdefault(topic_id, []).append(partition_error)
    return li.LeaderAndIsrResponse(
        partition_errors=flat,
        topics=[
            li.LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=group) for topic_id, group in grouped.items()
        ],
    )


def _partition_record(topic_id: UUID, sent: um.UpdateMetadataPartitionState) -> r.PartitionRecord:
    return r.PartitionRecord(
        partition_id=sent.partition_index,
        topic_id=topic_id,
        replicas=sent.replicas,
        isr=sent.isr,
        leader=sent.leader,
        leader_epoch=sent.leader_epoch,
        partition_epoch=sent.zk_version,
    )


def _registration(broker: um.UpdateMetadataBroker) -> r.RegisterBrokerRecord:
    """Return a live broker as the image knows brokers; UpdateMetadata does not carry the epochs of others."""
    points = [
        r.BrokerEndpoint(name=each.listener or LISTENER, host=each.host, port=each.port, security_protocol=0)
        for each in broker.endpoints
    ] or [r.BrokerEndpoint(name=LISTENER, host=broker.v0_host, port=broker.v0_port, security_protocol=0)]
    return r.RegisterBrokerRecord(
        broker_id=broker.id, broker_epoch=NO_BROKER_EPOCH, end_points=points, rack=broker.rack, fenced=False
    )


def refusal(request: ControlRequestBody, error: Error) -> msgspec.Struct:
    """Return the answer to a control request that is refused, whole."""
    match request:
        case li.LeaderAndIsrRequest():
            return li.LeaderAndIsrResponse(error_code=error)
        case sr.StopReplicaRequest():
            return sr.StopReplicaResponse(error_code=error)
        case um.UpdateMetadataRequest():
            return um.UpdateMetadataResponse(error_code=error)
