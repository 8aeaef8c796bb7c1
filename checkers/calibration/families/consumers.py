"""Consumers that were assigned their partitions: they receive every record, once, up to the end."""

from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import Final

from msgspec.structs import replace

from tribunal.checkers.calibration.api import AnomalyClass, Injected, Injection, shuffled
from tribunal.checkers.calibration.case import LAG_NS, Case, Place
from tribunal.checkers.calibration.draft import Draft
from tribunal.checkers.properties.consumers import OUT_OF_RANGE
from tribunal.results.rows import Commit, Poll, Read, Transaction

STOPPED_NS: Final = 12_000_000_000


def _assigned(case: Case, random: Random) -> Iterator[tuple[Place, int, list[Poll], dict[int, list[Read]]]]:
    """Yield tailing consumers of no group with their polls in order and what each poll received."""
    grouped = {commit.process for place in case.places for commit in case.rows(Commit, place)}
    grouped |= {transaction.process for transaction in case.of_run(Transaction)}
    for place in shuffled(case.places, random):
        by_process: dict[int, list[Poll]] = {}
        for poll in case.rows(Poll, place):
            if poll.phase == "tail" and poll.process not in grouped:
                by_process.setdefault(poll.process, []).append(poll)
        for process in shuffled(list(by_process), random):
            received: dict[int, list[Read]] = {}
            for read in case.rows(Read, place):
                if read.process == process and read.phase == "tail":
                    received.setdefault(read.poll_index, []).append(read)
            yield place, process, sorted(by_process[process], key=lambda poll: poll.poll_index), received


def _as_in_the_end(case: Case, place: Place, reads: list[Read]) -> bool:
    """Whether what was received stands there in the end, of the same leader epoch: then the log held all before it."""
    records = case.log(place).records
    return bool(reads) and all(
        read.log_offset in records
        and (records[read.log_offset].value, records[read.log_offset].leader_epoch) == (read.value, read.leader_epoch)
        and read.leader_epoch is not None
        for read in reads
    )


def _injected(draft: Draft, place: Place, poll: Poll, change: str, read: Read) -> Injected:
    injection = Injection(
        change=change, place=place, log_offset=read.log_offset, value=read.value, since_ns=poll.invoke_ns,
        until_ns=poll.complete_ns,
    )  # fmt: skip
    return Injected(injection=injection, changed=draft.changed())


def _skips(case: Case, random: Random) -> Iterator[Injected]:
    for place, process, polls, received in _assigned(case, random):
        known = {send.value for send in case.kept(place, -1) if send.txn_id is None}
        for poll in shuffled(polls, random):
            own = sorted(received.get(poll.poll_index, []), key=lambda read: read.log_offset)
            inner = [read for read in own[1:-1] if read.value in known]
            if inner and _as_in_the_end(case, place, own):
                read = random.choice(inner)
                draft = Draft(case)
                draft.unreceived(place, [read])
                yield _injected(
                    draft,
                    place,
                    poll,
                    f"consumer {process} does not receive it, and what stands before and behind",
                    read,
                )
                break


def _skips_between(case: Case, random: Random) -> Iterator[Injected]:
    """Let a whole poll's records not be received: the consumer asks on behind them."""
    for place, process, polls, received in _assigned(case, random):
        known = {send.value for send in case.kept(place, -1) if send.txn_id is None}
        for one, poll, two in shuffled(list(zip(polls, polls[1:], polls[2:], strict=False)), random):
            own = received.get(poll.poll_index, [])
            after = received.get(two.poll_index, [])
            if (
                # Who was told that it is out of range begins anew, where it says: behind that answer nothing is skipped yet.
                one.error not in OUT_OF_RANGE
                and any(read.value in known for read in own) and _as_in_the_end(case, place, own + after)
                and after and two.position == max(read.log_offset for read in own) + 1
            ):  # fmt: skip
                draft = Draft(case)
                draft.unreceived(place, own)
                draft.rows(Poll, place)[:] = [
                    row
                    for row in draft.rows(Poll, place)
                    if (row.process, row.poll_index) != (process, poll.poll_index)
                ]
                yield _injected(
                    draft,
                    place,
                    one,
                    f"consumer {process} asks on at {two.position} and never received {len(own)} records",
                    own[0],
                )
                break


def _reads_twice(case: Case, random: Random) -> Iterator[Injected]:
    for place, process, polls, received in _assigned(case, random):
        for one, two in shuffled(list(pairwise(polls)), random):
            own, after = received.get(one.poll_index, []), received.get(two.poll_index, [])
            if not own or not after or two.outcome != "ok" or not _as_in_the_end(case, place, own + after):
                continue
            last = max(own, key=lambda read: read.log_offset)
            if two.position != last.log_offset + 1:
                continue
            draft = Draft(case)
            draft.replace_row(
                place, two, replace(two, position=last.log_offset, record_count=(two.record_count or 0) + 1)
            )
            rows = draft.rows(Read, place)
            rows.insert(rows.index(after[0]), replace(last, poll_index=two.poll_index))
            yield _injected(draft, place, two, f"consumer {process} receives it a second time, in its next poll", last)
            break


