"""A group's position lies nowhere beyond what its partition's log ever came to."""

from pathlib import Path
from typing import Any

import pytest

from tests.checkers.recorded import MS
from tests.checkers.test_exactly_once import Transactions, found
from tests.checkers.test_sql import agree
from tribunal.results.values import value_of

BEYOND = 50
RECORDS: dict[int, int | None] = {sequence: value_of(7, sequence) for sequence in range(3)}
ORDER = {"api": "alter_offset", "group": "g", "topic": "t", "partition": 0, "log_offset": BEYOND, "outcome": "ok"}


@pytest.fixture
def run(tmp_path: Path) -> Transactions:
    """Three records."""
    run = Transactions(tmp_path / "run")
    for sequence in range(3):
        run.send(sequence, 100 + sequence)
    return run


def finish(run: Transactions) -> list[Any]:
    """What kernels and SQL find alike, and how the judge calls it."""
    path = run.finish()
    agree(path, "group_ends")
    return found(path, "group_ends")


VIOLATION = [("offset_beyond_end", "violation", BEYOND)]


@pytest.mark.parametrize(("committed", "outcome", "expected"), [
    pytest.param(BEYOND, "ok", VIOLATION, id="far beyond the end"),
    pytest.param(4, "ok", [("offset_beyond_end", "violation", 4)], id="one beyond the end"),
    pytest.param(3, "ok", [], id="at the end"),
    pytest.param(None, "ok", [], id="none"),
    pytest.param(BEYOND, "fail", [], id="refused"),
    pytest.param(BEYOND, "info", [], id="of unknown outcome"),
])  # fmt: skip
def test_a_position_beyond_the_end(run: Transactions, committed: int | None, outcome: str, expected: list[Any]) -> None:
    run.offsets("commit", committed, 200, outcome=outcome)
    run.final_read(RECORDS)

    assert finish(run) == expected


@pytest.mark.parametrize(("ended", "expected"), [
    pytest.param("committed", VIOLATION, id="committed"),
    pytest.param("aborted", [], id="aborted"),
])  # fmt: skip
def test_in_a_transaction(run: Transactions, ended: str, expected: list[Any]) -> None:
    run.txn(ended, 195)
    run.offsets("commit", BEYOND, 200)
    run.final_read(RECORDS)

    assert finish(run) == expected


def test_of_a_log_whose_end_nobody_knows_nothing_is_said(run: Transactions) -> None:
    run.offsets("commit", BEYOND, 200)

    assert finish(run) == []


def test_the_logs_of_all_that_can_lead_say_where_it_ends(run: Transactions) -> None:
    run.offsets("commit", BEYOND, 200)
    for node in (1, 2, 3):
        run.log(node, {offset: value_of(7, offset) for offset in range(3)})

    assert finish(run) == VIOLATION


@pytest.mark.parametrize(("high_watermark", "expected"), [
    pytest.param(BEYOND, [], id="as long as that"),
    pytest.param(BEYOND - 1, VIOLATION, id="not as long as that"),
])  # fmt: skip
def test_a_log_that_had_been_longer(run: Transactions, high_watermark: int, expected: list[Any]) -> None:
    """What became of its end others judge."""
    run.watermark(high_watermark, 150, epoch=0)
    run.offsets("commit", BEYOND, 200)
    run.final_read(RECORDS)

    assert finish(run) == expected


def test_what_a_member_asks_for_proves_no_log(run: Transactions) -> None:
    run.poll(7, "tail", BEYOND, 0, 210, high_watermark=3)
    run.offsets("commit", BEYOND, 200)
    run.final_read(RECORDS)

    assert finish(run) == VIOLATION


PERMITTED = [("offset_beyond_end", "permitted", BEYOND)]


@pytest.mark.parametrize(("order", "expected"), [
    pytest.param(ORDER, PERMITTED, id="to this offset"),
    pytest.param(ORDER | {"log_offset": BEYOND + 1}, VIOLATION, id="to another offset"),
    pytest.param(ORDER | {"log_offset": None}, VIOLATION, id="to nobody knows what"),
    pytest.param(ORDER | {"group": "h"}, VIOLATION, id="another group's"),
    pytest.param(ORDER | {"partition": 1}, VIOLATION, id="in another partition"),
    pytest.param(ORDER | {"outcome": "fail"}, VIOLATION, id="refused"),
    pytest.param(ORDER | {"invoke_ns": 230 * MS, "complete_ns": 231 * MS}, VIOLATION, id="later"),
    pytest.param(
        ORDER | {"invoke_ns": 150 * MS, "complete_ns": 151 * MS}, VIOLATION, id="before its process went on elsewhere"
    ),
    pytest.param({"api": "delete_group", "group": "g", "outcome": "ok"}, VIOLATION, id="deleting is not setting"),
])  # fmt: skip
def test_an_operator_may_set_it_there(run: Transactions, order: dict[str, Any], expected: list[Any]) -> None:
    run.recorder.row("admin", **{"invoke_ns": 180 * MS, "complete_ns": 181 * MS} | order)
    run.offsets("commit", 3, 170)
    run.offsets("commit", BEYOND, 200)
    run.final_read(RECORDS)

    assert finish(run) == expected


def test_no_unclean_election_makes_up_what_nobody_was_shown(tmp_path: Path) -> None:
    run = Transactions(tmp_path / "run", **{"unclean.leader.election.enable": True})
    values = [run.send(sequence, 100 + sequence) for sequence in range(3)]
    run.offsets("commit", BEYOND, 200)
    run.change(300, leader=3, isr=[3], leader_recovery_state=1)
    run.change(400, isr=[3, 1, 2], leader_recovery_state=0)
    run.final_read(dict(enumerate(values)), 900)

    assert finish(run) == VIOLATION
