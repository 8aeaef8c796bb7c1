"""A consumer: fetches from every leader at once, long polls kept across calls.

It reads partitions given by hand and never resets a position. What only means "ask again" (leadership moved, the new leader
does not know its high watermark yet) is not reported; what a user would have to decide (offset out of range) is.
One with a rack reads from the replica that a leader names (KIP-392), for a while: then, and whenever that one refuses or is silent, it asks the leader
again. read_committed leaves out aborted transactions by the leader's list, as every Kafka client does.
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from replog.client.client import NO_ANSWER, STALE, Client, Leader
from replog.errors import Error
from replog.log import batch
from replog.types import ZERO_UUID, NodeId, TopicPartition
from replog.wire.messages.fetch import EXCHANGE, FetchPartition, FetchRequest, FetchTopic, PartitionData

FETCH_WAIT_MS: Final = 100
FETCH_BYTES_MIN: Final = 512  # a few records at once: fewer, fuller answers for the same latency bound
FETCH_BYTES: Final = 1 << 20
BACKOFF_MS: Final = 50
NEAR_S: Final = 2.0  # how long a replica that a leader named is asked: it may be cut off from its leader and serve on
NOBODY: Final = -1
ASK_AGAIN: Final = STALE | {Error.OFFSET_NOT_AVAILABLE, Error.REPLICA_NOT_AVAILABLE, Error.UNKNOWN_SERVER_ERROR}

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1


class Question(NamedTuple):
    """What was asked of a partition: from where, of whom, and when, by the event loop's clock."""

    position: int
    leader: Leader
    asked_s: float


class Near(NamedTuple):
    """The replica that a leader named for our rack, in which leader epoch, and until when it is asked."""

    node_id: NodeId
    leader_epoch: int
    until_s: float


# With the topic that it is of as the answer names that; None: by its name alone.
Answers = dict[TopicPartition, tuple[Question, UUID | None, PartitionData]]


class ReadBatch(NamedTuple):
    """What a user sees of one batch."""

    leader_epoch: int
    records: list[batch.Record]
    is_log_append_time: bool


class PartitionRecords(msgspec.Struct, kw_only=True):
    """What arrived of one partition; the watermarks are the answer's, None where it had none.

    leader:    who was asked, in the leader epoch that it was asked for: had it been in another, it had refused. Of a consumer with a rack it
               may be a follower.
    asked_s:   when, or before, by the event loop's clock: what the leader had shown by then it shows here, or more.
    topic_id:  of the topic that was read, as the answer names it; None: by its name alone.
    """

    partition: TopicPartition
    position: int  # where this answer began to read
    batches: list[ReadBatch]
    error: Error = Error.NONE
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    log_start_offset: int | None = None
    next_position: int | None = None  # where reading goes on: behind transaction markers too
    topic_id: UUID | None = None
    leader: Leader
    asked_s: float


