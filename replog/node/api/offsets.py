"""Offsets for clients and replicas: ListOffsets, OffsetForLeaderEpoch, DeleteRecords, GetReplicaLogInfo."""

import asyncio
from collections import Counter
from itertools import takewhile
from typing import Final
from uuid import UUID

from replog.broker.identity import BrokerIdentity
from replog.controller.authorization import BY_NODES, Operation
from replog.controller.describe import INTERNAL_TOPICS
from replog.controller.served_api import Parts, ServedApi
from replog.distinct import distinct
from replog.errors import Error
from replog.node.net.handlers import AnswersApi, HandledApi, contained
from replog.node.net.in_turns import UNCOUNTED, in_turns
from replog.node.net.server import ServerRequest
from replog.node.replication.replicas import Replica, Replicas
from replog.node.tasks import Tasks
from replog.types import DEBUGGING_CONSUMER, ZERO_UUID, TopicIdPartition
from replog.wire.messages import delete_records as dr
from replog.wire.messages import get_replica_log_info as li
from replog.wire.messages import list_offsets as lo
from replog.wire.messages import offset_for_leader_epoch as oe

FIRST_VERSION_WITH_NOT_AVAILABLE: Final = 5  # of ListOffsets: below it OFFSET_NOT_AVAILABLE has another name
# Of ListOffsets, by special timestamp: latest, earliest, of the largest timestamp, and those of tiered storage.
LOWEST_VERSIONS: Final = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}
LOG_INFO_PARTITIONS_MAX: Final = 1000  # SPEC D8
LOW_WATERMARK_POLL_MS: Final = 20


