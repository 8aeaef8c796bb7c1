"""ElectDesignatedLeaders (private api key 1094), version 0: an operator chooses who leads (KIP-966, SPEC D9).

KIP-966 announces for ElectLeaders a leader by name and the replica with the longest log; the schema was lost from
its text. `election_type` 2: `designated_leader` of each partition; 3 and 4: the longest log, found by the
recovery manager in Aggressive or Balanced mode. The answer to partitions beyond the first 1000 is
REQUEST_LIMIT_REACHED.
"""

from enum import IntEnum
from typing import Annotated, ClassVar

import msgspec

from replog.errors import Error
from replog.wire.apis import Api
from replog.wire.exchange import Exchange
from replog.wire.layout import Layout, Wire


class ElectionType(IntEnum):
    """What `election_type` can say here; 0 and 1 belong to ElectLeaders (preferred, unclean)."""

    DESIGNATED = 2
    LONGEST_LOG_AGGRESSIVE = 3
    LONGEST_LOG_BALANCED = 4


class DesignatedPartition(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    partition: Annotated[int, Wire("int32", "0+")] = 0
    designated_leader: Annotated[int, Wire("int32", "0+")] = -1


class DesignatedTopic(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    topic: Annotated[str, Wire("string", "0+")] = ""
    partitions: Annotated[list[DesignatedPartition], Wire("[]struct", "0+")] = []


class ElectDesignatedLeadersRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=1094, kind="request", versions="0-0", flexible="0+")
    election_type: Annotated[int, Wire("int8", "0+")] = ElectionType.DESIGNATED
    topics: Annotated[list[DesignatedTopic], Wire("[]struct", "0+")] = []
    timeout_ms: Annotated[int, Wire("int32", "0+")] = 60000


class DesignatedPartitionResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    partition: Annotated[int, Wire("int32", "0+")] = 0
    error_code: Annotated[Error, Wire("error", "0+")] = Error.NONE
    error_message: Annotated[str | None, Wire("string", "0+", nullable="0+")] = None


class DesignatedTopicResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    topic: Annotated[str, Wire("string", "0+")] = ""
    partition_results: Annotated[list[DesignatedPartitionResult], Wire("[]struct", "0+")] = []


class ElectDesignatedLeadersResponse(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=1094, kind="response", versions="0-0", flexible="0+")
    throttle_time_ms: Annotated[int, Wire("int32", "0+")] = 0
    error_code: Annotated[Error, Wire("error", "0+")] = Error.NONE
    replica_election_results: Annotated[list[DesignatedTopicResult], Wire("[]struct", "0+")] = []


EXCHANGE = Exchange(Api.ELECT_DESIGNATED_LEADERS, ElectDesignatedLeadersRequest, ElectDesignatedLeadersResponse)
