"""What the museum of known faults leaves: for each fault who was tried with the same scenario, and what came of it, as data.

A fault has four sides: the release that has it, the one that has it not, our own log as it is, and our own log with the known bug
of the same fault switched on. All four are judged by the same judge. A run counts when it was judged; of those, k of n show the
fault, with the exact 95 % interval of the share.
"""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from tribunal.results.intervals import interval
from tribunal.results.verdict import Verdict
from tribunal.results.whole_files import put_json

FILE: Final = "museum.json"
JUDGED: Final = (Verdict.PASS, Verdict.PERMITTED, Verdict.VIOLATION)


class Side(StrEnum):
    """Who stands beside whom."""

    HAS = "has it"
    HAS_NOT = "has it not"
    OURS = "replog"
    MUTANT = "replog with the bug"


SHOWS: Final = (Side.HAS, Side.MUTANT)  # these have to show the fault, the others must not


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One run.

    shows:     whether the fault is seen in it, whatever the verdict.
    measured:  what was seen, in words.
    run_dir:   empty: it could not be run, and `reasons` say why.
    """

    seed: int
    verdict: Verdict
    shows: bool
    measured: str
    reasons: tuple[str, ...] = ()
    seconds: float
    run_dir: str = ""

    @property
    def counts(self) -> bool:
        """Whether it was judged, or shows the fault without that."""
        return self.shows or self.verdict in JUDGED

    def line(self) -> str:
        """Say it in a line."""
        said = self.measured or "; ".join(self.reasons[:1])
        return f"{'shown' if self.shows else 'not shown':<10} {self.verdict.value:<12} {self.seconds:6.1f} s  {said}"


class Evidence(msgspec.Struct, frozen=True):
    """An archive below the page's folder, and its hash."""

    path: str
    sha256: str


class Exhibit(msgspec.Struct, kw_only=True):
    """One side of a fault.

    system:    who: `Apache Kafka 3.9.1`, `replog`, `replog with M01`.
    expected:  the verdicts that a run of it may end in.
    evidence:  of the first run that shows what is expected of this side.
    again:     the command that runs it once more.
    """

    side: Side
    system: str
    expected: tuple[Verdict, ...]
    again: str
    attempts: list[Attempt] = msgspec.field(default_factory=list)
    evidence: Evidence | None = None

    @property
    def runs(self) -> int:
        """How many runs count."""
        return sum(attempt.counts for attempt in self.attempts)

    @property
    def shown(self) -> int:
        """In how many of them the fault is seen."""
        return sum(attempt.shows for attempt in self.attempts)

    @property
    def interval(self) -> tuple[float, float]:
        """Exact 95 % interval of the share that shows it."""
        return interval(self.shown, self.runs)

    @property
    def is_as_expected(self) -> bool | None:
        """Whether it came as it had to; None: no run counts, or the fault was seen in runs alone that could not be judged."""
        if not self.runs:
            return None
        counted = [attempt for attempt in self.attempts if attempt.counts]
        if self.side in SHOWS:
            if any(attempt.shows and attempt.verdict in self.expected for attempt in counted):
                return True
            return False if any(attempt.verdict in JUDGED for attempt in counted) else None
        return not self.shown and all(attempt.verdict in self.expected for attempt in counted)

    @property
    def outcome(self) -> str:
        """Say what came of it in a line."""
        if not self.runs:
            return "not tried" if not self.attempts else "no run was judged"
        low, high = self.interval
        return f"{self.shown} of {self.runs} show it (95 %: {low:.0%} to {high:.0%})"


class Shown(msgspec.Struct, kw_only=True):
    """One fault: what it is, and its sides.

    sign:   how a run shows it, in words.
    story:  what happens, step by step.
    """

    name: str
    fault: str
    proposal: str
    scenario: str
    sign: str
    story: str
    exhibits: list[Exhibit]

    @property
    def is_as_expected(self) -> bool | None:
        """Whether every side came as it had to; None: of some side nothing is known, and nothing is wrong."""
        sides = [exhibit.is_as_expected for exhibit in self.exhibits]
        return False if False in sides else None if None in sides else True


class Museum(msgspec.Struct, kw_only=True):
    """All faults that were tried, and what with."""

    began: str
    commit: str
    lock_sha256: str
    budget_s: float
    seconds: float = 0.0
    shown: list[Shown] = msgspec.field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0: everything as expected; 1: something is not; 2: of something nothing is known."""
        rows = [row.is_as_expected for row in self.shown]
        return 1 if False in rows else 2 if None in rows or not rows else 0


def summary(museum: Museum) -> str:
    """Return a text of few lines: every side of every fault."""
    return "\n".join(_lines(museum.shown))


def _lines(shown: Sequence[Shown]) -> list[str]:
    words = {True: "as expected", False: "NOT AS EXPECTED", None: "unknown"}
    lines = []
    for row in shown:
        lines.append(f"{row.name}  {row.fault}: {words[row.is_as_expected]}")
        lines += [f"  {one.side.value:<19} {one.system:<22} {one.outcome}" for one in row.exhibits]
    return lines


def save(museum: Museum, folder: Path) -> None:
    """Write museum.json completely or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    put_json(folder / FILE, museum)


def load(path: Path) -> Museum:
    """Read museum.json."""
    return msgspec.json.decode(path.read_bytes(), type=Museum)