class OffsetsApi:
    """Answers about where logs begin and end."""

    def __init__(self, replicas: Replicas, tasks: Tasks, identity: BrokerIdentity) -> None:
        self.replicas = replicas
        self.tasks = tasks
        self.clock = replicas.world.clock
        self.identity = identity

    # ListOffsets

    def list_offsets(self, request: ServerRequest[lo.ListOffsetsRequest, lo.ListOffsetsResponse]) -> None:
        """Answer for each partition by itself; as Kafka, for none that is named more than once.

        A look-up by time may walk through a batch of a million records.
        """
        body, version = request.body, request.version
        counted = Counter((topic.name, one.partition_index) for topic in body.topics for one in topic.partitions)
        topics = [lo.ListOffsetsTopicResponse(name=topic.name, partitions=[]) for topic in body.topics]

        def look(place: tuple[lo.ListOffsetsTopicResponse, lo.ListOffsetsPartition]) -> None:
            answer, wanted = place
            is_named_again = counted[answer.name, wanted.partition_index] > 1
            answer.partitions.append(
                lo.ListOffsetsPartitionResponse(
                    partition_index=wanted.partition_index, error_code=Error.INVALID_REQUEST
                )
                if is_named_again
                else self._offset(body, answer.name, wanted, version)
            )

        places = ((topics[index], one) for index, topic in enumerate(body.topics) for one in topic.partitions)
        in_turns(
            self.tasks,
            self.clock,
            takewhile(lambda _: not request.is_answered, places),  # else the connection is gone
            look,
            done=lambda: request.reply(lo.ListOffsetsResponse(topics=topics)),
            failed=contained(self.replicas.world.journal, request, LIST_OFFSETS.served, body),
            at_once=UNCOUNTED,
        )

    def _offset(
        self, body: lo.ListOffsetsRequest, topic: str, wanted: lo.ListOffsetsPartition, version: int
    ) -> lo.ListOffsetsPartitionResponse:
        index = wanted.partition_index
        if wanted.timestamp < 0 and version < LOWEST_VERSIONS.get(wanted.timestamp, version + 1):
            return lo.ListOffsetsPartitionResponse(partition_index=index, error_code=Error.UNSUPPORTED_VERSION)
        replica = self._hosted(topic, index)
        if replica is None:
            error = self.replicas.missing_error(topic, ZERO_UUID, index)
            return lo.ListOffsetsPartitionResponse(partition_index=index, error_code=error)
        answer = replica.partition.list_offset(
            current_leader_epoch=wanted.current_leader_epoch,
            timestamp=wanted.timestamp,
            isolation=body.isolation_level,
            is_replica=body.replica_id >= 0,
            leader_only=body.replica_id != DEBUGGING_CONSUMER,
        )
        error = answer.error
        if error is Error.OFFSET_NOT_AVAILABLE and version < FIRST_VERSION_WITH_NOT_AVAILABLE:
            error = Error.LEADER_NOT_AVAILABLE
        return lo.ListOffsetsPartitionResponse(
            partition_index=index,
            error_code=error,
            timestamp=answer.timestamp,
            offset=answer.offset,
            leader_epoch=answer.leader_epoch,
        )

    # OffsetForLeaderEpoch

    def end_of_epochs(
        self, request: ServerRequest[oe.OffsetForLeaderEpochRequest, oe.OffsetForLeaderEpochResponse]
    ) -> None:
        """Answer where leader epochs ended, for each partition by itself."""
        body = request.body
        topics = [
            oe.OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[self._end_of_epoch(topic.topic, wanted) for wanted in topic.partitions]
            )
            for topic in body.topics
        ]
        request.reply(oe.OffsetForLeaderEpochResponse(topics=topics))

    def _end_of_epoch(self, topic: str, wanted: oe.OffsetForLeaderPartition) -> oe.EpochEndOffset:
        replica = self._hosted(topic, wanted.partition)
        if replica is None:
            error = self.replicas.missing_error(topic, ZERO_UUID, wanted.partition)
            return oe.EpochEndOffset(error_code=error, partition=wanted.partition)
        answer = replica.partition.end_of_epoch(
            current_leader_epoch=wanted.current_leader_epoch, leader_epoch=wanted.leader_epoch
        )
        return oe.EpochEndOffset(
            error_code=answer.error,
            partition=wanted.partition,
            leader_epoch=answer.leader_epoch,
            end_offset=answer.end_offset,
        )

    # DeleteRecords

    def delete_records(self, request: ServerRequest[dr.DeleteRecordsRequest, dr.DeleteRecordsResponse]) -> None:
        """Raise log starts; answer when all live replicas have followed, or time is over (SPEC 3.9.6)."""
        # With its body: should the connection end before the task begins, the request lets go of it.
        failed = contained(self.replicas.world.journal, request, DELETE_RECORDS.served, request.body)
        self.tasks.start(self._delete_records(request, request.body), failed=failed)

    async def _delete_records(
        self,
        request: ServerRequest[dr.DeleteRecordsRequest, dr.DeleteRecordsResponse],
        body: dr.DeleteRecordsRequest,
    ) -> None:
        deadline_ms = self.clock.now_ms() + body.timeout_ms
        named = [(topic.name, partition) for topic in body.topics for partition in topic.partitions]
        wanted = distinct(named, lambda one: (one[0], one[1].partition_index))
        errors = [self._delete(topic, partition.partition_index, partition.offset) for topic, partition in wanted]
        targets = [
            self._log_start(topic, partition.partition_index) if error is Error.NONE else -1
            for (topic, partition), error in zip(wanted, errors, strict=True)
        ]
        waiting = [
            (topic, partition.partition_index, target)
            for (topic, partition), error, target in zip(wanted, errors, targets, strict=True)
            if error is Error.NONE
        ]
        while waiting := [one for one in waiting if not self._has_followed(*one)]:
            if self.clock.now_ms() >= deadline_ms:
                break
            await asyncio.sleep(LOW_WATERMARK_POLL_MS / 1000)
        results: dict[str, list[dr.DeleteRecordsPartitionResult]] = {}
        for (topic, partition), error, target in zip(wanted, errors, targets, strict=True):
            results.setdefault(topic, []).append(self._deleted(topic, partition.partition_index, error, target))
        request.reply(
            dr.DeleteRecordsResponse(
                topics=[
                    dr.DeleteRecordsTopicResult(name=topic, partitions=partitions)
                    for topic, partitions in results.items()
                ]
            )
        )

    def _has_followed(self, topic: str, index: int, target: int) -> bool:
        return self._low_watermark(topic, index) >= target

    def _delete(self, topic: str, index: int, offset: int) -> Error:
        replica = self._hosted(topic, index)
        if replica is None:
            return self.replicas.missing_error(topic, ZERO_UUID, index)
        if topic in INTERNAL_TOPICS:
            return Error.INVALID_TOPIC_EXCEPTION  # as Kafka: groups and transactions would be forgotten
        error = replica.partition.delete_records(offset)
        if error is Error.NONE:
            self.replicas.log_start_moved(replica)
        return error

    def _deleted(self, topic: str, index: int, error: Error, target: int) -> dr.DeleteRecordsPartitionResult:
        low_watermark = self._low_watermark(topic, index)
        if error is Error.NONE and low_watermark < target:
            leads = self._leads(topic, index)
            error = Error.REQUEST_TIMED_OUT if leads else Error.NOT_LEADER_OR_FOLLOWER
        return dr.DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=low_watermark if error is Error.NONE else -1, error_code=error
        )

    def _low_watermark(self, topic: str, index: int) -> int:
        replica = self._hosted(topic, index)
        return replica.partition.low_watermark() if replica is not None and self._leads(topic, index) else -1

    def _leads(self, topic: str, index: int) -> bool:
        replica = self._hosted(topic, index)
        return replica is not None and replica.partition.leadership is not None

    def _log_start(self, topic: str, index: int) -> int:
        replica = self._hosted(topic, index)
        assert replica is not None
        return replica.partition.log.log_start_offset

    # GetReplicaLogInfo

    def log_info(self, request: ServerRequest[li.GetReplicaLogInfoRequest, li.GetReplicaLogInfoResponse]) -> None:
        """Answer the controller how far our logs reach, for an unclean recovery (KIP-966 part 2, SPEC D8)."""
        body = request.body
        keys = [(topic.topic_id, index) for topic in body.topic_partitions for index in topic.partitions]
        topics: dict[object, li.TopicPartitionLogInfo] = {}
        for topic_id, index in keys[:LOG_INFO_PARTITIONS_MAX]:
            found = topics.setdefault(topic_id, li.TopicPartitionLogInfo(topic_id=topic_id, partition_log_info=[]))
            found.partition_log_info.append(
                self._log_info(self.replicas.by_topic_id.get(topic_id, {}).get(index), topic_id, index)
            )
        request.reply(
            li.GetReplicaLogInfoResponse(
                broker_epoch=self.identity.broker_epoch,
                truncated=len(keys) > LOG_INFO_PARTITIONS_MAX,
                topic_partition_log_info_list=list(topics.values()),
            )
        )

    def _log_info(self, replica: Replica | None, topic_id: UUID, index: int) -> li.PartitionLogInfo:
        if replica is None:
            is_offline = TopicIdPartition(topic_id, index) in self.replicas.offline
            error = Error.KAFKA_STORAGE_ERROR if is_offline else Error.UNKNOWN_TOPIC_OR_PARTITION
            return li.PartitionLogInfo(partition=index, error_code=error)
        if replica.partition.is_offline:
            return li.PartitionLogInfo(partition=index, error_code=Error.KAFKA_STORAGE_ERROR)
        log = replica.partition.log
        return li.PartitionLogInfo(
            partition=index,
            last_written_leader_epoch=log.last_epoch,
            current_leader_epoch=replica.partition.leader_epoch,
            log_end_offset=log.log_end_offset,
        )

    def _hosted(self, topic: str, index: int) -> Replica | None:
        return self.replicas.by_topic.get(topic, {}).get(index)


