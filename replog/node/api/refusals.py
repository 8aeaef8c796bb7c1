"""What refuses a request, whole, in the words of its API: each answer has a place of its own for the error."""

from collections.abc import Callable
from typing import Final, cast

import msgspec

from replog.coordinators.classic_group import refused_join
from replog.errors import Error
from replog.wire import exchanges
from replog.wire.apis import Api, response_type
from replog.wire.exchanges import Exchange, Q, R
from replog.wire.messages import (
    add_partitions_to_txn,
    add_raft_voter,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    consumer_group_describe,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_producers,
    describe_quorum,
    describe_transactions,
    elect_designated_leaders,
    elect_leaders,
    find_coordinator,
    incremental_alter_configs,
    list_offsets,
    list_partition_reassignments,
    offset_commit,
    offset_delete,
    offset_for_leader_epoch,
    produce,
    remove_raft_voter,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_txn_markers,
)


class Refusals:
    """Answers that refuse, by API; where there is none the answer has its error at the top."""

    def __init__(self) -> None:
        self._by_api: dict[Api, Callable[[msgspec.Struct, Error], msgspec.Struct]] = {}

    def on(self, exchange: Exchange[Q, R], refuse: Callable[[Q, Error], R]) -> None:
        """Refuse this so."""
        self._by_api[exchange.api] = cast("Callable[[msgspec.Struct, Error], msgspec.Struct]", refuse)

    def answer(self, api: Api, body: msgspec.Struct, error: Error) -> msgspec.Struct:
        """Return an answer that refuses a request, whole."""
        refuse = self._by_api.get(api)
        return refuse(body, error) if refuse is not None else response_type(api)(error_code=error)

    def of(self, exchange: Exchange[Q, R], body: Q, error: Error) -> R:
        """Return an answer that refuses a request whose types are known."""
        return cast(R, self.answer(exchange.api, body, error))


def _alter_replica_log_dirs(
    body: alter_replica_log_dirs.AlterReplicaLogDirsRequest, error: Error
) -> alter_replica_log_dirs.AlterReplicaLogDirsResponse:
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


def _describe_configs(
    body: describe_configs.DescribeConfigsRequest, error: Error
) -> describe_configs.DescribeConfigsResponse:
    results = [
        describe_configs.DescribeConfigsResult(
            error_code=error, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        for resource in body.resources
    ]
    return describe_configs.DescribeConfigsResponse(results=results)


def _produce(body: produce.ProduceRequest, error: Error) -> produce.ProduceResponse:
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


def _list_offsets(body: list_offsets.ListOffsetsRequest, error: Error) -> list_offsets.ListOffsetsResponse:
    answer = list_offsets.ListOffsetsPartitionResponse
    topics = [
        list_offsets.ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[answer(partition_index=one.partition_index, error_code=error) for one in topic.partitions],
        )
        for topic in body.topics
    ]
    return list_offsets.ListOffsetsResponse(topics=topics)


def _offset_for_leader_epoch(
    body: offset_for_leader_epoch.OffsetForLeaderEpochRequest, error: Error
) -> offset_for_leader_epoch.OffsetForLeaderEpochResponse:
    answer = offset_for_leader_epoch.EpochEndOffset
    topics = [
        offset_for_leader_epoch.OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=[answer(error_code=error, partition=one.partition) for one in topic.partitions],
        )
        for topic in body.topics
    ]
    return offset_for_leader_epoch.OffsetForLeaderEpochResponse(topics=topics)


def _delete_records(body: delete_records.DeleteRecordsRequest, error: Error) -> delete_records.DeleteRecordsResponse:
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


def _describe_producers(
    body: describe_producers.DescribeProducersRequest, error: Error
) -> describe_producers.DescribeProducersResponse:
    answer = describe_producers.PartitionResponse
    topics = [
        describe_producers.TopicResponse(
            name=topic.name,
            partitions=[answer(partition_index=index, error_code=error) for index in topic.partition_indexes],
        )
        for topic in body.topics
    ]
    return describe_producers.DescribeProducersResponse(topics=topics)


def _offset_delete(body: offset_delete.OffsetDeleteRequest, error: Error) -> offset_delete.OffsetDeleteResponse:
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


