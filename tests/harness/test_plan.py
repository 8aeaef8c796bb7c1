"""A plan is its seed's: same in, same bytes out."""

import re

import msgspec
import pytest
from msgspec.structs import replace

from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.catalog import scenario_file
from tribunal.harness.cli.main import exit_code
from tribunal.harness.plan import ExecutedFault, encoded, made, read_plan, read_schedule
from tribunal.harness.scenario import BadScenario, load, scenario
from tribunal.nemesis.targets import Target


def a_plan(seed, *, time_ms=None, mutants=()):
    scenario = load(scenario_file("produce-consume"), {})
    return made(scenario, seed=seed, cluster="processes", time_ms=time_ms, mutants=mutants)


def test_one_seed_gives_the_same_bytes():
    assert encoded(a_plan(7)) == encoded(a_plan(7))


def test_another_seed_gives_other_choices():
    first, second = a_plan(7), a_plan(8)

    assert first.faults != second.faults
    assert first.cluster_id != second.cluster_id
    assert first.workload_plan != second.workload_plan


def test_every_fault_of_the_scenario_comes_in_the_first_round():
    kinds = sorted(fault.kind for fault in a_plan(3).faults if fault.must)

    assert kinds == ["isolate", "isolate", "kill", "pause", "wipe"]


def test_more_time_brings_more_rounds_that_need_not_be():
    short, long = a_plan(3, time_ms=10_000), a_plan(3, time_ms=120_000)

    assert long.faults[: len(short.faults)] == short.faults
    assert len(long.faults) > 2 * len(short.faults)
    assert not long.faults[-1].must


def test_a_mutant_changes_nothing_else():
    plain, mutated = a_plan(3), a_plan(3, mutants=("m44_acks_local",))

    assert mutated.spec.mutants == ("m44_acks_local",)
    assert mutated.faults == plain.faults


def test_a_plan_is_read_back_as_it_was(tmp_path):
    path = tmp_path / "plan.json"
    path.write_bytes(encoded(a_plan(5)))

    assert encoded(read_plan(path)) == encoded(a_plan(5))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"{", "not a plan", id="torn"),
        pytest.param(b"[]", "not a plan", id="something else"),
        pytest.param(encoded(a_plan(5)).replace(b'"plan_version": 1', b'"plan_version": 9'), "version 9", id="newer"),
    ],
)
def test_what_is_no_plan_is_refused_in_one_line(tmp_path, content, reason):
    path = tmp_path / "plan.json"
    path.write_bytes(content)

    with pytest.raises(BadScenario, match=reason):
        read_plan(path)


def with_fault(**changes):
    first, *others = a_plan(5).faults
    return encoded(replace(a_plan(5), faults=(replace(first, **changes), *others)))


