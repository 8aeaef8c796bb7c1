"""Requests of clients that a broker of Apache Kafka passes on in envelopes (KIP-590), at a real controller's listener."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from replog.client.connection import Connection
from replog.controller.authorization import CLUSTER, Operation, Peer, Resource, allow_all
from replog.errors import Error
from replog.wire.apis import CONTROLLER_APIS, FORWARDABLE, SECURITY_APIS, Api
from replog.wire.codec import decode_response, encode_request
from replog.wire.exchange import exchange_of
from replog.wire.messages import create_topics as ct
from replog.wire.messages import envelope
from replog.wire.messages import update_features as uf
from replog.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from tests.controller.test_authorization import on_a_controller

# As a broker of Apache Kafka 4.3.1 wrote them: of its log.
ANONYMOUS = bytes([0, 0, 5, 85, 115, 101, 114, 10, 65, 78, 79, 78, 89, 77, 79, 85, 83, 0, 0])
ADDRESS = bytes([10, 213, 0, 254])
ALICE = b"\0\0" + b"\5User" + b"\6alice" + b"\0\0"
BROKER = "User:ANONYMOUS"
CREATE = ct.CreateTopicsRequest(
    topics=[ct.CreatableTopic(name="t", num_partitions=1, replication_factor=1)], timeout_ms=5000
)


def request_data(api: Api, version: int, body: msgspec.Struct) -> bytes:
    return encode_request(api, version, 77, "a client", body)[4:]


def enveloped(
    data: bytes, principal: bytes | None = ANONYMOUS, address: bytes = ADDRESS, *, may: Any = allow_all, folder: Path
) -> EnvelopeResponse:
    found: list[EnvelopeResponse] = []

    async def talk(connection: Connection) -> None:
        body = EnvelopeRequest(request_data=data, request_principal=principal, client_host_address=address)
        found.append(await connection.send(envelope.EXCHANGE, body, timeout_ms=5000))

    on_a_controller(folder, may, talk)
    return found[0]


def inner(answer: EnvelopeResponse, api: Api, version: int) -> Any:
    assert answer.response_data is not None
    correlation_id, body = decode_response(exchange_of(api), version, answer.response_data)
    assert correlation_id == 77
    return body


@pytest.mark.parametrize("version", [2, 7], ids=["plain header", "header with tagged fields"])
def test_what_is_in_an_envelope_is_answered_in_the_version_of_the_client(tmp_path: Path, version: int) -> None:
    answer = enveloped(request_data(Api.CREATE_TOPICS, version, CREATE), folder=tmp_path)

    assert answer.error_code is Error.NONE
    (topic,) = inner(answer, Api.CREATE_TOPICS, version).topics
    assert (topic.name, topic.error_code) == ("t", Error.INVALID_REPLICATION_FACTOR), "no broker is registered here"


def test_the_client_is_asked_about_and_not_the_broker_alone(tmp_path: Path) -> None:
    asked: list[tuple[Peer, Operation, Resource]] = []

    def nodes_alone(peer: Peer, operation: Operation, resource: Resource) -> bool:
        asked.append((peer, operation, resource))
        return peer.principal == BROKER

    body = uf.UpdateFeaturesRequest(validate_only=True)
    answer = enveloped(request_data(Api.UPDATE_FEATURES, 1, body), ALICE, may=nodes_alone, folder=tmp_path)

    assert asked == [
        (Peer(BROKER, "127.0.0.1"), Operation.CLUSTER_ACTION, CLUSTER),
        (Peer("User:alice", "10.213.0.254"), Operation.ALTER, CLUSTER),
    ]
    assert answer.error_code is Error.NONE
    assert inner(answer, Api.UPDATE_FEATURES, 1).error_code is Error.CLUSTER_AUTHORIZATION_FAILED


def test_who_is_no_node_cannot_speak_for_others(tmp_path: Path) -> None:
    def alice_alone(peer: Peer, operation: Operation, resource: Resource) -> bool:
        return peer.principal == "User:alice"

    answer = enveloped(request_data(Api.CREATE_TOPICS, 7, CREATE), ALICE, may=alice_alone, folder=tmp_path)

    assert (answer.error_code, answer.response_data) == (Error.CLUSTER_AUTHORIZATION_FAILED, None)


IN_ITSELF = request_data(
    Api.ENVELOPE, 0, EnvelopeRequest(request_data=b"", request_principal=ANONYMOUS, client_host_address=ADDRESS)
)
FINE = request_data(Api.CREATE_TOPICS, 7, CREATE)


@pytest.mark.parametrize(
    ("data", "principal", "address", "error"),
    [
        pytest.param(b"", ANONYMOUS, ADDRESS, Error.UNSUPPORTED_VERSION, id="nothing"),
        pytest.param(FINE[:12], ANONYMOUS, ADDRESS, Error.UNSUPPORTED_VERSION, id="torn header"),
        pytest.param(FINE[:-9], ANONYMOUS, ADDRESS, Error.UNSUPPORTED_VERSION, id="torn body"),
        pytest.param(b"\x7f\xff" + FINE[2:], ANONYMOUS, ADDRESS, Error.UNSUPPORTED_VERSION, id="unknown API"),
        pytest.param(b"\x00\x13\x00\x63" + FINE[4:], ANONYMOUS, ADDRESS, Error.UNSUPPORTED_VERSION, id="version 99"),
        pytest.param(IN_ITSELF, ANONYMOUS, ADDRESS, Error.INVALID_REQUEST, id="an envelope in an envelope"),
        pytest.param(b"\x00\x34" + FINE[2:], ANONYMOUS, ADDRESS, Error.INVALID_REQUEST, id="a vote"),
        pytest.param(b"\x00\x26" + FINE[2:], ANONYMOUS, ADDRESS, Error.INVALID_REQUEST, id="not offered here"),
        pytest.param(FINE, ANONYMOUS, b"\x7f", Error.INVALID_REQUEST, id="no address"),
        pytest.param(FINE, None, ADDRESS, Error.PRINCIPAL_DESERIALIZATION_FAILURE, id="no principal"),
        pytest.param(FINE, b"\0", ADDRESS, Error.PRINCIPAL_DESERIALIZATION_FAILURE, id="torn version"),
        pytest.param(FINE, ANONYMOUS[:-4], ADDRESS, Error.PRINCIPAL_DESERIALIZATION_FAILURE, id="torn principal"),
        pytest.param(
            FINE, b"\0\1" + ANONYMOUS[2:], ADDRESS, Error.PRINCIPAL_DESERIALIZATION_FAILURE, id="another version"
        ),
    ],
)
def test_a_bad_envelope_is_answered_and_the_connection_stays(
    tmp_path: Path, data: bytes, principal: bytes | None, address: bytes, error: Error
) -> None:
    found = []

    async def talk(connection: Connection) -> None:
        bad = EnvelopeRequest(request_data=data, request_principal=principal, client_host_address=address)
        found.append(await connection.send(envelope.EXCHANGE, bad, timeout_ms=5000))
        good = EnvelopeRequest(request_data=FINE, request_principal=ANONYMOUS, client_host_address=bytes(16))
        found.append(await connection.send(envelope.EXCHANGE, good, timeout_ms=5000))

    on_a_controller(tmp_path, allow_all, talk)

    assert (found[0].error_code, found[0].response_data) == (error, None)
    assert found[1].error_code is Error.NONE


def test_whoever_is_not_active_says_so_outside(tmp_path: Path) -> None:
    """A broker looks for the active controller when the envelope says it; what is inside it hands to the client."""
    found = []

    async def talk(connection: Connection) -> None:
        body = EnvelopeRequest(request_data=FINE, request_principal=ANONYMOUS, client_host_address=ADDRESS)
        found.append(await connection.send(envelope.EXCHANGE, body, timeout_ms=5000))

    on_a_controller(tmp_path, allow_all, talk, is_active=False)

    assert (found[0].error_code, found[0].response_data) == (Error.NOT_CONTROLLER, None)


def test_what_may_be_forwarded_is_served_by_controllers() -> None:
    assert CONTROLLER_APIS.keys() | SECURITY_APIS.keys() >= FORWARDABLE
