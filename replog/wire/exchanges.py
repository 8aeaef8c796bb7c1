"""Which answer belongs to which request: the pairs that nodes serve and ask, as typed values.

`Api` is a number on the wire; an `Exchange` is what the type checker knows of it. Who registers a handler for one, or asks by
one, is held to its types: a handler of `PRODUCE` takes a `ProduceRequest` and replies a `ProduceResponse`.
`tests/wire/test_exchanges.py` holds the pairs to the message modules.
"""

from typing import Final, Generic, TypeVar

import msgspec

from replog.wire.apis import Api
from replog.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    add_raft_voter,
    allocate_producer_ids,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    assign_replicas_to_dirs,
    begin_quorum_epoch,
    broker_heartbeat,
    broker_registration,
    consumer_group_describe,
    consumer_group_heartbeat,
    controlled_shutdown,
    controller_registration,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    elect_designated_leaders,
    elect_leaders,
    end_quorum_epoch,
    end_txn,
    fetch,
    fetch_snapshot,
    find_coordinator,
    get_replica_log_info,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leader_and_isr,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    remove_raft_voter,
    stop_replica,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    update_metadata,
    update_raft_voter,
    vote,
    write_txn_markers,
)

Q = TypeVar("Q", bound=msgspec.Struct)
R = TypeVar("R", bound=msgspec.Struct)


class Exchange(Generic[Q, R]):
    """A request's type and its answer's."""

    __slots__ = ("api", "request", "response")

    def __init__(self, api: Api, request: type[Q], response: type[R]) -> None:
        self.api = api
        self.request = request
        self.response = response

    def __repr__(self) -> str:
        return self.api.name


