"""What a report says of promises: what was acknowledged is kept or not."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.checkers.recorded import Run
from tribunal.results.report.promises import Account, account
from tribunal.results.store import Recording
from tribunal.results.verdict import Detail, Finding

S = 1_000  # of the times of a recording, in milliseconds


def account_of(run: Run) -> Account:
    return account(Recording.open(run.finish()), ["t-0"])


def lost(kind: str, severity: str) -> Finding:
    return Finding(
        property_name="lost_writes", kind=kind, severity=severity, explanation="e", acks=1, rule="R5", count=1
    )  # fmt: skip


@pytest.mark.parametrize("severity", ["violation", "permitted"])
@pytest.mark.parametrize(("kind", "kept"), [("lost", 1), ("lost_after_read", 2)])
def test_what_nobody_acknowledged_takes_nothing_from_what_was_kept(
    tmp_path: Path, kind: str, severity: str, kept: int
) -> None:
    run = Run(tmp_path / "run")
    run.send(1, 1 * S, acks=1)
    run.send(2, 2 * S, acks=1)
    run.send(3, 3 * S, acks=1, outcome="info", log_offset=None)  # read by somebody, and gone

    (row,) = account_of(run).promises([lost(kind, severity)])

    assert (row.answered, row.unknown, row.kept) == (2, 1, kept)
    assert row.lost + sum(count for one in row.losses for _, count in one.permitted) == 1


def losses(tmp_path: Path, *findings: Finding) -> list[tuple[int, list[tuple[str, int]]]]:
    run = Run(tmp_path / "run")
    run.send(1, 1 * S, acks=1)
    (row,) = account_of(run).promises(findings)
    return [(one.lost, one.permitted) for one in row.losses]


def test_what_a_high_watermark_had_passed_has_a_promise_of_its_own(tmp_path: Path) -> None:
    exposed = replace(lost("lost", "violation"), rule="", count=3, detail=Detail(exposed_ns=5))
    read = replace(lost("lost_after_read", "permitted"), rule="R4", count=2, detail=Detail(exposed_ns=0))
    led_again = replace(lost("lost", "violation"), rule="", count=7)

    found = losses(tmp_path, exposed, read, led_again, lost("lost", "permitted"))

    assert found == [(7, [("R5", 1)]), (3, [("R4", 2)])]


def test_a_verdict_that_does_not_say_what_was_exposed_gives_one_row(tmp_path: Path) -> None:
    """Of a verdict of then it is not known: a loss without a rule may be of the one promise or of the other."""
    unknown = replace(lost("lost", "violation"), rule="", count=3)

    assert losses(tmp_path, unknown, lost("lost", "permitted")) == [(3, [("R5", 1)])]
    assert losses(tmp_path / "other", lost("lost", "permitted")) == [(0, [("R5", 1)]), (0, [])]


def test_acks_all_has_one_promise(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.send(1, 1 * S, acks=-1)

    (row,) = account_of(run).promises([replace(lost("lost", "violation"), acks=-1, detail=Detail(exposed_ns=5))])

    assert [one.lost for one in row.losses] == [1]
