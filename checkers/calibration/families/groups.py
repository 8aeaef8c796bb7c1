"""Groups: positions that are forgotten or old, generations that have passed, records that no member received or two processed."""

from collections.abc import Iterator
from random import Random
from typing import Final

from msgspec.structs import replace

from tribunal.checkers.calibration.api import AnomalyClass, Injected, Injection, shuffled
from tribunal.checkers.calibration.case import GROUP_LOG, Case, Place
from tribunal.checkers.calibration.draft import Draft
from tribunal.checkers.calibration.families.transactions import is_kept
from tribunal.results.rows import Admin, Commit, LogRecord, Poll, Send, Step, Transaction, Watermark


def fetches(case: Case, place: Place) -> list[tuple[Commit, list[Commit]]]:
    """Return fetches of positions with the commits that had surely taken effect before, the newest last; positions kept throughout.

    Only commits outside of transactions, all of them answered before the fetch began, none under way beside it.
    """
    transactional = {transaction.process for transaction in case.of_run(Transaction)}
    found = []
    commits = case.commits(place)
    for fetch in commits:
        if fetch.kind != "fetch" or fetch.outcome != "ok" or fetch.committed_offset is None:
            continue
        own = [one for one in commits if one.group == fetch.group and one.kind == "commit" and one.outcome != "fail"]
        before = [one for one in own if one.invoke_ns < (fetch.complete_ns or 0)]
        sure = [one for one in before if one.outcome == "ok" and (one.complete_ns or 0) < fetch.invoke_ns]
        home = case.home_of(GROUP_LOG, fetch.group)
        if not sure or len(sure) < len(before) or home is None or any(one.process in transactional for one in before):
            continue
        sure.sort(key=lambda one: one.invoke_ns)
        if sure[-1].committed_offset == fetch.committed_offset and case.holds(
            home, sure[-1].invoke_ns, fetch.complete_ns or 0
        ):
            found.append((fetch, sure))
    return found


def forgotten(draft: Draft, place: Place, fetch: Commit, sure: list[Commit]) -> Injection:
    """Let a fetch find no position although one was committed."""
    draft.replace_row(place, fetch, replace(fetch, committed_offset=None))
    return Injection(
        change=f"process {fetch.process} fetches no position of {fetch.group}, {sure[-1].committed_offset} was committed",
        place=place, log_offset=sure[-1].committed_offset, since_ns=sure[-1].complete_ns or 0, until_ns=fetch.complete_ns,
    )  # fmt: skip


def _forgotten(case: Case, random: Random) -> Iterator[Injected]:
    for place in shuffled(case.places, random):
        for fetch, sure in shuffled(fetches(case, place), random)[:2]:
            draft = Draft(case)
            injection = forgotten(draft, place, fetch, sure)
            yield Injected(injection=injection, changed=draft.changed())


def _stale(case: Case, random: Random) -> Iterator[Injected]:
    for place in shuffled(case.places, random):
        for fetch, sure in shuffled(fetches(case, place), random)[:2]:
            newest = sure[-1]
            older = [one for one in sure if (one.complete_ns or 0) < newest.invoke_ns]
            older = [one for one in older if one.committed_offset not in (newest.committed_offset, None)]
            if not older:
                continue
            old = random.choice(older).committed_offset
            draft = Draft(case)
            draft.replace_row(place, fetch, replace(fetch, committed_offset=old))
            injection = Injection(
                change=f"process {fetch.process} fetches {old} of {fetch.group}, {newest.committed_offset} was committed",
                place=place, log_offset=old, since_ns=newest.complete_ns or 0, until_ns=fetch.complete_ns,
            )  # fmt: skip
            yield Injected(injection=injection, changed=draft.changed())


