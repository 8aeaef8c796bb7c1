"""Requests of brokers: registration, heartbeat, AlterPartition, producer ids.

Each refuses another incarnation than the registered one: a broker epoch that is not equal is stale
(KIP-380, KIP-903, SPEC 2.7.6).
"""

from typing import Final

from replog.config import Endpoint
from replog.controller import directories, fencing
from replog.controller.alter_partition import Altered, alter_partition
from replog.controller.authorization import BY_NODES
from replog.controller.controller_api import ControllerApi, Decided, Decider, by_image
from replog.controller.heartbeat import Beat, BrokerState, Session, Sessions, broker_state, next_state
from replog.controller.registration import Shutdown, register
from replog.controller.served_api import ServedApi
from replog.controller.turn import Turn
from replog.errors import Error
from replog.metadata import records as r
from replog.metadata.image import Image
from replog.metadata.state import CONTROLLERS_LEVEL, CORDONED_LEVEL, DIRECTORIES_LEVEL, Broker
from replog.types import BrokerEpoch, NodeId, TopicIdPartition
from replog.wire.messages import (
    allocate_producer_ids,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    controller_registration,
)
from replog.wire.messages import alter_partition as ap
from replog.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from replog.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from replog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from replog.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from replog.wire.messages.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse

PRODUCER_IDS_PER_BLOCK: Final = 1000


def on_registration(turn: Turn, sessions: Sessions, body: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
    """Register an incarnation of a broker."""
    broker_id = NodeId(body.broker_id)
    session_valid = sessions.is_valid(broker_id, turn.image.broker_epoch(broker_id), turn.now_ms)
    outcome = register(turn.policy, body, session_valid=session_valid, next_offset=turn.next_offset)
    if outcome.error is not Error.NONE:
        if outcome.error is Error.DUPLICATE_BROKER_REGISTRATION:
            turn.probe("duplicate_registration_refused")
        return BrokerRegistrationResponse(error_code=outcome.error)
    turn.append(outcome.records)
    if outcome.shutdown is not None:
        sessions.drop(broker_id)
        turn.probe("clean_registration" if outcome.shutdown is Shutdown.CLEAN else "unclean_registration")
        turn.emit(
            "registered",
            node=body.broker_id,
            broker_epoch=outcome.epoch,
            previous_broker_epoch=body.previous_broker_epoch,
            incarnation=str(body.incarnation_id),
        )
    return BrokerRegistrationResponse(broker_epoch=outcome.epoch)


def on_controller_registration(turn: Turn, body: ControllerRegistrationRequest) -> ControllerRegistrationResponse:
    """Note where a controller listens and what it supports (KIP-919)."""
    error, words = _controller_refusal(turn.image, body)
    if error is not Error.NONE:
        return ControllerRegistrationResponse(error_code=error, error_message=words)
    record = r.RegisterControllerRecord(
        controller_id=body.controller_id,
        incarnation_id=body.incarnation_id,
        zk_migration_ready=False,
        end_points=[
            r.ControllerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in body.listeners
        ],
        features=[
            r.ControllerFeature(
                name=f.name,
                min_supported_version=f.min_supported_version,
                max_supported_version=f.max_supported_version,
            )
            for f in body.features
        ],
    )
    turn.append([record])
    return ControllerRegistrationResponse(error_message=None)


def _controller_refusal(image: Image, body: ControllerRegistrationRequest) -> tuple[Error, str | None]:
    if image.metadata_version < CONTROLLERS_LEVEL:
        return Error.UNSUPPORTED_VERSION, "The metadata version has no registrations of controllers."
    if body.controller_id < 0 or not body.listeners:
        return Error.INVALID_REGISTRATION, "A controller has an id and a listener."
    if not all(Endpoint(one.host, one.port).is_usable for one in body.listeners):
        return Error.INVALID_REGISTRATION, "A listener has a host name or an address, and a port."
    if body.zk_migration_ready:
        return Error.INVALID_REGISTRATION, "There is no migration from ZooKeeper."
    supported = {feature.name: feature for feature in body.features}
    for name, level in sorted(image.features.items()):
        known = supported.get(name)
        if known is None or not known.min_supported_version <= level <= known.max_supported_version:
            return (
                Error.UNSUPPORTED_VERSION,
                f"Controller {body.controller_id} does not support level {level} of {name}.",
            )
    return Error.NONE, None


def current_incarnation(turn: Turn, broker_id: int, broker_epoch: int) -> Broker | None:
    """Return the broker if this very incarnation is registered; otherwise the request is refused."""
    broker = turn.image.brokers.get(NodeId(broker_id))
    if broker is None or broker.epoch != broker_epoch:
        turn.probe("stale_broker_epoch_refused")
        return None
    return broker


def on_heartbeat(
    turn: Turn, sessions: Sessions, body: BrokerHeartbeatRequest, received_ms: int
) -> BrokerHeartbeatResponse:
    """Prolong a broker's session, and let it be fenced, unfenced or stopped."""
    broker = current_incarnation(turn, body.broker_id, body.broker_epoch)
    if broker is None:
        return BrokerHeartbeatResponse(error_code=Error.STALE_BROKER_EPOCH)
    session = sessions.touch(broker.broker_id, broker.epoch, received_ms)
    session.metadata_offset = max(session.metadata_offset, body.current_metadata_offset)
    if turn.now_ms - received_ms > turn.policy.settings.heartbeat_interval_ms // 2:
        # The broker has given up on this one. It was contact, but decides nothing (SPEC 2.3.9).
        return BrokerHeartbeatResponse(error_code=Error.REQUEST_TIMED_OUT)
    beat = Beat(
        want_fence=body.want_fence or (bool(broker.log_dirs) and set(broker.log_dirs) <= set(body.offline_log_dirs)),
        want_shut_down=body.want_shut_down,
        caught_up=body.current_metadata_offset >= broker.epoch,
        has_leaderships=turn.image.leaders.count(broker.broker_id) > 0,
        shutdown_offset=session.shutdown_offset,
        lowest_active_offset=sessions.lowest_active_offset(turn.image),
    )
    if body.offline_log_dirs:
        _lose_directories(turn, broker, body)
        broker = turn.image.brokers[broker.broker_id]
    if _cordon(turn, broker, body):
        broker = turn.image.brokers[broker.broker_id]
    state = next_state(broker_state(broker), beat)
    _enter(turn, session, broker, state)
    if state is BrokerState.SHUTDOWN_NOW:
        sessions.drop(broker.broker_id)  # it may come back at once
    return BrokerHeartbeatResponse(
        is_caught_up=beat.caught_up,
        is_fenced=not turn.image.is_alive(broker.broker_id),
        should_shut_down=state is BrokerState.SHUTDOWN_NOW,
    )


def _cordon(turn: Turn, broker: Broker, body: BrokerHeartbeatRequest) -> bool:
    """Note which directories take no new replicas, where that has changed (KIP-1066); a broker that does not know of them says nothing."""
    if body.cordoned_log_dirs is None or turn.image.metadata_version < CORDONED_LEVEL:
        return False
    cordoned = [directory for directory in broker.log_dirs if directory in set(body.cordoned_log_dirs)]
    if set(cordoned) == set(broker.cordoned_log_dirs):
        return False
    change = r.BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.epoch, cordoned_log_dirs=cordoned
    )
    turn.append([change])
    return True


