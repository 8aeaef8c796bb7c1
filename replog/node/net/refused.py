"""What brokers of Apache Kafka 4.3.1 answer on which client telemetry, share groups and streams groups are off.

No listener offers these (`REFUSED_APIS`). UNSUPPORTED_VERSION stands where the layout of the answer has room for it: for the whole
request, or with each group that it names. The state of share groups is asked for by brokers only, and its answers have room with
single partitions only; there it is NOT_COORDINATOR, since nobody coordinates it (KIP-932).
"""

from typing import Final

import msgspec

from replog.errors import Error
from replog.wire.apis import Api, response_type
from replog.wire.messages import delete_share_group_state as deleting
from replog.wire.messages import describe_share_group_offsets as offsets
from replog.wire.messages import initialize_share_group_state as initializing
from replog.wire.messages import read_share_group_state as reading
from replog.wire.messages import read_share_group_state_summary as summing
from replog.wire.messages import share_group_describe as shared
from replog.wire.messages import streams_group_describe as streaming
from replog.wire.messages import streams_group_heartbeat as beating
from replog.wire.messages import write_share_group_state as writing

WITH_WORDS: Final = (Api.ALTER_SHARE_GROUP_OFFSETS, Api.DELETE_SHARE_GROUP_OFFSETS)
StateRequest = (
    initializing.InitializeShareGroupStateRequest
    | reading.ReadShareGroupStateRequest
    | writing.WriteShareGroupStateRequest
    | deleting.DeleteShareGroupStateRequest
    | summing.ReadShareGroupStateSummaryRequest
)
# What is said with a partition's state, and the types of an answer's topic and partition.
OF_STATE: Final[dict[Api, tuple[str, type[msgspec.Struct], type[msgspec.Struct]]]] = {
    Api.INITIALIZE_SHARE_GROUP_STATE: (
        "initialize share group state",
        initializing.InitializeStateResult,
        initializing.PartitionResult,
    ),
    Api.READ_SHARE_GROUP_STATE: ("read share group state", reading.ReadStateResult, reading.PartitionResult),
    Api.WRITE_SHARE_GROUP_STATE: ("write share group state", writing.WriteStateResult, writing.PartitionResult),
    Api.DELETE_SHARE_GROUP_STATE: ("delete share group state", deleting.DeleteStateResult, deleting.PartitionResult),
    Api.READ_SHARE_GROUP_STATE_SUMMARY: (
        "read share group state summary",
        summing.ReadStateSummaryResult,
        summing.PartitionResult,
    ),
}


def refusal_of(api: Api, body: msgspec.Struct) -> msgspec.Struct:
    """Return the answer to a request that nobody offers: all that it asks for is refused.

    api:  one of `REFUSED_APIS`, and `body` a request of it.
    """
    error = Error.UNSUPPORTED_VERSION
    answer = response_type(api)
    if isinstance(body, StateRequest):
        return answer(results=_state_refused(api, body))
    if isinstance(body, shared.ShareGroupDescribeRequest):
        return answer(groups=[shared.DescribedGroup(group_id=group, error_code=error) for group in body.group_ids])
    if isinstance(body, streaming.StreamsGroupDescribeRequest):
        return answer(groups=[streaming.DescribedGroup(group_id=group, error_code=error) for group in body.group_ids])
    if isinstance(body, offsets.DescribeShareGroupOffsetsRequest):
        of_group = offsets.DescribeShareGroupOffsetsResponseGroup
        return answer(groups=[of_group(group_id=group.group_id, error_code=error) for group in body.groups])
    if isinstance(body, beating.StreamsGroupHeartbeatRequest):
        return beating.StreamsGroupHeartbeatResponse(
            error_code=error,
            active_tasks=None,
            standby_tasks=None,
            warmup_tasks=None,
            partitions_by_user_endpoint=None,
        )
    if api in WITH_WORDS:
        return answer(error_code=error, error_message="The version of API is not supported.")
    return answer(error_code=error)


def _state_refused(api: Api, body: StateRequest) -> list[msgspec.Struct]:
    what, of_topic, of_partition = OF_STATE[api]
    refused = {
        "error_code": Error.NOT_COORDINATOR,
        "error_message": f"Unable to {what}: This is not the correct coordinator.",
    }
    return [
        of_topic(
            topic_id=topic.topic_id,
            partitions=[of_partition(partition=one.partition, **refused) for one in topic.partitions],
        )
        for topic in body.topics
    ]
