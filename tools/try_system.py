"""Runs what the page of a described system reports, and prints its table anew.

`python tools/try_system.py systems/redis --out DIR` reads systems/redis/page.toml: rows of a scenario, a system.toml, seeds and the verdicts that
are right. It ends with 1 if a run had another verdict, or none. Every run stays in DIR, with its evidence; `--seeds N` makes as many of each row,
`--only fine` leaves out the rows in which a violation is right.
"""

import argparse
import asyncio
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec

from tribunal.checkers.judge.verdict import check
from tribunal.harness.plan import made
from tribunal.harness.progress import Silent
from tribunal.harness.run import Run, new_run_dir
from tribunal.harness.scenario import BadScenario, load
from tribunal.results.verdict import Verdict

ACCUSED: Final = "VIOLATION"
PAGE: Final = "page.toml"


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of the page.

    seeds:  how many, from 1 on.
    right:  the verdicts that a run may have; one of several runs has to have the first.
    """

    scenario: str
    system: str
    right: tuple[str, ...]
    seeds: int = 4


class Page(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one page reports."""

    row: tuple[Row, ...]


def one(folder: Path, row: Row, seed: int, out: Path) -> str:
    """Run and judge once; return the verdict, or ERROR."""
    try:
        scenario = load(folder / row.scenario, {"cluster.system": str(folder / row.system)})
        plan = made(scenario, seed=seed, cluster="system", time_ms=None, mutants=())
    except BadScenario as problem:
        print(f"{row.scenario} {row.system}: {problem}", file=sys.stderr)
        return "REFUSED"
    run_dir = new_run_dir(plan, out)
    ending = asyncio.run(Run(plan, run_dir, Silent()).execute())
    if ending.failure is not None:
        print(f"{run_dir}: {ending.failure}", file=sys.stderr)
        return Verdict.ERROR.value
    (verdict,) = check([run_dir], "inline")
    print(f"{run_dir}: {verdict.verdict.value} {'; '.join(verdict.reasons)}", file=sys.stderr)
    return verdict.verdict.value


def tried(folder: Path, row: Row, seeds: int, out: Path) -> bool:
    """Run a row and print it; return whether its verdicts are right."""
    found = Counter(one(folder, row, seed, out) for seed in range(1, seeds + 1))
    words = ", ".join(f"{verdict} in {count}" for verdict, count in found.most_common())
    print(f"| `{row.system}` | `{row.scenario}` | {words} of {seeds} |", flush=True)
    return found.keys() <= set(row.right) and row.right[0] in found


def main() -> int:
    """Run the page; return the exit code."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("folder", type=Path)
    asked.add_argument("--out", type=Path, required=True)
    asked.add_argument("--seeds", type=int, help="runs of each row")
    asked.add_argument("--only", choices=("all", "fine"), default="all")
    options = asked.parse_args()
    page = msgspec.toml.decode((options.folder / PAGE).read_bytes(), type=Page)
    rows = [row for row in page.row if options.only == "all" or ACCUSED not in row.right]
    print("| what runs | what happens | verdict |\n|---|---|---|")
    right = [tried(options.folder, row, options.seeds or row.seeds, options.out) for row in rows]
    return 0 if all(right) else 1


if __name__ == "__main__":
    raise SystemExit(main())
