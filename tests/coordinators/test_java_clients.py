"""Java's producer (transaction protocol version 2), consumer group and admin tools, unmodified, on a cluster of ours."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.e2e.kafka_command import Tools, jars_or_skip, table
from tribunal.clusters.kafka.side_by_side import Ours, SideBySide

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]
SETTINGS = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "replica.fetch.wait.max.ms": 100,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SideBySide]:
    jars_or_skip()
    folder = tmp_path_factory.mktemp("java")
    with SideBySide(Ours(), folder, brokers=3, controllers=1, settings=SETTINGS) as cluster:
        yield cluster.up()


@pytest.fixture
def tools(cluster: SideBySide) -> Tools:
    return Tools(jars_or_skip(), cluster.bootstrap)


def create(cluster: SideBySide, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions, 3)]).values():
        future.result(20)


@pytest.mark.nightly
def test_transactions_of_the_java_producer_are_read_in_full(cluster: SideBySide, tools: Tools) -> None:
    create(cluster, "perf", 3)
    said = tools.run(
        "kafka-producer-perf-test",
        *("--topic", "perf", "--num-records", "3000", "--record-size", "100", "--throughput", "1500"),
        *("--transactional-id", "perf", "--transaction-duration-ms", "20"),  # many, also on a busy machine
        *("--producer-props", f"bootstrap.servers={cluster.bootstrap}"),
    )
    assert "3000 records sent" in said

    listed = ended_transactions(tools)
    one = tools.ask("kafka-transactions", "describe", "--transactional-id", "perf")
    described = table(one, "CoordinatorId")

    assert [row["TransactionState"] for row in listed] == ["CompleteCommit"]
    assert int(described[0]["ProducerEpoch"]) >= 5  # protocol version 2: one epoch a transaction
    assert read_committed_count(cluster, "perf", 3) == 3000


def ended_transactions(tools: Tools) -> list[dict[str, str]]:
    """List transactions; the last one's markers may be written after its end was answered."""
    deadline = time.monotonic() + 30
    while True:
        listed = table(tools.ask("kafka-transactions", "list"), "TransactionalId")
        if time.monotonic() > deadline or all(row["TransactionState"] != "PrepareCommit" for row in listed):
            return listed


def read_committed_count(cluster: SideBySide, topic: str, partitions: int) -> int:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "count",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    count = ends = 0
    while ends < partitions:
        for message in consumer.consume(500, 1.0):
            if message.error() is None:
                count += 1
            else:
                ends += 1
    consumer.close()
    return count


def test_a_java_group_reads_all_and_is_described(cluster: SideBySide, tools: Tools) -> None:
    create(cluster, "lines", 2)
    lines = [f"line-{index}" for index in range(50)]
    tools.ask("kafka-console-producer", "--topic", "lines", stdin="\n".join(lines) + "\n")

    said = tools.ask(
        "kafka-console-consumer",
        *("--topic", "lines", "--group", "readers", "--from-beginning", "--max-messages", "50"),
        *("--isolation-level", "read_committed", "--timeout-ms", "30000"),
    )
    described = table(tools.ask("kafka-consumer-groups", "--describe", "--group", "readers"), "GROUP")

    assert sorted(line for line in said.splitlines() if line.startswith("line-")) == sorted(lines)
    assert sum(int(row["CURRENT-OFFSET"]) for row in described) == 50
    assert {row["LAG"] for row in described} == {"0"}
    assert "readers" in tools.ask("kafka-consumer-groups", "--list")
    assert "was successful" in tools.ask("kafka-consumer-groups", "--delete", "--group", "readers")