def _stale_generation(case: Case, random: Random) -> Iterator[Injected]:
    for place in shuffled(case.places, random):
        own = [one for one in case.commits(place) if one.kind == "commit" and one.outcome == "ok" and one.generation]
        for commit in shuffled(own, random):
            home = case.home_of(GROUP_LOG, commit.group)
            before = [
                one
                for one in own
                if one.group == commit.group and (one.complete_ns or 0) < commit.invoke_ns
                if one.generation == commit.generation
            ]
            if not before or home is None or not case.holds(home, before[0].invoke_ns, commit.complete_ns or 0):
                continue
            old = (commit.generation or 0) - 1
            draft = Draft(case)
            draft.replace_row(place, commit, replace(commit, generation=old))
            injection = Injection(
                change=f"a commit of generation {old} of {commit.group} is accepted after one of {commit.generation}",
                place=place, log_offset=commit.committed_offset, since_ns=before[0].complete_ns or 0,
                until_ns=commit.complete_ns,
            )  # fmt: skip
            yield Injected(injection=injection, changed=draft.changed())
            break


def _unconsumed(case: Case, random: Random) -> Iterator[Injected]:
    """Let no member receive an acknowledged record before the group's last committed position."""
    transactional = {transaction.process for transaction in case.of_run(Transaction)}
    for place in shuffled(case.places, random):
        own = [one for one in case.commits(place) if one.kind == "commit" and one.outcome == "ok"]
        if not own or any(one.process in transactional for one in own):
            continue
        end = max(one.committed_offset or 0 for one in own)
        home = case.home_of(GROUP_LOG, own[0].group)
        seen = case.tail_reads(place)
        kept = [send for send in case.kept(place, -1) if (send.log_offset or 0) < end and send.value in seen]
        for send in shuffled(kept, random)[:2]:
            if home is None or not case.holds(home, 0) or not case.holds(place, 0):
                continue
            draft = Draft(case)
            draft.unreceived(place, seen[send.value])
            injection = Injection(
                change=f"no member of {own[0].group} received it, and {end} was committed", place=place,
                log_offset=send.log_offset, value=send.value, since_ns=send.complete_ns or 0, until_ns=own[-1].complete_ns,
            )  # fmt: skip
            yield Injected(injection=injection, changed=draft.changed())


def _beyond_end(case: Case, random: Random) -> Iterator[Injected]:
    """Let a group's last position lie far beyond all that anything shows, where no operator set positions and no fetch followed."""
    if any(row.api == "alter_offset" for row in case.of_run(Admin)):
        return
    for place in shuffled(case.places, random):
        own = case.commits(place)
        last = {one.group: one for one in own if one.kind == "commit"}  # the last one by time
        for commit in shuffled(last.values(), random)[:2]:
            fetched = any(
                one.group == commit.group and one.kind == "fetch" and (one.complete_ns or commit.invoke_ns) >= commit.invoke_ns
                for one in own
            )  # fmt: skip
            is_read = bool(case.log(place).readers)
            if fetched or commit.outcome != "ok" or commit.committed_offset is None or not is_read:
                continue
            if any(_spans(transaction, commit) for transaction in case.of_run(Transaction)):
                continue
            shown = [seen.log_end_offset or seen.high_watermark or 0 for seen in case.rows(Watermark, place)]
            shown += [max(poll.high_watermark or 0, poll.position or 0) for poll in case.rows(Poll, place)]
            shown += [send.log_offset or 0 for send in case.rows(Send, place)]
            shown += [record.log_offset for record in case.rows(LogRecord, place)]
            end = max([case.log(place).end, commit.committed_offset, *shown])
            beyond = end + random.randrange(2, 50)
            draft = Draft(case)
            draft.replace_row(place, commit, replace(commit, committed_offset=beyond))
            injection = Injection(
                change=f"process {commit.process} commits {beyond} for {commit.group}, the log never went beyond {end}",
                place=place, log_offset=beyond, since_ns=commit.invoke_ns, until_ns=commit.complete_ns,
            )  # fmt: skip
            yield Injected(injection=injection, changed=draft.changed())


def _spans(transaction: Transaction, commit: Commit) -> bool:
    """Whether a commit is part of a transaction that did not end as committed."""
    within = transaction.begin_ns <= commit.invoke_ns and (
        transaction.end_ns is None or commit.invoke_ns <= transaction.end_ns
    )
    return within and transaction.process == commit.process and transaction.outcome != "committed"


