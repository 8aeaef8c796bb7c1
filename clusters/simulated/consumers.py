"""Consumers for simulated workloads: replog's own, in the words of `tribunal.clusters.api`."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from replog.client.client import Client
from replog.client.consumer import READ_COMMITTED, READ_UNCOMMITTED, Consumer, PartitionRecords
from replog.client.group_member import GroupMember
from replog.client.outcomes import CommitEnd, Outcome
from replog.errors import Error
from tribunal.clusters.api import (
    Answered,
    Committed,
    GroupSettings,
    Membership,
    PartitionPoll,
    ReceivedRecord,
    TopicPartition,
)

ANSWERED: Final[Mapping[Outcome, Literal["ok", "fail", "info"]]] = {
    Outcome.DONE: "ok",
    Outcome.WITHOUT_EFFECT: "fail",
    Outcome.UNKNOWN: "info",
}


def answered(end: CommitEnd) -> Answered:
    """Return the end of a commit in the workloads' words."""
    return Answered(ANSWERED[end.outcome], end.error, end.node)


def partition_poll(fetched: PartitionRecords) -> PartitionPoll:
    """Return what arrived of one partition in the workloads' words."""
    return PartitionPoll(
        partition=fetched.partition,
        position=fetched.position,
        records=[
            ReceivedRecord(
                record.offset,
                record.key,
                record.value,
                read.leader_epoch,
                record.headers,
                record.timestamp_ms,
                read.is_log_append_time,
            )
            for read in fetched.batches
            for record in read.records
        ],
        error=None if fetched.error is Error.NONE else fetched.error.name,
        high_watermark=fetched.high_watermark,
        last_stable_offset=fetched.last_stable_offset,
        log_start_offset=fetched.log_start_offset,
        next_position=fetched.next_position,
        answered_by=fetched.leader.node_id,
        leader_epoch=fetched.leader.leader_epoch,
        topic_id=None if fetched.topic_id is None else str(fetched.topic_id),
        asked_s=fetched.asked_s,
    )


class SimulatedConsumer:
    """Implements `tribunal.clusters.api.Consumer`."""

    def __init__(
        self, client: Client, isolation: Literal["read_uncommitted", "read_committed"], rack: str = ""
    ) -> None:
        level = READ_COMMITTED if isolation == "read_committed" else READ_UNCOMMITTED
        self.consumer = Consumer(client, level, rack)

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets on; replaces what was assigned."""
        self.consumer.assign(positions)

    async def poll(self, max_records: int, timeout_ms: int) -> list[PartitionPoll]:
        """Return what has arrived; empty after the time-out."""
        return list(map(partition_poll, await self.consumer.poll(max_records, timeout_ms)))

    async def close(self) -> None:
        """Release everything."""
        await self.consumer.close()


class SimulatedMember:
    """Implements `tribunal.clusters.api.GroupConsumer`."""

    def __init__(self, client: Client, fetching: SimulatedConsumer, settings: GroupSettings) -> None:
        self.group = settings.group
        self.member = GroupMember(
            client,
            fetching.consumer,
            group=settings.group,
            topic=settings.topic,
            session_timeout_ms=settings.session_timeout_ms,
        )

    @property
    def membership(self) -> Membership:
        """Who it is, or was by its group's last answer."""
        return Membership(self.member.generation, self.member.member_id)

    async def poll(self, max_records: int, timeout_ms: int) -> list[PartitionPoll]:
        """Stay a member, and return what has arrived of the partitions that were started."""
        return list(map(partition_poll, await self.member.poll(max_records, timeout_ms)))

    def gained(self) -> list[TopicPartition]:
        """Return its own partitions that were not started yet."""
        return self.member.gained()

    def start(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these of its own partitions from these offsets on."""
        self.member.start(positions)

    async def committed(self, partitions: Sequence[TopicPartition], timeout_ms: int) -> Committed:
        """Ask once for stable offsets."""
        answer = await self.member.committed(partitions, timeout_ms)
        return Committed(answer.offsets, answer.error, answer.node)

    async def commit(self, offsets: Mapping[TopicPartition, int], timeout_ms: int) -> Answered:
        """Ask once; an answer that a later coordinator might not have given says nothing."""
        return answered(await self.member.commit(offsets, timeout_ms))

    async def close(self) -> None:
        """Leave the group and release everything."""
        await self.member.close()
