"""A replica's log that lost the file which says whose it is: of a name that several topics had it is nobody's."""

from pathlib import Path

import pytest

from tribunal.clusters.api import DumpedLog, LogEntry
from tribunal.harness.collect import record_final_logs
from tribunal.results.store import Recorder, Recording
from tribunal.results.topic_names import TopicNames
from tribunal.workloads.sent import SentRecords

FORMER, NOW = "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"


def log(node: int, topic_id: str | None) -> DumpedLog:
    entry = LogEntry(
        node=node, topic="t", partition=0, log_offset=0, leader_epoch=0, value=7, batch_first_offset=0, is_control=False,
        key=None, headers=[], timestamp_ms=0, log_append_time=False, topic_id=topic_id, foreign_value=None,
    )  # fmt: skip
    return DumpedLog(node, "t", 0, topic_id, 0, 0, iter([entry]))


@pytest.mark.parametrize(("topics", "expected"), [
    pytest.param([FORMER], {"t-0": [1, 2]}, id="one topic had the name"),
    pytest.param([FORMER, NOW], {"t-0": [1]}, id="two had it"),
])  # fmt: skip
def test_a_log_that_does_not_say_whose_it_is(tmp_path: Path, topics: list[str], expected: dict[str, list[int]]) -> None:
    names, recorder = TopicNames(), Recorder(tmp_path, "run")
    for topic_id in topics:
        names.of("t", topic_id)

    count = record_final_logs([log(1, FORMER), log(2, None)], recorder, SentRecords(log_append_time=False), names)
    recorder.close_segment()
    recording = Recording.open(tmp_path)

    held = {name: recording.table("logs", name)["node"].to_pylist() for name in recording.partitions("logs")}
    assert held == expected
    assert count == len(expected["t-0"])
    assert recording.table("dumps")["node"].to_pylist() == expected["t-0"]
