"""Control requests in all their versions: how the controller says what it decided (KIP-380, KIP-704).

The version comes from `inter.broker.protocol.version`. Old ones repeat the topic's name with each partition and know neither
broker epochs nor topic ids.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from replog.metadata.state import Broker, Partition
from replog.types import BrokerEpoch, NodeId, TopicIdPartition
from replog.wire.apis import Api
from replog.wire.messages import leader_and_isr as li
from replog.wire.messages import stop_replica as sr
from replog.wire.messages import update_metadata as um
from replog.zookeeper.control_queue import ControlRequest
from replog.zookeeper.versions import ProtocolVersion

DELETED: Final = -2  # the leader, or leader epoch, of a partition that is being deleted
NO_EPOCH: Final = -1
INCREMENTAL, FULL = 1, 2
TOPICS_GROUPED: Final = {Api.LEADER_AND_ISR: 2, Api.UPDATE_METADATA: 5}
STOP_BY_TOPIC: Final = 1
STOP_BY_STATE: Final = 3


class Named(NamedTuple):
    """A partition with its topic's name."""

    topic: str
    key: TopicIdPartition
    partition: Partition


class Stopped(NamedTuple):
    """A replica that is to be given up."""

    topic: str
    partition: int
    leader_epoch: int
    delete: bool