def _find_coordinator(
    body: find_coordinator.FindCoordinatorRequest, error: Error
) -> find_coordinator.FindCoordinatorResponse:
    answer = find_coordinator.Coordinator
    coordinators = [answer(key=key, node_id=-1, port=-1, error_code=error) for key in body.coordinator_keys]
    if coordinators:
        return find_coordinator.FindCoordinatorResponse(coordinators=coordinators)
    return find_coordinator.FindCoordinatorResponse(error_code=error, node_id=-1, port=-1)


def _add_partitions(
    body: add_partitions_to_txn.AddPartitionsToTxnRequest, error: Error
) -> add_partitions_to_txn.AddPartitionsToTxnResponse:
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


def _write_markers(
    body: write_txn_markers.WriteTxnMarkersRequest, error: Error
) -> write_txn_markers.WriteTxnMarkersResponse:
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


def refused_commit(body: offset_commit.OffsetCommitRequest, error: Error) -> offset_commit.OffsetCommitResponse:
    """Return the answer to a commit of which nothing is served."""
    topics = [
        offset_commit.OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                offset_commit.OffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=error)
                for asked in topic.partitions
            ],
        )
        for topic in body.topics
    ]
    return offset_commit.OffsetCommitResponse(topics=topics)


def refused_commit_in_transaction(
    body: txn_offset_commit.TxnOffsetCommitRequest, error: Error
) -> txn_offset_commit.TxnOffsetCommitResponse:
    """Return the answer to a transactional commit of which nothing is served."""
    topics = [
        txn_offset_commit.TxnOffsetCommitResponseTopic(
            name=topic.name,
            partitions=[
                txn_offset_commit.TxnOffsetCommitResponsePartition(
                    partition_index=asked.partition_index, error_code=error
                )
                for asked in topic.partitions
            ],
        )
        for topic in body.topics
    ]
    return txn_offset_commit.TxnOffsetCommitResponse(topics=topics)


def _create_topics(body: create_topics.CreateTopicsRequest, error: Error) -> create_topics.CreateTopicsResponse:
    return create_topics.CreateTopicsResponse(
        topics=[
            create_topics.CreatableTopicResult(name=topic.name, error_code=error, error_message=None)
            for topic in body.topics
        ]
    )


def _delete_topics(body: delete_topics.DeleteTopicsRequest, error: Error) -> delete_topics.DeleteTopicsResponse:
    by_name = [delete_topics.DeletableTopicResult(name=name, error_code=error) for name in body.topic_names]
    by_either = [
        delete_topics.DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=error)
        for topic in body.topics
    ]
    return delete_topics.DeleteTopicsResponse(responses=by_name + by_either)


def _create_partitions(
    body: create_partitions.CreatePartitionsRequest, error: Error
) -> create_partitions.CreatePartitionsResponse:
    return create_partitions.CreatePartitionsResponse(
        results=[
            create_partitions.CreatePartitionsTopicResult(name=topic.name, error_code=error) for topic in body.topics
        ]
    )


def _replace_configs(body: alter_configs.AlterConfigsRequest, error: Error) -> alter_configs.AlterConfigsResponse:
    return alter_configs.AlterConfigsResponse(
        responses=[
            alter_configs.AlterConfigsResourceResponse(
                error_code=error,
                error_message=None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in body.resources
        ]
    )


def _alter_configs(
    body: incremental_alter_configs.IncrementalAlterConfigsRequest, error: Error
) -> incremental_alter_configs.IncrementalAlterConfigsResponse:
    return incremental_alter_configs.IncrementalAlterConfigsResponse(
        responses=[
            incremental_alter_configs.AlterConfigsResourceResponse(
                error_code=error,
                error_message=None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in body.resources
        ]
    )


def _elect_leaders(body: elect_leaders.ElectLeadersRequest, error: Error) -> elect_leaders.ElectLeadersResponse:
    """Say it at the top and of each partition: version 0 has no top."""
    answer = elect_leaders.PartitionResult
    results = [
        elect_leaders.ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                answer(partition_id=index, error_code=error, error_message=None) for index in topic.partitions
            ],
        )
        for topic in body.topic_partitions or []
    ]
    return elect_leaders.ElectLeadersResponse(error_code=error, replica_election_results=results)


