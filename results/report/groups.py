"""Findings that say the same thing, said once.

Alike are findings of one kind, of one acks level, judged by the same rule for the same reason: one cause, however many partitions
and elections showed it. A group shows at most `WITNESSES` of its members; the others are counted. The page shows at most `GROUPS` groups.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from tribunal.results.verdict import Finding

WITNESSES: Final = 3
GROUPS: Final = 60


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Findings alike.

    count:      how many anomalies all its findings stand for.
    where:      partitions (or nodes), each with its count; elections: at which it happened.
    first_ns:   the earliest moment among them; None when none has one.
    reason:     why it counts as what it is: the promise, or the finding's own words.
    """

    kind: str
    severity: str
    explanation: str
    where: list[tuple[str, int]]
    acks: int | None
    rule: str
    reason: str
    elections: list[str]
    count: int
    first_ns: int | None
    last_ns: int | None
    witnesses: list[Finding]


def grouped(findings: Iterable[Finding]) -> list[Group]:
    """Return the groups, in the order of their first finding."""
    members: dict[_Alike, list[Finding]] = {}
    for finding in findings:
        members.setdefault(_alike(finding), []).append(finding)
    return [_group(found) for found in members.values()]


class _Alike(NamedTuple):
    """What findings of one group share; `how` the leader was elected that lost it, and whether that gave an acks level another promise."""

    severity: str
    kind: str
    invariant: str
    acks: int | None
    rule: str
    how: str
    is_exposed: bool


def _alike(finding: Finding) -> _Alike:
    return _Alike(
        severity=finding.severity,
        kind=finding.kind,
        invariant=finding.signature.invariant,
        acks=finding.acks,
        rule=finding.rule,
        how="" if finding.detail.election is None else finding.detail.election.how,
        is_exposed=finding.acks in (0, 1) and finding.detail.exposed_ns is not None,
    )


def _group(found: list[Finding]) -> Group:
    first = found[0]
    times = [finding.acknowledged_ns for finding in found if finding.acknowledged_ns is not None]
    by_time = sorted(found, key=lambda finding: (finding.acknowledged_ns or 0, finding.log_offset or 0))
    return Group(
        kind=first.kind.replace("_", " "),
        severity=first.severity,
        explanation=first.explanation,
        where=_places(found),
        acks=first.acks,
        rule=first.rule,
        reason=first.detail.promise or "",
        elections=list(dict.fromkeys(words for one in by_time if (words := _election(one)))),
        count=sum(finding.count for finding in found),
        first_ns=min(times, default=None),
        last_ns=max(times, default=None),
        witnesses=by_time[:WITNESSES],
    )


def _places(found: list[Finding]) -> list[tuple[str, int]]:
    counts: dict[str, int] = {}
    for one in found:
        place = one.place if one.log_offset is None else one.place.rpartition("@")[0]
        counts[place] = counts.get(place, 0) + one.count
    return sorted(counts.items(), key=lambda item: -item[1])


def _election(finding: Finding) -> str:
    election = finding.detail.election
    if election is None:
        return _excuse(finding)
    at = "" if election.at_ns is None else f", {election.at_ns / 1e9:.3f} s"
    elsewhere = (election.topic, election.partition) != (
        finding.topic,
        finding.partition,
    ) and election.topic is not None
    where = f" of {election.topic}-{election.partition}" if elsewhere else ""
    held = f"; held by {_brokers(election.holders)}" if election.holders else ""
    lost = f"; lost on the disk of {_brokers(election.lost)}" if election.lost else ""
    words = f"{election.how} election of broker {election.leader}{where}, leader epoch {election.leader_epoch}{at}"
    return f"{words}{held}{lost}" + (f" ({election.rule})" if election.rule is not None else "")


def _excuse(finding: Finding) -> str:
    event = finding.detail.excuse
    if event is None:
        return ""
    where = (
        ""
        if event.topic is None
        else f" for {event.topic}-{event.partition}"
        if event.partition is not None
        else f" for {event.topic}"
    )
    at = "" if event.at_ns is None else f", from {event.at_ns / 1e9:.3f} s on"
    return f"{event.event}{where}{at}"


def _brokers(nodes: tuple[int, ...]) -> str:
    return ", ".join(str(node) for node in nodes)
