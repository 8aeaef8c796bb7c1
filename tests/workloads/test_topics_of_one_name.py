"""A broker that has not heard of a deletion answers for the deleted topic: what it says is none of the topic of that name made since."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import pytest

from tribunal.clusters.api import Delivery, PartitionPoll, ReceivedRecord, TopicPartition, TopicSeen
from tribunal.workloads.api import Reader, Stage, Worker, WorkerPlan
from tribunal.workloads.kinds import operator

P = TopicPartition("t", 0)
FORMER, NOW = "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"


class Sink:
    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}

    def row(self, table: str, **columns: Any) -> None:
        self.rows.setdefault(table, []).append(columns)


class Scripted:
    """A client whose answers are given."""

    def __init__(self, polls: list[PartitionPoll], delivery: Delivery | None = None) -> None:
        self.polls = deque(polls)
        self.delivery = delivery
        self.assigned: list[dict[TopicPartition, int]] = []

    def consumer(self, client_id: str, isolation: str, *, finds_end: bool = False) -> "Scripted":
        return self

    def producer(self, settings: object, client_id: str) -> "Scripted":
        return self

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self.assigned.append(dict(positions))

    async def poll(self, max_records: int, timeout_ms: int) -> list[PartitionPoll]:
        return [self.polls.popleft()]

    def send(self, partition: TopicPartition, key: bytes, value: bytes, done: Callable[[Delivery], None]) -> None:
        assert self.delivery is not None
        done(self.delivery)


def read(position: int, topic_id: str | None) -> PartitionPoll:
    record = ReceivedRecord(position, b"k", (7).to_bytes(8), 0)
    return PartitionPoll(partition=P, position=position, records=[record], high_watermark=9, topic_id=topic_id)


def stage_of(client: Scripted, sink: Sink) -> Stage:
    stage = Stage(clients=client, sink=sink, now_ns=lambda: 1)  # type: ignore[arg-type]
    stage.names.of("t", FORMER)
    return stage.for_topic("t", NOW)


def test_what_is_read_of_a_deleted_topic_is_none_of_the_one_made_since() -> None:
    sink, client = Sink(), Scripted([read(0, NOW), read(1, FORMER), read(1, NOW)])
    stage = stage_of(client, sink)
    reader = Reader(stage, 1, "tail")

    reader.assign({P: 0})
    polls = [asyncio.run(reader.poll(10, 1)) for _ in range(3)]

    assert [[poll.position for poll in one] for one in polls] == [[0], [], [1]]
    assert client.assigned == [{P: 0}, {P: 1}]
    for table in ("polls", "reads", "watermarks"):
        assert [row["topic"] for row in sink.rows[table]] == ["t@2", "t", "t@2"]
    for table in ("polls", "reads"):
        assert [row["phase"] for row in sink.rows[table]] == ["tail", "stray", "tail"]
    assert stage.reads == {P: 2}


def test_an_answer_without_a_topics_id_is_of_the_one_that_is_meant() -> None:
    sink, client = Sink(), Scripted([read(0, None)])
    reader = Reader(stage_of(client, sink), 1, "tail")

    reader.assign({P: 0})
    polls = asyncio.run(reader.poll(10, 1))

    assert len(polls) == 1
    assert [row["topic"] for row in sink.rows["reads"]] == ["t@2"]


@pytest.mark.parametrize(
    ("topic_id", "recorded", "acknowledged"),
    [
        pytest.param(FORMER, "t", {}, id="the deleted one"),
        pytest.param(NOW, "t@2", {P: 4}, id="the one that is meant"),
        pytest.param(None, "t@2", {P: 4}, id="nobody says"),
    ],
)
def test_a_record_stands_in_the_topic_that_acknowledged_it(
    topic_id: str | None, recorded: str, acknowledged: dict[TopicPartition, int]
) -> None:
    sink, client = Sink(), Scripted([], Delivery("ok", None, 4, None, 1, 2, None, topic_id))
    stage = stage_of(client, sink)
    plan = WorkerPlan(
        process=1, worker_class="leader-only", acks=1, idempotent=False, partitions=(0,), rate_per_s=1, seed="1"
    )
    worker = Worker(stage, plan, delivery_timeout_ms=1, request_timeout_ms=1)

    worker.produce(P, "k")

    assert [row["topic"] for row in sink.rows["sends"]] == [recorded]
    assert stage.acknowledged == acknowledged


def test_a_reader_that_moves_in_one_partition_goes_on_in_the_others() -> None:
    """A partition that was out of range sent the readers of the others back to where they had polled last."""
    other = TopicPartition("t", 1)
    client = Scripted([PartitionPoll(partition=other, position=0, records=[ReceivedRecord(0, b"k", b"12345678", 0)])])
    reader = Reader(stage_of(client, Sink()), 1, "tail")

    reader.assign({P: 7, other: 0})
    asyncio.run(reader.poll(10, 1))
    reader.seek(P, 3)

    assert client.assigned[-1] == {P: 3, other: 1}


class Lagging:
    """Asks brokers for topics: the first ones that are asked lack the newest topic, or still have the one before it."""

    def __init__(self, *answers: dict[str, TopicSeen]) -> None:
        self.answers = deque(answers)

    async def topics(self) -> dict[str, TopicSeen]:
        return self.answers.popleft()


def test_the_final_read_waits_for_a_broker_that_has_the_newest_topic_of_a_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(operator, "LOOK_AGAIN_MS", 0)
    stage = stage_of(Scripted([]), Sink())
    former, now = (TopicSeen(topic_id=UUID(one), replicas={}) for one in (FORMER, NOW))
    asked = Lagging({}, {"t": former}, {"t": now}, {})

    asyncio.run(operator._topics_are_known(asked, stage, ["t"]))  # type: ignore[arg-type]

    assert list(asked.answers) == [{}]
