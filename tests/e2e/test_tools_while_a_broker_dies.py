"""Kafka's own programs, unmodified, at work on three of our brokers while one of them dies by kill -9: what they print is held
against what is on the logs in the end."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from threading import Timer
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from tests.clients.three_brokers_one_dies import SETTINGS, committed, create, dying, on_the_log, revive
from tests.e2e.kafka_command import Tools, jars_or_skip, table
from tribunal.clusters.kafka.side_by_side import Ours, SideBySide

pytestmark = [pytest.mark.e2e, pytest.mark.nightly, pytest.mark.timeout(400)]
COUNT = 600
STARTED_S = 1.2  # about when a tool's first requests go out


class Victim(NamedTuple):
    """Who dies, and when."""

    node: int
    timer: Timer


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SideBySide]:
    jars_or_skip()
    with SideBySide(Ours(), tmp_path_factory.mktemp("dying"), brokers=3, controllers=1, settings=SETTINGS) as cluster:
        yield cluster.up()


@pytest.fixture
def tools(cluster: SideBySide) -> Tools:
    return Tools(jars_or_skip(), cluster.bootstrap)


@pytest.fixture
def killed(cluster: SideBySide, request: pytest.FixtureRequest) -> Iterator[Victim]:
    """A broker that dies while the test's tool works, now this one, now that, and is back after it."""
    node = 1 + len(request.node.name) % 3
    timer = dying(cluster, node, STARTED_S)
    yield Victim(node, timer)
    revive(cluster, node, timer)


def write(cluster: SideBySide, topic: str, count: int = COUNT) -> list[str]:
    create(cluster, topic)
    values = [f"{topic}-{index}" for index in range(count)]
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for index, value in enumerate(values):
        producer.produce(topic, value.encode(), partition=index % 3)
    assert producer.flush(60) == 0
    return values


def events(said: str, name: str) -> list[dict[str, object]]:
    found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return [one for one in found if one["name"] == name]


def test_the_console_writes_and_reads(cluster: SideBySide, tools: Tools, killed: Victim) -> None:
    create(cluster, "console")
    lines = [f"line-{index}" for index in range(COUNT)]

    tools.ask("kafka-console-producer", "--topic", "console", "--producer-property", "acks=all", stdin="\n".join(lines))
    said = tools.ask(
        "kafka-console-consumer",
        *("--topic", "console", "--group", "console-readers", "--from-beginning"),
        *("--max-messages", str(COUNT), "--timeout-ms", "60000"),
    )
    killed.timer.join()

    assert sorted(line for line in said.splitlines() if line.startswith("line-")) == sorted(lines)
    assert sorted(on_the_log(cluster, "console").values()) == sorted(lines)


def test_the_verifiable_producer_is_answered_the_truth(cluster: SideBySide, tools: Tools, killed: Victim) -> None:
    create(cluster, "verified")

    said = tools.ask(
        "kafka-verifiable-producer",
        *("--topic", "verified", "--max-messages", str(COUNT), "--throughput", "150", "--acks", "-1"),
    )
    killed.timer.join()
    acknowledged = {(one["partition"], one["offset"]): one["value"] for one in events(said, "producer_send_success")}

    assert (len(acknowledged), events(said, "producer_send_error")) == (COUNT, [])
    assert on_the_log(cluster, "verified") == acknowledged


def test_the_verifiable_consumer_reads_all_and_commits_it(cluster: SideBySide, tools: Tools, killed: Victim) -> None:
    values = write(cluster, "consumed")

    said = tools.ask(
        "kafka-verifiable-consumer",
        *("--topic", "consumed", "--group-id", "verifiers", "--max-messages", str(COUNT), "--verbose"),
        *("--reset-policy", "earliest", "--session-timeout", "6000"),
    )
    killed.timer.join()
    read = {(one["partition"], one["offset"]): one["value"] for one in events(said, "record_data")}

    assert sorted(read.values()) == sorted(values)
    assert read == on_the_log(cluster, "consumed")
    assert committed(cluster, "verifiers", "consumed") == COUNT


def test_the_performance_test_counts_what_is_there(cluster: SideBySide, tools: Tools, killed: Victim) -> None:
    create(cluster, "perf")

    said = tools.run(
        "kafka-producer-perf-test",
        *("--topic", "perf", "--num-records", "3000", "--record-size", "100", "--throughput", "1000"),
        *("--transactional-id", "perf", "--transaction-duration-ms", "200"),
        *("--producer-props", f"bootstrap.servers={cluster.bootstrap}"),
    )
    killed.timer.join()
    found = on_the_log(cluster, "perf")

    assert "3000 records sent" in said
    assert len(found) == 3000
    assert {len(value) for value in found.values()} == {100}


