"""Segments that are gone, or another log's: what is left of a log is not what it was, and nobody may take it for that."""

import errno
import struct
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from replog.broker.partition import Partition
from replog.host.world import RealDisk
from replog.log.batch import CorruptBatch, batches
from replog.log.log import Log
from replog.log.settings import LogSettings
from replog.types import NodeId, TopicPartition
from tests.log.batches import DIRECTORY, SMALL, a_disk, append, content, opened
from tribunal.clusters.simulated.disk import SimulatedDisk

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")


def a_closed_log(disk: SimulatedDisk) -> list[int]:
    """Write a log of several segments, close it in order, and return where its segments begin."""
    log = opened(disk)
    for number in range(40):
        append(log, b"%04d" % number * 20)
    log.close()
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 4
    return bases


def without(disk: SimulatedDisk, base_offset: int) -> None:
    for suffix in SUFFIXES:
        path = f"{DIRECTORY}/{base_offset:020d}{suffix}"
        if disk.exists(path):
            disk.remove(path)


def offsets(log: Log) -> list[int]:
    return [header.base_offset for segment in log.segments for header in segment.headers()]


@pytest.mark.parametrize("recover", [False, True], ids=["after a clean stop", "after a crash"])
def test_segments_behind_a_missing_one_are_cut(recover: bool) -> None:
    disk = a_disk()
    bases = a_closed_log(disk)
    without(disk, bases[2])

    log = opened(disk, recover=recover)

    assert log.cut is not None
    assert log.cut.offset == log.log_end_offset == bases[2]
    assert offsets(log) == list(range(bases[2]))
    assert opened(disk).cut is None


@pytest.mark.parametrize("recover", [False, True], ids=["after a clean stop", "after a crash"])
def test_a_segment_of_another_log_is_cut_with_all_behind_it(recover: bool) -> None:
    disk = a_disk()
    bases = a_closed_log(disk)
    for suffix in SUFFIXES:
        source, target = (f"{DIRECTORY}/{base:020d}{suffix}" for base in (bases[1], bases[3]))
        if disk.exists(source):
            disk.replace_file(target, disk.read_file(source))

    log = opened(disk, recover=recover)

    assert log.cut is not None
    assert offsets(log) == list(range(bases[3]))


@pytest.mark.parametrize("recover", [False, True], ids=["after a clean stop", "after a crash"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_log_without_its_first_segments_is_known_to_be_none(count: int, recover: bool) -> None:
    """It is found again with each start until it is decided what becomes of it."""
    disk = a_disk()
    bases = a_closed_log(disk)
    for base_offset in bases[:count]:
        without(disk, base_offset)

    opened(disk, recover=recover).close()
    log = opened(disk, recover=recover)

    assert log.missing_from == 0
    log.begin_again()
    assert (log.log_start_offset, log.log_end_offset, log.missing_from) == (0, 0, None)
    log.close()
    assert opened(disk).missing_from is None


@pytest.mark.parametrize("recover", [False, True])
@pytest.mark.parametrize("name", ["0.log", "5.log", "000000000000000000005.log", f"{'9' * 20}.log"])
def test_a_copy_under_another_name_is_no_segment(name: str, recover: bool) -> None:
    """Its digits were taken for an offset, a segment was begun there, and what stood behind it was cut as if it did not fit."""
    disk = a_disk()
    log = opened(disk)
    for number in range(40):
        append(log, b"%d" % number)
    before = content(log)
    copy = disk.open(f"{DIRECTORY}/{name}", create=True)
    copy.append(disk.read_file(f"{DIRECTORY}/{0:020d}.log"))

    again = opened(disk, recover=recover)

    assert (again.log_start_offset, again.log_end_offset, content(again)) == (0, 40, before)
    assert disk.exists(copy.path)


def test_who_leads_goes_on_with_what_is_left() -> None:
    disk = a_disk()
    bases = a_closed_log(disk)
    without(disk, bases[0])

    log = opened(disk)
    log.go_on_without_start()
    log.close()

    again = opened(disk)
    assert (again.log_start_offset, again.missing_from) == (bases[1], None)


@pytest.mark.parametrize(
    "shorten",
    [
        pytest.param(lambda log: log.delete_old_segments(1 << 40, 30), id="retention"),
        pytest.param(lambda log: (log.move_log_start(25), log.delete_old_segments(0, 30)), id="DeleteRecords"),
        pytest.param(lambda log: log.restart_at(100), id="behind its leader's log"),
    ],
)
def test_what_was_deleted_is_not_missing(shorten: Callable[[Log], object]) -> None:
    """Also when the broker ends before it has written down where its logs begin."""
    disk = a_disk()
    a_closed_log(disk)
    log = opened(disk, LogSettings(retention_ms=1, segment_bytes=SMALL.segment_bytes))

    shorten(log)

    again = opened(disk, recover=True, log_start_offset=0)
    assert again.missing_from is None
    assert again.segments[0].base_offset > 0


def test_a_sealed_segment_that_went_bad_is_not_served() -> None:
    disk = a_disk()
    bases = a_closed_log(disk)
    log = opened(disk)
    path = f"{DIRECTORY}/{bases[1]:020d}.log"
    content = bytearray(disk.read_file(path))
    content[-1] ^= 1
    log.segments[1].file.write_at(0, bytes(content))

    with pytest.raises(CorruptBatch, match="checksum"):
        log.read(bases[2] - 1, max_bytes=1, end_offset=40, at_least_one=True)
    with pytest.raises(CorruptBatch, match="checksum"):
        log.read(bases[1], max_bytes=1 << 20, end_offset=40, at_least_one=True)

    first = log.read(0, max_bytes=1 << 20, end_offset=40, at_least_one=True)
    behind = log.read(bases[2], max_bytes=1 << 20, end_offset=40, at_least_one=True)
    assert [header.base_offset for header in batches(first)] == list(range(bases[1]))
    assert [header.base_offset for header in batches(behind)] == list(range(bases[2], bases[3]))


@pytest.mark.parametrize("which", [0, 2, -1], ids=["first", "middle", "last"])
def test_an_index_that_points_before_its_file_is_made_anew(which: int, tmp_path: Path) -> None:
    """A disk refuses to read there, which looked as if the disk had failed: one bad index took all logs of its directory offline."""
    disk, folder = RealDisk(), str(tmp_path / "t-0")
    log = opened(disk, directory=folder)
    for number in range(40):
        append(log, b"%04d" % number * 20)
    before = content(log)
    log.close()
    path = tmp_path / "t-0" / f"{log.segments[which].base_offset:020d}.index"
    path.write_bytes(struct.pack(">ii", -5, -1000))

    again = opened(disk, directory=folder)

    assert content(again) == before
    again.close()


def test_a_disk_that_fails_when_what_is_left_is_dropped_takes_its_directory_offline_and_not_the_broker() -> None:
    disk = a_disk()
    bases = a_closed_log(disk)
    without(disk, bases[0])
    partition = Partition(
        name=TopicPartition("t", 0),
        topic_id=UUID(int=7),
        node_id=NodeId(1),
        log=opened(disk),
        high_watermark=0,
        brokers={},
        lag_ms_max=1000,
        refuses_while_recovering=True,
    )
    failed: list[OSError] = []
    partition.disk_failed = failed.append
    disk.break_below("data", errno.EIO)

    partition.make_whole(NodeId(2))

    assert partition.is_offline
    assert [problem.errno for problem in failed] == [errno.EIO]
