"""What no answer can show: records beyond the ends that it came with, of an epoch that nobody led, or not sent yet; and a quorum that commits nothing."""

from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import Final, Literal, TypeVar

from msgspec.structs import replace

from tribunal.checkers.calibration.api import AnomalyClass, Injected, Injection, shuffled
from tribunal.checkers.calibration.case import LAG_NS, Case, Place
from tribunal.checkers.calibration.draft import Draft
from tribunal.results.manifest import integer
from tribunal.results.metadata import NO_LEADER
from tribunal.results.rows import Fault, Metadata, NodeEvent, Phase, Poll, Read, Watermark

Column = Literal["high_watermark", "last_stable_offset"]
Shows = TypeVar("Shows", Poll, Watermark)
QUORUM: Final = (("controller.quorum.fetch.timeout.ms", 2_000), ("controller.quorum.election.timeout.ms", 1_000))
SILENT_NS: Final = 20 * LAG_NS
PASSING: Final = frozenset({"kill", "pause", "slow"})  # faults that leave nothing behind when they are healed
NO_OP: Final = "NoOpRecord"


def _received(case: Case, place: Place) -> list[tuple[Poll, Read]]:
    """Return what tailing consumers received, with the answers that it came in: those of which all times and the leader epoch are known."""
    polls = {
        (poll.process, poll.poll_index): poll
        for poll in case.rows(Poll, place)
        if poll.phase == "tail" and poll.outcome == "ok" and poll.complete_ns is not None
    }
    found = (
        (polls.get((read.process, read.poll_index)), read) for read in case.rows(Read, place) if read.phase == "tail"
    )
    return [(poll, read) for poll, read in found if poll is not None]


def _unexposed(case: Case, random: Random) -> Iterator[Injected]:
    yield from _beyond(case, random, "high_watermark")


def _unstable(case: Case, random: Random) -> Iterator[Injected]:
    yield from _beyond(case, random, "last_stable_offset")


def _beyond(case: Case, random: Random, column: Column) -> Iterator[Injected]:
    """Let a leader's end stand at the offset of a record until somebody had asked again after the record was received.

    Several facts are changed, all of that epoch and up to that moment: the answer that the record came with, other answers, the leader's own journal
    and the answer that proves that the end had not moved. What was shown in former epochs and by ListOffsets lies below the record already.
    """
    for place in shuffled(case.places, random):
        leaders = {change.after.leader_epoch: change.after.leader for change in case.history(place)}
        seen = sorted(case.rows(Watermark, place), key=lambda row: row.at_ns)
        drawn = 0
        for poll, read in shuffled(_received(case, place), random):
            epoch, offset, done_ns = poll.leader_epoch, read.log_offset, poll.complete_ns or 0
            is_judged = column == "high_watermark" or poll.isolation == "read_committed"
            if (
                epoch is None
                or read.leader_epoch != epoch
                or not is_judged
                or getattr(poll, column) is None
                or offset < 1
            ):
                continue
            later = next(
                (row for row in seen if _is_asked_after(row, epoch, leaders.get(epoch), done_ns, column)), None
            )
            if later is None or any(_is_beyond(row, epoch, later.at_ns, offset) for row in seen):
                continue
            draft, until_ns = Draft(case), later.at_ns
            draft.edit(Poll, place, lambda row, epoch=epoch, until_ns=until_ns, offset=offset: (  # type: ignore[misc]
                _capped(row, column, offset)
                if row.leader_epoch == epoch and (row.complete_ns or row.invoke_ns) <= until_ns else row
            ))  # fmt: skip
            draft.edit(Watermark, place, lambda row, epoch=epoch, until_ns=until_ns, offset=offset: (  # type: ignore[misc]
                _capped(row, column, offset) if row.leader_epoch == epoch and row.at_ns <= until_ns else row
            ))  # fmt: skip
            injection = Injection(
                change=f"consumer {poll.process} receives it where the {column} of epoch {epoch} is {offset} until later",
                place=place, log_offset=offset, value=read.value, since_ns=poll.invoke_ns, until_ns=until_ns,
            )  # fmt: skip
            yield Injected(injection=injection, changed=draft.changed())
            drawn += 1
            if drawn == 2:
                break


