"""Watermarks that go back: at nodes and at consumers, within a leader epoch and across."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from random import Random
from typing import Final

from msgspec.structs import replace

from tribunal.checkers.calibration.api import AnomalyClass, Inject, Injected, Injection, shuffled
from tribunal.checkers.calibration.case import LAG_NS, Case, Place
from tribunal.checkers.calibration.draft import Draft
from tribunal.results.rows import NodeEvent, Poll, Watermark

CATCH_UP_NS: Final = 5 * LAG_NS  # a new leader may show a lower high watermark for a while, not for that long


def _injected(draft: Draft, place: Place, change: str, offset: int, times: tuple[int, int]) -> Injected:
    injection = Injection(change=change, place=place, log_offset=offset, since_ns=times[0], until_ns=times[1])
    return Injected(injection=injection, changed=draft.changed())


def _of_nodes(case: Case, place: Place) -> list[Watermark]:
    own = [seen for seen in case.rows(Watermark, place) if seen.source == "node" and seen.high_watermark is not None]
    return sorted(own, key=lambda seen: seen.at_ns)


def _within_epoch(case: Case, place: Place) -> list[tuple[Watermark, Watermark]]:
    """Return neighbouring rows of one node and one leader epoch, with no start of the node between them."""
    starts = [(event.node, event.at_ns) for event in case.of_run(NodeEvent) if event.event == "start"]
    by_leader: dict[tuple[str, int | None], list[Watermark]] = {}
    for seen in _of_nodes(case, place):
        by_leader.setdefault((seen.observer, seen.leader_epoch), []).append(seen)
    pairs = [pair for own in by_leader.values() for pair in pairwise(own)]
    return [
        (one, two)
        for one, two in pairs
        if one.at_ns < two.at_ns and (one.high_watermark or 0) > 1 and one.leader_epoch is not None
        if not any(f"node-{node}" == one.observer and one.at_ns <= at_ns <= two.at_ns for node, at_ns in starts)
        if case.holds(place, one.at_ns, two.at_ns)
    ]


def _node_within(case: Case, random: Random) -> Iterator[Injected]:
    yield from _steps_back(case, random, "high_watermark")


def _stable_within(case: Case, random: Random) -> Iterator[Injected]:
    yield from _steps_back(case, random, "last_stable_offset")


def _steps_back(case: Case, random: Random, column: str) -> Iterator[Injected]:
    for place in shuffled(case.places, random):
        for one, two in shuffled(_within_epoch(case, place), random)[:2]:
            former = getattr(one, column)
            if not former:
                continue
            draft = Draft(case)
            lower = former - 1
            values = {"high_watermark": lower} if column == "high_watermark" else {}
            draft.replace_row(
                place, two, replace(two, last_stable_offset=min(lower, two.last_stable_offset or lower), **values)
            )
            change = f"{one.observer} shows {column} {former}, then {lower} in leader epoch {one.leader_epoch}"
            yield _injected(draft, place, change, lower, (one.at_ns, two.at_ns))


def _node_across(case: Case, random: Random) -> Iterator[Injected]:
    """Let the last leader's high watermark move, and never reach what a former leader had shown.

    Where it stands still it may stay below for long: a member of the ISR may not have fetched since the election.
    """
    for place in shuffled(case.places, random):
        state, rows = case.state(place), _of_nodes(case, place)
        if state is None or not rows:
            continue
        own = [
            seen for seen in rows if seen.leader_epoch == state.leader_epoch and seen.observer == f"node-{state.leader}"
        ]
        former = [seen for seen in rows if (seen.leader_epoch or 0) < state.leader_epoch]
        if not own or not former or own[0].at_ns == own[-1].at_ns:
            continue
        shown = max(former, key=lambda seen: seen.high_watermark or 0)
        high = shown.high_watermark or 0
        if high < 3 or not case.holds(place, shown.at_ns) or not case.deposed_leaders_know(place, shown.at_ns):
            continue
        draft = Draft(case)
        for seen in own:
            most = high - 2 if seen.at_ns == own[0].at_ns else high - 1
            if (seen.high_watermark or 0) > most:
                draft.replace_row(place, seen, _capped(seen, most))
        change = f"{shown.observer} showed {high} in epoch {shown.leader_epoch}, the leader of {state.leader_epoch} at most {high - 1}"
        yield _injected(draft, place, change, high - 1, (shown.at_ns, own[-1].at_ns))


def _capped(seen: Watermark, high: int) -> Watermark:
    stable = seen.last_stable_offset
    return replace(seen, high_watermark=high, last_stable_offset=None if stable is None else min(stable, high))


def _consumer_within(case: Case, random: Random) -> Iterator[Injected]:
    yield from _shown_less(case, random, across=False)


def _consumer_across(case: Case, random: Random) -> Iterator[Injected]:
    yield from _shown_less(case, random, across=True)


def _shown_less(case: Case, random: Random, *, across: bool) -> Iterator[Injected]:
    """Let a consumer's poll show a lower high watermark than its poll before: one node's answers, whose leader epochs are known."""
    for place in shuffled(case.places, random):
        elections = [change.at_ns for change in case.elections(place)]
        pairs = [
            (one, two)
            for one, two in _shown_pairs(case, place, elections, across=across)
            if any((one.complete_ns or 0) < at_ns < two.invoke_ns for at_ns in elections) is across
            if all(abs(at_ns - one.invoke_ns) > LAG_NS for at_ns in elections)
            if all(not 0 <= two.invoke_ns - at_ns <= CATCH_UP_NS for at_ns in elections)
            if case.holds(place, one.invoke_ns, two.invoke_ns)
            and case.deposed_leaders_know(place, two.invoke_ns - LAG_NS)
            if case.deposed_leaders_know(place, one.invoke_ns - LAG_NS)
        ]
        for one, two in shuffled(pairs, random)[:2]:
            lower = (one.high_watermark or 0) - 1
            draft = Draft(case)
            draft.replace_row(
                place, two, replace(two, high_watermark=lower, last_stable_offset=_least(two.last_stable_offset, lower))
            )
            at_ns, observer = two.complete_ns or two.invoke_ns, f"client-{two.process}"
            draft.edit(Watermark, place, lambda seen, at_ns=at_ns, observer=observer, lower=lower: (  # type: ignore[misc]
                _capped(seen, lower) if (seen.source, seen.observer, seen.at_ns) == ("fetch", observer, at_ns) else seen
            ))  # fmt: skip
            change = f"consumer {one.process} is shown {one.high_watermark}, then {lower}"
            yield _injected(draft, place, change, lower, (one.complete_ns or 0, two.invoke_ns))


def _shown_pairs(case: Case, place: Place, elections: Sequence[int], *, across: bool) -> list[tuple[Poll, Poll]]:
    """Return each poll of a consumer with the one that had shown it the greatest high watermark, before it or before the last election."""
    by_process: dict[int, list[Poll]] = {}
    for poll in case.rows(Poll, place):
        if (
            poll.outcome == "ok"
            and poll.high_watermark is not None
            and poll.phase == "tail"
            and poll.leader_epoch is not None
        ):
            by_process.setdefault(poll.process, []).append(poll)
    found = []
    for own in by_process.values():
        ordered = sorted(own, key=lambda poll: poll.poll_index)
        for number, poll in enumerate(ordered):
            elected_ns = max((at_ns for at_ns in elections if at_ns < poll.invoke_ns), default=0)
            before = [
                one for one in ordered[:number]
                if ((one.complete_ns or one.invoke_ns) < elected_ns if across else _answers(one) == _answers(poll))
            ]  # fmt: skip
            highest = max(before, key=lambda one: one.high_watermark or 0, default=None)
            if highest is not None and (highest.high_watermark or 0) > 1:
                found.append((highest, poll))
    return found


def _answers(poll: Poll) -> tuple[int | None, int | None]:
    """Return whose answer a poll had: followers that serve readers hear of high watermarks later than their leader."""
    return poll.leader_epoch, poll.answered_by


def _least(offset: int | None, end: int) -> int | None:
    return None if offset is None else min(offset, end)


def _latest_back(case: Case, random: Random) -> Iterator[Injected]:
    for place in shuffled(case.places, random):
        asked: dict[str, list[Watermark]] = {}
        for seen in sorted(case.rows(Watermark, place), key=lambda seen: seen.at_ns):
            if seen.source == "list_offsets" and seen.log_end_offset is not None:
                asked.setdefault(seen.observer, []).append(seen)
        pairs = [
            (one, two)
            for own in asked.values()
            for one, two in pairwise(own)
            if one.at_ns < two.at_ns and (one.log_end_offset or 0) > 1
            if case.holds(place, one.at_ns, two.at_ns) and case.deposed_leaders_know(place, two.at_ns - LAG_NS)
            if case.deposed_leaders_know(place, one.at_ns - LAG_NS)
        ]
        for one, two in shuffled(pairs, random)[:2]:
            lower = (one.log_end_offset or 0) - 1
            draft = Draft(case)
            draft.replace_row(place, two, replace(_capped(two, lower), log_end_offset=lower))
            change = f"{one.observer} is answered {one.log_end_offset}, then {lower}"
            yield _injected(draft, place, change, lower, (one.at_ns, two.at_ns))


def _start_beyond(case: Case, random: Random) -> Iterator[Injected]:
    for place in shuffled(case.places, random):
        rows = [
            seen
            for seen in case.rows(Watermark, place)
            if seen.high_watermark is not None and seen.log_start_offset is not None
        ]
        for seen in shuffled(rows, random)[:2]:
            high = seen.high_watermark or 0
            draft = Draft(case)
            draft.replace_row(place, seen, replace(seen, log_start_offset=high + 1))
            change = f"{seen.observer} shows the log start {high + 1} beyond the high watermark {high}"
            yield _injected(draft, place, change, high, (seen.at_ns, seen.at_ns))


def _class(name: str, changes: str, inject: Inject, seen_by: Sequence[str] = ("watermarks",)) -> AnomalyClass:
    return AnomalyClass(name=name, changes=changes, seen_by=tuple(seen_by), inject=inject)


CLASSES: Final = (
    _class("high-watermark-back-at-node", "a leader's high watermark goes back within its leader epoch", _node_within),
    _class(
        "last-stable-offset-back-at-node", "a leader's last stable offset goes back within its epoch", _stable_within
    ),
    _class(
        "high-watermark-back-at-node-across-epochs",
        "the last leader's high watermark moves, and never reaches what a former one had shown",
        _node_across,
    ),
    _class(
        "high-watermark-back-at-consumer",
        "a consumer is shown a lower high watermark than before, with no election in between",
        _consumer_within,
    ),
    _class(
        "high-watermark-back-at-consumer-across-epochs",
        "a consumer is shown a lower high watermark than before, long after an election that lost nothing",
        _consumer_across,
    ),
    _class("latest-offset-back", "ListOffsets answers less than before", _latest_back),
    _class("log-start-beyond-high-watermark", "the log start lies beyond the high watermark", _start_beyond),
)
