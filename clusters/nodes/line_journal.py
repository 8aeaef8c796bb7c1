"""A journal of lines in a run's folder: each is a fact that was written while it was true. Who sends a run's folder can have written any."""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from tribunal.results.unreadable import UNREADABLE

Fact = TypeVar("Fact", bound=msgspec.Struct)


def note(journal: Path, facts: Iterable[msgspec.Struct]) -> None:
    """Add facts."""
    with journal.open("ab") as file:
        file.write(b"".join(msgspec.json.encode(fact) + b"\n" for fact in facts))


def noted(journal: Path, sort: type[Fact]) -> list[Fact]:
    """Return the facts of a journal, in their order; lines that are none are left out: the last one may be torn."""
    try:
        lines = journal.read_bytes().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        with contextlib.suppress(*UNREADABLE):
            found.append(msgspec.json.decode(line, type=sort))
    return found