def with_words(old, new):
    content = encoded(a_plan(5))
    assert old in content
    return content.replace(old, new, 1)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(with_words(b'"cluster": "processes"', b'"cluster": "../../etc"'), "cluster", id="kind of cluster"),
        pytest.param(with_words(b'"kind": "kill"', b'"kind": "killl"'), "kill", id="fault"),
        pytest.param(with_words(b'"mutants": []', b'"mutants": ["..os"]'), "mutant", id="mutant"),
        pytest.param(with_words(b'"cluster_id": "', b'"cluster_id": "\\n../'), "cluster_id", id="id of the cluster"),
        pytest.param(with_words(b'"brokers": 3', b'"brokers": 100000'), "1 to 99 brokers", id="too many brokers"),
        pytest.param(with_words(b'"brokers": 3', b'"brokers": -1'), "1 to 99 brokers", id="fewer than none"),
        pytest.param(with_words(b'"profile": "ci"', b'"profile": "x"'), "profile", id="profile"),
        pytest.param(with_words(b'"version": ""', b'"version": "x"'), "version", id="release"),
        pytest.param(with_words(b'"base_port": null', b'"base_port": 70000'), "port", id="port"),
        pytest.param(with_words(b'"mode": "kraft"', b'"mode": "zookeeper"'), "mode", id="two modes"),
        pytest.param(with_fault(options={"becaus": 1}), "options: unknown field `becaus`", id="options of no fault"),
        pytest.param(with_fault(target=Target(text="lead(p0)", partition=0, pick=0.0)), "'lead(p0)'", id="target"),
        pytest.param(with_fault(target=Target(text="leader(p*)", partition=None, pick=0.0)), "partition", id="which"),
        pytest.param(with_fault(target=Target(text="random broker", partition=None, pick=1.0)), "pick", id="pick"),
        pytest.param(with_fault(index=1 << 40), f"fault {1 << 40} (", id="an index that no column holds"),
        pytest.param(with_fault(index=-1), "fault -1 (", id="a negative index"),
        pytest.param(with_fault(index=1), "another one has this index", id="two of one index"),
        pytest.param(
            with_fault(kind="rolling-upgrade", options={"settings": {"log.dirs": ["/etc"]}}),
            "log.dirs is chosen by the run itself",
            id="settings that a fault gives to nodes",
        ),
        pytest.param(
            with_words(b'"controllers": 3', b'"controllers": 0').replace(b'"kafka": []', b'"kafka": [7]'),
            "0 controllers",
            id="no controllers",
        ),
        pytest.param(
            with_words(b'"min_insync_replicas": 2', b'"min_insync_replicas": 0'), "min_insync_replicas", id="min isr"
        ),
        *(
            pytest.param(with_words(b'"topic": "produce-consume"', f'"topic": "{name}"'.encode()), why, id=name)
            for name, why in (
                ("__consumer_offsets", "'__consumer_offsets': brokers keep it for themselves"),
                ("__transaction_state", "nobody produces to it"),
                ("__cluster_metadata", "nobody produces to it"),
                ("..", "no topic's name"),
                ("a/b", "no topic's name"),
            )
        ),
        *(
            pytest.param(
                encoded(replace(a_plan(5), spec=replace(a_plan(5).spec, settings={name: "/etc/cron.d/x"}))),
                name,
                id=name,
            )
            for name in ("tribunal.events.file", "tribunal.undo.journal", "tribunal.control.page", "metadata.log.dir")
        ),
    ],
)
def test_a_plan_of_anybody_is_checked_before_anything_is_made(tmp_path, content, reason):
    path = tmp_path / "plan.json"
    path.write_bytes(content)

    with pytest.raises(BadScenario, match=re.escape(reason)):
        read_plan(path)
    assert exit_code(["run", "--plan", str(path), "--out", str(tmp_path / "runs")]) == 64
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("setting", ["log.dirs=[/etc]", "tribunal.events.file=/etc/cron.d/x", "node.id=7"])
def test_a_scenario_may_not_say_where_nodes_write(tmp_path, capsys, setting):
    order = ["run", "produce-consume", "--set", f"cluster.settings.{setting}", "--out", str(tmp_path / "runs")]

    assert exit_code(order) == 64
    assert "is chosen by the run itself" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


WRITES = {"scenario": "s", "workload": "produce-consume", "cluster": {"mode": "zookeeper"}}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        pytest.param({"log.dirs": ["/etc"]}, "log.dirs is chosen by the run itself", id="where it writes"),
        pytest.param({"node.id": 7}, "node.id is chosen by the run itself", id="who it is"),
        pytest.param({"leader.recovry": "on"}, "leader.recovery", id="a setting that there is not"),
        pytest.param({"leader.recovery": "perhaps"}, "leader.recovery", id="a value that it cannot have"),
        pytest.param({"leader.recovery": "on"}, None, id="a setting of an upgrade"),
    ],
)
def test_a_fault_may_give_nodes_the_settings_that_a_cluster_may_have(settings, reason):
    given = {**WRITES, "steps": [{"rolling-upgrade": "random broker", "settings": settings}]}

    if reason is None:
        assert scenario(given).steps[0].options == {"settings": settings}
    else:
        with pytest.raises(ValueError, match=reason):
            scenario(given)


