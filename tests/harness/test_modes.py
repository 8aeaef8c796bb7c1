"""A scenario says in which modes its faults bite; the other mode is refused before anything starts."""

import pytest

from tribunal.harness.catalog import scenario_file
from tribunal.harness.scenario import BadScenario, load, scenario

CONTENT = {"scenario": "small", "workload": "produce-consume", "steps": [{"kill": "leader(p0)", "for": "1s"}]}


def test_without_the_word_both_modes_are_taken() -> None:
    for mode in ("kraft", "zookeeper"):
        assert scenario({**CONTENT, "cluster": {"mode": mode}}).spec.mode == mode


def test_a_mode_that_is_listed_is_taken() -> None:
    assert scenario({**CONTENT, "modes": ["zookeeper"], "cluster": {"mode": "zookeeper"}}).spec.mode == "zookeeper"


@pytest.mark.parametrize("name", ["raised-min-isr", "removed-leader", "unheard-proposal"])
def test_scenarios_about_late_metadata_are_refused_where_controllers_send_them(name: str) -> None:
    assert load(scenario_file(name), {}).spec.mode == "kraft"
    with pytest.raises(BadScenario, match=f"{name}.yaml: its faults do not bite in mode zookeeper: use --mode kraft"):
        load(scenario_file(name), {"cluster.mode": "zookeeper"})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        pytest.param("kraft", "modes is 'kraft': list one or more of", id="no list"),
        pytest.param([], "modes is", id="empty"),
        pytest.param(["raft"], "raft", id="unknown"),
    ],
)
def test_a_bad_list_is_named(given: list[str] | str, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        scenario({**CONTENT, "modes": given})
