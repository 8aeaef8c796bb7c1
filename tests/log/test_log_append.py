"""What a log refuses, and that a refusal leaves it as it was."""

import pytest

from replog.errors import Error
from replog.log.batch import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, CorruptBatch, NewRecord, build, records, sealed
from replog.log.batch import end_transaction_marker as marker
from replog.log.log import Appended, OffsetOutOfRange
from replog.log.settings import LogSettings
from replog.log.validation import Origin
from tests.log.batches import SMALL, a_batch, a_disk, append, content, opened, state

NOW_MS = 1_000_000
HEALTHY = a_batch(b"x" * 13, base_offset=1, leader_epoch=0)
BYTES = range(len(HEALTHY))


def _damaged(byte: int) -> list[bytes]:
    """Return the batch eight times, with another bit of this byte turned over."""
    return [HEALTHY[:byte] + bytes((HEALTHY[byte] ^ 1 << bit,)) + HEALTHY[byte + 1 :] for bit in range(8)]


@pytest.mark.parametrize("byte", [byte for byte in BYTES if byte not in {*range(8), *range(12, 16)}])
def test_a_flipped_bit_is_never_appended_as_leader(byte: int) -> None:
    log = opened(a_disk())
    append(log, b"before")
    before = state(log), content(log)

    answers = {log.append_as_leader(batch, leader_epoch=0, now_ms=0) for batch in _damaged(byte)}

    # A magic of 0 or 1 is an old format, which is refused in other words.
    assert answers <= {Error.CORRUPT_MESSAGE, *([Error.INVALID_RECORD] if byte == 16 else [])}
    assert (state(log), content(log)) == before


@pytest.mark.parametrize("byte", [byte for byte in BYTES if byte not in range(12, 16)])
def test_a_flipped_bit_is_never_copied_by_a_follower(byte: int) -> None:
    """Only a raised leader epoch cannot be detected: no checksum covers it."""
    log = opened(a_disk())
    append(log, b"before")
    before = state(log), content(log)

    for batch in _damaged(byte):
        with pytest.raises(CorruptBatch):
            log.append_as_follower(batch)

    assert (state(log), content(log)) == before


def _with_count(count: int) -> bytes:
    return sealed(
        b"",
        count=count,
        last_offset_delta=2,
        timestamps_ms=(NOW_MS, NOW_MS),
        base_offset=0,
        leader_epoch=-1,
        producer=(-1, -1, -1),
        attributes=0,
    )


now = NOW_MS
old_format = bytearray(a_batch(b"v", timestamp_ms=now))
old_format[16] = 1


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        pytest.param(b"", Error.INVALID_RECORD, id="nothing"),
        pytest.param(bytes(old_format), Error.INVALID_RECORD, id="magic 1"),
        pytest.param(a_batch(b"v" * 2000, timestamp_ms=now), Error.MESSAGE_TOO_LARGE, id="too large"),
        pytest.param(_with_count(2), Error.INVALID_RECORD, id="fewer records than offsets"),
        pytest.param(_with_count(3), Error.INVALID_RECORD, id="more records than bytes"),
        pytest.param(_with_count(0), Error.INVALID_RECORD, id="no records"),
        pytest.param(_with_count(-1), Error.INVALID_RECORD, id="negative count"),
        pytest.param(a_batch(timestamp_ms=now, attributes=CONTROL), Error.INVALID_RECORD, id="control batch"),
        pytest.param(a_batch(timestamp_ms=now, attributes=TRANSACTIONAL), Error.INVALID_RECORD, id="no producer"),
        pytest.param(a_batch(timestamp_ms=now, producer=(1, 0, -1)), Error.INVALID_RECORD, id="no sequence"),
        pytest.param(a_batch(timestamp_ms=now, producer=(1, -1, 0)), Error.INVALID_RECORD, id="no epoch"),
        pytest.param(
            a_batch(timestamp_ms=now, producer=(1, 0, 0)) * 2, Error.INVALID_RECORD, id="two batches with sequences"
        ),
        pytest.param(a_batch(timestamp_ms=now, attributes=LOG_APPEND_TIME), Error.INVALID_TIMESTAMP, id="time type"),
        pytest.param(a_batch(timestamp_ms=now + 10_001), Error.INVALID_TIMESTAMP, id="in the future"),
        pytest.param(a_batch(timestamp_ms=now - 20_001), Error.INVALID_TIMESTAMP, id="too old"),
        pytest.param(a_batch(b"v" * 900, timestamp_ms=now) * 4, Error.RECORD_LIST_TOO_LARGE, id="more than a segment"),
    ],
)
def test_what_a_producer_may_not_send(sent: bytes, error: Error) -> None:
    settings = LogSettings(
        message_bytes_max=1000, segment_bytes=3000, timestamp_after_ms_max=10_000, timestamp_before_ms_max=20_000
    )
    log = opened(a_disk(), settings)

    answer = log.append_as_leader(sent, leader_epoch=0, now_ms=NOW_MS)

    assert answer is error
    assert (log.log_end_offset, log.size, len(log.producers)) == (0, 0, 0)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_refused(codec: int) -> None:
    log = opened(a_disk())
    batch = sealed(
        b"?",
        count=1,
        last_offset_delta=0,
        timestamps_ms=(0, 0),
        base_offset=0,
        leader_epoch=-1,
        producer=(-1, -1, -1),
        attributes=codec,
    )

    assert log.append_as_leader(batch, leader_epoch=0, now_ms=0) is Error.UNSUPPORTED_COMPRESSION_TYPE


