"""Who left the replicas and was added again has nothing of what it held, if it is known to have carried out the one before the other."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.checkers.recorded import MS, Run
from tests.checkers.test_ranges import cut_everything
from tests.checkers.test_small_recordings import BY_R4, LOST, TO_NODE_3, UNCLEAN
from tests.checkers.test_sql import agree
from tribunal.checkers.judge.engine import judge_runs

HEARTBEAT = 63
LEFT_AT, ADDED_AT = 1000, 3000
Step = Callable[[Run, int], None]


def says(node: int, at: int, *, behind_the_removal: int, api_key: int = HEARTBEAT, direction: str = "request") -> Step:
    """Let a node say how far it has carried out the metadata, counted from the record that took the replica away."""

    def step(run: Run, left: int) -> None:
        summary = json.dumps({"metadata_offset": left + behind_the_removal})
        ends = {"from": node, "to": 101, "fate": "delivered", "direction": direction}
        run.recorder.row("requests", **ends, api_key=api_key, at_ns=at * MS, summary=summary)

    return step


def starts(node: int, at: int, *log_dirs: str) -> Step:
    def step(run: Run, left: int) -> None:
        run.node(node, "killed", at - 100)
        run.node(node, "start", at - 50)
        epoch = run.metadata_offset
        row = {"node": node, "role": "broker", "event": "registered", "broker_epoch": epoch}
        run.recorder.row("nodes", **row, previous_broker_epoch=2, at_ns=at * MS)
        run.metadata("RegisterBrokerRecord", at, broker_id=node, broker_epoch=epoch, fenced=False, log_dirs=log_dirs)

    return step


def loses_directories(node: int, at: int, *left_over: str) -> Step:
    return lambda run, left: run.metadata("BrokerRegistrationChangeRecord", at, broker_id=node, log_dirs=left_over)


def joins(at: int) -> Step:
    return lambda run, left: run.change(at, isr=[1, 2, 3])


CARRIED_OUT = says(3, 1500, behind_the_removal=0)


def story(
    run: Run, meanwhile: list[Step], later: list[Step], *, away: list[int] | None = None, sent_at: int = 100
) -> Path:
    """Broker 3 leaves the replicas, is added again, and is elected uncleanly, which is allowed: nothing is there in the end."""
    run.node(3, "start", 0)
    if sent_at < ADDED_AT:
        run.send(0, sent_at)
    left = run.metadata_offset
    run.change(LEFT_AT, replicas=[1, 2] if away is None else away, isr=[1, 2])
    for step in meanwhile:
        step(run, left)
    run.change(ADDED_AT, replicas=[3, 1, 2], adding_replicas=[3])
    for step in later:
        step(run, left)
    if sent_at > ADDED_AT:
        run.send(0, sent_at)
    run.change(5000, **TO_NODE_3)
    run.final_read({}, at=9000)
    return run.finish()


def lost(run_dir: Path) -> list[tuple[Any, Any]]:
    findings = [row.finding for row in judge_runs([run_dir], "inline").findings]
    return [(one.severity, one.rule or "") for one in findings if one.kind == "lost"]


@pytest.mark.parametrize(("meanwhile", "later", "more", "expected"), [
    pytest.param([CARRIED_OUT], [], {}, BY_R4, id="it had carried out its removal"),
    pytest.param([says(3, 1500, behind_the_removal=-1)], [], {}, LOST, id="it never learned of it"),
    pytest.param([], [], {}, LOST, id="nobody knows"),
    pytest.param([says(2, 1500, behind_the_removal=0)], [], {}, LOST, id="another one had"),
    pytest.param([says(3, 1500, behind_the_removal=0, api_key=1)], [], {}, LOST, id="that was no heartbeat"),
    pytest.param([says(3, 1500, behind_the_removal=0, direction="response")], [], {}, LOST, id="that was an answer"),
    pytest.param([], [says(3, 3500, behind_the_removal=1)], {}, LOST, id="it learned of both at once"),
    pytest.param([], [says(3, 3500, behind_the_removal=0)], {}, LOST, id="it said so when it had been added again"),
    pytest.param([CARRIED_OUT], [joins(4000)], {}, LOST, id="it had the whole log again"),
    pytest.param([CARRIED_OUT], [joins(4000)], {"sent_at": 4500}, LOST, id="written when it was back"),
    pytest.param([CARRIED_OUT], [], {"away": [1, 2, 3]}, LOST, id="it was a replica all the time"),
    pytest.param([CARRIED_OUT, starts(3, 2000)], [], {}, LOST, id="that was its former process"),
    pytest.param([starts(3, 2000), says(3, 2500, behind_the_removal=1)], [], {}, BY_R4, id="its new process has"),
    pytest.param([starts(3, 2000), says(3, 2500, behind_the_removal=0)], [], {}, LOST, id="its new process reads on"),
    pytest.param([CARRIED_OUT], [starts(3, 4000)], {}, BY_R4, id="it started anew afterwards"),
    pytest.param([loses_directories(3, 500, "a"), CARRIED_OUT], [], {}, LOST, id="a directory had failed"),
    pytest.param([CARRIED_OUT], [loses_directories(3, 3200, "a")], {}, LOST, id="a directory may have failed before"),
    pytest.param([loses_directories(2, 500, "a"), CARRIED_OUT], [], {}, BY_R4, id="one of another broker had"),
])  # fmt: skip
@pytest.mark.parametrize("offsets", [None, 1], ids=["whole", "in ranges"])
def test_who_was_added_again_has_nothing_if_it_carried_out_that_it_had_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: list[Step], later: list[Step], more: dict[str, Any],
    expected: tuple[str, str], offsets: int | None,
) -> None:  # fmt: skip
    if offsets is not None:
        cut_everything(monkeypatch, offsets)

    assert lost(story(Run(tmp_path / "run", **UNCLEAN), meanwhile, later, **more)) == [expected]


@pytest.mark.parametrize(("again", "expected"), [
    pytest.param(("a", "b"), BY_R4, id="all are in service"),
    pytest.param(("a",), LOST, id="its log may lie in the other one"),
])  # fmt: skip
def test_a_directory_that_is_out_of_service_keeps_its_logs(
    tmp_path: Path, again: tuple[str, ...], expected: tuple[str, str]
) -> None:
    meanwhile = [starts(3, 1500, "a", "b"), starts(3, 2000, *again), says(3, 2500, behind_the_removal=2)]

    assert lost(story(Run(tmp_path / "run", **UNCLEAN), meanwhile, [])) == [expected]


def test_what_happened_in_another_partition_says_nothing_of_this_one(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", **UNCLEAN)
    run.node(3, "start", 0)
    run.send(0, 100)
    left = run.metadata_offset
    for at, replicas in ((500, [1, 2, 3]), (LEFT_AT, [1, 2]), (ADDED_AT, [3, 1, 2])):
        created = at == 500
        body = {"partition_id": 1, "replicas": replicas, "isr": [1, 2, 3] if created else [1, 2], "leader": 1}
        record_type = "PartitionRecord" if created else "PartitionChangeRecord"
        row = {"record_type": record_type, "topic": "t", "partition": 1, "body": json.dumps(body)}
        run.recorder.row("metadata", metadata_offset=run.metadata_offset, quorum_epoch=1, at_ns=at * MS, **row)
        run.metadata_offset += 1
    says(3, 1500, behind_the_removal=1)(run, left)
    run.change(5000, isr=[1, 2])
    run.change(6000, **TO_NODE_3)
    run.final_read({}, at=9000)

    assert lost(run.finish()) == [LOST]


@pytest.mark.parametrize("meanwhile", [[CARRIED_OUT], []], ids=["carried out", "nobody knows"])
def test_sql_says_the_same(tmp_path: Path, meanwhile: list[Step]) -> None:
    assert agree(story(Run(tmp_path / "run", **UNCLEAN), meanwhile, []), "lost_writes")["lost"] == 1
