"""Nobody leads, and who may be elected has lost its log to its own disk: that is for an operator to mend (docs/spec.md, 2.6.4)."""

from pathlib import Path

import yaml

from tribunal.checkers.judge.engine import judge_runs
from tribunal.harness.plan import made
from tribunal.harness.progress import Silent
from tribunal.harness.scenario import scenario
from tribunal.harness.simulated import conduct_simulated
from tribunal.results.rows import LogRecord, typed
from tribunal.results.store import Recording

# The assignment of the new directory comes behind the unfencing, so that nobody looks at the partition again.
SCENARIO = """
scenario: last-copy
cluster:
  brokers: 3
  controllers: 3
  replication_factor: 3
  min_insync_replicas: 1
  profile: ci
  settings: {eligible.leader.replicas.enable: false}
workload: {name: produce-consume, partitions: 1, rate: 60, readers: 1}
time: 20s
steps:
  - {isolate: follower(p0), from: nodes, for: 7s}
  - {isolate: follower(p0), from: nodes, for: 5s, after: 2.2s, meanwhile: true}
  - {delay-messages: leader(p0), api: assign-replicas-to-dirs, delay_ms: 1500, for: 9s, after: 2s, meanwhile: true}
  - {wipe: leader(p0), for: 3s, after: 200ms, meanwhile: true}
"""


def test_a_last_copy_that_its_disk_lost_is_no_failure_of_the_cluster(tmp_path: Path) -> None:
    plan = made(scenario(yaml.safe_load(SCENARIO)), seed=4, cluster="simulated", time_ms=None, mutants=())
    _, known = conduct_simulated(plan, tmp_path, Silent())
    findings = [row.finding for row in judge_runs([tmp_path], "inline").findings]

    held_by = {one.node for one in typed(Recording.open(tmp_path).table("logs"), LogRecord)}
    assert len(held_by) == 2  # the third, which alone may be elected, holds nothing
    assert known.violated is None
    assert {one.kind for one in findings if one.severity == "permitted"} >= {"lost", "shown_end_lost"}
    assert [one for one in findings if one.severity == "violation"] == []
