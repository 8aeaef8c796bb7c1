"""Acknowledged records that are gone: replaced by another's record, or nothing, or with the log's end."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from tribunal.checkers.calibration.api import AnomalyClass, Injected, Injection, shuffled
from tribunal.checkers.calibration.case import Case, Place
from tribunal.checkers.calibration.draft import Draft
from tribunal.results.rows import Send, Watermark

TAIL: Final = 12  # records that a cut takes at most


def lost(case: Case, send: Send, why: str) -> tuple[Draft, Injection]:
    """Lose a record that had to survive: another's stands in its place in the end."""
    draft = Draft(case)
    draft.supplant(send)
    place = Place(send.topic, send.partition)
    injection = Injection(
        change=f"a record of an unknown process stands where the record was, {why}",
        place=place,
        log_offset=send.log_offset,
        value=send.value,
        since_ns=send.complete_ns or 0,
        until_ns=case.final_read_ns(place),
    )
    return draft, injection


def _one_by_one(choose: Callable[[Case, Place], list[Send]], why: str) -> Callable[[Case, Random], Iterator[Injected]]:
    def inject(case: Case, random: Random) -> Iterator[Injected]:
        for send in spread(case, random, choose):
            draft, injection = lost(case, send, why)
            yield Injected(injection=injection, changed=draft.changed())

    return inject


def spread(case: Case, random: Random, choose: Callable[[Case, Place], list[Send]]) -> Iterator[Send]:
    """Yield records in an order of chance, from all partitions in turn."""
    waiting = [shuffled(choose(case, place), random) for place in shuffled(case.places, random)]
    while any(waiting):
        for own in waiting:
            if own:
                yield own.pop()


def kept_of_all(case: Case, place: Place) -> list[Send]:
    """Return what acks=all acknowledged outside of transactions and what had to survive."""
    return [send for send in case.kept(place, -1) if send.txn_id is None]


def _exposed(case: Case, place: Place) -> list[Send]:
    seen = case.tail_reads(place)
    return [send for send in case.kept(place, 1) if send.value not in seen and case.shown_end(place, send)]


def _read(case: Case, place: Place) -> list[Send]:
    seen = case.tail_reads(place)
    return [send for send in case.kept(place, 1) if send.value in seen]


def kept_of_transactions(case: Case, place: Place) -> list[Send]:
    """Return what committed transactions wrote, where neither it nor its end could be lost."""
    return [send for send in case.kept(place, -1) if send.txn_id is not None and ends_are_kept(case, send)]


def ends_are_kept(case: Case, send: Send) -> bool:
    """Whether the end of a record's transaction was kept where it is decided."""
    home = case.home_of("__transaction_state", send.txn_id or "")
    return home is not None and case.holds(home, send.invoke_ns)


def _after_unclean(case: Case, place: Place) -> list[Send]:
    bad = [change.at_ns for change in case.elections(place) if not change.clean]
    return [send for send in kept_of_all(case, place) if bad and min(bad) < send.invoke_ns]


def _hole(case: Case, random: Random) -> Iterator[Injected]:
    for send in spread(case, random, lambda case, place: kept_of_all(case, place)[:-1]):
        place, offset = Place(send.topic, send.partition), send.log_offset
        if offset is None or offset + 1 not in case.log(place).records:
            continue
        draft = Draft(case)
        draft.erase(place, [offset])
        yield Injected(
            injection=Injection(
                change="nothing stands where the record was, in final reads and replicas", place=place, log_offset=offset,
                value=send.value, since_ns=send.complete_ns or 0, until_ns=case.final_read_ns(place),
            ),
            changed=draft.changed(),
        )  # fmt: skip


def _tail_cut(case: Case, random: Random) -> Iterator[Injected]:
    for place in shuffled(case.places, random):
        end = case.log(place).end
        behind = [send for send in kept_of_all(case, place) if (send.log_offset or 0) >= end - TAIL]
        for send in shuffled(behind, random)[:2]:
            draft = Draft(case)
            draft.cut_off(place, send.log_offset or 0)
            yield Injected(
                injection=Injection(
                    change="the final log ends before the record", place=place, log_offset=send.log_offset,
                    value=send.value, since_ns=send.complete_ns or 0, until_ns=case.final_read_ns(place),
                ),
                changed=draft.changed(),
            )  # fmt: skip