def test_end_to_end_latency_reads_each_record_that_it_wrote(cluster: SideBySide, tools: Tools, killed: Victim) -> None:
    create(cluster, "latency")

    said = tools.ask(
        "kafka-e2e-latency",
        *("--topic", "latency", "--num-records", "200", "--producer-acks", "all", "--record-size", "50"),
    )
    killed.timer.join()

    assert re.search(r"Percentiles: 50th = \d+, 99th = \d+", said)
    assert len(on_the_log(cluster, "latency")) == 200


def test_offsets_deleted_records_and_directories(
    cluster: SideBySide, tools: Tools, tmp_path: Path, killed: Victim
) -> None:
    write(cluster, "trimmed", 90)
    request = tmp_path / "delete.json"
    partitions = [{"topic": "trimmed", "partition": index, "offset": 10 + index} for index in range(3)]
    request.write_text(json.dumps({"version": 1, "partitions": partitions}))
    killed.timer.join()

    deleted = tools.ask("kafka-delete-records", "--offset-json-file", str(request))
    earliest = tools.ask("kafka-get-offsets", "--topic", "trimmed", "--time", "earliest")
    latest = tools.ask("kafka-get-offsets", "--topic", "trimmed")
    survivor = next(node for node in cluster.broker_ids if node != killed.node)
    described = tools.ask(
        "kafka-log-dirs", "--describe", "--topic-list", "trimmed", "--broker-list", str(survivor)
    ).splitlines()[-1]
    (broker,) = json.loads(described)["brokers"]
    (directory,) = broker["logDirs"]

    assert [f"low_watermark: {10 + index}" in deleted for index in range(3)] == [True] * 3
    assert sorted(earliest.split()) == ["trimmed:0:10", "trimmed:1:11", "trimmed:2:12"]
    assert sorted(latest.split()) == ["trimmed:0:30", "trimmed:1:30", "trimmed:2:30"]
    assert sorted(one["partition"] for one in directory["partitions"]) == ["trimmed-0", "trimmed-1", "trimmed-2"]
    assert all(one["size"] > 0 and one["offsetLag"] == 0 and not one["isFuture"] for one in directory["partitions"])


def test_an_open_transaction_is_described_and_aborted(cluster: SideBySide, tools: Tools, killed: Victim) -> None:
    create(cluster, "open")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "open", "acks": "all"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for partition in range(3):
        producer.produce("open", f"never-{partition}".encode(), partition=partition)
    assert producer.flush(60) == 0
    killed.timer.join()

    (listed,) = [
        row
        for row in table(tools.ask("kafka-transactions", "list"), "TransactionalId")
        if row["TransactionalId"] == "open"
    ]
    (transaction,) = table(tools.ask("kafka-transactions", "describe", "--transactional-id", "open"), "CoordinatorId")
    for partition in range(3):
        where = ("--topic", "open", "--partition", str(partition))
        writers = table(tools.ask("kafka-transactions", "describe-producers", *where), "ProducerId")
        (writer,) = [row for row in writers if row["ProducerId"].isdigit()]  # warnings of the dead broker are left out
        assert (writer["ProducerId"], writer["CurrentTransactionStartOffset"]) == (listed["ProducerId"], "0")
        tools.ask("kafka-transactions", "abort", *where, "--start-offset", "0")

    assert (listed["TransactionState"], transaction["TransactionState"]) == ("Ongoing", "Ongoing")
    assert sorted(transaction["TopicPartitions"].split(",")) == ["open-0", "open-1", "open-2"]
    assert on_the_log(cluster, "open") == {}  # read to the end: nothing is open any more


def test_a_group_is_listed_described_reset_and_deleted(cluster: SideBySide, tools: Tools, killed: Victim) -> None:
    write(cluster, "grouped", 300)
    tools.ask(
        "kafka-console-consumer",
        *(
            "--topic",
            "grouped",
            "--group",
            "readers",
            "--from-beginning",
            "--max-messages",
            "300",
            "--timeout-ms",
            "60000",
        ),
    )
    killed.timer.join()

    described = table(tools.ask("kafka-consumer-groups", "--describe", "--group", "readers"), "GROUP")
    state = tools.ask("kafka-consumer-groups", "--describe", "--state", "--group", "readers")
    listed = tools.ask("kafka-consumer-groups", "--list", "--state")
    reset = ("--reset-offsets", "--group", "readers", "--topic", "grouped", "--to-offset", "10", "--execute")
    tools.ask("kafka-consumer-groups", *reset)

    assert {row["CURRENT-OFFSET"] for row in described} == {"100"}
    assert {row["LAG"] for row in described} == {"0"}
    assert "Empty" in state
    assert re.search(r"readers\s+Empty", listed)
    assert committed(cluster, "readers", "grouped") == 30
    gone = tools.ask("kafka-consumer-groups", "--delete-offsets", "--group", "readers", "--topic", "grouped")
    assert "Successful" in gone
    assert committed(cluster, "readers", "grouped") == 0
    assert "was successful" in tools.ask("kafka-consumer-groups", "--delete", "--group", "readers")
