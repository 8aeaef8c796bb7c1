"""Measurements of known bugs are brought up to date, keep their reasons, and are the page."""

from pathlib import Path

import pytest
from msgspec.structs import replace

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


def test_a_file_that_is_written_anew_is_whole_for_whoever_ends_it_midway(tmp_path: Path) -> None:
    """Hours of measurements are in it: the former content stays until the new one is there."""
    kept, beside = tmp_path / "power.json", tmp_path / "former.json"
    former, latter = [power("m01_no_elr", By.OWN, found=True)], [power("m01_no_elr", By.OWN, found=False)]
    write(kept, former)
    beside.hardlink_to(kept)

    write(kept, latter)

    assert (read(beside), read(kept)) == (former, latter)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["former.json", "power.json"]


@pytest.mark.parametrize(
    ("compared", "changed", "words"),
    [
        (0, 0, "not compared"),
        (1, 0, "never reached: none of 1 run compared went otherwise with it"),
        (8, 0, "never reached: none of 8 runs compared went otherwise with it"),
        (8, 3, "reached, not seen: 3 of 8 runs compared went otherwise with it"),
    ],
)
def test_the_page_says_of_a_miss_whether_the_bug_was_reached(compared: int, changed: int, words: str) -> None:
    missed = replace(power("m01_no_elr", By.SEARCH, found=False), compared=compared, changed=changed)

    text = page([missed], ABOUT)

    assert f"| M01 | search | {words} | not looked into |  |" in text
    assert (f"1 missed that were compared {int(not changed)} were never reached" in text) is bool(compared)


def test_the_page_has_a_column_a_kind_of_search_and_counts_what_broke_apart() -> None:
    text = page(
        [power("m01_no_elr", By.OWN, found=True), power("m01_no_elr", By.SWARM, found=False, why=Missed.NO_FAULT)],
        ABOUT,
    )

    first = "| M01 | no ELR is kept | elr-chain: `log_ends_early/I9`; 1 seed, 3 s | **missed**: elr-chain, 3 seeds, 3 s, 1 ERROR | not run |"
    assert first in text
    assert "| M02 | every end counts as clean | not run | not run | not run |" in text
    assert "| M01 | swarm | not compared | the fault never comes | by reading |" in text
    assert "own: 1 of 1 found. 1 of them were measured in 3 CPU seconds, 20.00 bugs found per CPU minute" in text
    assert "search: not run" in text


def test_the_published_page_is_the_measurements() -> None:
    assert (ROOT / "docs" / "power.md").read_text() == content()
