"""Compaction keeps the last value of each key, the offsets, and whatever is not decided yet."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from replog.log.batch import TRANSACTIONAL, NewRecord, batches, build, end_transaction_marker, records, sealed
from replog.log.cleaner import Cleaner, cleaned_to
from replog.log.compression import Codec
from replog.log.log import Log
from replog.log.recovery import CLEANER_FILE, cleanings
from replog.log.settings import LogSettings
from replog.log.validation import Origin
from tests.log.batches import a_disk, content, opened, state
from tribunal.clusters.simulated.disk import PowerLost, SimulatedDisk

COMPACT = LogSettings(
    segment_bytes=500,
    index_interval_bytes=150,
    compacts=True,
    deletes=False,
    tombstone_retention_ms=1000,
    timestamp_after_ms_max=1 << 40,
)
EAGER = structs.replace(COMPACT, cleanable_share_min=0.0)
keys = st.sampled_from([b"a", b"b", b"c"])
values = st.none() | st.binary(min_size=1, max_size=60)
puts = st.lists(st.tuples(keys, values, st.booleans()), min_size=1, max_size=40)


def _put(log: Log, key: bytes, value: bytes | None, *, timestamp_ms: int = 0, **fields: object) -> None:
    sent = build([NewRecord(key, value)], timestamp_ms=timestamp_ms, **fields)
    answer = log.append_as_leader(sent, leader_epoch=0, now_ms=0)
    assert not isinstance(answer, int), answer


def _clean(log: Log, now_ms: int = 0):
    log.flush()
    return Cleaner(log, high_watermark=log.log_end_offset, now_ms=now_ms).run()


def _read(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    buffer = content(log)
    return [
        (record.offset, record.key, record.value)
        for header in batches(buffer)
        if not header.is_control
        for record in records(buffer, header)
    ]


def _last_values(found: list[tuple[int, bytes | None, bytes | None]]) -> dict[bytes | None, tuple[int, bytes]]:
    last = {key: (offset, value) for offset, key, value in found}
    return {key: (offset, value) for key, (offset, value) in last.items() if value is not None}


def _filled(
    history: list[tuple[bytes, bytes | None, bool]],
    disk: SimulatedDisk | None = None,
    *,
    codec: Codec = Codec.NONE,
    settings: LogSettings = COMPACT,
) -> Log:
    log = opened(disk or a_disk(), settings)
    sequence = 0
    for key, value, idempotent in history:
        if idempotent:
            _put(log, key, value, producer=(1, 0, sequence), attributes=codec)
            sequence += 1
        else:
            _put(log, key, value, attributes=codec)
    log.roll(now_ms=0)
    return log


@given(puts, st.sampled_from(Codec))
@settings(max_examples=100)
def test_the_last_value_of_each_key_stays(history: list[tuple[bytes, bytes | None, bool]], codec: Codec) -> None:
    log = _filled(history, codec=codec)
    before, end_offset = _read(log), log.log_end_offset

    _clean(log)

    after = _read(log)
    assert log.log_end_offset == end_offset
    assert after == [entry for entry in before if entry[0] == max(o for o, key, _ in before if key == entry[1])]
    assert all(header.codec == codec for header in batches(content(log)) if header.count)


def _again(log: Log, now_ms: int) -> None:
    """Let something come, and clean once more."""
    _put(log, b"other", b"x" * 60)
    log.roll(now_ms=0)
    _clean(log, now_ms)


def test_tombstones_stay_for_those_who_are_on_their_way() -> None:
    """KIP-534: the time begins with the first cleaning, however old the tombstone is by then."""
    log = _filled([(b"a", b"1" * 60, False), (b"a", None, False), (b"b", b"2" * 60, False)], settings=EAGER)

    _clean(log, now_ms=1_000_000)
    assert (1, b"a", None) in _read(log)
    _again(log, now_ms=1_001_000)
    assert (1, b"a", None) in _read(log)
    _again(log, now_ms=1_001_001)
    assert [entry for entry in _read(log) if entry[1] == b"a"] == []


@pytest.mark.parametrize(
    ("is_done", "tombstone"), [pytest.param(False, True, id="given up"), pytest.param(True, False, id="done")]
)
def test_a_cleaning_that_does_not_come_to_its_end_begins_no_time(is_done: bool, tombstone: bool) -> None:
    """What it did not clean a consumer reads long after it: that one is still to be shown the tombstone."""
    log = _filled([(b"a", b"1" * 60, False), (b"a", None, False), (b"b", b"2" * 60, False)], settings=EAGER)
    log.flush()
    steps = Cleaner(log, high_watermark=log.log_end_offset, now_ms=1_000_000).steps()
    for _ in steps if is_done else [next(steps)]:
        pass
    steps.close()
    log = opened(log.disk, EAGER, recover=True)
    assert ((0, b"a", b"1" * 60) in _read(log)) is not is_done

    _again(log, now_ms=1_002_000)

    assert ((1, b"a", None) in _read(log)) is tombstone
    _again(log, now_ms=1_004_000)
    assert (1, b"a", None) not in _read(log)


def test_a_log_that_was_not_cleaned_to_the_end_is_cleaned_again() -> None:
    log = _filled([(b"a", b"1" * 60, False), (b"a", b"2", False), (b"b", b"2" * 60, False)])
    log.flush()
    steps = Cleaner(log, high_watermark=log.log_end_offset, now_ms=0).steps()
    next(steps)
    steps.close()
    log = opened(log.disk, COMPACT, recover=True)

    assert cleaned_to(log) == 0
    _clean(log)

    assert [offset for offset, key, _ in _read(log) if key == b"a"] == [1]
    assert cleaned_to(log) == log.segments[-1].base_offset


def test_the_memory_of_cleanings_stays_small() -> None:
    log = _filled([(b"a", b"1", False)], settings=EAGER)
    for now_ms in range(0, 3000, 20):
        _put(log, b"a", b"1")
        log.roll(now_ms=0)
        _clean(log, now_ms)

    assert len(cleanings(log.disk, log.directory)) < 40
    assert cleaned_to(log) == log.segments[-1].base_offset


def _transaction(log: Log, key: bytes, *, committed: bool, producer_id: int = 7, sequence: int = 0) -> int:
    """Put a record in a transaction and end it; return the marker's offset."""
    _put(log, key, b"t" * 60, producer=(producer_id, 0, sequence), attributes=TRANSACTIONAL)
    marker = end_transaction_marker(
        producer_id=producer_id, producer_epoch=0, committed=committed, coordinator_epoch=0, timestamp_ms=0
    )
    log.append_as_leader(marker, leader_epoch=0, now_ms=0, origin=Origin.COORDINATOR)
    return log.log_end_offset - 1


