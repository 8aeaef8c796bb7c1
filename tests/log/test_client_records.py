"""What a producer's batch holds is looked at before it is appended: garbage with a good checksum is refused."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replog.errors import Error
from replog.log.batch import HEADER_BYTES, NewRecord, build, header_at, records
from replog.log.client_records import BadRecords, examined
from replog.log.compression import Codec, packed
from replog.log.settings import LogSettings
from replog.log.validation import EXPANSION_MAX, Origin, admitted
from tests.broker.test_hostile_live import resealed

NOW_MS = 1_000_000
ANYTHING = st.none() | st.binary(max_size=200)
entries = st.builds(
    NewRecord,
    key=ANYTHING,
    value=ANYTHING,
    headers=st.lists(st.tuples(st.text(max_size=5), ANYTHING), max_size=3),
    timestamp_ms=st.integers(NOW_MS - 500, NOW_MS + 500),
)
alike = st.builds(
    lambda count, key, size: [NewRecord(key, bytes(size))] * count,
    count=st.integers(1, 300),
    key=st.none() | st.binary(max_size=3),
    size=st.integers(0, 300),
)


def content_of(new: list[NewRecord]) -> bytes:
    return build(new, timestamp_ms=NOW_MS)[HEADER_BYTES:]


def answer(batch: bytes, settings: LogSettings | None = None) -> Error:
    settings = settings or LogSettings()
    found = admitted(memoryview(batch), settings, origin=Origin.CLIENT, now_ms=NOW_MS)
    return found if isinstance(found, Error) else Error.NONE


def holding(content: bytes, count: int, *, codec: Codec = Codec.NONE, last_ms: int = NOW_MS) -> bytes:
    """Return a batch whose header and checksum are right for so many records, whatever the content is."""
    batch = bytearray(build([NewRecord(None, b"")], timestamp_ms=NOW_MS)[:HEADER_BYTES] + content)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[21:23] = int(codec).to_bytes(2, "big")
    batch[23:27] = (count - 1).to_bytes(4, "big")
    batch[35:43] = last_ms.to_bytes(8, "big")
    batch[57:61] = count.to_bytes(4, "big")
    return resealed(batch)


@given(st.lists(entries, min_size=1, max_size=90) | alike)
def test_what_clients_send_is_admitted(new: list[NewRecord]) -> None:
    times = [NOW_MS if one.timestamp_ms is None else one.timestamp_ms for one in new]
    batch = build(new, timestamp_ms=NOW_MS)
    base_ms = header_at(batch, 0).base_timestamp_ms

    found = examined(batch[HEADER_BYTES:], len(new))

    assert (found.lowest_delta_ms + base_ms, found.highest_delta_ms + base_ms) == (min(times), max(times))
    assert found.has_null_key == any(one.key is None for one in new)


@given(st.lists(entries, min_size=1, max_size=20) | alike, st.data())
def test_what_is_admitted_can_be_read(new: list[NewRecord], data: st.DataObject) -> None:
    """The two readers agree: whatever the one lets in, the other reads to its end with these offsets."""
    content = bytearray(content_of(new))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    batch = holding(bytes(content), len(new))

    try:
        examined(bytes(content), len(new))
    except BadRecords:
        return

    assert [record.offset for record in records(batch)] == list(range(len(new)))


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
@pytest.mark.parametrize(
    ("spoiled", "error"),
    [
        pytest.param(lambda whole: Random("x").randbytes(len(whole)), Error.INVALID_RECORD, id="garbage"),
        pytest.param(lambda whole: bytes(len(whole)), Error.INVALID_RECORD, id="zeros"),
        pytest.param(lambda whole: whole[:-1], Error.INVALID_RECORD, id="the last byte is missing"),
        pytest.param(lambda whole: whole + b"\0", Error.INVALID_RECORD, id="a byte more"),
        pytest.param(lambda whole: whole[: len(whole) // 2], Error.INVALID_RECORD, id="half of the records"),
        pytest.param(lambda whole: whole[len(whole) // 2 :] * 2, Error.INVALID_RECORD, id="offsets again"),
        pytest.param(lambda whole: whole, Error.NONE, id="whole"),
    ],
)
def test_records_must_be_what_the_header_says(codec: Codec, spoiled: object, error: Error) -> None:
    whole = content_of([NewRecord(b"key", b"value")] * 100)
    assert callable(spoiled)

    assert answer(holding(bytes(packed(spoiled(whole), codec)), 100, codec=codec)) is error


def test_what_is_not_compressed_as_it_says_is_refused() -> None:
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        garbage = Random(codec).randbytes(300)
        assert answer(holding(garbage, 10, codec=codec)) in (Error.CORRUPT_MESSAGE, Error.MESSAGE_TOO_LARGE), codec


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.name)
def test_a_bomb_is_refused_before_it_goes_off(codec: Codec) -> None:
    """A client whose records really are so compressible splits the batch when it is told that it is too large."""
    settings = LogSettings(message_bytes_max=1 << 17)
    plain = content_of([NewRecord(None, bytes(EXPANSION_MAX << 17))])
    batch = holding(bytes(packed(plain, codec)), 1, codec=codec)

    assert answer(batch, settings) is Error.MESSAGE_TOO_LARGE
    assert len(batch) < settings.message_bytes_max or codec is Codec.SNAPPY  # which cannot make so little of it


def test_timestamps_are_the_records_own() -> None:
    late = content_of([NewRecord(None, b"a", timestamp_ms=NOW_MS), NewRecord(None, b"b", timestamp_ms=NOW_MS + 7)])

    assert answer(holding(late, 2, last_ms=NOW_MS + 7)) is Error.NONE
    assert answer(holding(late, 2, last_ms=NOW_MS + 6)) is Error.INVALID_TIMESTAMP
    assert answer(holding(late, 2, last_ms=NOW_MS + 8)) is Error.INVALID_TIMESTAMP


def test_a_record_that_is_too_old_is_refused_behind_younger_ones() -> None:
    old = build([NewRecord(None, b"a"), NewRecord(None, b"b", timestamp_ms=NOW_MS - 50)], timestamp_ms=NOW_MS)

    assert answer(old, LogSettings(timestamp_before_ms_max=50)) is Error.NONE
    assert answer(old, LogSettings(timestamp_before_ms_max=49)) is Error.INVALID_TIMESTAMP


def test_a_compacted_topic_takes_no_record_without_a_key() -> None:
    batch = build([NewRecord(b"k", b"v"), NewRecord(None, b"v")], timestamp_ms=NOW_MS)

    assert answer(batch) is Error.NONE
    assert answer(batch, LogSettings(compacts=True)) is Error.INVALID_RECORD


def test_a_header_may_be_called_anything() -> None:
    """Kafka keeps names of headers as bytes: one that is no UTF-8 may not stop who reads the batch."""
    batch = build([NewRecord(b"k", b"v", headers=[("zz", b"1")])], timestamp_ms=NOW_MS)
    odd = resealed(bytearray(batch.replace(b"zz", b"\xff\xfe")))

    assert answer(odd) is Error.NONE
    assert [name for record in records(odd, header_at(odd, 0)) for name, _ in record.headers] == ["\ufffd\ufffd"]
