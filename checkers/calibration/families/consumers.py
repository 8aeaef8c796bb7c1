"""Consumers that were assigned their partitions: they receive every record, once, up to the end."""

from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import Final

from msgspec.structs import replace

from tribunal.checkers.calibration.api import AnomalyClass, Injected, Injection, shuffled
from tribunal.checkers.calibration.case import Case, Place
from tribunal.checkers.calibration.draft import Draft
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
                any(read.value in known for read in own) and _as_in_the_end(case, place, own + after)
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
            if polls[-1].invoke_ns - poll.invoke_ns > STOPPED_NS and received.get(poll.poll_index)
            # Where records that it waits for are lost by right it waits anew, for others.
            if case.holds(place, poll.invoke_ns)
        ]
        for poll in shuffled(behind, random)[:1]:
            hidden = [
                read
                for other in polls
                if other.poll_index >= poll.poll_index
                for read in received.get(other.poll_index, [])
            ]
            if poll.position is None or not any(read.value in known for read in hidden):
                continue
            draft = Draft(case)
            draft.unreceived(place, hidden)
            first, position = poll.poll_index, poll.position
            draft.edit(Poll, place, lambda row, first=first, position=position, process=process: (  # type: ignore[misc]
                replace(row, position=position, record_count=0)
                if row.process == process and row.phase == "tail" and row.poll_index >= first else row
            ))  # fmt: skip
            yield _injected(
                draft,
                place,
                poll,
                f"consumer {process} gets nothing more from there on, {len(hidden)} records stand behind",
                hidden[0],
            )


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
        changes="an assigned consumer gets nothing more although the log goes on",
        seen_by=("skipped_records",),
        inject=_stops,
    ),
)
