"""What was promised against what was observed, per acks; and how long each partition answered nothing, of how long it was asked.

The counts of sends come from the recording, those of losses from the verdict: this page never judges.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.results.plain_words import LOSSES, LOST
from tribunal.results.rows import Admin, typed
from tribunal.results.silences import Attempts, deletion_ns, silences
from tribunal.results.store import Recording, partition_order
from tribunal.results.verdict import Finding

ROWS: Final = 40
PROMISES: Final[Mapping[int, str]] = {
    -1: "an acknowledged record survives whatever the settings cover; a rule must permit its loss",
    1: "an acknowledged record is in the leader's log; survives while that leader leads and keeps its disk",
    0: "nothing",
}
# Whatever its acks (docs/verdicts.md): the high watermark moves only with enough of the ISR. Of acks=0 nobody knows the offset who has not read it.
EXPOSED: Final[Mapping[int, str]] = {
    1: "one below a high watermark that somebody was shown, or that was read, survives like one of acks=all",
    0: "one that somebody has read survives like one of acks=all",
}
BEFORE: Final = ("R5", "R6")  # permit the loss only of what no high watermark had passed
OUTCOMES: Final = ("ok", "sent", "fail", "info")
Array = npt.NDArray[np.int64]


class Losses(msgspec.Struct, frozen=True, kw_only=True):
    """What was lost of records that had one promise. `lost`: violations, `permitted`: rule -> how many."""

    promise: str
    lost: int
    permitted: list[tuple[str, int]]


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """One level of acks.

    losses:  one row a promise; with acks=1 and 0 a record has another one once a high watermark passed it, where the verdict says of which it was.
    gone:    of all that was lost, what had been acknowledged.
    """

    acks: int
    offered: int
    answered: int
    failed: int
    unknown: int
    losses: list[Losses]
    gone: int

    @property
    def lost(self) -> int:
        """How many were lost that had to survive."""
        return sum(one.lost for one in self.losses)

    @property
    def kept(self) -> int:
        """Acknowledged and not found missing."""
        return max(0, self.answered - self.gone)


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """A partition's stretches without an acknowledgement of one acks level, and how long it was asked for them in all.

    `tribunal.results.silences` says what counts: the figures are those of the property `availability`.
    """

    partition: str
    acks: int
    gaps: list[tuple[int, int]]
    asked_ns: int

    @property
    def longest_ns(self) -> int:
        """The longest gap."""
        return max((end - start for start, end in self.gaps), default=0)

    @property
    def total_ns(self) -> int:
        """All gaps together."""
        return sum(end - start for start, end in self.gaps)


class Availability(msgspec.Struct, frozen=True, kw_only=True):
    """How long all partitions together were asked for acknowledgements of one acks level, and how long of it they were silent."""

    acks: int
    partitions: int
    asked_ns: int
    silent_ns: int


class Account:
    """Adds up the sends of all partitions, one after the other: never all of a big run at once."""

    def __init__(self) -> None:
        self.counts: dict[int, dict[str, int]] = {}
        self.silences: list[Silence] = []
        self.done: list[Array] = []
        self.took: list[Array] = []
        self.outcomes: list[Array] = []

    def add(self, name: str, sends: pa.Table, deleted_ns: int | None) -> None:
        """Take one partition's sends.

        deleted_ns:  when its topic's deletion was ordered
        """
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
                attempts = Attempts(invoked[own], done[own], outcome[own] == OUTCOMES.index("ok"))
                found = silences(attempts.until(deleted_ns))
                gaps = [*zip(found.start_ns.tolist(), found.end_ns.tolist(), strict=True)]
                self.silences.append(Silence(partition=name, acks=level, gaps=gaps, asked_ns=found.asked_ns))
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
        lost: dict[int, list[Finding]] = {}
        for finding in findings:
            if finding.kind in LOSSES and finding.acks is not None and finding.severity in ("violation", "permitted"):
                lost.setdefault(finding.acks, []).append(finding)
        return [
            Promise(
                acks=acks,
                offered=sum(counts.values()),
                answered=counts["ok"] + counts["sent"],
                failed=counts["fail"],
                unknown=counts["info"],
                losses=_losses(acks, lost.get(acks, [])),
                gone=sum(finding.count for finding in lost.get(acks, []) if finding.kind == LOST),
            )
            for acks, counts in sorted(self.counts.items(), key=lambda item: (item[0] >= 0, -item[0]))
        ]

    def availability(self) -> list[Availability]:
        """Return what all partitions that were asked for a while come to, the strongest promise first."""
        by_acks: dict[int, list[Silence]] = {}
        for one in self.silences:
            if one.asked_ns:
                by_acks.setdefault(one.acks, []).append(one)
        return [
            Availability(
                acks=acks,
                partitions=len(own),
                asked_ns=sum(one.asked_ns for one in own),
                silent_ns=sum(one.total_ns for one in own),
            )
            for acks, own in sorted(by_acks.items())
        ]

    def worst_silences(self) -> list[Silence]:
        """Return the partitions with gaps, the longest first."""
        return sorted((one for one in self.silences if one.gaps), key=lambda one: -one.longest_ns)[:ROWS]


def _losses(acks: int, lost: Sequence[Finding]) -> list[Losses]:
    """Return a row a promise; one alone where a verdict of former versions does not say what a high watermark had passed."""
    exposed = [one for one in lost if one.detail.exposed_ns is not None]
    is_known = exposed or all(one.rule in BEFORE for one in lost)
    if acks not in EXPOSED or not is_known:
        return [_added(PROMISES.get(acks, ""), lost)]
    others = [one for one in lost if one.detail.exposed_ns is None]
    return [_added(PROMISES[acks], others), _added(EXPOSED[acks], exposed)]


def _added(promise: str, lost: Sequence[Finding]) -> Losses:
    permitted: dict[str, int] = {}
    for one in lost:
        if one.severity == "permitted":
            permitted[one.rule] = permitted.get(one.rule, 0) + one.count
    violations = sum(one.count for one in lost if one.severity == "violation")
    return Losses(promise=promise, lost=violations, permitted=sorted(permitted.items()))


def account(recording: Recording, names: Sequence[str]) -> Account:
    """Read all sends once, or the calls where a system took no sends."""
    sums = Account()
    if not names:
        sums.add_calls(recording.table("operations", columns=["outcome", "invoke_ns", "complete_ns"]))
    ordered = typed(recording.table("admin"), Admin)
    for name in names:
        deleted_ns = deletion_ns(ordered, partition_order(name)[0])
        sums.add(name, recording.table("sends", name, ["acks", "outcome", "invoke_ns", "complete_ns"]), deleted_ns)
    return sums


def codes(outcome: pa.ChunkedArray) -> Array:
    """Return outcomes as their places in `OUTCOMES`."""
    found = pc.index_in(outcome.cast(pa.string()), value_set=pa.array(OUTCOMES))
    return np.asarray(found.to_numpy())
