"""Triggers: what they may say, how a wrong one is answered, and when they are met."""

import msgspec
import pytest
from msgspec.structs import replace

from tribunal.clusters.api import ClusterState, PartitionState, TopicPartition
from tribunal.clusters.capabilities import Capability
from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.campaign.confirm import on_kind
from tribunal.harness.campaign.mutation_score import plan_of
from tribunal.harness.catalog import all_clusters
from tribunal.harness.plan import encoded, made, read_plan, read_schedule
from tribunal.harness.progress import Silent
from tribunal.harness.scenario import BadScenario, scenario
from tribunal.harness.simulated import conduct_simulated
from tribunal.nemesis.messages import APIS, OF_SOME_CLIENTS
from tribunal.nemesis.triggers import BadTrigger, Trigger, Waiting, never_met, parse_trigger

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


def waiting_for(when, *, workload="produce-consume", **cluster):
    return scenario(a_scenario({"kill": "broker 1", "when": when}, workload=workload, cluster=cluster))


NO_ELR = {"settings": {"eligible.leader.replicas.enable": False}}
TWO_REPLICAS = {"replication_factor": 2}


@pytest.mark.parametrize(
    ("when", "cluster", "reason"),
    [
        pytest.param("elr(p0) = {2}", NO_ELR, "no ELR here", id="elr without ELR"),
        pytest.param("|elr(p0)| >= 1", {"mode": "zookeeper"}, "no ELR here", id="elr in ZooKeeper mode"),
        pytest.param("elr(p0) = {leader}", {}, "never in the ELR", id="leader in the elr"),
        pytest.param("isr(p0) = {1, 2, 3}", TWO_REPLICAS, "have 2 replicas", id="isr beyond the replicas"),
        pytest.param("end-txn answer", {}, "have no transactions", id="a message of transactions"),
        pytest.param("join-group request x2", {}, "have no groups", id="a message of groups"),
        pytest.param("txn-offset-commit request", {}, "transactions with groups", id="a message of both"),
    ],
)
def test_a_scenario_that_waits_for_what_never_comes_is_refused(when, cluster, reason):
    with pytest.raises(ValueError, match=f"step 1: .*{reason}"):
        waiting_for(when, **cluster)


@pytest.mark.parametrize(
    ("when", "said"),
    [
        pytest.param("elr(p0) = {}", NO_ELR, id="an empty elr is one without ELR, too"),
        pytest.param("|elr(p0)| >= 1", {}, id="elr with ELR"),
        pytest.param("isr(p0) = {1, 2}", TWO_REPLICAS, id="as many as replicas"),
        pytest.param("isr(p0) = {leader, 2}", {"replication_factor": 2}, id="the leader and another"),
        pytest.param("end-txn answer", {"workload": "transactions"}, id="transactions"),
        pytest.param("txn-offset-commit request", {"workload": "exactly-once"}, id="transactions with groups"),
        pytest.param("join-group request", {"workload": "operator"}, id="of a workload that does not say"),
        pytest.param("init-producer-id answer", {}, id="idempotent producers"),
        pytest.param("alter-partition request", {}, id="of nodes"),
    ],
)
def test_its_neighbour_that_may_come_is_not(when, said):
    assert waiting_for(when, **said).steps[0].when.text == when


def test_a_system_without_records_has_nothing_that_a_trigger_waits_for():
    assert "has no partitions" in never_met(
        parse_trigger("|isr(p0)| < 2", ClusterSpec(), 1), ClusterSpec(system="a.toml")
    )


def test_a_target_of_a_message_that_nobody_sends_is_refused():
    with pytest.raises(ValueError, match="nobody sends end-txn"):
        scenario(a_scenario({"kill": "sender(end-txn answer)"}))
    assert scenario(a_scenario({"kill": "sender(end-txn answer)"}, workload="bank"))


def test_what_clusters_call_messages_of_some_clients_are_messages():
    assert OF_SOME_CLIENTS.keys() <= APIS.keys()


@pytest.mark.parametrize("step", [{"pause": "sender(vote answer)"}, {"pause": "broker 1", "until": "vote answer"}])
def test_where_nobody_sees_messages_nobody_waits_for_them(step, monkeypatch):
    blind = {"simulated": replace(all_clusters()["simulated"], capabilities=frozenset({Capability.PAUSE}))}
    content = scenario(a_scenario(step))
    assert made(content, seed=1, cluster="simulated", time_ms=None, mutants=()).faults

    monkeypatch.setattr("tribunal.harness.plan.all_clusters", lambda: blind)
    with pytest.raises(BadScenario, match="does not see its nodes' messages"):
        made(content, seed=1, cluster="simulated", time_ms=None, mutants=())


def test_a_plan_that_waits_for_messages_is_confirmed_where_somebody_sees_them(monkeypatch):
    step = {"pause": "broker 1", "when": "vote answer"}
    plan = made(scenario(a_scenario(step)), seed=1, cluster="simulated", time_ms=None, mutants=())

    assert on_kind(plan, "processes").cluster == "processes"

    known = all_clusters()["processes"]
    blind = {"processes": replace(known, capabilities=known.capabilities - {Capability.ADD_RULE})}
    monkeypatch.setattr("tribunal.harness.plan.all_clusters", lambda: blind)
    with pytest.raises(BadScenario, match="does not see its nodes' messages"):
        on_kind(plan, "processes")


def test_a_plan_has_its_triggers_with_the_partition_that_was_drawn(tmp_path):
    step = {"kill": "leader(p*)", "when": "isr(p*) = {leader}", "until": "end-txn answer x2"}

    plan = made(
        scenario(a_scenario(step, workload="transactions")), seed=3, cluster="processes", time_ms=None, mutants=()
    )
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
    plan = made(
        scenario(a_scenario(step, workload="transactions")), seed=3, cluster="processes", time_ms=None, mutants=()
    )
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