def _shown_end(case: Case, random: Random) -> Iterator[Injected]:
    """Cut what nobody was promised and everybody was shown: records of unknown fate below the high watermark."""
    for place in shuffled(case.places, random):
        log, state = case.log(place), case.state(place)
        if not log.records or state is None or not case.holds(place, case.elections_ns(place)):
            continue
        free = log.end
        promised = {send.value for send in case.rows(Send, place) if send.outcome == "ok"} | {*case.tail_reads(place)}
        while free - 1 in log.records and log.records[free - 1].value not in promised:
            free -= 1
        own = [
            (seen.high_watermark, seen.at_ns)
            for seen in case.rows(Watermark, place)
            if seen.high_watermark is not None
            if seen.source == "node" and seen.leader_epoch == state.leader_epoch
        ]
        shown = max(own, default=(0, 0))
        if free == log.end or shown[0] <= free:
            continue
        draft = Draft(case)
        draft.cut_off(place, free)
        yield Injected(
            injection=Injection(
                change=f"the final log ends at {free}, its last leader had shown the high watermark {shown[0]}", place=place,
                log_offset=free, since_ns=shown[1], until_ns=case.final_read_ns(place),
            ),
            changed=draft.changed(),
        )  # fmt: skip


def _read_of_unknown_fate(case: Case, random: Random) -> Iterator[Injected]:
    """Lose a record that nobody acknowledged and that a consumer has read in the last leader epoch."""
    for place in shuffled(case.places, random):
        state, log = case.state(place), case.log(place)
        if state is None:
            continue
        seen = case.tail_reads(place)
        open_ = [send for send in case.rows(Send, place) if send.outcome in ("info", "sent") and send.txn_id is None]
        for send in shuffled([send for send in open_ if send.value in seen], random)[:2]:
            read = seen[send.value][0]
            standing = log.records.get(read.log_offset)
            if standing is None or standing.value != send.value or read.leader_epoch != state.leader_epoch:
                continue
            if not case.holds(place, send.invoke_ns):
                continue
            draft = Draft(case)
            draft.erase(place, [read.log_offset])
            yield Injected(
                injection=Injection(
                    change="nothing stands where a consumer had read a record that was never acknowledged", place=place,
                    log_offset=read.log_offset, value=send.value, since_ns=send.invoke_ns,
                    until_ns=case.final_read_ns(place),
                ),
                changed=draft.changed(),
            )  # fmt: skip


CLASSES: Final = (
    AnomalyClass(
        name="lost-acks-all",
        changes="a record acknowledged with acks=all is gone, another's stands there",
        seen_by=("lost_writes",),
        inject=_one_by_one(kept_of_all, "acks=all"),
    ),
    AnomalyClass(
        name="lost-acks-1-exposed",
        changes="a record acknowledged with acks=1, passed by the high watermark of the last leader, is gone",
        seen_by=("lost_writes",),
        inject=_one_by_one(_exposed, "acks=1, exposed"),
    ),
    AnomalyClass(
        name="lost-acks-1-read",
        changes="a record acknowledged with acks=1 and read by a consumer is gone",
        seen_by=("lost_writes",),
        inject=_one_by_one(_read, "acks=1, read"),
    ),
    AnomalyClass(
        name="lost-transactional",
        changes="a record of a committed transaction is gone",
        seen_by=("lost_writes",),
        inject=_one_by_one(kept_of_transactions, "its transaction was committed"),
    ),
    AnomalyClass(
        name="lost-after-unclean-election",
        changes="a record written after the last unclean election of its partition is gone: the excuse lies before it",
        seen_by=("lost_writes",),
        inject=_one_by_one(_after_unclean, "written after the last unclean election"),
    ),
    AnomalyClass(
        name="hole", changes="nothing stands where an acknowledged record stood", seen_by=("log_order",), inject=_hole
    ),
    AnomalyClass(
        name="tail-cut",
        changes="the final log ends before an acknowledged record",
        seen_by=("lost_writes",),
        inject=_tail_cut,
    ),
    AnomalyClass(
        name="shown-end",
        changes="the final log ends below the high watermark that its last leader had shown",
        seen_by=("shown_end",),
        inject=_shown_end,
    ),
    AnomalyClass(
        name="lost-after-read",
        changes="a record of unknown fate that a consumer had read is gone",
        seen_by=("lost_writes",),
        inject=_read_of_unknown_fate,
    ),
)
