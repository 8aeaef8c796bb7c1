"""From a folder of runs to a site that others can check: the campaign's page and the evidence of its runs."""

import errno
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from tribunal.harness.catalog import listing
from tribunal.harness.evidence.bundle import bundle, sha256_of
from tribunal.harness.evidence.claims import claims_of
from tribunal.harness.run import commit, lock_sha256
from tribunal.harness.scenario import BadScenario, read_yaml
from tribunal.results.night import upper_bound
from tribunal.results.report.campaign import Statement, clean_and_violating, write
from tribunal.results.report.index import RunRow, index
from tribunal.results.unreadable import UNREADABLE, in_words
from tribunal.results.verdict import PRECEDENCE, Verdict

BUNDLES: Final = "evidence"
PAGE: Final = "index.html"


def published(
    folder: Path,
    statement_file: Path,
    out: Path,
    most_evidence: int,
    notify: Callable[[str], None] = lambda line: None,
) -> Path:
    """Write the site into a new folder, completely or not at all; return its index.html. Errors name the file and what is wrong with it.

    notify:  takes a line about what begins now.
    """
    statement = read_statement(statement_file)
    if not folder.is_dir():
        raise BadScenario(f"{folder}: no such folder of runs")
    if out.exists():
        raise BadScenario(f"{out}: there already; give a folder that does not exist")
    found = index(folder, most=None)
    if not found.runs:
        raise BadScenario(f"{folder}: no judged run in it; tribunal check RUN...")
    making = out.with_name(f"{out.name}.{os.getpid()}.tmp")
    try:
        _write_site(making, folder, statement, found.runs, most_evidence, notify)
        making.rename(out)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return out / PAGE


def _write_site(
    site: Path,
    folder: Path,
    statement: Statement,
    runs: Sequence[RunRow],
    most_evidence: int,
    notify: Callable[[str], None],
) -> None:
    """Write the evidence and the page about runs below a folder."""
    (site / BUNDLES).mkdir(parents=True)
    evidence = {}
    chosen = most_informative(runs, folder, most_evidence)
    for number, run in enumerate(chosen, 1):
        notify(f"archive {number} of {len(chosen)}: {run.place}")
        target = unused(site / BUNDLES / f"{run.run_id}.zip")  # runs of one name in two folders are two runs
        bundle(folder / run.place, target)
        evidence[run.place] = (f"{BUNDLES}/{target.name}", sha256_of(target))
    notify(f"the page, of {len(runs)} run{'' if len(runs) == 1 else 's'}")
    made_with = {
        "tribunal": commit(), "lock file": lock_sha256(), "Python": sys.version.split()[0], "platform": sys.platform,
    }  # fmt: skip
    write(
        folder, statement, claims=claims_of([folder / run.place for run in runs]), faults=listing("faults"), evidence=evidence,
        bound=upper_bound(*clean_and_violating(runs)), target=site, made_with=made_with,
    )  # fmt: skip


def unused(path: Path) -> Path:
    """Return a path, with a number in its name where there is something already."""
    places = (path if number == 1 else path.with_name(f"{path.stem}.{number}{path.suffix}") for number in count(1))
    return next(place for place in places if not place.exists())


def read_statement(path: Path) -> Statement:
    """Read campaign.yaml; `BadScenario` in one line says what is wrong with it."""
    if not path.exists():
        needed = "write campaign, system and version into it, and what is not_covered"
        raise BadScenario(f"{path}: {os.strerror(errno.ENOENT)}; {needed}")
    try:
        return msgspec.convert(read_yaml(path), Statement)
    except UNREADABLE as problem:
        raise BadScenario(f"{path}: {in_words(problem, Statement)}") from None


def most_informative(runs: Sequence[RunRow], folder: Path, count: int) -> list[RunRow]:
    """Return the runs with the strongest evidence: the gravest, of them what is least like the others, small ones first."""
    left = sorted(runs, key=lambda run: (_bytes(folder / run.place), run.run_id))
    chosen: list[RunRow] = []
    alike: Counter[tuple[str, str]] = Counter()  # by kind of cluster, and by kind and scenario
    while left and len(chosen) < count:
        best = min(
            left, key=lambda run: (PRECEDENCE.index(Verdict(run.verdict)), *(alike[like] for like in _likes(run)))
        )
        left.remove(best)
        chosen.append(best)
        alike.update(_likes(best))
    return chosen


def _likes(run: RunRow) -> tuple[tuple[str, str], ...]:
    return (run.cluster, run.scenario), (run.cluster, "")


def _bytes(run: Path) -> int:
    return sum(path.stat().st_size for path in (run / "recording").rglob("*.parquet"))
