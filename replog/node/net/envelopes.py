"""Requests in envelopes: what a client asked a broker of Apache Kafka, as that passes it on to the active controller (KIP-590).

The envelope's sender has to be a node of the cluster; what it holds is then decided as if the client itself had asked: by its
principal, from its address. Our own brokers pass requests on as they are (`replog/node/api/forwarding.py`), unless a quota of the
controller's holds for the client: who that is an envelope alone says.

Errors in the words of Apache Kafka: UNSUPPORTED_VERSION where the client's request cannot be read, INVALID_REQUEST where the
envelope is wrong itself, and NOT_CONTROLLER outside, so that the broker looks for the active controller.
"""

import socket
from struct import Struct
from typing import Final

import msgspec

from replog.controller.authorization import BY_NODES, Peer
from replog.controller.events import Client
from replog.controller.served_api import ServedApi
from replog.errors import Error
from replog.node.net.server import AnyRequest, ServerRequest
from replog.wire.apis import FORWARDABLE, Api
from replog.wire.codec import (
    APIS,
    LENGTH,
    MalformedMessage,
    decode_rest,
    decode_struct,
    encode_request,
    encode_response,
    encode_struct,
    request_start,
)
from replog.wire.error_codes import errors_in
from replog.wire.exchange import Exchange, Q, R
from replog.wire.layout import VersionRange
from replog.wire.messages import envelope
from replog.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from replog.wire.records.principal import DefaultPrincipalData

USER_PREFIX: Final = "User:"
SERVED: Final = ServedApi(envelope.EXCHANGE, questions=BY_NODES)
DATA_VERSION: Final = Struct(">h")
FAMILIES: Final = {4: socket.AF_INET, 16: socket.AF_INET6}  # by the bytes of an address

Envelope = ServerRequest[EnvelopeRequest, EnvelopeResponse]


class RefusedEnvelope(Exception):
    """An envelope whose content cannot be handed on; `error` is what its sender is answered."""

    def __init__(self, error: Error) -> None:
        super().__init__(error.name)
        self.error = error


class EnclosedRequest(ServerRequest[msgspec.Struct, msgspec.Struct]):
    """A client's request that came in an envelope: its answer leaves in the envelope's answer."""

    __slots__ = ("_client", "_envelope")

    def __init__(self, outer: Envelope, offered: dict[Api, VersionRange]) -> None:
        """Read the content of an envelope; `RefusedEnvelope` when it cannot be handed on."""
        frame = memoryview(outer.body.request_data)
        try:
            start = request_start(frame)
            api = APIS.get(start.api_key)
            if api is not None and (api not in FORWARDABLE or api not in offered):
                raise RefusedEnvelope(Error.INVALID_REQUEST)
            if api is None or start.version not in offered[api]:
                raise RefusedEnvelope(Error.UNSUPPORTED_VERSION)
            self.client_id, self.body = decode_rest(api, start.version, frame)
        except MalformedMessage:
            raise RefusedEnvelope(Error.UNSUPPORTED_VERSION) from None
        self._client = _client(outer.body)
        self._envelope = outer
        self.api = api
        self.version = start.version
        self.correlation_id = start.correlation_id
        self.size_bytes = len(frame)
        self.peer_host = self._client.host
        self.connection_id = outer.connection_id
        self.amend = None

    @property
    def listener(self) -> str:
        """The name of the listener that the envelope came to."""
        return self._envelope.listener

    @property
    def peer(self) -> Peer:
        """The client."""
        return self._client

    @property
    def is_answered(self) -> bool:
        """Return whether nothing is owed any more."""
        return self._envelope.is_answered

    def reply(self, body: msgspec.Struct) -> None:
        """Answer in the envelope; that this is not the active controller concerns the broker alone."""
        if self.amend is not None:
            body = self.amend(body)
        if Error.NOT_CONTROLLER in errors_in(body):
            self._envelope.reply(EnvelopeResponse(error_code=Error.NOT_CONTROLLER))
            return
        frame = encode_response(self.api, self.version, self.correlation_id, body)
        self._envelope.reply(EnvelopeResponse(response_data=frame[LENGTH.size :]))

    def reply_nothing(self) -> None:
        """Refuse: no request that is passed on is left without an answer."""
        raise AssertionError(f"{self.api.name} has an answer")

    def close(self, reason: str) -> None:
        """Close the broker's connection instead of answering."""
        self._envelope.close(reason)


def client_of(request: object) -> Client | None:
    """Return whose request it is, where it came in an envelope: whoever sends one as it is says nothing of that."""
    if not isinstance(request, EnclosedRequest):
        return None
    return Client(request.peer.principal.removeprefix(USER_PREFIX), request.client_id or "", request.version)


def enclosed(exchange: Exchange[Q, R], version: int, client_id: str | None, peer: Peer, body: Q) -> EnvelopeRequest:
    """Return a client's request in an envelope."""
    kind, _, name = peer.principal.partition(":")
    principal = DATA_VERSION.pack(0) + encode_struct(DefaultPrincipalData(type=kind, name=name), 0)
    return EnvelopeRequest(
        request_data=encode_request(exchange.api, version, 0, client_id, body)[LENGTH.size :],
        request_principal=principal,
        client_host_address=_packed(peer.host),
    )


def _packed(host: str) -> bytes:
    """Return an address as envelopes have it; of a host whose address is none the one that says nothing."""
    for size, family in FAMILIES.items():
        try:
            packed = socket.inet_pton(family, host)
        except OSError:
            continue
        assert len(packed) == size
        return packed
    return bytes(4)


def opened(outer: Envelope, offered: dict[Api, VersionRange]) -> AnyRequest | None:
    """Return the request in an envelope; None when it cannot be handed on, and its sender was answered why."""
    try:
        return EnclosedRequest(outer, offered)
    except RefusedEnvelope as problem:
        outer.reply(SERVED.refused(outer.body, problem.error))
        return None


def _client(body: EnvelopeRequest) -> Peer:
    """Return who asked the broker, and from where."""
    principal, address = body.request_principal, body.client_host_address
    if len(address) not in FAMILIES:
        raise RefusedEnvelope(Error.INVALID_REQUEST)
    if principal is None or len(principal) < DATA_VERSION.size:
        raise RefusedEnvelope(Error.PRINCIPAL_DESERIALIZATION_FAILURE)
    (version,) = DATA_VERSION.unpack_from(principal)
    try:
        if version != 0:
            raise RefusedEnvelope(Error.PRINCIPAL_DESERIALIZATION_FAILURE)
        named = decode_struct(DefaultPrincipalData, version, principal[DATA_VERSION.size :])
    except MalformedMessage:
        raise RefusedEnvelope(Error.PRINCIPAL_DESERIALIZATION_FAILURE) from None
    return Peer(f"{named.type}:{named.name}", socket.inet_ntop(FAMILIES[len(address)], address))
