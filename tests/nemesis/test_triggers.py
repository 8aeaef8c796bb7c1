"""Triggers: what they may say, how a wrong one is answered, and when they are met."""

import msgspec
import pytest

from tribunal.clusters.api import ClusterState, PartitionState, TopicPartition
from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.campaign.mutation_score import plan_of
from tribunal.harness.plan import encoded, made, read_plan, read_schedule
from tribunal.harness.progress import Silent
from tribunal.harness.scenario import BadScenario, scenario
from tribunal.harness.simulated import conduct_simulated
from tribunal.nemesis.triggers import BadTrigger, Trigger, Waiting, parse_trigger

ALTER_PARTITION = 56


class SeenCluster:
    """A cluster as far as a trigger looks at it."""

    def __init__(self, **changed):
        self.requests = 0
        self.set(**changed)

    def set(self, **changed):
        alike = {"leader": 1, "leader_epoch": 0, "partition_epoch": 0, "replicas": (1, 2, 3), "isr": (1, 2, 3)}
        self.state = ClusterState(partitions={TopicPartition("t", 0): PartitionState(**{**alike, **changed})})

    def message_count(self, api, direction):
        return self.requests if (api, direction) == (ALTER_PARTITION, "request") else 0


def trigger(text):
    return parse_trigger(text, ClusterSpec(), partition_count=3).bound(0)


@pytest.mark.parametrize(
    ("text", "met", "not_met"),
    [
        pytest.param("isr(p0) = {leader}", {"isr": (1,)}, {"isr": (1, 2)}, id="only the leader"),
        pytest.param("elr(p0) = {2,3}", {"isr": (1,), "elr": (3, 2)}, {"isr": (1,), "elr": (2,)}, id="a set"),
        pytest.param("elr(p0) = {}", {}, {"isr": (1,), "elr": (2,)}, id="nobody"),
        pytest.param("|isr(p*)| < 2", {"isr": (1,)}, {"isr": (1, 2)}, id="how many"),
        pytest.param("leader(p0) = 2", {"leader": 2}, {}, id="who leads"),
        pytest.param("leader(p0) = none", {"leader": -1}, {}, id="nobody leads"),
        pytest.param("recovering(p0)", {"recovering": True}, {}, id="recovering"),
        pytest.param("|isr(p0)| = 1 and |elr(p0)| >= 1", {"isr": (1,), "elr": (2,)}, {"isr": (1,)}, id="both"),
    ],
)
def test_a_state_meets_a_trigger_or_not(text, met, not_met):
    assert Waiting(trigger(text), SeenCluster(**met), "t").is_met
    assert not Waiting(trigger(text), SeenCluster(**not_met), "t").is_met


def test_messages_count_from_when_somebody_waits():
    cluster = SeenCluster()
    cluster.requests = 7
    waiting = Waiting(trigger("alter-partition request x3 and |isr(p0)| = 2"), cluster, "t")

    cluster.requests = 9
    cluster.set(isr=(1, 2))
    assert not waiting.is_met

    cluster.requests = 10
    assert waiting.is_met

    cluster.set()
    assert not waiting.is_met


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("isr(p0) = 2", "is none of: isr", id="no set"),
        pytest.param("isr(p9) = {2}", "partitions p0 to p2", id="partition"),
        pytest.param("isr(p0) = {7}", "7 is no broker; they are 1, 2, 3", id="broker"),
        pytest.param("|isr(p0)| > 3", "partitions have 3 replicas", id="never so many"),
        pytest.param("|elr(p0)| < 0", "partitions have 3 replicas", id="never so few"),
        pytest.param(
            "fetch request", "fetch is no API to wait for; these are: list-offsets, leader-and-isr", id="flows"
        ),
        pytest.param("alter request", "alter is no API to wait for", id="API"),
        pytest.param("alter-partition request x0", "x1 to x10000", id="none"),
        pytest.param("recovering(p0) and ", "is none of", id="half"),
    ],
)
def test_what_never_comes_true_is_refused(text, reason):
    with pytest.raises(BadTrigger, match=reason):
        trigger(text)


def a_scenario(step, **words):
    return {"scenario": "s", "workload": "produce-consume", "steps": [step], **words}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(
            a_scenario({"kill": "leader(p0)", "when": "soon"}), "step 1: trigger 'soon' is none of", id="when"
        ),
        pytest.param(a_scenario({"kill": "leader(p0)", "until": 3}), "step 1: trigger '3' is none of", id="until"),
        pytest.param(
            a_scenario({"kill": "leader(p*)", "when": "isr(p*) = {2}"}, swarm=True), r"names '\{2\}'", id="of a swarm"
        ),
    ],
)
def test_a_scenario_with_a_bad_trigger_is_refused(content, reason):
    with pytest.raises(ValueError, match=reason):
        scenario(content)


def test_a_plan_has_its_triggers_with_the_partition_that_was_drawn(tmp_path):
    step = {"kill": "leader(p*)", "when": "isr(p*) = {leader}", "until": "end-txn answer x2"}

    plan = made(scenario(a_scenario(step)), seed=3, cluster="processes", time_ms=None, mutants=())
    (tmp_path / "plan.json").write_bytes(encoded(plan))

    first = read_plan(tmp_path / "plan.json").faults[0]
    assert first == plan.faults[0]
    assert first.when.text == f"isr(p{first.target.partition}) = {{leader}}"
    assert {one.partition for one in first.when.conditions} == {first.target.partition}
    assert isinstance(first.until, Trigger)
    assert first.after_ms == 0


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        pytest.param('"api": "end-txn"', '"api": "no-such"', "say something else", id="an API that there is not"),
        pytest.param('"count": 2', '"count": 3', "say something else", id="another number than it says"),
        pytest.param("end-txn answer x2", "end-txn answer x3", "say something else", id="other words"),
        pytest.param("end-txn answer x2", "at noon", "is none of", id="no trigger's words"),
    ],
)
def test_a_plan_whose_trigger_says_something_else_than_it_waits_for_is_refused(tmp_path, old, new, reason):
    step = {"kill": "leader(p*)", "when": "isr(p*) = {leader}", "until": "end-txn answer x2"}
    plan = made(scenario(a_scenario(step)), seed=3, cluster="processes", time_ms=None, mutants=())
    content = encoded(plan).decode()
    assert old in content
    (tmp_path / "plan.json").write_text(content.replace(old, new))

    with pytest.raises(BadScenario, match=reason):
        read_plan(tmp_path / "plan.json")


def test_a_fault_strikes_when_its_trigger_is_met_and_a_schedule_repeats_its_time(tmp_path):
    """The follower's power fails between the proposal to let it in and its arrival: M10 lets in a log without its end."""
    _, known = conduct_simulated(plan_of("exact-stale-join", 2, ("m10_no_broker_epoch",)), tmp_path, Silent())

    assert known.invariant == "I9"
    power_loss = next(
        fault for fault in read_schedule(tmp_path / "schedule.jsonl").faults if fault.kind == "power-loss"
    )
    assert power_loss.when == Trigger(text="alter-partition request and |isr(p0)| = 2", conditions=())
    assert Waiting(
        power_loss.when, SeenCluster(isr=(1,)), "t"
    ).is_met  # whatever the cluster is like: not when it is whole
    assert power_loss.not_before_ms > 3_000
    lines = [msgspec.json.decode(line) for line in (tmp_path / "schedule.jsonl").read_bytes().splitlines()]
    assert {line["when"] for line in lines if line["kind"] == "power-loss"} == {
        "alter-partition request and |isr(p0)| = 2"
    }
