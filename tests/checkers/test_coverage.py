"""What a run promised to record and did not: the cells that say nothing, and their neighbours that do."""

from pathlib import Path

import msgspec
import pytest

from tests.checkers.recorded import MS, Run
from tribunal.checkers.judge.verdict import check
from tribunal.results.verdict import RunVerdict, Verdict


def recorded(folder: Path, *, without: str = "", cluster: str | None = "simulated") -> RunVerdict:
    """A run as every kind of cluster records it, without one of its inputs; judged."""
    run = Run(folder / "run")
    run.phase("faults" if without != "phases" else "warm-up", 0, 500)
    values = [run.send(number, 100 + number) for number in range(3)]
    if without != "watermarks":
        run.watermark(3, 200, epoch=0)
    if without != "final read":
        run.final_read(dict(enumerate(values)))
    for node in (1, 2, 3) if without == "records in logs" else ():
        run.dump(node)
    if without not in ("logs", "records in logs"):
        for node in (1, 2, 3):
            run.log(node, dict(enumerate(values)))
    return judged(run.finish(cluster=cluster))


def judged(run_dir: Path) -> RunVerdict:
    (verdict,) = check([run_dir], "inline")
    return verdict


def test_a_run_with_all_of_its_inputs_passes(tmp_path: Path) -> None:
    verdict = recorded(tmp_path)

    assert (verdict.verdict, verdict.reasons) == (Verdict.PASS, [])
    assert verdict.coverage.cells == verdict.coverage.judged > 0


@pytest.mark.parametrize(("without", "lacking"), [
    pytest.param("watermarks", "led", id="watermarks"),
    pytest.param("logs", "replicas", id="logs"),
    pytest.param("final read", "whole_records", id="the final read"),
])  # fmt: skip
def test_a_missing_input_makes_its_cells_inconclusive_and_is_named(tmp_path: Path, without: str, lacking: str) -> None:
    verdict = recorded(tmp_path, without=without)

    (missing,) = verdict.coverage.missing
    assert verdict.verdict is Verdict.INCONCLUSIVE
    assert (missing.input, missing.topic, missing.partition) == (without, "t", 0)
    assert lacking in missing.properties
    assert verdict.coverage.judged == verdict.coverage.cells - len(missing.properties)
    assert any(without in reason and "t-0" in reason for reason in verdict.reasons)


def test_logs_that_were_read_and_hold_nothing_are_no_missing_input(tmp_path: Path) -> None:
    verdict = recorded(tmp_path, without="records in logs")

    assert verdict.coverage.missing == ()


@pytest.mark.parametrize(("isr", "elr", "lacking"), [
    pytest.param([1, 2, 3], [], [3], id="a member of the final ISR"),
    pytest.param([1], [2, 3], [3], id="a member of the final ELR"),
    pytest.param([1, 2], [], [], id="who is neither has nothing to be compared"),
])  # fmt: skip
def test_the_log_of_each_member_is_an_input_of_its_own(
    tmp_path: Path, isr: list[int], elr: list[int], lacking: list[int]
) -> None:
    run = Run(tmp_path / "run")
    run.phase("faults", 0, 500)
    run.recorder.row(
        "metadata", metadata_offset=90, quorum_epoch=1, at_ns=400 * MS, record_type="PartitionChangeRecord", topic="t",
        partition=0, body=msgspec.json.encode({"partition_id": 0, "isr": isr, "eligible_leader_replicas": elr}).decode(),
    )  # fmt: skip
    values = dict(enumerate([run.send(number, 100 + number) for number in range(3)]))
    run.watermark(3, 200, epoch=0)
    run.final_read(values)
    for node in (1, 2):
        run.log(node, values)
        run.dump(node)

    verdict = judged(run.finish(cluster="simulated"))

    assert [(one.input, one.node, one.properties) for one in verdict.coverage.missing] == [
        ("logs", node, ("replicas",)) for node in lacking
    ]
    assert verdict.verdict is (Verdict.INCONCLUSIVE if lacking else Verdict.PASS)
    assert any("t-0 on broker 3" in reason for reason in verdict.reasons) is bool(lacking)


def test_what_was_made_by_hand_promises_nothing(tmp_path: Path) -> None:
    assert recorded(tmp_path, without="logs", cluster=None).verdict is Verdict.PASS


@pytest.mark.parametrize("topic", [pytest.param("t", id="recorded"), pytest.param("u", id="not recorded")])
def test_metadata_of_each_partition_are_promised_always(tmp_path: Path, topic: str) -> None:
    run = Run(tmp_path / "run")
    run.phase("faults", 0, 500)
    run.send(0, 100, topic=topic)

    missing = judged(run.finish()).coverage.missing

    assert [(one.input, one.topic) for one in missing] == ([] if topic == "t" else [("metadata", "u")])


