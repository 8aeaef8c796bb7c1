"""Kafka's own command line tools, as their shell scripts would start them."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tribunal.clusters.kafka.jars import kafka_jars
from tribunal.clusters.kafka.side_by_side import java
from tribunal.clusters.maven_jars import NoJars

TIMEOUT_S = 120
CLASSES = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
}
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


def jars_or_skip() -> Path:
    try:
        return kafka_jars()
    except NoJars as problem:
        pytest.skip(str(problem))


class Tools:
    """Kafka's tools against one cluster."""

    def __init__(self, jars: Path, bootstrap: str) -> None:
        self.jars = jars
        self.bootstrap = bootstrap

    def run(self, tool: str, *arguments: str, stdin: str = "", fails: bool = False) -> str:
        """Run a tool to its end and return what it printed; it has to succeed (or to fail, if that is said)."""
        command = java(self.jars, CLASSES[tool], *arguments, heap="128m", options=QUICK_START)
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        said = done.stdout + done.stderr
        assert (done.returncode != 0) == fails, f"{tool} {' '.join(arguments)}: exit code {done.returncode}\n{said}"
        return said

    def ask(self, tool: str, *arguments: str, stdin: str = "", fails: bool = False) -> str:
        """Run a tool against the brokers."""
        return self.run(tool, "--bootstrap-server", self.bootstrap, *arguments, stdin=stdin, fails=fails)


def rows(table: str, key: str) -> Iterator[dict[str, str]]:
    """Yield the lines of `Name: value<TAB>Name: value` that have a key, as kafka-topics prints partitions."""
    for line in table.splitlines():
        cells = [cell.partition(":") for cell in line.split("\t") if ":" in cell]
        row = {name.strip(): value.strip() for name, _, value in cells}
        if key in row:
            yield row


def table(said: str, column: str) -> list[dict[str, str]]:
    """Return the rows below the heading that has this column."""
    lines = [line.split() for line in said.splitlines()]
    heading = next(index for index, words in enumerate(lines) if column in words)
    below = [words for words in lines[heading + 1 :] if len(words) >= len(lines[heading]) - 2]
    return [dict(zip(lines[heading], words, strict=False)) for words in below if words[1:2] != ["group"]]