PRODUCE: Final = Exchange(Api.PRODUCE, produce.ProduceRequest, produce.ProduceResponse)
FETCH: Final = Exchange(Api.FETCH, fetch.FetchRequest, fetch.FetchResponse)
LIST_OFFSETS: Final = Exchange(Api.LIST_OFFSETS, list_offsets.ListOffsetsRequest, list_offsets.ListOffsetsResponse)
METADATA: Final = Exchange(Api.METADATA, metadata.MetadataRequest, metadata.MetadataResponse)
LEADER_AND_ISR: Final = Exchange(
    Api.LEADER_AND_ISR, leader_and_isr.LeaderAndIsrRequest, leader_and_isr.LeaderAndIsrResponse
)
STOP_REPLICA: Final = Exchange(Api.STOP_REPLICA, stop_replica.StopReplicaRequest, stop_replica.StopReplicaResponse)
UPDATE_METADATA: Final = Exchange(
    Api.UPDATE_METADATA, update_metadata.UpdateMetadataRequest, update_metadata.UpdateMetadataResponse
)
CONTROLLED_SHUTDOWN: Final = Exchange(
    Api.CONTROLLED_SHUTDOWN,
    controlled_shutdown.ControlledShutdownRequest,
    controlled_shutdown.ControlledShutdownResponse,
)
OFFSET_COMMIT: Final = Exchange(
    Api.OFFSET_COMMIT, offset_commit.OffsetCommitRequest, offset_commit.OffsetCommitResponse
)
OFFSET_FETCH: Final = Exchange(Api.OFFSET_FETCH, offset_fetch.OffsetFetchRequest, offset_fetch.OffsetFetchResponse)
FIND_COORDINATOR: Final = Exchange(
    Api.FIND_COORDINATOR, find_coordinator.FindCoordinatorRequest, find_coordinator.FindCoordinatorResponse
)
JOIN_GROUP: Final = Exchange(Api.JOIN_GROUP, join_group.JoinGroupRequest, join_group.JoinGroupResponse)
HEARTBEAT: Final = Exchange(Api.HEARTBEAT, heartbeat.HeartbeatRequest, heartbeat.HeartbeatResponse)
LEAVE_GROUP: Final = Exchange(Api.LEAVE_GROUP, leave_group.LeaveGroupRequest, leave_group.LeaveGroupResponse)
SYNC_GROUP: Final = Exchange(Api.SYNC_GROUP, sync_group.SyncGroupRequest, sync_group.SyncGroupResponse)
DESCRIBE_GROUPS: Final = Exchange(
    Api.DESCRIBE_GROUPS, describe_groups.DescribeGroupsRequest, describe_groups.DescribeGroupsResponse
)
LIST_GROUPS: Final = Exchange(Api.LIST_GROUPS, list_groups.ListGroupsRequest, list_groups.ListGroupsResponse)
API_VERSIONS: Final = Exchange(Api.API_VERSIONS, api_versions.ApiVersionsRequest, api_versions.ApiVersionsResponse)
CREATE_TOPICS: Final = Exchange(
    Api.CREATE_TOPICS, create_topics.CreateTopicsRequest, create_topics.CreateTopicsResponse
)
DELETE_TOPICS: Final = Exchange(
    Api.DELETE_TOPICS, delete_topics.DeleteTopicsRequest, delete_topics.DeleteTopicsResponse
)
DELETE_RECORDS: Final = Exchange(
    Api.DELETE_RECORDS, delete_records.DeleteRecordsRequest, delete_records.DeleteRecordsResponse
)
INIT_PRODUCER_ID: Final = Exchange(
    Api.INIT_PRODUCER_ID, init_producer_id.InitProducerIdRequest, init_producer_id.InitProducerIdResponse
)
OFFSET_FOR_LEADER_EPOCH: Final = Exchange(
    Api.OFFSET_FOR_LEADER_EPOCH,
    offset_for_leader_epoch.OffsetForLeaderEpochRequest,
    offset_for_leader_epoch.OffsetForLeaderEpochResponse,
)
ADD_PARTITIONS_TO_TXN: Final = Exchange(
    Api.ADD_PARTITIONS_TO_TXN,
    add_partitions_to_txn.AddPartitionsToTxnRequest,
    add_partitions_to_txn.AddPartitionsToTxnResponse,
)
ADD_OFFSETS_TO_TXN: Final = Exchange(
    Api.ADD_OFFSETS_TO_TXN, add_offsets_to_txn.AddOffsetsToTxnRequest, add_offsets_to_txn.AddOffsetsToTxnResponse
)
END_TXN: Final = Exchange(Api.END_TXN, end_txn.EndTxnRequest, end_txn.EndTxnResponse)
WRITE_TXN_MARKERS: Final = Exchange(
    Api.WRITE_TXN_MARKERS, write_txn_markers.WriteTxnMarkersRequest, write_txn_markers.WriteTxnMarkersResponse
)
TXN_OFFSET_COMMIT: Final = Exchange(
    Api.TXN_OFFSET_COMMIT, txn_offset_commit.TxnOffsetCommitRequest, txn_offset_commit.TxnOffsetCommitResponse
)
DESCRIBE_CONFIGS: Final = Exchange(
    Api.DESCRIBE_CONFIGS, describe_configs.DescribeConfigsRequest, describe_configs.DescribeConfigsResponse
)
ALTER_CONFIGS: Final = Exchange(
    Api.ALTER_CONFIGS, alter_configs.AlterConfigsRequest, alter_configs.AlterConfigsResponse
)
ALTER_REPLICA_LOG_DIRS: Final = Exchange(
    Api.ALTER_REPLICA_LOG_DIRS,
    alter_replica_log_dirs.AlterReplicaLogDirsRequest,
    alter_replica_log_dirs.AlterReplicaLogDirsResponse,
)
DESCRIBE_LOG_DIRS: Final = Exchange(
    Api.DESCRIBE_LOG_DIRS, describe_log_dirs.DescribeLogDirsRequest, describe_log_dirs.DescribeLogDirsResponse
)
CREATE_PARTITIONS: Final = Exchange(
    Api.CREATE_PARTITIONS, create_partitions.CreatePartitionsRequest, create_partitions.CreatePartitionsResponse
)
DELETE_GROUPS: Final = Exchange(
    Api.DELETE_GROUPS, delete_groups.DeleteGroupsRequest, delete_groups.DeleteGroupsResponse
)
ELECT_LEADERS: Final = Exchange(
    Api.ELECT_LEADERS, elect_leaders.ElectLeadersRequest, elect_leaders.ElectLeadersResponse
)
INCREMENTAL_ALTER_CONFIGS: Final = Exchange(
    Api.INCREMENTAL_ALTER_CONFIGS,
    incremental_alter_configs.IncrementalAlterConfigsRequest,
    incremental_alter_configs.IncrementalAlterConfigsResponse,
)
ALTER_PARTITION_REASSIGNMENTS: Final = Exchange(
    Api.ALTER_PARTITION_REASSIGNMENTS,
    alter_partition_reassignments.AlterPartitionReassignmentsRequest,
    alter_partition_reassignments.AlterPartitionReassignmentsResponse,
)
LIST_PARTITION_REASSIGNMENTS: Final = Exchange(
    Api.LIST_PARTITION_REASSIGNMENTS,
    list_partition_reassignments.ListPartitionReassignmentsRequest,
    list_partition_reassignments.ListPartitionReassignmentsResponse,
)
OFFSET_DELETE: Final = Exchange(
    Api.OFFSET_DELETE, offset_delete.OffsetDeleteRequest, offset_delete.OffsetDeleteResponse
)
VOTE: Final = Exchange(Api.VOTE, vote.VoteRequest, vote.VoteResponse)
BEGIN_QUORUM_EPOCH: Final = Exchange(
    Api.BEGIN_QUORUM_EPOCH, begin_quorum_epoch.BeginQuorumEpochRequest, begin_quorum_epoch.BeginQuorumEpochResponse
)
END_QUORUM_EPOCH: Final = Exchange(
    Api.END_QUORUM_EPOCH, end_quorum_epoch.EndQuorumEpochRequest, end_quorum_epoch.EndQuorumEpochResponse
)
DESCRIBE_QUORUM: Final = Exchange(
    Api.DESCRIBE_QUORUM, describe_quorum.DescribeQuorumRequest, describe_quorum.DescribeQuorumResponse
)
ALTER_PARTITION: Final = Exchange(
    Api.ALTER_PARTITION, alter_partition.AlterPartitionRequest, alter_partition.AlterPartitionResponse
)
UPDATE_FEATURES: Final = Exchange(
    Api.UPDATE_FEATURES, update_features.UpdateFeaturesRequest, update_features.UpdateFeaturesResponse
)
FETCH_SNAPSHOT: Final = Exchange(
    Api.FETCH_SNAPSHOT, fetch_snapshot.FetchSnapshotRequest, fetch_snapshot.FetchSnapshotResponse
)
DESCRIBE_CLUSTER: Final = Exchange(
    Api.DESCRIBE_CLUSTER, describe_cluster.DescribeClusterRequest, describe_cluster.DescribeClusterResponse
)
DESCRIBE_PRODUCERS: Final = Exchange(
    Api.DESCRIBE_PRODUCERS, describe_producers.DescribeProducersRequest, describe_producers.DescribeProducersResponse
)
BROKER_REGISTRATION: Final = Exchange(
    Api.BROKER_REGISTRATION,
    broker_registration.BrokerRegistrationRequest,
    broker_registration.BrokerRegistrationResponse,
)
BROKER_HEARTBEAT: Final = Exchange(
    Api.BROKER_HEARTBEAT, broker_heartbeat.BrokerHeartbeatRequest, broker_heartbeat.BrokerHeartbeatResponse
)
UNREGISTER_BROKER: Final = Exchange(
    Api.UNREGISTER_BROKER, unregister_broker.UnregisterBrokerRequest, unregister_broker.UnregisterBrokerResponse
)
DESCRIBE_TRANSACTIONS: Final = Exchange(
    Api.DESCRIBE_TRANSACTIONS,
    describe_transactions.DescribeTransactionsRequest,
    describe_transactions.DescribeTransactionsResponse,
)
LIST_TRANSACTIONS: Final = Exchange(
    Api.LIST_TRANSACTIONS, list_transactions.ListTransactionsRequest, list_transactions.ListTransactionsResponse
)
ALLOCATE_PRODUCER_IDS: Final = Exchange(
    Api.ALLOCATE_PRODUCER_IDS,
    allocate_producer_ids.AllocateProducerIdsRequest,
    allocate_producer_ids.AllocateProducerIdsResponse,
)
CONSUMER_GROUP_HEARTBEAT: Final = Exchange(
    Api.CONSUMER_GROUP_HEARTBEAT,
    consumer_group_heartbeat.ConsumerGroupHeartbeatRequest,
    consumer_group_heartbeat.ConsumerGroupHeartbeatResponse,
)
CONSUMER_GROUP_DESCRIBE: Final = Exchange(
    Api.CONSUMER_GROUP_DESCRIBE,
    consumer_group_describe.ConsumerGroupDescribeRequest,
    consumer_group_describe.ConsumerGroupDescribeResponse,
)
CONTROLLER_REGISTRATION: Final = Exchange(
    Api.CONTROLLER_REGISTRATION,
    controller_registration.ControllerRegistrationRequest,
    controller_registration.ControllerRegistrationResponse,
)
ASSIGN_REPLICAS_TO_DIRS: Final = Exchange(
    Api.ASSIGN_REPLICAS_TO_DIRS,
    assign_replicas_to_dirs.AssignReplicasToDirsRequest,
    assign_replicas_to_dirs.AssignReplicasToDirsResponse,
)
DESCRIBE_TOPIC_PARTITIONS: Final = Exchange(
    Api.DESCRIBE_TOPIC_PARTITIONS,
    describe_topic_partitions.DescribeTopicPartitionsRequest,
    describe_topic_partitions.DescribeTopicPartitionsResponse,
)
ADD_RAFT_VOTER: Final = Exchange(
    Api.ADD_RAFT_VOTER, add_raft_voter.AddRaftVoterRequest, add_raft_voter.AddRaftVoterResponse
)
REMOVE_RAFT_VOTER: Final = Exchange(
    Api.REMOVE_RAFT_VOTER, remove_raft_voter.RemoveRaftVoterRequest, remove_raft_voter.RemoveRaftVoterResponse
)
UPDATE_RAFT_VOTER: Final = Exchange(
    Api.UPDATE_RAFT_VOTER, update_raft_voter.UpdateRaftVoterRequest, update_raft_voter.UpdateRaftVoterResponse
)
GET_REPLICA_LOG_INFO: Final = Exchange(
    Api.GET_REPLICA_LOG_INFO,
    get_replica_log_info.GetReplicaLogInfoRequest,
    get_replica_log_info.GetReplicaLogInfoResponse,
)
ELECT_DESIGNATED_LEADERS: Final = Exchange(
    Api.ELECT_DESIGNATED_LEADERS,
    elect_designated_leaders.ElectDesignatedLeadersRequest,
    elect_designated_leaders.ElectDesignatedLeadersResponse,
)
