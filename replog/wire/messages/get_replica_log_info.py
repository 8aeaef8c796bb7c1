"""GetReplicaLogInfo (private api key 1093), version 0: how far a replica's log reaches (KIP-966, part 2).

Controllers ask it of brokers during an unclean recovery. Kafka's numbers for it are taken by others (SPEC D8);
at most 1000 partitions are answered, the rest is said to be `truncated`.
"""

from typing import Annotated, ClassVar
from uuid import UUID

import msgspec

from replog.errors import Error
from replog.types import ZERO_UUID
from replog.wire.apis import Api
from replog.wire.exchange import Exchange
from replog.wire.layout import Layout, Wire


class GetReplicaLogInfoRequestTopicPartitions(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    topic_id: Annotated[UUID, Wire("uuid", "0+")] = ZERO_UUID
    partitions: Annotated[list[int], Wire("[]int32", "0+")] = []


class GetReplicaLogInfoRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=1093, kind="request", versions="0-0", flexible="0+")
    broker_id: Annotated[int, Wire("int32", "0+")] = -1
    topic_partitions: Annotated[list[GetReplicaLogInfoRequestTopicPartitions], Wire("[]struct", "0+")] = []


class PartitionLogInfo(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    partition: Annotated[int, Wire("int32", "0+")] = 0
    last_written_leader_epoch: Annotated[int, Wire("int32", "0+")] = -1
    current_leader_epoch: Annotated[int, Wire("int32", "0+")] = -1
    log_end_offset: Annotated[int, Wire("int64", "0+")] = 0
    error_code: Annotated[Error, Wire("error", "0+")] = Error.NONE
    error_message: Annotated[str | None, Wire("string", "0+", nullable="0+")] = None


class TopicPartitionLogInfo(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    topic_id: Annotated[UUID, Wire("uuid", "0+")] = ZERO_UUID
    partition_log_info: Annotated[list[PartitionLogInfo], Wire("[]struct", "0+")] = []


class GetReplicaLogInfoResponse(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=1093, kind="response", versions="0-0", flexible="0+")
    throttle_time_ms: Annotated[int, Wire("int32", "0+")] = 0
    error_code: Annotated[Error, Wire("error", "0+")] = Error.NONE
    broker_epoch: Annotated[int, Wire("int64", "0+")] = -1
    truncated: Annotated[bool, Wire("bool", "0+")] = False
    topic_partition_log_info_list: Annotated[list[TopicPartitionLogInfo], Wire("[]struct", "0+")] = []


EXCHANGE = Exchange(Api.GET_REPLICA_LOG_INFO, GetReplicaLogInfoRequest, GetReplicaLogInfoResponse)