def _lose_directories(turn: Turn, broker: Broker, body: BrokerHeartbeatRequest) -> None:
    records = directories.fail(turn.policy, broker, body.offline_log_dirs)
    if records:
        turn.append(records)
        turn.probe("log_directory_lost")


def on_assign_replicas_to_dirs(turn: Turn, body: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
    """Note where a broker's replicas lie."""
    if turn.image.metadata_version < DIRECTORIES_LEVEL:
        return AssignReplicasToDirsResponse(error_code=Error.UNSUPPORTED_VERSION)
    broker = current_incarnation(turn, body.broker_id, body.broker_epoch)
    if broker is None:
        return AssignReplicasToDirsResponse(error_code=Error.STALE_BROKER_EPOCH)
    return directories.assign(turn, broker, body)


def _enter(turn: Turn, session: Session, broker: Broker, state: BrokerState) -> None:
    now = broker_state(broker)
    if state is BrokerState.CONTROLLED_SHUTDOWN:
        turn.append(fencing.enter_controlled_shutdown(turn.policy, broker))
        if session.shutdown_offset is None:
            # The last record of entering: whoever has replayed it leads what the broker gave up.
            session.shutdown_offset = turn.next_offset - 1
    elif state is BrokerState.UNFENCED and now is BrokerState.FENCED:
        turn.append(fencing.unfence(turn.policy, broker))
    elif state in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW) and now is not BrokerState.FENCED:
        turn.append(fencing.fence(turn.policy, broker))


def fence_one_silent_broker(turn: Turn, sessions: Sessions) -> NodeId | None:
    """Fence the unfenced broker that has been silent longest, if its session is over (SPEC 2.3.8)."""
    expired = sessions.expired(turn.image, turn.now_ms)
    if not expired:
        return None
    turn.append(fencing.fence(turn.policy, turn.image.brokers[expired[0]]))
    turn.probe("session_expired")
    return expired[0]