def _inputs(case: Case, random: Random) -> Iterator[tuple[Transaction, Step, Place]]:
    """Yield what committed transactions of groups consumed, where nothing of it could be lost."""
    for transaction in shuffled(case.of_run(Transaction), random):
        if transaction.outcome != "committed" or not is_kept(case, transaction):
            continue
        for step in transaction.operations or ():
            place = Place(step.topic or "", step.partition or 0)
            if step.kind != "poll" or step.value is None or place not in case.places:
                continue
            committed = [
                one for one in case.commits(place) if one.kind == "commit" and one.process == transaction.process
                and transaction.begin_ns <= one.invoke_ns <= (transaction.end_ns or 0)
            ]  # fmt: skip
            homes = [case.home_of(GROUP_LOG, one.group) for one in committed]
            if committed and all(home is not None and case.holds(home, 0) for home in homes) and case.holds(place, 0):
                yield transaction, step, place
                break


def _output_missing(case: Case, random: Random) -> Iterator[Injected]:
    for transaction, step, place in _inputs(case, random):
        others = [
            other.log_offset or 0 for one in case.of_run(Transaction) if one.outcome == "committed"
            for other in one.operations or () if other.kind == "poll" and (other.topic, other.partition) == (step.topic, step.partition)
        ]  # fmt: skip
        perhaps = [
            one for one in case.of_run(Transaction) if one is not transaction and one.outcome != "aborted"
            if any(other.value == step.value for other in one.operations or ())
        ]  # fmt: skip
        offset = step.log_offset or 0
        if perhaps or not min(others) < offset < max(others) or offset not in case.log(place).records:
            continue
        draft = Draft(case)
        left = tuple(other for other in transaction.operations or () if other != step)
        draft.replace_row(None, transaction, replace(transaction, operations=left))
        injection = Injection(
            change="no transaction of the group consumed it, later records were", place=place, log_offset=offset,
            value=step.value, since_ns=transaction.begin_ns, until_ns=transaction.end_ns,
        )  # fmt: skip
        yield Injected(injection=injection, changed=draft.changed())


def _output_doubled(case: Case, random: Random) -> Iterator[Injected]:
    drawn = _inputs(case, random)
    for (one, step, place), (two, other, where) in zip(drawn, drawn, strict=False):
        first, second = sorted((one, two), key=lambda transaction: transaction.begin_ns)
        twice = step if first is one else other
        home = place if first is one else where
        if not any(
            (own.topic, own.partition) == (twice.topic, twice.partition)
            for own in second.operations or ()
            if own.kind == "poll"
        ):
            continue
        draft = Draft(case)
        draft.replace_row(None, second, replace(second, operations=(twice, *(second.operations or ()))))
        injection = Injection(
            change="a second committed transaction of the group consumed it", place=home, log_offset=twice.log_offset,
            value=twice.value, since_ns=first.end_ns or 0, until_ns=second.end_ns,
        )  # fmt: skip
        yield Injected(injection=injection, changed=draft.changed())


CLASSES: Final = (
    AnomalyClass(
        name="offset-forgotten",
        changes="a group's fetch finds no position although one was committed",
        seen_by=("group_offsets",),
        inject=_forgotten,
    ),
    AnomalyClass(
        name="offset-stale",
        changes="a group's fetch finds a position that had been overwritten",
        seen_by=("group_offsets",),
        inject=_stale,
    ),
    AnomalyClass(
        name="offset-beyond-end",
        changes="a group commits a position beyond all that its partition's log ever came to",
        seen_by=("group_ends",),
        inject=_beyond_end,
    ),
    AnomalyClass(
        name="stale-generation",
        changes="a commit of a generation that had passed is accepted",
        seen_by=("group_members",),
        inject=_stale_generation,
    ),
    AnomalyClass(
        name="unconsumed",
        changes="an acknowledged record before the committed position was received by no member",
        seen_by=("group_members",),
        inject=_unconsumed,
    ),
    AnomalyClass(
        name="exactly-once-missing",
        changes="no transaction of the group consumed a record between others",
        seen_by=("exactly_once",),
        inject=_output_missing,
    ),
    AnomalyClass(
        name="exactly-once-doubled",
        changes="two committed transactions of the group consumed the same record",
        seen_by=("exactly_once",),
        inject=_output_doubled,
    ),
)