@pytest.mark.parametrize(("at", "outcome", "doubted"), [
    pytest.param(100, "ok", False, id="acknowledged in time"),
    pytest.param(100, "info", True, id="offered only"),
    pytest.param(700, "ok", True, id="only later"),
])  # fmt: skip
def test_each_partition_needs_its_load_at_each_level_of_acks(
    tmp_path: Path, at: int, outcome: str, doubted: bool
) -> None:
    run = Run(tmp_path / "run")
    run.metadata("PartitionRecord", 0, topic="u", partition_id=0, replicas=[1], isr=[1], leader=1, leader_epoch=0)
    run.phase("faults", 0, 500)
    run.final_read({0: run.send(0, 100)})
    other = {"process": 8, "value": 8 << 40, "topic": "u", "outcome": outcome, "log_offset": 0}
    run.send(0, at, **other)
    final = {"process": 98, "topic": "u", "partition": 0, "isolation": "read_uncommitted", "phase": "final"}
    shown = {"outcome": "ok", "high_watermark": 1, "log_start_offset": 0}
    for number, count in enumerate((1, 0)):
        times = {"invoke_ns": 900 * MS + number, "complete_ns": 900 * MS + number}
        run.recorder.row("polls", **final, **shown, **times, poll_index=number, position=number, record_count=count)
    read = {"log_offset": 0, "value": 8 << 40, "poll_index": 0, "process": 98, "phase": "final"}
    run.recorder.row("reads", topic="u", partition=0, **read)

    verdict = judged(run.finish())

    assert verdict.verdict is (Verdict.INCONCLUSIVE if doubted else Verdict.PASS)
    assert verdict.reasons == (
        ["phase faults acks=all: 0 in u-0 acknowledged (need 1 in each partition)"] if doubted else []
    )


@pytest.mark.parametrize(("created_at", "doubted"), [
    pytest.param(0, True, id="it was there before"),
    pytest.param(300, False, id="it was added meanwhile"),
])  # fmt: skip
def test_a_partition_that_was_not_there_all_the_time_is_owed_no_load(
    tmp_path: Path, created_at: int, doubted: bool
) -> None:
    run = Run(tmp_path / "run")
    run.phase("faults", 10, 500)
    added = {"replicas": [1], "isr": [1], "leader": 1, "leader_epoch": 0}
    run.recorder.row(
        "metadata", metadata_offset=90, quorum_epoch=1, at_ns=created_at * MS, record_type="PartitionRecord", topic="t",
        partition=1, body=msgspec.json.encode({"partition_id": 1, **added}).decode(),
    )  # fmt: skip
    values = [run.send(number, 100 + number) for number in range(3)]
    run.watermark(3, 200, epoch=0)
    run.final_read(dict(enumerate(values)))
    for node in (1, 2, 3):
        run.log(node, dict(enumerate(values)))

    verdict = judged(run.finish(cluster="simulated"))

    assert ("never sent to: t-1" in verdict.reasons) is doubted
    lacking = [(one.input, one.topic, one.partition) for one in verdict.coverage.missing]
    assert lacking == ([(name, "t", 1) for name in ("watermarks", "logs", "final read")] if doubted else [])
    assert verdict.verdict is (Verdict.INCONCLUSIVE if doubted else Verdict.PASS)


@pytest.mark.parametrize(("outcome", "lacking"), [("ok", []), ("fail", ["watermarks", "logs", "final read"])])
def test_a_deleted_topic_leaves_no_logs_and_no_final_read(tmp_path: Path, outcome: str, lacking: list[str]) -> None:
    run = Run(tmp_path / "run")
    run.phase("faults", 10, 500)
    run.send(0, 100)
    times = {"invoke_ns": 300 * MS, "complete_ns": 310 * MS}
    run.recorder.row("admin", api="delete_topic", topic="t", outcome=outcome, **times)
    run.recorder.row(
        "metadata", metadata_offset=90, quorum_epoch=1, at_ns=305 * MS, record_type="RemoveTopicRecord", topic="t", body="{}"
    )  # fmt: skip

    verdict = judged(run.finish(cluster="simulated"))

    assert [one.input for one in verdict.coverage.missing] == lacking


def promised(run: Run, values: dict[int, int], *tables: str) -> RunVerdict:
    """A run that recorded all but, perhaps, what its workload promised."""
    run.phase("faults", 10, 500)
    run.watermark(len(values), 200, epoch=0)
    run.final_read(dict(values), isolation="read_committed")
    for node in (1, 2, 3):
        run.log(node, values)
    return judged(run.finish(cluster="simulated", promised=tables))


