"""The files on disk: what Apache Kafka's log dumper checks holds, and their names are as durable as their content."""

import struct

import pytest

from replog.log.batch import batches
from replog.log.producers import ProducerStates
from tests.log.batches import DIRECTORY, SMALL, a_disk, append, content, opened


def _closed():
    disk = a_disk()
    log = opened(disk)
    for index in range(60):
        append(log, b"x" * (index * 7 % 80), timestamp_ms=index * 37 % 500)
    log.close()
    return disk, log


def test_index_entries_name_the_last_offset_of_the_batch_at_their_position() -> None:
    """DumpLogSegments, dumpIndex: otherwise "Mismatches in"."""
    disk, log = _closed()

    for segment in log.segments[:-1]:
        stored = disk.read_file(segment.path(".log"))
        last_offsets = {header.position: header.last_offset for header in batches(stored)}
        entries = list(struct.iter_unpack(">ii", disk.read_file(segment.path(".index"))))
        assert entries
        assert all(last_offsets[position] == segment.base_offset + offset for offset, position in entries)


def test_time_index_entries_name_a_batch_with_that_largest_timestamp() -> None:
    """DumpLogSegments, dumpTimeIndex: found by its last offset, its largest timestamp, ascending."""
    disk, log = _closed()

    for segment in log.segments:
        stored = disk.read_file(segment.path(".log"))
        timestamps = {header.last_offset: header.max_timestamp_ms for header in batches(stored)}
        entries = list(struct.iter_unpack(">qi", disk.read_file(segment.path(".timeindex"))))
        assert [timestamps[segment.base_offset + offset] for _, offset in entries] == [t for t, _ in entries]
        assert entries == sorted(set(entries))
        assert entries[-1][0] == max(timestamps.values())


def test_a_closed_log_has_kafkas_files() -> None:
    disk, log = _closed()

    names = disk.list_directory(DIRECTORY)

    for segment in log.segments:
        stem = f"{segment.base_offset:020d}"
        assert {f"{stem}{suffix}" for suffix in (".log", ".index", ".timeindex", ".txnindex")} <= set(names)
    snapshot = disk.read_file(f"{DIRECTORY}/{log.log_end_offset:020d}.snapshot")
    assert len(ProducerStates.from_snapshot(snapshot)) == 0


@pytest.mark.parametrize("seed", range(20))
def test_a_flush_after_a_restart_is_durable(seed: int) -> None:
    disk = a_disk(seed)
    log = opened(disk, SMALL)
    append(log, b"a")
    log.restart_at(10)
    append(log, b"b")
    log.flush()

    disk.power_fail()
    disk.power_on()

    assert opened(disk, SMALL, recover=True, recovery_point=11, log_start_offset=10).log_end_offset == 11


@pytest.mark.parametrize("seed", range(40))
def test_unsynced_segments_vanish_from_the_end_only(seed: int) -> None:
    """A name that is lost while later ones stay would be a hole; in a compacted log no scan could detect it."""
    disk = a_disk(seed)
    log = opened(disk, SMALL)
    for _ in range(12):
        append(log, b"x" * 300)
    whole = content(log)

    disk.power_fail()
    disk.power_on()

    assert whole.startswith(content(opened(disk, SMALL, recover=True)))
