"""The new group protocol (KIP-848) with clients that opt in, unmodified, also while a coordinator dies by kill -9."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from replog.coordinators.placement import OFFSETS_TOPIC, partition_for
from tests.e2e.kafka_command import CLASSES, Tools, jars_or_skip
from tribunal.clusters.kafka.side_by_side import Ours, SideBySide

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]
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
    "group.consumer.heartbeat.interval.ms": 400,
    "group.consumer.session.timeout.ms": 20000,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SideBySide]:
    folder = tmp_path_factory.mktemp("consumers")
    with SideBySide(Ours(), folder, brokers=3, controllers=1, settings=SETTINGS) as cluster:
        cluster.up()
        yield cluster


def create(cluster: SideBySide, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions, 3)]).values():
        future.result(20)


def produce(cluster: SideBySide, topic: str, values: list[str], partitions: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for index, value in enumerate(values):
        producer.produce(topic, value.encode(), partition=index % partitions)
    assert producer.flush(60) == 0


class Member:
    """A consumer that opted in, what it owns and what it read; it commits what it read before it gives anything up."""

    def __init__(self, cluster: SideBySide, group: str, topics: list[str], **settings: Any) -> None:
        self.owned: set[int] = set()
        self.read: list[str] = []
        self.fatal: list[Any] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 1000,
                "error_cb": self._failed,
            }
            | settings
        )
        self.consumer.subscribe(topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def _failed(self, error: Any) -> None:
        if error.fatal():
            self.fatal.append(error)

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned |= {partition.partition for partition in partitions}

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned -= {partition.partition for partition in partitions}

    def poll(self) -> None:
        messages = self.consumer.consume(100, 0.1)
        self.read += [message.value().decode() for message in messages if message.error() is None]
        if messages:
            self._commit()

    def _commit(self) -> None:
        deadline = time.monotonic() + 40
        while True:
            try:
                self.consumer.commit(asynchronous=False)
            except KafkaException as problem:
                name = problem.args[0].name()
                if name == "_NO_OFFSET":
                    return
                if time.monotonic() > deadline:
                    raise
                if name in ("STALE_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"):
                    return  # what it read may be read again by the next owner
            else:
                return


def poll_until(members: list[Member], done: Any, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, [(member.owned, len(member.read), member.fatal) for member in members]
        for member in members:
            member.poll()


def test_librdkafkas_members_share_and_go_on_when_their_coordinator_dies(cluster: SideBySide) -> None:
    create(cluster, "shared", 4)
    values = [f"value-{index}" for index in range(200)]
    produce(cluster, "shared", values, 4)
    first = Member(cluster, "sharing", ["shared"])
    poll_until([first], lambda: len(first.owned) == 4 and len(first.read) == 200)
    second = Member(cluster, "sharing", ["^share.$"], **{"group.instance.id": "second"})
    poll_until([first, second], lambda: len(first.owned) == 2 and len(second.owned) == 2)
    assert first.owned | second.owned == {0, 1, 2, 3}

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    listed = admin.list_consumer_groups().result(20).valid
    assert [(one.group_id, one.type.name, one.state.name) for one in listed] == [("sharing", "CONSUMER", "STABLE")]

    topics = admin.list_topics(OFFSETS_TOPIC, 10).topics[OFFSETS_TOPIC].partitions
    victim = int(topics[partition_for("sharing", 3)].leader)
    cluster.kill(victim)
    more = [f"more-{index}" for index in range(200)]
    produce(cluster, "shared", more, 4)
    poll_until([first, second], lambda: len({*first.read, *second.read}) == 400, 90)
    third = Member(cluster, "sharing", ["shared"])
    members = [first, second, third]
    poll_until(members, lambda: all(member.owned for member in members), 60)
    owned = sorted(partition for member in members for partition in member.owned)
    cluster.start(victim)
    cluster.wait_serving(range(1, 4))
    positions = committed(third.consumer, "shared", 4)
    for member in members:
        member.consumer.close()

    assert owned == [0, 1, 2, 3]
    assert {*first.read, *second.read} == {*values, *more}
    assert positions == [100, 100, 100, 100]
    assert [member.fatal for member in members] == [[], [], []]


def committed(consumer: Consumer, topic: str, partitions: int) -> list[int]:
    end = time.monotonic() + 40
    while True:
        try:
            found = consumer.committed([TopicPartition(topic, index) for index in range(partitions)], 10)
            return [one.offset for one in found]
        except KafkaException:
            if time.monotonic() > end:
                raise


@pytest.mark.nightly
def test_javas_console_consumer_opts_in_and_is_described(cluster: SideBySide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CLASSES, "kafka-consumer-groups", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand")
    tools = Tools(jars_or_skip(), cluster.bootstrap)
    create(cluster, "lines", 2)
    lines = [f"line-{index}" for index in range(50)]
    produce(cluster, "lines", lines, 2)

    said = tools.ask(
        "kafka-console-consumer",
        *("--topic", "lines", "--group", "java", "--from-beginning", "--max-messages", "50"),
        *("--consumer-property", "group.protocol=consumer", "--timeout-ms", "30000"),
    )
    stays = Member(cluster, "java", ["lines"])
    poll_until([stays], lambda: len(stays.owned) == 2)
    state = tools.ask("kafka-consumer-groups", "--describe", "--group", "java", "--state")
    members = tools.ask("kafka-consumer-groups", "--describe", "--group", "java", "--members", "--verbose")
    offsets = tools.ask("kafka-consumer-groups", "--describe", "--group", "java")
    refused = tools.ask("kafka-consumer-groups", "--delete", "--group", "java", fails=False)
    stays.consumer.close()
    listed = tools.ask("kafka-consumer-groups", "--list", "--type", "consumer")
    deleted = tools.ask("kafka-consumer-groups", "--delete", "--group", "java")

    assert sorted(line for line in said.splitlines() if line.startswith("line-")) == sorted(lines)
    assert "Stable" in state
    assert "uniform" in state
    assert "lines:0,1" in members
    assert [line.split()[3:6] for line in offsets.splitlines() if line.startswith("java")] == [["25", "25", "0"]] * 2
    assert "not empty" in refused
    assert "java" in listed.split()
    assert "was successful" in deleted
