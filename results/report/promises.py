"""What was promised against what was observed, per acks; and how long each partition answered nothing.

The counts of sends come from the recording, those of losses from the verdict: this page never judges.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.results.plain_words import LOSSES, LOST
from tribunal.results.store import Recording
from tribunal.results.verdict import Finding

SILENCE_NS: Final = 1_000_000_000
ROWS: Final = 40
PROMISES: Final[Mapping[int, str]] = {
    -1: "survives whatever the settings cover; a rule must permit its loss",
    1: "is in the leader's log; survives while that leader leads and keeps its disk",
    0: "nothing",
}
OUTCOMES: Final = ("ok", "sent", "fail", "info")
Array = npt.NDArray[np.int64]


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """One level of acks. `lost`: violations, `permitted`: rule -> how many; `gone`: those of both that had been acknowledged."""

    acks: int
    promise: str
    offered: int
    answered: int
    failed: int
    unknown: int
    lost: int
    permitted: list[tuple[str, int]]
    gone: int

    @property
    def kept(self) -> int:
        """Acknowledged and not found missing."""
        return max(0, self.answered - self.gone)


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """A partition's gaps of a second or longer between two acknowledgements of one acks level, while asked."""

    partition: str
    acks: int
    gaps: list[tuple[int, int]]
    answered: int

    @property
    def longest_ns(self) -> int:
        """The longest gap."""
        return max((end - start for start, end in self.gaps), default=0)

    @property
    def total_ns(self) -> int:
        """All gaps together."""
        return sum(end - start for start, end in self.gaps)


class Account:
    """Adds up the sends of all partitions, one after the other: never all of a big run at once."""

    def __init__(self) -> None:
        self.counts: dict[int, dict[str, int]] = {}
        self.silences: list[Silence] = []
        self.done: list[Array] = []
        self.took: list[Array] = []
        self.outcomes: list[Array] = []

    def add(self, name: str, sends: pa.Table) -> None:
        """Take one partition's sends."""
        acks = sends["acks"].to_numpy()
        outcome = codes(sends["outcome"])
        invoked = sends["invoke_ns"].to_numpy()
        done = pc.fill_null(sends["complete_ns"], -1).to_numpy()
        for level in np.unique(acks).tolist():
            own = acks == level
            counts = self.counts.setdefault(level, dict.fromkeys(OUTCOMES, 0))
            for place, word in enumerate(OUTCOMES):
                counts[word] += int((own & (outcome == place)).sum())
            if level != 0:
                answered = np.sort(done[own & (outcome == 0)])
                self.silences.append(
                    Silence(
                        partition=name,
                        acks=level,
                        gaps=list(_gaps(answered, np.sort(invoked[own]))),
                        answered=int(answered.size),
                    )
                )
        completed = done >= 0
        self.done.append(done[completed])
        self.took.append((done - invoked)[completed])
        self.outcomes.append(outcome[completed])

    def add_calls(self, calls: pa.Table) -> None:
        """Take the calls of a system's clients, which have neither acks nor partitions."""
        done = pc.fill_null(calls["complete_ns"], -1).to_numpy()
        completed = done >= 0
        self.done.append(done[completed])
        self.took.append((done - calls["invoke_ns"].to_numpy())[completed])
        self.outcomes.append(codes(calls["outcome"])[completed])

    def promises(self, findings: Iterable[Finding]) -> list[Promise]:
        """Return a row per acks level, the strongest promise first."""
        lost: dict[int, int] = {}
        permitted: dict[int, dict[str, int]] = {}
        gone: dict[int, int] = {}
        for finding in findings:
            if finding.kind not in LOSSES or finding.acks is None:
                continue
            if finding.kind == LOST and finding.severity in ("violation", "permitted"):
                gone[finding.acks] = gone.get(finding.acks, 0) + finding.count
            if finding.severity == "violation":
                lost[finding.acks] = lost.get(finding.acks, 0) + finding.count
            elif finding.severity == "permitted":
                rules = permitted.setdefault(finding.acks, {})
                rules[finding.rule] = rules.get(finding.rule, 0) + finding.count
        return [
            Promise(
                acks=acks,
                promise=PROMISES.get(acks, ""),
                offered=sum(counts.values()),
                answered=counts["ok"] + counts["sent"],
                failed=counts["fail"],
                unknown=counts["info"],
                lost=lost.get(acks, 0),
                permitted=sorted(permitted.get(acks, {}).items()),
                gone=gone.get(acks, 0),
            )
            for acks, counts in sorted(self.counts.items(), key=lambda item: (item[0] >= 0, -item[0]))
        ]

    def worst_silences(self) -> list[Silence]:
        """Return the partitions with gaps, the longest first."""
        return sorted((one for one in self.silences if one.gaps), key=lambda one: -one.longest_ns)[:ROWS]


def account(recording: Recording, names: Sequence[str]) -> Account:
    """Read all sends once, or the calls where a system took no sends."""
    sums = Account()
    if not names:
        sums.add_calls(recording.table("operations", columns=["outcome", "invoke_ns", "complete_ns"]))
    for name in names:
        sums.add(name, recording.table("sends", name, ["acks", "outcome", "invoke_ns", "complete_ns"]))
    return sums


def codes(outcome: pa.ChunkedArray) -> Array:
    """Return outcomes as their places in `OUTCOMES`."""
    found = pc.index_in(outcome.cast(pa.string()), value_set=pa.array(OUTCOMES))
    return np.asarray(found.to_numpy())


def _gaps(answered: Array, asked: Array) -> Iterator[tuple[int, int]]:
    wide = np.flatnonzero(np.diff(answered) >= SILENCE_NS)
    for start, end in zip(answered[wide].tolist(), answered[wide + 1].tolist(), strict=True):
        if np.searchsorted(asked, end, "left") > np.searchsorted(asked, start, "right"):
            yield start, end