@pytest.mark.parametrize(("listed", "lacking"), [
    pytest.param([0, 1], [], id="all that was sent in it"),
    pytest.param([0], [("txns", "t", 0)], id="another one is not written down"),
    pytest.param([], [("txns", "t", 0)], id="nothing"),
])  # fmt: skip
def test_what_was_sent_in_a_transaction_promises_its_outcome(
    tmp_path: Path, listed: list[int], lacking: list[object]
) -> None:
    run = Run(tmp_path / "run")
    values = {number: run.send(number, 100 + number, txn_id=f"x{number}") for number in range(2)}
    for number in listed:
        step = {"kind": "send", "topic": "t", "partition": 0, "log_offset": number, "value": values[number]}
        times = {"begin_ns": 90 * MS, "end_ns": 120 * MS, "outcome": "committed"}
        run.recorder.row("txns", process=7, txn_id=f"x{number}", operations=[step], **times)

    verdict = promised(run, values)

    assert [(one.input, one.topic, one.partition) for one in verdict.coverage.missing] == lacking
    assert verdict.verdict is (Verdict.INCONCLUSIVE if lacking else Verdict.PASS)
    assert {"transactions", "hanging_transactions"} <= {
        name for one in verdict.coverage.missing for name in one.properties
    } or not lacking


@pytest.mark.parametrize(("committed", "lacking"), [
    pytest.param(["t", "u"], [], id="everywhere"),
    pytest.param(["t"], [], id="the other topic has no group"),
    pytest.param(["t-1"], [("commits", "t", 0)], id="in another partition of the topic only"),
    pytest.param([], [("commits", None, None)], id="nowhere"),
])  # fmt: skip
def test_a_groups_partitions_promise_its_commits(tmp_path: Path, committed: list[str], lacking: list[object]) -> None:
    run = Run(tmp_path / "run")
    created = {"partition_id": 0, "replicas": [1], "isr": [1], "leader": 1, "leader_epoch": 0}
    run.metadata("PartitionRecord", 0, topic="__consumer_offsets", **created)
    values = {number: run.send(number, 100 + number) for number in range(2)}
    for name in committed:
        topic, _, partition = name.partition("-")
        row = {"process": 90, "group": "g", "kind": "commit", "committed_offset": 0, "outcome": "ok"}
        times = {"invoke_ns": 300 * MS, "complete_ns": 301 * MS}
        run.recorder.row("commits", topic=topic, partition=int(partition or 0), **row, **times)

    verdict = promised(run, values, "commits")

    assert [(one.input, one.topic, one.partition) for one in verdict.coverage.missing] == lacking
    assert verdict.verdict is (Verdict.INCONCLUSIVE if lacking else Verdict.PASS)


def test_a_workload_without_a_group_promises_no_commits(tmp_path: Path) -> None:
    """Whoever lists groups makes the cluster create __consumer_offsets."""
    run = Run(tmp_path / "run")
    created = {"partition_id": 0, "replicas": [1], "isr": [1], "leader": 1, "leader_epoch": 0}
    run.metadata("PartitionRecord", 0, topic="__consumer_offsets", **created)

    assert promised(run, {0: run.send(0, 100)}).verdict is Verdict.PASS


@pytest.mark.parametrize(("ended_at", "complete", "committed", "lacking"), [
    pytest.param(100, True, True, [], id="a transaction that hangs holds them back, and that was found"),
    pytest.param(14_000, True, True, ["final read of what is committed"], id="its marker may be under way still"),
    pytest.param(None, True, True, ["final read of what is committed"], id="it is open still"),
    pytest.param(14_000, True, False, [], id="nobody wanted to read what is committed"),
    pytest.param(100, False, True, ["final read"], id="nobody came to the end"),
])  # fmt: skip
def test_who_reads_what_is_committed_comes_to_the_end_or_a_hanging_transaction_says_why_not(
    tmp_path: Path, ended_at: int | None, complete: bool, committed: bool, lacking: list[str]
) -> None:
    run = Run(tmp_path / "run")
    run.phase("faults", 0, 500)
    values = {number: run.send(number, 100 + number, txn_id=f"x{number}") for number in range(3)}
    for number, value in values.items():
        step = {"kind": "send", "topic": "t", "partition": 0, "log_offset": number, "value": value}
        end = 120 if number != 1 else ended_at
        run.recorder.row(
            "txns", process=7, txn_id=f"x{number}", operations=[step], begin_ns=90 * MS, timeout_ms=60_000,
            end_ns=None if end is None else end * MS, outcome="info" if end is None else "committed",
        )  # fmt: skip
    for node in (1, 2, 3):
        run.log(node, values)
    if committed:
        run.read({0: values[0]}, 900, phase="final", process=99, isolation="read_committed")
        run.poll(99, "final", 1, 0, 14_900, high_watermark=6, last_stable_offset=1, isolation="read_committed")
    run.watermark(6, 15_000, epoch=0, observer="x", source="list_offsets", last_stable_offset=1)
    if complete:
        run.read(values, 15_100, phase="final", process=98)
        run.poll(98, "final", 6, 0, 15_200, high_watermark=6)

    verdict = judged(run.finish(cluster="simulated"))

    assert [one.input for one in verdict.coverage.missing] == lacking
    hangs = [finding for finding in verdict.findings if finding.kind == "hanging"]
    assert bool(hangs) is (ended_at == 100)
    assert verdict.verdict is (Verdict.VIOLATION if hangs else Verdict.INCONCLUSIVE if lacking else Verdict.PASS)
    if lacking == ["final read of what is committed"]:
        assert verdict.coverage.missing[0].properties == ("atomicity",)
