"""At the usual limit of 1,024 open files a broker keeps a thousand partitions and twelve hundred idle connections, and serves on."""

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tribunal.clusters.kafka.side_by_side import Ours, SideBySide

PARTITIONS = 1000
CONNECTIONS = 1200
USUAL = 1024
NEEDED = 8192  # of the hard limit, here and in the nodes
SETTINGS = {
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "default.replication.factor": 1,
    "min.insync.replicas": 1,
}

pytestmark = pytest.mark.e2e


@contextmanager
def soft_limit(limit: int) -> Iterator[None]:
    """Have this limit meanwhile; processes that are started begin with it."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def soft_limit_of(process: int) -> str:
    lines = Path(f"/proc/{process}/limits").read_text().splitlines()
    return next(line for line in lines if line.startswith("Max open files")).split()[3]


def unacknowledged(bootstrap: str, partitions: range) -> int:
    """Send a record to each partition; return how many were not acknowledged."""
    patient = {"message.timeout.ms": 60_000, "log_level": 0}
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"} | patient)
    errors: list[KafkaError | None] = []
    for partition in partitions:
        producer.produce("many", b"x", partition=partition, on_delivery=lambda error, _: errors.append(error))
    left: int = producer.flush(60)
    return left + sum(error is not None for error in errors)


@pytest.mark.timeout(120)
def test_a_thousand_partitions_and_more_idle_connections_than_the_usual_limit_end_no_broker(tmp_path: Path) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < NEEDED:
        pytest.skip(f"the hard limit of open files is {hard}")
    with SideBySide(Ours(), tmp_path, brokers=1, controllers=1, settings=SETTINGS) as cluster, ExitStack() as idle:
        with soft_limit(USUAL):
            cluster.up()
        process = cluster.processes[1]
        assert soft_limit_of(process.pid) != str(USUAL)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("many", PARTITIONS, 1)], request_timeout=60)["many"].result(60)
        host, _, port = cluster.bootstrap.rpartition(":")
        with soft_limit(NEEDED):
            for _ in range(CONNECTIONS):
                idle.enter_context(socket.create_connection((host, int(port)), timeout=10))

            assert unacknowledged(cluster.bootstrap, range(0, PARTITIONS, 25)) == 0
            assert len(list(Path(f"/proc/{process.pid}/fd").iterdir())) > USUAL
            assert process.poll() is None