REFUSALS: Final = Refusals()
REFUSALS.on(exchanges.ALTER_REPLICA_LOG_DIRS, _alter_replica_log_dirs)
REFUSALS.on(exchanges.DESCRIBE_CONFIGS, _describe_configs)
REFUSALS.on(exchanges.PRODUCE, _produce)
REFUSALS.on(exchanges.LIST_OFFSETS, _list_offsets)
REFUSALS.on(exchanges.OFFSET_FOR_LEADER_EPOCH, _offset_for_leader_epoch)
REFUSALS.on(exchanges.DELETE_RECORDS, _delete_records)
REFUSALS.on(exchanges.DESCRIBE_PRODUCERS, _describe_producers)
REFUSALS.on(exchanges.OFFSET_COMMIT, refused_commit)
REFUSALS.on(exchanges.TXN_OFFSET_COMMIT, refused_commit_in_transaction)
REFUSALS.on(exchanges.OFFSET_DELETE, _offset_delete)
REFUSALS.on(exchanges.FIND_COORDINATOR, _find_coordinator)
REFUSALS.on(exchanges.ADD_PARTITIONS_TO_TXN, _add_partitions)
REFUSALS.on(exchanges.WRITE_TXN_MARKERS, _write_markers)
REFUSALS.on(exchanges.JOIN_GROUP, lambda body, error: refused_join(body.member_id, error))
REFUSALS.on(
    exchanges.DESCRIBE_GROUPS,
    lambda body, error: describe_groups.DescribeGroupsResponse(
        groups=[describe_groups.DescribedGroup(error_code=error, group_id=name) for name in body.groups]
    ),
)
REFUSALS.on(
    exchanges.CONSUMER_GROUP_DESCRIBE,
    lambda body, error: consumer_group_describe.ConsumerGroupDescribeResponse(
        groups=[consumer_group_describe.DescribedGroup(error_code=error, group_id=name) for name in body.group_ids]
    ),
)
REFUSALS.on(
    exchanges.DELETE_GROUPS,
    lambda body, error: delete_groups.DeleteGroupsResponse(
        results=[delete_groups.DeletableGroupResult(group_id=name, error_code=error) for name in body.groups_names]
    ),
)
REFUSALS.on(
    exchanges.DESCRIBE_TRANSACTIONS,
    lambda body, error: describe_transactions.DescribeTransactionsResponse(
        transaction_states=[
            describe_transactions.TransactionState(error_code=error, transactional_id=name)
            for name in body.transactional_ids
        ]
    ),
)
REFUSALS.on(exchanges.CREATE_TOPICS, _create_topics)
REFUSALS.on(exchanges.DELETE_TOPICS, _delete_topics)
REFUSALS.on(exchanges.CREATE_PARTITIONS, _create_partitions)
REFUSALS.on(exchanges.INCREMENTAL_ALTER_CONFIGS, _alter_configs)
REFUSALS.on(exchanges.ALTER_CONFIGS, _replace_configs)
REFUSALS.on(exchanges.ELECT_LEADERS, _elect_leaders)
REFUSALS.on(
    exchanges.ELECT_DESIGNATED_LEADERS,
    lambda _, error: elect_designated_leaders.ElectDesignatedLeadersResponse(error_code=error),
)
REFUSALS.on(
    exchanges.ALTER_PARTITION_REASSIGNMENTS,
    lambda _, error: alter_partition_reassignments.AlterPartitionReassignmentsResponse(
        error_code=error, error_message=None
    ),
)
REFUSALS.on(
    exchanges.LIST_PARTITION_REASSIGNMENTS,
    lambda _, error: list_partition_reassignments.ListPartitionReassignmentsResponse(
        error_code=error, error_message=None
    ),
)
REFUSALS.on(
    exchanges.UNREGISTER_BROKER,
    lambda _, error: unregister_broker.UnregisterBrokerResponse(error_code=error, error_message=None),
)
REFUSALS.on(
    exchanges.UPDATE_FEATURES,
    lambda _, error: update_features.UpdateFeaturesResponse(error_code=error, error_message=None),
)
REFUSALS.on(
    exchanges.ADD_RAFT_VOTER, lambda _, error: add_raft_voter.AddRaftVoterResponse(error_code=error, error_message=None)
)
REFUSALS.on(
    exchanges.REMOVE_RAFT_VOTER,
    lambda _, error: remove_raft_voter.RemoveRaftVoterResponse(error_code=error, error_message=None),
)
REFUSALS.on(
    exchanges.DESCRIBE_QUORUM,
    lambda _, error: describe_quorum.DescribeQuorumResponse(error_code=error, error_message=None),
)


def refusal(api: Api, body: msgspec.Struct, error: Error) -> msgspec.Struct:
    """Return an answer that refuses a request, whole."""
    return REFUSALS.answer(api, body, error)
