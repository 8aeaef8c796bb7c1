"""What groups consumed and what banks hold comes out of ranges as out of the whole partition, a rule with a good and a bad neighbour."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.checkers.grouped_runs import PLACE, grouped_run, in_row_groups
from tests.checkers.recorded import MS, Run
from tests.checkers.test_ranges import cut_everything, found_whole_and_cut
from tribunal.checkers.judge import engine
from tribunal.checkers.judge.items import Rest, work_items
from tribunal.checkers.judge.judge import judge_item
from tribunal.checkers.judge.tables import Figures as Counts
from tribunal.checkers.properties.bank import Figures
from tribunal.results.store import Recording

OF_GROUPS = {"unconsumed", "passed_over", "processed_twice", "unbalanced", "unbalanced_by_loss"}


@pytest.mark.parametrize("offsets", [1, 2, 5])
def test_groups_and_banks_are_judged_in_ranges_as_they_are_whole(tmp_path: Path, offsets: int) -> None:
    found = set()
    for seed in range(8 * offsets, 8 * offsets + 8):
        run_dir = grouped_run(tmp_path / f"run-{seed}", seed)
        found |= {kind for kind, *_ in found_whole_and_cut(run_dir, offsets)}
    assert found & OF_GROUPS


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(0, 200, 10))
def test_many_groups_and_banks_are_judged_in_ranges_as_they_are_whole(tmp_path: Path, first: int) -> None:
    found = set()
    for seed in range(first, first + 10):
        run_dir = grouped_run(tmp_path / f"run-{seed}", seed)
        if seed % 2:
            in_row_groups(run_dir, 1 + seed % 3)
        for offsets in (1, 2, 5):
            found |= {kind for kind, *_ in found_whole_and_cut(run_dir, offsets)}
    assert found & OF_GROUPS


def received(run: Run, records: Mapping[int, int], at: int, process: int = 50) -> None:
    run.read(dict(records), at, process=process)


def committed(run: Run, offset: int, at: int, process: int = 50) -> None:
    times = {"invoke_ns": at * MS, "complete_ns": (at + 1) * MS}
    row = {"group": "g", "kind": "commit", "committed_offset": offset, "outcome": "ok"}
    run.recorder.row("commits", process=process, **row, **PLACE, **times)


def transaction(run: Run, outcome: str, at: int, *steps: tuple[str, int | None, int], process: int = 7) -> None:
    copied = [{"kind": kind, "log_offset": offset, "value": value, **PLACE} for kind, offset, value in steps]
    span = {"begin_ns": at * MS, "end_ns": None if outcome == "info" else (at + 10) * MS}
    run.recorder.row("txns", process=process, txn_id=f"x{process}", outcome=outcome, operations=copied, **span)


@pytest.mark.parametrize("offsets", [1, 2, 5])
@pytest.mark.parametrize(
    ("of_1", "end", "elsewhere", "expected"),
    [
        pytest.param({}, 8, None, [1], id="nobody received it"),
        pytest.param({}, 2, None, [1], id="up to the position"),
        pytest.param({}, 1, None, [], id="behind the position"),
        pytest.param({}, 8, 50, [], id="a member received it elsewhere"),
        pytest.param({}, 8, 60, [1], id="who received it elsewhere is no member"),
        pytest.param({"log_offset": 6}, 8, None, [1], id="acknowledged elsewhere"),
        pytest.param({"log_offset": 6, "acks": 0, "outcome": "sent"}, 8, None, [], id="sent elsewhere, unacknowledged"),
        pytest.param({"log_offset": None}, 8, None, [1], id="acknowledged without an offset"),
        pytest.param({"log_offset": None, "outcome": "info"}, 8, None, [], id="never answered"),
        pytest.param({"txn_id": "x7"}, 8, None, [], id="in a transaction that nobody committed"),
        pytest.param({"txn_id": "committed"}, 8, None, [1], id="in one that was committed"),
    ],
)
def test_what_no_member_received(
    tmp_path: Path, offsets: int, of_1: Mapping[str, Any], end: int, elsewhere: int | None, expected: list[int]
) -> None:
    run = Run(tmp_path / "run")
    log = {offset: run.send(offset, 100 + 10 * offset, **(of_1 if offset == 1 else {})) for offset in range(8)}
    if "txn_id" in of_1:
        outcome = "committed" if of_1["txn_id"] == "committed" else "aborted"
        transaction(run, outcome, 99, ("send", 1, log[1]))
    received(run, {offset: value for offset, value in log.items() if offset != 1}, 300)
    if elsewhere is not None:
        received(run, {7: log[1]}, 310, elsewhere)
    committed(run, end, 320)
    run.final_read(dict(log))

    found = found_whole_and_cut(run.finish(), offsets)

    assert [offset for kind, _, offset in found if kind == "unconsumed"] == expected


@pytest.mark.parametrize("offsets", [1, 2, 5])
@pytest.mark.parametrize(
    ("of_4", "polled", "expected"),
    [
        pytest.param({}, "committed", [], id="consumed"),
        pytest.param({}, "info", [], id="perhaps consumed"),
        pytest.param({}, "aborted", [4], id="consumed by nobody who committed"),
        pytest.param({}, None, [4], id="consumed by nobody"),
        pytest.param({"log_offset": 6}, None, [4], id="acknowledged elsewhere"),
        pytest.param({"log_offset": None}, None, [4], id="acknowledged without an offset"),
        pytest.param({"txn_id": "x7"}, None, [], id="in a transaction that nobody committed"),
        pytest.param({"txn_id": "committed"}, None, [4], id="in one that was committed"),
        pytest.param({"txn_id": "x7", "log_offset": 6}, None, [], id="elsewhere in one that nobody committed"),
    ],
)
def test_what_no_transaction_of_a_group_consumed(
    tmp_path: Path, offsets: int, of_4: Mapping[str, Any], polled: str | None, expected: list[int]
) -> None:
    run = Run(tmp_path / "run")
    log = {offset: run.send(offset, 100 + 10 * offset, **(of_4 if offset == 4 else {})) for offset in range(8)}
    if "txn_id" in of_4:
        outcome = "committed" if of_4["txn_id"] == "committed" else "aborted"
        transaction(run, outcome, 99, ("send", 4, log[4]))
    for number, (outcome, consumed) in enumerate(
        [("committed", [0, 1, 2, 3]), (polled, [4]), ("committed", [5, 6, 7])]
    ):
        if outcome is not None:
            steps = [("poll", offset, log[offset]) for offset in consumed]
            transaction(run, outcome, 300 + 20 * number, *steps, process=8 + number)
            committed(run, consumed[-1] + 1, 305 + 20 * number, 8 + number)
    run.final_read(dict(log))

    found = found_whole_and_cut(run.finish(), offsets)

    assert [offset for kind, _, offset in found if kind == "passed_over"] == expected


BANK = {"worker_class": "transactional-bank", "txn_id": "x7"}


@pytest.mark.parametrize("offsets", [1, 2, 5])
@pytest.mark.parametrize(
    ("of_5", "stands_at", "start", "expected"),
    [
        pytest.param({}, [5], 0, (8, 0), id="where it was acknowledged"),
        pytest.param({"log_offset": 1 << 4}, [5], 0, (8, 0), id="elsewhere"),
        pytest.param({}, [5, 8], 0, (8, 0), id="twice, of which once where it was acknowledged"),
        pytest.param({}, [8, 9], 0, (8, 0), id="twice, elsewhere"),
        pytest.param({"log_offset": None}, [5], 0, (8, 0), id="acknowledged without an offset"),
        pytest.param({"log_offset": None, "outcome": "info"}, [5], 0, (8, 0), id="never answered, and there"),
        pytest.param({}, [], 0, (7, 3), id="missing"),
        pytest.param({"log_offset": None, "outcome": "info"}, [], 0, (7, 3), id="never answered"),
        pytest.param({"log_offset": None, "outcome": "info"}, [], 1, (7, 3), id="perhaps before the log's beginning"),
    ],
)
def test_what_an_account_holds(
    tmp_path: Path, offsets: int, of_5: Mapping[str, Any], stands_at: list[int], start: int, expected: tuple[int, int]
) -> None:
    """Transfers of 1 and -1, and 3 and -3 at offsets 4 and 5."""
    run = Run(tmp_path / "run")
    log = {}
    for offset in range(8):
        amount = (-1) ** offset * (3 if offset in (4, 5) else 1)
        more = of_5 if offset == 5 else {}
        log[offset] = run.send(offset, 100 + 10 * offset, key=f"a:{amount}", **BANK, **more)
        is_open = offset == 5 and more.get("outcome") == "info"
        transaction(run, "info" if is_open else "committed", 99 + 10 * offset, ("send", None, log[offset]))
    final = {offset: value for offset, value in log.items() if offset != 5}
    final |= dict.fromkeys(stands_at, log[5])
    run.poll(98, "final", 0, 0, 890, high_watermark=8, isolation="read_committed", log_start_offset=start)
    run.final_read(dict(final), isolation="read_committed")
    run_dir = run.finish()

    found = {kind for kind, *_ in found_whole_and_cut(run_dir, offsets)}

    with pytest.MonkeyPatch.context() as monkeypatch:
        cut_everything(monkeypatch, offsets)
        (figures,) = engine.judge_runs([run_dir], "inline").folded.values()
    assert figures["bank"] == Figures(records=expected[0], amount=expected[1])
    by_loss = not stands_at and (not of_5 or start)
    assert found & {"unbalanced", "unbalanced_by_loss"} == (
        set() if stands_at else {"unbalanced_by_loss" if by_loss else "unbalanced"}
    )


@pytest.mark.parametrize("offsets", [1, 2, 5])
def test_the_rest_of_a_partition_with_groups_and_a_bank_holds_no_table_as_a_whole(
    tmp_path: Path, offsets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path / "run")
    log = {offset: run.send(offset, 100 + offset, key="a:0", **BANK) for offset in range(8)}
    transaction(run, "committed", 99, *[("send", offset, value) for offset, value in log.items()])
    received(run, log, 300)
    committed(run, 8, 310)
    transaction(run, "committed", 320, *[("poll", offset, value) for offset, value in log.items()], process=8)
    committed(run, 8, 325, 8)
    run.final_read(dict(log), isolation="read_committed")
    cut_everything(monkeypatch, offsets)
    (rest,) = [item for item in work_items(in_row_groups(run.finish(), 2)) if isinstance(item, Rest)]
    read: list[str] = []
    whole = Recording.table
    monkeypatch.setattr(
        Recording, "table", lambda self, name, *more, **named: read.append(name) or whole(self, name, *more, **named)
    )

    counted = {row.property_name: row.counts for row in judge_item(rest) if isinstance(row, Counts)}

    assert not {"sends", "reads", "logs"} & {*read}
    assert counted["exactly_once"] == {"records consumed exactly once": 8}
    assert counted["group_members"] == {"commits of groups": 2}


def judged_with(run_dir: Path, offsets: int) -> tuple[list[tuple[str, str, int | None]], set[str]]:
    """Return what a partition shows, whole and cut, and which tables the tasks of its ranges held as a whole."""
    found = found_whole_and_cut(run_dir, offsets)
    read: set[str] = set()
    whole = Recording.table

    def noted(
        self: Recording, name: str, topic_partition: str | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        read.update([name] if topic_partition == "t-0" else [])
        return whole(self, name, topic_partition, columns)

    with pytest.MonkeyPatch.context() as monkeypatch:
        cut_everything(monkeypatch, offsets)
        monkeypatch.setattr(Recording, "table", noted)
        engine.judge_runs([run_dir], "inline")
    return found, read


def a_log(run: Run, count: int = 8) -> dict[int, int]:
    log = {offset: run.send(offset, 100 + 10 * offset) for offset in range(count)}
    run.final_read(dict(log), 20_000)
    return log


def stopped(run: Run) -> None:
    log = a_log(run)
    received(run, {0: log[0], 1: log[1]}, 300, 90)
    for at in (1_000, 6_000, 13_000):
        run.poll(90, "tail", 2, 0, at, high_watermark=5 + at // 6_000, leader_epoch=0)


def high_watermark_back(run: Run) -> None:
    a_log(run)
    run.watermark(6, 300, epoch=0)
    run.watermark(4, 350, epoch=0)


def latest_offset_back(run: Run) -> None:
    a_log(run)
    for end, at in ((6, 300), (4, 1_400)):
        run.watermark(end, at, epoch=None, observer="client-1", source="list_offsets", log_end_offset=end)


def offset_stale(run: Run) -> None:
    a_log(run)
    run.read({}, 290, process=50)
    for kind, offset, at in (("commit", 0, 300), ("commit", -1, 310), ("fetch", 0, 400)):
        times = {"invoke_ns": at * MS, "complete_ns": (at + 1) * MS}
        row = {"group": "g", "kind": kind, "committed_offset": offset, "outcome": "ok"}
        run.recorder.row("commits", process=50, **row, **PLACE, **times)


def stale_generation(run: Run) -> None:
    a_log(run)
    for process, generation, at in ((50, 5, 300), (51, 4, 400)):
        times = {"invoke_ns": at * MS, "complete_ns": (at + 1) * MS}
        row = {"group": "g", "kind": "commit", "committed_offset": 0, "generation": generation, "outcome": "ok"}
        run.recorder.row("commits", process=process, **row, **PLACE, **times)


def processed_twice(run: Run) -> None:
    log = a_log(run)
    for process, at in ((8, 300), (9, 400)):
        transaction(run, "committed", at, ("poll", 0, log[0]), process=process)
        committed(run, 1, at + 5, process)


CREATED = {"partition_id": 0, "replicas": [1, 2, 3], "isr": [1, 2], "leader": 1, "leader_epoch": 0}


@pytest.mark.parametrize("is_lossy", [False, True], ids=["", "unclean leaders"])
@pytest.mark.parametrize(
    ("planted", "at", "permitted"),
    [
        (stopped, 7_000, "permitted"),
        pytest.param(high_watermark_back, 345, "violation", id="high_watermark_back: within one leader epoch"),
        (latest_offset_back, 345, "permitted"),
        (offset_stale, 345, "permitted"),
        (stale_generation, 345, "permitted"),
        (processed_twice, 345, "permitted"),
    ],
)
def test_what_watermarks_and_commits_explain_needs_no_records(
    tmp_path: Path, planted: Callable[[Run], None], at: int, permitted: str, *, is_lossy: bool
) -> None:
    run = Run(tmp_path / "run", **{"unclean.leader.election.enable": True})
    run.change(50, isr=[1, 2])
    run.metadata("PartitionRecord", 0, topic="__consumer_offsets", **CREATED)
    for topic in ("t", "__consumer_offsets") if is_lossy else ():
        unclean = {"isr": [3], "leader": 3, "leader_recovery_state": 1}
        run.metadata("PartitionChangeRecord", at, topic=topic, partition_id=0, **unclean)
    planted(run)

    found, read = judged_with(run.finish(), 2)

    severity = permitted if is_lossy else "violation"
    assert [one for kind, one, _ in found if kind == planted.__name__] == [severity]
    assert not {"sends", "reads", "logs"} & read


@pytest.mark.parametrize("received_by", [(), (50,)])
def test_what_was_read_explains_needs_all_of_it(tmp_path: Path, received_by: tuple[int, ...]) -> None:
    """Whether a group had read on before an unclean leader wrote a record is seen in reads."""
    run = Run(tmp_path / "run")
    log = a_log(run)
    received(run, {offset: value for offset, value in log.items() if offset or received_by}, 300)
    committed(run, 8, 320)

    found, read = judged_with(run.finish(), 2)

    assert bool(found) == ("reads" in read) == (not received_by)
