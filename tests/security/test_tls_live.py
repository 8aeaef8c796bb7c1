"""TLS between everybody: controllers, brokers and unmodified clients, with certificates that are made here."""

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import aiokafka
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from replog.client.connection import Connection
from replog.config import Endpoint
from replog.node.broker import Broker
from replog.node.net.server import AnyRequest
from replog.wire.messages import metadata as md
from tests.broker.loopback import Loopback, in_thread, running
from tests.security.certificates import Authority

TOPIC = "t"


def secured(authority: Authority, **settings: Any) -> dict[str, Any]:
    return {
        "protocol": "SSL",
        "ssl__keystore__location": str(authority.issue("node")),
        "ssl__truststore__location": str(authority.trust),
        "ssl__client__auth": "required",
        "offsets__topic__replication__factor": 1,
        "offsets__topic__num__partitions": 1,
    } | settings


def librdkafka(authority: Authority, bootstrap: str, client: Path | None) -> dict[str, Any]:
    own = {"ssl.key.location": str(client), "ssl.certificate.location": str(client)} if client else {}
    common = {"bootstrap.servers": bootstrap, "security.protocol": "ssl", "ssl.ca.location": str(authority.trust)}
    return common | own | {"log_level": 0}


def write_and_read(settings: dict[str, Any], value: bytes, factor: int) -> list[bytes]:
    admin = AdminClient(settings)
    for future in admin.create_topics([NewTopic(TOPIC, 1, factor)]).values():
        future.result(20)
    producer = Producer(settings | {"acks": "all"})
    producer.produce(TOPIC, value)
    assert producer.flush(20) == 0
    return read(settings, 1)


def read(settings: dict[str, Any], count: int) -> list[bytes]:
    consumer = Consumer(settings | {"group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    values: list[bytes] = []
    for _ in range(100):
        values += [message.value() for message in consumer.consume(count, 0.2) if message.error() is None]
        if len(values) >= count:
            break
    consumer.close()
    return values


async def read_by_aiokafka(authority: Authority, bootstrap: str, client: Path) -> bytes:
    context = ssl.create_default_context(cafile=str(authority.trust))
    context.load_cert_chain(client)
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap, security_protocol="SSL", ssl_context=context, auto_offset_reset="earliest"
    )
    consumer.assign([aiokafka.TopicPartition(TOPIC, 0)])
    await consumer.start()
    try:
        found = await asyncio.wait_for(consumer.getone(), 20)
    finally:
        await consumer.stop()
    return bytes(found.value)


def principals(cluster: Loopback) -> list[str]:
    """Note who asks any broker for metadata from now on; which broker a client asks is its own choice."""
    seen: list[str] = []
    for node in cluster.nodes.values():
        if isinstance(node, Broker):
            note_principals(node, seen)
    return seen


def note_principals(broker: Broker, seen: list[str]) -> None:
    server = broker.plane.server
    handler = server.handler

    def noting(request: AnyRequest) -> None:
        if isinstance(request.body, md.MetadataRequest):
            seen.append(request.peer.principal)
        handler(request)

    server.handler = noting


def test_everybody_talks_by_tls_and_who_shows_no_certificate_gets_nothing(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")
    client = authority.issue("alice", unit="clients")

    async def main() -> None:
        rules = r"RULE:^CN=(.*?),OU=clients,.*$/$1/U,DEFAULT"
        settings = secured(authority, ssl__principal__mapping__rules=rules)
        async with running(tmp_path, controllers=1, brokers=2, **settings) as cluster:
            seen = principals(cluster)
            known = librdkafka(authority, cluster.bootstrap, client)

            values = await in_thread(write_and_read, known, b"v", 2)
            by_aiokafka = await read_by_aiokafka(authority, cluster.bootstrap, client)
            garbled = await in_thread(garbage, cluster.ports[1])
            nothing = await in_thread(refused, authority, cluster.ports[1])
            again = await in_thread(read, known, 1)

            assert values == again == [by_aiokafka] == [b"v"]
            assert "User:ALICE" in seen
            assert garbled == b"" or garbled.startswith(b"\x15\x03")  # a TLS alert
            assert nothing

    asyncio.run(main())


def garbage(port: int) -> bytes:
    """Speak no TLS to a listener that wants it; return what it says before it closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(bytes(range(64)))
        try:
            return connection.recv(100)
        except ConnectionResetError:
            return b""


def refused(authority: Authority, port: int) -> bool:
    """Show no certificate where one is required; return whether the connection was ended."""
    context = ssl.create_default_context(cafile=str(authority.trust))
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            return connection.recv(1) == b""
    except (ssl.SSLError, ConnectionResetError):
        return True


def shown_by(authority: Authority, port: int) -> bytes:
    context = ssl.create_default_context(cafile=str(authority.trust))
    context.load_cert_chain(authority.folder / "node.pem")
    return peer_certificate(context, port)


def test_a_certificate_that_is_renewed_is_shown_to_who_comes_next_and_a_torn_one_is_not(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")

    async def main() -> None:
        async with running(tmp_path, controllers=1, brokers=1, **secured(authority)) as cluster:
            port = cluster.ports[1]
            address = Endpoint("127.0.0.1", port)
            staying = Connection(cluster.worlds[1], address, "staying", cluster.config(1).broker_access)
            await staying.open()
            first = await in_thread(shown_by, authority, port)
            authority.issue("renewed", file="node")
            second = await in_thread(shown_by, authority, port)
            whole = (authority.folder / "node.pem").read_bytes()
            (authority.folder / "node.pem").write_bytes(whole[:100])
            trusted = ssl.create_default_context(cafile=str(authority.trust))
            trusted.load_cert_chain(authority.issue("other"))
            third = await in_thread(peer_certificate, trusted, port)

            assert first != second == third
            assert staying.is_open
            staying.close()
            (authority.folder / "node.pem").write_bytes(whole)

    asyncio.run(main())


def peer_certificate(context: ssl.SSLContext, port: int) -> bytes:
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        return connection.getpeercert(binary_form=True) or b""
