"""Old forms of the controller's requests, brought into the one form that its cores know (SPEC 2.7.1).

AlterPartition alone has changed its meaning: versions 0 and 1 name topics, versions 0 to 2 give the ISR without
broker epochs, and versions 0 and 1 know other words for two errors.
"""

from collections.abc import Callable
from typing import Final
from uuid import UUID

import msgspec

from replog.errors import Error
from replog.types import NO_BROKER_EPOCH, ZERO_UUID
from replog.wire.messages import alter_partition as ap

FIRST_VERSION_WITH_TOPIC_IDS: Final = 2
FIRST_VERSION_WITH_EPOCHS: Final = 3

_OLD_WORDS: Final = {
    Error.INELIGIBLE_REPLICA: Error.OPERATION_NOT_ATTEMPTED,
    Error.NEW_LEADER_ELECTED: Error.FENCED_LEADER_EPOCH,
    Error.UNKNOWN_TOPIC_ID: Error.UNKNOWN_TOPIC_OR_PARTITION,
}


def current_alter_partition(
    request: ap.AlterPartitionRequest, version: int, topic_id_of: Callable[[str], UUID]
) -> ap.AlterPartitionRequest:
    """Return the request as version 3 says it; `topic_id_of` answers ZERO_UUID for unknown names."""
    if version >= FIRST_VERSION_WITH_EPOCHS:
        return request
    topics = []
    for topic in request.topics:
        by_name = version < FIRST_VERSION_WITH_TOPIC_IDS
        topic_id = topic_id_of(topic.topic_name) if by_name else topic.topic_id
        partitions = [_with_epochs(partition) for partition in topic.partitions]
        topics.append(msgspec.structs.replace(topic, topic_id=topic_id, partitions=partitions))
    return msgspec.structs.replace(request, topics=topics)


def _with_epochs(partition: ap.AlterPartitionRequestPartitionData) -> ap.AlterPartitionRequestPartitionData:
    isr = [ap.BrokerState(broker_id=node, broker_epoch=NO_BROKER_EPOCH) for node in partition.new_isr]
    return msgspec.structs.replace(partition, new_isr=[], new_isr_with_epochs=isr)


def old_alter_partition(response: ap.AlterPartitionResponse, version: int) -> ap.AlterPartitionResponse:
    """Return the response in the words of the version it goes out in."""
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        return response
    topics = [
        msgspec.structs.replace(
            topic,
            topic_id=ZERO_UUID,
            partitions=[
                msgspec.structs.replace(
                    partition, error_code=_OLD_WORDS.get(partition.error_code, partition.error_code)
                )
                for partition in topic.partitions
            ],
        )
        for topic in response.topics
    ]
    return msgspec.structs.replace(response, topics=topics)