def fence_dead_broker(turn: Turn, sessions: Sessions, broker_id: NodeId, epoch: BrokerEpoch) -> bool:
    """Fence an incarnation whose process is gone; return whether there was anything to fence."""
    broker = turn.image.brokers.get(broker_id)
    if broker is None or broker.epoch != epoch or broker.fenced:
        return False
    sessions.drop(broker_id)  # who registers next need not wait for it to end
    turn.append(fencing.fence(turn.policy, broker))
    turn.probe("fenced_early")
    return True


def on_alter_partition(turn: Turn, body: ap.AlterPartitionRequest) -> ap.AlterPartitionResponse:
    """Decide on a leader's proposals, partition by partition."""
    sender = current_incarnation(turn, body.broker_id, body.broker_epoch)
    if sender is None:
        return ap.AlterPartitionResponse(error_code=Error.STALE_BROKER_EPOCH)
    return ap.AlterPartitionResponse(
        topics=[
            ap.AlterPartitionResponseTopicData(
                topic_name=topic.topic_name,
                topic_id=topic.topic_id,
                partitions=[_altered(turn, sender, topic, proposal) for proposal in topic.partitions],
            )
            for topic in body.topics
        ]
    )


def _altered(
    turn: Turn,
    sender: Broker,
    topic: ap.AlterPartitionRequestTopicData,
    proposal: ap.AlterPartitionRequestPartitionData,
) -> ap.AlterPartitionResponsePartitionData:
    if topic.topic_id not in turn.image.topics:
        outcome = Altered(Error.UNKNOWN_TOPIC_ID, None)
    else:
        key = TopicIdPartition(topic.topic_id, proposal.partition_index)
        outcome = alter_partition(turn.policy, sender.broker_id, key, proposal)
    if outcome.record is not None:
        turn.append([outcome.record])
    if outcome.error is Error.INELIGIBLE_REPLICA:
        turn.probe("ineligible_replica")
    if outcome.error is not Error.NONE:
        return ap.AlterPartitionResponsePartitionData(
            partition_index=proposal.partition_index, error_code=outcome.error
        )
    return _shown(turn.image, topic, proposal.partition_index)


def _shown(
    image: Image, topic: ap.AlterPartitionRequestTopicData, index: int
) -> ap.AlterPartitionResponsePartitionData:
    partition = image.topics[topic.topic_id].partitions[index]
    return ap.AlterPartitionResponsePartitionData(
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


def on_allocate_producer_ids(turn: Turn, body: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
    """Give a broker a block of producer ids that no other ever gets."""
    broker = current_incarnation(turn, body.broker_id, body.broker_epoch)
    if broker is None:
        return AllocateProducerIdsResponse(error_code=Error.STALE_BROKER_EPOCH)
    start = turn.image.next_producer_id
    record = r.ProducerIdsRecord(
        broker_id=broker.broker_id, broker_epoch=broker.epoch, next_producer_id=start + PRODUCER_IDS_PER_BLOCK
    )
    turn.append([record])
    return AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=PRODUCER_IDS_PER_BLOCK)


def _registration(decider: Decider, turn: Turn, body: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
    decider.recoveries.on_fenced(NodeId(body.broker_id))
    return on_registration(turn, decider.sessions, body)


def _heartbeat(decider: Decider, turn: Turn, body: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
    answer = on_heartbeat(turn, decider.sessions, body, turn.received_ms)
    if answer.is_fenced:
        decider.recoveries.on_fenced(NodeId(body.broker_id))
    return answer


BROKER_REGISTRATION: Final = ControllerApi(
    ServedApi(broker_registration.EXCHANGE, questions=BY_NODES), decide=_registration
)
BROKER_HEARTBEAT: Final = ControllerApi(ServedApi(broker_heartbeat.EXCHANGE, questions=BY_NODES), decide=_heartbeat)
CONTROLLER_REGISTRATION: Final = ControllerApi(
    ServedApi(controller_registration.EXCHANGE, questions=BY_NODES), decide=by_image(on_controller_registration)
)
ASSIGN_REPLICAS_TO_DIRS: Final = ControllerApi(
    ServedApi(assign_replicas_to_dirs.EXCHANGE, questions=BY_NODES), decide=by_image(on_assign_replicas_to_dirs)
)
ALTER_PARTITION: Final = ControllerApi(ServedApi(ap.EXCHANGE, questions=BY_NODES), decide=by_image(on_alter_partition))
ALLOCATE_PRODUCER_IDS: Final = ControllerApi(
    ServedApi(allocate_producer_ids.EXCHANGE, questions=BY_NODES), decide=by_image(on_allocate_producer_ids)
)
APIS: Final[tuple[Decided, ...]] = (
    BROKER_REGISTRATION,
    BROKER_HEARTBEAT,
    CONTROLLER_REGISTRATION,
    ASSIGN_REPLICAS_TO_DIRS,
    ALTER_PARTITION,
    ALLOCATE_PRODUCER_IDS,
)
