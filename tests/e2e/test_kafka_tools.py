"""Apache Kafka's own command line tools against a running cluster of ours, and against our files.

The default lane has what no other client asks; the nightly lane the rest. Skipped, with the reason, where Maven or Java
cannot be had. Tests share one cluster and name their own topics.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusters.side_by_side import CLUSTER_ID, Ours, SideBySide
from tests.e2e.kafka_command import Tools, jars_or_skip, rows

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
SETTINGS = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
    "replica.fetch.wait.max.ms": 200,
    "metadata.log.max.record.bytes.between.snapshots": 2000,
    "auto.create.topics.enable": False,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SideBySide]:
    jars_or_skip()
    folder = tmp_path_factory.mktemp("kafka-tools")
    with SideBySide(Ours(), folder, brokers=3, controllers=1, settings=SETTINGS) as cluster:
        yield cluster.up()


@pytest.fixture(scope="module")
def tools(cluster: SideBySide) -> Tools:
    return Tools(jars_or_skip(), cluster.bootstrap)


def create(tools: Tools, topic: str, partitions: int = 1, factor: int = 3) -> None:
    numbers = ("--partitions", str(partitions), "--replication-factor", str(factor))
    tools.ask("kafka-topics", "--create", "--topic", topic, *numbers)


def partitions(tools: Tools, topic: str) -> list[dict[str, str]]:
    return list(rows(tools.ask("kafka-topics", "--describe", "--topic", topic), "Partition"))


def log_folder(cluster: SideBySide, node: int, partition: str) -> Path:
    return cluster.places[node].data / partition


def assignment(folder: Path, topic: str, replicas: list[int]) -> str:
    path = folder / "assignment.json"
    path.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": replicas}]}))
    return str(path)


def test_topics_are_created_grown_and_deleted(tools: Tools) -> None:
    create(tools, "grown", partitions=2)
    tools.ask("kafka-topics", "--alter", "--topic", "grown", "--partitions", "3")
    described = partitions(tools, "grown")
    tools.ask("kafka-topics", "--delete", "--topic", "grown")

    assert [row["Partition"] for row in described] == ["0", "1", "2"]
    assert all(sorted(row["Isr"].split(",")) == ["1", "2", "3"] for row in described)
    assert all((row["Elr"], row["LastKnownElr"]) == ("", "") for row in described)
    assert "grown" not in tools.ask("kafka-topics", "--list").split()


def test_a_move_is_executed_and_verified(tools: Tools, tmp_path: Path) -> None:
    create(tools, "moved", factor=2)
    now = [int(node) for node in partitions(tools, "moved")[0]["Replicas"].split(",")]
    (newcomer,) = {1, 2, 3} - set(now)
    plan = assignment(tmp_path, "moved", [newcomer, now[0]])

    tools.ask("kafka-reassign-partitions", "--reassignment-json-file", plan, "--execute")
    said = tools.ask("kafka-reassign-partitions", "--reassignment-json-file", plan, "--verify")

    assert "Reassignment of partition moved-0 is" in said
    assert "Clearing broker-level throttles" in said


def test_a_topic_config_is_altered_and_described(tools: Tools) -> None:
    create(tools, "configured")
    entity = ("--entity-type", "topics", "--entity-name", "configured")

    tools.ask("kafka-configs", "--alter", *entity, "--add-config", "min.insync.replicas=1,retention.ms=1000")

    said = tools.ask("kafka-configs", "--describe", *entity)
    assert "min.insync.replicas=1 sensitive=false" in said
    assert "retention.ms=1000" in said


def test_the_console_reads_what_the_console_wrote(tools: Tools) -> None:
    create(tools, "spoken")

    tools.ask("kafka-console-producer", "--topic", "spoken", "--compression-codec", "zstd", stdin="one\ntwo\n")

    where = ("--topic", "spoken", "--partition", "0", "--offset", "earliest")
    said = tools.ask("kafka-console-consumer", *where, "--max-messages", "2", "--timeout-ms", "20000")
    assert said.split()[:2] == ["one", "two"]


def test_the_quorum_describes_itself(tools: Tools) -> None:
    said = tools.ask("kafka-metadata-quorum", "describe", "--status")

    facts = {name: value.strip() for name, _, value in (line.partition(":") for line in said.splitlines())}
    assert facts["LeaderId"] == "101"
    assert {node["id"] for node in json.loads(facts["CurrentObservers"])} == {1, 2, 3}


def test_the_metadata_log_is_read_by_kafkas_decoder(cluster: SideBySide, tools: Tools) -> None:
    create(tools, "decoded")

    metadata = log_folder(cluster, 101, "__cluster_metadata-0") / "00000000000000000000.log"
    said = tools.run("kafka-dump-log", "--cluster-metadata-decoder", "--files", str(metadata))

    for expected in ("LeaderChange: {", '"REGISTER_BROKER_RECORD"', '"name":"decoded"', '"PARTITION_RECORD"'):
        assert expected in said
    assert "isvalid: false" not in said


@pytest.mark.nightly
def test_a_snapshot_is_read_by_kafkas_decoder(cluster: SideBySide, tools: Tools) -> None:
    create(tools, "snapshot", partitions=40)
    folder = log_folder(cluster, 101, "__cluster_metadata-0")
    cluster.wait_until(lambda: any(folder.glob("*.checkpoint")), "a snapshot", 10)

    newest = max(folder.glob("*.checkpoint"))
    said = tools.run("kafka-dump-log", "--cluster-metadata-decoder", "--files", str(newest))

    assert "SnapshotHeader" in said
    assert "SnapshotFooter" in said
    assert '"FEATURE_LEVEL_RECORD"' in said


@pytest.mark.nightly
def test_segments_indexes_and_producer_snapshots_pass_kafkas_checks(cluster: SideBySide, tools: Tools) -> None:
    create(tools, "dumped")
    sending = ("--num-records", "3000", "--record-size", "100", "--throughput", "-1")
    properties = f"bootstrap.servers={cluster.bootstrap}"
    tools.run("kafka-producer-perf-test", "--topic", "dumped", *sending, "--producer-props", properties, "acks=all")
    leader = int(partitions(tools, "dumped")[0]["Leader"])
    cluster.stop(leader)
    folder = log_folder(cluster, leader, "dumped-0")

    files = [str(path) for suffix in ("log", "index", "timeindex", "txnindex") for path in folder.glob(f"*.{suffix}")]
    said = tools.run("kafka-dump-log", "--deep-iteration", "--files", ",".join(files))
    snapshots = tools.run("kafka-dump-log", "--files", ",".join(str(path) for path in folder.glob("*.snapshot")))
    indexes = ",".join(path for path in files if path.endswith("index") and "txn" not in path)
    sane = tools.run("kafka-dump-log", "--index-sanity-check", "--files", indexes)
    cluster.start(leader)
    cluster.wait_serving([1, 2, 3])

    assert "isvalid: false" not in said
    assert "mismatch" not in said.lower()
    assert "not found" not in said.lower()
    assert "lastOffset: 2999" in snapshots
    assert sane.count("passed sanity check") == 2


@pytest.mark.nightly
def test_elr_and_last_known_elr_are_described(cluster: SideBySide, tools: Tools) -> None:
    create(tools, "hurt")
    leader = int(partitions(tools, "hurt")[0]["Leader"])
    others = sorted({1, 2, 3} - {leader})

    for node in others:
        cluster.kill(node)
        left = [leader, *(one for one in others if one > node)]
        cluster.wait_until(lambda left=left: partitions(tools, "hurt")[0]["Isr"].count(",") == len(left) - 1, "ISR", 20)
    described = partitions(tools, "hurt")[0]
    for node in others:
        cluster.start(node)
    cluster.wait_serving([1, 2, 3])

    assert described["Isr"] == str(leader)
    assert described["Elr"] == str(others[1])
    assert described["LastKnownElr"] == ""


@pytest.mark.nightly
def test_nodes_say_which_apis_they_have(tools: Tools) -> None:
    said = tools.ask("kafka-broker-api-versions")

    assert said.count(" -> (") == 3
    for api in ("Produce(0)", "DescribeTopicPartitions(75)", "DescribeQuorum(55)"):
        assert api in said


@pytest.mark.nightly
def test_the_cluster_names_itself_and_its_nodes(cluster: SideBySide, tools: Tools) -> None:
    at_brokers = ("--bootstrap-server", cluster.bootstrap)
    at_controllers = ("--bootstrap-controller", cluster.bootstrap_controllers)

    identity = tools.run("kafka-cluster", "cluster-id", *at_brokers)
    brokers = tools.run("kafka-cluster", "list-endpoints", *at_brokers)
    controllers = tools.run("kafka-cluster", "list-endpoints", *at_controllers)

    assert CLUSTER_ID in identity
    assert brokers.count("  broker") == 3
    assert controllers.count("  controller") == 1


@pytest.mark.nightly
def test_replicas_of_the_metadata_log_are_described(cluster: SideBySide, tools: Tools) -> None:
    asked = ("--bootstrap-controller", cluster.bootstrap_controllers, "describe", "--replication")
    said = tools.run("kafka-metadata-quorum", *asked)

    assert [line.split()[-1] for line in said.splitlines()[1:]] == ["Leader", "Observer", "Observer", "Observer"]


@pytest.mark.nightly
def test_features_are_described_downgraded_and_upgraded(tools: Tools) -> None:
    before = tools.ask("kafka-features", "describe")
    tools.ask("kafka-features", "downgrade", "--feature", "eligible.leader.replicas.version=0")
    tools.ask("kafka-features", "upgrade", "--feature", "eligible.leader.replicas.version=1")
    refused = tools.ask("kafka-features", "upgrade", "--feature", "group.version=1", fails=True)

    assert "metadata.version" in before
    assert "Could not upgrade group.version to 1" in refused


@pytest.mark.nightly
def test_a_preferred_leader_is_elected(tools: Tools, tmp_path: Path) -> None:
    create(tools, "elected")
    replicas = [int(node) for node in partitions(tools, "elected")[0]["Replicas"].split(",")]
    plan = assignment(tmp_path, "elected", [*replicas[1:], replicas[0]])
    tools.ask("kafka-reassign-partitions", "--reassignment-json-file", plan, "--execute")

    said = tools.ask("kafka-leader-election", "--election-type", "preferred", "--topic", "elected", "--partition", "0")

    assert "elected-0" in said
    assert partitions(tools, "elected")[0]["Leader"] == str(replicas[1])


@pytest.mark.nightly
def test_offsets_log_directories_and_deleted_records(tools: Tools, tmp_path: Path) -> None:
    create(tools, "trimmed")
    tools.ask("kafka-console-producer", "--topic", "trimmed", stdin="one\ntwo\nthree\n")
    request = tmp_path / "delete.json"
    request.write_text(json.dumps({"version": 1, "partitions": [{"topic": "trimmed", "partition": 0, "offset": 2}]}))

    deleted = tools.ask("kafka-delete-records", "--offset-json-file", str(request))
    directories = tools.ask("kafka-log-dirs", "--describe", "--topic-list", "trimmed").splitlines()[-1]

    assert "low_watermark: 2" in deleted
    assert "trimmed:0:2" in tools.ask("kafka-get-offsets", "--topic", "trimmed", "--time", "earliest")
    assert "trimmed:0:3" in tools.ask("kafka-get-offsets", "--topic", "trimmed")
    assert {one["broker"] for one in json.loads(directories)["brokers"]} == {1, 2, 3}
