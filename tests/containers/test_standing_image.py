"""The image of replog by itself: a client of any kind writes to it, and a container made anew of its volume has what was written."""

import socket
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer

from tests.containers.test_containers import no_engine
from tribunal.clusters.images.build import engine
from tribunal.clusters.images.standing import standing_image

TAG = "replog-standing-test:latest"
VOLUME = "replog-standing-test"
SERVES_WITHIN_S = 60

pytestmark = [
    pytest.mark.containers,
    pytest.mark.timeout(240),
    pytest.mark.skipif(bool(no_engine()), reason=no_engine() or "there is one"),
]


@pytest.fixture
def client(monkeypatch):
    monkeypatch.setenv("TRIBUNAL_BASE_IMAGE", "interpreter")
    with closing(engine()) as client:
        volume = client.volumes.create(VOLUME)
        try:
            yield client
        finally:
            volume.remove()
            client.images.remove(TAG)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def written(address, value):
    """Write a record; the client asks again until the node serves."""
    failed = []
    producer = Producer({"bootstrap.servers": address, "message.timeout.ms": 1000 * SERVES_WITHIN_S, "log_level": 0})
    producer.produce("t", value, on_delivery=lambda problem, _: failed.append(problem))
    assert producer.flush(SERVES_WITHIN_S) == 0
    return failed == [None]


def read(address, count):
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    with closing(consumer):
        consumer.subscribe(["t"])
        return [record.value() for record in consumer.consume(count, SERVES_WITHIN_S)]


def test_what_was_written_is_there_after_a_container_is_made_anew(client):
    said = []
    standing_image(client, TAG, said.append)
    assert any("ENTRYPOINT" in line for line in said)  # a build of minutes says how far it is
    port = free_port()
    settings = {
        "KAFKA_NODE_ID": "1", "KAFKA_PROCESS_ROLES": "broker,controller", "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://127.0.0.1:9093",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://127.0.0.1:{port}", "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@127.0.0.1:9093",
        "KAFKA_DEFAULT_REPLICATION_FACTOR": "1", "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    }  # fmt: skip
    for turn in range(2):
        container = client.containers.run(
            TAG, detach=True, environment=settings, ports={"9092/tcp": ("127.0.0.1", port)},
            volumes={VOLUME: {"bind": "/var/lib/replog", "mode": "rw"}},
        )  # fmt: skip
        try:
            assert written(f"127.0.0.1:{port}", str(turn)), container.logs().decode()
            assert read(f"127.0.0.1:{port}", turn + 1) == [b"0", b"1"][: turn + 1], container.logs().decode()
            container.stop(timeout=30)
            assert container.wait()["StatusCode"] == 0, container.logs().decode()
        finally:
            container.remove(force=True)
