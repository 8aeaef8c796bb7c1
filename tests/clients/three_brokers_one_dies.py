"""Three of our brokers, one of which dies by kill -9 while clients are at work, and what is on their logs in the end."""

import time
from threading import Timer
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tribunal.clusters.kafka.side_by_side import SideBySide

PARTITIONS = 3
READ_S = 120
SETTINGS: dict[str, Any] = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 400,
    "replica.fetch.wait.max.ms": 100,
    "replica.lag.time.max.ms": 4000,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
}


def create(cluster: SideBySide, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.create_topics([NewTopic(topic, 3, 3)]).values():
        future.result(30)


def on_the_log(cluster: SideBySide, topic: str) -> dict[tuple[int, int], str]:
    """Return what librdkafka reads, committed only."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "nobody",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(3)])
    found: dict[tuple[int, int], str] = {}
    ended: set[int] = set()
    deadline = time.monotonic() + READ_S
    while len(ended) < 3:
        assert time.monotonic() < deadline, f"{topic}: the last stable offset does not reach the end"
        for message in consumer.consume(100, 1.0):
            if message.error() is None:
                found[message.partition(), message.offset()] = message.value().decode()
            else:
                ended.add(message.partition())
    consumer.close()
    return found


def dying(cluster: SideBySide, node: int, after_s: float) -> Timer:
    """Kill a broker a little later."""
    timer = Timer(after_s, cluster.kill, [node])
    timer.start()
    return timer


def revive(cluster: SideBySide, node: int, timer: Timer) -> None:
    timer.join()
    cluster.start(node)
    cluster.wait_serving(range(1, 4))


def committed(cluster: SideBySide, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    found = consumer.committed([TopicPartition(topic, index) for index in range(3)], 20)
    consumer.close()
    return sum(max(0, one.offset) for one in found)
