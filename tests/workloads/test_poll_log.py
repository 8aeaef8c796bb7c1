"""What is written down of a poll: where a final read ends is the leader's word, not a client's."""

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
