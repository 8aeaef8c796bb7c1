"""Below min ISR: what a leader surely knows, and what a partition in pieces costs."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from tests.checkers.recorded import MS, Run
from tests.checkers.test_sql import agree
from tribunal.checkers.api import Context, PartitionRows
from tribunal.checkers.judge.partition import history_of, settings_of
from tribunal.checkers.judge.verdict import check
from tribunal.checkers.properties import min_isr
from tribunal.results.recording import TABLES
from tribunal.results.store import Recording

HEARTBEAT = 63
FETCH = 1


def message(run: Run, source: int, target: int, api_key: int, direction: str, at: int, fate: str = "delivered") -> None:
    ends = {"from": source, "to": target}
    run.recorder.row("requests", **ends, api_key=api_key, direction=direction, fate=fate, at_ns=at * 1_000_000)


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        pytest.param(None, 1, id="a controller answered, and it asked again"),
        pytest.param((1, 101), 0, id="it could not fetch metadata"),
        pytest.param((1, 2), 1, id="another fetch was held"),
    ],
)
def test_a_heartbeat_says_nothing_of_a_leader_whose_fetches_of_metadata_are_held(
    tmp_path: Path, held: tuple[int, int] | None, expected: int
) -> None:
    run = Run(tmp_path / "run")
    run.fault("hold-messages", 500, node=1, lasts=8_000)
    run.change(1000, isr=[1])
    message(run, 1, 101, HEARTBEAT, "request", 1100)
    message(run, 101, 1, HEARTBEAT, "response", 1110)
    message(run, 1, 101, HEARTBEAT, "request", 1400)
    if held is not None:
        message(run, *held, FETCH, "request", 900, fate="held")
    run.metadata("NoOpRecord", 9000)
    run.send(0, at=3000)

    (verdict,) = check([run.finish()], "inline")

    kinds = [found.kind for found in verdict.violations]
    assert kinds.count("acknowledged_below_min_isr") == expected


@pytest.mark.parametrize(
    ("fate", "at", "healed", "sent_at", "expected"),
    [
        pytest.param("held", 900, 950, 2600, 0, id="released, and not settled"),
        pytest.param("held", 900, 950, 4000, 1, id="released before it was asked again"),
        pytest.param("held", 900, 8400, 4000, 0, id="held on"),
        pytest.param("held", 5000, 8400, 4000, 1, id="held when it knew already"),
        pytest.param("dropped", 900, 8400, 4000, 0, id="lost, and waited for"),
        pytest.param("dropped", 900, 8400, 7000, 1, id="lost, and asked for again"),
    ],
)
def test_a_leader_knows_again_once_it_can_fetch_again(
    tmp_path: Path, fate: str, at: int, healed: int, sent_at: int, expected: int
) -> None:
    run = Run(tmp_path / "run")
    run.fault("hold-messages", 500, node=1, lasts=healed - 500)
    run.fault("slow", 1500, node=2, lasts=7000, index=1)
    run.change(1000, isr=[1])
    if fate == "held" and at == 5000:
        heartbeats(run, 1100)
    heartbeats(run, 3000)
    heartbeats(run, 6000)
    message(run, 1, 101, FETCH, "request", at, fate=fate)
    run.metadata("NoOpRecord", 9000)
    run.send(0, at=sent_at)

    (verdict,) = check([run.finish()], "inline")

    kinds = [found.kind for found in verdict.violations]
    assert kinds.count("acknowledged_below_min_isr") == expected


PROVEN, UNDONE, NOT_UNDONE, UNSAID = (True, True), (False, True), (False, False), (False, None)


@pytest.mark.parametrize(("kind", "injected", "ended", "heal", "sent_at", "expected"), [
    pytest.param("part-kill", 2500, 8000, PROVEN, 1500, 0, id="what had put somebody down before it counts as injected"),
    pytest.param("swizzle", 2500, 8000, PROVEN, 1500, 0, id="what had cut off others already"),
    pytest.param("full-disk", 2500, 8000, PROVEN, 1500, 0, id="what waits until somebody has ended of it"),
    pytest.param("kill", 2500, 8000, PROVEN, 1500, 1, id="what begins when it is injected"),
    pytest.param("isolate", 500, 900, UNDONE, 6000, 1, id="an end without the full ISR"),
    pytest.param("isolate", 500, 900, NOT_UNDONE, 6000, 0, id="links that are still cut"),
    pytest.param("isolate", 500, 900, UNSAID, 6000, 1, id="a heal without a proof, of a recording that says no more"),
    pytest.param("isolate", 500, 900, PROVEN, 6000, 1, id="a heal that was proven"),
])  # fmt: skip
def test_a_leader_need_not_know_while_a_fault_is_in_effect(
    tmp_path: Path,
    kind: str,
    injected: int,
    ended: int,
    heal: tuple[bool, bool | None],
    sent_at: int,
    expected: int,
) -> None:
    healed, undone = heal
    run = Run(tmp_path / "run")
    times = {"planned_ns": 500 * MS, "injected_ns": injected * MS, "healed_ns": ended * MS}
    fault = {"index": 0, "kind": kind, "resolved_target": "broker 2", "proof": "{}", "heal_proof": "{}", "losses": []}
    run.recorder.row("faults", **fault, **times, took_effect=True, healed=healed, undone=undone)
    run.change(1000, isr=[1])
    run.metadata("NoOpRecord", 9000)
    run.send(0, at=sent_at)

    (verdict,) = check([run.finish()], "inline")

    kinds = [found.kind for found in verdict.violations]
    assert kinds.count("acknowledged_below_min_isr") == expected


def heartbeats(run: Run, at: int) -> None:
    """A controller answers a heartbeat of node 1, which sends the next one."""
    message(run, 1, 101, HEARTBEAT, "request", at)
    message(run, 101, 1, HEARTBEAT, "response", at + 10)
    message(run, 1, 101, HEARTBEAT, "request", at + 300)


@pytest.mark.parametrize(
    ("said", "sent_at", "expected"),
    [
        pytest.param([(1, 1700, -1)], 1600, 0, id="the leader did not know yet"),
        pytest.param([(1, 1700, -1)], 1800, 1, id="it did not know before"),
        pytest.param([(1, 1700, 0)], 1600, 1, id="it knew"),
        pytest.param([(2, 1700, -1)], 1600, 1, id="another one did not know yet"),
        pytest.param([(1, 1300, 0), (1, 1700, -1)], 1600, 1, id="only its next process did not know"),
        pytest.param([(1, 1700, None)], 1600, 1, id="nobody read how far it knew"),
    ],
)
def test_a_leader_that_says_that_it_does_not_know_yet_is_believed(
    tmp_path: Path, said: list[tuple[int, int, int | None]], sent_at: int, expected: int
) -> None:
    """With a lost fetch while other controllers were out of reach it knew 0.6 s later, with no fault in effect (`M05`, rotating-swarm)."""
    run = Run(tmp_path / "run")
    run.change(1000, isr=[1])
    changed_at = run.metadata_offset - 1
    for node, at, further in said:
        summary = "broker_heartbeat" if further is None else json.dumps({"metadata_offset": changed_at + further})
        ends = {"from": node, "to": 101}
        run.recorder.row(
            "requests", **ends, api_key=HEARTBEAT, direction="request", fate="delivered", at_ns=at * 1_000_000,
            summary=summary,
        )  # fmt: skip
    run.metadata("NoOpRecord", 9000)
    run.send(0, at=sent_at)

    (verdict,) = check([run.finish()], "inline")

    kinds = [found.kind for found in verdict.violations]
    assert kinds.count("acknowledged_below_min_isr") == expected


def test_the_run_is_looked_at_once_for_all_pieces_of_a_partition(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.change(1000, isr=[1])
    run.metadata("NoOpRecord", 9000)
    for sequence in range(3):
        run.send(sequence, at=3000 + sequence)
    recording = Recording.open(run.finish())
    asked: list[str] = []

    def of_run(name: str) -> pa.Table:
        asked.append(name)
        return recording.table(name)

    context = Context(
        complete=True,
        history=history_of(recording).timeline("t", 0).entries,
        settings=settings_of(recording),
        of_run=of_run,
    )
    sends = recording.table("sends", "t-0")
    small = {"watermarks": TABLES["watermarks"].arrow.empty_table()}
    pieces = [PartitionRows(small), *(PartitionRows({"sends": sends.slice(row, 1)}) for row in range(3))]

    found = min_isr.kernel_in_pieces(pieces, context)

    assert found.anomalies["kind"].to_pylist() == ["acknowledged_below_min_isr"] * 3
    assert asked.count("faults") == 1


@pytest.mark.parametrize(
    ("by", "at", "acks", "outcome", "mode", "expected"),
    [
        pytest.param(3, 3000, -1, "ok", "kraft", 1, id="it never led"),
        pytest.param(3, 3000, 1, "ok", "kraft", 1, id="nor may it with acks=1"),
        pytest.param(3, 3000, -1, "info", "kraft", 0, id="it was no acknowledgement"),
        pytest.param(1, 3000, -1, "ok", "kraft", 0, id="it was deposed"),
        pytest.param(2, 1500, -1, "ok", "kraft", 0, id="its election was observed late"),
        pytest.param(None, 3000, -1, "ok", "kraft", 0, id="nobody knows who"),
        pytest.param(3, 8500, -1, "ok", "kraft", 0, id="it may have been elected since"),
        pytest.param(3, 3000, -1, "ok", "zookeeper", 0, id="no metadata log"),
    ],
)
def test_only_who_led_once_acknowledges(
    tmp_path: Path, by: int | None, at: int, acks: int, outcome: str, mode: str, expected: int
) -> None:
    run = Run(tmp_path / "run")
    run.change(2000, leader=2)
    run.metadata("NoOpRecord", 9000)
    run.send(0, at=at, acks=acks, answered_by=by, outcome=outcome)

    assert agree(run.finish(mode=mode), "min_isr")["acknowledged_by_no_leader"] == expected


def test_a_history_that_begins_in_a_later_epoch_does_not_say_who_led_before(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    body = {"partition_id": 0, "replicas": [1, 2, 3], "isr": [1, 2, 3], "leader": 1, "leader_epoch": 4}
    run.metadata("PartitionRecord", 0, topic="u", **body)
    run.metadata("NoOpRecord", 9000)
    run.send(0, at=3000, topic="u", answered_by=3)

    assert agree(run.finish(), "min_isr")["acknowledged_by_no_leader"] == 0
