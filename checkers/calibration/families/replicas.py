"""Replicas of one log that are not one log: below the high watermark the ISR's members hold the same (I8, I9, I14)."""

from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import Final

from msgspec.structs import replace

from tribunal.checkers.calibration.api import AnomalyClass, Injected, Injection, shuffled
from tribunal.checkers.calibration.case import Case, Place
from tribunal.checkers.calibration.draft import Draft
from tribunal.results.rows import Fault, LogRecord, Read
from tribunal.results.values import SEQUENCE_BITS, value_of

MARGIN: Final = 3  # offsets at the end that a follower may not have yet
UNSENT: Final = (1 << SEQUENCE_BITS) - 2


def _followers(case: Case, random: Random) -> Iterator[tuple[Place, int, list[LogRecord]]]:
    """Yield members of final ISRs whose disks no fault touched, with what they hold below the high watermark."""
    with_losses = {lost.node for fault in case.of_run(Fault) for lost in fault.losses or ()}
    for place in shuffled(case.places, random):
        state, log = case.state(place), case.log(place)
        if state is None or not log.records:
            continue
        logs = case.replicas_logs(place)
        for node in shuffled([node for node in state.isr if node in logs and node not in with_losses], random)[:1]:
            own = [record for offset, record in sorted(logs[node].items()) if offset < log.end - MARGIN]
            kept = [record for record in own if record.log_offset in log.records and not record.is_control]
            if len(kept) > 2:
                yield place, node, kept


def _injected(case: Case, draft: Draft, place: Place, record: LogRecord, change: str) -> Injected:
    injection = Injection(
        change=change, place=place, log_offset=record.log_offset, value=record.value, until_ns=case.end_ns
    )
    return Injected(injection=injection, changed=draft.changed())


def _other_value(case: Case, random: Random) -> Iterator[Injected]:
    for place, node, kept in _followers(case, random):
        record = random.choice(kept)
        draft = Draft(case)
        draft.replace_row(place, record, replace(record, value=value_of((record.value or 0) >> SEQUENCE_BITS, UNSENT)))
        yield _injected(case, draft, place, record, f"node {node} of the ISR holds another value")


def _hole(case: Case, random: Random) -> Iterator[Injected]:
    for place, node, kept in _followers(case, random):
        record = random.choice(kept[1:-1])
        draft = Draft(case)
        draft.rows(LogRecord, place).remove(record)
        yield _injected(case, draft, place, record, f"node {node} of the ISR holds nothing")


def _short(case: Case, random: Random) -> Iterator[Injected]:
    for place, node, kept in _followers(case, random):
        record = random.choice(kept[len(kept) // 2 :])
        draft = Draft(case)
        rows = draft.rows(LogRecord, place)
        rows[:] = [row for row in rows if row.node != node or row.log_offset < record.log_offset]
        yield _injected(
            case, draft, place, record, f"the log of node {node} of the ISR ends there, below the high watermark"
        )


def _other_epoch(case: Case, random: Random) -> Iterator[Injected]:
    """Change the epoch of the last record of an epoch, so that epochs still go up along the log."""
    for place, node, kept in _followers(case, random):
        last = [one for one, two in pairwise(kept) if one.leader_epoch != two.leader_epoch]
        record = random.choice(last) if last else kept[0]
        # Without a change of epochs the first record is said to be of an epoch before.
        epoch = (record.leader_epoch or 0) + (1 if last else -1)
        if epoch < 0:
            record, epoch = kept[-1], (kept[-1].leader_epoch or 0) + 1
        draft = Draft(case)
        draft.replace_row(place, record, replace(record, leader_epoch=epoch))
        yield _injected(case, draft, place, record, f"node {node} of the ISR holds it in leader epoch {epoch}")


def _epochs_back(case: Case, random: Random) -> Iterator[Injected]:
    for place, _, kept in _followers(case, random):
        record = random.choice(kept[:-1])
        epoch = (record.leader_epoch or 0) + 1
        behind = case.log(place).records
        following = next((read for offset, read in behind.items() if offset > record.log_offset), None)
        if following is None or (following.leader_epoch or 0) >= epoch:
            continue
        draft = Draft(case)
        offset = record.log_offset
        draft.edit(LogRecord, place, lambda row, offset=offset, epoch=epoch: (  # type: ignore[misc]
            replace(row, leader_epoch=epoch) if row.log_offset == offset else row
        ))  # fmt: skip
        draft.edit(Read, place, lambda row, offset=offset, epoch=epoch: (  # type: ignore[misc]
            replace(row, leader_epoch=epoch) if row.log_offset == offset and row.phase == "final" else row
        ))  # fmt: skip
        change = f"every replica has it in leader epoch {epoch}, and what stands behind it in {following.leader_epoch}"
        yield _injected(case, draft, place, record, change)


CLASSES: Final = (
    AnomalyClass(
        name="replica-differs-in-value",
        changes="a member of the final ISR holds another value below the high watermark",
        seen_by=("replicas", "log_order"),
        inject=_other_value,
    ),
    AnomalyClass(
        name="replica-has-a-hole",
        changes="a member of the final ISR holds nothing at an offset below the high watermark",
        seen_by=("replicas",),
        inject=_hole,
    ),
    AnomalyClass(
        name="replica-ends-early",
        changes="the log of a member of the final ISR ends below the high watermark",
        seen_by=("replicas",),
        inject=_short,
    ),
    AnomalyClass(
        name="replica-differs-in-epoch",
        changes="a member of the final ISR holds a record below the high watermark in another leader epoch",
        seen_by=("replicas",),
        inject=_other_epoch,
    ),
    AnomalyClass(
        name="epochs-back-along-a-log",
        changes="in every replica a record has a higher leader epoch than the one behind it",
        seen_by=("replicas",),
        inject=_epochs_back,
    ),
)
