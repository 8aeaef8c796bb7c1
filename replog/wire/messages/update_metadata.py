"""UpdateMetadata (api key 6), versions 0-8: what brokers tell clients.

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


class UpdateMetadataPartitionState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    topic_name: Annotated[str, Wire("string", "0-4")] = ""
    partition_index: Annotated[int, Wire("int32", "0+")] = 0
    controller_epoch: Annotated[int, Wire("int32", "0+")] = 0
    leader: Annotated[int, Wire("int32", "0+")] = 0
    leader_epoch: Annotated[int, Wire("int32", "0+")] = 0
    isr: Annotated[list[int], Wire("[]int32", "0+")] = []
    zk_version: Annotated[int, Wire("int32", "0+")] = 0
    replicas: Annotated[list[int], Wire("[]int32", "0+")] = []
    offline_replicas: Annotated[list[int], Wire("[]int32", "4+")] = []


class UpdateMetadataTopicState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    topic_name: Annotated[str, Wire("string", "5+")] = ""
    topic_id: Annotated[UUID, Wire("uuid", "7+")] = ZERO_UUID
    partition_states: Annotated[list[UpdateMetadataPartitionState], Wire("[]struct", "5+")] = []


class UpdateMetadataEndpoint(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    port: Annotated[int, Wire("int32", "1+")] = 0
    host: Annotated[str, Wire("string", "1+")] = ""
    listener: Annotated[str, Wire("string", "3+")] = ""
    security_protocol: Annotated[int, Wire("int16", "1+")] = 0


class UpdateMetadataBroker(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    id: Annotated[int, Wire("int32", "0+")] = 0
    v0_host: Annotated[str, Wire("string", "0")] = ""
    v0_port: Annotated[int, Wire("int32", "0")] = 0
    endpoints: Annotated[list[UpdateMetadataEndpoint], Wire("[]struct", "1+")] = []
    rack: Annotated[str | None, Wire("string", "2+", nullable="2+")] = ""


class UpdateMetadataRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=6, kind="request", versions="0-8", flexible="6+")
    controller_id: Annotated[int, Wire("int32", "0+")] = 0
    is_kraft_controller: Annotated[bool, Wire("bool", "8+")] = False
    type: Annotated[int, Wire("int8", "8+", tag=0, tagged="8+")] = 0
    controller_epoch: Annotated[int, Wire("int32", "0+")] = 0
    broker_epoch: Annotated[int, Wire("int64", "5+")] = -1
    ungrouped_partition_states: Annotated[list[UpdateMetadataPartitionState], Wire("[]struct", "0-4")] = []
    topic_states: Annotated[list[UpdateMetadataTopicState], Wire("[]struct", "5+")] = []
    live_brokers: Annotated[list[UpdateMetadataBroker], Wire("[]struct", "0+")] = []


class UpdateMetadataResponse(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=6, kind="response", versions="0-8", flexible="6+")
    error_code: Annotated[Error, Wire("error", "0+")] = Error.NONE


EXCHANGE = Exchange(Api.UPDATE_METADATA, UpdateMetadataRequest, UpdateMetadataResponse)
