"""What a report says of promises: what was acknowledged is kept or not."""

from pathlib import Path

import pytest

from tests.checkers.recorded import Run
from tribunal.results.report.promises import Account, account
from tribunal.results.store import Recording
from tribunal.results.verdict import Finding

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
    assert row.lost + sum(count for _, count in row.permitted) == 1
