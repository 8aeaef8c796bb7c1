"""ControlledShutdown (api key 7), versions 0-3: a broker asks to be relieved of its leaderships.

A control request of the ZooKeeper era (KIP-380, KIP-704), which kio lacks; the layout is that of Apache Kafka's
message schema (Apache License 2.0).
"""

from typing import Annotated, ClassVar

import msgspec

from replog.errors import Error
from replog.wire.apis import Api
from replog.wire.exchange import Exchange
from replog.wire.layout import Layout, Wire


class ControlledShutdownRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=7, kind="request", versions="0-3", flexible="3+")
    broker_id: Annotated[int, Wire("int32", "0+")] = 0
    broker_epoch: Annotated[int, Wire("int64", "2+")] = -1


class RemainingPartition(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    topic_name: Annotated[str, Wire("string", "0+")] = ""
    partition_index: Annotated[int, Wire("int32", "0+")] = 0


class ControlledShutdownResponse(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=7, kind="response", versions="0-3", flexible="3+")
    error_code: Annotated[Error, Wire("error", "0+")] = Error.NONE
    remaining_partitions: Annotated[list[RemainingPartition], Wire("[]struct", "0+")] = []


EXCHANGE = Exchange(Api.CONTROLLED_SHUTDOWN, ControlledShutdownRequest, ControlledShutdownResponse)