def _stops(case: Case, random: Random) -> Iterator[Injected]:
    for place, process, polls, received in _assigned(case, random):
        known = {send.value for send in case.kept(place, -1) if send.txn_id is None}
        behind = [
            poll
            for poll in polls
            if received.get(poll.poll_index) and _goes_on(polls, poll)
            # Where records that it waits for are lost by right it waits anew, for others.
            if case.holds(place, poll.invoke_ns)
        ]
        for poll in shuffled(behind, random)[:1]:
            hidden = _behind(polls, received, poll)
            if poll.position is not None and any(read.value in known for read in hidden):
                draft = _stopped(case, place, hidden, poll)
                change = f"consumer {process} gets nothing more from there on, {len(hidden)} records stand behind"
                yield _injected(draft, place, poll, change, hidden[0])


def _stops_before_election(case: Case, random: Random) -> Iterator[Injected]:
    """Let a consumer get nothing more from before an unclean election on, and be answered by the leader elected there for long.

    What that election took it waited for in vain by right; what stands there since, and did so when the new leader first
    answered, it does not get.
    """
    for place, process, polls, received in _assigned(case, random):
        unclean = [change for change in case.elections(place) if not change.clean]
        if not unclean or case.elections(place)[-1] is not unclean[-1]:
            continue
        election = unclean[-1]
        after = [
            poll for poll in polls
            if poll.leader_epoch == election.after.leader_epoch and poll.invoke_ns > election.at_ns + 2 * LAG_NS
        ]  # fmt: skip
        if not after or not _goes_on(after, after[0]) or not case.holds(place, after[0].invoke_ns):
            continue
        known, standing = {send.value for send in case.kept(place, -1) if send.txn_id is None}, case.log(place).records
        end = after[0].high_watermark or 0
        behind = [
            poll for poll in polls
            if (poll.complete_ns or poll.invoke_ns) < election.at_ns - LAG_NS and received.get(poll.poll_index)
            if poll.position is not None
            if any(offset in standing and standing[offset].value in known for offset in range(poll.position, end))
        ]  # fmt: skip
        for poll in shuffled(behind, random)[:1]:
            hidden = _behind(polls, received, poll)
            draft = _stopped(case, place, hidden, poll)
            epoch = election.after.leader_epoch
            change = (
                f"consumer {process} gets nothing more, also not in leader epoch {epoch}, in which it is answered on"
            )
            yield _injected(draft, place, after[0], change, hidden[0])


def _goes_on(polls: list[Poll], since: Poll) -> bool:
    """Whether what a consumer is shown still rises long after a poll: it has fresh answers, and there is more to read."""
    shown = [poll for poll in polls if poll.outcome == "ok" and poll.poll_index >= since.poll_index]
    return any(
        _shown(one) < _shown(two) and two.invoke_ns - since.invoke_ns > STOPPED_NS for one, two in pairwise(shown)
    )


def _shown(poll: Poll) -> int:
    """Return the end that a poll shows to a consumer of its isolation."""
    is_stable = poll.isolation == "read_committed" and poll.last_stable_offset is not None
    return (poll.last_stable_offset if is_stable else poll.high_watermark) or 0


def _behind(polls: list[Poll], received: dict[int, list[Read]], since: Poll) -> list[Read]:
    """Return what a consumer receives from a poll on."""
    own = [poll.poll_index for poll in polls if poll.poll_index >= since.poll_index]
    return [read for index in own for read in received.get(index, [])]


def _stopped(case: Case, place: Place, hidden: list[Read], since: Poll) -> Draft:
    """Let a consumer ask at one place from a poll on, and get nothing."""
    draft = Draft(case)
    draft.unreceived(place, hidden)
    first, position, process = since.poll_index, since.position, since.process
    draft.edit(Poll, place, lambda row: (
        replace(row, position=position, record_count=0)
        if row.process == process and row.phase == "tail" and row.poll_index >= first else row
    ))  # fmt: skip
    return draft


CLASSES: Final = (
    AnomalyClass(
        name="consumer-skips-a-record",
        changes="an assigned consumer does not receive a record in the midst of a poll's",
        seen_by=("consumers",),
        inject=_skips,
    ),
    AnomalyClass(
        name="consumer-skips-a-poll",
        changes="an assigned consumer asks on behind records that it never received",
        seen_by=("consumers",),
        inject=_skips_between,
    ),
    AnomalyClass(
        name="consumer-reads-twice",
        changes="an assigned consumer receives a record a second time",
        seen_by=("consumers",),
        inject=_reads_twice,
    ),
    AnomalyClass(
        name="consumer-stops",
        changes="an assigned consumer gets nothing more although the log goes on, and nothing may be lost from there on",
        seen_by=("skipped_records",),
        inject=_stops,
    ),
    AnomalyClass(
        name="consumer-stops-before-unclean-election",
        changes="the same, an unclean election lies in its wait, and the leader elected there answers it for long",
        seen_by=("skipped_records",),
        inject=_stops_before_election,
    ),
)
