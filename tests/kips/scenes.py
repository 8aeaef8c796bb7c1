"""One partition and its brokers before an active controller, and what happens to them; used by the KIPs' tests."""

from typing import Any

from replog.broker.isr import BrokerView, LeaderState, PartitionState
from replog.controller.unclean_recovery import LogInfo
from replog.errors import Error
from replog.metadata.state import Partition
from replog.types import BrokerEpoch, LeaderEpoch, LeaderRecoveryState, NodeId, PartitionEpoch
from replog.wire.messages import alter_partition as ap
from replog.wire.messages import alter_partition_reassignments as apr
from replog.wire.messages import broker_heartbeat as hb
from replog.wire.messages import broker_registration as br
from replog.wire.messages import incremental_alter_configs as iac
from tests.cases.controllers import Box, incarnation, registration
from tests.cases.partitions import TOPIC, TOPIC_ID, partition
from tests.identities import an_identity

NOW_MS = 1_000_000


def a_cluster(
    state: dict[str, Any],
    *,
    fenced: tuple[int, ...] = (),
    elr: bool = True,
    brokers: tuple[int, ...] = (),
    metadata_version: int = 25,
    **settings: Any,
) -> Box:
    """An active controller with one partition; broker n has epoch 100 + n and is unfenced unless named."""
    values = {"min_insync_replicas": 2, "session_timeout_ms": 10**9} | settings
    box = Box(**values).features(elr=elr, metadata_version=metadata_version)
    for broker_id in sorted({*state["replicas"], *brokers}):
        box.broker(broker_id, fenced=broker_id in fenced)
    box.topic(partition(state))
    box.stand_at(1000)
    return box.activate()


def lists(state: Partition) -> tuple[list[int], list[int], list[int]]:
    """ISR, ELR and last known ELR, each ascending."""
    return sorted(state.isr), sorted(state.elr), sorted(state.last_known_elr)


def fence(box: Box, broker_id: int) -> Partition:
    """Let the broker fall silent for longer than its session."""
    broker = box.image.brokers[NodeId(broker_id)]
    box.controller.sessions.touch(broker.broker_id, broker.epoch, 0).last_contact_ms = -(10**10)
    box.tick()
    return box.partition()


def beat(box: Box, broker_id: int, *, epoch: int | None = None, **wishes: bool) -> hb.BrokerHeartbeatResponse:
    """A heartbeat of a broker that has seen all metadata."""
    answer: hb.BrokerHeartbeatResponse = box.send(
        hb.BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=box.image.broker_epoch(NodeId(broker_id)) if epoch is None else epoch,
            current_metadata_offset=box.offset,
            **wishes,
        )
    )
    return answer


def unfence(box: Box, broker_id: int) -> Partition:
    beat(box, broker_id)
    return box.partition()


def register(box: Box, broker_id: int, *, clean: bool, process: int = 1) -> br.BrokerRegistrationResponse:
    """A new incarnation of the broker, whose last one left a clean-shutdown file or not."""
    box.controller.sessions.drop(NodeId(broker_id))
    previous = box.image.broker_epoch(NodeId(broker_id)) if clean else -1
    answer: br.BrokerRegistrationResponse = box.send(
        registration(broker_id, incarnation_id=incarnation(9000 + 100 * process + broker_id), previous_epoch=previous)
    )
    return answer


