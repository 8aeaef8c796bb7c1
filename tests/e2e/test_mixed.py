"""Brokers of Apache Kafka among replog's: nodes of both systems are killed and paused under load, and one judge reads what both wrote.

Three JVMs' worth of time a run: nightly. What needs no JVM is in `tests/clusters/test_mixed.py`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.nemesis.machine import left_of, ours
from tribunal.clusters.kinds import apache_kafka

ROOT = Path(__file__).parents[2]
BLOCKED = next((obstacle.reason for obstacle in apache_kafka.obstacles() if obstacle.blocks), "")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.nightly,
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(BLOCKED), reason=BLOCKED or "there is Kafka"),
]
SCENARIO = """scenario: both
about: nodes of both systems are killed and paused, an active controller too
cluster: {brokers: 3, controllers: 3, replication_factor: 3, min_insync_replicas: 2, profile: jvm}
workload: {name: produce-consume, partitions: 3, rate: 150, readers: 1}
time: 5s
warm_up: 1s
steps:
  - {kill: broker 1, for: 1s}
  - {kill: broker 2, for: 1s}
  - {pause: broker 1, for: 1.2x session}
  - {pause: broker 3, for: 1.2x session}
  - {kill: active controller, for: 1s}
"""


def judged_run(folder, scenario, *options):
    """Run a scenario on a mixed cluster; return its verdict, which is none against anybody."""
    command = [sys.executable, "-m", "tribunal.harness.cli.main", "run", scenario, "--cluster", "mixed", "--seed", "1"]
    command += ["--set", "cluster.version=4.3.1", "--engine", "inline", "-q", "--json", "--out", str(folder / "runs")]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, *options], cwd=folder, capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    verdict = json.loads(done.stdout)
    assert verdict["verdict"] in ("PASS", "PERMITTED"), verdict["claim"]
    return verdict


@pytest.mark.parametrize(
    "kafka",
    [(2, 3), (1, 2, 3), (2, 101), (101, 102, 103)],
    ids=["two of three", "under replog's controllers", "one quorum", "replog under Kafka's controllers"],
)
def test_nothing_that_was_promised_is_lost_whoever_holds_it(tmp_path, kafka):
    (tmp_path / "both.yaml").write_text(SCENARIO)

    verdict = judged_run(tmp_path, str(tmp_path / "both.yaml"), "--set", f"cluster.kafka={','.join(map(str, kafka))}")

    judged = verdict["judged"]
    assert judged["acknowledged, acks=all"] > 0
    assert judged["records in replicas compared"] > 2 * judged["records in final logs"], (
        "logs of both systems were read"
    )
    (run,) = (tmp_path / "runs").iterdir()
    assert ours(left_of(run)) == []


def test_a_cluster_goes_over_from_kafka_to_replog_and_back(tmp_path):
    verdict = judged_run(tmp_path, "released/migrate-in-place")

    assert verdict["judged"]["acknowledged, acks=all"] > 0
    (run,) = (tmp_path / "runs").iterdir()
    faults = pq.read_table(run / "recording" / "faults").sort_by("injected_ns").to_pylist()
    systems = [json.loads(fault["proof"])["system"] for fault in faults if fault["kind"] == "change-system"]
    assert [(system["former"], system["next"]) for system in systems] == [
        *(("apache-kafka", "replog"),) * 4,
        *(("replog", "apache-kafka"),) * 3,
    ]
    assert ours(left_of(run)) == []


VOTES = """scenario: votes
about: controllers of both systems lose their votes and their disks, and get votes again; snapshots of the metadata go from one system to the other
cluster:
  brokers: 3
  controllers: 3
  replication_factor: 3
  min_insync_replicas: 2
  profile: jvm
  settings: {tribunal.dynamic.voters: true, metadata.log.max.record.bytes.between.snapshots: 3000}
workload: {name: produce-consume, partitions: 3, rate: 100, readers: 1}
time: 5s
warm_up: 1s
steps:
  - {kill: broker 1, for: 1s}
  - {wipe: controller 103, for: 1s}
  - {wipe: controller 101, for: 1s}
  - {wipe: controller 102, for: 1s}
  - {wipe: broker 2, for: 1s}
  - {wipe: broker 3, for: 1s}
  - {remove-voter: controller 101, for: 1s}
  - {remove-voter: controller 103, for: 1s}
  - {kill: active controller, for: 1s}
"""


@pytest.mark.parametrize("kafka", [(2, 101), (2, 101, 102)], ids=["most of replog", "most of Apache Kafka"])
def test_votes_change_whichever_system_leads(tmp_path, kafka):
    (tmp_path / "votes.yaml").write_text(VOTES)

    verdict = judged_run(tmp_path, str(tmp_path / "votes.yaml"), "--set", f"cluster.kafka={','.join(map(str, kafka))}")

    assert verdict["judged"]["acknowledged, acks=all"] > 0
    (run,) = (tmp_path / "runs").iterdir()
    faults = pq.read_table(run / "recording" / "faults").to_pylist()
    votes = [json.loads(fault["proof"]) for fault in faults if fault["kind"] == "remove-voter"]
    assert [(sorted(proof["voters"]), len(proof["voters"])) for proof in votes] == [([102, 103], 2), ([101, 102], 2)]
