"""A topic that was compacted has gaps for ever: they survive the change of its policy, on followers, too.

Without this a follower of a topic switched from compact to delete could never catch up, and one that had copied the
gaps while the topic was compacted would have lost all behind the first one in its next recovery.
"""

import pytest

from replog.log.batch import CorruptBatch, NewRecord, batches, build
from replog.log.cleaner import Cleaner
from replog.log.log import Log
from replog.log.settings import LogSettings
from replog.log.validation import UnexpectedGap
from tests.log.batches import a_disk, content, opened, state
from tribunal.clusters.simulated.disk import PowerLost, SimulatedDisk

COMPACT = LogSettings(segment_bytes=500, index_interval_bytes=150, compacts=True, deletes=False)
DELETE = LogSettings(segment_bytes=500, index_interval_bytes=150)


def compacted() -> Log:
    """A leader's log with gaps, switched to delete since."""
    log = opened(a_disk(), COMPACT)
    for index in range(40):
        sent = build([NewRecord(b"key%d" % (index % 3), b"x" * 40)], timestamp_ms=0)
        log.append_as_leader(sent, leader_epoch=0, now_ms=0)
    log.flush()
    Cleaner(log, high_watermark=log.log_end_offset, now_ms=0).run()
    log.settings = DELETE
    assert len(list(batches(content(log)))) < 30
    return log


def copy(leader: Log, follower: Log, *, max_bytes: int = 200) -> int:
    """Fetch as a replica does; return how often the follower refused."""
    refusals = 0
    while follower.log_end_offset < leader.log_end_offset:
        fetched = leader.read(
            follower.log_end_offset, max_bytes=max_bytes, end_offset=leader.log_end_offset, at_least_one=True
        )
        try:
            follower.append_as_follower(fetched)
        except CorruptBatch:
            refusals += 1
            assert refusals < 5, "never catches up"
    return refusals


@pytest.mark.parametrize("settings", [DELETE, COMPACT], ids=["delete", "compact"])
@pytest.mark.parametrize("max_bytes", [200, 100_000])
def test_a_new_follower_catches_up(settings: LogSettings, max_bytes: int) -> None:
    leader, follower = compacted(), opened(a_disk(), settings)

    assert copy(leader, follower, max_bytes=max_bytes) <= 1

    assert content(follower) == content(leader)


@pytest.mark.parametrize("seed", range(10))
def test_what_a_follower_copied_survives_its_power_failure_under_the_new_policy(seed: int) -> None:
    disk = a_disk(seed)
    leader, follower = compacted(), opened(disk, COMPACT)
    copy(leader, follower)
    follower.flush()
    disk.power_fail()
    disk.power_on()

    again = opened(disk, DELETE, recover=True)

    assert again.cut is None
    assert content(again) == content(leader)


def test_a_power_failure_at_any_operation_of_the_copying_is_survived() -> None:
    leader = compacted()
    for operation in range(1000):
        disk: SimulatedDisk = a_disk(operation)
        follower = opened(disk, DELETE)
        disk.crash_at(operation)
        flushed = 0
        try:
            while follower.log_end_offset < leader.log_end_offset:
                fetched = leader.read(
                    follower.log_end_offset, max_bytes=200, end_offset=leader.log_end_offset, at_least_one=True
                )
                try:
                    follower.append_as_follower(fetched)
                except UnexpectedGap:
                    continue
                follower.flush()
                flushed = follower.log_end_offset
        except PowerLost:
            disk.power_on()
            again = opened(disk, DELETE, recover=True, recovery_point=flushed)
            assert again.log_end_offset >= flushed, operation
            assert content(leader).startswith(content(again))
            copy(leader, again)
            assert content(again) == content(leader)
            assert state(opened(disk, DELETE, recover=True)) == state(again)
            continue
        break
    assert operation > 30


def test_a_damaged_offset_is_not_taken_for_a_gap() -> None:
    """The base offset lies outside of the checksum: what came damaged once comes whole the next time."""
    follower = opened(a_disk(), DELETE)
    good = b"".join(build([NewRecord(None, b"v")], timestamp_ms=0, base_offset=o, leader_epoch=0) for o in range(3))
    size = len(good) // 3
    damaged = good[: 2 * size + 6] + b"\x01" + good[2 * size + 7 :]

    with pytest.raises(UnexpectedGap):
        follower.append_as_follower(damaged)
    assert follower.log_end_offset == 0
    follower.append_as_follower(good)
    assert follower.log_end_offset == 3
    assert not follower.expects_gaps


def test_two_different_gaps_are_two_accidents() -> None:
    follower = opened(a_disk(), DELETE)
    for base_offset in (5, 9, 5, 9):
        with pytest.raises(UnexpectedGap):
            follower.append_as_follower(build([NewRecord(None, b"v")], timestamp_ms=0, base_offset=base_offset))
