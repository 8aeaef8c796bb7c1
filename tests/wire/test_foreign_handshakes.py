"""Three foreign clients negotiate with our server, find the leader and produce to it."""

import asyncio
from typing import Any

import pytest

from tests.wire.test_client import HOST, Cluster, on_cluster

aiokafka = pytest.importorskip("aiokafka")
kafka = pytest.importorskip("kafka")
confluent_kafka = pytest.importorskip("confluent_kafka")


def bootstrap(cluster: Cluster) -> str:
    return f"{HOST}:{cluster.ports[1]}"


def test_librdkafka():
    delivered: list[int] = []

    def note_outcome(error: Any, message: Any) -> None:
        assert error is None
        delivered.append(message.offset())

    def produce(servers: str) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": servers, "compression.type": "zstd"})
        producer.list_topics(timeout=5)
        producer.produce("t", b"x" * 100, partition=0, on_delivery=note_outcome)
        assert producer.flush(5) == 0

    async def scenario(cluster: Cluster, _: Any) -> None:
        await asyncio.to_thread(produce, bootstrap(cluster))

    on_cluster(scenario)
    assert delivered == [40]


def test_kafka_python():
    offsets: list[int] = []

    def produce(servers: str) -> None:
        producer = kafka.KafkaProducer(bootstrap_servers=servers, enable_idempotence=False)
        offsets.append(producer.send("t", b"x", partition=0).get(5).offset)
        producer.close()

    async def scenario(cluster: Cluster, _: Any) -> None:
        await asyncio.to_thread(produce, bootstrap(cluster))

    on_cluster(scenario)
    assert offsets == [40]


def test_aiokafka():
    offsets: list[int] = []

    async def scenario(cluster: Cluster, _: Any) -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap(cluster))
        await producer.start()
        offsets.append((await producer.send_and_wait("t", b"x", partition=0)).offset)
        await producer.stop()

    on_cluster(scenario)
    assert offsets == [40]
