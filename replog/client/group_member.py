"""A member of a consumer group: the classic protocol, eager, range assignor.

It is a member as long as it is polled: heartbeats go out from `poll` alone, so who does not poll for a session is expelled, and
its next commit comes from a generation that has passed. Where it begins to read is its user's doing (`gained`, `start`).
"""

import asyncio
import struct
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

import msgspec

from replog.client.client import NO_ANSWER, Client, Unreachable
from replog.client.consumer import Consumer, PartitionRecords
from replog.client.coordinator import GROUP, CoordinatorLink
from replog.client.outcomes import CommitEnd, CommittedOffsets, Outcome
from replog.errors import Error
from replog.types import TopicPartition
from replog.wire.codec import decode_struct, encode_struct
from replog.wire.messages import heartbeat, join_group, leave_group, offset_commit, offset_fetch, sync_group
from replog.wire.messages.heartbeat import HeartbeatRequest
from replog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from replog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from replog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from replog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from replog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from replog.wire.records.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)

ASSIGNOR: Final = "range"
PROTOCOL: Final = "consumer"
VERSION: Final = struct.Struct(">h")
HEARTBEATS_A_SESSION: Final = 6
RETRY_MS: Final = 100
LEAVE_TIMEOUT_MS: Final = 1_000
NO_GENERATION: Final = -1
REFUSED: Final = frozenset(
    {
        *(Error.ILLEGAL_GENERATION, Error.UNKNOWN_MEMBER_ID, Error.REBALANCE_IN_PROGRESS, Error.FENCED_INSTANCE_ID),
        Error.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


class GroupMember:
    """Reads one topic together with the other members of its group.

    generation, member_id:  who it is, or was when its group last answered.
    """

    def __init__(self, client: Client, consumer: Consumer, *, group: str, topic: str, session_timeout_ms: int) -> None:
        self.group = group
        self.topic = topic
        self.generation = NO_GENERATION
        self.member_id = ""
        self._session_timeout_ms = session_timeout_ms
        self._client = client
        self._consumer = consumer
        self._link = CoordinatorLink(client, group, GROUP)
        self._belongs = False
        self._own: list[TopicPartition] = []
        self._positions: dict[TopicPartition, int] = {}
        self._heartbeat_due = 0.0
        self._partition_count = 0  # of its topic, once it has led the group

    # reading

    async def poll(self, max_records: int, timeout_ms: int) -> list[PartitionRecords]:
        """Join if need be, send heartbeats, read."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        try:
            if self._belongs and loop.time() >= self._heartbeat_due:
                await self._heartbeat()
            if not self._belongs:
                await self._join()
        except NO_ANSWER:
            await asyncio.sleep(RETRY_MS / 1000)
        left_ms = max(1, round((deadline - loop.time()) * 1000))
        if not self._positions:
            await asyncio.sleep(min(left_ms, RETRY_MS) / 1000)
            return []
        fetched = await self._consumer.poll(max_records, left_ms)
        for one in fetched:
            self._positions[one.partition] = one.next_position or one.position
        return fetched

    def gained(self) -> list[TopicPartition]:
        """Return its own partitions that were not started yet."""
        return [partition for partition in self._own if partition not in self._positions]

    def start(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these from these offsets on."""
        self._positions |= {partition: offset for partition, offset in positions.items() if partition in self._own}
        self._consumer.assign(self._positions)

    # offsets

    async def committed(self, partitions: Sequence[TopicPartition], timeout_ms: int) -> CommittedOffsets:
        """Ask once for stable offsets."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                wanted = OffsetFetchRequestTopics(
                    name=self.topic,
                    topic_id=await self._topic_id(),
                    partition_indexes=[partition.partition for partition in partitions],
                )
                group = OffsetFetchRequestGroup(group_id=self.group, topics=[wanted])
                answer, node = await self._link.ask_and_name(
                    offset_fetch.EXCHANGE, OffsetFetchRequest(groups=[group], require_stable=True)
                )
        except (*NO_ANSWER, TimeoutError) as problem:
            self._link.forget()  # it may be cut off, and another one coordinates by now
            return CommittedOffsets({}, type(problem).__name__)
        (committed,) = answer.groups
        found = [part for topic in committed.topics for part in topic.partitions]
        errors = [committed.error_code, *(part.error_code for part in found)]
        wrong = next((error for error in errors if error is not Error.NONE), None)
        if wrong is not None:
            self._link.forget()
            return CommittedOffsets({}, wrong.name)
        offsets = {part.partition_index: part.committed_offset for part in found}
        known = {partition: offsets.get(partition.partition, -1) for partition in partitions}
        stable = {name: offset if offset >= 0 else None for name, offset in known.items()}
        return CommittedOffsets(stable, None, node)

    async def commit(self, offsets: Mapping[TopicPartition, int], timeout_ms: int) -> CommitEnd:
        """Ask once; an answer that a later coordinator might not have given says nothing."""
        parts = [
            OffsetCommitRequestPartition(partition_index=name.partition, committed_offset=offset)
            for name, offset in offsets.items()
        ]
        try:
            topic = OffsetCommitRequestTopic(name=self.topic, topic_id=await self._topic_id(), partitions=parts)
            body = OffsetCommitRequest(
                group_id=self.group,
                generation_id_or_member_epoch=self.generation,
                member_id=self.member_id,
                topics=[topic],
            )
            async with asyncio.timeout(timeout_ms / 1000):
                answer, node = await self._link.ask_and_name(offset_commit.EXCHANGE, body)
        except Unreachable as problem:
            return CommitEnd(Outcome.WITHOUT_EFFECT, type(problem).__name__)
        except (*NO_ANSWER, TimeoutError) as problem:
            self._link.forget()
            return CommitEnd(Outcome.UNKNOWN, type(problem).__name__)
        errors = [part.error_code for one in answer.topics for part in one.partitions]
        wrong = next((error for error in errors if error is not Error.NONE), None)
        if wrong is None:
            return CommitEnd(Outcome.DONE, None, node)
        self._link.forget()
        self._note_error(wrong)
        return CommitEnd(Outcome.WITHOUT_EFFECT if wrong in REFUSED else Outcome.UNKNOWN, wrong.name)

    async def _topic_id(self) -> UUID:
        try:
            return (await self._client.leader(self.topic, 0)).topic_id
        except NO_ANSWER as problem:
            raise Unreachable(str(problem)) from None

    # membership

    async def _join(self) -> None:
        self._revoke()
        subscription = ConsumerProtocolSubscription(topics=[self.topic])
        body = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._session_timeout_ms,
            member_id=self.member_id,
            protocol_type=PROTOCOL,
            protocols=[JoinGroupRequestProtocol(name=ASSIGNOR, metadata=_encoded(subscription))],
        )
        joined = await self._link.ask(join_group.EXCHANGE, body)
        if joined.error_code is Error.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
        elif joined.error_code is Error.NONE:
            self.member_id, self.generation = joined.member_id, joined.generation_id
            await self._sync(joined)
        else:
            self._note_error(joined.error_code)
            await asyncio.sleep(RETRY_MS / 1000)

    async def _sync(self, joined: JoinGroupResponse) -> None:
        is_leader = joined.leader == joined.member_id
        shares = await self._shares([member.member_id for member in joined.members]) if is_leader else {}
        body = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type=PROTOCOL,
            protocol_name=ASSIGNOR,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=_encoded(share))
                for member, share in shares.items()
            ],
        )
        synced = await self._link.ask(sync_group.EXCHANGE, body)
        if synced.error_code is not Error.NONE:
            self._note_error(synced.error_code)
            return
        self._belongs = True
        self._heartbeat_due = asyncio.get_running_loop().time() + self._heartbeat_s
        share = decode_struct(ConsumerProtocolAssignment, 0, memoryview(synced.assignment)[VERSION.size :])
        self._own = [
            TopicPartition(topic.topic, number) for topic in share.assigned_partitions for number in topic.partitions
        ]

    async def _shares(self, members: Sequence[str]) -> dict[str, ConsumerProtocolAssignment]:
        """Give each member a range of the topic's partitions, as equal as may be.

        How many those are is asked once: a broker that is cut off keeps who asks it waiting for longer than a session, and
        this member has no second thread that would send heartbeats meanwhile.
        """
        if not self._partition_count:
            answer = await self._client.refresh([self.topic])
            self._partition_count = max((len(topic.partitions) for topic in answer.topics), default=0)
        count = self._partition_count
        shares = {}
        for place, member in enumerate(sorted(members)):
            first, end = place * count // len(members), (place + 1) * count // len(members)
            topic = ConsumerProtocolAssignmentTopicPartition(topic=self.topic, partitions=list(range(first, end)))
            shares[member] = ConsumerProtocolAssignment(assigned_partitions=[topic])
        return shares

    @property
    def _heartbeat_s(self) -> float:
        return self._session_timeout_ms / HEARTBEATS_A_SESSION / 1000

    async def _heartbeat(self) -> None:
        body = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
        answer = await self._link.ask(heartbeat.EXCHANGE, body)
        if answer.error_code is Error.NONE:
            self._heartbeat_due = asyncio.get_running_loop().time() + self._heartbeat_s
        else:
            self._note_error(answer.error_code)

    def _note_error(self, error: Error) -> None:
        """Take it that membership has ended where an answer says so."""
        if error in (Error.ILLEGAL_GENERATION, Error.REBALANCE_IN_PROGRESS, Error.UNKNOWN_MEMBER_ID):
            self._belongs = False
        if error is Error.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    def _revoke(self) -> None:
        self._own = []
        self._positions = {}
        self._consumer.assign({})

    async def close(self) -> None:
        """Leave, if somebody listens."""
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_MS / 1000):
                leaving = [MemberIdentity(member_id=self.member_id)]
                await self._link.ask(leave_group.EXCHANGE, LeaveGroupRequest(group_id=self.group, members=leaving))
        except (*NO_ANSWER, TimeoutError):
            pass
        await self._consumer.close()
        await self._client.close()


def _encoded(content: msgspec.Struct) -> bytes:
    return VERSION.pack(0) + encode_struct(content, 0)
