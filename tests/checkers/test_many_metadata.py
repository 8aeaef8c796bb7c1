"""What a run's metadata say of all partitions is looked up once, not for each that asks."""

import time
from pathlib import Path

from tests.checkers.recorded import MS, Run
from tribunal.checkers.judge.partition import history_of
from tribunal.results.store import Recording

RECORDS = 60_000
ASKED = 4000
MOST_S = 8  # of CPU: each look went through all metadata


def test_coordinators_and_removals_are_looked_up_fast_among_much_metadata(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    for number in range(RECORDS):
        row = {"record_type": "PartitionChangeRecord", "topic": "t", "partition": 0, "body": "{}"}
        run.recorder.row("metadata", metadata_offset=100 + number, quorum_epoch=1, at_ns=MS, **row)
    run.metadata_offset = 100 + RECORDS
    run.metadata("PartitionRecord", 2, topic="__consumer_offsets", partition_id=0, replicas=[1], isr=[1], leader=1)
    history = history_of(Recording.open(run.finish()))
    began = time.process_time()

    homes = [history.home("__consumer_offsets", f"group {number}") for number in range(ASKED)]
    deleted = [history.orders_of(f"topic {number}", 0).is_deleted for number in range(ASKED)]

    assert time.process_time() - began < MOST_S
    assert set(homes) == {("__consumer_offsets", 0)}
    assert not any(deleted)
