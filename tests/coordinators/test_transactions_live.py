"""Transactions of an unmodified client (librdkafka) on real brokers: all or nothing, fencing, offsets within."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.loopback import in_thread, running

SETTINGS: dict[str, Any] = {
    "offsets__topic__num__partitions": 3,
    "offsets__topic__replication__factor": 1,
    "transaction__state__log__num__partitions": 3,
    "transaction__state__log__replication__factor": 1,
    "group__initial__rebalance__delay__ms": 0,
}


def create(bootstrap: str, topic: str, partitions: int, factor: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions, factor)]).values():
        future.result(20)


def transactional(bootstrap: str, transactional_id: str = "tx") -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0})
    producer.init_transactions(30)
    return producer


def write(producer: Producer, topic: str, values: list[str], partitions: int = 2) -> None:
    for index, value in enumerate(values):
        producer.produce(topic, value.encode(), partition=index % partitions)
    producer.flush(20)


def read(bootstrap: str, topic: str, isolation: str, partitions: int = 2) -> list[str]:
    """Return all that can be read up to the end that this isolation shows."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    values: list[str] = []
    ends = 0
    while ends < partitions:
        for message in consumer.consume(100, 1.0):
            if message.error() is None:
                values.append(message.value().decode())
            else:
                ends += 1
    consumer.close()
    return values


def on_one_broker(folder: Path, scenario: Any) -> None:
    async def main() -> None:
        async with running(folder, controllers=1, brokers=1, **SETTINGS) as cluster:
            await in_thread(scenario, cluster.bootstrap)

    asyncio.run(main())


def test_committed_records_are_read_and_aborted_ones_are_not(tmp_path: Path) -> None:
    def scenario(bootstrap: str) -> None:
        create(bootstrap, "t", 2)
        producer = transactional(bootstrap)
        for number, ends_well in enumerate([True, False, True, False]):
            producer.begin_transaction()
            write(producer, "t", [f"{number}-{index}" for index in range(6)])
            if ends_well:
                producer.commit_transaction(20)
            else:
                producer.abort_transaction(20)
        producer.begin_transaction()
        write(producer, "t", ["open-0", "open-1"])

        committed = [f"{number}-{index}" for number in (0, 2) for index in range(6)]
        assert sorted(read(bootstrap, "t", "read_committed")) == sorted(committed)
        assert len(read(bootstrap, "t", "read_uncommitted")) == 26

        producer.commit_transaction(20)
        assert sorted(read(bootstrap, "t", "read_committed")) == sorted([*committed, "open-0", "open-1"])

    on_one_broker(tmp_path, scenario)


def test_a_second_producer_of_an_id_fences_the_first(tmp_path: Path) -> None:
    def scenario(bootstrap: str) -> None:
        create(bootstrap, "t", 2)
        first = transactional(bootstrap)
        first.begin_transaction()
        write(first, "t", ["lost-0", "lost-1"])

        second = transactional(bootstrap)
        second.begin_transaction()
        write(second, "t", ["kept-0", "kept-1"])
        second.commit_transaction(20)

        with pytest.raises(KafkaException) as refused:
            first.commit_transaction(20)
        assert refused.value.args[0].fatal()
        assert sorted(read(bootstrap, "t", "read_committed")) == ["kept-0", "kept-1"]

    on_one_broker(tmp_path, scenario)


def test_offsets_are_part_of_the_transaction(tmp_path: Path) -> None:
    def scenario(bootstrap: str) -> None:
        create(bootstrap, "in", 1)
        create(bootstrap, "out", 2)
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
        producer = transactional(bootstrap)
        group = consumer.consumer_group_metadata()
        position = TopicPartition("in", 0)
        for offset, ends_well in ((3, True), (9, False)):
            producer.begin_transaction()
            write(producer, "out", [f"for-{offset}"])
            producer.send_offsets_to_transaction([TopicPartition("in", 0, offset)], group, 20)
            if ends_well:
                producer.commit_transaction(20)
            else:
                producer.abort_transaction(20)

        assert consumer.committed([position], 10)[0].offset == 3
        assert read(bootstrap, "out", "read_committed") == ["for-3"]
        consumer.close()

    on_one_broker(tmp_path, scenario)
