"""Transactions that are not whole: torn, unread, gone, seen although aborted; lists and accounts that do not add up."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from random import Random
from typing import Final

from msgspec.structs import replace

from tribunal.checkers.calibration.api import AnomalyClass, Injected, Injection, shuffled
from tribunal.checkers.calibration.case import TRANSACTION_LOG, Case, Place
from tribunal.checkers.calibration.draft import Draft
from tribunal.results.rows import LogRecord, Poll, Read, Send, Step, Transaction

READ_COMMITTED: Final = "read_committed"


def _sent(transaction: Transaction) -> list[Step]:
    return [step for step in transaction.operations or () if step.kind in ("send", "append") and step.topic is not None]


def _places(steps: Sequence[Step]) -> list[Place]:
    return list(dict.fromkeys(Place(step.topic or "", step.partition or 0) for step in steps))


def is_kept(case: Case, transaction: Transaction) -> bool:
    """Whether its end was kept, in its partition of the transaction log and in every partition that it wrote to."""
    home = case.home_of(TRANSACTION_LOG, transaction.txn_id)
    places = _places(_sent(transaction))
    return home is not None and all(case.holds(place, transaction.begin_ns) for place in (home, *places))


def _whole(case: Case, random: Random, outcome: str) -> Iterator[tuple[Transaction, dict[Place, list[Send]]]]:
    """Yield transactions of an outcome whose ends were kept, with their records by partition."""
    by_value = {send.value: send for place in case.places for send in case.rows(Send, place) if send.txn_id is not None}
    for transaction in shuffled(case.of_run(Transaction), random):
        sends = [by_value[step.value] for step in _sent(transaction) if step.value in by_value]
        if transaction.outcome != outcome or not sends or not is_kept(case, transaction):
            continue
        by_place: dict[Place, list[Send]] = {}
        for send in sends:
            by_place.setdefault(Place(send.topic, send.partition), []).append(send)
        yield transaction, by_place


def _standing(case: Case, by_place: dict[Place, list[Send]]) -> bool:
    return all(case.must_survive(send) for sends in by_place.values() for send in sends) and all(
        READ_COMMITTED in case.log(place).readers.values() for place in by_place
    )


def _offsets(sends: Sequence[Send]) -> list[int]:
    return [send.log_offset for send in sends if send.log_offset is not None]


def _injected(
    case: Case, draft: Draft, transaction: Transaction, place: Place | None, change: str, send: Send
) -> Injected:
    at = place or Place(send.topic, send.partition)
    injection = Injection(
        change=f"{change} (transaction of {transaction.txn_id}, begun at {transaction.begin_ns / 1e9:.3f} s)", place=place,
        log_offset=send.log_offset, value=send.value, since_ns=transaction.end_ns or transaction.begin_ns,
        until_ns=case.final_read_ns(at),
    )  # fmt: skip
    return Injected(injection=injection, changed=draft.changed())


def _torn(case: Case, random: Random) -> Iterator[Injected]:
    for transaction, by_place in _whole(case, random, "committed"):
        if len(by_place) < 2 or not _standing(case, by_place):
            continue
        place = random.choice(list(by_place))
        draft = Draft(case)
        draft.hide(place, _offsets(by_place[place]), ("final",))
        change = "read_committed readers get its records of other partitions, and not those of this one"
        yield _injected(case, draft, transaction, place, change, by_place[place][0])


def _unread(case: Case, random: Random) -> Iterator[Injected]:
    for transaction, by_place in _whole(case, random, "committed"):
        if not _standing(case, by_place):
            continue
        draft = Draft(case)
        for place, sends in by_place.items():
            draft.hide(place, _offsets(sends), ("final",))
        place, sends = next(iter(by_place.items()))
        yield _injected(
            case, draft, transaction, place, "its records stand in the logs, and no final reader gets them", sends[0]
        )


def _gone(case: Case, random: Random) -> Iterator[Injected]:
    for transaction, by_place in _whole(case, random, "committed"):
        if not _standing(case, by_place):
            continue
        draft = Draft(case)
        for place, sends in by_place.items():
            offsets = _offsets(sends)
            draft.hide(place, offsets)
            # Markers stand in their place: no hole shows it.
            draft.edit(LogRecord, place, lambda row, offsets=offsets: (  # type: ignore[misc]
                replace(row, value=None, is_control=True) if row.log_offset in offsets else row
            ))  # fmt: skip
        place, sends = next(iter(by_place.items()))
        yield _injected(case, draft, transaction, place, "markers stand where its records were", sends[0])


def _aborted_send_seen(case: Case, random: Random) -> Iterator[Injected]:
    yield from _aborted_seen(case, random, "send")


def _aborted_append_seen(case: Case, random: Random) -> Iterator[Injected]:
    yield from _aborted_seen(case, random, "append")


def _aborted_seen(case: Case, random: Random, kind: str) -> Iterator[Injected]:
    for transaction, by_place in _whole(case, random, "aborted"):
        if kind not in [step.kind for step in transaction.operations or ()]:
            continue
        for place, sends in by_place.items():
            logs = case.replicas_logs(place)
            values = {
                record.value: record for own in logs.values() for record in own.values() if record.value is not None
            }
            send = next((send for send in sends if send.value in values), None)
            readers = [process for process, isolation in case.log(place).readers.items() if isolation == READ_COMMITTED]
            if send is None or not readers or values[send.value].log_offset in case.log(place).records:
                continue
            record = values[send.value]
            draft = Draft(case)
            poll = _poll_over(case, place, readers[0], record.log_offset)
            if poll is None:
                continue
            draft.replace_row(place, poll, replace(poll, record_count=(poll.record_count or 0) + 1))
            draft.rows(Read, place).append(Read(
                process=poll.process, poll_index=poll.poll_index, topic=place.topic, partition=place.partition,
                log_offset=record.log_offset, phase="final", value=record.value, leader_epoch=record.leader_epoch,
            ))  # fmt: skip
            change = f"the read_committed reader {poll.process} gets it at {record.log_offset}, and it was aborted"
            yield _injected(case, draft, transaction, place, change, send)
            break


def _poll_over(case: Case, place: Place, process: int, offset: int) -> Poll | None:
    """Return the reader's poll that went over an offset."""
    own = sorted(
        (poll for poll in case.rows(Poll, place) if poll.process == process and poll.phase == "final"),
        key=lambda poll: poll.poll_index,
    )
    return next((one for one, two in pairwise(own) if (one.position or 0) <= offset < (two.position or 0)), None)


