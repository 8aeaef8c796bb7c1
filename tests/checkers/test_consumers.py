"""Consumers' positions, in pairs: asked on where it should, and not."""

from pathlib import Path
from typing import Any

import pytest

from tests.checkers.recorded import MS, Run
from tests.checkers.test_sql import agree
from tribunal.checkers.judge import engine


def facts(run_dir: Path) -> list[tuple[str, str, int | None]]:
    found = [row.finding for row in engine.judge_runs([run_dir], "inline").findings]
    return [(one.kind, one.severity, one.log_offset) for one in found if one.property_name == "consumers"]


@pytest.mark.parametrize(
    ("second", "found"),
    [
        pytest.param([2, 3], [], id="where the first poll ended"),
        pytest.param([3], [("skipped", "violation", 2)], id="beyond a record"),
        pytest.param([1, 2], [("rewound", "violation", 1)], id="at one it had already"),
    ],
)
def test_a_consumer_goes_on_where_it_was(tmp_path: Path, second: list[int], found: list[object]) -> None:
    run = Run(tmp_path / "run")
    values = dict(enumerate(run.send(sequence, 100 + sequence) for sequence in range(4)))
    run.read({0: values[0], 1: values[1]}, 200)
    run.read({offset: values[offset] for offset in second}, 300)
    run.final_read(dict(values))

    assert facts(run.finish()) == found


def test_a_transaction_marker_is_not_skipped(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    values = {offset: run.send(offset, 100 + offset) for offset in (0, 1, 3)}
    run.read({0: values[0], 1: values[1]}, 200)
    run.read({3: values[3]}, 300)
    run.final_read(dict(values))

    assert facts(run.finish()) == []


def test_two_consumers_are_not_compared(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    values = dict(enumerate(run.send(sequence, 100 + sequence) for sequence in range(4)))
    run.read({2: values[2], 3: values[3]}, 200, process=90)
    run.read({0: values[0], 1: values[1]}, 300, process=91)
    run.final_read(dict(values))

    assert facts(run.finish()) == []


@pytest.mark.parametrize(("kind", "column", "isolation"), [
    ("unexposed", "high_watermark", "read_uncommitted"),
    ("unstable", "last_stable_offset", "read_committed"),
])  # fmt: skip
@pytest.mark.parametrize(("answer", "seen", "beyond"), [
    pytest.param({}, {}, [1, 2], id="beyond the answer's own end, and who asked later was shown it still"),
    pytest.param({"process": 50}, {}, [1, 2], id="in a group"),
    pytest.param({"end": 3}, {}, [], id="below it"),
    pytest.param({"epoch": 1}, {}, [], id="an answer of another leader epoch"),
    pytest.param({"epoch": None}, {}, [], id="nobody knows of which"),
    pytest.param({"end": None}, {}, [], id="nobody knows what it showed"),
    pytest.param({}, {"end": 3}, [], id="it had moved by then"),
    pytest.param({}, {"end": 2}, [2], id="it had moved, and not so far"),
    pytest.param({}, {"asked": 299}, [], id="who asked before may have been answered before"),
    pytest.param({}, {"asked": None}, [], id="nobody knows when it was asked"),
    pytest.param({}, {"epoch": 1}, [], id="shown in another leader epoch"),
    pytest.param({}, {"by": 2}, [], id="by a follower"),
    pytest.param({}, {"node": 1, "at": 800}, [1, 2], id="by the leader's journal"),
    pytest.param({}, {"node": 1, "at": 799}, [], id="by its journal, whose clock may be ahead"),
    pytest.param({}, {"node": 2, "at": 800}, [], id="by a follower's"),
])  # fmt: skip
def test_nobody_receives_what_lies_beyond_the_end_that_is_shown(
    tmp_path: Path,
    kind: str,
    column: str,
    isolation: str,
    answer: dict[str, Any],
    seen: dict[str, Any],
    beyond: list[int],
) -> None:
    run = Run(tmp_path / "run")
    values = dict(enumerate(run.send(sequence, 100 + sequence) for sequence in range(3)))
    process, epoch = answer.get("process", 90), answer.get("epoch", 0)
    ends = {"high_watermark": 3, "last_stable_offset": 3} | {column: answer.get("end", 1)}
    run.poll(process, "tail", 0, 3, 300, isolation=isolation, leader_epoch=epoch, answered_by=1, **ends)
    for offset, value in values.items():
        place = {"topic": "t", "partition": 0, "log_offset": offset, "value": value, "leader_epoch": 0}
        run.recorder.row("reads", process=process, poll_index=run.polls - 1, phase="tail", **place)
    place = {"topic": "t", "partition": 0, "leader_epoch": seen.get("epoch", 0), column: seen.get("end", 1)}
    if "node" in seen:
        run.recorder.row("watermarks", observer=f"node-{seen['node']}", source="node", at_ns=seen["at"] * MS, **place)
    else:
        asked_ns = None if seen.get("asked", 300) is None else seen.get("asked", 300) * MS
        times = {"asked_ns": asked_ns, "at_ns": 700 * MS}
        run.recorder.row("watermarks", observer="c", source="fetch", answered_by=seen.get("by", 1), **times, **place)
    if process == 50:
        row = {"group": "g", "topic": "t", "partition": 0, "kind": "commit", "outcome": "ok", "committed_offset": 1}
        run.recorder.row("commits", process=50, **row, invoke_ns=500 * MS, complete_ns=501 * MS)
    run.final_read(dict(values))

    assert facts(run.finish()) == [(kind, "violation", offset) for offset in beyond]
    assert agree(run.run_dir, "consumers")[kind] == len(beyond)


@pytest.mark.parametrize(("at", "lasts", "expected"), [
    pytest.param(400, 0, 1, id="the answer had come before anybody sent it"),
    pytest.param(400, 99, 1, id="just before"),
    pytest.param(400, 100, 0, id="at that very moment"),
    pytest.param(400, 200, 0, id="it was sent while the consumer waited"),
    pytest.param(600, 0, 0, id="later"),
])  # fmt: skip
@pytest.mark.parametrize("outcome", ["ok", "info"])
def test_nobody_receives_what_is_not_sent_yet(tmp_path: Path, at: int, lasts: int, expected: int, outcome: str) -> None:
    run = Run(tmp_path / "run")
    value = run.send(0, 500, outcome=outcome, log_offset=0 if outcome == "ok" else None)
    run.read({0: value}, at, lasts=lasts)
    run.final_read({0: value})

    assert facts(run.finish()) == [("read_before_sent", "violation", 0)] * expected
    assert agree(run.run_dir, "consumers")["read_before_sent"] == expected


def test_when_an_answer_came_that_nobody_timed_is_not_known(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    value = run.send(0, 500)
    place = {"process": 90, "poll_index": 0, "topic": "t", "partition": 0}
    asked = {"isolation": "read_uncommitted", "phase": "tail", "position": 0, "record_count": 1}
    run.recorder.row("polls", **place, **asked, invoke_ns=400 * MS, complete_ns=None, outcome="info", high_watermark=1)
    run.recorder.row("reads", **place, log_offset=0, value=value, phase="tail")

    assert facts(run.finish()) == []
    assert agree(run.run_dir, "consumers") == {}
