"""Record batches: what is built can be read, by our code and by another implementation; what is damaged is found."""

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st

from replog.log import batch
from replog.log.batch import (
    CONTROL,
    TRANSACTIONAL,
    ControlType,
    CorruptBatch,
    NewRecord,
    batches,
    build,
    end_transaction,
    end_transaction_marker,
    has_valid_crc,
    header_at,
    records,
    stamped,
    with_append_time,
)
from replog.log.compression import Codec

nullable = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=5), nullable), max_size=3)
new_records = st.builds(NewRecord, nullable, nullable, headers, st.none() | st.integers(0, 1 << 45))


@given(st.lists(new_records, min_size=1, max_size=8), st.sampled_from(Codec))
def test_records_come_back_as_they_were(entries: list[NewRecord], codec: Codec) -> None:
    content = build(entries, timestamp_ms=1234, base_offset=70, attributes=codec)

    found = list(records(content))

    assert [record.offset for record in found] == list(range(70, 70 + len(entries)))
    assert [(record.key, record.value, list(record.headers)) for record in found] == [
        (entry.key, entry.value, [tuple(header) for header in entry.headers]) for entry in entries
    ]
    assert [record.timestamp_ms for record in found] == [
        1234 if entry.timestamp_ms is None else entry.timestamp_ms for entry in entries
    ]
    assert has_valid_crc(memoryview(content), header_at(content, 0))


@given(st.lists(new_records, min_size=1, max_size=5))
def test_another_implementation_reads_the_same(entries: list[NewRecord]) -> None:
    content = build(entries, timestamp_ms=99, base_offset=5, producer=(7, 1, 30), attributes=TRANSACTIONAL)

    reference = DefaultRecordBatch(content)

    assert reference.validate_crc()
    assert (reference.base_offset, reference.next_offset, reference.producer_id) == (5, 5 + len(entries), 7)
    assert (reference.producer_epoch, reference.base_sequence, reference.is_transactional) == (1, 30, True)
    assert [(r.key, r.value, r.timestamp) for r in reference] == [
        (r.key, r.value, r.timestamp_ms) for r in records(content)
    ]


def test_stamping_touches_only_offset_and_epoch() -> None:
    content = build([NewRecord(b"k", b"v")], timestamp_ms=1)

    moved = b"".join(stamped(memoryview(content), header_at(content, 0), 1 << 40, 9))

    header = header_at(moved, 0)
    assert (header.base_offset, header.leader_epoch) == (1 << 40, 9)
    assert moved[16:] == content[16:]
    assert has_valid_crc(memoryview(moved), header)


def test_append_time_replaces_all_timestamps() -> None:
    content = build([NewRecord(b"k", b"v", (), 5), NewRecord(b"k", b"v", (), 50)], timestamp_ms=1)

    restamped = with_append_time(memoryview(content), header_at(content, 0), 777)

    assert [record.timestamp_ms for record in records(restamped)] == [777, 777]
    assert has_valid_crc(memoryview(restamped), header_at(restamped, 0))


@pytest.mark.parametrize(("committed", "said"), [(True, ControlType.COMMIT), (False, ControlType.ABORT)])
def test_markers_say_how_a_transaction_ended(committed: bool, said: ControlType) -> None:
    content = end_transaction_marker(
        producer_id=3, producer_epoch=2, committed=committed, coordinator_epoch=11, timestamp_ms=0
    )

    header = header_at(content, 0)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (3, 2, -1)
    assert end_transaction(content, header) == (said, 11)


def test_other_control_batches_end_no_transaction() -> None:
    content = batch.control_batch(ControlType.LEADER_CHANGE, b"", timestamp_ms=0)

    assert header_at(content, 0).attributes == CONTROL
    assert end_transaction(content, header_at(content, 0)) is None
    assert batch.control_type(content, header_at(content, 0)) == ControlType.LEADER_CHANGE


def test_sequences_wrap() -> None:
    content = build([NewRecord(None, None)] * 3, timestamp_ms=0, producer=(1, 0, (1 << 31) - 2))

    assert header_at(content, 0).last_sequence == 0


@given(st.binary(max_size=200))
def test_hostile_bytes_are_corrupt_and_nothing_else(content: bytes) -> None:
    try:
        found = list(batches(content))
    except CorruptBatch:
        return
    assert not content or found


@given(st.integers(0, 61 + 40), st.data())
def test_a_torn_buffer_is_corrupt(length: int, data: st.DataObject) -> None:
    content = build([NewRecord(b"key", b"v" * 40)], timestamp_ms=0)

    if 0 < length < len(content):
        with pytest.raises(CorruptBatch):
            list(batches(content[:length]))
