"""Measurements of known bugs are brought up to date, keep their reasons, and are the page."""

from pathlib import Path

import pytest

from tests.tidy.test_citations import ROOT
from tools.generate_power import content
from tribunal.results.power import By, Missed, Power, brought_up_to_date, page, read, write

ABOUT = {"m01_no_elr": "no ELR is kept", "m02_trust_unclean": "every end counts as clean"}


def power(mutant: str, by: By, *, found: bool, why: Missed | None = None, seconds: float = 3) -> Power:
    seen = ["invariant/log_ends_early/I9"] if found else []
    verdicts = {"VIOLATION": 1} if found else {"PASS": 2, "ERROR": 1}
    return Power(
        mutant=mutant, scenario="elr-chain", found=found, by=by, seen_by=seen, seed=0, seeds=sum(verdicts.values()),
        verdicts=verdicts, seconds=seconds, cpu_seconds=seconds, why=why, because="" if why is None else "by reading",
    )  # fmt: skip


def test_a_new_measurement_takes_the_place_of_the_former_and_of_no_other() -> None:
    kept = [power("m01_no_elr", By.OWN, found=False), power("m01_no_elr", By.SWARM, found=True)]

    known = brought_up_to_date(kept, [power("m01_no_elr", By.OWN, found=True)])

    assert [(one.by, one.found) for one in known] == [(By.OWN, True), (By.SWARM, True)]


@pytest.mark.parametrize(("found", "why"), [(False, Missed.TOO_RARE), (True, None)])
def test_a_reason_stays_as_long_as_the_bug_is_missed(found: bool, why: Missed | None) -> None:
    kept = [power("m01_no_elr", By.OWN, found=False, why=Missed.TOO_RARE)]

    (known,) = brought_up_to_date(kept, [power("m01_no_elr", By.OWN, found=found, seconds=9)])

    assert (known.why, known.cpu_seconds) == (why, 9)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    measured = [power("m01_no_elr", By.OWN, found=False, why=Missed.NO_FAULT)]

    write(tmp_path / "power.json", measured)

    assert read(tmp_path / "power.json") == measured
    assert read(tmp_path / "none.json") == []


def test_the_page_has_a_column_a_kind_of_search_and_counts_what_broke_apart() -> None:
    text = page(
        [power("m01_no_elr", By.OWN, found=True), power("m01_no_elr", By.SWARM, found=False, why=Missed.NO_FAULT)],
        ABOUT,
    )

    first = "| M01 | no ELR is kept | elr-chain: `log_ends_early/I9`; 1 seed, 3 s | **missed**: elr-chain, 3 seeds, 3 s, 1 ERROR | not run |"
    assert first in text
    assert "| M02 | every end counts as clean | not run | not run | not run |" in text
    assert "| M01 | swarm | the fault never comes | by reading |" in text
    assert "own: 1 of 1 found. 1 of them were measured in 3 CPU seconds, 20.00 bugs found per CPU minute" in text
    assert "search: not run" in text


def test_the_published_page_is_the_measurements() -> None:
    assert (ROOT / "docs" / "power.md").read_text() == content()
