"""Compressed records, for those who must look inside a batch: validation, compaction and time look-ups.

Batches are decompressed once, to see that they hold records, and go on to consumers as they came. What is opened here was
written by any client in the world: anything may be in it, also a thousand times as much as it looks.
So the size of what comes out is bounded, and every failure is `BadCompression`.

What is packed again after compaction has to be readable by all clients: Java's reads only LZ4 frames of independent
blocks, and snappy comes in two framings (the one of snappy-java, which we write, or none, as librdkafka does).
"""

import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Final

import cramjam

from replog.ports import Buffer

UNPACKED_BYTES_MAX: Final = 1 << 28
FIRST_GUESS: Final = 8  # times the packed size
BLOCK_BYTES: Final = 1 << 16
SNAPPY_MAGIC: Final = b"\x82SNAPPY\x00"
SNAPPY_HEADER: Final = SNAPPY_MAGIC + (1).to_bytes(4, "big") * 2  # version and the oldest compatible one
SNAPPY_BLOCK_BYTES: Final = 1 << 15
LZ4_HEADER: Final = bytes.fromhex(
    "04224d18604082"
)  # version 1, independent blocks of 64 KiB, and the header's checksum
LZ4_STORED: Final = 1 << 31
LZ4_MAGIC: Final = LZ4_HEADER[:4]
LZ4_INDEPENDENT: Final = 0b100000  # flags of a frame
LZ4_BLOCK_CHECKSUM: Final = 0b10000
LZ4_CONTENT_SIZE: Final = 0b1000
LZ4_CONTENT_CHECKSUM: Final = 0b100
LZ4_RESERVED: Final = 0b11  # a dictionary's, and nobody's
TOO_SMALL: Final = "failed to write whole buffer"


