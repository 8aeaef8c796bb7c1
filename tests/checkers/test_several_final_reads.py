"""Several final reads of one partition: what an earlier one received was there, and a later one has to have it (docs/verdicts.md)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.checkers.recorded import MS, Run
from tests.checkers.test_lost_writes import found
from tests.checkers.test_ranges import cut_everything, judged
from tests.checkers.test_sql import agree

UNCLEAN = {"unclean.leader.election.enable": True}
TO_NODE_3 = {"leader": 3, "isr": [3], "leader_recovery_state": 1, "eligible_leader_replicas": []}
LOST = ("lost", "violation", "", 2)
Change = Callable[[Run], None]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


def sent(run: Run, count: int = 3, **changes: Any) -> dict[int, int | None]:
    return {offset: run.send(offset, 100 + offset, **changes) for offset in range(count)}


def read(
    run: Run,
    process: int,
    records: dict[int, int | None],
    at: int,
    *,
    complete: bool = True,
    start: int = 0,
    isolation: str = "read_uncommitted",
) -> None:
    """Record a final read that takes 50 ms."""
    run.read(records, at, phase="final", process=process, epoch=0, isolation=isolation, log_start_offset=start)
    end = max(records, default=start - 1) + 1
    at += 50
    count = 0 if complete else 1
    run.poll(process, "final", end, count, at, high_watermark=end, isolation=isolation, log_start_offset=start)


def without_last(records: dict[int, int | None]) -> dict[int, int | None]:
    return {offset: value for offset, value in records.items() if offset < max(records)}


@pytest.mark.parametrize(("at", "expected"), [
    pytest.param(2000, [LOST], id="the later one lacks it"),
    pytest.param(1020, [], id="both at the same time: it may have come meanwhile"),
    pytest.param(500, [], id="the earlier one lacks it"),
])  # fmt: skip
def test_what_one_final_read_had_the_next_one_has(run: Run, at: int, expected: list[object]) -> None:
    records = sent(run)
    read(run, 98, records, 1000)
    read(run, 99, without_last(records), at)

    assert found(run.finish()) == expected


def test_all_engines_and_ranges_see_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    records = sent(run, 9) | {9: run.send(9, 300, outcome="info", log_offset=None)}
    read(run, 98, records, 1000)
    read(run, 97, records, 2000, complete=False)
    read(run, 99, {offset: value for offset, value in records.items() if offset < 7}, 3000)
    run_dir = run.finish()
    whole = judged(run_dir)

    assert agree(run_dir, "lost_writes") == {"lost": 2, "lost_after_read": 1}
    cut_everything(monkeypatch, 2)
    assert judged(run_dir) == whole


@pytest.mark.parametrize(("complete", "at", "expected"), [
    pytest.param(True, 1000, [("lost_after_read", "violation", "", 2)], id="read to the end"),
    pytest.param(False, 1000, [("lost_after_read", "violation", "", 2)], id="given up"),
    pytest.param(False, 1990, [], id="given up after the other one had begun: it may have been written then"),
])  # fmt: skip
def test_a_record_of_unknown_fate_that_one_read_had_is_there(
    run: Run, complete: bool, at: int, expected: list[object]
) -> None:
    records = sent(run, 2) | {2: run.send(2, 300, outcome="info", log_offset=None)}
    read(run, 98, records, at, complete=complete)
    read(run, 99, without_last(records), 2000)

    assert found(run.finish()) == expected


@pytest.mark.parametrize(("elected_at", "expected"), [
    pytest.param(1500, ("lost", "permitted", "R4", 2), id="between the reads"),
    pytest.param(500, LOST, id="before the first"),
    pytest.param(5000, LOST, id="after the second"),
])  # fmt: skip
def test_an_unclean_election_excuses_between_the_reads(tmp_path: Path, elected_at: int, expected: object) -> None:
    run = Run(tmp_path / "run", **UNCLEAN)
    run.change(50, isr=[1, 2])
    records = sent(run)
    run.change(elected_at, **TO_NODE_3)
    read(run, 98, records, 1200)
    read(run, 99, without_last(records), 3000)

    assert found(run.finish()) == [expected]


def deletion(since: int, **named: Any) -> Change:
    place = {"api": "delete_records", "topic": "t", "partition": 0, "log_offset": 2} | named
    times = {"invoke_ns": since * MS, "complete_ns": since * MS + 10 * MS, "outcome": "ok"}
    return lambda run: run.recorder.row("admin", process=5, **place | times)


def retention(since: int, until: int, ms: str = "600") -> Change:
    def change(run: Run) -> None:
        for at, value in ((since, ms), (until, "-1")):
            setting = {"name": "retention.ms", "value": value}
            run.metadata("ConfigRecord", at, resource_type=2, resource_name="t", **setting)

    return change


BY_ORDER = ("lost", "permitted", "gone_by_order")


@pytest.mark.parametrize(("change", "expected"), [
    pytest.param(deletion(1500), [BY_ORDER] * 2, id="deleted between the reads"),
    pytest.param(deletion(1500, log_offset=1), [BY_ORDER, LOST[:3]], id="only one of them"),
    pytest.param(deletion(1500, partition=1), [LOST[:3]] * 2, id="in another partition"),
    pytest.param(deletion(500), [LOST[:3]] * 2, id="deleted before the first, which has them all the same"),
    pytest.param(retention(300, 90_000), [BY_ORDER] * 2, id="retention in force"),
    pytest.param(retention(300, 90_000, "60000"), [LOST[:3]] * 2, id="younger than that"),
    pytest.param(lambda _: None, [LOST[:3]] * 2, id="nobody ordered it"),
])  # fmt: skip
def test_what_an_order_takes_between_the_reads_is_gone_by_it(run: Run, change: Change, expected: list[object]) -> None:
    change(run)
    records = sent(run)
    read(run, 98, records, 1000)
    read(run, 99, {2: records[2]}, 3000, start=2)

    assert [row[:3] for row in found(run.finish())] == expected


def test_an_order_that_was_over_long_before_the_first_read_took_nothing_behind_it(run: Run) -> None:
    retention(50, 200, "10")(run)
    records = sent(run)
    read(run, 98, records, 20_000)
    read(run, 99, {2: records[2]}, 30_000, start=2)

    assert [row[:3] for row in found(run.finish())] == [LOST[:3]] * 2


@pytest.mark.parametrize(("outcome", "first", "expected"), [
    pytest.param("aborted", "read_uncommitted", [], id="aborted"),
    pytest.param("info", "read_uncommitted", [], id="of unknown outcome: it may have been aborted"),
    pytest.param("committed", "read_committed", ["lost"], id="committed"),
])  # fmt: skip
def test_a_committed_read_need_not_have_what_an_uncommitted_one_had(
    run: Run, outcome: str, first: str, expected: list[object]
) -> None:
    records = sent(run, 2)
    own = run.send(2, 300, txn_id="x", worker_class="transactional")
    step = {"kind": "send", "topic": "t", "partition": 0, "log_offset": 2, "value": own}
    ends = {"begin_ns": 290 * MS, "end_ns": 400 * MS, "outcome": outcome, "operations": [step]}
    run.recorder.row("txns", process=7, txn_id="x", **ends)
    read(run, 98, records | {2: own}, 1000, isolation=first)
    read(run, 99, records, 2000, isolation="read_committed")

    assert [kind for kind, *_ in found(run.finish())] == expected
