"""Records that stand where they should and are not what was sent, stand twice, or stand in another order."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from msgspec.structs import replace

from tribunal.checkers.calibration.api import AnomalyClass, Inject, Injected, Injection, shuffled
from tribunal.checkers.calibration.case import Case, Place
from tribunal.checkers.calibration.draft import Draft
from tribunal.checkers.calibration.families.lost_records import kept_of_all, kept_of_transactions, spread
from tribunal.results.rows import LogRecord, Read, Send
from tribunal.results.values import SEQUENCE_BITS, value_of

UNSENT: Final = (1 << SEQUENCE_BITS) - 1  # a sequence that no process ever reaches
NEAR: Final = 40  # offsets between two records that change places, at most


def _injected(case: Case, draft: Draft, send: Send, change: str) -> Injected:
    place = Place(send.topic, send.partition)
    injection = Injection(
        change=change,
        place=place,
        log_offset=send.log_offset,
        value=send.value,
        since_ns=send.complete_ns or 0,
        until_ns=case.final_read_ns(place),
    )
    return Injected(injection=injection, changed=draft.changed())


def _swapped(case: Case, random: Random) -> Iterator[Injected]:
    for one, two in _pairs(case, random, lambda one, two: True):
        draft = Draft(case)
        draft.exchange(one, two, acknowledged=False)
        yield _injected(
            case, draft, one, f"it stands at {two.log_offset}, and the record of {two.log_offset} in its place"
        )


def _pairs(case: Case, random: Random, fits: Callable[[Send, Send], bool]) -> Iterator[tuple[Send, Send]]:
    """Yield pairs of records that had to survive, the lower offset first, few offsets apart."""
    for place in shuffled(case.places, random):
        kept = sorted(kept_of_all(case, place), key=lambda send: send.log_offset or 0)
        found = 0
        for position in shuffled(range(len(kept)), random):
            one = kept[position]
            near = [
                two
                for two in kept[position + 1 : position + NEAR]
                if (two.log_offset or 0) <= (one.log_offset or 0) + NEAR
            ]
            two = next((two for two in near if fits(one, two)), None)
            if two is not None:
                yield one, two
                found += 1
            if found == 2:  # of each partition a few: there are others
                break


def is_idempotent(send: Send) -> bool:
    """Whether its producer may not write a record twice nor out of order."""
    return send.worker_class.startswith(("idempotent", "transactional"))


def _duplicated(case: Case, random: Random) -> Iterator[Injected]:
    for send in spread(case, random, kept_of_all):
        # R8: where anything was permitted to be lost before it was acknowledged, or its producer to be forgotten, it may stand twice.
        if is_idempotent(send) and case.is_quiet_until(send.complete_ns or 0) and case.remembers_producers:
            draft = Draft(case)
            end = draft.append(Place(send.topic, send.partition), send.value)
            yield _injected(case, draft, send, f"it stands once more at {end}")


def _duplicated_transactional(case: Case, random: Random) -> Iterator[Injected]:
    for send in spread(case, random, kept_of_transactions):
        if case.is_quiet_until(send.complete_ns or 0) and case.remembers_producers:
            draft = Draft(case)
            end = draft.append(Place(send.topic, send.partition), send.value)
            yield _injected(case, draft, send, f"it was committed, and stands once more at {end}")


def _changed_value(case: Case, random: Random) -> Iterator[Injected]:
    for send in spread(case, random, kept_of_all):
        draft = Draft(case)
        draft.put(
            Place(send.topic, send.partition), send.log_offset or 0, value_of(send.process, UNSENT), ("final", "tail")
        )
        yield _injected(case, draft, send, "everybody reads another value there than was sent")


def _corrupt(case: Case, random: Random) -> Iterator[Injected]:
    for send in spread(case, random, kept_of_all):
        draft = Draft(case)
        draft.put(Place(send.topic, send.partition), send.log_offset or 0, None)
        yield _injected(case, draft, send, "final readers and replicas have bytes there that are none of ours")


def _other_content(what: str) -> Inject:
    """Return an injection after which every reader and every replica has a record with something else than was sent."""

    def inject(case: Case, random: Random) -> Iterator[Injected]:
        for send in spread(case, random, kept_of_all):
            place, offset = Place(send.topic, send.partition), send.log_offset
            draft = Draft(case)
            draft.edit(Read, place, lambda row, offset=offset: (  # type: ignore[misc]
                replace(row, content=f"0: {what}") if row.log_offset == offset else row
            ))  # fmt: skip
            draft.edit(LogRecord, place, lambda row, offset=offset: (  # type: ignore[misc]
                replace(row, content=f"0: {what}") if row.log_offset == offset else row
            ))  # fmt: skip
            yield _injected(case, draft, send, f"everybody has it with {what} than was sent")

    return inject


def _producers_order(case: Case, random: Random) -> Iterator[Injected]:
    def fits(one: Send, two: Send) -> bool:
        return one.process == two.process and is_idempotent(one) and one.value < two.value

    for one, two in _pairs(case, random, fits):
        draft = Draft(case)
        draft.exchange(one, two, acknowledged=True)
        yield _injected(
            case, draft, one, f"its producer's later record, of {two.log_offset}, stands before it for everybody"
        )


def _real_time(case: Case, random: Random) -> Iterator[Injected]:
    def fits(one: Send, two: Send) -> bool:
        return one.process != two.process and (one.complete_ns or 0) < two.invoke_ns

    for one, two in _pairs(case, random, fits):
        records = case.log(Place(one.topic, one.partition)).records
        first, last = one.log_offset or 0, two.log_offset or 0
        between = [records[offset].value for offset in range(first + 1, last) if offset in records]
        if any((value or 0) >> SEQUENCE_BITS in (one.process, two.process) for value in between):
            continue  # it would be out of its producer's order as well
        draft = Draft(case)
        draft.exchange(one, two, acknowledged=True)
        yield _injected(case, draft, one, f"the record of {last}, sent after it was acknowledged, stands before it")


CLASSES: Final = (
    AnomalyClass(
        name="swapped-offsets",
        changes="two acknowledged records stand in each other's place",
        seen_by=("log_order",),
        inject=_swapped,
    ),
    AnomalyClass(
        name="duplicated",
        changes="an idempotent producer's record stands twice",
        seen_by=("lost_writes",),
        inject=_duplicated,
    ),
    AnomalyClass(
        name="duplicated-transactional",
        changes="a committed transaction's record, such as a processor's output, stands twice",
        seen_by=("lost_writes",),
        inject=_duplicated_transactional,
    ),
    AnomalyClass(
        name="changed-value",
        changes="everybody reads another value than was sent",
        seen_by=("lost_writes",),
        inject=_changed_value,
    ),
    AnomalyClass(
        name="corrupt-value",
        changes="final readers and replicas have bytes that nobody sent",
        seen_by=("lost_writes",),
        inject=_corrupt,
    ),
    AnomalyClass(
        name="changed-key",
        changes="a record has another key than was sent",
        seen_by=("whole_records",),
        inject=_other_content("another key"),
    ),
    AnomalyClass(
        name="changed-header",
        changes="a record has other headers than were sent",
        seen_by=("whole_records",),
        inject=_other_content("other headers"),
    ),
    AnomalyClass(
        name="changed-timestamp",
        changes="a record has another timestamp than was sent",
        seen_by=("whole_records",),
        inject=_other_content("another timestamp"),
    ),
    AnomalyClass(
        name="producers-order-reversed",
        changes="two records of one idempotent producer stand in reverse for everybody",
        seen_by=("log_order",),
        inject=_producers_order,
    ),
    AnomalyClass(
        name="real-time-order-reversed",
        changes="a record stands before one that was acknowledged before it was sent",
        seen_by=("log_order",),
        inject=_real_time,
    ),
)
