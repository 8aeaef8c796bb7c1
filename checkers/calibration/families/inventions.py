"""What nobody sent, what who never led has acknowledged, and what one log or one leader cannot show."""

from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import Final

from msgspec.structs import replace

from tribunal.checkers.calibration.api import AnomalyClass, Injected, Injection, shuffled
from tribunal.checkers.calibration.case import LAG_NS, TRANSACTION_LOG, Case, Place
from tribunal.checkers.calibration.draft import Draft
from tribunal.checkers.calibration.families.changed_records import UNSENT
from tribunal.checkers.calibration.families.lost_records import kept_of_all, spread
from tribunal.results.rows import Read, Send, Transaction, Watermark
from tribunal.results.values import value_of

OBSERVED_NS: Final = 4 * LAG_NS  # before the end: by then every leader that answered has been observed


def _nobody_sent(case: Case, random: Random) -> Iterator[Injected]:
    for send in spread(case, random, kept_of_all):
        place, value = Place(send.topic, send.partition), value_of(send.process, UNSENT)
        draft = Draft(case)
        end = draft.append(place, value)
        injection = Injection(
            change="a record stands at the end that nobody sent", place=place, log_offset=end, value=value,
            since_ns=send.complete_ns or 0, until_ns=case.final_read_ns(place),
        )  # fmt: skip
        yield Injected(injection=injection, changed=draft.changed())


def _never_led(case: Case, random: Random) -> Iterator[Injected]:
    end_ns = max((row.at_ns or 0 for row in case.metadata), default=0)
    for send in [] if case.is_zookeeper else spread(case, random, kept_of_all):
        place = Place(send.topic, send.partition)
        history = case.history(place)
        led = {node for change in history for node in (change.before.leader, change.after.leader)}
        others = [node for node in history[-1].after.replicas if node not in led]
        if not others or (send.complete_ns or end_ns) > end_ns - OBSERVED_NS or history[0].after.leader_epoch != 0:
            continue
        node, draft = random.choice(others), Draft(case)
        draft.edit(Send, place, lambda row, value=send.value, node=node: (  # type: ignore[misc]
            replace(row, answered_by=node) if row.value == value and row.outcome == "ok" else row
        ))  # fmt: skip
        injection = Injection(
            change=f"broker {node} acknowledged it, and never led the partition", place=place,
            log_offset=send.log_offset, value=send.value, since_ns=send.invoke_ns, until_ns=send.complete_ns,
        )  # fmt: skip
        yield Injected(injection=injection, changed=draft.changed())


def _epoch_back(case: Case, random: Random) -> Iterator[Injected]:
    for place in shuffled(case.places, random):
        calls: dict[tuple[int, int], list[Read]] = {}
        for read in case.rows(Read, place):
            if read.phase == "tail" and read.leader_epoch is not None and read.value is not None:
                calls.setdefault((read.process, read.poll_index), []).append(read)
        pairs = [pair for own in calls.values() for pair in pairwise(sorted(own, key=lambda read: read.log_offset))]
        for one, two in shuffled(pairs, random)[:2]:
            if not case.holds(place, 0):
                break  # a damaged batch may bear any leader epoch
            draft, newer = Draft(case), (two.leader_epoch or 0) + 1
            draft.replace_row(place, one, replace(one, leader_epoch=newer))
            injection = Injection(
                change=f"one answer hands it out in leader epoch {newer}, and {two.log_offset} in {two.leader_epoch}",
                place=place, log_offset=two.log_offset, value=two.value,
            )  # fmt: skip
            yield Injected(injection=injection, changed=draft.changed())


def _start_back(case: Case, random: Random) -> Iterator[Injected]:
    for place in shuffled(case.places, random):
        leaders = {change.after.leader_epoch: change.after.leader for change in case.history(place)}
        rows: dict[tuple[str, str, int, int | None], list[Watermark]] = {}
        for seen in sorted(case.rows(Watermark, place), key=lambda seen: seen.at_ns):
            leader = leaders.get(-1 if seen.leader_epoch is None else seen.leader_epoch)
            own = f"node-{leader}" == seen.observer if seen.source == "node" else seen.answered_by == leader
            is_said = own and leader is not None and seen.source in ("node", "fetch")
            if is_said and seen.log_start_offset is not None and seen.high_watermark is not None:
                key = (seen.source, seen.observer, seen.leader_epoch or 0, seen.answered_by)
                rows.setdefault(key, []).append(seen)
        pairs = [pair for own in rows.values() for pair in pairwise(own)]
        fitting = [
            (one, two) for one, two in pairs
            if one.at_ns < two.at_ns and (two.log_start_offset or 0) < (one.high_watermark or 0)
            if case.holds(place, one.at_ns, two.at_ns)
        ]  # fmt: skip
        for one, two in shuffled(fitting, random)[:2]:
            draft, start = Draft(case), (two.log_start_offset or 0) + 1
            draft.replace_row(place, one, replace(one, log_start_offset=start))
            injection = Injection(
                change=f"{one.observer} shows the log start {start}, then {two.log_start_offset}", place=place,
                log_offset=two.log_start_offset, since_ns=one.at_ns, until_ns=two.at_ns,
            )  # fmt: skip
            yield Injected(injection=injection, changed=draft.changed())


def _fenced(case: Case, random: Random) -> Iterator[Injected]:
    """Let a transaction be committed with a producer epoch that one committed before it had replaced."""
    known: dict[tuple[str, int | None], list[Transaction]] = {}
    for row in sorted(case.of_run(Transaction), key=lambda row: row.begin_ns):
        if row.outcome == "committed" and row.producer_epoch is not None and row.end_ns is not None:
            known.setdefault((row.txn_id, row.producer_id), []).append(row)
    pairs = [pair for own in known.values() for pair in pairwise(own)]
    for one, two in shuffled(pairs, random):
        home, epoch = case.home_of(TRANSACTION_LOG, one.txn_id), (one.producer_epoch or 0) - 1
        if epoch < 0 or one.producer_id is None or one.begin_ns == two.begin_ns or home is None:
            continue
        if not case.holds(home, one.begin_ns, two.end_ns or 0):
            continue
        draft = Draft(case)
        draft.replace_row(None, two, replace(two, producer_epoch=epoch))
        injection = Injection(
            change=f"{two.txn_id} commits in producer epoch {epoch}, {one.producer_epoch} was in force", place=None,
            since_ns=one.begin_ns, until_ns=two.end_ns,
        )  # fmt: skip
        yield Injected(injection=injection, changed=draft.changed())


CLASSES: Final = (
    AnomalyClass(
        name="sent-by-nobody",
        changes="a record stands at the end that nobody sent",
        seen_by=("lost_writes",),
        inject=_nobody_sent,
    ),
    AnomalyClass(
        name="acknowledged-by-no-leader",
        changes="a replica that never led the partition acknowledges a record",
        seen_by=("min_isr",),
        inject=_never_led,
    ),
    AnomalyClass(
        name="read-epoch-back",
        changes="one answer hands out a record of an older leader epoch behind one of a newer",
        seen_by=("log_order",),
        inject=_epoch_back,
    ),
    AnomalyClass(
        name="log-start-back",
        changes="a leader's log start goes back within its leader epoch",
        seen_by=("watermarks",),
        inject=_start_back,
    ),
    AnomalyClass(
        name="fenced-commit",
        changes="a transaction is committed with a producer epoch that had been replaced before it began",
        seen_by=("transactions",),
        inject=_fenced,
    ),
)
