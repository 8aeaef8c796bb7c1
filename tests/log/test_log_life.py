"""A log over time: transactions, retention, DeleteRecords, flushes, look-ups by time."""

import struct
from uuid import UUID

import pytest
from crc32c import crc32c
from msgspec import structs

from replog.log.batch import CODEC_MASK, TRANSACTIONAL, NewRecord, batches, build
from replog.log.batch import end_transaction_marker as marker
from replog.log.compression import Codec
from replog.log.log import Appended, Log
from replog.log.moving import delete_log
from replog.log.producers import CorruptSnapshot, ProducerStates
from replog.log.settings import LogSettings
from replog.log.validation import Origin
from tests.log.batches import DIRECTORY, SMALL, a_disk, append, content, opened

BIG = LogSettings(timestamp_after_ms_max=1 << 40)


def _end(log: Log, producer_id: int, *, committed: bool) -> int:
    sent = marker(producer_id=producer_id, producer_epoch=0, committed=committed, coordinator_epoch=0, timestamp_ms=0)
    appended = log.append_as_leader(sent, leader_epoch=0, now_ms=0, origin=Origin.COORDINATOR)
    assert isinstance(appended, Appended)
    return appended.base_offset


def _begin(log: Log, producer_id: int, sequence: int = 0) -> int:
    return append(log, b"t", producer=(producer_id, 0, sequence), attributes=TRANSACTIONAL).base_offset


def test_the_last_stable_offset_waits_for_committed_markers() -> None:
    """SPEC 4.2.9, M81: an end that is not replicated itself has not ended anything yet."""
    log = opened(a_disk(), BIG)
    append(log, b"plain")
    _begin(log, 1)
    _begin(log, 2)
    end = _end(log, 1, committed=True)

    assert log.last_stable_offset(high_watermark=1) == 1
    assert log.last_stable_offset(high_watermark=end) == 1
    assert log.last_stable_offset(high_watermark=end + 1) == 2
    _end(log, 2, committed=False)
    assert log.last_stable_offset(high_watermark=end + 1) == 2
    assert log.last_stable_offset(high_watermark=end + 2) == end + 2


def test_the_last_stable_offset_is_not_below_the_log_start() -> None:
    """A read_committed consumer that is sent to the end would be out of range there, and be sent there again."""
    log = opened(a_disk(), BIG)
    _begin(log, 1)
    append(log, b"plain")
    append(log, b"plain")
    log.move_log_start(2)

    assert log.last_stable_offset(high_watermark=1) == 1  # a follower that knows of no more yet
    assert log.last_stable_offset(high_watermark=3) == 2
    assert log.read(2, max_bytes=1000, end_offset=2, at_least_one=True) == b""
    end = _end(log, 1, committed=False)
    assert log.last_stable_offset(high_watermark=end + 1) == end + 1


@pytest.mark.parametrize("again", [False, True], ids=["running", "opened again"])
def test_aborted_transactions_are_found_across_segments(again: bool) -> None:
    """M82: a transaction belongs to the segments it began in and crossed, its entry to that of its marker."""
    disk = a_disk()
    log = opened(disk)
    first = _begin(log, 1)
    for _ in range(10):
        append(log, b"x" * 90)
    other = _begin(log, 2)
    end = _end(log, 1, committed=False)
    _end(log, 2, committed=True)
    append(log, b"after")
    if again:
        log.close()
        log = opened(disk)

    assert len(log.segments) > 2
    assert [a[:3] for a in log.aborted_transactions(3, end + 2)] == [(1, first, end)]
    assert [a[:3] for a in log.aborted_transactions(0, 2)] == [(1, first, end)]
    assert log.aborted_transactions(end + 1, log.log_end_offset) == []
    assert other < end


@pytest.mark.parametrize("settings", [SMALL, BIG], ids=["small segments", "one segment"])
def test_the_end_of_a_read_is_known_without_looking_at_its_batches(settings: LogSettings) -> None:
    """By the index: never before the read's end, and not far behind it."""
    log = opened(a_disk(), structs.replace(settings, index_interval_bytes=150))
    for _ in range(60):
        append(log, b"x" * 40)

    for offset in range(log.log_end_offset):
        for max_bytes in (1, 200, 500, 5000):
            found = log.read(offset, max_bytes=max_bytes, end_offset=log.log_end_offset, at_least_one=True)
            end = list(batches(found))[-1].next_offset
            assert end <= log.end_of_read(offset, len(found)) <= end + 3
    assert log.end_of_read(log.log_end_offset, 0) == log.log_end_offset


def test_open_transactions_survive_a_restart_and_a_snapshot() -> None:
    disk = a_disk()
    log = opened(disk, BIG)
    _begin(log, 5)
    _begin(log, 3)
    log.close()

    again = opened(disk, BIG)

    assert [t.producer_id for t in again.producers.open_transactions] == [5, 3]
    assert again.last_stable_offset(high_watermark=2) == 0