def propose(
    box: Box,
    isr: list[int],
    *,
    recovery: int = 0,
    epochs: dict[int, int] | None = None,
    sender_epoch: int | None = None,
    **fields: Any,
) -> Error:
    """The leader proposes an ISR; return the error at the top or of the partition."""
    state = box.partition()
    proposal = {
        "partition_index": 0,
        "leader_epoch": state.leader_epoch,
        "partition_epoch": state.partition_epoch,
        "leader_recovery_state": recovery,
        "new_isr_with_epochs": [
            ap.BrokerState(broker_id=node, broker_epoch=(epochs or {}).get(node, box.image.broker_epoch(NodeId(node))))
            for node in isr
        ],
    }
    answer: ap.AlterPartitionResponse = box.send(
        ap.AlterPartitionRequest(
            broker_id=state.leader,
            broker_epoch=box.image.broker_epoch(state.leader) if sender_epoch is None else sender_epoch,
            topics=[
                ap.AlterPartitionRequestTopicData(
                    topic_id=TOPIC_ID, partitions=[ap.AlterPartitionRequestPartitionData(**(proposal | fields))]
                )
            ],
        )
    )
    if answer.error_code is not Error.NONE:
        return Error(answer.error_code)
    return Error(answer.topics[0].partitions[0].error_code)


def reassign(box: Box, target: list[int] | None) -> Error:
    wanted = apr.ReassignablePartition(partition_index=0, replicas=target)
    topics = [apr.ReassignableTopic(name=TOPIC, partitions=[wanted])]
    answer: apr.AlterPartitionReassignmentsResponse = box.send(apr.AlterPartitionReassignmentsRequest(topics=topics))
    return Error(answer.responses[0].partitions[0].error_code)


def set_topic(box: Box, name: str, value: str) -> None:
    config = iac.AlterableConfig(name=name, config_operation=0, value=value)
    resource = iac.AlterConfigsResource(resource_type=2, resource_name=TOPIC, configs=[config])
    answer = box.send(iac.IncrementalAlterConfigsRequest(resources=[resource]))
    assert answer.responses[0].error_code is Error.NONE


def log_info(
    *, broker_epoch: int = 101, current: int = 4, last: int = 3, end: int = 10, error: Error = Error.NONE
) -> LogInfo:
    return LogInfo(
        broker_epoch=BrokerEpoch(broker_epoch),
        current_leader_epoch=LeaderEpoch(current),
        last_written_leader_epoch=LeaderEpoch(last),
        log_end_offset=end,
        error=error,
    )


def a_leader(
    *,
    isr: tuple[int, ...] = (1, 2),
    end: int = 100,
    high_watermark: int = 50,
    min_isr: int = 2,
    recovery: int = 0,
    brokers: dict[int, BrokerView] | None = None,
) -> LeaderState:
    """Broker 1 leads replicas 1, 2 and 3 in epoch 5; broker n has epoch 100 + n; members stand at the watermark."""
    views = {node: BrokerView(epoch=BrokerEpoch(100 + node), fenced=False, shutting_down=False) for node in (1, 2, 3)}
    leader = LeaderState(
        state=PartitionState(
            leader=NodeId(1),
            leader_epoch=LeaderEpoch(5),
            partition_epoch=PartitionEpoch(7),
            replicas=(NodeId(1), NodeId(2), NodeId(3)),
            isr=tuple(NodeId(node) for node in isr),
            recovery=LeaderRecoveryState(recovery),
        ),
        identity=an_identity(101),
        brokers={NodeId(node): view for node, view in (views | (brokers or {})).items()},
        min_insync_replicas=min_isr,
        log_end_offset=end,
        high_watermark=high_watermark,
        epoch_start_offset=0,
        lag_ms_max=30_000,
        now_ms=NOW_MS,
    )
    for member in isr:
        if member != 1:
            leader.followers[NodeId(member)].log_end_offset = high_watermark
            leader.followers[NodeId(member)].broker_epoch = BrokerEpoch(100 + member)
    return leader


def fetch(leader: LeaderState, replica: int, offset: int, *, broker_epoch: int | None = None) -> list[Any]:
    """A follower's fetch at the leader."""
    return list(
        leader.on_fetch(
            replica=NodeId(replica),
            fetch_offset=offset,
            log_start_offset=0,
            broker_epoch=BrokerEpoch(100 + replica if broker_epoch is None else broker_epoch),
            now_ms=NOW_MS,
        )
    )
