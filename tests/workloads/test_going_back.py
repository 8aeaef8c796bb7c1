"""A member whose transaction failed reads its input again, however long nobody says from where; and one whose records were deleted goes on."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tribunal.clusters.api import (
    Committed,
    GroupSettings,
    Membership,
    Offsets,
    PartitionPoll,
    ReceivedRecord,
    TopicPartition,
)
from tribunal.workloads.sent import SentRecords
from tribunal.workloads.transactor import Member

PARTITION = TopicPartition("input", 0)
SETTINGS = GroupSettings(group="g", topic="input", isolation="read_committed", session_timeout_ms=1000)


class Answers:
    """A consumer whose group's coordinator gives these answers, one after the other."""

    def __init__(self, *answers: Committed, polled: Sequence[PartitionPoll] = ()) -> None:
        self.left = list(answers)
        self.polled = list(polled)
        self.started: list[Mapping[TopicPartition, int]] = []
        self.membership = Membership(1, "m")

    async def committed(self, partitions: Sequence[TopicPartition], timeout_ms: int) -> Committed:
        return self.left.pop(0)

    def start(self, positions: Mapping[TopicPartition, int]) -> None:
        self.started.append(positions)

    async def poll(self, max_records: int, timeout_ms: int) -> list[PartitionPoll]:
        return self.polled

    def gained(self) -> list[TopicPartition]:
        return []

    async def close(self) -> None:
        pass


class LogStart:
    """An admin client that is told from where to where each log goes; None: nobody says it."""

    def __init__(self, log_start: int | None) -> None:
        self.log_start = log_start

    async def offsets(self, partitions: Sequence[TopicPartition], timeout_ms: int) -> list[Offsets]:
        return [Offsets(partition, self.log_start, 90, None, None) for partition in partitions]

    async def close(self) -> None:
        pass


class OneMember:
    """A stage with one member, and the rows that it leaves."""

    def __init__(self, consumer: Answers, log_start: int | None = None) -> None:
        self.consumer = consumer
        self.log_start = log_start
        self.first_process = 0
        self.clients = self.sink = self
        self.stopping = asyncio.Event()
        self.errors: Counter[str] = Counter()
        self.reads: Counter[TopicPartition] = Counter()
        self.sent = SentRecords()
        self.rows: list[dict[str, Any]] = []

    def admin(self, client_id: str) -> LogStart:
        return LogStart(self.log_start)

    def recorded(self, topic: str, topic_id: str | None = None) -> str:
        return topic

    def is_of_another(self, topic: str, topic_id: str | None) -> bool:
        return False

    def group_consumer(self, settings: GroupSettings, client_id: str) -> Answers:
        return self.consumer

    def row(self, table: str, **fields: Any) -> None:
        self.rows.append(fields)

    def now_ns(self) -> int:
        return len(self.rows)


def went_back(*answers: Committed, is_over: bool = False) -> tuple[list[Mapping[TopicPartition, int]], list[str]]:
    consumer = Answers(*answers)

    async def scenario() -> OneMember:
        stage = OneMember(consumer)
        if is_over:
            stage.stopping.set()
        await Member(stage, 1, SETTINGS).go_back([PARTITION])  # type: ignore[arg-type]
        return stage

    stage = asyncio.run(scenario())
    return consumer.started, [row["outcome"] for row in stage.rows]


def test_nothing_is_read_before_the_group_says_from_where() -> None:
    """Going on behind what was aborted passes it over, and no coordinator is to blame."""
    unstable, found = Committed({}, "UNSTABLE_OFFSET_COMMIT"), Committed({PARTITION: 28}, None)

    assert went_back(unstable, unstable, found) == ([{PARTITION: 28}], ["info", "info", "ok"])


def test_it_ends_with_the_workload() -> None:
    assert went_back(Committed({}, "RequestTimedOut"), is_over=True) == ([], ["info"])


def polled(**fields: Any) -> PartitionPoll:
    return PartitionPoll(
        **{"partition": PARTITION, "position": 0, "records": [], "error": "OFFSET_OUT_OF_RANGE"} | fields
    )


@pytest.mark.parametrize(("poll", "log_start", "expected"), [
    pytest.param(polled(), 7, [{PARTITION: 7}], id="before the log start"),
    pytest.param(polled(position=5, error="_AUTO_OFFSET_RESET"), 7, [{PARTITION: 7}], id="as librdkafka says it"),
    pytest.param(polled(), None, [], id="nobody says where the log starts"),
    pytest.param(polled(position=95), 7, [], id="behind the end: what it had read was lost, and may grow again"),
    pytest.param(polled(error="NOT_LEADER_OR_FOLLOWER"), 7, [], id="another error"),
    pytest.param(polled(error=None), 7, [], id="none"),
    pytest.param(polled(records=[ReceivedRecord(7, None, None, None)]), 7, [], id="records before it"),
])  # fmt: skip
def test_a_member_whose_next_record_was_deleted_goes_on_at_the_log_start(
    poll: PartitionPoll, log_start: int | None, expected: list[Mapping[TopicPartition, int]]
) -> None:
    """Nobody else moves it: it stayed there for ever, and its group with it (`no_core_progress`, M29 by search)."""
    consumer = Answers(polled=[poll])

    async def scenario() -> list[PartitionPoll]:
        member = Member(OneMember(consumer, log_start), 1, SETTINGS)  # type: ignore[arg-type]
        answered = await member.poll(10, 100)
        await member.close()
        return answered

    assert asyncio.run(scenario()) == [poll]
    assert consumer.started == expected
