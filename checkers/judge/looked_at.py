"""Whether a property had anything to look at in a run: whoever had not one row says nothing, however good the verdict."""

from collections.abc import Container, Mapping
from typing import Final

from tribunal.checkers.api import Property, properties

# Tables that only some workloads fill, and what a property counts of those that look at part of a table.
NEEDED: Final = frozenset({"commits", "txns"})
COUNTED: Final[Mapping[str, tuple[str, ...]]] = {
    "aborted_reads": ("records of aborted transactions",),
    "atomicity": ("transactions",),
    "bank": ("bank",),
    "consumers": ("records received by assigned consumers",),
    "control_plane": ("metadata changes",),  # every system has nodes and faults, and not every one a metadata log
    "counters": ("calls on counters",),
    "exactly_once": ("records consumed exactly once",),
    "group_members": ("commits of groups",),
    "hanging_transactions": ("transactions",),
    "locks": ("calls on locks",),
    "object_transactions": ("transactions on lists", "transactions on registers"),
    "queues": ("calls on queues",),
    "registers": ("calls on registers",),
    "sets": ("calls on sets",),
    "streams": ("calls on streams",),
    "transactions": ("transactions",),
}


def had_rows(one: Property, rows: Mapping[str, int], counted: Container[str]) -> bool:
    """Return whether a property had rows to look at.

    rows:     of each table how many rows it has.
    counted:  what was counted of what was judged, and the properties that have figures.
    """
    own = {table: rows.get(table, 0) for table in one.tables}
    if not any(own.values()) or any(not own[table] for table in NEEDED.intersection(own)):
        return False
    what = COUNTED.get(one.name)
    return what is None or any(name in counted for name in what)


def without_rows(rows: Mapping[str, int], counted: Container[str]) -> tuple[str, ...]:
    """Return the names of the properties that had not one row."""
    return tuple(one.name for one in properties().values() if not had_rows(one, rows, counted))
