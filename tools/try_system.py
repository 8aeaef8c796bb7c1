"""Runs what the page of a described system reports, and prints its table anew.

`python tools/try_system.py systems/redis --out DIR` reads systems/redis/page.toml: rows of a scenario, a system.toml, seeds and the verdicts that
are right. It ends with 1 if a run had another verdict, or none. Every run stays in DIR, with its evidence; `--seeds N` makes as many of each row,
`--only fine` leaves out the rows in which a violation is right, `--scenario kill.yaml` all but those of one. `--record` writes how many runs had which
verdict into page.toml (`found`) after each run, and goes on with the seeds behind those that stand there; `--minutes M` begins no run after so many.
Whoever changes what is run deletes `found`.
"""

import argparse
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tribunal.harness.cli.session import conduct
from tribunal.harness.plan import made
from tribunal.harness.scenario import BadScenario, load
from tribunal.results.unreadable import UNREADABLE, in_words

ACCUSED: Final = "VIOLATION"
PAGE: Final = "page.toml"


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of the page.

    seeds:  how many, from 1 on.
    right:  the verdicts that a run may have; one of several runs has to have the first.
    found:  how many of the runs with seeds from 1 on had which verdict, as `--record` has written it.
    """

    scenario: str
    system: str
    right: tuple[str, ...]
    seeds: int = 4
    found: Mapping[str, int] = {}


class Page(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one page reports."""

    row: tuple[Row, ...]


def read_page(file: Path) -> Page:
    """Read a page.toml; `BadScenario` says in one line what is wrong with it."""
    try:
        return msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), Page)
    except OSError as problem:
        raise BadScenario(f"{file}: {problem.strerror}") from None
    except (ValueError, *UNREADABLE) as problem:
        raise BadScenario(f"{file}: {in_words(problem, Page)}") from None


def one(folder: Path, row: Row, seed: int, out: Path) -> str:
    """Run and judge once; return the verdict, or ERROR."""
    try:
        scenario = load(folder / row.scenario, {"cluster.system": str(folder / row.system)})
        plan = made(scenario, seed=seed, cluster="system", time_ms=None, mutants=())
    except BadScenario as problem:
        print(f"{row.scenario} {row.system}: {problem}", file=sys.stderr)
        return "REFUSED"
    judged = conduct(plan, out, "inline", quiet=True, is_one_of_many=True)
    if judged is None:
        raise KeyboardInterrupt
    print(f"{judged.run_dir}: {judged.verdict.verdict.value} {'; '.join(judged.verdict.reasons)}", file=sys.stderr)
    return judged.verdict.verdict.value


def tried(
    folder: Path, row: Row, seeds: int, out: Path, until_s: float, note: Callable[[Mapping[str, int]], None]
) -> Mapping[str, int]:
    """Run a row with the seeds that it lacks, and print it; return how many had which verdict, as is noted after each run."""
    found = Counter(row.found)
    for seed in range(found.total() + 1, seeds + 1):
        if time.monotonic() > until_s:
            break
        found[one(folder, row, seed, out)] += 1
        note(dict(found.most_common()))
    words = ", ".join(f"{verdict} in {count}" for verdict, count in found.most_common())
    print(f"| `{row.system}` | `{row.scenario}` | {words or 'none'} of {found.total()} |", flush=True)
    return dict(found.most_common())


def is_right(row: Row, found: Mapping[str, int]) -> bool:
    """Whether each verdict may be, and the one that has to be is there; of a row that was not run nothing is wrong."""
    return not found or (found.keys() <= set(row.right) and row.right[0] in found)


def written(page: str, rows: Sequence[Row]) -> str:
    """Return a page's text with these rows in it; what stands before them is kept."""
    head = page[: page.index("row = [")]
    lines = [f"    {_line(row)},\n" for row in rows]
    return f"{head}row = [\n{''.join(lines)}]\n"


def _line(row: Row) -> str:
    right = ", ".join(f'"{verdict}"' for verdict in row.right)
    words = [f'scenario = "{row.scenario}"', f'system = "{row.system}"', f"right = [{right}]"]
    if row.seeds != Row.__struct_defaults__[0]:
        words.append(f"seeds = {row.seeds}")
    if row.found:
        words.append(f"found = {{ {', '.join(f'{verdict} = {count}' for verdict, count in row.found.items())} }}")
    return f"{{ {', '.join(words)} }}"


def main() -> int:
    """Run the page; return the exit code."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("folder", type=Path)
    asked.add_argument("--out", type=Path, required=True)
    asked.add_argument("--seeds", type=int, help="runs of each row")
    asked.add_argument("--only", choices=("all", "fine"), default="all")
    asked.add_argument("--scenario", help="only the rows of this one, by its name in page.toml")
    asked.add_argument(
        "--record", action="store_true", help="write what was found into page.toml, and go on from there"
    )
    asked.add_argument("--minutes", type=float, default=float("inf"), help="begin no run after that")
    options = asked.parse_args()
    until_s = time.monotonic() + options.minutes * 60
    file = options.folder / PAGE
    try:
        rows = list(read_page(file).row)
    except BadScenario as problem:
        asked.error(f"{problem}")
    if options.scenario not in (None, *(row.scenario for row in rows)):
        asked.error(
            f"{file} has no row of {options.scenario}: {', '.join(dict.fromkeys(row.scenario for row in rows))}"
        )
    print("| what runs | what happens | verdict |\n|---|---|---|")
    right = True
    for number, row in enumerate(rows):
        if (options.only == "fine" and ACCUSED in row.right) or options.scenario not in (None, row.scenario):
            continue

        def note(found: Mapping[str, int], number: int = number, row: Row = row) -> None:
            rows[number] = msgspec.structs.replace(row, found=found)
            if options.record:
                file.write_text(written(file.read_text(), rows))

        given = row if options.record else msgspec.structs.replace(row, found={})
        found = tried(options.folder, given, options.seeds or row.seeds, options.out, until_s, note)
        right = right and is_right(row, found)
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
