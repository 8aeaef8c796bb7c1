"""What a producer's batch holds is looked at before it is appended: garbage with a good checksum is refused."""

from contextlib import suppress
from random import Random

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replog.errors import Error
from replog.log.batch import HEADER_BYTES, NewRecord, build, header_at, records
from replog.log.client_records import BadRecords, examined
from replog.log.compression import LZ4_HEADER, SNAPPY_MAGIC, Codec, packed
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


def record(
    index: int, *, key: bytes = b"\x01", value: bytes = b"\x02x", tail: bytes = b"\0", offset: bytes = b""
) -> bytes:
    """Return a record by its bytes: key and value with their sizes, headers with their number."""
    at = offset or (bytes((index << 1,)) if index < 64 else bytes((index << 1 & 127 | 128, index >> 6)))
    body = b"\0\0" + at + key + value + tail
    return bytes((len(body) << 1,)) + body


@pytest.mark.parametrize(
    ("odd", "error"),
    [
        pytest.param(record(0, value=b"\x82\x80\x80\x80\x00x"), Error.NONE, id="a size of five bytes"),
        pytest.param(record(0, value=b"\x82\x80\x80\x80\x80\x00x"), Error.INVALID_RECORD, id="a size of six bytes"),
        pytest.param(record(0, key=b"\x81\x80\x80\x80\x80\x00"), Error.INVALID_RECORD, id="a key's size of six bytes"),
        pytest.param(record(0, tail=b"\x82\x80\x80\x80\x80\x00\x02h\x01"), Error.INVALID_RECORD, id="a long number of headers"),
        pytest.param(record(0, tail=b"\x02\x02h\x01"), Error.NONE, id="a header"),
        pytest.param(record(0, tail=b"\x02\x01\x01"), Error.INVALID_RECORD, id="a header without a name"),
        pytest.param(record(0, tail=b"\x02\x81\x00\x01"), Error.INVALID_RECORD, id="and two bytes that say so"),
    ],
)  # fmt: skip
def test_numbers_are_no_longer_than_javas_clients_read_them(odd: bytes, error: Error) -> None:
    """Java reads sizes, offsets and counts of five bytes at most: a longer one would stop a consumer for ever."""
    assert answer(holding(odd, 1)) is error


def test_a_key_whose_absence_is_said_in_two_bytes_is_not_taken_for_one() -> None:
    assert answer(holding(record(0, key=b"\x81\0"), 1), LogSettings(compacts=True)) is Error.INVALID_RECORD


@pytest.mark.parametrize("index", [64, 65, 100])
def test_a_record_with_a_long_offset_does_not_vouch_for_those_behind_it(index: int) -> None:
    """Those behind have a value that ends before they do: only a record whose parts lie elsewhere is of the same size."""
    alike = [record(one, key=b"\0", value=b"\x02x", tail=b"\0\0") for one in range(index + 20)]
    three = bytes((index << 1 & 127 | 128, index >> 6 | 128, 0))
    one = record(index, key=b"\x02", value=b"k\0", tail=b"\0", offset=three)
    assert len(one) == len(alike[index])
    whole = [record(at, key=b"\0", value=b"\x04xx") for at in range(index)]

    assert answer(holding(b"".join([*whole, one, *alike[index + 1 :]]), index + 20)) is Error.INVALID_RECORD
    assert (
        answer(holding(b"".join([*whole, *(record(at, key=b"\0", value=b"\x04xx") for at in range(index, 120))]), 120))
        is Error.NONE
    )


@pytest.mark.parametrize("version", [0, 1, 2, 0xFFFFFFFF])
def test_snappys_framing_is_of_a_version_that_javas_clients_read(version: int) -> None:
    block = bytes(cramjam.snappy.compress_raw(content_of([NewRecord(b"k", b"v")])))
    framed = SNAPPY_MAGIC + version.to_bytes(4, "big") * 2 + len(block).to_bytes(4, "big") + block
    wanted = Error.NONE if version in (1, 2) else Error.CORRUPT_MESSAGE

    assert answer(holding(framed, 1, codec=Codec.SNAPPY)) is wanted


def lz4_frame(content: bytes, flags: int) -> bytes:
    """Return a frame of one stored block with these flags; the header's checksum is looked for."""
    extra = len(content).to_bytes(8, "little") if flags & 8 else bytes(4) if flags & 1 else b""
    for checksum in range(256):
        head = LZ4_HEADER[:4] + bytes((flags, 0x40)) + extra + bytes((checksum,))
        frame = head + (len(content) | 1 << 31).to_bytes(4, "little") + content + bytes(4)
        with suppress(cramjam.DecompressionError):
            assert bytes(cramjam.lz4.decompress(frame)) == content
            return frame
    raise AssertionError("no checksum fits")


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        pytest.param(0x60, Error.NONE, id="independent blocks"),
        pytest.param(0x68, Error.NONE, id="with the content's size"),
        pytest.param(0x40, Error.CORRUPT_MESSAGE, id="dependent blocks"),
        pytest.param(0x61, Error.CORRUPT_MESSAGE, id="a dictionary"),
    ],
)
def test_lz4_is_framed_as_javas_clients_read_it(flags: int, error: Error) -> None:
    frame = lz4_frame(content_of([NewRecord(b"k", b"v")]), flags)

    assert answer(holding(frame, 1, codec=Codec.LZ4)) is error


def test_lz4_is_of_one_frame() -> None:
    """Java's reader ends with the first: the second half of the records would never come."""
    whole = content_of([NewRecord(b"k", b"v")] * 100)
    half = len(whole) // 2
    skipped = b"\x50\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"abc"

    assert answer(holding(lz4_frame(whole, 0x60), 100, codec=Codec.LZ4)) is Error.NONE
    for frames in (lz4_frame(whole[:half], 0x60) + lz4_frame(whole[half:], 0x60), skipped + lz4_frame(whole, 0x60)):
        assert answer(holding(frames, 100, codec=Codec.LZ4)) is Error.CORRUPT_MESSAGE


def test_lz4_of_every_checksum_is_admitted() -> None:
    content = content_of([NewRecord(b"k", b"word " * 50_000)])
    compressor = cramjam.lz4.Compressor(level=4, content_checksum=True, block_linked=False)
    compressor.compress(content)

    assert answer(holding(bytes(compressor.finish()), 1, codec=Codec.LZ4)) is Error.NONE
