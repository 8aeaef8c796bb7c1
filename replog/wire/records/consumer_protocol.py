"""What consumers put into JoinGroup and SyncGroup as subscription and assignment.

Both start with an int16 version. Layouts are those of Apache Kafka's message schemas (Apache License 2.0).
"""

from typing import Annotated, ClassVar

import msgspec

from replog.wire.layout import Layout, Wire


class ConsumerProtocolAssignmentTopicPartition(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    topic: Annotated[str, Wire("string", "0+")] = ""
    partitions: Annotated[list[int], Wire("[]int32", "0+")] = []


class ConsumerProtocolAssignment(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=-1, kind="data", versions="0-3", flexible="")
    assigned_partitions: Annotated[list[ConsumerProtocolAssignmentTopicPartition], Wire("[]struct", "0+")] = []
    user_data: Annotated[bytes | None, Wire("bytes", "0+", nullable="0+")] = None


class ConsumerProtocolSubscriptionTopicPartition(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    topic: Annotated[str, Wire("string", "1+")] = ""
    partitions: Annotated[list[int], Wire("[]int32", "1+")] = []


class ConsumerProtocolSubscription(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=-1, kind="data", versions="0-3", flexible="")
    topics: Annotated[list[str], Wire("[]string", "0+")] = []
    user_data: Annotated[bytes | None, Wire("bytes", "0+", nullable="0+")] = None
    owned_partitions: Annotated[list[ConsumerProtocolSubscriptionTopicPartition], Wire("[]struct", "1+")] = []
    generation_id: Annotated[int, Wire("int32", "2+")] = -1
    rack_id: Annotated[str | None, Wire("string", "3+", nullable="3+")] = None