class Consumer:
    """Reads partitions given by hand."""

    def __init__(self, client: Client, isolation_level: int, rack: str = "") -> None:
        self._client = client
        self._isolation_level = isolation_level
        self._rack = rack
        self._near: dict[TopicPartition, Near] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._fetches: dict[NodeId, asyncio.Task[Answers]] = {}
        self._surplus: list[PartitionRecords] = []

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets on; answers to older questions are thrown away."""
        self._positions = dict(positions)
        self._surplus.clear()

    async def poll(self, max_records: int, timeout_ms: int) -> list[PartitionRecords]:
        """Return what has arrived; empty after the time-out."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        while not self._surplus and loop.time() < deadline:
            await self._ask_leaders()
            if not self._fetches:
                await asyncio.sleep(min(BACKOFF_MS / 1000, max(0.0, deadline - loop.time())))
                continue
            done, _ = await asyncio.wait(
                list(self._fetches.values()),
                timeout=max(0.0, deadline - loop.time()),
                return_when=asyncio.FIRST_COMPLETED,
            )
            for node in [node for node, task in self._fetches.items() if task in done]:
                self._take(self._fetches.pop(node).result())
        return self._hand_out(max_records)

    async def close(self) -> None:
        """Release everything."""
        for task in self._fetches.values():
            task.cancel()
        await self._client.close()

    # asking

    async def _ask_leaders(self) -> None:
        """Have one fetch under way to every leader of an assigned partition."""
        wanted: dict[NodeId, dict[TopicPartition, Leader]] = {}
        for partition in self._positions:
            leader = await self._leader_of(partition)
            if leader is not None and partition in self._near:
                leader = self._in_place_of(partition, leader)
            if leader is not None and leader.node_id not in self._fetches:
                wanted.setdefault(leader.node_id, {})[partition] = leader
        for node, leaders in wanted.items():
            self._fetches[node] = asyncio.create_task(self._fetch(node, leaders), name=f"fetch from {node}")

    async def _leader_of(self, partition: TopicPartition) -> Leader | None:
        try:
            return await self._client.leader(*partition)
        except NO_ANSWER:
            return None

    def _in_place_of(self, partition: TopicPartition, leader: Leader) -> Leader:
        """Return the replica that this leader named, while that counts."""
        near = self._near[partition]
        if near.leader_epoch == leader.leader_epoch and asyncio.get_running_loop().time() < near.until_s:
            return msgspec.structs.replace(leader, node_id=near.node_id)
        del self._near[partition]
        return leader

    def _is_left_to_leader(self, partition: TopicPartition, asked: Leader, data: PartitionData) -> bool:
        """Take note of the replica that a leader names, and of one that refuses.

        returns:  whether the answer is of no account: the log of a replica may not reach to where its leader's does.
        """
        if data.preferred_read_replica != NOBODY:
            until_s = asyncio.get_running_loop().time() + NEAR_S
            self._near[partition] = Near(NodeId(data.preferred_read_replica), asked.leader_epoch, until_s)
            return False
        if data.error_code is Error.NONE:
            return False
        return self._near.pop(partition, None) is not None and data.error_code is Error.OFFSET_OUT_OF_RANGE

    async def _fetch(self, node: NodeId, leaders: dict[TopicPartition, Leader]) -> Answers:
        asked_s = asyncio.get_running_loop().time()
        asked = {
            partition: Question(self._positions[partition], leader, asked_s) for partition, leader in leaders.items()
        }
        try:
            answer = await self._client.ask(EXCHANGE, self._request(leaders, asked), node=node)
        except NO_ANSWER:
            self._forget(leaders)
            await asyncio.sleep(BACKOFF_MS / 1000)
            return {}
        found: Answers = {}
        by_id = {leader.topic_id: partition.topic for partition, leader in leaders.items()}
        asks_again = answer.error_code is not Error.NONE
        for topic in answer.responses:
            name = topic.topic or by_id.get(topic.topic_id, "")
            topic_id = None if topic.topic_id == ZERO_UUID else topic.topic_id
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                if partition not in asked:
                    continue
                if self._is_left_to_leader(partition, leaders[partition], data):
                    asks_again = True
                else:
                    found[partition] = (asked[partition], topic_id, data)
                    asks_again |= data.error_code in ASK_AGAIN
        if asks_again:
            self._forget(leaders)
            await asyncio.sleep(BACKOFF_MS / 1000)
        return found

    def _forget(self, leaders: dict[TopicPartition, Leader]) -> None:
        """Ask afresh who leads."""
        for partition in leaders:
            self._near.pop(partition, None)
        for topic in dict.fromkeys(partition.topic for partition in leaders):
            self._client.forget(topic)

    def _request(self, leaders: dict[TopicPartition, Leader], asked: dict[TopicPartition, Question]) -> FetchRequest:
        topics: dict[str, list[FetchPartition]] = {}
        topic_ids = {partition.topic: leader.topic_id for partition, leader in leaders.items()}
        for partition, leader in leaders.items():
            topics.setdefault(partition.topic, []).append(
                FetchPartition(
                    partition=partition.partition,
                    current_leader_epoch=leader.leader_epoch,
                    fetch_offset=asked[partition].position,
                    partition_max_bytes=FETCH_BYTES,
                )
            )
        return FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=FETCH_BYTES_MIN,
            max_bytes=FETCH_BYTES,
            isolation_level=self._isolation_level,
            rack_id=self._rack,
            topics=[
                FetchTopic(topic=name, topic_id=topic_ids[name], partitions=partitions)
                for name, partitions in topics.items()
            ],
        )

    # answers

    def _take(self, answers: Answers) -> None:
        for partition, ((position, leader, asked_s), topic_id, data) in answers.items():
            if self._positions.get(partition) != position or data.error_code in ASK_AGAIN:
                continue
            if data.error_code is not Error.NONE:
                self._surplus.append(
                    PartitionRecords(
                        partition=partition,
                        position=position,
                        batches=[],
                        error=data.error_code,
                        leader=leader,
                        asked_s=asked_s,
                        topic_id=topic_id,
                    )
                )
                continue
            batches, next_position = self._read(data, position)
            self._positions[partition] = next_position
            if batches or next_position != position:
                self._surplus.append(
                    PartitionRecords(
                        partition=partition,
                        position=position,
                        batches=batches,
                        high_watermark=data.high_watermark,
                        last_stable_offset=data.last_stable_offset if data.last_stable_offset >= 0 else None,
                        log_start_offset=data.log_start_offset if data.log_start_offset >= 0 else None,
                        next_position=next_position,
                        leader=leader,
                        asked_s=asked_s,
                        topic_id=topic_id,
                    )
                )

    def _read(self, data: PartitionData, position: int) -> tuple[list[ReadBatch], int]:
        """Return what a user sees of an answer, and where to read on."""
        found: list[ReadBatch] = []
        content = data.records or b""
        for header in self._visible(content, data):
            records = [record for record in batch.records(content, header) if record.offset >= position]
            if records:
                found.append(ReadBatch(header.leader_epoch, records, header.is_log_append_time))
        for header in batch.fetched_batches(content):
            position = max(position, header.next_offset)
        return found, position

    def _visible(self, content: bytes | memoryview, data: PartitionData) -> Iterator[batch.BatchHeader]:
        """Yield data batches; for read_committed without those of aborted transactions."""
        begun = sorted(data.aborted_transactions or [], key=lambda aborted: aborted.first_offset)
        aborted_producers: dict[int, None] = {}
        for header in batch.fetched_batches(content):
            while begun and begun[0].first_offset <= header.base_offset:
                aborted_producers[begun.pop(0).producer_id] = None
            if header.is_control:
                if batch.control_type(content, header) == batch.ControlType.ABORT:
                    aborted_producers.pop(header.producer_id, None)
            elif not (self._isolation_level and header.is_transactional and header.producer_id in aborted_producers):
                yield header

    def _hand_out(self, max_records: int) -> list[PartitionRecords]:
        """Return what has arrived, at most one entry a partition; the rest waits for the next poll."""
        given: dict[TopicPartition, PartitionRecords] = {}
        rest: list[PartitionRecords] = []
        count = 0
        for one in self._surplus:
            if one.partition in given or count >= max_records:
                rest.append(one)
            else:
                given[one.partition] = one
                count += sum(len(read.records) for read in one.batches)
        self._surplus = rest
        return list(given.values())
