"""Coordinators that die by kill -9: offsets stay, groups go on, transactions end as they were decided (SPEC 4.2.11)."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from replog.coordinators.placement import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, partition_for
from tribunal.clusters.kafka.side_by_side import Ours, SideBySide

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]
SETTINGS: dict[str, Any] = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "broker.session.timeout.ms": 2000,
    "broker.heartbeat.interval.ms": 400,
    "replica.fetch.wait.max.ms": 100,
    "replica.lag.time.max.ms": 3000,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SideBySide]:
    folder = tmp_path_factory.mktemp("coordinators")
    with SideBySide(Ours(), folder, brokers=3, controllers=1, settings=SETTINGS) as cluster:
        yield cluster.up()


def create(cluster: SideBySide, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions, 3)]).values():
        future.result(20)


def leader_of(cluster: SideBySide, topic: str, partition: int) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    return int(admin.list_topics(topic, 10).topics[topic].partitions[partition].leader)


def reader(cluster: SideBySide, group: str, **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
        }
        | settings
    )


def committed(consumer: Consumer, partition: TopicPartition) -> int:
    end = time.monotonic() + 40
    while True:
        try:
            return int(consumer.committed([partition], 10)[0].offset)
        except KafkaException:  # the coordinator is being looked for
            if time.monotonic() > end:
                raise


def read_committed(cluster: SideBySide, topic: str, partitions: int) -> list[str]:
    consumer = reader(cluster, "nobody", **{"isolation.level": "read_committed", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    values: list[str] = []
    ended: set[int] = set()
    deadline = time.monotonic() + 60
    while len(ended) < partitions:
        assert time.monotonic() < deadline, "the last stable offset does not reach the end"
        for message in consumer.consume(200, 1.0):
            if message.error() is None:
                values.append(message.value().decode())
            else:
                ended.add(message.partition())
    consumer.close()
    return values


def test_offsets_and_members_survive_their_coordinators_death(cluster: SideBySide) -> None:
    create(cluster, "events", 2)
    values = [f"event-{index}" for index in range(200)]
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for index, value in enumerate(values):
        producer.produce("events", value.encode(), partition=index % 2)
    assert producer.flush(30) == 0
    consumer = reader(cluster, "workers")
    consumer.subscribe(["events"])
    read: list[str] = []
    victim = 0

    deadline = time.monotonic() + 90
    while len(read) < 400:
        assert time.monotonic() < deadline, f"{len(read)} read"
        for message in consumer.consume(10, 0.2):
            assert message.error() is None, message.error()
            read.append(message.value().decode())
        if read and len(read) <= 400:
            _commit_until_written(consumer)
        if len(read) >= 60 and not victim:
            victim = leader_of(cluster, OFFSETS_TOPIC, partition_for("workers", 3))
            cluster.kill(victim)
        if len(read) == 200:
            break
    positions = [committed(consumer, TopicPartition("events", index)) for index in range(2)]
    consumer.close()
    cluster.start(victim)
    cluster.wait_serving(range(1, 4))

    assert sorted(read) == sorted(values)  # everything once: no commit went back
    assert positions == [100, 100]


def _commit_until_written(consumer: Consumer) -> None:
    deadline = time.monotonic() + 40
    while True:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as problem:
            if problem.args[0].name() == "_NO_OFFSET":
                return
            if time.monotonic() > deadline:
                raise
        else:
            return


@pytest.mark.parametrize("victim_dies_at", [pytest.param(4, id="committing"), pytest.param(5, id="aborting")])
def test_transactions_end_as_decided_while_their_coordinator_dies(cluster: SideBySide, victim_dies_at: int) -> None:
    topic = f"ledger-{victim_dies_at}"
    create(cluster, topic, 3)
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": f"teller-{victim_dies_at}",
            "transaction.timeout.ms": 60000,
        }
    )
    producer.init_transactions(40)
    expected: list[str] = []
    victim = 0
    for number in range(12):
        values = [f"{number}-{index}" for index in range(9)]
        producer.begin_transaction()
        for index, value in enumerate(values):
            producer.produce(topic, value.encode(), partition=index % 3)
        producer.flush(40)  # the coordinator knows all partitions
        if number == victim_dies_at:
            victim = leader_of(cluster, TRANSACTIONS_TOPIC, partition_for(f"teller-{victim_dies_at}", 3))
            cluster.kill(victim)
        if number % 3 == 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
            expected += values
    cluster.start(victim)
    cluster.wait_serving(range(1, 4))

    assert sorted(read_committed(cluster, topic, 3)) == sorted(expected)
