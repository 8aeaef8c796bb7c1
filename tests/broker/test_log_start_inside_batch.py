"""A leader's log start may lie inside a batch (DeleteRecords): followers that parted from it before it still find back (SPEC 3.3, 3.4.1)."""

from pathlib import Path

import pytest

from replog.log.batch import CorruptBatch, batches
from replog.log.log import Log
from tests.cases.replicas import WALL_MS, a_log, a_replica, apply_metadata, record_batch, state

HIGH_WATERMARK, LOG_START, END = 441, 447, 453


def the_leaders(folder: Path, log_start_offset: int) -> Log:
    """The log of broker 2: one batch of 441 to 452 in epoch 3, deleted up to the log start."""
    log = a_log(folder / "leader", end=HIGH_WATERMARK, epochs=[[0, 0]])
    log.append_as_follower(record_batch(HIGH_WATERMARK, 3, END - HIGH_WATERMARK), now_ms=WALL_MS)
    log.move_log_start(log_start_offset)
    return log


def read(log: Log, offset: int) -> bytes:
    return log.read(offset, max_bytes=1 << 20, end_offset=log.log_end_offset, at_least_one=True)


@pytest.mark.parametrize("count", [10, 6], ids=["longer than the log start", "as long as the log start"])
def test_a_follower_with_nothing_behind_the_leaders_log_start_takes_the_batch_around_it(
    tmp_path: Path, count: int
) -> None:
    """Broker 3 led epoch 2 before and wrote records from 441 on alone; the leader says that epoch 2 ends at its log start."""
    leader = the_leaders(tmp_path, LOG_START)
    own = a_log(tmp_path / "follower", end=HIGH_WATERMARK + count, epochs=[[0, 0], [2, HIGH_WATERMARK]])
    follower = a_replica(own, high_watermark=HIGH_WATERMARK)
    apply_metadata(follower, state(leader=2, leader_epoch=3))

    end = leader.epochs.end_offset_for(2, leader.log_end_offset)
    follower.on_divergence(*end, leader_log_start_offset=LOG_START)
    assert own.log_end_offset == LOG_START
    follower.on_fetched(read(leader, LOG_START), high_watermark=END, log_start_offset=LOG_START, wall_ms=WALL_MS)

    assert (own.log_start_offset, own.log_end_offset) == (LOG_START, END)
    assert own.epochs == leader.epochs
    assert [header.base_offset for header in batches(read(own, LOG_START))] == [HIGH_WATERMARK]


def test_a_follower_with_records_that_the_leader_keeps_refuses_a_batch_around_its_end(tmp_path: Path) -> None:
    leader = the_leaders(tmp_path, LOG_START - 1)
    own = a_log(tmp_path / "follower", end=LOG_START, epochs=[[0, 0], [2, HIGH_WATERMARK]])
    follower = a_replica(own, high_watermark=HIGH_WATERMARK)
    apply_metadata(follower, state(leader=2, leader_epoch=3))

    with pytest.raises(CorruptBatch, match="offset 441 where 447 comes next"):
        follower.on_fetched(
            read(leader, LOG_START), high_watermark=END, log_start_offset=LOG_START - 1, wall_ms=WALL_MS
        )
    assert (own.log_start_offset, own.log_end_offset) == (0, LOG_START)


@pytest.mark.parametrize(("log_start", "remembered"), [
    pytest.param(6, [], id="the leader deleted all of its epoch: what it wrote alone is forgotten"),
    pytest.param(2, [7], id="the leader has records of the common history"),
])  # fmt: skip
def test_producers_of_a_history_that_the_leader_deleted_are_forgotten(
    tmp_path: Path, log_start: int, remembered: list[int]
) -> None:
    """Producer 7 wrote to broker 3 alone from offset 4 on, in epoch 0; the leader began epoch 1 there (decision 0011)."""
    leader = a_log(tmp_path / "leader", end=9, epochs=[[0, 0], [1, 4]])
    leader.move_log_start(log_start)
    own = a_log(tmp_path / "follower", end=3, epochs=[[0, 0]])
    for offset in range(3, 8):
        own.append_as_follower(record_batch(offset, 0, producer=(7, 0, offset)), now_ms=WALL_MS)
    follower = a_replica(own, high_watermark=3)
    apply_metadata(follower, state(leader=2, leader_epoch=1))

    end = leader.epochs.end_offset_for(0, leader.log_end_offset)
    follower.on_divergence(*end, leader_log_start_offset=leader.log_start_offset)

    assert own.log_end_offset == max(log_start, 4)
    assert [producer.producer_id for producer in own.producers] == remembered


@pytest.mark.parametrize(("log_start", "expected"), [
    pytest.param(7, (1, 1), id="it deleted beyond where they part: it takes all that the leader has"),
    pytest.param(6, (1, 1), id="it deleted as far as they part: on its disk lies its own history below"),
    pytest.param(3, (3, 4), id="it has some of the common history"),
])  # fmt: skip
def test_a_follower_that_deleted_what_the_leader_still_has_begins_anew(
    tmp_path: Path, log_start: int, expected: tuple[int, int]
) -> None:
    """Broker 3 led epoch 4 from offset 4 on and deleted records; broker 2, elected uncleanly, has epoch 1 up to 6."""
    leader = a_log(tmp_path / "leader", end=6, epochs=[[1, 0]])
    leader.epochs.assign(6, 6)
    leader.move_log_start(1)
    own = a_log(tmp_path / "follower", end=9, epochs=[[1, 0], [4, 4]])
    own.move_log_start(log_start)
    follower = a_replica(own, high_watermark=9)
    apply_metadata(follower, state(leader=2, leader_epoch=6))

    end = leader.epochs.end_offset_for(4, leader.log_end_offset)
    follower.on_divergence(*end, leader_log_start_offset=leader.log_start_offset)

    assert (own.log_start_offset, own.log_end_offset) == expected


def test_a_follower_that_shows_nothing_any_more_keeps_its_log_end(tmp_path: Path) -> None:
    """Broker 3 led epoch 1 without a record, and deleted all it had; broker 2 has one record more of epoch 0, and all that is not deleted there.

    It began anew at the leader's log start: in the ELR with an end before what is committed.
    """
    leader = a_log(tmp_path / "leader", end=10, epochs=[[0, 0]])
    leader.epochs.assign(3, 10)
    leader.move_log_start(5)
    own = a_log(tmp_path / "follower", end=9, epochs=[[0, 0]])
    own.epochs.assign(1, 9)
    own.move_log_start(9)
    follower = a_replica(own, high_watermark=9)
    apply_metadata(follower, state(leader=2, leader_epoch=3))

    end = leader.epochs.end_offset_for(1, leader.log_end_offset)
    assert end == (0, 10)
    follower.on_divergence(*end, leader_log_start_offset=leader.log_start_offset)

    assert (own.log_start_offset, own.log_end_offset, follower.high_watermark) == (9, 9, 9)
    follower.on_fetched(read(leader, 9), high_watermark=10, log_start_offset=5, wall_ms=WALL_MS)
    assert (own.log_start_offset, own.log_end_offset) == (9, 10)
    assert own.epochs.latest == 0
