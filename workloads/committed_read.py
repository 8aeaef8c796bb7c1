"""The end of a workload with transactions: read all that is committed, and see whether anything holds the readers back."""

import asyncio
from collections.abc import Sequence
from typing import Final

from tribunal.clusters.api import Admin, PartitionPoll, TopicPartition
from tribunal.workloads.api import Reader, Stage, create_topic

FINAL_READER: Final = 999
POLL_RECORDS: Final = 2_000
POLL_MS: Final = 200
OFFSETS_MS: Final = 2_000
OUT_OF_RANGE: Final = frozenset({"OFFSET_OUT_OF_RANGE", "_AUTO_OFFSET_RESET"})


async def create(stage: Stage, topics: Sequence[str], partitions: int, replication_factor: int) -> None:
    """Create the topics."""
    admin = stage.clients.admin("topic-maker")
    try:
        for topic in topics:
            await create_topic(stage, admin, topic, partitions, replication_factor)
    finally:
        await admin.close()


async def read_committed(stage: Stage, partitions: Sequence[TopicPartition], timeout_ms: int) -> list[TopicPartition]:
    """Read every partition from its start to its high watermark, read_committed; return those not reached."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    admin = stage.clients.admin("final-read-offsets")
    reader = Reader(stage, FINAL_READER, "final", "read_committed")
    positions = dict.fromkeys(partitions, 0)
    closed: dict[TopicPartition, None] = {}
    try:
        reader.assign(positions)
        while len(closed) < len(partitions) and loop.time() < deadline:
            for poll in await reader.poll(POLL_RECORDS, POLL_MS):
                if poll.records:
                    positions[poll.partition] = poll.records[-1].log_offset + 1
                positions[poll.partition] = max(positions[poll.partition], poll.next_position or 0)
                if poll.error in OUT_OF_RANGE:  # records before the log start are deleted
                    await _begin_at_log_start(admin, reader, positions, poll.partition)
            await _close(stage, admin, reader, positions, closed)
        return [partition for partition in partitions if partition not in closed]
    finally:
        await reader.close()
        await admin.close()


async def held_back(stage: Stage, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Return those whose last stable offset is below their end: nobody who reads what is committed gets there."""
    if not partitions:
        return []
    admin = stage.clients.admin("final-read-offsets")
    try:
        stable = {
            offsets.partition: offsets.latest_offset
            for offsets in await admin.offsets(partitions, OFFSETS_MS, stable=True)
        }
        ends = {offsets.partition: offsets.latest_offset for offsets in await admin.offsets(partitions, OFFSETS_MS)}
    finally:
        await admin.close()
    return [one for one in partitions if _is_below(stable.get(one), ends.get(one))]


def _is_below(stable: int | None, end: int | None) -> bool:
    return stable is not None and end is not None and stable < end


async def _begin_at_log_start(
    admin: Admin, reader: Reader, positions: dict[TopicPartition, int], partition: TopicPartition
) -> None:
    """Read a partition from its log start on."""
    (offsets,) = await admin.offsets([partition], OFFSETS_MS)
    if offsets.log_start_offset is not None:
        positions[partition] = max(positions[partition], offsets.log_start_offset)
        reader.seek(partition, positions[partition])


async def _close(
    stage: Stage,
    admin: Admin,
    reader: Reader,
    positions: dict[TopicPartition, int],
    closed: dict[TopicPartition, None],
) -> None:
    """Record both watermarks of what is open; where everything was read, record the poll that brings nothing."""
    open_ = [partition for partition in positions if partition not in closed]
    invoke_ns = stage.now_ns()
    stable = {offsets.partition: offsets for offsets in await admin.offsets(open_, OFFSETS_MS, stable=True)}
    for offsets in await admin.offsets(open_, OFFSETS_MS):
        stable_offsets = stable[offsets.partition]
        last_stable_offset = stable_offsets.latest_offset
        if offsets.latest_offset is None or offsets.log_start_offset is None or last_stable_offset is None:
            continue
        # Both were answered in one leader epoch, or they are of none.
        leader_epoch = offsets.leader_epoch if offsets.leader_epoch == stable_offsets.leader_epoch else None
        stage.sink.row(
            "watermarks",
            observer="final-read-offsets",
            source="list_offsets",
            topic=offsets.partition.topic,
            partition=offsets.partition.partition,
            answered_by=offsets.answered_by if offsets.answered_by == stable_offsets.answered_by else None,
            leader_epoch=leader_epoch,
            high_watermark=offsets.latest_offset,
            last_stable_offset=last_stable_offset,
            log_start_offset=offsets.log_start_offset,
            at_ns=stage.answered_ns(offsets),
            asked_ns=stage.asked_ns(stable_offsets.asked_s),
        )
        if positions[offsets.partition] >= offsets.latest_offset:
            closed[offsets.partition] = None
            closing = PartitionPoll(
                partition=offsets.partition,
                position=positions[offsets.partition],
                records=[],
                high_watermark=offsets.latest_offset,
                last_stable_offset=last_stable_offset,
                log_start_offset=offsets.log_start_offset,
                answered_by=offsets.answered_by,
                leader_epoch=leader_epoch,
            )
            reader.record_closing(closing, invoke_ns)
