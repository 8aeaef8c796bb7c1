"""What clients have compressed can be opened, what we compress can be opened by them; garbage and bombs do no harm."""

from contextlib import suppress

import aiokafka.codec
import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replog.log import compression
from replog.log.compression import BadCompression, Codec, packed, unpacked

STRANGERS = {
    Codec.GZIP: (aiokafka.codec.gzip_encode, aiokafka.codec.gzip_decode),
    Codec.SNAPPY: (aiokafka.codec.snappy_encode, aiokafka.codec.snappy_decode),
    Codec.LZ4: (aiokafka.codec.lz4_encode, aiokafka.codec.lz4_decode),
    Codec.ZSTD: (aiokafka.codec.zstd_encode, aiokafka.codec.zstd_decode),
}
COMPRESSED = [codec for codec in Codec if codec]
contents = st.binary(max_size=400) | st.integers(0, 200_000).map(lambda size: b"abcd%d" % size + b"x" * size)


@given(contents, st.sampled_from(Codec))
def test_content_comes_back(content: bytes, codec: Codec) -> None:
    assert unpacked(packed(content, codec), codec) == content


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("content", [b"", b"a", b"word " * 50_000, bytes(range(256)) * 700], ids=len)
def test_other_implementations_and_ours_read_each_other(codec: Codec, content: bytes) -> None:
    encode, decode = STRANGERS[codec]

    assert unpacked(encode(content), codec) == content
    assert bytes(decode(bytes(packed(content, codec)))) == content


def test_snappy_without_framing_is_what_librdkafka_sends() -> None:
    content = b"word " * 1000

    assert unpacked(bytes(cramjam.snappy.compress_raw(content)), Codec.SNAPPY) == content


def test_our_lz4_is_of_independent_blocks() -> None:
    """Java's reader refuses others, and frames that say how large their content is."""
    flags = packed(b"x" * 100_000, Codec.LZ4)[4]

    assert flags >> 6 == 1
    assert flags & 0b100000
    assert not flags & 0b1001


@given(st.binary(max_size=200), st.integers(0, 7))
@settings(max_examples=300)
def test_garbage_is_refused(garbage: bytes, codec: int) -> None:
    with suppress(BadCompression):
        unpacked(garbage, codec)


@given(st.binary(min_size=30, max_size=400), st.sampled_from(COMPRESSED), st.data())
def test_a_torn_or_flipped_stream_is_refused_or_gives_something(
    content: bytes, codec: Codec, data: st.DataObject
) -> None:
    stream = bytearray(packed(content, codec))
    position = data.draw(st.integers(0, len(stream) - 1))
    stream[position] ^= data.draw(st.integers(1, 255))
    for damaged in (bytes(stream), bytes(stream)[:position]):
        with suppress(BadCompression):
            unpacked(damaged, codec)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_does_not_go_off(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = packed(bytes(1 << 22), codec)
    assert len(unpacked(bomb, codec)) == 1 << 22
    monkeypatch.setattr(compression, "UNPACKED_BYTES_MAX", (1 << 22) - 1)

    with pytest.raises(BadCompression):
        unpacked(bomb, codec)