def _end_marker(log: Log, *, committed: bool, producer_id: int = 7) -> None:
    marker = end_transaction_marker(
        producer_id=producer_id, producer_epoch=0, committed=committed, coordinator_epoch=0, timestamp_ms=0
    )
    log.append_as_leader(marker, leader_epoch=0, now_ms=0, origin=Origin.COORDINATOR)


def _markers(log: Log) -> list[int]:
    return [header.base_offset for header in batches(content(log)) if header.is_control]


def test_markers_go_when_their_records_and_their_time_are_gone() -> None:
    log = opened(a_disk(), structs.replace(EAGER, segment_bytes=2000))
    aborted = _transaction(log, b"a", committed=False)
    replaced = _transaction(log, b"a", committed=True, sequence=1)
    kept = _transaction(log, b"b", committed=True, sequence=2)
    last = _transaction(log, b"a", committed=True, sequence=3)
    for _ in range(6):
        _put(log, b"c", b"x" * 60)
    log.roll(now_ms=0)

    _clean(log, now_ms=0)
    assert _markers(log) == [aborted, replaced, kept, last]
    assert len(log.aborted_transactions(0, log.log_end_offset)) == 1
    _again(log, now_ms=2000)
    assert _markers(log) == [kept, last]  # one has records, the other is the producer's last
    assert log.aborted_transactions(0, log.log_end_offset) == []
    log.producers.expire(1 << 60, 0)
    _again(log, now_ms=2000)
    assert _markers(log) == [kept, last]
    assert opened(log.disk, EAGER, recover=True).log_end_offset == log.log_end_offset


@pytest.mark.parametrize("committed", [True, False])
def test_a_producer_that_is_forgotten_while_a_log_is_cleaned_leaves_no_transaction_without_an_end(
    committed: bool,
) -> None:
    """Whoever copies such a log from its start would have one open for ever, and a leader of it holds read_committed readers there."""
    log = opened(a_disk(), EAGER)
    _put(log, b"a", b"1", producer=(7, 0, 0), attributes=TRANSACTIONAL)
    _put(log, b"b", b"1" * 60)
    log.roll(now_ms=0)
    _end_marker(log, committed=committed)
    _put(log, b"a", b"2")
    log.roll(now_ms=0)
    _clean(log)
    _put(log, b"b", b"3")
    log.roll(now_ms=0)
    log.flush()

    cleaner = Cleaner(log, high_watermark=log.log_end_offset, now_ms=1001)
    for file in cleaner.steps():
        if file is not None:
            file.sync()
        log.producers.expire(1 << 60, 0)

    assert cleaner.cleaned is not None
    assert log.producers.get(7) is None
    for name in log.disk.list_directory(log.directory):
        if not name.endswith((".log", CLEANER_FILE)):
            log.disk.remove(f"{log.directory}/{name}")
    again = opened(log.disk, EAGER, recover=True)
    assert again.log_end_offset == log.log_end_offset
    assert again.producers.open_transactions == []


