"""Scenario files: what they may say, and how a wrong one is answered."""

import pytest

from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.catalog import SCENARIOS, Unknown, scenario_file
from tribunal.harness.plan import made
from tribunal.harness.scenario import BadScenario, Duration, duration, load, parsed

READ_AT_A_GLANCE = 25  # lines of one of ours
MINIMAL = """\
scenario: small
workload: produce-consume
steps:
  - {kill: random broker, for: 1s}
"""


def loaded(tmp_path, text, **overrides):
    path = tmp_path / "small.yaml"
    path.write_text(text)
    return load(path, overrides)


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_shipped_scenario_is_sound_and_short(path):
    assert load(path, {}).name == path.stem
    assert len(path.read_text().splitlines()) <= READ_AT_A_GLANCE


def test_a_users_own_may_be_as_long_as_it_has_to_be(tmp_path):
    steps = "".join(f"  - {{kill: broker {number % 3 + 1}, after: {number}ms}}\n" for number in range(40))

    assert len(loaded(tmp_path, MINIMAL.partition("steps:")[0] + f"steps:\n{steps}").steps) == 40


def test_a_small_scenario_has_defaults(tmp_path):
    scenario = loaded(tmp_path, MINIMAL)

    assert scenario.spec == ClusterSpec()
    assert scenario.steps[0].lasts == Duration(1_000, 1_000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("300ms", Duration(300, 300), id="milliseconds"),
        pytest.param("2.5s", Duration(2_500, 2_500), id="seconds"),
        pytest.param("1m", Duration(60_000, 60_000), id="minutes"),
        pytest.param("1..2s", Duration(1_000, 2_000), id="range"),
        pytest.param("0.5..1.5x session", Duration(900, 2_700), id="of a time-out"),
    ],
)
def test_durations(text, expected):
    assert duration(text, ClusterSpec()) == expected


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        pytest.param("kill:", "kil:", "unknown fault 'kil'; did you mean kill", id="fault"),
        pytest.param("for: 1s", "fro: 1s", "unknown option of kill: 'fro'", id="option of a fault"),
        pytest.param("random broker", "leader(p9)", "partitions p0 to p5", id="partition"),
        pytest.param("random broker", "broker 9", "brokers of this cluster are 1, 2, 3", id="node"),
        pytest.param("random broker", "somebody", "is none of", id="target"),
        pytest.param("1s", "soon", "duration 'soon'", id="duration"),
        pytest.param("1s", "2..1s", "backwards", id="range"),
        pytest.param("1s", "1x sesion", "did you mean session", id="time-out"),
        pytest.param("workload: produce-consume", "workload: produce", "unknown workload 'produce'", id="workload"),
        pytest.param("scenario:", "scenari:", "unknown word 'scenari'; did you mean scenario", id="word"),
        pytest.param("workload: produce-consume\n", "", "'workload' is missing", id="missing"),
        pytest.param("scenario: small", "cluster: {brokers: 2}", "3 replicas on 2 brokers", id="replicas"),
        pytest.param("scenario: small", "cluster: {profile: cii}", "did you mean ci", id="profile"),
        pytest.param("scenario: small", "cluster: {broker: 3}", "did you mean brokers", id="option of a cluster"),
        pytest.param(
            "scenario: small", "cluster: {settings: {min.isync.replicas: 1}}", "did you mean min.insync", id="setting"
        ),
        pytest.param(
            "scenario: small", "cluster: {settings: {min.insync.replicas: 0}}", "must be at least 1: 0", id="value"
        ),
        pytest.param(
            "scenario: small",
            "cluster: {settings: {min.insync.replicas: ~}}",
            "'min.insync.replicas' must be int, not None",
            id="a setting without a value",
        ),
        pytest.param("steps:", "order: random\nsteps:", "use fixed or shuffled", id="order"),
        pytest.param(
            "workload: produce-consume",
            "workload: {name: produce-consume, rate: 0}",
            "workload produce-consume: rate: a whole number >= 1 is needed",
            id="no load",
        ),
        pytest.param("scenario: small", "scenario: [", "not YAML", id="not YAML"),
        pytest.param("scenario: small", "on: 1", "unknown word 'True'", id="a word that YAML takes for true"),
        pytest.param("scenario: small", "~: 1", "unknown word 'None'", id="a word that YAML takes for nothing"),
        pytest.param("scenario: small", "scenario: ../small", "without /", id="name with a way in it"),
        pytest.param("scenario: small", "scenario: " + "ö" * 60, "at most 100 bytes", id="name too long"),
        pytest.param("scenario: small", "scenario: ''", "a name of", id="no name"),
        pytest.param(
            "scenario: small\n", "scenario: small\n" + "# \n" * 10_000, "more than 10000 lines", id="too long"
        ),
    ],
)
def test_a_wrong_scenario_is_answered_in_one_line(tmp_path, old, new, reason):
    text = MINIMAL.replace(old, new)
    if "scenario" not in text:
        text += "scenario: small\n"

    with pytest.raises(BadScenario, match=reason.replace("(", r"\(").replace(")", r"\)")) as caught:
        loaded(tmp_path, text)

    assert "\n" not in str(caught.value)


def test_what_yaml_says_by_aliases_is_not_copied_for_each_of_them():
    """Else ten lines of YAML take all memory."""
    found = parsed("a: &x [1, 2]\nb: [*x, *x]", "here")

    assert found == {"a": [1, 2], "b": [[1, 2], [1, 2]]}
    assert found["b"][0] is found["a"]
    assert found["b"][1] is found["a"]


def test_what_yaml_has_beyond_json_becomes_what_json_has():
    text = "2: 2026-11-22\ntrue: !!set {y, x}\nbytes: !!binary aGk=\npairs: !!pairs [k: 1]"

    assert parsed(text, "here") == {"2": "2026-11-22", "True": ["x", "y"], "bytes": "aGk=", "pairs": [["k", 1]]}


def test_settings_override_the_file(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(MINIMAL)

    scenario = load(path, {"workload.rate": "50", "time": "10s", "cluster.settings.broker.session.timeout.ms": "1000"})

    assert scenario.workload_options["rate"] == 50
    assert scenario.time_ms == 10_000
    assert scenario.spec.timeout_ms("broker.session.timeout.ms") == 1_000


@pytest.mark.parametrize("workload", ["produce_consume", "{name: produce_consume, rate: 50}"])
def test_names_written_with_underscores_become_those_that_are_known(tmp_path, workload):
    """Whoever runs a plan looks up its names as they are written there."""
    text = MINIMAL.replace("kill:", "power_loss:").replace("produce-consume", workload)

    plan = made(loaded(tmp_path, text), seed=1, cluster="apache_kafka", time_ms=None, mutants=())

    assert {fault.kind for fault in plan.faults} == {"power-loss"}
    assert (plan.workload, plan.cluster) == ("produce-consume", "apache-kafka")


def test_an_unknown_scenario_names_near_ones():
    with pytest.raises(Unknown, match="did you mean produce-consume"):
        scenario_file("produce-consum")


def test_a_part_of_the_list_of_steps_cannot_be_set(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(MINIMAL)

    with pytest.raises(BadScenario, match="'steps' is a list"):
        load(path, {"steps.0": "1"})