def _no_offsets(body: lo.ListOffsetsRequest, error: Error) -> lo.ListOffsetsResponse:
    answer = lo.ListOffsetsPartitionResponse
    topics = [
        lo.ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[answer(partition_index=one.partition_index, error_code=error) for one in topic.partitions],
        )
        for topic in body.topics
    ]
    return lo.ListOffsetsResponse(topics=topics)


def _no_ends(body: oe.OffsetForLeaderEpochRequest, error: Error) -> oe.OffsetForLeaderEpochResponse:
    topics = [
        oe.OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=[oe.EpochEndOffset(error_code=error, partition=one.partition) for one in topic.partitions],
        )
        for topic in body.topics
    ]
    return oe.OffsetForLeaderEpochResponse(topics=topics)


def _nothing_deleted(body: dr.DeleteRecordsRequest, error: Error) -> dr.DeleteRecordsResponse:
    answer = dr.DeleteRecordsPartitionResult
    topics = [
        dr.DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[
                answer(partition_index=one.partition_index, low_watermark=-1, error_code=error)
                for one in topic.partitions
            ],
        )
        for topic in body.topics
    ]
    return dr.DeleteRecordsResponse(topics=topics)


LIST_OFFSETS: Final = HandledApi(
    ServedApi(lo.EXCHANGE, parts=Parts(("topics",), "topics", Operation.DESCRIBE), refuse=_no_offsets),
    OffsetsApi.list_offsets,
)
OFFSET_FOR_LEADER_EPOCH: Final = HandledApi(
    ServedApi(
        oe.EXCHANGE,
        parts=Parts(("topics",), "topics", Operation.DESCRIBE, of_cluster=Operation.CLUSTER_ACTION),
        refuse=_no_ends,
    ),
    OffsetsApi.end_of_epochs,
)
DELETE_RECORDS: Final = HandledApi(
    ServedApi(dr.EXCHANGE, parts=Parts(("topics",), "topics", Operation.DELETE), refuse=_nothing_deleted),
    OffsetsApi.delete_records,
)
GET_REPLICA_LOG_INFO: Final = HandledApi(
    ServedApi(li.EXCHANGE, questions=BY_NODES),  # KIP-966: "ACL: CLUSTER_ACTION"
    OffsetsApi.log_info,
)
APIS: Final[tuple[AnswersApi[OffsetsApi], ...]] = (
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    DELETE_RECORDS,
    GET_REPLICA_LOG_INFO,
)
