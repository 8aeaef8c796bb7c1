"""What somebody says at a listener with TLS who does not keep to TLS: other bytes, a handshake or records that are damaged, cut or said twice.

Not a test module.
"""

import asyncio
import ssl
from collections.abc import Iterator
from random import Random
from typing import Final

from replog.wire.apis import Api
from replog.wire.codec import encode_request
from replog.wire.messages.api_versions import ApiVersionsRequest

ANSWER_S: Final = 0.03  # afterwards the connection is left
FLIGHTS: Final = 4  # what a client says in a row: its hello, its end of the handshake, a request, another one
READ_BYTES: Final = 1 << 16
HEADER_BYTES: Final = 5  # of a record
OTHER_BYTES: Final = (
    b"GET / HTTP/1.0\r\n\r\n",
    b"\x80\x2e\x01\x03\x01",
    b"\x15\x03\x03\x00\x02\x02\x28",
    b"\x16\x03\x01\xff\xff",
    b"",
)


async def misspeak(random: Random, port: int, context: ssl.SSLContext) -> None:
    """Connect, keep to TLS for as long as the seed says, and then no more."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return
    try:
        await _misspeak(random, reader, writer, context)
    except OSError:
        pass  # closed, or refused by an alert: that is an answer, too
    finally:
        writer.transport.abort()


async def _misspeak(
    random: Random, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext
) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    damaged = random.randrange(FLIGHTS)
    for flight in range(FLIGHTS):
        try:
            if flight < FLIGHTS // 2:
                tls.do_handshake()
            else:
                tls.write(_request())
        except ssl.SSLWantReadError:
            pass
        said = outgoing.read()
        if flight == damaged:
            for piece in spoilt(random, said):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
        else:
            writer.write(said)
        answer = await _answer(reader)
        if not answer:
            return
        incoming.write(answer)


async def _answer(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(ANSWER_S):
            return await reader.read(READ_BYTES)
    except TimeoutError:
        return b""


def _request() -> bytes:
    body = ApiVersionsRequest(client_software_name="c", client_software_version="1")
    return encode_request(Api.API_VERSIONS, 3, 1, "c", body)


def spoilt(random: Random, said: bytes) -> Iterator[bytes]:
    """Yield what is sent in its place, piece by piece."""
    match random.randrange(7):
        case 0:  # not encrypted at all
            yield _request()
        case 1:
            yield random.choice(OTHER_BYTES)
        case 2:
            yield random.randbytes(random.choice((1, HEADER_BYTES, 1000, READ_BYTES)))
        case 3:  # some bytes are others
            own = bytearray(said)
            for _ in range(random.randint(1, 4) if own else 0):
                own[random.randrange(len(own))] ^= random.randint(1, 255)
            yield bytes(own)
        case 4:  # the rest never comes
            yield said[: random.randrange(len(said) + 1)]
        case 5:
            yield said
            yield said
        case _:  # a byte at a time, and one too many
            for byte in said[:300]:
                yield bytes((byte,))
            yield said[300:] + b"\0"