class Codec(IntEnum):
    """Compression of the records, the low three bits of the attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BadCompression(ValueError):
    """The content is not what its codec says, is larger than anybody may ask for, or has a codec nobody knows."""


class TooLarge(BadCompression):
    """What would come out is more than anybody may ask for."""


def packed(content: Buffer, codec: int) -> Buffer:
    """Return the content compressed."""
    return PACK[Codec(codec)](content)


def unpacked(content: Buffer, codec: int, *, size_max: int = UNPACKED_BYTES_MAX) -> bytes:
    """Return the content as it was before compression, or raise `BadCompression` (`TooLarge` beyond `size_max`)."""
    unpack = UNPACK.get(codec)
    if unpack is None:
        raise BadCompression(f"codec {codec}")
    try:
        return unpack(content, min(size_max, UNPACKED_BYTES_MAX))
    except (cramjam.DecompressionError, zlib.error) as problem:
        raise BadCompression(str(problem)) from None


def check_framing(content: Buffer, codec: int) -> None:
    """Raise `BadCompression` where this process reads a framing, and Java's clients do not: they would never get past it.

    LZ4 frames must be of independent blocks, without a dictionary, and one; snappy's framing is of version 1 or later.
    """
    if codec == Codec.LZ4:
        _check_lz4(memoryview(content))
    elif codec == Codec.SNAPPY:
        header = bytes(memoryview(content)[: len(SNAPPY_HEADER)])
        version = int.from_bytes(header[len(SNAPPY_MAGIC) :][:4], "big", signed=True)
        if header.startswith(SNAPPY_MAGIC) and version < 1:
            raise BadCompression(f"snappy framing of version {version}")


def _check_lz4(view: memoryview) -> None:
    flags = view[4] if len(view) > len(LZ4_HEADER) else 0
    if view[:4] != LZ4_MAGIC or flags & LZ4_RESERVED or not flags & LZ4_INDEPENDENT:
        raise BadCompression(f"an lz4 frame of flags {flags:08b}")
    position = len(LZ4_HEADER) + (8 if flags & LZ4_CONTENT_SIZE else 0)
    while size := int.from_bytes(view[position : position + 4], "little") & ~LZ4_STORED:
        position += 4 + size + (4 if flags & LZ4_BLOCK_CHECKSUM else 0)
    position += 4 + (4 if flags & LZ4_CONTENT_CHECKSUM else 0)
    if position != len(view):
        raise BadCompression(f"{len(view) - position} bytes behind the lz4 frame")


def _as_it_is(content: Buffer) -> bytes:
    return bytes(content)


def _plain(content: Buffer, _: int) -> bytes:
    return bytes(content)


def _gzip(content: Buffer) -> bytes:
    compressor = zlib.compressobj(wbits=31)
    return compressor.compress(content) + compressor.flush()


def _gunzip(content: Buffer, size_max: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while len(content):  # members may follow each other
        decompressor = zlib.decompressobj(wbits=31)
        parts.append(decompressor.decompress(content, size_max - size + 1))
        size += len(parts[-1])
        if size > size_max:
            raise TooLarge(f"more than {size_max} bytes")
        if not decompressor.eof:
            raise BadCompression("torn gzip stream")
        content = decompressor.unused_data
    return b"".join(parts)


def _snappy(content: Buffer) -> bytes:
    view = memoryview(content)
    parts: list[Buffer] = [SNAPPY_HEADER]
    for start in range(0, len(view) or 1, SNAPPY_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + SNAPPY_BLOCK_BYTES]))
        parts += [len(block).to_bytes(4, "big"), block]
    return b"".join(parts)


def _unsnappy(content: Buffer, size_max: int) -> bytes:
    view = memoryview(content)
    if bytes(view[: len(SNAPPY_MAGIC)]) != SNAPPY_MAGIC:
        return _unsnappy_block(view, size_max)
    parts: list[bytes] = []
    position, left = len(SNAPPY_HEADER), size_max
    while position < len(view):
        end = position + 4 + int.from_bytes(view[position : position + 4], "big")
        if end > len(view):
            raise BadCompression("torn snappy block")
        parts.append(_unsnappy_block(view[position + 4 : end], left))
        left -= len(parts[-1])
        position = end
    return b"".join(parts)


def _unsnappy_block(view: memoryview, size_max: int) -> bytes:
    size = cramjam.snappy.decompress_raw_len(view)
    if size > size_max:
        raise TooLarge(f"{size} bytes are more than {size_max}")
    return bytes(cramjam.snappy.decompress_raw(view))


def _lz4(content: Buffer) -> bytes:
    view = memoryview(content)
    parts: list[Buffer] = [LZ4_HEADER]
    for start in range(0, len(view), BLOCK_BYTES):
        plain = view[start : start + BLOCK_BYTES]
        block: Buffer = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        size = len(block)
        if size >= len(plain):
            block, size = plain, len(plain) | LZ4_STORED
        parts += [size.to_bytes(4, "little"), block]
    parts.append(bytes(4))
    return b"".join(parts)


def _unlz4(content: Buffer, size_max: int) -> bytes:
    return _into_room(cramjam.lz4.decompress_into, content, size_max)


def _zstd(content: Buffer) -> bytes:
    return bytes(cramjam.zstd.compress(content))


def _unzstd(content: Buffer, size_max: int) -> bytes:
    return _into_room(cramjam.zstd.decompress_into, content, size_max)


def _into_room(decompress_into: Callable[[Buffer, bytearray], int], content: Buffer, size_max: int) -> bytes:
    """Unpack what does not say reliably how large it is: into more and more room, up to the bound."""
    room = min(max(len(content) * FIRST_GUESS, BLOCK_BYTES), size_max)
    while True:
        output = bytearray(room)
        try:
            size = decompress_into(content, output)
        except cramjam.DecompressionError as problem:
            if str(problem) != TOO_SMALL:
                raise
            if room >= size_max:
                raise TooLarge(f"more than {size_max} bytes") from None
            room = min(room * FIRST_GUESS, size_max)
        else:
            return bytes(memoryview(output)[:size])


PACK: Final[dict[Codec, Callable[[Buffer], Buffer]]] = {
    Codec.NONE: _as_it_is,
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
UNPACK: Final[dict[int, Callable[[Buffer, int], bytes]]] = {
    Codec.NONE: _plain,
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnappy,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}
