"""What does not come about because of other faults: a fault without effect, unless its plan says that this is to be expected; the harness is whole."""

from pathlib import Path

import pytest
import yaml

from tribunal.harness.campaign.sweep import SeedResult, run_seed
from tribunal.harness.catalog import SIMULATED, scenario_file
from tribunal.harness.plan import made
from tribunal.harness.scenario import scenario
from tribunal.results.verdict import Verdict

AWAY = {"isolate": "follower(p0)", "from": "nodes", "for": "6s"}  # its session ends


def of_removed_leader(steps: list[dict[str, object]]) -> dict[str, object]:
    content = yaml.safe_load(scenario_file("removed-leader").read_text())
    del content["modes"]  # in this mode a replica that is not alive is refused
    content["cluster"]["mode"] = "zookeeper"
    return {**content, "steps": steps or [{**content["steps"][0], **AWAY}, *content["steps"][1:]]}


def small(steps: list[dict[str, object]], **shape: object) -> dict[str, object]:
    return {
        "scenario": "small",
        "cluster": {"brokers": 3, "controllers": 1, "replication_factor": 3, "min_insync_replicas": 1, **shape},
        "workload": {"name": "produce-consume", "partitions": 1, "rate": 20, "readers": 1},
        "time": "8s",
        "warm_up": "100ms",
        "steps": steps,
    }


def run(content: dict[str, object], folder: Path, seed: int = 5) -> SeedResult:
    return run_seed(made(scenario(content), seed=seed, cluster=SIMULATED, time_ms=None, mutants=()), folder / "run")


def test_a_reassignment_that_is_refused_is_no_error_of_the_harness(tmp_path: Path) -> None:
    result = run(of_removed_leader([]), tmp_path, seed=7000)

    assert result.verdict is Verdict.INCONCLUSIVE
    assert "INVALID_REPLICA_ASSIGNMENT" in result.reasons[0]


@pytest.mark.parametrize("must_be_granted", [True, False])
@pytest.mark.parametrize("order", ["reassign", "elect-leaders"])
def test_a_refused_order_is_an_effect_where_only_an_answer_is_asked_for(
    tmp_path: Path, order: str, *, must_be_granted: bool
) -> None:
    # given: the first replica leads no more when the order comes, and is out of the ISR; the reassignment keeps it
    steps: list[dict[str, object]] = [
        {"isolate": "leader(p0)", "from": "nodes", "for": "6s"},
        {
            order: "leader(p0)", "under_way": True, "must_be_granted": must_be_granted, "for": "100ms",
            "when": "|isr(p0)| = 2", "after": "1s", "meanwhile": True,
        },
    ]  # fmt: skip

    result = run(small(steps, mode="zookeeper"), tmp_path)

    assert (result.verdict is Verdict.INCONCLUSIVE) is must_be_granted, result.reasons
    assert all("refused" in reason for reason in result.reasons)


@pytest.mark.parametrize("must_be_noticed", [True, False])
def test_a_cut_that_nobody_can_notice_is_a_doubt_unless_the_plan_expects_it(
    tmp_path: Path, *, must_be_noticed: bool
) -> None:
    # given: the leader misses its follower, and its word does not reach the controller
    steps: list[dict[str, object]] = [
        {"hold-messages": "leader(p0)", "api": "alter-partition", "for": "8s", "must_meet": False},
        {
            "isolate": "follower(p0)", "from": "brokers", "for": "1s", "must_be_noticed": must_be_noticed,
            "after": "0ms", "meanwhile": True,
        },
    ]  # fmt: skip

    result = run(small(steps), tmp_path)

    assert (result.verdict is Verdict.INCONCLUSIVE) is must_be_noticed, result.reasons
    assert all("session expired or ISR changed" in reason for reason in result.reasons)


def test_who_was_left_out_and_then_elected_uncleanly_was_cut_off(tmp_path: Path) -> None:
    # given: at the end of the cut the follower is in the ISR as at its beginning, and leads
    steps: list[dict[str, object]] = [
        {"isolate": "follower(p0)", "from": "brokers", "for": "6s"},
        {"kill": "leader(p0)", "for": "5s", "when": "|isr(p0)| = 1", "after": "200ms", "meanwhile": True},
    ]
    unclean = {"replication_factor": 2, "settings": {"unclean.leader.election.enable": True}}

    result = run(small(steps, **unclean), tmp_path)

    assert result.verdict is not Verdict.INCONCLUSIVE, result.reasons


def test_a_controller_that_another_fault_has_ended_is_waited_for(tmp_path: Path) -> None:
    steps: list[dict[str, object]] = [
        {"isolate": "controller 101", "from": "controllers", "for": "1s"},
        {"kill": "controller 101", "for": "3s", "after": "0ms", "meanwhile": True},
    ]

    result = run(small(steps, controllers=3), tmp_path)

    assert result.reasons == []


def test_replicas_are_given_back_once_everybody_is_back_where_that_was_refused_before(tmp_path: Path) -> None:
    steps: list[dict[str, object]] = [
        {"reassign": "broker 1", "for": "8s"},
        {"kill": "broker 1", "for": "11s", "after": "100ms", "meanwhile": True},
    ]

    result = run(small(steps, mode="zookeeper"), tmp_path)

    assert result.reasons == []
