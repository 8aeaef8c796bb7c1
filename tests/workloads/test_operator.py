"""Operators beside a workload: what they order is recorded by the topic that it was about, and the judge follows it."""

from pathlib import Path
from typing import Any

import pytest

from tribunal.harness.campaign.mutation_score import plan_of
from tribunal.harness.campaign.sweep import swept
from tribunal.harness.plan import made
from tribunal.harness.progress import Silent
from tribunal.harness.scenario import load, scenario
from tribunal.harness.simulated import conduct_simulated
from tribunal.results.store import Recording
from tribunal.results.topic_names import TopicNames
from tribunal.results.verdict import Verdict

FINE = (Verdict.PASS, Verdict.PERMITTED)
QUIET = """\
scenario: quiet
cluster: {settings: {log.retention.check.interval.ms: 1000}}
workload: {name: produce-consume, partitions: 2, rate: 40, readers: 1}
beside: [{name: operator, pause_ms: 120, rate: 40}]
time: 5s
steps:
  - {kill: leader(p0), for: 1.2x session}
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    folder = tmp_path_factory.mktemp("operator")
    (folder / "quiet.yaml").write_text(QUIET)
    plan = made(load(folder / "quiet.yaml", {}), seed=1, cluster="simulated", time_ms=None, mutants=())
    (folder / "run").mkdir()
    ending, known = conduct_simulated(plan, folder / "run", Silent())
    assert (ending.failure, known.violation) == (None, None)
    return Recording.open(folder / "run")


def rows(recorded: Recording, table: str, **wanted: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = recorded.table(table).to_pylist()
    return [row for row in found if all(row[name] == value for name, value in wanted.items())]


def test_orders_are_written_down_with_what_became_of_them(recorded: Recording) -> None:
    done = {row["api"] for row in rows(recorded, "admin", outcome="ok")}

    assert {"delete_topic", "create_topic", "delete_records", "set_config", "reassign"} <= done


def test_a_topic_made_anew_is_another_place_in_every_table(recorded: Recording) -> None:
    ids = {row["topic"]: row["topic_id"] for row in rows(recorded, "metadata", record_type="TopicRecord")}
    again = next(name for name in ids if name.endswith("@2"))
    first = again.removesuffix("@2")

    assert ids[again] != ids[first]
    for table in ("sends", "reads", "watermarks"):
        assert {again, first} <= {row["topic"] for row in rows(recorded, table)}
    assert {row["topic_id"] for row in rows(recorded, "admin", topic=again)} == {ids[again]}
    removed = {row["topic"] for row in rows(recorded, "metadata", record_type="RemoveTopicRecord")}
    assert removed == {row["topic"] for row in rows(recorded, "admin", api="delete_topic", outcome="ok")}
    # Whoever sends to the one sends nothing to the other.
    senders = [{row["process"] for row in rows(recorded, "sends", topic=name)} for name in (first, again)]
    assert senders[0].isdisjoint(senders[1])


def test_what_operators_set_is_put_back_in_the_end(recorded: Recording) -> None:
    last = {(row["topic"], row["setting"]): row["value"] for row in rows(recorded, "admin", api="set_config")}
    removed = {row["topic"] for row in rows(recorded, "metadata", record_type="RemoveTopicRecord")}

    assert last
    assert {name: value for name, value in last.items() if name[0] not in removed} == {
        name: None for name in last if name[0] not in removed
    }


def test_topics_of_one_name_are_distinguished_by_their_ids() -> None:
    names = TopicNames()

    assert [names.of("t", one) for one in ("a", "b", "a", "c", None)] == ["t", "t@2", "t", "t@3", "t"]


@pytest.mark.parametrize(("beside", "reason"), [
    pytest.param("operator", "'beside' is a list", id="no list"),
    pytest.param(["operator", "operator"], "workload operator runs already", id="twice"),
    pytest.param(["produce-consume"], "workload produce-consume runs already", id="the first one again"),
    pytest.param(["operatr"], "operator", id="unknown"),
])  # fmt: skip
def test_what_runs_beside_is_checked_when_the_scenario_is_read(beside: Any, reason: str) -> None:
    with pytest.raises((ValueError, TypeError), match=reason):
        scenario({"scenario": "x", "workload": "produce-consume", "beside": beside, "steps": []})


@pytest.mark.nightly
def test_its_scenario_breaks_no_promise(tmp_path: Path) -> None:
    results = swept(
        (plan_of("operator", seed, ()) for seed in range(20)), jobs=2, budget_s=None, scratch=tmp_path
    ).results

    assert [(result.seed, result.reasons) for result in results if result.verdict not in FINE] == []
