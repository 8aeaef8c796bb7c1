"""Whom leaders propose for the ISR, as AlterPartition says it on the simulated network; `Watch` holds it against the logs (I24)."""

from typing import NamedTuple
from uuid import UUID

from replog.wire.apis import Api
from replog.wire.messages.alter_partition import AlterPartitionRequest
from tribunal.clusters.api import CLIENTS
from tribunal.clusters.simulated.frames import Frame, request_body


class Proposal(NamedTuple):
    """An ISR that a leader proposes, with the broker epoch of each member."""

    leader: int
    topic_id: UUID
    partition: int
    leader_epoch: int
    partition_epoch: int
    members: tuple[tuple[int, int], ...]


def proposals_of(frame: Frame) -> list[Proposal]:
    """Return what a message proposes as it is written; of versions that say no broker epochs nothing."""
    if frame.api != Api.ALTER_PARTITION or not frame.is_request or frame.source == CLIENTS:
        return []
    body = request_body(frame)
    if not isinstance(body, AlterPartitionRequest):
        return []
    return [
        Proposal(
            frame.source,
            topic.topic_id,
            one.partition_index,
            one.leader_epoch,
            one.partition_epoch,
            tuple((member.broker_id, member.broker_epoch) for member in one.new_isr_with_epochs),
        )
        for topic in body.topics
        for one in topic.partitions
    ]