@pytest.mark.parametrize(
    ("cluster", "reason"),
    [
        pytest.param({"controllers": 0, "kafka": [7]}, "0 controllers cannot be", id="no controllers"),
        pytest.param({"kafka": [7]}, "brokers are 1 to 3, controllers 101 to 103", id="no such node"),
        pytest.param({"min_insync_replicas": 0}, "min_insync_replicas is 0", id="min isr 0"),
        pytest.param({"mutants": ["M999"]}, "unknown mutant 'M999'", id="no such mutant"),
        pytest.param({"own_broker_ids": [5, 6]}, "own_broker_ids is said by the file", id="ids of another cluster"),
        pytest.param({"promises": {"starts_after.kill": False}}, "promises is said by the file", id="promises"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused_in_one_line(cluster, reason):
    """Each of them ended in a traceback, or after the time in which a cluster has to come up."""
    with pytest.raises(ValueError, match=re.escape(reason)):
        scenario({"scenario": "s", "workload": "produce-consume", "steps": [], "cluster": cluster})


def test_a_scenario_names_mutants_as_the_command_line_does():
    found = scenario({"scenario": "s", "workload": "produce-consume", "steps": [], "cluster": {"mutants": ["M44"]}})

    assert found.spec.mutants == ("m44_acks_local",)


def test_an_executed_schedule_runs_again_on_the_same_nodes_at_the_same_times(tmp_path):
    (tmp_path / "plan.json").write_bytes(encoded(a_plan(5)))
    line = ExecutedFault(
        index=0,
        kind="isolate",
        planned_target="leader(p*)",
        resolved=2,
        role="broker",
        options={"from": "nodes"},
        started_ms=1_234,
        lasted_ms=2_000,
    )
    (tmp_path / "schedule.jsonl").write_bytes(msgspec.json.encode(line) + b"\n")

    again = read_schedule(tmp_path / "schedule.jsonl")

    (fault,) = again.faults
    assert fault.target == Target(text="broker 2", partition=None, pick=0.0)
    assert (fault.not_before_ms, fault.lasts_ms, fault.options) == (1_234, 2_000, {"from": "nodes"})
    assert again.seed == 5


def test_a_repeated_fault_lasts_as_long_as_it_was_planned_to(tmp_path):
    """How long one lasted includes how long its injection took: added to that of the repetition, all that follows came late."""
    plan = a_plan(5)
    (tmp_path / "plan.json").write_bytes(encoded(plan))
    lines = [
        ExecutedFault(
            index=fault.index,
            kind=fault.kind,
            planned_target=fault.target.text,
            resolved=1,
            role="broker",
            options=fault.options,
            started_ms=10_000 * fault.index,
            lasted_ms=fault.lasts_ms + 6_000,
        )
        for fault in plan.faults[:2]
    ]
    (tmp_path / "schedule.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, lines)))

    again = read_schedule(tmp_path / "schedule.jsonl")

    assert [fault.lasts_ms for fault in again.faults] == [fault.lasts_ms for fault in plan.faults[:2]]


def test_time_outs_of_the_ci_profile_fit_a_minute():
    spec = ClusterSpec()

    assert spec.timeout_ms("broker.session.timeout.ms") < 2_001
    assert ClusterSpec(profile="kafka-defaults").timeout_ms("broker.session.timeout.ms") == 9_000


@pytest.mark.parametrize(
    ("session_ms", "settings", "reason"),
    [
        (6_000, {}, None),
        (2_500, {}, "session_timeout_ms 2500 is below group.min.session.timeout.ms 6000"),
        (2_500, {"group.min.session.timeout.ms": 1_000}, None),
        (9_000, {"group.max.session.timeout.ms": 8_000}, "session_timeout_ms 9000 is above"),
    ],
)
@pytest.mark.parametrize("workload", ["consumer-group", "exactly-once"])
def test_a_session_that_no_node_grants_is_refused(workload, session_ms, settings, reason):
    """Nobody joined the group for the whole run, which was judged as a liveness violation of the nodes."""
    content = {
        "scenario": "s",
        "cluster": {"settings": settings},
        "workload": {"name": workload, "session_timeout_ms": session_ms},
        "steps": [],
    }

    def plan():
        return made(scenario(content), seed=1, cluster="simulated", time_ms=None, mutants=())

    if reason is None:
        plan()
    else:
        with pytest.raises(BadScenario, match=f"workload {workload}: {reason}"):
            plan()