def test_ended_transactions_stay_unstable_through_truncation() -> None:
    disk = a_disk()
    log = opened(disk, BIG)
    _begin(log, 1)
    _end(log, 1, committed=True)
    log.roll(now_ms=0)
    append(log, b"a")
    append(log, b"b")

    log.truncate_to(3)

    assert log.last_stable_offset(high_watermark=1) == 0
    assert log.last_stable_offset(high_watermark=3) == 3


def test_silent_producers_expire_but_not_with_an_open_transaction() -> None:
    log = opened(a_disk(), LogSettings(producer_expiration_ms=100))
    append(log, b"a", producer=(1, 0, 0))
    _begin(log, 2)

    assert log.expire_producers(now_ms=99) == []
    assert log.expire_producers(now_ms=100) == [1]
    assert [p.producer_id for p in log.producers] == [2]


@pytest.mark.parametrize("ends", [False, True])
def test_replicas_agree_on_when_a_producer_wrote_last(ends: bool) -> None:
    """Whenever they got it: DescribeProducers names the batch's (or the marker's) own time, as Kafka's does."""
    leader, follower = opened(a_disk(), BIG), opened(a_disk(), BIG)
    append(leader, b"a", producer=(9, 0, 0), timestamp_ms=77)
    if ends:
        _end(leader, 9, committed=True)
    follower.append_as_follower(content(leader), now_ms=5_000)

    assert [p.last_timestamp_ms for p in follower.producers] == [p.last_timestamp_ms for p in leader.producers]
    assert [p.last_timestamp_ms for p in leader.producers] == [0 if ends else 77]


def test_snapshots_have_kafkas_layout() -> None:
    """ProducerSnapshot version 1: version, CRC-32C of what follows it, entries."""
    log = opened(a_disk(), BIG)
    append(log, b"a", b"b", producer=(9, 2, 0), timestamp_ms=77)

    content_ = log.producers.to_snapshot()

    version, checksum, count = struct.unpack_from(">hIi", content_)
    assert (version, checksum, count) == (1, crc32c(content_[6:]), 1)
    assert struct.unpack_from(">qhiqiqiq", content_, 10) == (9, 2, 1, 1, 1, 77, -1, -1)
    assert ProducerStates.from_snapshot(content_).to_snapshot() == content_


@pytest.mark.parametrize("byte", range(10 + 46))
def test_damaged_snapshots_are_reported(byte: int) -> None:
    states = ProducerStates()
    log = opened(a_disk(), BIG)
    append(log, b"a", producer=(9, 2, 0))
    damaged = bytearray(log.producers.to_snapshot())
    damaged[byte] ^= 1

    with pytest.raises(CorruptSnapshot):
        states.from_snapshot(bytes(damaged))


def _filled(settings: LogSettings, count: int = 12) -> Log:
    log = opened(a_disk(), settings)
    for index in range(count):
        append(log, b"x" * 200, timestamp_ms=index * 10)
    assert len(log.segments) > 3
    return log


def _with(**changes: object) -> LogSettings:
    return LogSettings(segment_bytes=700, index_interval_bytes=150, **changes)


def test_retention_by_time_never_passes_the_high_watermark() -> None:
    """M40."""
    log = _filled(_with(retention_ms=50, timestamp_after_ms_max=1000))

    log.delete_old_segments(now_ms=1000, high_watermark=5)

    assert log.log_start_offset <= 5 < log.segments[1].base_offset
    log.delete_old_segments(now_ms=1000, high_watermark=log.log_end_offset)
    assert log.log_start_offset == log.log_end_offset == 12
    assert append(log, b"on").base_offset == 12


def test_retention_by_size_keeps_at_least_that_much() -> None:
    log = _filled(_with(retention_bytes=1000, retention_ms=-1, timestamp_after_ms_max=1000))
    before = log.size

    count = log.delete_old_segments(now_ms=0, high_watermark=log.log_end_offset)

    assert count >= 1
    assert 1000 <= log.size < before
    assert log.log_start_offset == log.segments[0].base_offset
    assert log.epochs.entries == [(0, log.log_start_offset)]


def test_delete_records_hides_at_once_and_frees_whole_segments_later() -> None:
    log = _filled(_with(retention_ms=-1, timestamp_after_ms_max=1000))
    first = log.segments[1].base_offset

    log.move_log_start(first + 1)

    assert log.log_start_offset == first + 1
    assert log.delete_old_segments(now_ms=0, high_watermark=log.log_end_offset) == 1
    assert log.segments[0].base_offset == first
    log.move_log_start(first)
    assert log.log_start_offset == first + 1


def test_segments_roll_by_time() -> None:
    log = opened(a_disk(), _with(segment_ms=100, timestamp_after_ms_max=1000))
    for timestamp_ms in (0, 100, 101, 150):
        append(log, b"v", timestamp_ms=timestamp_ms)

    assert [segment.base_offset for segment in log.segments] == [0, 2]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize(("timestamp_ms", "found"), [(0, (1, 0)), (2, (5, 1)), (5, (5, 1)), (6, (9, 3)), (10, None)])