def _sends_torn(case: Case, random: Random) -> Iterator[Injected]:
    yield from _torn_of_unknown_outcome(case, random, "send")


def _appends_torn(case: Case, random: Random) -> Iterator[Injected]:
    yield from _torn_of_unknown_outcome(case, random, "append")


def _torn_of_unknown_outcome(case: Case, random: Random, kind: str) -> Iterator[Injected]:
    """Lose a commit's answer, and show one partition's half of that transaction and not the other's."""
    for transaction, by_place in _whole(case, random, "committed"):
        if kind not in [step.kind for step in transaction.operations or ()]:
            continue
        if len(by_place) < 2 or not _standing(case, by_place):
            continue
        place = random.choice(list(by_place))
        draft = Draft(case)
        draft.replace_row(None, transaction, replace(transaction, outcome="info", end_ns=None))
        draft.hide(place, _offsets(by_place[place]), ("final",))
        change = f"nobody knows whether it was committed; readers get its other records and not those of {place}"
        yield _injected(case, draft, transaction, None, change, by_place[place][0])


def _bank(case: Case, random: Random) -> Iterator[Injected]:
    """Let a transfer's record give more than was taken: its key says the amount."""
    for transaction, by_place in _whole(case, random, "committed"):
        sends = [send for own in by_place.values() for send in own if send.worker_class == "transactional-bank"]
        if not sends or not _standing(case, by_place):
            continue
        send = random.choice(sends)
        account, _, amount = (send.key or "").rpartition(":")
        if not amount.removeprefix("-").isdecimal():
            continue
        draft = Draft(case)
        draft.replace_row(Place(send.topic, send.partition), send, replace(send, key=f"{account}:{int(amount) + 1}"))
        yield _injected(case, draft, transaction, None, "the accounts hold one more than was ever put in", send)


def _lists(case: Case, random: Random) -> Iterator[Injected]:
    """Let a committed transaction read a list without an element that stands in its midst."""
    for transaction in shuffled(case.of_run(Transaction), random):
        steps = transaction.operations or ()
        lists = _places([step for step in steps if step.kind == "read" and step.value is not None])
        if transaction.outcome != "committed" or not is_kept(case, transaction):
            continue
        for place in shuffled(lists, random)[:1]:
            own = [step for step in steps if step.kind == "read" and _places([step]) == [place]]
            appended = [step.value for step in steps if step.kind == "append"]
            inner = [step for step in own[:-1] if step.value in case.committed_values and step.value not in appended]
            if not inner or not all(
                case.holds(place, case.committed_values[step.value or 0].begin_ns) for step in inner[:1]
            ):
                continue
            lost = random.choice(inner)
            draft = Draft(case)
            left = tuple(step for step in steps if step != lost)
            draft.replace_row(None, transaction, replace(transaction, operations=left))
            injection = Injection(
                change=f"the list of {place} is read without the element {lost.value}", place=None, value=lost.value,
                since_ns=transaction.begin_ns, until_ns=transaction.end_ns,
            )  # fmt: skip
            yield Injected(injection=injection, changed=draft.changed())


CLASSES: Final = (
    AnomalyClass(
        name="committed-transaction-torn",
        changes="of a committed transaction readers get one partition's records and not another's",
        seen_by=("lost_writes", "atomicity"),
        inject=_torn,
    ),
    AnomalyClass(
        name="committed-transaction-unread",
        changes="a committed transaction's records stand in the logs and are never read",
        seen_by=("lost_writes",),
        inject=_unread,
    ),
    AnomalyClass(
        name="committed-transaction-gone",
        changes="a committed transaction's records are gone, markers stand there",
        seen_by=("lost_writes",),
        inject=_gone,
    ),
    AnomalyClass(
        name="transaction-of-unknown-outcome-torn",
        changes="a transaction of unknown outcome is visible by halves",
        seen_by=("atomicity",),
        inject=_sends_torn,
    ),
    AnomalyClass(
        name="appends-of-unknown-outcome-torn",
        changes="a transaction of unknown outcome is visible in one list that it appended to and not in another",
        seen_by=("atomicity",),
        inject=_appends_torn,
    ),
    AnomalyClass(
        name="aborted-record-seen",
        changes="a read_committed reader gets an aborted transaction's record",
        seen_by=("aborted_reads",),
        inject=_aborted_send_seen,
    ),
    AnomalyClass(
        name="aborted-append-seen",
        changes="a read_committed reader gets an element that an aborted transaction appended to a list",
        seen_by=("aborted_reads",),
        inject=_aborted_append_seen,
    ),
    AnomalyClass(
        name="bank-total-changed", changes="the accounts do not add up to nothing", seen_by=("bank",), inject=_bank
    ),
    AnomalyClass(
        name="list-element-lost",
        changes="a committed transaction reads a list without an element of its midst",
        seen_by=("transactions",),
        inject=_lists,
    ),
)
