"""Earliest and latest offsets, asked of the committed leader in its committed epoch (KIP-320).

An ordinary client's ListOffsets may reach a deposed leader that does not know it yet, whose answer is older than
one that the client already has. Nothing forbids that, so it would be a false alarm. Asked with the leader epoch,
a deposed leader is not asked at all, or refuses; then "latest never goes back" holds for one observer (KIP-207).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from replog.client.client import EARLIEST, LATEST
from replog.errors import Error
from replog.wire.messages.list_offsets import (
    EXCHANGE,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tribunal.clusters.api import Offsets, TopicPartition
from tribunal.clusters.clients.asking import FAILURES, Asking
from tribunal.clusters.clock import moment_s
from tribunal.clusters.secured.door import OPEN, Door

CLIENT_ID: Final = "tribunal-offsets"


class Leader(msgspec.Struct, frozen=True):
    """Who leads a partition, where it is reached, in which epoch."""

    node: int
    endpoint: tuple[str, int]
    leader_epoch: int


Leaders = Callable[[TopicPartition], Leader | None]


async def fenced_offsets(
    leaders: Leaders,
    partitions: Sequence[TopicPartition],
    timeout_ms: int,
    *,
    stable: bool = False,
    version: int,
    door: Door = OPEN,
) -> list[Offsets]:
    """Ask every partition's leader; an unknown leader or no answer is an error of that partition.

    stable:   latest is the last stable offset.
    version:  of ListOffsets, as the brokers answer it.
    door:     how the brokers are got in at.
    """
    known: dict[TopicPartition, Leader] = {}
    for partition in partitions:
        leader = leaders(partition)
        if leader is not None:
            known[partition] = leader
    by_node: dict[int, list[TopicPartition]] = {}
    for partition, leader in known.items():
        by_node.setdefault(leader.node, []).append(partition)
    answers = await asyncio.gather(
        *(_ask(known, asked, timeout_ms, stable=stable, version=version, door=door) for asked in by_node.values())
    )
    return in_order(partitions, answers)


def in_order(partitions: Sequence[TopicPartition], answers: Iterable[list[Offsets]]) -> list[Offsets]:
    """Return the answers of all leaders in the order of the questions."""
    found = {offsets.partition: offsets for answer in answers for offsets in answer}
    return [found.get(partition) or failed(partition, "LEADER_NOT_AVAILABLE") for partition in partitions]


def failed(partition: TopicPartition, error: str) -> Offsets:
    """Return why there are no offsets."""
    return Offsets(partition, log_start_offset=None, latest_offset=None, leader_epoch=None, error=error)


def request_at(timestamp: int, epochs: Mapping[TopicPartition, int], *, stable: bool) -> ListOffsetsRequest:
    """Return the question for the offsets at a timestamp, EARLIEST or LATEST; the leader epochs fence it."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for partition, epoch in epochs.items():
        topics.setdefault(partition.topic, []).append(
            ListOffsetsPartition(partition_index=partition.partition, current_leader_epoch=epoch, timestamp=timestamp)
        )
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(stable),
        topics=[ListOffsetsTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )


def combined(
    leader: int,
    epochs: Mapping[TopicPartition, int],
    earliest: ListOffsetsResponse,
    latest: ListOffsetsResponse,
    *,
    asked_s: float,
) -> list[Offsets]:
    """Return what two answers of one leader, of which the second came now, say for the partitions that both name."""
    answered_s = moment_s()
    first, last = _by_partition(earliest), _by_partition(latest)
    return [
        Offsets(
            partition,
            log_start_offset=first[partition][0],
            latest_offset=last[partition][0],
            leader_epoch=epoch,
            error=last[partition][1] or first[partition][1],
            answered_s=answered_s,
            answered_by=leader,
            asked_s=asked_s,
        )
        for partition, epoch in epochs.items()
        if partition in first and partition in last
    ]


def _by_partition(answer: ListOffsetsResponse) -> dict[TopicPartition, tuple[int | None, str | None]]:
    """Return each partition's offset, or why there is none."""
    found: dict[TopicPartition, tuple[int | None, str | None]] = {}
    for topic in answer.topics:
        for part in topic.partitions:
            fine = part.error_code is Error.NONE and part.offset >= 0
            error = None if fine else Error(part.error_code).name
            found[TopicPartition(topic.name, part.partition_index)] = (part.offset if fine else None, error)
    return found


async def _ask(
    leaders: dict[TopicPartition, Leader],
    asked: Sequence[TopicPartition],
    timeout_ms: int,
    *,
    stable: bool,
    version: int,
    door: Door,
) -> list[Offsets]:
    epochs = {partition: leaders[partition].leader_epoch for partition in asked}
    asked_s = moment_s()
    try:
        asking = await Asking.open(leaders[asked[0]].endpoint, CLIENT_ID, timeout_ms, door)
    except FAILURES as problem:
        return [failed(partition, type(problem).__name__) for partition in asked]
    try:
        # Earliest first: between the two answers an offset may only grow.
        earliest, latest = [
            await asking.ask(EXCHANGE, version, request_at(timestamp, epochs, stable=stable), timeout_ms)
            for timestamp in (EARLIEST, LATEST)
        ]
    except FAILURES as problem:
        return [failed(partition, type(problem).__name__) for partition in asked]
    finally:
        asking.close()
    return combined(leaders[asked[0]].node, epochs, earliest, latest, asked_s=asked_s)
