"""StopReplica (api key 5), versions 0-4: which replicas a broker gives up.

A control request of the ZooKeeper era (KIP-380, KIP-704), which kio lacks; the layout is that of Apache Kafka's
message schema (Apache License 2.0).
"""

from typing import Annotated, ClassVar

import msgspec

from replog.errors import Error
from replog.wire.apis import Api
from replog.wire.exchange import Exchange
from replog.wire.layout import Layout, Wire


class StopReplicaPartitionV0(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    topic_name: Annotated[str, Wire("string", "0")] = ""
    partition_index: Annotated[int, Wire("int32", "0")] = 0


class StopReplicaTopicV1(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    name: Annotated[str, Wire("string", "1-2")] = ""
    partition_indexes: Annotated[list[int], Wire("[]int32", "1-2")] = []


class StopReplicaPartitionState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    partition_index: Annotated[int, Wire("int32", "3+")] = 0
    leader_epoch: Annotated[int, Wire("int32", "3+")] = -1
    delete_partition: Annotated[bool, Wire("bool", "3+")] = False


class StopReplicaTopicState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    topic_name: Annotated[str, Wire("string", "3+")] = ""
    partition_states: Annotated[list[StopReplicaPartitionState], Wire("[]struct", "3+")] = []


class StopReplicaRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=5, kind="request", versions="0-4", flexible="2+")
    controller_id: Annotated[int, Wire("int32", "0+")] = 0
    is_kraft_controller: Annotated[bool, Wire("bool", "4+")] = False
    controller_epoch: Annotated[int, Wire("int32", "0+")] = 0
    broker_epoch: Annotated[int, Wire("int64", "1+")] = -1
    delete_partitions: Annotated[bool, Wire("bool", "0-2")] = False
    ungrouped_partitions: Annotated[list[StopReplicaPartitionV0], Wire("[]struct", "0")] = []
    topics: Annotated[list[StopReplicaTopicV1], Wire("[]struct", "1-2")] = []
    topic_states: Annotated[list[StopReplicaTopicState], Wire("[]struct", "3+")] = []


class StopReplicaPartitionError(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    topic_name: Annotated[str, Wire("string", "0+")] = ""
    partition_index: Annotated[int, Wire("int32", "0+")] = 0
    error_code: Annotated[Error, Wire("error", "0+")] = Error.NONE


class StopReplicaResponse(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=5, kind="response", versions="0-4", flexible="2+")
    error_code: Annotated[Error, Wire("error", "0+")] = Error.NONE
    partition_errors: Annotated[list[StopReplicaPartitionError], Wire("[]struct", "0+")] = []


EXCHANGE = Exchange(Api.STOP_REPLICA, StopReplicaRequest, StopReplicaResponse)
