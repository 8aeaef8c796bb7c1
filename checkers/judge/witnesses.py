"""From a property's anomalies to findings: alike ones are grouped, the lowest offsets are shown as witnesses, counts add up to all."""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.checkers.api import UNKNOWN, Anomaly, Found, Kind, Meaning, Property, rows_of
from tribunal.checkers.guarantees import OF_MEMORY, OF_SYSTEMS, RULES, VIOLATIONS
from tribunal.checkers.judge.permitted import excuse, permitted
from tribunal.checkers.judge.tables import Figures, FoundIn, Place, Summary, TableRow
from tribunal.checkers.judge.timeline import Judgement
from tribunal.results.verdict import Detail, Finding, GuiltyElection

WITNESSES: Final = 20
PERMITTED: Final = "permitted"
WITHOUT_MAJORITY: Final = (
    0,
    1,
)  # acks levels to which it makes a difference whether a high watermark had passed the record
WITNESS_ORDER: Final = ("log_offset", "value", "at_ns", "other_offset", "node", "leader_epoch", "detail")


def answers(chosen: Property, found: Found, judgements: Mapping[int, Judgement], place: Place) -> Iterator[TableRow]:
    """Yield the findings among what a property found, what it counted, and what its fold needs."""
    groups: dict[tuple[str, str, str, int | None, bool], list[int]] = {}
    kinds, acks = found.anomalies["kind"].to_pylist(), found.anomalies["acks"].to_pylist()
    for row, kind in enumerate(kinds):
        severity, rule = _severity(chosen.kinds[kind], judgements.get(row))
        is_below = acks[row] in WITHOUT_MAJORITY and _exposed_ns(judgements.get(row)) is not None
        groups.setdefault((kind, severity, rule, acks[row], is_below), []).append(row)
    for (_, severity, rule, *_), members in sorted(groups.items(), key=lambda item: _order(*item[0])):
        witnesses = _lowest(found.anomalies, members)
        for number, row in enumerate(witnesses):
            (anomaly,) = rows_of(found.anomalies.slice(row, 1))
            judgement = judgements.get(row)
            detail = _explained(chosen, judgement, found.details.get(row, Detail()), place)
            detail = msgspec.structs.replace(detail, exposed_ns=_exposed_ns(judgement))
            finding = _finding(chosen, anomaly, detail, place)
            count = 1 if number else len(members) - len(witnesses) + 1
            judged = msgspec.structs.replace(finding, severity=severity, rule=rule, count=count)
            yield FoundIn(place.run_dir, judged)
    excused = sorted(row for (_, severity, *_), own in groups.items() if severity == PERMITTED for row in own)
    if excused:
        yield permitted(chosen.name, found.anomalies, judgements, excused, place)
    yield from (FoundIn(place.run_dir, finding) for finding in _self_evident(chosen, judgements, place))
    yield Figures(place, chosen.name, found.figures)
    if found.summary is not None:
        yield Summary(place, chosen.name, msgspec.msgpack.encode(found.summary))


def _order(kind: str, severity: str, rule: str, acks: int | None, is_below: bool) -> tuple[str, str, str, int, bool]:  # noqa: FBT001 - of a group
    return kind, severity, rule, acks or 0, is_below


def _exposed_ns(judgement: Judgement | None) -> int | None:
    return None if judgement is None else judgement.exposed_ns


def _lowest(anomalies: pa.Table, members: list[int]) -> list[int]:
    """Choose witnesses, the same in whatever order an engine found them: by offset, then by whatever else differs."""
    own = anomalies.select(WITNESS_ORDER).take(pa.array(members))
    known = own.set_column(0, "log_offset", own["log_offset"].fill_null(UNKNOWN))
    order = pc.select_k_unstable(known, WITNESSES, [(name, "ascending") for name in WITNESS_ORDER])
    return [members[place] for place in order.to_pylist()]


def _severity(kind: Kind, judgement: Judgement | None) -> tuple[str, str]:
    if judgement is not None and judgement.promise.rule is not None:
        return PERMITTED, judgement.promise.rule
    if judgement is not None and not judgement.is_known:
        return Meaning.UNJUDGED.value, ""
    if kind.meaning is not Meaning.PROMISED:
        return kind.meaning.value, ""
    return "violation", ""


def _finding(chosen: Property, anomaly: Anomaly, detail: Detail, place: Place) -> Finding:
    words = anomaly.detail or (None if chosen.detail is None else chosen.detail(anomaly))
    return Finding(
        property_name=chosen.name,
        kind=anomaly.kind,
        severity="",
        explanation=chosen.kinds[anomaly.kind].sentence,
        topic=place.topic,
        partition=place.partition,
        log_offset=anomaly.log_offset,
        value=anomaly.value,
        acks=anomaly.acks,
        acknowledged_ns=anomaly.at_ns,
        node=anomaly.node,
        leader_epoch=anomaly.leader_epoch,
        detail=msgspec.structs.replace(detail, detail=words, was_at=anomaly.other_offset),
    )


def _explained(chosen: Property, judgement: Judgement | None, detail: Detail, place: Place) -> Detail:
    if judgement is None:
        return detail
    rule = judgement.promise.rule
    words = RULES | OF_MEMORY | OF_SYSTEMS | {own.name: own.words for own in chosen.rules}
    promise = words[rule] if rule is not None else _must_survive(judgement)
    if judgement.election is None:
        return msgspec.structs.replace(
            detail, promise=promise, excuse=None if rule is None else excuse(judgement, place)
        )
    election = GuiltyElection(
        leader=judgement.election.leader,
        how=judgement.election.how.value,
        leader_epoch=judgement.leader_epoch,
        at_ns=judgement.at_ns,
        topic=judgement.topic,
        partition=judgement.partition,
        holders=judgement.holders,
        lost=judgement.lost,
        rule=judgement.by,
    )
    return msgspec.structs.replace(detail, promise=promise, election=election)


def _must_survive(judgement: Judgement) -> str:
    if not judgement.is_known:
        return "nobody recorded this partition's elections"
    if judgement.election is None:
        return "must survive: no leader was elected meanwhile, and no disk provably lost it"
    election = judgement.election
    return f"must survive: no rule permits its loss at the {election.how.value} election of {election.leader}"


def _first_holders(judgement: Judgement) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    return judgement.at_ns or 0, judgement.holders, judgement.lost


def _self_evident(chosen: Property, judgements: Mapping[int, Judgement], place: Place) -> Iterator[Finding]:
    """Elections that are violations by themselves, seen while judging records."""
    seen: dict[tuple[str, str | None, int | None, int], Judgement] = {}
    # Who finds anomalies in another order says the same of them.
    for judgement in sorted(judgements.values(), key=_first_holders):
        for violation in judgement.promise.violations:
            # What is wrong with a whole run may be judged in several partitions, each with leader epochs of its own.
            seen.setdefault((violation, judgement.topic, judgement.partition, judgement.leader_epoch), judgement)
    for (violation, topic, partition, _), judgement in seen.items():
        yield Finding(
            property_name="guarantees",
            kind=violation,
            severity="violation",
            explanation=VIOLATIONS[violation],
            topic=place.topic if topic is None else topic,
            partition=place.partition if topic is None else partition,
            acknowledged_ns=judgement.at_ns,
            node=judgement.election.leader if judgement.election is not None else None,
            leader_epoch=judgement.leader_epoch,
            detail=_explained(chosen, judgement, Detail(), place),
        )
