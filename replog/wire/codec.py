"""Frames: length, header and body of requests and responses, and bare structs.

A frame is a 4-byte length and that many bytes. Request header v1 is key, version, correlation id and client id; v2 adds
tagged fields, for flexible versions. The client id is never compact. Response header v0 is the correlation id, v1
adds tagged fields; ApiVersions' response is always under v0, because the client does not know the version
yet (KIP-511), and ControlledShutdown v0 has no client id. Times are milliseconds, absent ids zero UUIDs or -1.
"""

from functools import cache, lru_cache
from struct import Struct
from typing import Final, TypeVar

import msgspec

from replog.ports import Buffer
from replog.wire.apis import KNOWN_APIS, Api, is_flexible, request_type
from replog.wire.decoder import MalformedMessage, decode, skip_tagged_fields
from replog.wire.encoder import encoder_for
from replog.wire.exchange import Exchange, Q, R

__all__ = [
    "APIS",
    "MalformedMessage",
    "Request",
    "RequestStart",
    "decode_answer",
    "decode_request",
    "decode_response",
    "decode_rest",
    "decode_struct",
    "encode_request",
    "encode_response",
    "encode_struct",
    "request_start",
]

LENGTH: Final = Struct(">i")
REQUEST_START: Final = Struct(">hhi")
REQUEST_FRAME_START: Final = Struct(">ihhi")  # with the length in front
RESPONSE_FRAME_START: Final = Struct(">ii")
STRING_LENGTH: Final = Struct(">h")
NO_TAGS: Final = b"\x00"
APIS: Final = {int(api): api for api in Api}

T = TypeVar("T", bound=msgspec.Struct)


class RequestStart(msgspec.Struct, frozen=True, gc=False):
    """The part of a request's header that every version of every API has."""

    api_key: int
    version: int
    correlation_id: int


class Request(msgspec.Struct, frozen=True, gc=False):
    """A request as it came."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    body: msgspec.Struct


def encode_request(api: Api, version: int, correlation_id: int, client_id: str | None, body: msgspec.Struct) -> bytes:
    """Return a whole frame, length included."""
    parts: list[Buffer] = [b"", _header_end(api, version, client_id)]
    encoder_for(type(body), version)(body, parts.append)
    length = REQUEST_START.size + sum(map(len, parts))
    parts[0] = REQUEST_FRAME_START.pack(length, api, version, correlation_id)
    return b"".join(parts)


def encode_response(api: Api, version: int, correlation_id: int, body: msgspec.Struct) -> bytes:
    """Return a whole frame, length included."""
    parts: list[Buffer] = [b"", NO_TAGS if _response_has_tags(api, version) else b""]
    encoder_for(type(body), version)(body, parts.append)
    parts[0] = RESPONSE_FRAME_START.pack(LENGTH.size + sum(map(len, parts)), correlation_id)
    return b"".join(parts)


def request_start(frame: Buffer) -> RequestStart:
    """Read what can be read of a request whose version may be unknown."""
    if len(frame) < REQUEST_START.size:
        raise MalformedMessage(f"a request of {len(frame)} bytes")
    return RequestStart(*REQUEST_START.unpack_from(frame))


def decode_request(frame: Buffer) -> Request:
    """Read a request without its 4-byte length; records in it are views into the frame."""
    start = request_start(frame)
    api = APIS.get(start.api_key)
    if api not in KNOWN_APIS:
        raise MalformedMessage(f"unknown api key {start.api_key}")
    client_id, body = decode_rest(api, start.version, frame)
    return Request(api, start.version, start.correlation_id, client_id, body)


def decode_rest(api: Api, version: int, frame: Buffer) -> tuple[str | None, msgspec.Struct]:
    """Read what follows a request's start, which was read before: client id and body.

    Bytes behind the body are ignored, as Kafka's brokers do: librdkafka 2.16 sends three of them with Metadata v13.
    """
    position = REQUEST_START.size
    client_id = None
    has_client_id, has_tags = _request_header(api, version)
    if has_client_id:
        client_id, position = _read_client_id(frame, position)
    if has_tags:
        position = skip_tagged_fields(frame, position)
    return client_id, decode(request_type(api), version, frame, position, whole=False)


def decode_response(exchange: Exchange[Q, R], version: int, frame: Buffer) -> tuple[int, R]:
    """Read a response without its 4-byte length: correlation id and body."""
    if len(frame) < LENGTH.size:
        raise MalformedMessage(f"a response of {len(frame)} bytes")
    (correlation_id,) = LENGTH.unpack_from(frame)
    return correlation_id, decode_answer(exchange, version, frame)


def decode_answer(exchange: Exchange[Q, R], version: int, frame: Buffer) -> R:
    """Read a response's body, behind the correlation id that was read before."""
    position = LENGTH.size
    if _response_has_tags(exchange.api, version):
        position = skip_tagged_fields(frame, position)
    return decode(exchange.response, version, frame, position)


def encode_struct(body: msgspec.Struct, version: int) -> bytes:
    """Return a bare record's bytes in one of its versions."""
    parts: list[Buffer] = []
    encoder_for(type(body), version)(body, parts.append)
    return b"".join(parts)


def decode_struct(of: type[T], version: int, data: Buffer) -> T:
    """Read a bare record that fills the buffer."""
    return decode(of, version, data)


@lru_cache(maxsize=1 << 12)  # versions come from unknown clients
def _request_header(api: Api, version: int) -> tuple[bool, bool]:
    """Return whether a request's header has a client id, and tagged fields."""
    return version != 0 or api is not Api.CONTROLLED_SHUTDOWN, is_flexible(api, version)


@lru_cache(maxsize=1 << 10)
def _header_end(api: Api, version: int, client_id: str | None) -> bytes:
    """Return what a request's header has behind the correlation id."""
    has_client_id, has_tags = _request_header(api, version)
    end = b"" if not has_client_id else b"\xff\xff" if client_id is None else _string(client_id)
    return end + NO_TAGS if has_tags else end


@cache
def _response_has_tags(api: Api, version: int) -> bool:
    return api is not Api.API_VERSIONS and is_flexible(api, version)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return STRING_LENGTH.pack(len(encoded)) + encoded


def _read_client_id(frame: Buffer, position: int) -> tuple[str | None, int]:
    begin = position + STRING_LENGTH.size
    if begin > len(frame):
        raise MalformedMessage("the header ends before the client id")
    (length,) = STRING_LENGTH.unpack_from(frame, position)
    if length == -1:
        return None, begin
    if length < 0 or begin + length > len(frame):
        raise MalformedMessage(f"client id of {length} bytes")
    try:
        return str(frame[begin : begin + length], "utf-8"), begin + length
    except UnicodeDecodeError:
        raise MalformedMessage("client id is not UTF-8") from None
