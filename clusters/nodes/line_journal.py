"""A journal of lines in a run's folder: each is a fact that was written while it was true, by this machine since it was started.

Who sends a run's folder can have written any line into its journal. So each has a proof behind it, made with the number that the kernel drew when the machine was
started, and for the journal's own place: nobody elsewhere knows that number, and what one journal says proves nothing in another. Where the system has no such number
(it is Linux's), who knows how proofs are made can make one; there only the environment of a process says whose it is. After a new start none is: what it named is gone with the processes of then.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from tribunal.results.unreadable import UNREADABLE

Fact = TypeVar("Fact", bound=msgspec.Struct)

BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
BETWEEN: Final = b"\t"  # no line of JSON has one


def note(journal: Path, facts: Iterable[msgspec.Struct]) -> None:
    """Add facts."""
    lines = (msgspec.json.encode(fact) for fact in facts)
    with journal.open("ab") as file:
        file.write(b"".join(line + BETWEEN + _proof(journal, line) + b"\n" for line in lines))


def noted(journal: Path, sort: type[Fact]) -> list[Fact]:
    """Return the facts of a journal, in their order; lines that are none, or not proven, are left out: the last one may be torn."""
    try:
        lines = journal.read_bytes().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        fact, _, proof = line.rpartition(BETWEEN)
        if proof != _proof(journal, fact):
            continue
        with contextlib.suppress(*UNREADABLE):
            found.append(msgspec.json.decode(fact, type=sort))
    return found


def _proof(journal: Path, line: bytes) -> bytes:
    try:
        drawn = BOOT.read_bytes().strip()
    except OSError:
        drawn = b""
    return (
        hashlib.blake2b(os.fsencode(journal.resolve()) + b"\0" + line, key=drawn, digest_size=16).hexdigest().encode()
    )
