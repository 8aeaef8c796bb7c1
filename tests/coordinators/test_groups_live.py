"""Consumer groups of an unmodified client (librdkafka) on real brokers: rebalances, offsets, fail-over of coordinators."""

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.loopback import in_thread, running

SETTINGS: dict[str, Any] = {
    "offsets__topic__num__partitions": 3,
    "transaction__state__log__num__partitions": 3,
    "group__initial__rebalance__delay__ms": 0,
}


def create(bootstrap: str, topic: str, partitions: int, factor: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions, factor)]).values():
        future.result(20)


def produce(bootstrap: str, topic: str, values: list[bytes], partitions: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for index, value in enumerate(values):
        producer.produce(topic, value, partition=index % partitions)
    assert producer.flush(30) == 0


class Member:
    """A consumer of a group that remembers what it was given and what it read."""

    def __init__(self, bootstrap: str, group: str, topic: str, **settings: Any) -> None:
        self.owned: set[int] = set()
        self.read: list[bytes] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 300,
            }
            | settings
        )
        self.consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned |= {partition.partition for partition in partitions}

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned -= {partition.partition for partition in partitions}

    def poll(self, timeout: float = 0.1) -> None:
        for message in self.consumer.consume(500, timeout):
            if message.error() is None:
                self.read.append(message.value())
                self.consumer.commit(message=message, asynchronous=True)


def poll_until(members: list[Member], done: Any, seconds: float = 40) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, [(member.owned, len(member.read)) for member in members]
        for member in members:
            member.poll()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_two_members_share_a_topic_and_the_rest_is_taken_over(tmp_path: Path, strategy: str) -> None:
    values = [b"%d" % index for index in range(400)]
    more = [b"more-%d" % index for index in range(100)]

    def scenario(bootstrap: str) -> tuple[Counter[bytes], dict[str, Any]]:
        create(bootstrap, "t", 4, 1)
        produce(bootstrap, "t", values, 4)
        first = Member(bootstrap, "g", "t", **{"partition.assignment.strategy": strategy})
        poll_until([first], lambda: len(first.owned) == 4 and len(first.read) == 400)
        second = Member(bootstrap, "g", "t", **{"partition.assignment.strategy": strategy})
        poll_until([first, second], lambda: len(first.owned) == 2 and len(second.owned) == 2)
        assert first.owned | second.owned == {0, 1, 2, 3}
        described = described_group(bootstrap, "g")
        first.consumer.close()
        poll_until([second], lambda: len(second.owned) == 4)
        produce(bootstrap, "t", more, 4)
        poll_until([second], lambda: sum(value.startswith(b"more") for value in second.read) == 100)
        second.consumer.close()
        return Counter(first.read + second.read), described

    async def main() -> tuple[Counter[bytes], dict[str, Any]]:
        async with running(tmp_path, controllers=1, brokers=1, **SETTINGS, **single()) as cluster:
            return await in_thread(scenario, cluster.bootstrap)

    read, described = asyncio.run(main())

    assert set(read) == set(values) | set(more)
    assert described == {"state": "STABLE", "members": 2, "assigned": [0, 1, 2, 3]}


def single() -> dict[str, Any]:
    return {"offsets__topic__replication__factor": 1, "transaction__state__log__replication__factor": 1}


def described_group(bootstrap: str, group: str) -> dict[str, Any]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_consumer_groups([group])[group].result(10)
    assigned = [part.partition for member in found.members for part in member.assignment.topic_partitions]
    return {"state": found.state.name, "members": len(found.members), "assigned": sorted(assigned)}


def test_admins_list_change_and_delete_a_group(tmp_path: Path) -> None:
    def scenario(bootstrap: str) -> None:
        create(bootstrap, "t", 2, 1)
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
        consumer.commit(offsets=[TopicPartition("t", 0, 7), TopicPartition("t", 1, 8)], asynchronous=False)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        assert [group.group_id for group in admin.list_consumer_groups().result(10).valid] == ["g"]
        assert committed(consumer) == [7, 8]
        wanted = ConsumerGroupTopicPartitions("g", [TopicPartition("t", 0, 3)])
        admin.alter_consumer_group_offsets([wanted])["g"].result(10)
        assert committed(consumer) == [3, 8]
        consumer.close()
        admin.delete_consumer_groups(["g"])["g"].result(10)
        assert admin.list_consumer_groups().result(10).valid == []

    async def main() -> None:
        async with running(tmp_path, controllers=1, brokers=1, **SETTINGS, **single()) as cluster:
            await in_thread(scenario, cluster.bootstrap)

    asyncio.run(main())


def committed(consumer: Consumer) -> list[int]:
    return [found.offset for found in consumer.committed([TopicPartition("t", 0), TopicPartition("t", 1)], 10)]
