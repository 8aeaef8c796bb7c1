"""Thin adapter: the smallest recordings, good neighbour beside bad, against all properties of `tribunal.checkers`."""

from pathlib import Path
from typing import Any

import pytest

from tests.cases.cases import load, only
from tests.checkers.recorded import Run
from tribunal.checkers.api import properties
from tribunal.checkers.judge.engine import judge_runs
from tribunal.results.values import value_of

EVENTS = {
    "change", "fault", "final_read", "log", "metadata", "node", "phase", "poll", "read", "registered", "row", "send", "watermark",
}  # fmt: skip
WITH_RECORDS = {"final_read", "log", "read"}


def record(run: Run, event: dict[str, Any]) -> None:
    ((name, said),) = only(event, EVENTS, "event").items()
    if name == "row":
        run.recorder.row(said["table"], **{column: value for column, value in said.items() if column != "table"})
        return
    if name in WITH_RECORDS:
        values = {offset: None if n is None else value_of(7, n) for offset, n in said["records"].items()}
        said = said | {"records": values}
    getattr(run, name)(**said)


@pytest.mark.parametrize("case", load("recordings", more_keys=frozenset({"property", "events"})))
def test_recording(case: dict[str, Any], tmp_path: Path) -> None:
    run = Run(tmp_path / "run", **(case.get("given") or {}))
    for event in case["events"]:
        record(run, event)

    tables = judge_runs([run.finish()], "inline")

    assert (tables.damages, tables.failures) == ([], [])
    found = [row.finding for row in tables.findings if row.finding.property_name == case["property"]]
    assert sorted(f"{one.kind} {one.rule or one.severity}" for one in found) == sorted(case["then"])


def test_every_kind_that_is_judged_here_has_a_bad_and_a_good_neighbour() -> None:
    cases = [parameter.values[0] for parameter in load("recordings", more_keys=frozenset({"property", "events"}))]
    for name in {case["property"] for case in cases}:
        own = [case for case in cases if case["property"] == name]
        said = {word.split()[0] for case in own for word in case["then"]}

        assert said <= properties()[name].kinds.keys()
        assert any(not case["then"] for case in own), name
