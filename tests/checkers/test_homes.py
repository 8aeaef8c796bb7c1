"""Where coordinators keep what they remember, as brokers calculate it."""

from random import Random

import pytest

from replog.coordinators.placement import INT_MIN, java_hash, partition_for
from tests.checkers.recorded import Run
from tribunal.checkers.judge.partition import history_of
from tribunal.results.store import Recording

LEAST = "polygenelubricants"  # its hash is the least integer, which has no absolute value


@pytest.mark.parametrize("count", [1, 4, 50])
def test_the_judge_looks_where_the_coordinator_is(tmp_path, count):
    """A negative hash counts by its absolute value, as in Kafka's `Utils.abs`."""
    run = Run(tmp_path / "run")
    for partition in range(count):
        row = {"record_type": "PartitionRecord", "topic": "__consumer_offsets", "partition": partition, "body": "{}"}
        run.recorder.row("metadata", metadata_offset=100 + partition, quorum_epoch=1, at_ns=1, **row)
    history = history_of(Recording.open(run.finish()))
    random = Random(1)
    names = ["".join(random.choices("abcxyz-09", k=random.randrange(1, 12))) for _ in range(200)]

    assert java_hash(LEAST) == INT_MIN
    for name in (*names, LEAST):
        assert history.home("__consumer_offsets", name) == ("__consumer_offsets", partition_for(name, count))
