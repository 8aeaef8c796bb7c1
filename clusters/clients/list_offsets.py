"""Earliest and latest offsets, asked of the committed leader in its committed epoch (KIP-320).

An ordinary client's ListOffsets may reach a deposed leader that does not know it yet, whose answer is older than
one that the client already has. Nothing forbids that, so it would be a false alarm. Asked with the leader epoch,
a deposed leader is not asked at all, or refuses; then "latest never goes back" holds for one observer (KIP-207).
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from replog.errors import Error
from replog.wire.apis import Api
from replog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tribunal.clusters.api import Offsets, TopicPartition
from tribunal.clusters.clients.asking import FAILURES, Asking

VERSION: Final = 7
EARLIEST: Final = -2
LATEST: Final = -1
CLIENT_ID: Final = "tribunal-offsets"


class Leader(msgspec.Struct, frozen=True):
    """Who leads a partition, where it is reached, in which epoch."""

    node: int
    endpoint: tuple[str, int]
    leader_epoch: int


Leaders = Callable[[TopicPartition], Leader | None]


async def fenced_offsets(
    leaders: Leaders, partitions: Sequence[TopicPartition], timeout_ms: int, *, stable: bool = False
) -> list[Offsets]:
    """Ask every partition's leader; an unknown leader or no answer is an error of that partition.

    stable:  latest is the last stable offset.
    """
    known: dict[TopicPartition, Leader] = {}
    for partition in partitions:
        leader = leaders(partition)
        if leader is not None:
            known[partition] = leader
    by_node: dict[int, list[TopicPartition]] = {}
    for partition, leader in known.items():
        by_node.setdefault(leader.node, []).append(partition)
    answers = await asyncio.gather(*(_ask(known, asked, timeout_ms, stable=stable) for asked in by_node.values()))
    found = {offsets.partition: offsets for answer in answers for offsets in answer}
    return [found.get(partition) or _failed(partition, "LEADER_NOT_AVAILABLE") for partition in partitions]


def _failed(partition: TopicPartition, error: str) -> Offsets:
    return Offsets(partition, log_start_offset=None, latest_offset=None, leader_epoch=None, error=error)


async def _ask(
    leaders: dict[TopicPartition, Leader], asked: Sequence[TopicPartition], timeout_ms: int, *, stable: bool
) -> list[Offsets]:
    try:
        asking = await Asking.open(leaders[asked[0]].endpoint, CLIENT_ID, timeout_ms)
    except FAILURES as problem:
        return [_failed(partition, type(problem).__name__) for partition in asked]
    try:
        # Earliest first: between the two answers an offset may only grow.
        earliest = await _offsets_at(asking, leaders, asked, EARLIEST, timeout_ms, stable=stable)
        latest = await _offsets_at(asking, leaders, asked, LATEST, timeout_ms, stable=stable)
    except FAILURES as problem:
        return [_failed(partition, type(problem).__name__) for partition in asked]
    finally:
        asking.close()
    answered_s = asyncio.get_running_loop().time()
    return [
        Offsets(
            partition,
            log_start_offset=earliest[partition][0],
            latest_offset=latest[partition][0],
            leader_epoch=leaders[partition].leader_epoch,
            error=latest[partition][1] or earliest[partition][1],
            answered_s=answered_s,
        )
        for partition in asked
        if partition in earliest and partition in latest
    ]


async def _offsets_at(
    asking: Asking,
    leaders: dict[TopicPartition, Leader],
    asked: Sequence[TopicPartition],
    timestamp: int,
    timeout_ms: int,
    *,
    stable: bool,
) -> dict[TopicPartition, tuple[int | None, str | None]]:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for partition in asked:
        epoch = leaders[partition].leader_epoch
        topics.setdefault(partition.topic, []).append(
            ListOffsetsPartition(partition_index=partition.partition, current_leader_epoch=epoch, timestamp=timestamp)
        )
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(stable),
        topics=[ListOffsetsTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )
    answer = await asking.ask(Api.LIST_OFFSETS, VERSION, request, timeout_ms)
    assert isinstance(answer, ListOffsetsResponse)
    found: dict[TopicPartition, tuple[int | None, str | None]] = {}
    for topic in answer.topics:
        for part in topic.partitions:
            fine = part.error_code is Error.NONE and part.offset >= 0
            error = None if fine else Error(part.error_code).name
            found[TopicPartition(topic.name, part.partition_index)] = (part.offset if fine else None, error)
    return found
