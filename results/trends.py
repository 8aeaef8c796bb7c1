"""What nights so far say together: how likely a violation is and how sure that is, how soon known bugs are found, what is slow or fails to answer."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from tribunal.results.intervals import interval
from tribunal.results.night import WHOLE
from tribunal.results.night_store import (
    FigureRow,
    FindingRow,
    KnownBugRow,
    NightRow,
    PartRow,
    ReasonRow,
    SensitivityRow,
    rows,
)

MOST: Final = 20


class Chance(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs with an answer a night had, how many of these were violations, and the exact 95 % interval of their share."""

    began: str
    commit: str
    word: str
    runs: int
    violations: int
    low: float
    high: float

    @property
    def share(self) -> float:
        """The share that was seen."""
        return self.violations / self.runs if self.runs else 0.0


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """A figure over nights, the oldest first; None: not measured, or not found, in that night."""

    name: str
    values: list[float | None]

    @property
    def last(self) -> float | None:
        """What was measured last."""
        return next((value for value in reversed(self.values) if value is not None), None)


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A signature: in how many nights and runs, and when first and last."""

    signature: str
    nights: int
    runs: int
    first: str
    last: str


class NoAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A reason for which runs had no answer, such as a fault that did not take effect: how often, and in how many nights."""

    scenario: str
    reason: str
    runs: int
    nights: int


class Trends(msgspec.Struct, frozen=True, kw_only=True):
    """Nights of one name together; `began` are the nights that each series has a value for."""

    night: str
    began: list[str]
    chances: list[Chance]
    known_bugs: list[Series]
    figures: list[Series]
    sensitivity: list[Series]
    parts: list[Series]
    findings: list[Seen]
    no_answer: list[NoAnswer]


Row = TypeVar("Row", FigureRow, KnownBugRow, PartRow, SensitivityRow)
OfNight = TypeVar("OfNight", NightRow, FigureRow, KnownBugRow, PartRow, SensitivityRow, FindingRow, ReasonRow)
Part = tuple[str, str, str]  # the name of a night, when this part of it began, which shard it is


def trends(store: str) -> list[Trends]:
    """Return what the nights of a store say, a name of nights after the other. NoTables: there are none.

    store:  as for night_store.add.
    """
    table = rows(store, NightRow)
    began_of = _beginnings(table)
    nights = _joined(table, began_of)
    figures, bugs = _joined(rows(store, FigureRow), began_of), _joined(rows(store, KnownBugRow), began_of)
    anomalies, parts = _joined(rows(store, SensitivityRow), began_of), _joined(rows(store, PartRow), began_of)
    put_in = [row for row in anomalies if row.injected]  # a class without a place says nothing
    findings, reasons = _joined(rows(store, FindingRow), began_of), _joined(rows(store, ReasonRow), began_of)
    found = []
    for name in dict.fromkeys(row.night for row in nights):
        own = [row for row in nights if row.night == name]
        began = sorted({row.began for row in own})
        found.append(
            Trends(
                night=name,
                began=began,
                chances=[_chance([row for row in own if row.began == at]) for at in began],
                known_bugs=_series(_of(bugs, name), began, lambda row: row.mutant, _soonest),
                figures=_series(_of(figures, name), began, lambda row: row.figure, _mean),
                sensitivity=_series(_of(put_in, name), began, lambda row: row.anomaly, _seen),
                parts=_slowest(_series(_of(parts, name), began, lambda row: row.part, _longest)),
                findings=_findings([row for row in findings if row.night == name]),
                no_answer=_no_answer([row for row in reasons if row.night == name]),
            )
        )
    return found


def _beginnings(table: Sequence[NightRow]) -> dict[Part, str]:
    """Return when the night began that each part is of; shards of a night that is there as a whole, too, are left out.

    table:  the oldest first.
    """
    wholes = {(row.night, row.commit, row.first_seed, row.began) for row in table if row.shard == WHOLE}
    found: dict[Part, str] = {}
    for own in _parts_of_nights(table):
        merged = {(row.night, row.commit, row.first_seed, row.began) for row in own if row.shard != WHOLE}
        if not merged & wholes:
            found.update({(row.night, row.began, row.shard): own[0].began for row in own})
    return found


