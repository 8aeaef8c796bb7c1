"""A member whose transaction failed reads its input again, however long nobody says from where."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tribunal.clusters.api import Committed, GroupSettings, Membership, TopicPartition
from tribunal.workloads.transactor import Member

PARTITION = TopicPartition("input", 0)
SETTINGS = GroupSettings(group="g", topic="input", isolation="read_committed", session_timeout_ms=1000)


class Answers:
    """A consumer whose group's coordinator gives these answers, one after the other."""

    def __init__(self, *answers: Committed) -> None:
        self.left = list(answers)
        self.started: list[Mapping[TopicPartition, int]] = []
        self.membership = Membership(1, "m")

    async def committed(self, partitions: Sequence[TopicPartition], timeout_ms: int) -> Committed:
        return self.left.pop(0)

    def start(self, positions: Mapping[TopicPartition, int]) -> None:
        self.started.append(positions)


class OneMember:
    """A stage with one member, and the rows that it leaves."""

    def __init__(self, consumer: Answers) -> None:
        self.consumer = consumer
        self.first_process = 0
        self.clients = self.sink = self
        self.stopping = asyncio.Event()
        self.errors: Counter[str] = Counter()
        self.rows: list[dict[str, Any]] = []

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
