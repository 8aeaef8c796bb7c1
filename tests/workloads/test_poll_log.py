"""What is written down of a poll: where a final read ends is the leader's word, not a client's."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tribunal.clusters.api import PartitionPoll, ReceivedRecord, TopicPartition
from tribunal.results.manifest import Made
from tribunal.results.store import Recorder, Recording
from tribunal.workloads.api import Phase, PollLog, Stage


class Sink:
    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}

    def row(self, table: str, **columns: Any) -> None:
        self.rows.setdefault(table, []).append(columns)


def a_poll(**fields: int) -> PartitionPoll:
    return PartitionPoll(partition=TopicPartition("t", 0), position=37, records=[], **fields)


@pytest.mark.parametrize(
    ("phase", "next_position", "high_watermark"),
    [
        pytest.param("final", 37, None, id="a client saw no more"),
        pytest.param("tail", 37, 37, id="who follows is asked for nothing"),
    ],
)
def test_an_end_that_only_a_client_saw_ends_no_final_read(
    phase: Phase, next_position: int | None, high_watermark: int | None
) -> None:
    sink = Sink()
    log = PollLog(Stage(clients=None, sink=sink, now_ns=lambda: 1), 999, phase, "read_committed")  # type: ignore[arg-type]
    seen = PartitionPoll(
        partition=TopicPartition("t", 0), position=37, records=[], high_watermark=37, next_position=next_position
    )

    log.record(seen, 0)

    assert [row["high_watermark"] for row in sink.rows["polls"]] == [high_watermark]
    assert [row["high_watermark"] for row in sink.rows["watermarks"]] == [37]


def test_a_final_read_is_closed_by_the_leaders_word_which_is_no_new_observation() -> None:
    sink = Sink()
    log = PollLog(Stage(clients=None, sink=sink, now_ns=lambda: 1), 999, "final", "read_committed")  # type: ignore[arg-type]

    log.record_closing(a_poll(high_watermark=37, answered_by=2, leader_epoch=4), 0)

    (row,) = sink.rows["polls"]
    assert (row["high_watermark"], row["answered_by"], row["leader_epoch"]) == (37, 2, 4)
    assert "watermarks" not in sink.rows


def test_watermarks_are_of_who_answered_and_of_the_epoch_of_the_answer() -> None:
    sink = Sink()
    log = PollLog(Stage(clients=None, sink=sink, now_ns=lambda: 1), 901, "tail", "read_uncommitted")  # type: ignore[arg-type]

    log.record(a_poll(high_watermark=37, answered_by=2, leader_epoch=4), 0)
    log.record(a_poll(high_watermark=37), 0)

    for table in ("polls", "watermarks"):
        assert [(row["answered_by"], row["leader_epoch"]) for row in sink.rows[table]] == [(2, 4), (None, None)]


def test_a_watermark_knows_when_it_was_asked_for_by_the_run_s_clock() -> None:
    """The poll that handed it out may have been called long after: clients fetch ahead of their users."""

    async def polled() -> list[int | None]:
        sink, loop = Sink(), asyncio.get_running_loop()
        start_s = loop.time() - 60
        stage = Stage(clients=None, sink=sink, now_ns=lambda: round((loop.time() - start_s) * 1e9))  # type: ignore[arg-type]
        log = PollLog(stage, 901, "tail", "read_uncommitted")
        for asked_s in (loop.time() - 2, None):
            poll = a_poll(high_watermark=37)
            poll.asked_s = asked_s
            log.record(poll, stage.now_ns())
        return [row["asked_ns"] for row in sink.rows["watermarks"]]

    asked_ns, unknown = asyncio.run(polled())

    assert asked_ns is not None
    assert abs(asked_ns - 58_000_000_000) < 500_000_000
    assert unknown is None


def test_damaged_bytes_that_no_column_holds_are_written_down_as_no_value(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "r")
    log = PollLog(Stage(clients=None, sink=recorder, now_ns=lambda: 1), 901, "tail", "read_uncommitted")  # type: ignore[arg-type]
    poll = a_poll()
    poll.records = [
        ReceivedRecord(37 + index, b"k", value, 0)
        for index, value in enumerate((b"\xff" * 8, b"\x80" + bytes(7), b"\x7f" + b"\xff" * 7, bytes(9)))
    ]

    log.record(poll, 0)
    recorder.finish(Made())

    assert Recording.open(tmp_path).table("reads")["value"].to_pylist() == [None, None, (1 << 63) - 1, None]