def _parts_of_nights(table: Iterable[NightRow]) -> list[list[NightRow]]:
    """Return rows night by night.

    Shards of one night have its name, commit, first seed and their count in common, and each is there once: the same shard once
    more is of the next such night. Of rows that do not know their first seed only the moment says what belongs together.
    """
    nights: list[list[NightRow]] = []
    newest: dict[tuple[str, str, int | str, str], list[NightRow]] = {}
    for row in table:
        seeds = row.began if row.first_seed is None else row.first_seed
        key = (row.night, row.commit, seeds, row.shard.partition("/")[2])
        own = newest.get(key)
        if own is None or row.shard in {other.shard for other in own}:
            own = newest[key] = []
            nights.append(own)
        own.append(row)
    return nights


def _joined(table: Iterable[OfNight], began_of: Mapping[Part, str]) -> list[OfNight]:
    """Return the rows of nights, with the moment at which their night began; whoever adds a night meanwhile is left out."""
    return [
        msgspec.structs.replace(row, began=began_of[part])
        for row in table
        if (part := (row.night, row.began, row.shard)) in began_of
    ]


def _of(table: Iterable[Row], name: str) -> list[Row]:
    return [row for row in table if row.night == name]


def _chance(shards: Sequence[NightRow]) -> Chance:
    """Return a night's chance: runs without an answer say nothing."""
    runs = sum(row.runs - row.inconclusive - row.errors for row in shards)
    violations = sum(row.violations for row in shards)
    low, high = interval(violations, runs)
    words = dict.fromkeys(row.word for row in shards)
    return Chance(
        began=shards[0].began, commit=shards[0].commit, word=", ".join(words), runs=runs, violations=violations,
        low=low, high=high,
    )  # fmt: skip


def _series(
    table: Iterable[Row],
    began: Sequence[str],
    name_of: Callable[[Row], str],
    figure_of: Callable[[Sequence[Row]], float | None],
) -> list[Series]:
    by_name: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in table:
        by_name[name_of(row)][row.began].append(row)
    return [
        Series(name=name, values=[figure_of(by_night[at]) if at in by_night else None for at in began])
        for name, by_night in by_name.items()
    ]


def _soonest(shards: Sequence[KnownBugRow]) -> float | None:
    return min((row.seconds for row in shards if row.found), default=None)


def _mean(shards: Sequence[FigureRow]) -> float:
    return sum(row.value for row in shards) / len(shards)


def _seen(shards: Sequence[SensitivityRow]) -> float | None:
    injected = sum(row.injected for row in shards)
    return 100 * sum(row.seen for row in shards) / injected if injected else None


def _longest(shards: Sequence[PartRow]) -> float:
    return max(row.seconds for row in shards)


def _slowest(parts: Sequence[Series]) -> list[Series]:
    return sorted(parts, key=lambda one: -(one.last or 0.0))


def _findings(table: Sequence[FindingRow]) -> list[Seen]:
    by_signature: dict[str, list[FindingRow]] = defaultdict(list)
    for row in table:
        by_signature[row.signature].append(row)
    found = [
        Seen(
            signature=signature,
            nights=len({row.began for row in own}),
            runs=sum(row.count for row in own),
            first=min(row.began for row in own),
            last=max(row.began for row in own),
        )
        for signature, own in by_signature.items()
    ]
    return sorted(found, key=lambda one: (one.last, one.nights), reverse=True)


def _no_answer(table: Sequence[ReasonRow]) -> list[NoAnswer]:
    by_reason: Mapping[tuple[str, str], list[ReasonRow]] = defaultdict(list)
    for row in table:
        by_reason[row.scenario, row.reason].append(row)
    found = [
        NoAnswer(
            scenario=scenario,
            reason=reason,
            runs=sum(row.count for row in own),
            nights=len({row.began for row in own}),
        )
        for (scenario, reason), own in by_reason.items()
    ]
    return sorted(found, key=lambda one: -one.runs)[:MOST]
