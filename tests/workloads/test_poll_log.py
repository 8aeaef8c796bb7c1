"""What is written down of a poll: where a final read ends is the leader's word, not a client's."""

from typing import Any

import pytest

from tribunal.clusters.api import PartitionPoll, TopicPartition
from tribunal.workloads.api import Phase, PollLog, Stage


class Sink:
    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}

    def row(self, table: str, **columns: Any) -> None:
        self.rows.setdefault(table, []).append(columns)


@pytest.mark.parametrize(
    ("phase", "next_position", "high_watermark"),
    [
        pytest.param("final", 37, None, id="a client saw no more"),
        pytest.param("final", None, 37, id="the leader said that this is the end"),
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