def _is_asked_after(row: Watermark, epoch: int, leader: int | None, done_ns: int, column: Column) -> bool:
    """Whether the leader of an epoch showed an end to somebody who asked from a moment on, or wrote it down surely later."""
    if row.leader_epoch != epoch or leader is None or getattr(row, column) is None:
        return False
    if row.source == "node":
        return row.observer == f"node-{leader}" and row.at_ns - LAG_NS >= done_ns
    return row.source == "fetch" and row.answered_by == leader and row.asked_ns is not None and row.asked_ns >= done_ns


def _is_beyond(row: Watermark, epoch: int, until_ns: int, offset: int) -> bool:
    """Whether somebody else had shown more: a former epoch, or ListOffsets, or a log start."""
    if (row.log_start_offset or 0) > offset:
        return True
    if row.leader_epoch == epoch and row.source != "list_offsets":
        return False
    is_former = row.leader_epoch is None or row.leader_epoch <= epoch
    return is_former and row.at_ns <= until_ns and max(row.high_watermark or 0, row.log_end_offset or 0) > offset


def _capped(row: Shows, column: Column, offset: int) -> Shows:
    """Return what shows no more than an offset; the last stable offset never lies beyond the high watermark."""
    stable = row.last_stable_offset
    row = replace(row, last_stable_offset=None if stable is None else min(stable, offset))
    high = row.high_watermark
    return row if column != "high_watermark" or high is None else replace(row, high_watermark=min(high, offset))


def _epoch_of_nobody(case: Case, random: Random) -> Iterator[Injected]:
    """Let the first record of an answer bear a leader epoch between two in which somebody led, and in which nobody did."""
    for place in [] if case.is_zookeeper else shuffled(case.places, random):
        states = [state for change in case.history(place) for state in (change.before, change.after)]
        led = {state.leader_epoch for state in states if state.leader != NO_LEADER}
        nobody = [epoch for epoch in range(min(led, default=0), max(led, default=0)) if epoch not in led]
        first: dict[tuple[int, int], tuple[Poll, Read]] = {}
        for poll, read in _received(case, place):
            known = first.get((read.process, read.poll_index))
            if known is None or read.log_offset < known[1].log_offset:
                first[read.process, read.poll_index] = (poll, read)
        fitting = [
            (poll, read, max(epoch for epoch in nobody if epoch < read.leader_epoch)) for poll, read in first.values()
            if read.leader_epoch is not None and any(epoch < read.leader_epoch for epoch in nobody)
        ]  # fmt: skip
        if not case.holds(place, 0):
            continue  # a damaged batch may bear any leader epoch
        for poll, read, epoch in shuffled(fitting, random)[:2]:
            draft = Draft(case)
            draft.replace_row(place, read, replace(read, leader_epoch=epoch))
            injection = Injection(
                change=f"consumer {read.process} receives it of leader epoch {epoch}, in which nobody led", place=place,
                log_offset=read.log_offset, value=read.value, since_ns=poll.invoke_ns, until_ns=poll.complete_ns,
            )  # fmt: skip
            yield Injected(injection=injection, changed=draft.changed())


def _before_sent(case: Case, random: Random) -> Iterator[Injected]:
    """Let an answer with one record, which was waited for, come a moment before the record began to be sent.

    The answer's end and what it showed of watermarks move together; when it was asked for stays as it is.
    """
    for place in shuffled(case.places, random):
        sends = {send.value: send for send in case.kept(place, -1)}
        fitting = [
            (poll, read) for poll, read in _received(case, place)
            if poll.record_count == 1 and read.value in sends and poll.invoke_ns < sends[read.value].invoke_ns - 1
        ]  # fmt: skip
        for poll, read in shuffled(fitting, random)[:2]:
            sent_ns = sends[read.value or 0].invoke_ns
            draft = Draft(case)
            draft.replace_row(place, poll, replace(poll, complete_ns=sent_ns - 1))
            key = ("fetch", f"client-{poll.process}", poll.complete_ns)
            draft.edit(Watermark, place, lambda row, key=key, at_ns=sent_ns - 1: (  # type: ignore[misc]
                replace(row, at_ns=at_ns) if (row.source, row.observer, row.at_ns) == key else row
            ))  # fmt: skip
            injection = Injection(
                change=f"consumer {poll.process} has received it before anybody began to send it", place=place,
                log_offset=read.log_offset, value=read.value, since_ns=poll.invoke_ns, until_ns=sent_ns,
            )  # fmt: skip
            yield Injected(injection=injection, changed=draft.changed())


