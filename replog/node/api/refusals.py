"""What refuses a request, whole, in the words of its API: each answer has a place of its own for the error."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from replog.coordinators.classic_group import refused_join
from replog.errors import Error
from replog.node.api.forwarding import FAILED
from replog.node.api.groups import refused_commit, refused_commit_in_transaction
from replog.wire.apis import Api, response_type
from replog.wire.messages import (
    add_partitions_to_txn,
    alter_replica_log_dirs,
    consumer_group_describe,
    delete_groups,
    delete_records,
    describe_configs,
    describe_groups,
    describe_producers,
    describe_transactions,
    find_coordinator,
    list_offsets,
    offset_delete,
    offset_for_leader_epoch,
    produce,
    write_txn_markers,
)

Refuse = Callable[[Any, Error], msgspec.Struct]


def refusal(api: Api, body: Any, error: Error) -> msgspec.Struct:
    """Return an answer that refuses a request, whole."""
    refuse = REFUSED.get(api) or FAILED.get(api)
    return refuse(body, error) if refuse is not None else response_type(api)(error_code=error)


def _alter_replica_log_dirs(body: Any, error: Error) -> msgspec.Struct:
    answer = alter_replica_log_dirs.AlterReplicaLogDirPartitionResult
    results = [
        alter_replica_log_dirs.AlterReplicaLogDirTopicResult(
            topic_name=topic.name,
            partitions=[answer(partition_index=index, error_code=error) for index in topic.partitions],
        )
        for directory in body.dirs
        for topic in directory.topics
    ]
    return alter_replica_log_dirs.AlterReplicaLogDirsResponse(results=results)


def _describe_configs(body: Any, error: Error) -> msgspec.Struct:
    results = [
        describe_configs.DescribeConfigsResult(
            error_code=error, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        for resource in body.resources
    ]
    return describe_configs.DescribeConfigsResponse(results=results)


def _produce(body: Any, error: Error) -> msgspec.Struct:
    answer = produce.PartitionProduceResponse
    responses = [
        produce.TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                answer(index=data.index, error_code=error, base_offset=-1) for data in topic.partition_data
            ],
        )
        for topic in body.topic_data
    ]
    return produce.ProduceResponse(responses=responses)


def _list_offsets(body: Any, error: Error) -> msgspec.Struct:
    answer = list_offsets.ListOffsetsPartitionResponse
    topics = [
        list_offsets.ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[answer(partition_index=one.partition_index, error_code=error) for one in topic.partitions],
        )
        for topic in body.topics
    ]
    return list_offsets.ListOffsetsResponse(topics=topics)


def _offset_for_leader_epoch(body: Any, error: Error) -> msgspec.Struct:
    answer = offset_for_leader_epoch.EpochEndOffset
    topics = [
        offset_for_leader_epoch.OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=[answer(error_code=error, partition=one.partition) for one in topic.partitions],
        )
        for topic in body.topics
    ]
    return offset_for_leader_epoch.OffsetForLeaderEpochResponse(topics=topics)


def _delete_records(body: Any, error: Error) -> msgspec.Struct:
    answer = delete_records.DeleteRecordsPartitionResult
    topics = [
        delete_records.DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[
                answer(partition_index=one.partition_index, low_watermark=-1, error_code=error)
                for one in topic.partitions
            ],
        )
        for topic in body.topics
    ]
    return delete_records.DeleteRecordsResponse(topics=topics)


def _describe_producers(body: Any, error: Error) -> msgspec.Struct:
    answer = describe_producers.PartitionResponse
    topics = [
        describe_producers.TopicResponse(
            name=topic.name,
            partitions=[answer(partition_index=index, error_code=error) for index in topic.partition_indexes],
        )
        for topic in body.topics
    ]
    return describe_producers.DescribeProducersResponse(topics=topics)


def _offset_delete(body: Any, error: Error) -> msgspec.Struct:
    """Refuse the group at the top, topics one by one."""
    if error is not Error.TOPIC_AUTHORIZATION_FAILED:
        return offset_delete.OffsetDeleteResponse(error_code=error)
    answer = offset_delete.OffsetDeleteResponsePartition
    topics = [
        offset_delete.OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[answer(partition_index=one.partition_index, error_code=error) for one in topic.partitions],
        )
        for topic in body.topics
    ]
    return offset_delete.OffsetDeleteResponse(topics=topics)


def _find_coordinator(body: Any, error: Error) -> msgspec.Struct:
    answer = find_coordinator.Coordinator
    coordinators = [answer(key=key, node_id=-1, port=-1, error_code=error) for key in body.coordinator_keys]
    if coordinators:
        return find_coordinator.FindCoordinatorResponse(coordinators=coordinators)
    return find_coordinator.FindCoordinatorResponse(error_code=error, node_id=-1, port=-1)


def _add_partitions(body: Any, error: Error) -> msgspec.Struct:
    if body.transactions:
        return add_partitions_to_txn.AddPartitionsToTxnResponse(error_code=error)
    answer = add_partitions_to_txn.AddPartitionsToTxnPartitionResult
    topics = [
        add_partitions_to_txn.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                answer(partition_index=index, partition_error_code=error) for index in topic.partitions
            ],
        )
        for topic in body.v3_and_below_topics
    ]
    return add_partitions_to_txn.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)


def _write_markers(body: Any, error: Error) -> msgspec.Struct:
    answer = write_txn_markers.WritableTxnMarkerPartitionResult
    markers = [
        write_txn_markers.WritableTxnMarkerResult(
            producer_id=marker.producer_id,
            topics=[
                write_txn_markers.WritableTxnMarkerTopicResult(
                    name=topic.name,
                    partitions=[answer(partition_index=index, error_code=error) for index in topic.partition_indexes],
                )
                for topic in marker.topics
            ],
        )
        for marker in body.markers
    ]
    return write_txn_markers.WriteTxnMarkersResponse(markers=markers)


REFUSED: Final[dict[Api, Refuse]] = {
    Api.ALTER_REPLICA_LOG_DIRS: _alter_replica_log_dirs,
    Api.DESCRIBE_CONFIGS: _describe_configs,
    Api.PRODUCE: _produce,
    Api.LIST_OFFSETS: _list_offsets,
    Api.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    Api.DELETE_RECORDS: _delete_records,
    Api.DESCRIBE_PRODUCERS: _describe_producers,
    Api.OFFSET_COMMIT: refused_commit,
    Api.TXN_OFFSET_COMMIT: refused_commit_in_transaction,
    Api.OFFSET_DELETE: _offset_delete,
    Api.FIND_COORDINATOR: _find_coordinator,
    Api.ADD_PARTITIONS_TO_TXN: _add_partitions,
    Api.WRITE_TXN_MARKERS: _write_markers,
    Api.JOIN_GROUP: lambda body, error: refused_join(body.member_id, error),
    Api.DESCRIBE_GROUPS: lambda body, error: describe_groups.DescribeGroupsResponse(
        groups=[describe_groups.DescribedGroup(error_code=error, group_id=name) for name in body.groups]
    ),
    Api.CONSUMER_GROUP_DESCRIBE: lambda body, error: consumer_group_describe.ConsumerGroupDescribeResponse(
        groups=[consumer_group_describe.DescribedGroup(error_code=error, group_id=name) for name in body.group_ids]
    ),
    Api.DELETE_GROUPS: lambda body, error: delete_groups.DeleteGroupsResponse(
        results=[delete_groups.DeletableGroupResult(group_id=name, error_code=error) for name in body.groups_names]
    ),
    Api.DESCRIBE_TRANSACTIONS: lambda body, error: describe_transactions.DescribeTransactionsResponse(
        transaction_states=[
            describe_transactions.TransactionState(error_code=error, transactional_id=name)
            for name in body.transactional_ids
        ]
    ),
}
