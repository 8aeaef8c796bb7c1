"""An operator's order that is not waited for: what comes next comes while the cluster still carries it out."""

from pathlib import Path

import msgspec
import pytest

from tribunal.clusters.api import TopicPartition
from tribunal.clusters.simulated.world import Simulation
from tribunal.harness.catalog import SIMULATED
from tribunal.harness.plan import made
from tribunal.harness.progress import Silent
from tribunal.harness.scenario import scenario
from tribunal.harness.simulated import conduct_simulated

AWAY_MS = 4_500


@pytest.mark.parametrize("under_way", [True, False])
def test_the_next_fault_comes_while_a_replica_still_moves(tmp_path: Path, *, under_way: bool) -> None:
    # given: the reassignment has to wait for the only other replica, which is cut off from it
    content = {
        "scenario": "small",
        "cluster": {"brokers": 3, "controllers": 1, "replication_factor": 2, "min_insync_replicas": 1},
        "workload": {"name": "produce-consume", "partitions": 1, "rate": 20, "readers": 1},
        "time": "6s",
        "warm_up": "100ms",
        "steps": [
            {"isolate": "follower(p0)", "from": "brokers", "for": f"{AWAY_MS}ms"},
            {
                "reassign": "leader(p0)",
                "under_way": under_way,
                "for": "100ms",
                "when": "|isr(p0)| = 1",
                "meanwhile": True,
            },
            {"slow": "random broker", "for": "100ms", "after": "0ms", "meanwhile": True},
        ],
    }

    plan = made(scenario(content), seed=5, cluster=SIMULATED, time_ms=None, mutants=())
    ending, _ = conduct_simulated(plan, tmp_path, Silent())

    assert ending.failure is None
    lines = (tmp_path / "schedule.jsonl").read_text().splitlines()
    started_ms = {line["kind"]: line["started_ms"] for line in map(msgspec.json.decode, lines)}
    assert (started_ms["slow"] < AWAY_MS) is under_way


@pytest.mark.parametrize("as_first", [True, False])
def test_who_is_made_the_first_replica_leads_and_else_nothing_changes(tmp_path: Path, *, as_first: bool) -> None:
    content = {
        "scenario": "small",
        "cluster": {"brokers": 3, "controllers": 1, "replication_factor": 3, "min_insync_replicas": 1},
        "workload": {"name": "produce-consume", "partitions": 1, "rate": 20, "readers": 1},
        "time": "2s",
        "warm_up": "100ms",
        "steps": [{"elect-leaders": "follower(p0)", "under_way": True, "as_first": as_first, "for": "500ms"}],
    }
    simulations: list[Simulation] = []

    plan = made(scenario(content), seed=5, cluster=SIMULATED, time_ms=None, mutants=())
    ending, _ = conduct_simulated(plan, tmp_path, Silent(), simulations.append)

    assert ending.failure is None
    line = msgspec.json.decode((tmp_path / "schedule.jsonl").read_text().splitlines()[0])
    assert simulations[0].cluster is not None
    state = simulations[0].cluster.state.partitions[TopicPartition("produce-consume", 0)]
    assert (state.leader == line["resolved"]) is as_first
    assert state.leader == state.replicas[0]