def _commits_nothing(case: Case, random: Random) -> Iterator[Injected]:
    """Let the NoOpRecords of a long calm stretch be committed at its end, all of them: each one's times are changed.

    Calm: nothing else was committed in it, no fault was in effect, none that leaves something behind had been injected before its end,
    and no controller had ended.
    """
    if case.is_zookeeper:
        return
    allowed_ms = 5 * sum(integer(case.settings, name, value) for name, value in QUORUM)
    within_ns = max(SILENT_NS, allowed_ms * 1_000_000) + 3 * LAG_NS
    final = [row.start_ns for row in case.of_run(Phase) if row.name == "final-read" and row.start_ns is not None]
    faults = case.of_run(Fault)
    passing = [
        fault
        for fault in faults
        if fault.kind in PASSING and fault.injected_ns is not None and fault.healed_ns is not None
    ]
    hurt = [fault.injected_ns or 0 for fault in faults if fault not in passing]
    hurt += [
        row.at_ns for row in case.of_run(NodeEvent) if row.role != "broker" and row.event not in ("start", "registered")
    ]
    last_ns = min([*final, *hurt], default=0)
    known = sorted((row for row in case.metadata if row.at_ns is not None), key=lambda row: row.metadata_offset)
    idle = [row.at_ns or 0 for row in known if row.record_type == NO_OP]
    ends = {at_ns for fault in passing for at_ns in (fault.injected_ns or 0, fault.healed_ns or 0)}
    others = sorted({row.at_ns or 0 for row in known if row.record_type != NO_OP} | {*idle[:1], last_ns} | ends)
    calm = [
        (since_ns, until_ns) for since_ns, until_ns in pairwise(others)
        if not any((fault.injected_ns or 0) < until_ns and since_ns < (fault.healed_ns or 0) for fault in passing)
        if idle and since_ns >= idle[0] and until_ns <= last_ns and until_ns - since_ns > within_ns
    ]  # fmt: skip
    for since_ns, until_ns in shuffled(calm, random)[:2]:
        draft = Draft(case)

        def later(row: Metadata, since_ns: int = since_ns, until_ns: int = until_ns) -> Metadata:
            if row.record_type != NO_OP or row.at_ns is None or not since_ns < row.at_ns < until_ns:
                return row
            stamped_ns = None if row.stamped_ns is None else row.stamped_ns + until_ns - row.at_ns
            return replace(row, at_ns=until_ns, stamped_ns=stamped_ns)

        draft.edit(Metadata, None, later)
        injection = Injection(
            change="the quorum commits nothing, and nothing hurts it", place=None, since_ns=since_ns, until_ns=until_ns
        )
        yield Injected(injection=injection, changed=draft.changed())


CLASSES: Final = (
    AnomalyClass(
        name="read-beyond-high-watermark",
        changes="a consumer receives a record beyond the high watermark, which has not moved when somebody asks again",
        seen_by=("consumers",),
        inject=_unexposed,
    ),
    AnomalyClass(
        name="read-beyond-last-stable-offset",
        changes="a read_committed consumer receives a record beyond the last stable offset, which has not moved when somebody asks again",
        seen_by=("consumers",),
        inject=_unstable,
    ),
    AnomalyClass(
        name="read-epoch-of-nobody",
        changes="a consumer receives a record of a leader epoch in which nobody led",
        seen_by=("log_order",),
        inject=_epoch_of_nobody,
    ),
    AnomalyClass(
        name="read-before-sent",
        changes="a consumer has received a record before anybody began to send it",
        seen_by=("consumers",),
        inject=_before_sent,
    ),
    AnomalyClass(
        name="quorum-commits-nothing",
        changes="the metadata quorum commits nothing for long, although nothing hurts it",
        seen_by=("control_plane",),
        inject=_commits_nothing,
    ),
)
