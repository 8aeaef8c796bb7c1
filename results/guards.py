"""The table of guards: every place of the nodes' code that refuses, raises or catches something, and how often runs came there; 0 is a cold guard.

A night writes it, adds to it when it goes on after it was killed, and `merge` adds those of shards.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tribunal.results.whole_files import put

GUARDS: Final = "guards.csv"
HEAD: Final = ("module", "function", "guard", "reached")


class DamagedTable(Exception):
    """A file that is no table of guards; one line that names it."""


class Place(NamedTuple):
    """One guard: its module and function, and what it does there."""

    module: str
    function: str
    guard: str

    def __str__(self) -> str:
        return f"{self.module}.{self.function}: {self.guard}"


Table = Counter[Place]  # cold guards are in it with 0


def write(folder: Path, table: Table) -> Path:
    """Write a folder's table as a whole; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    file = io.StringIO(newline="")
    rows = csv.writer(file)
    rows.writerow(HEAD)
    rows.writerows((*place, table[place]) for place in sorted(table))
    return put(folder / GUARDS, file.getvalue().encode())


def read(folder: Path) -> Table:
    """Return a folder's table, an empty one where there is none. DamagedTable: the file there is something else."""
    path = folder / GUARDS
    if not path.exists():
        return Counter()
    table: Table = Counter()
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.reader(file)
            if tuple(next(rows, ())) != HEAD:
                raise DamagedTable(f"{path}: not a table of guards: its columns are not {', '.join(HEAD)}")
            for module, function, guard, reached in rows:
                table[Place(module, function, guard)] = int(reached)
    except (OSError, ValueError, csv.Error) as problem:
        raise DamagedTable(f"{path}: not a table of guards: {problem}") from None
    return table


def added(tables: Iterable[Table]) -> Table:
    """Return tables as one."""
    whole: Table = Counter()
    for table in tables:
        whole.update(table)  # cold guards stay in it
    return whole


def cold(table: Table) -> list[str]:
    """Return the guards that no run reached, in the order of the code."""
    return [str(place) for place in sorted(table) if not table[place]]


def of_counts(places: Sequence[Place], counts: Counter[str]) -> Table:
    """Return the table of guards that are counted by their words."""
    return Counter({place: counts[str(place)] for place in places})
