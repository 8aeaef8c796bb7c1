"""LeaderAndIsr (api key 4), versions 0-7: which partitions a broker leads or follows.

A control request of the ZooKeeper era (KIP-380, KIP-704), which kio lacks; the layout is that of Apache Kafka's
message schema (Apache License 2.0).
"""

from typing import Annotated, ClassVar
from uuid import UUID

import msgspec

from replog.errors import Error
from replog.types import ZERO_UUID
from replog.wire.apis import Api
from replog.wire.exchange import Exchange
from replog.wire.layout import Layout, Wire


class LeaderAndIsrPartitionState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    topic_name: Annotated[str, Wire("string", "0-1")] = ""
    partition_index: Annotated[int, Wire("int32", "0+")] = 0
    controller_epoch: Annotated[int, Wire("int32", "0+")] = 0
    leader: Annotated[int, Wire("int32", "0+")] = 0
    leader_epoch: Annotated[int, Wire("int32", "0+")] = 0
    isr: Annotated[list[int], Wire("[]int32", "0+")] = []
    partition_epoch: Annotated[int, Wire("int32", "0+")] = 0
    replicas: Annotated[list[int], Wire("[]int32", "0+")] = []
    adding_replicas: Annotated[list[int], Wire("[]int32", "3+")] = []
    removing_replicas: Annotated[list[int], Wire("[]int32", "3+")] = []
    is_new: Annotated[bool, Wire("bool", "1+")] = False
    leader_recovery_state: Annotated[int, Wire("int8", "6+")] = 0


class LeaderAndIsrTopicState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    topic_name: Annotated[str, Wire("string", "2+")] = ""
    topic_id: Annotated[UUID, Wire("uuid", "5+")] = ZERO_UUID
    partition_states: Annotated[list[LeaderAndIsrPartitionState], Wire("[]struct", "2+")] = []


class LeaderAndIsrLiveLeader(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    broker_id: Annotated[int, Wire("int32", "0+")] = 0
    host_name: Annotated[str, Wire("string", "0+")] = ""
    port: Annotated[int, Wire("int32", "0+")] = 0


class LeaderAndIsrRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=4, kind="request", versions="0-7", flexible="4+")
    controller_id: Annotated[int, Wire("int32", "0+")] = 0
    is_kraft_controller: Annotated[bool, Wire("bool", "7+")] = False
    controller_epoch: Annotated[int, Wire("int32", "0+")] = 0
    broker_epoch: Annotated[int, Wire("int64", "2+")] = -1
    type: Annotated[int, Wire("int8", "5+")] = 0
    ungrouped_partition_states: Annotated[list[LeaderAndIsrPartitionState], Wire("[]struct", "0-1")] = []
    topic_states: Annotated[list[LeaderAndIsrTopicState], Wire("[]struct", "2+")] = []
    live_leaders: Annotated[list[LeaderAndIsrLiveLeader], Wire("[]struct", "0+")] = []


class LeaderAndIsrPartitionError(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    topic_name: Annotated[str, Wire("string", "0-4")] = ""
    partition_index: Annotated[int, Wire("int32", "0+")] = 0
    error_code: Annotated[Error, Wire("error", "0+")] = Error.NONE


class LeaderAndIsrTopicError(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    topic_id: Annotated[UUID, Wire("uuid", "5+")] = ZERO_UUID
    partition_errors: Annotated[list[LeaderAndIsrPartitionError], Wire("[]struct", "5+")] = []


class LeaderAndIsrResponse(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=4, kind="response", versions="0-7", flexible="4+")
    error_code: Annotated[Error, Wire("error", "0+")] = Error.NONE
    partition_errors: Annotated[list[LeaderAndIsrPartitionError], Wire("[]struct", "0-4")] = []
    topics: Annotated[list[LeaderAndIsrTopicError], Wire("[]struct", "5+")] = []


EXCHANGE = Exchange(Api.LEADER_AND_ISR, LeaderAndIsrRequest, LeaderAndIsrResponse)