def test_records_that_cannot_be_read_stay_and_count_for_nothing() -> None:
    """Batches that were written before anybody looked into them may hold anything."""
    good = build([NewRecord(b"a", b"good" * 20)], timestamp_ms=0)
    liar = build([NewRecord(b"x", b"v"), NewRecord(b"a", b"v")], timestamp_ms=0)
    header = next(batches(liar))
    lies = liar[61:].replace(b"\x02\x02a", b"\x10\x02a")  # an offset far ahead, for a key of somebody else
    garbage = [lies, b"\xff" * 40, b"\x00" * 40, b"\x06" + b"\xff" * 39]
    log = opened(a_disk(), COMPACT)
    for codec in Codec:
        for records_bytes in garbage:
            sent = sealed(
                records_bytes,
                count=2,
                last_offset_delta=1,
                timestamps_ms=(0, 0),
                base_offset=0,
                leader_epoch=0,
                producer=(-1, -1, -1),
                attributes=header.attributes | codec,
            )
            appended = log.append_as_leader(sent, leader_epoch=0, now_ms=0, origin=Origin.COORDINATOR)
            assert not isinstance(appended, int)
    for _ in range(8):
        log.append_as_leader(good, leader_epoch=0, now_ms=0)
    log.roll(now_ms=0)
    end_offset = log.log_end_offset

    assert _clean(log) is not None

    left = list(batches(content(log)))
    assert sum(header.count == 2 for header in left) == len(Codec) * len(garbage)
    assert [header.base_offset for header in left if header.count == 1] == [end_offset - 1]
    assert log.offset_for_timestamp(0).offset == 0


@given(puts)
@settings(max_examples=60)
def test_a_cleaned_log_opens_as_it_was(history: list[tuple[bytes, bytes | None, bool]]) -> None:
    disk = a_disk()
    log = _filled(history, disk)
    _clean(log, now_ms=5000)
    before = state(log)

    scanned = opened(disk, COMPACT, recover=True)
    assert state(scanned) == before
    # The policy may have changed since: the holes have not.
    plain = opened(disk, LogSettings(segment_bytes=500, index_interval_bytes=150), recover=True)
    assert state(plain) == before
    assert plain.cut is None


def test_cleaning_stops_at_what_is_not_decided() -> None:
    """Below the high watermark, the last stable offset and the flushed offset only."""
    log = _filled([(b"a", b"1" * 60, False)] * 12)
    log.flush()
    before = content(log)

    assert Cleaner(log, high_watermark=2, now_ms=0).run() is None
    assert content(log) == before
    cleaned = Cleaner(log, high_watermark=7, now_ms=0).run()
    assert cleaned is not None
    assert cleaned.end_offset <= 7
    assert content(log).endswith(before[-300:])


def test_an_open_transaction_holds_the_cleaner_back() -> None:
    log = opened(a_disk(), COMPACT)
    _put(log, b"a", b"t", producer=(7, 0, 0), attributes=TRANSACTIONAL)
    for _ in range(20):
        _put(log, b"a", b"x" * 60)

    assert _clean(log) is None


def test_aborted_records_go_and_stand_for_no_key() -> None:
    log = opened(a_disk(), COMPACT)
    _put(log, b"a", b"good")
    _put(log, b"a", b"aborted", producer=(7, 0, 0), attributes=TRANSACTIONAL)
    sent = end_transaction_marker(producer_id=7, producer_epoch=0, committed=False, coordinator_epoch=0, timestamp_ms=0)
    log.append_as_leader(sent, leader_epoch=0, now_ms=0, origin=Origin.COORDINATOR)
    _put(log, b"b", b"other")
    log.roll(now_ms=0)

    _clean(log)

    assert [(key, value) for _, key, value in _read(log)] == [(b"a", b"good"), (b"b", b"other")]


def test_cleaning_waits_until_enough_is_dirty() -> None:
    log = _filled([(b"a", b"x" * 60, False), (b"b", b"y" * 60, False)] * 12)

    first = _clean(log)
    second = _clean(log)

    assert first is not None
    assert first.bytes_after < first.bytes_before / 2
    assert cleaned_to(log) == first.end_offset
    assert second is None


def test_a_power_failure_while_cleaning_loses_no_last_value() -> None:
    history = [(b"%d" % (index % 5), b"v%d" % index * 12, index % 3 == 0) for index in range(30)]
    wanted = _last_values(_read(_filled(history)))

    for operation in range(200):
        disk = a_disk(operation)
        log = _filled(history, disk)
        log.flush()
        disk.crash_at(operation)
        try:
            Cleaner(log, high_watermark=log.log_end_offset, now_ms=0).run()
        except PowerLost:
            disk.power_on()
            again = opened(disk, COMPACT, recover=True, recovery_point=log.flushed_offset)
            assert _last_values(_read(again)) == wanted, operation
            assert again.log_end_offset == 30
            continue
        break
    assert 20 < operation < 199