class ControlRequests:
    """Makes one controller's requests in one controller epoch."""

    def __init__(self, controller_id: NodeId, controller_epoch: int, protocol: ProtocolVersion) -> None:
        self.controller_id = controller_id
        self.controller_epoch = controller_epoch
        self.protocol = protocol

    def leader_and_isr(
        self, broker_epoch: BrokerEpoch, states: Sequence[Named], brokers: Iterable[Broker], *, is_full: bool
    ) -> ControlRequest:
        """Say who leads; `is_full`: these are all partitions that the broker has replicas of."""
        version = self.protocol.of(Api.LEADER_AND_ISR)
        grouped: dict[str, list[li.LeaderAndIsrPartitionState]] = {}
        ids = {named.topic: named.key.topic_id for named in states}
        for named in states:
            grouped.setdefault(named.topic, []).append(self._leader_and_isr_state(named))
        by_topic = version >= TOPICS_GROUPED[Api.LEADER_AND_ISR]
        leaders = {named.partition.leader for named in states}
        body = li.LeaderAndIsrRequest(
            controller_id=self.controller_id,
            controller_epoch=self.controller_epoch,
            broker_epoch=broker_epoch,
            type=FULL if is_full else INCREMENTAL,
            ungrouped_partition_states=[] if by_topic else [each for group in grouped.values() for each in group],
            topic_states=[
                li.LeaderAndIsrTopicState(topic_name=topic, topic_id=ids[topic], partition_states=group)
                for topic, group in grouped.items()
            ]
            if by_topic
            else [],
            live_leaders=[
                li.LeaderAndIsrLiveLeader(
                    broker_id=broker.broker_id, host_name=broker.endpoints[0].host, port=broker.endpoints[0].port
                )
                for broker in brokers
                if broker.broker_id in leaders
            ],
        )
        return ControlRequest(body=body, version=version)

    def _leader_and_isr_state(self, named: Named) -> li.LeaderAndIsrPartitionState:
        partition = named.partition
        return li.LeaderAndIsrPartitionState(
            topic_name=named.topic,
            partition_index=named.key.partition,
            controller_epoch=self.controller_epoch,
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
            isr=list(partition.isr),
            partition_epoch=partition.partition_epoch,
            replicas=list(partition.replicas),
            adding_replicas=list(partition.adding_replicas),
            removing_replicas=list(partition.removing_replicas),
            is_new=partition.partition_epoch == 0,
            leader_recovery_state=int(partition.leader_recovery_state),
        )

    def update_metadata(
        self, broker_epoch: BrokerEpoch, states: Sequence[Named], deleted: Sequence[Named], brokers: Sequence[Broker]
    ) -> ControlRequest:
        """Return the UpdateMetadata request: what clients will be answered with."""
        version = self.protocol.of(Api.UPDATE_METADATA)
        grouped: dict[str, list[um.UpdateMetadataPartitionState]] = {}
        ids = {named.topic: named.key.topic_id for named in (*states, *deleted)}
        alive = {broker.broker_id for broker in brokers}
        for named in states:
            grouped.setdefault(named.topic, []).append(self._metadata_state(named, alive, named.partition.leader))
        for named in deleted:
            grouped.setdefault(named.topic, []).append(self._metadata_state(named, alive, DELETED))
        by_topic = version >= TOPICS_GROUPED[Api.UPDATE_METADATA]
        body = um.UpdateMetadataRequest(
            controller_id=self.controller_id,
            controller_epoch=self.controller_epoch,
            broker_epoch=broker_epoch,
            ungrouped_partition_states=[] if by_topic else [each for group in grouped.values() for each in group],
            topic_states=[
                um.UpdateMetadataTopicState(topic_name=topic, topic_id=ids[topic], partition_states=group)
                for topic, group in grouped.items()
            ]
            if by_topic
            else [],
            live_brokers=[_live(broker) for broker in brokers],
        )
        return ControlRequest(body=body, version=version)

    def _metadata_state(self, named: Named, alive: set[NodeId], leader: int) -> um.UpdateMetadataPartitionState:
        partition = named.partition
        return um.UpdateMetadataPartitionState(
            topic_name=named.topic,
            partition_index=named.key.partition,
            controller_epoch=self.controller_epoch,
            leader=leader,
            leader_epoch=partition.leader_epoch,
            isr=list(partition.isr),
            zk_version=partition.partition_epoch,
            replicas=list(partition.replicas),
            offline_replicas=[node for node in partition.replicas if node not in alive],
        )

    def stop_replica(self, broker_epoch: BrokerEpoch, stopped: Sequence[Stopped]) -> list[ControlRequest]:
        """Say which replicas are to be given up; before version 3 one request deletes or none of it does."""
        version = self.protocol.of(Api.STOP_REPLICA)
        if version >= STOP_BY_STATE:
            return [self._stop_by_state(broker_epoch, stopped, version)]
        kinds = [[each for each in stopped if each.delete is delete] for delete in (False, True)]
        return [self._stop_by_topic(broker_epoch, kind, version) for kind in kinds if kind]

    def _stop_by_state(self, broker_epoch: BrokerEpoch, stopped: Sequence[Stopped], version: int) -> ControlRequest:
        grouped: dict[str, list[sr.StopReplicaPartitionState]] = {}
        for each in stopped:
            state = sr.StopReplicaPartitionState(
                partition_index=each.partition, leader_epoch=each.leader_epoch, delete_partition=each.delete
            )
            grouped.setdefault(each.topic, []).append(state)
        body = sr.StopReplicaRequest(
            controller_id=self.controller_id,
            controller_epoch=self.controller_epoch,
            broker_epoch=broker_epoch,
            topic_states=[
                sr.StopReplicaTopicState(topic_name=topic, partition_states=group) for topic, group in grouped.items()
            ],
        )
        return ControlRequest(body=body, version=version)

    def _stop_by_topic(self, broker_epoch: BrokerEpoch, stopped: Sequence[Stopped], version: int) -> ControlRequest:
        grouped: dict[str, list[int]] = {}
        for each in stopped:
            grouped.setdefault(each.topic, []).append(each.partition)
        by_topic = version >= STOP_BY_TOPIC
        topics = [sr.StopReplicaTopicV1(name=topic, partition_indexes=group) for topic, group in grouped.items()]
        single = [sr.StopReplicaPartitionV0(topic_name=each.topic, partition_index=each.partition) for each in stopped]
        body = sr.StopReplicaRequest(
            controller_id=self.controller_id,
            controller_epoch=self.controller_epoch,
            broker_epoch=broker_epoch,
            delete_partitions=stopped[0].delete,
            topics=topics if by_topic else [],
            ungrouped_partitions=[] if by_topic else single,
        )
        return ControlRequest(body=body, version=version)


def deleted_by(request: msgspec.Struct) -> Iterator[tuple[str, int]]:
    """Yield the topic and partition of each replica whose log a StopReplica deletes, in whatever version."""
    if not isinstance(request, sr.StopReplicaRequest):
        return
    for state in request.topic_states:
        yield from (
            (state.topic_name, each.partition_index) for each in state.partition_states if each.delete_partition
        )
    if request.delete_partitions:
        for topic in request.topics:
            yield from ((topic.name, index) for index in topic.partition_indexes)
        yield from ((single.topic_name, single.partition_index) for single in request.ungrouped_partitions)


def _live(broker: Broker) -> um.UpdateMetadataBroker:
    return um.UpdateMetadataBroker(
        id=broker.broker_id,
        v0_host=broker.endpoints[0].host,
        v0_port=broker.endpoints[0].port,
        endpoints=[
            um.UpdateMetadataEndpoint(port=each.port, host=each.host, listener=each.name, security_protocol=0)
            for each in broker.endpoints
        ],
        rack=broker.rack,
    )
