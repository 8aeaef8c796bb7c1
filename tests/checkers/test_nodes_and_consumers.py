"""Leaders, earlier incarnations, consumers that stop and figures of availability: pairs of a run that is fine and its neighbour."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.checkers.recorded import MS, Run
from tests.checkers.test_exactly_once import found
from tribunal.checkers.api import properties
from tribunal.checkers.judge.verdict import check
from tribunal.harness.catalog import listing


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


@pytest.mark.parametrize(
    ("observer", "epoch", "expected"),
    [
        pytest.param("node-2", 1, [], id="the elected one"),
        pytest.param("node-2", 0, ["leader_not_elected", "two_leaders"], id="a second one in an epoch"),
        pytest.param("node-3", 1, ["leader_not_elected"], id="one that was not elected"),
        pytest.param("node-3", 7, [], id="an epoch nobody wrote down"),
    ],
)
def test_one_leader_per_epoch(run: Run, observer: str, epoch: int, expected: list[str]) -> None:
    run.change(200, leader=2, isr=[2, 3])
    run.watermark(1, 100, epoch=0, observer="node-1")
    run.watermark(1, 300, epoch=epoch, observer=observer)

    assert [kind for kind, _, _ in found(run.finish(), "leaders")] == expected


def test_a_follower_that_reports_its_log_end_does_not_lead(run: Run) -> None:
    run.change(200, leader=2, isr=[2, 3])
    run.watermark(1, 300, epoch=1, observer="node-2")
    own = {"observer": "node-3", "source": "node", "topic": "t", "partition": 0}
    run.recorder.row("watermarks", **own, leader_epoch=1, log_end_offset=4, at_ns=310 * MS)

    assert found(run.finish(), "leaders") == []


@pytest.mark.parametrize(
    ("at", "error", "expected"),
    [
        pytest.param(150, "NONE", [], id="before it registered anew"),
        pytest.param(250, "STALE_BROKER_EPOCH", [], id="refused"),
        pytest.param(250, "NONE", ["stale_request_accepted"], id="carried out"),
    ],
)
def test_requests_of_an_earlier_incarnation_are_refused(run: Run, at: int, error: str, expected: list[str]) -> None:
    run.registered(1, at=200, previous=-1)
    common = {"api_key": 4, "correlation_id": 5, "fate": "delivered"}
    ask, answer = json.dumps({"broker_epoch": 0}), json.dumps({"error": error})
    run.recorder.row("requests", **{"from": 101, "to": 1}, **common, direction="request", at_ns=at * MS, summary=ask)
    late = (at + 1) * MS
    run.recorder.row("requests", **{"from": 1, "to": 101}, **common, direction="response", at_ns=late, summary=answer)

    assert [kind for kind, _, _ in found(run.finish(), "stale_epochs")] == expected


@pytest.mark.parametrize(("epoch", "expected"), [(4, []), (1, ["stale_member_accepted"])])
def test_a_replica_of_an_earlier_incarnation_never_joins(run: Run, epoch: int, expected: list[str]) -> None:
    run.registered(2, at=200, previous=-1)
    common = {"api_key": 56, "correlation_id": 5, "fate": "delivered"}
    ask = json.dumps({"broker_id": 1, "broker_epoch": 0, "members": [[1, 0], [2, epoch]]})
    run.recorder.row("requests", **{"from": 1, "to": 101}, **common, direction="request", at_ns=250 * MS, summary=ask)
    answer = {"from": 101, "to": 1, "summary": '{"error": "NONE"}'}
    run.recorder.row("requests", **answer, **common, direction="response", at_ns=251 * MS)

    assert [kind for kind, _, _ in found(run.finish(), "stale_epochs")] == expected


@pytest.mark.parametrize(("epoch", "expected"), [(1, []), (2, ["quorum_epoch_raised_by_return"])])
def test_a_voter_that_comes_back_does_not_disrupt(run: Run, epoch: int, expected: list[str]) -> None:
    run.fault("isolate", 100, node=101, target="controller 101")
    run.metadata_epoch = epoch
    run.metadata("NoOpRecord", 115)

    assert [kind for kind, _, _ in found(run.finish(), "control_plane")] == expected


@pytest.mark.parametrize(
    ("polled", "expected"),
    [
        pytest.param([[0, 1], [2, 3]], [], id="everything"),
        pytest.param([[0, 1], [3]], [("unseen", "violation", 2)], id="all but one"),
        pytest.param([[0, 1]], [], id="not that far"),
    ],
)
def test_what_consumers_passed_over(run: Run, polled: list[list[int]], expected: list[Any]) -> None:
    values = {offset: run.send(offset, 100 + offset) for offset in range(4)}
    for number, offsets in enumerate(polled):
        run.read({offset: values[offset] for offset in offsets}, 200 + number)
    run.final_read(dict(values))

    assert found(run.finish(), "skipped_records") == expected


@pytest.mark.parametrize(
    ("until", "shown", "expected"),
    [
        pytest.param(10_300, (4, 5), [("stopped", "violation", 2)], id="for long"),
        pytest.param(5_300, (4, 5), [], id="for a moment"),
        pytest.param(10_300, (2, 2), [], id="at the end"),
        pytest.param(10_300, (4, 4), [], id="without a fresh answer"),
    ],
)
def test_a_consumer_that_stopped(run: Run, until: int, shown: tuple[int, int], expected: list[Any]) -> None:
    values = {offset: run.send(offset, 100 + offset) for offset in range(4)}
    run.read({0: values[0], 1: values[1]}, 200)
    for at, high_watermark in zip((300, until), shown, strict=True):
        run.poll(90, "tail", 2, 0, at, high_watermark=high_watermark)
    run.final_read(dict(values), 20_000)

    assert found(run.finish(), "skipped_records") == expected


@pytest.mark.parametrize(("until", "waited"), [
    pytest.param(16_100, "stood at 2 for 10.1 s, was shown 4", id="and for long behind it"),
    pytest.param(13_000, "stood at 2 for 12.7 s, was shown 5", id="and not long enough behind it"),
])  # fmt: skip
def test_a_wait_is_judged_within_the_newest_leader_epoch_first(tmp_path: Path, until: int, waited: str) -> None:
    """What an unclean election took excuses no wait that is long enough behind it."""
    run = Run(tmp_path / "run", **{"unclean.leader.election.enable": True})
    values = {offset: run.send(offset, 100 + offset) for offset in range(4)}
    run.read({0: values[0], 1: values[1]}, 200)
    run.poll(90, "tail", 2, 0, 300, high_watermark=5, leader_epoch=0)
    run.change(5_000, leader=3, isr=[3], leader_recovery_state=1)
    for at, high_watermark in ((6_000, 4), (until, 6)):
        run.poll(90, "tail", 2, 0, at, high_watermark=high_watermark, leader_epoch=1)
    run.final_read(dict(values), 20_000)

    (verdict,) = check([run.finish()], "inline")

    assert [one.detail.detail for one in verdict.findings if one.kind == "stopped"] == [waited]


def test_figures_of_availability(run: Run) -> None:
    values = {}
    for sequence, at in enumerate([100, 110, 2_500, 2_510]):
        values[sequence] = run.send(sequence, at, complete_ns=(at + 2) * MS)
    run.send(4, 1_000, outcome="info", complete_ns=None, offset=None, log_offset=None, process=8, value=(8 << 40))
    run.phase("faults", 0, 3_000)
    run.fault("kill", 500, node=1)
    run.final_read(dict(values), 5_000)

    (verdict,) = check([run.finish()], "inline")

    measured = verdict.figures["availability"]
    place = {"topic": "t", "partition": 0, "acks": -1}
    lengths = {"intervals": 1, "total_ns": 1_502 * MS, "longest_ns": 1_502 * MS}
    (unavailable,) = measured["unavailable"]
    assert unavailable == place | lengths | {"asked_ns": 2_412 * MS}
    (asked,) = measured["asked"]
    assert asked == {"acks": -1, "partitions": 1, "asked_ns": 2_412 * MS, "unavailable_ns": 1_502 * MS}
    (recovery,) = measured["recovery"]
    assert recovery == place | {"fault": 0, "recovery_ns": 2_002 * MS}
    (latency,) = measured["latency"]
    assert latency["count"] == 4
    assert 2 * MS <= latency["p50_ns"] <= latency["p99_ns"] <= 2.3 * MS


# Judged by a search over calls: there is no query for it.
SEARCHED = {"counters", "locks", "object_transactions", "queues", "registers", "sets", "streams", "transactions"}


def test_every_property_has_its_sentences(run: Run) -> None:
    for name, one in properties().items():
        assert one.about, name
        assert all(kind.sentence for kind in one.kinds.values())
        assert name in SEARCHED or (one.sql and "SELECT" in one.sql), name


def test_what_is_listed_as_a_checker_is_what_is_judged() -> None:
    assert set(listing("checkers")) == {name.replace("_", "-") for name in properties()}
    assert all(one.kernel or one.run_kernel or one.timeline_kernel for one in properties().values())


@pytest.mark.parametrize(
    ("removed", "anew", "expected"),
    [
        pytest.param(None, False, ["leaderless"], id="a member of its ISR could lead"),
        pytest.param("t", False, [], id="its topic was deleted"),
        pytest.param("other", False, ["leaderless"], id="another topic was deleted"),
        pytest.param("t", True, ["leaderless"], id="its topic was made anew"),
    ],
)
def test_a_partition_is_not_left_without_leader(run: Run, removed: str | None, anew: bool, expected: list[str]) -> None:
    run.send(0, 100)
    run.change(200, leader=-1, isr=[2])
    if removed is not None:
        run.metadata("RemoveTopicRecord", 300, topic=removed)
    if anew:
        run.metadata("PartitionRecord", 400, partition_id=0, replicas=[2], isr=[2], leader=-1, leader_epoch=0)
    run.metadata("NoOpRecord", 5_000)

    assert [kind for kind, _, _ in found(run.finish(), "led")] == expected


@pytest.mark.parametrize(("changed", "returns", "expected"), [
    pytest.param(("min.insync.replicas", "1"), "whole", ["leaderless"], id="by a lowered min ISR"),
    pytest.param(("min.insync.replicas", "2"), "whole", ["leaderless"], id="by writing the value that it has"),
    pytest.param(("min.insync.replicas", "1"), "unclean", [], id="who was in it is not whole any more"),
    pytest.param(("min.insync.replicas", "1"), "wiped", [], id="a fault took what it had"),
    pytest.param(("min.insync.replicas", "1"), None, [], id="who was in it is still down"),
    pytest.param(None, "whole", [], id="nobody knows why"),
])  # fmt: skip
def test_who_was_in_a_cleared_elr_may_lead_while_nobody_is_in_sync(
    run: Run, changed: tuple[str, str] | None, returns: str | None, expected: list[str]
) -> None:
    """KIP-966: the ELR goes "if the new min ISR <= current ISR", and no value is at most an ISR of nobody (D5)."""
    run.send(0, 100)
    run.change(200, leader=-1, isr=[], eligible_leader_replicas=[2])
    run.node(2, "stop", 300)
    if changed is not None:
        name, value = changed
        run.metadata("ConfigRecord", 400, resource_type=2, resource_name="t", name=name, value=value)
    run.metadata("ClearElrRecord", 400, topic_name="t")
    if returns == "wiped":
        run.fault("wipe", 450, node=2, lost_from=0)
    if returns is not None:
        run.node(2, "start", 500)
        run.registered(2, 600, previous=-1 if returns == "unclean" else 1, fenced=False)
        # The released software's registrations are often sent twice: the same process, the same epoch.
        again = {"broker_epoch": run.metadata_offset - 1, "previous_broker_epoch": -1 if returns == "unclean" else 1}
        run.recorder.row("nodes", node=2, role="broker", event="registered", at_ns=610 * 1_000_000, **again)
    run.metadata("NoOpRecord", 5_000)

    assert [kind for kind, _, _ in found(run.finish(), "led")] == expected


def test_a_cleared_elr_is_not_missed_where_somebody_leads(run: Run) -> None:
    run.send(0, 100)
    run.change(200, leader=-1, isr=[], eligible_leader_replicas=[2])
    run.metadata("ConfigRecord", 400, resource_type=2, resource_name="t", name="min.insync.replicas", value="1")
    run.metadata("ClearElrRecord", 400, topic_name="t")
    run.change(700, leader=3, isr=[3], leader_recovery_state=1)
    run.change(900, leader=-1, isr=[])
    run.metadata("NoOpRecord", 5_000)

    assert found(run.finish(), "led") == []


@pytest.mark.parametrize(("left_hurt", "led_at", "expected"), [
    pytest.param(None, 4_000, ["leaderless"], id="for long, before somebody led after all"),
    pytest.param(None, 900, [], id="for a moment"),
    pytest.param(3, None, ["leaderless"], id="another broker was never healed"),
    pytest.param(2, None, [], id="it was never healed itself"),
    pytest.param(101, None, [], id="a controller was never healed"),
])  # fmt: skip
def test_who_could_lead_at_some_time_was_to_be_elected(
    run: Run, left_hurt: int | None, led_at: int | None, expected: list[str]
) -> None:
    run.send(0, 100)
    if left_hurt is not None:
        fault = {"index": 0, "kind": "cut", "planned_ns": 150 * MS, "injected_ns": 150 * MS, "took_effect": True}
        run.recorder.row("faults", **fault, resolved_target=f"broker {left_hurt}", healed=False, losses=[])
    run.change(200, leader=-1, isr=[2])
    if led_at is not None:
        run.metadata("NoOpRecord", led_at - 200)
        run.change(led_at, leader=2)
    run.metadata("NoOpRecord", 5_000)

    assert [kind for kind, _, _ in found(run.finish(), "led")] == expected