def test_more_offsets_than_an_index_can_name_are_refused() -> None:
    log = opened(a_disk())
    append(log, b"a")
    giant = sealed(
        b"?",
        count=1 << 30,
        last_offset_delta=(1 << 30) - 1,
        timestamps_ms=(0, 0),
        base_offset=0,
        leader_epoch=-1,
        producer=(-1, -1, -1),
        attributes=1,
    )

    ours = Origin.COORDINATOR  # of clients' batches the records are looked at, and there are none
    assert log.append_as_leader(giant * 3, leader_epoch=0, now_ms=0, origin=ours) is Error.INVALID_RECORD
    for _ in range(3):
        assert isinstance(log.append_as_leader(giant, leader_epoch=0, now_ms=0, origin=ours), Appended)
    log.close()
    assert [segment.base_offset for segment in log.segments] == [0, 1 + (1 << 30)]


def test_timestamps_at_the_limits_are_fine() -> None:
    settings = LogSettings(timestamp_after_ms_max=10, timestamp_before_ms_max=20)
    log = opened(a_disk(), settings)

    for timestamp_ms in (NOW_MS + 10, NOW_MS - 20, -1):
        answer = log.append_as_leader(a_batch(timestamp_ms=timestamp_ms), leader_epoch=0, now_ms=NOW_MS)
        assert isinstance(answer, Appended)


def test_append_time_is_the_brokers() -> None:
    log = opened(a_disk(), LogSettings(log_append_time=True))

    answer = log.append_as_leader(a_batch(b"a", b"b", timestamp_ms=5), leader_epoch=0, now_ms=NOW_MS)

    assert isinstance(answer, Appended)
    assert answer.log_append_time_ms == NOW_MS
    assert [r.timestamp_ms for r in records(content(log))] == [NOW_MS, NOW_MS]
    assert log.segments[0].largest_timestamp_ms == NOW_MS


@pytest.mark.parametrize("rolls", [False, True])
def test_the_largest_timestamp_is_looked_for_behind_the_log_start(rolls: bool) -> None:
    """KIP-734 asks for a record that is there; that the latest was deleted does not make the log empty."""
    log = opened(a_disk())
    stamps = [100, 50, 70, 60]
    batch = build([NewRecord(None, b"v", timestamp_ms=stamp) for stamp in stamps[:2]], timestamp_ms=0)
    for each in (batch, *(a_batch(timestamp_ms=stamp) for stamp in stamps[2:])):
        if rolls:
            log.roll(NOW_MS)
        log.append_as_leader(each, leader_epoch=0, now_ms=NOW_MS)

    found = []
    for start in range(5):
        log.move_log_start(start)
        latest = log.offset_of_max_timestamp()
        found.append(latest and (latest.timestamp_ms, latest.offset))

    assert found == [(100, 0), (70, 2), (70, 2), (60, 3), None]


def test_a_duplicate_answers_with_its_first_offsets() -> None:
    """SPEC 4.1.2: a retry is not appended, and acks=all waits for the first copy's offset (M75)."""
    log = opened(a_disk())
    append(log, b"other")
    first = append(log, b"a", b"b", producer=(7, 0, 0))
    append(log, b"c", producer=(7, 0, 2))

    again = append(log, b"a", b"b", producer=(7, 0, 0))

    assert again.duplicate
    assert (again.base_offset, again.next_offset) == (first.base_offset, first.next_offset) == (1, 3)
    assert log.log_end_offset == 4