def test_records_are_found_by_time(codec: Codec, timestamp_ms: int, found: tuple[int, int] | None) -> None:
    log = opened(a_disk(), BIG)
    for stamps in ([1, 5], [2, 9, 9], [3]):
        entries = [NewRecord(None, b"v", (), stamp) for stamp in stamps]
        sent = build(entries, timestamp_ms=0, attributes=codec & CODEC_MASK)
        log.append_as_leader(sent, leader_epoch=4, now_ms=0)

    answer = log.offset_for_timestamp(timestamp_ms)

    assert (answer[:2] if answer else None) == found
    assert log.offset_of_max_timestamp() == (9, 3, 4)


def test_a_search_by_time_uses_the_indexes_of_sealed_segments() -> None:
    disk = a_disk()
    log = opened(disk)
    for index in range(40):
        append(log, b"x" * 50, timestamp_ms=index * 10)
    log.close()
    again = opened(disk)

    for timestamp_ms in range(391):
        answer = again.offset_for_timestamp(timestamp_ms)
        assert answer is not None
        assert answer.offset == (timestamp_ms + 9) // 10


def test_a_flush_that_a_truncation_overtook_promises_nothing() -> None:
    log = opened(a_disk())
    append(log, b"a")
    append(log, b"b")
    flush = log.begin_flush()
    log.truncate_to(1)
    append(log, b"c")

    log.complete_flush(flush)

    assert log.flushed_offset == 0
    log.flush()
    assert log.flushed_offset == 2


def test_a_flush_covers_what_was_there_when_it_began() -> None:
    log = opened(a_disk())
    append(log, b"a")
    flush = log.begin_flush()
    append(log, b"b")

    for file in flush.files:
        file.sync()
    log.complete_flush(flush)

    assert log.flushed_offset == 1
    assert log.files_to_sync()


def test_an_epoch_without_records_goes_with_a_truncation_that_cuts_nothing() -> None:
    """KAFKA-10706, SPEC 3.4.3, M31."""
    disk = a_disk()
    log = opened(disk)
    append(log, b"a", epoch=1)
    log.begin_epoch(4)

    log.truncate_to(1)

    assert log.epochs.entries == [(1, 0)]
    assert disk.read_file(f"{DIRECTORY}/leader-epoch-checkpoint") == b"0\n1\n1 0\n"


def test_truncation_inside_a_batch_takes_the_whole_batch() -> None:
    log = opened(a_disk())
    append(log, b"a", b"b")
    append(log, b"c", b"d", b"e")

    log.truncate_to(3)

    assert log.log_end_offset == 2
    assert append(log, b"f").base_offset == 2


def test_the_topic_id_is_kept() -> None:
    disk = a_disk()
    log = opened(disk)
    topic_id = UUID(int=0x1234567890ABCDEF1234567890ABCDEF)
    log.assign_topic_id(topic_id)

    assert opened(disk).topic_id == topic_id
    assert disk.read_file(f"{DIRECTORY}/partition.metadata").startswith(b"version: 0\ntopic_id: ")


def test_a_damaged_sealed_segment_ends_the_log_there() -> None:
    disk = a_disk()
    log = opened(disk, SMALL)
    for _ in range(12):
        append(log, b"x" * 200)
    log.flush()
    disk.flip_bit(f"{DIRECTORY}/{log.segments[1].base_offset:020d}.log", 8 * 100)

    again = opened(disk, SMALL, recover=True)

    assert again.cut is not None
    assert again.log_end_offset == again.cut.offset == log.segments[1].base_offset
    assert len(content(again)) == again.size


def test_deleted_logs_are_gone() -> None:
    disk = a_disk()
    log = opened(disk)
    delete_log(disk, log)
    disk.power_fail()
    disk.power_on()

    assert not disk.exists(DIRECTORY)


@pytest.mark.parametrize("in_order", [False, True], ids=["power cut", "closed in order"])
def test_an_end_that_is_not_replicated_is_known_after_a_start_also_before_a_finished_segment(in_order: bool) -> None:
    """M81: the snapshot of a finished segment does not say which ends were not committed when it was written."""
    disk = a_disk()
    log = opened(disk)
    first = _begin(log, 1)
    end = _end(log, 1, committed=True)
    log.roll(0)
    append(log, b"after")
    if in_order:
        log.close()
    else:
        log.flush()

    again = opened(disk, recover=not in_order, recovery_point=log.flushed_offset, high_watermark=first + 1)

    assert again.last_stable_offset(high_watermark=first + 1) == first
    assert again.last_stable_offset(high_watermark=end + 1) == end + 1


def test_a_start_reads_no_batches_again_for_the_producers_of_a_log_closed_with_all_ends_committed() -> None:
    disk = a_disk()
    log = opened(disk)
    _begin(log, 1)
    end = _end(log, 1, committed=True)
    assert log.last_stable_offset(high_watermark=end + 1) == end + 1
    append(log, b"after")
    log.close()

    again = opened(disk, recovery_point=end + 2, high_watermark=0)

    assert again.producers.ended_before(end + 2) == []
