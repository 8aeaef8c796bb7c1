"""Apache Kafka's own command line tools against a running cluster of ours, and against our files.

The default lane has what no other client asks; the nightly lane the rest. Skipped, with the reason, where Maven or Java
cannot be had. Tests share one cluster and name their own topics.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.kafka_command import Tools, jars_or_skip, rows
from tribunal.clusters.kafka.side_by_side import CLUSTER_ID, Ours, SideBySide

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
SETTINGS = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "broker.session.timeout.ms": 6000,  # longer than a tool takes to start: it has to meet a broker that just died
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


def test_a_move_is_executed_and_verified_and_moves_the_records(
    cluster: SideBySide, tools: Tools, tmp_path: Path
) -> None:
    create(tools, "moved", factor=2)
    now = [int(node) for node in partitions(tools, "moved")[0]["Replicas"].split(",")]
    (newcomer,) = {1, 2, 3} - set(now)
    tools.ask("kafka-console-producer", "--topic", "moved", stdin="".join(f"record {n}\n" for n in range(500)))
    plan = assignment(tmp_path, "moved", [newcomer, now[0]])

    started = tools.ask("kafka-reassign-partitions", "--reassignment-json-file", plan, "--execute")
    verify = ("kafka-reassign-partitions", "--reassignment-json-file", plan, "--verify")
    cluster.wait_until(lambda: "moved-0 is completed" in tools.ask(*verify), "the move is complete", 30)

    assert "Successfully started partition reassignment for moved-0" in started
    described = partitions(tools, "moved")[0]
    assert described["Replicas"] == f"{newcomer},{now[0]}"
    assert sorted(described["Isr"].split(",")) == sorted([str(newcomer), str(now[0])])
    moved, left = (log_folder(cluster, node, "moved-0") for node in (newcomer, now[1]))
    stayed = log_folder(cluster, now[0], "moved-0")
    assert (moved / "00000000000000000000.log").read_bytes() == (stayed / "00000000000000000000.log").read_bytes()
    cluster.wait_until(lambda: not left.exists(), "the old copy is deleted", 30)
    assert "moved:0:500" in tools.ask("kafka-get-offsets", "--topic", "moved")


@pytest.mark.nightly
def test_a_move_to_a_broker_that_died_is_listed_and_cancelled(
    cluster: SideBySide, tools: Tools, tmp_path: Path
) -> None:
    create(tools, "stuck", factor=2)
    tools.ask("kafka-configs", "--alter", "--topic", "stuck", "--add-config", "min.insync.replicas=1")
    now = [int(node) for node in partitions(tools, "stuck")[0]["Replicas"].split(",")]
    (newcomer,) = {1, 2, 3} - set(now)
    plan = assignment(tmp_path, "stuck", [now[0], newcomer])
    cluster.kill(newcomer)

    tools.ask("kafka-reassign-partitions", "--reassignment-json-file", plan, "--execute")
    listed = tools.ask("kafka-reassign-partitions", "--list")
    under_way = partitions(tools, "stuck")[0]
    cancelled = tools.ask(
        "kafka-reassign-partitions", "--reassignment-json-file", plan, "--cancel", "--preserve-throttles"
    )
    none_left = tools.ask("kafka-reassign-partitions", "--list")
    after = partitions(tools, "stuck")[0]
    cluster.start(newcomer)
    cluster.wait_serving([1, 2, 3])

    assert f"stuck-0: replicas: {now[0]},{newcomer},{now[1]}. adding: {newcomer}. removing: {now[1]}." in listed
    assert (under_way["Adding Replicas"], under_way["Removing Replicas"]) == (str(newcomer), str(now[1]))
    assert "Successfully cancelled partition reassignment for: stuck-0" in cancelled
    assert "No partition reassignments found" in none_left
    assert sorted(after["Replicas"].split(",")) == sorted(map(str, now))


@pytest.mark.nightly
def test_quotas_of_clients_and_users_are_altered_and_described(tools: Tools) -> None:
    client = ("--entity-type", "clients", "--entity-name", "greedy")
    users = ("--entity-type", "users", "--entity-default")

    tools.ask("kafka-configs", "--alter", *client, "--add-config", "producer_byte_rate=1024,consumer_byte_rate=2048")
    tools.ask("kafka-configs", "--alter", *users, "--add-config", "producer_byte_rate=4096")
    said = tools.ask("kafka-configs", "--describe", *client)
    of_all = tools.ask("kafka-configs", "--describe", *users)
    tools.ask("kafka-configs", "--alter", *client, "--delete-config", "producer_byte_rate")
    after = tools.ask("kafka-configs", "--describe", *client)
    refused = tools.ask("kafka-configs", "--alter", *client, "--add-config", "consumer_byte_rate=0", fails=True)

    assert "producer_byte_rate=1024.0" in said
    assert "consumer_byte_rate=2048.0" in said
    assert "default user-principal are producer_byte_rate=4096.0" in of_all
    assert "producer_byte_rate" not in after
    assert "is more than 0" in refused


@pytest.mark.nightly
def test_a_topic_config_is_altered_and_described(tools: Tools) -> None:
    create(tools, "configured")
    entity = ("--entity-type", "topics", "--entity-name", "configured")

    tools.ask("kafka-configs", "--alter", *entity, "--add-config", "min.insync.replicas=1,retention.ms=1000")

    said = tools.ask("kafka-configs", "--describe", *entity)
    tools.ask("kafka-configs", "--alter", *entity, "--delete-config", "retention.ms")
    after = tools.ask("kafka-configs", "--describe", *entity)
    refused = tools.ask("kafka-configs", "--alter", *entity, "--add-config", "retention.ms=soon", fails=True)
    assert "min.insync.replicas=1 sensitive=false" in said
    assert "retention.ms=1000" in said
    assert "min.insync.replicas=1 sensitive=false" in after
    assert "retention.ms" not in after
    assert "InvalidConfigurationException" in refused


@pytest.mark.nightly
def test_configs_of_one_broker_and_of_all_are_altered_and_described(tools: Tools) -> None:
    one, all_of_them = (
        ("--entity-type", "brokers", "--entity-name", "1"),
        ("--entity-type", "brokers", "--entity-default"),
    )

    tools.ask("kafka-configs", "--alter", *all_of_them, "--add-config", "unclean.leader.election.enable=true")
    of_all = tools.ask("kafka-configs", "--describe", *all_of_them)
    of_one = tools.ask("kafka-configs", "--describe", "--all", *one)
    tools.ask("kafka-configs", "--alter", *all_of_them, "--delete-config", "unclean.leader.election.enable")
    refused = tools.ask("kafka-configs", "--alter", *one, "--add-config", "min.insync.replicas=1", fails=True)

    assert "unclean.leader.election.enable=true sensitive=false" in of_all
    assert "unclean.leader.election.enable=true" in of_one
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:unclean.leader.election.enable=true" in of_one
    assert "unclean.leader.election.enable" not in tools.ask("kafka-configs", "--describe", *all_of_them)
    assert "cannot be altered while ELR is enabled" in refused


def test_the_console_reads_what_the_console_wrote(tools: Tools) -> None:
    create(tools, "spoken")

    tools.ask("kafka-console-producer", "--topic", "spoken", "--compression-codec", "zstd", stdin="one\ntwo\n")

    where = ("--topic", "spoken", "--partition", "0", "--offset", "earliest")
    said = tools.ask("kafka-console-consumer", *where, "--max-messages", "2", "--timeout-ms", "20000")
    assert said.split()[:2] == ["one", "two"]


def test_the_quorum_describes_itself(cluster: SideBySide, tools: Tools) -> None:
    said = tools.ask("kafka-metadata-quorum", "describe", "--status")

    facts = {name: value.strip() for name, _, value in (line.partition(":") for line in said.splitlines())}
    assert facts["ClusterId"] == CLUSTER_ID
    assert facts["LeaderId"] == "101"
    assert int(facts["HighWatermark"]) > 0
    assert int(facts["MaxFollowerLag"]) >= 0
    (voter,) = json.loads(facts["CurrentVoters"])
    assert voter["id"] == 101
    assert any(cluster.bootstrap_controllers in endpoint for endpoint in voter["endpoints"])
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

    for expected in (
        "SnapshotHeader",
        '"FEATURE_LEVEL_RECORD"',
        '"REGISTER_BROKER_RECORD"',
        '{"type":"TOPIC_RECORD","version":0,"data":{"name":"snapshot"',
        "SnapshotFooter",
    ):
        assert expected in said
    assert said.count('"PARTITION_RECORD"') >= 40
    assert "isvalid: false" not in said


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
    create(tools, "hurt", factor=2)
    leader, follower = (int(node) for node in partitions(tools, "hurt")[0]["Replicas"].split(","))
    (witness,) = {1, 2, 3} - {leader, follower}

    def described() -> dict[str, str]:
        return partitions(tools, "hurt")[0]

    cluster.kill(follower)
    cluster.wait_until(lambda: described()["Isr"] == str(leader), "the follower is out", 30)
    without_follower = described()
    cluster.kill(leader)
    cluster.wait_until(lambda: described()["Leader"] == "none", "nobody leads", 30)
    without_anybody = described()
    unavailable = tools.ask("kafka-topics", "--describe", "--unavailable-partitions")
    for node in (leader, follower):
        cluster.start(node)
    cluster.wait_serving([1, 2, 3])

    assert witness not in (leader, follower)
    assert (without_follower["Elr"], without_follower["LastKnownElr"]) == (str(follower), "")
    assert without_anybody["Isr"] == ""
    assert sorted(without_anybody["Elr"].split(",")) == sorted([str(leader), str(follower)])
    assert without_anybody["LastKnownElr"] == str(leader)
    assert "Topic: hurt" in unavailable
    cluster.wait_until(lambda: described()["Leader"] in (str(leader), str(follower)), "it is led again", 30)


@pytest.mark.nightly
def test_nodes_say_which_apis_they_have(tools: Tools) -> None:
    said = tools.ask("kafka-broker-api-versions")

    assert said.count(" -> (") == 3
    for api in ("Produce(0): 0 to 13", "DescribeTopicPartitions(75): 0", "DescribeQuorum(55): 0 to 2"):
        assert said.count(api) == 3
    assert "UNKNOWN" not in said.replace("UNKNOWN(1093)", "").replace("UNKNOWN(1094)", "")


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

    rows_ = [line.split() for line in said.splitlines()[1:]]
    assert [row[0] for row in rows_] == ["101", "1", "2", "3"]
    assert [row[-1] for row in rows_] == ["Leader", "Observer", "Observer", "Observer"]
    assert all(len(row[1]) == 22 for row in rows_)  # directory ids
    assert int(rows_[0][2]) > 0


@pytest.mark.nightly
def test_features_are_described_downgraded_and_upgraded(tools: Tools) -> None:
    def finalized() -> dict[str, str]:
        lines = (line.split() for line in tools.ask("kafka-features", "describe").splitlines() if "Feature:" in line)
        return {words[1]: words[words.index("FinalizedVersionLevel:") + 1] for words in lines}

    before = finalized()
    upgraded = tools.ask("kafka-features", "upgrade", "--release-version", "4.0")
    release = finalized()
    unsafe = tools.ask("kafka-features", "downgrade", "--release-version", "3.9", fails=True)
    lowered = tools.ask("kafka-features", "downgrade", "--release-version", "3.9", "--unsafe")
    down = finalized()
    tools.ask("kafka-features", "upgrade", "--release-version", "4.0")
    tools.ask("kafka-features", "upgrade", "--feature", "eligible.leader.replicas.version=1")
    tools.ask("kafka-features", "upgrade", "--release-version", "4.1")
    newer = finalized()
    tools.ask("kafka-features", "downgrade", "--feature", "metadata.version=25")
    refused = tools.ask("kafka-features", "upgrade", "--release-version", "4.3", fails=True)
    trial = tools.ask("kafka-features", "downgrade", "--feature", "transaction.version=0", "--dry-run")
    after = finalized()

    assert before["metadata.version"] == "4.0-IV3"
    assert "group.version was upgraded to 1." in upgraded
    assert release["group.version"] == "1"
    assert release["transaction.version"] == "2"
    assert "Lowering metadata.version loses" in unsafe
    assert "metadata.version was downgraded to 21." in lowered
    assert (down["metadata.version"], down["eligible.leader.replicas.version"]) == ("3.9-IV0", "0")
    assert newer["metadata.version"] == "4.1-IV1"
    assert "metadata.version level 30 is not supported" in refused
    assert "can be downgraded to 0" in trial
    assert after == release


@pytest.mark.nightly
def test_a_preferred_leader_is_elected(tools: Tools, tmp_path: Path) -> None:
    create(tools, "elected")
    replicas = [int(node) for node in partitions(tools, "elected")[0]["Replicas"].split(",")]
    plan = assignment(tmp_path, "elected", [*replicas[1:], replicas[0]])
    tools.ask("kafka-reassign-partitions", "--reassignment-json-file", plan, "--execute")

    election = ("--topic", "elected", "--partition", "0")
    said = tools.ask("kafka-leader-election", "--election-type", "preferred", *election)
    again = tools.ask("kafka-leader-election", "--election-type", "preferred", *election)
    unclean = tools.ask("kafka-leader-election", "--election-type", "unclean", *election)

    assert "Successfully completed leader election (PREFERRED) for partitions elected-0" in said
    assert partitions(tools, "elected")[0]["Leader"] == str(replicas[1])
    assert "Valid replica already elected for partitions elected-0" in again
    assert "Valid replica already elected for partitions elected-0" in unclean


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