def test_a_duplicate_answers_with_its_first_append_time() -> None:
    """Else the producer takes its own time for the record's: with append time, -1 says that there is none."""
    log = opened(a_disk(), LogSettings(log_append_time=True))
    batch = a_batch(b"a", timestamp_ms=5, producer=(7, 0, 0))

    answers = [log.append_as_leader(batch, leader_epoch=0, now_ms=now_ms) for now_ms in (NOW_MS, NOW_MS + 9)]

    assert [answer.log_append_time_ms for answer in answers if isinstance(answer, Appended)] == [NOW_MS, NOW_MS]


def test_truncation_takes_sequences_back() -> None:
    """M73: what was truncated is no duplicate, and what follows is not out of order."""
    log = opened(a_disk())
    append(log, b"a", producer=(7, 0, 0))
    append(log, b"b", producer=(7, 0, 1))
    log.truncate_to(1)

    again = append(log, b"b", producer=(7, 0, 1))

    assert not again.duplicate
    assert again.base_offset == 1


def test_markers_of_fenced_producers_and_coordinators_are_refused() -> None:
    """SPEC 4.2.7."""
    log = opened(a_disk())
    append(log, b"a", producer=(7, 3, 0), attributes=TRANSACTIONAL)

    def end(epoch: int, coordinator_epoch: int):
        sent = marker(
            producer_id=7, producer_epoch=epoch, committed=True, coordinator_epoch=coordinator_epoch, timestamp_ms=0
        )
        return log.append_as_leader(sent, leader_epoch=0, now_ms=0, origin=Origin.COORDINATOR)

    assert end(2, 5) is Error.INVALID_PRODUCER_EPOCH
    assert isinstance(end(3, 5), Appended)
    assert end(3, 4) is Error.TRANSACTION_COORDINATOR_FENCED
    assert isinstance(end(3, 5), Appended)  # a repeated marker is harmless


def test_a_follower_takes_a_batch_that_its_leaders_log_start_cuts_in_two() -> None:
    leader, follower = opened(a_disk()), opened(a_disk())
    append(leader, b"a", b"b", b"c", b"d")
    append(leader, b"e")
    leader.move_log_start(2)
    follower.restart_at(2)

    follower.append_as_follower(leader.read(2, max_bytes=1000, end_offset=5, at_least_one=True))

    assert (follower.log_start_offset, follower.log_end_offset) == (2, 5)
    assert follower.read(2, max_bytes=1000, end_offset=5, at_least_one=True) == content(leader)


@pytest.mark.parametrize(
    ("base_offset", "epoch"),
    [pytest.param(0, 3, id="again"), pytest.param(2, 3, id="hole"), pytest.param(1, 2, id="old epoch")],
)
def test_a_follower_refuses_misplaced_batches(base_offset: int, epoch: int) -> None:
    log = opened(a_disk())
    append(log, b"a", epoch=3)

    with pytest.raises(CorruptBatch):
        log.append_as_follower(a_batch(b"b", base_offset=base_offset, leader_epoch=epoch))

    assert log.log_end_offset == 1


def test_compacted_logs_may_have_holes() -> None:
    settings = LogSettings(compacts=True)
    disk = a_disk()
    log = opened(disk)
    append(log, b"a")
    log.settings = settings

    log.append_as_follower(a_batch(b"b", base_offset=10, leader_epoch=0))

    assert log.read(5, max_bytes=100, end_offset=11, at_least_one=True)
    log.close()
    assert opened(disk, settings, recover=True).log_end_offset == 11


def test_a_full_disk_leaves_the_log_as_it_was() -> None:
    disk = a_disk()
    log = opened(disk, SMALL)
    append(log, b"a")
    disk.faults.capacity_bytes = disk.used_bytes + 10

    with pytest.raises(OSError, match="space"):
        append(log, b"b" * 100)

    disk.faults.capacity_bytes = None
    assert append(log, b"b").base_offset == 1


@pytest.mark.parametrize("offset", [0, 4])
def test_reads_outside_of_the_log_are_out_of_range(offset: int) -> None:
    log = opened(a_disk())
    append(log, b"a", b"b", b"c")
    log.move_log_start(1)

    with pytest.raises(OffsetOutOfRange):
        log.read(offset, max_bytes=1, end_offset=3, at_least_one=True)
