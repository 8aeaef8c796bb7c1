"""What operators delete: records before the log start, and topics. Each excused case beside its neighbour that is not."""

from pathlib import Path
from typing import Any

import pytest

from tests.checkers.recorded import MS, Run
from tests.checkers.test_lost_writes import found

DELETE_RECORDS = {"api": "delete_records", "topic": "t", "partition": 0, "log_offset": 2}
DELETE_TOPIC = {"api": "delete_topic", "topic": "t"}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


def ordered(run: Run, **order: Any) -> None:
    run.recorder.row("admin", **{"invoke_ns": 300 * MS, "complete_ns": 310 * MS, "outcome": "ok", **order})


def deleted_up_to(
    run: Run, log_start: int, *, without: tuple[int, ...] = (), of_node_3: int = 0
) -> list[tuple[Any, ...]]:
    """Four records, of which a final read from a log start on gets the rest; files hold all of them but those of node 3."""
    values = {offset: run.send(offset, 100 + offset) for offset in range(4)}
    kept = {offset: value for offset, value in values.items() if offset >= log_start}
    times = {"invoke_ns": 900 * MS, "complete_ns": 900 * MS, "outcome": "ok"}
    final = {"process": 99, "topic": "t", "partition": 0, "isolation": "read_uncommitted", "phase": "final"}
    for number, (position, count) in enumerate([(log_start, len(kept)), (4, 0)]):
        shown = {"poll_index": number, "position": position, "record_count": count}
        run.recorder.row("polls", **final, **shown, **times, high_watermark=4, log_start_offset=log_start)
    for offset, value in kept.items():
        read = {"poll_index": 0, "log_offset": offset, "value": value, "leader_epoch": 0}
        run.recorder.row("reads", process=99, topic="t", partition=0, phase="final", **read)
    for node in (1, 2, 3):
        own = {offset: value for offset, value in values.items() if node != 3 or offset not in without}
        run.log(node, {offset: value for offset, value in own.items() if node != 3 or offset >= of_node_3})
    return [(kind, severity, rule) for kind, severity, rule, _ in found(run.finish())]


def test_what_files_still_hold_before_the_log_start_is_deleted(run: Run) -> None:
    ordered(run, **DELETE_RECORDS)

    assert set(deleted_up_to(run, 2)) == {("unread", "permitted", "gone_by_order")}


@pytest.mark.parametrize("order", [
    pytest.param({}, id="nobody ordered it"),
    pytest.param({**DELETE_RECORDS, "outcome": "fail"}, id="it was refused"),
    pytest.param({**DELETE_RECORDS, "partition": 1}, id="of another partition"),
])  # fmt: skip
def test_otherwise_it_is_unread(run: Run, order: dict[str, Any]) -> None:
    if order:
        ordered(run, **order)

    assert ("unread", "violation", "") in deleted_up_to(run, 2)


def test_a_replica_may_begin_later_by_its_own_retention(run: Run) -> None:
    ordered(run, api="set_config", topic="t", setting="retention.ms", value="10")

    assert deleted_up_to(run, 0, of_node_3=2) == [("replica_lacks", "permitted", "gone_by_order")]


@pytest.mark.parametrize("retention_ms", [
    pytest.param("10", id="a hole behind its beginning"),
    pytest.param("-1", id="nothing is ever too old"),
])  # fmt: skip
def test_otherwise_it_lacks_records(run: Run, retention_ms: str) -> None:
    ordered(run, api="set_config", topic="t", setting="retention.ms", value=retention_ms)
    missing: dict[str, Any] = {"without": (1,)} if retention_ms == "10" else {"of_node_3": 2}

    assert deleted_up_to(run, 0, **missing) == [("replica_lacks", "violation", "")]


@pytest.mark.parametrize(("order", "removed", "expected"), [
    pytest.param(DELETE_TOPIC, True, [], id="deleted as ordered"),
    pytest.param(DELETE_TOPIC | {"outcome": "info", "complete_ns": None}, True, [], id="nobody answered"),
    pytest.param(DELETE_TOPIC | {"outcome": "fail"}, True, ["unjudged"], id="it was refused"),
    pytest.param(DELETE_TOPIC | {"topic": "other"}, True, ["unjudged"], id="another topic was meant"),
    pytest.param(DELETE_TOPIC, False, ["unjudged"], id="it is still there"),
])  # fmt: skip
def test_a_deleted_topic_owes_no_final_log(run: Run, order: dict[str, Any], removed: bool, expected: list[str]) -> None:
    run.send(0, 100)
    ordered(run, **order)
    if removed:
        run.recorder.row(
            "metadata", metadata_offset=99, quorum_epoch=1, at_ns=305 * MS, record_type="RemoveTopicRecord", topic="t",
            body="{}",
        )  # fmt: skip

    assert [kind for kind, *_ in found(run.finish())] == expected


@pytest.mark.parametrize(("mode", "expected"), [
    pytest.param("zookeeper", [], id="its answer says that it is queued"),
    pytest.param("kraft", ["unjudged"], id="its answer says that it is done"),
])  # fmt: skip
def test_a_deletion_may_come_long_behind_its_answer_in_zookeeper_mode(run: Run, mode: str, expected: list[str]) -> None:
    run.send(0, 100)
    ordered(run, **DELETE_TOPIC)
    run.recorder.row(
        "metadata", metadata_offset=99, quorum_epoch=1, at_ns=2_000 * MS, record_type="RemoveTopicRecord", topic="t",
        body="{}",
    )  # fmt: skip

    assert [kind for kind, *_ in found(run.finish(mode=mode))] == expected


@pytest.mark.parametrize(("retention_ms", "read_from", "expected"), [
    pytest.param("10", None, ("lost", "permitted", "gone_by_order"), id="retention took it"),
    pytest.param("-1", None, ("lost", "violation", ""), id="nothing is ever too old"),
    pytest.param("10", 0, ("lost", "violation", ""), id="a final read lacked it before"),
])  # fmt: skip
def test_logs_that_begin_later_on_all_disks_are_the_final_log_where_nobody_read_to_the_end(
    run: Run, retention_ms: str, read_from: int | None, expected: tuple[str, str, str]
) -> None:
    """A final read that finds the log start moved for ever is no final read: then the disks say where the log begins."""
    run.send(0, 100)
    ordered(run, api="set_config", topic="t", setting="retention.ms", value=retention_ms)
    if read_from is not None:
        final = {"process": 99, "topic": "t", "partition": 0, "isolation": "read_uncommitted", "phase": "final"}
        shown = {"poll_index": 0, "position": 0, "record_count": 0, "high_watermark": 0, "log_start_offset": 0}
        run.recorder.row("polls", **final, **shown, invoke_ns=900 * MS, complete_ns=900 * MS, outcome="ok")
    for node in (1, 2, 3):
        run.dump(node, start=1, end=1)

    assert [row[:3] for row in found(run.finish()) if row[0] == "lost"] == [expected]
