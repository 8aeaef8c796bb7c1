"""Excuses moved in place and time: what would permit a loss happened elsewhere, earlier, later, or to somebody else.

Where a run has a loss that a proven loss of disks permits, that proof is moved; every record that was acknowledged and is gone then
has no excuse. Orders, elections and losses of coordinators are put where they excuse nothing, beside a loss that had to not be.
"""

from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from msgspec.structs import replace

from tribunal.checkers.calibration.api import AnomalyClass, Inject, Injected, Injection, shuffled
from tribunal.checkers.calibration.case import GROUP_LOG, LAG_NS, Case, Place
from tribunal.checkers.calibration.draft import Draft
from tribunal.checkers.calibration.families.changed_records import is_idempotent
from tribunal.checkers.calibration.families.control_plane import Appended, between, record
from tribunal.checkers.calibration.families.groups import fetches, forgotten
from tribunal.checkers.calibration.families.lost_records import kept_of_all, lost, spread
from tribunal.results.metadata import NO_LEADER
from tribunal.results.rows import Admin, Fault, Loss, Metadata, NodeEvent, Poll, Send

SECOND_NS: Final = 1_000_000_000
ELSEWHERE: Final = "another-topic"


# A proven loss of disks, moved


def _excused_by_disks(case: Case, random: Random) -> Iterator[tuple[Place, Send]]:
    """Yield an acknowledged record of each partition that is gone, where nothing but proven losses may permit it.

    Neither the settings nor an operator allow an unclean election, so without a proof no rule is left for acks=all.
    """
    orders = any(row.api == "elect_leaders" for row in case.of_run(Admin))
    if case.allows_unclean or orders or not case.is_timely:
        return
    for place in shuffled(case.places, random):
        log = case.log(place)
        values = {read.value for read in log.records.values()}
        gone = [
            send for send in case.rows(Send, place)
            if send.acks == -1 and send.outcome == "ok" and send.txn_id is None
            if send.log_offset is not None and send.value not in values
        ]  # fmt: skip
        if log.readers and gone and case.is_untouched(place.topic) and _proofs(case, place):
            yield place, random.choice(gone)


def _proofs(case: Case, place: Place) -> list[Loss]:
    return [lost for fault in case.of_run(Fault) for lost in fault.losses or () if _is_of(lost, place)]


def _is_of(lost: Loss, place: Place) -> bool:
    return (lost.topic, lost.partition) == (place.topic, place.partition)


def _moved(move: Callable[[Case, Place, Send, Loss], Loss | None], change: str) -> Inject:
    """Return an injection that changes every proof of the partition."""

    def inject(case: Case, random: Random) -> Iterator[Injected]:
        for place, send in _excused_by_disks(case, random):
            draft = Draft(case)
            for fault in case.of_run(Fault):
                kept = [move(case, place, send, lost) if _is_of(lost, place) else lost for lost in fault.losses or ()]
                left = tuple(lost for lost in kept if lost is not None)
                if fault.losses is not None and left != fault.losses:
                    draft.replace_row(None, fault, replace(fault, losses=left))
            yield _injected(case, draft, place, send, change)

    return inject


def _shifted(when: Callable[[Case, Place, Send], int], change: str) -> Inject:
    """Return an injection that takes every proof of the partition to another time."""

    def inject(case: Case, random: Random) -> Iterator[Injected]:
        for place, send in _excused_by_disks(case, random):
            at_ns = when(case, place, send)
            if at_ns < 0:
                continue
            draft = Draft(case)
            moved: list[Loss] = []
            for fault in case.of_run(Fault):
                own = tuple(lost for lost in fault.losses or () if _is_of(lost, place))
                if own:
                    left = tuple(lost for lost in fault.losses or () if lost not in own)
                    draft.replace_row(None, fault, replace(fault, losses=left))
                    moved += own
            draft.rows(Fault).append(_fault(case, at_ns, *moved))
            yield _injected(case, draft, place, send, f"{change}: at {at_ns / 1e9:.3f} s")

    return inject


def _injected(case: Case, draft: Draft, place: Place, send: Send, change: str) -> Injected:
    injection = Injection(
        change=change, place=place, log_offset=send.log_offset, value=send.value, since_ns=send.invoke_ns,
        until_ns=case.final_read_ns(place),
    )  # fmt: skip
    return Injected(injection=injection, changed=draft.changed())


def _fault(case: Case, at_ns: int, *lost: Loss) -> Fault:
    """Return a power failure of a moment, healed at once."""
    index = max((fault.index for fault in case.of_run(Fault)), default=-1) + 1
    return Fault(
        index=index, kind="power-loss", planned_target="broker", resolved_target=f"broker {lost[0].node}", planned_ns=at_ns,
        injected_ns=at_ns, healed_ns=at_ns + SECOND_NS // 2, proof="{}", took_effect=True, heal_proof="{}", healed=True,
        losses=tuple(replace(one, begin_ns=at_ns, end_ns=at_ns) for one in lost),
    )  # fmt: skip


def _neighbour(case: Case, place: Place) -> Place | None:
    others = [other for other in case.places if other.topic == place.topic and other != place]
    return others[0] if others else None


def _to_other_partition(case: Case, place: Place, send: Send, lost: Loss) -> Loss:
    other = _neighbour(case, place)
    return replace(lost, partition=other.partition if other is not None else place.partition + 1)


def _to_other_topic(case: Case, place: Place, send: Send, lost: Loss) -> Loss:
    return replace(lost, topic=ELSEWHERE)


def _to_other_node(case: Case, place: Place, send: Send, lost: Loss) -> Loss:
    controllers = [event.node for event in case.of_run(NodeEvent) if event.role == "controller"]
    return replace(lost, node=min(controllers, default=max(case.brokers()) + 1))


def _beyond(case: Case, place: Place, send: Send, lost: Loss) -> Loss:
    end = max([case.log(place).end, *(other.log_offset or 0 for other in case.rows(Send, place))])
    return replace(lost, from_offset=end + 1, end_offset=None)


def _not_of_leaders(case: Case, place: Place, send: Send, lost: Loss) -> Loss | None:
    """Keep only the proofs of those who were never elected: a leader kept what it had."""
    elected = {change.after.leader for change in case.elections(place)}
    return None if lost.node in elected else lost


def _before(case: Case, place: Place, send: Send) -> int:
    # Before any record that is gone was sent, the first ones of the partition are old already.
    first = min(other.invoke_ns for other in case.rows(Send, place) if other.outcome == "ok")
    return first - 100_000_000


def _after(case: Case, place: Place, send: Send) -> int:
    return case.end_ns + SECOND_NS


# Orders that took nothing from here


def _order(row: Callable[[Case, Place, Send], Admin | None], change: str) -> Inject:
    """Return an injection that moves a log's start past a record, with an order that did not do it."""

    def inject(case: Case, random: Random) -> Iterator[Injected]:
        for send in spread(case, random, kept_of_all):
            place, offset = Place(send.topic, send.partition), send.log_offset or 0
            if offset + 3 > case.log(place).end:
                continue
            draft = Draft(case)
            _start_at(draft, place, offset + 1)
            order = row(case, place, send)
            if order is not None:
                draft.rows(Admin).append(order)
            yield _injected(case, draft, place, send, f"the log begins at {offset + 1}; {change}")

    return inject


def _start_at(draft: Draft, place: Place, start: int) -> None:
    draft.erase(place, range(start))

    def with_start(poll: Poll) -> Poll:
        if poll.phase != "final":
            return poll
        return replace(
            poll, log_start_offset=start, position=None if poll.position is None else max(poll.position, start)
        )

    draft.edit(Poll, place, with_start)


def _deleted(case: Case, place: Place, offset: int, at_ns: int, outcome: str = "ok") -> Admin:
    return Admin(
        process=990, api="delete_records", topic=place.topic, partition=place.partition, log_offset=offset, invoke_ns=at_ns,
        complete_ns=at_ns + 1_000_000, outcome=outcome, error=None if outcome == "ok" else "POLICY_VIOLATION",
    )  # fmt: skip


def _soon(send: Send) -> int:
    return (send.complete_ns or 0) + 1_000_000


def _nothing(case: Case, place: Place, send: Send) -> Admin | None:
    return None


def _of_other_partition(case: Case, place: Place, send: Send) -> Admin | None:
    other = _neighbour(case, place) or Place(place.topic, place.partition + 1)
    return _deleted(case, other, (send.log_offset or 0) + 1, _soon(send))


def _of_lower_offset(case: Case, place: Place, send: Send) -> Admin | None:
    return _deleted(case, place, send.log_offset or 0, _soon(send))


def _after_absence(case: Case, place: Place, send: Send) -> Admin | None:
    return _deleted(case, place, (send.log_offset or 0) + 1, case.end_ns + SECOND_NS)


def _refused(case: Case, place: Place, send: Send) -> Admin | None:
    return _deleted(case, place, (send.log_offset or 0) + 1, _soon(send), "fail")


def _unlimited_retention(case: Case, random: Random) -> Iterator[Injected]:
    for injected in _order(_nothing, "retention is set to keep everything for ever")(case, random):
        yield replace(injected, settings={"log.retention.ms": -1, "log.retention.bytes": -1})


# Unclean elections that took nothing from here


def _elected_elsewhere(case: Case, random: Random) -> Iterator[Injected]:
    """Lose a record while another partition has an allowed unclean election."""
    if not case.allows_unclean:
        return
    for send in spread(case, random, kept_of_all):
        place = Place(send.topic, send.partition)
        until_ns = case.final_read_ns(place)
        for other in (own for own in case.places if own != place):
            fitting = [
                found for found in between(case, other)
                if (send.complete_ns or 0) < (found[0].at_ns or 0) and (found[1].at_ns or 0) < until_ns
                if found[2].leader != NO_LEADER and len(found[2].isr) > 1
            ]  # fmt: skip
            if not fitting:
                continue
            first, last, state = random.choice(fitting)
            draft, injection = lost(case, send, f"while {other} has an unclean election")
            chosen = next(node for node in state.isr if node != state.leader)
            bodies: list[tuple[Metadata, dict[str, object]]] = [
                (first, {"isr": [chosen], "leader": chosen, "leader_recovery_state": 1}),
                (last, {"isr": list(state.isr), "leader_recovery_state": 0}),
            ]
            for row, body in bodies:
                named = {"partition_id": other.partition, **body}
                changed = record(
                    row.metadata_offset, row.quorum_epoch, row.at_ns or 0, "PartitionChangeRecord", other, named
                )
                draft.replace_row(None, row, changed)
            yield Injected(injection=injection, changed=draft.changed())
            break


def _elected_later(case: Case, random: Random) -> Iterator[Injected]:
    """Lose a record whose partition has an allowed unclean election when everything had been read already."""
    if not case.allows_unclean:
        return
    for send in spread(case, random, kept_of_all):
        place = Place(send.topic, send.partition)
        draft, injection = lost(case, send, "and after the final read its partition has an unclean election")
        if _elect_uncleanly_at_the_end(case, draft, place):
            yield Injected(injection=injection, changed=draft.changed())


def _elect_uncleanly_at_the_end(case: Case, draft: Draft, place: Place) -> bool:
    state = case.state(place)
    if state is None or len(state.isr) < 2 or state.leader == NO_LEADER:
        return False
    chosen = next(node for node in state.isr if node != state.leader)
    appended = Appended(case)
    appended.at_ns += 2 * SECOND_NS
    appended.change(place, isr=[node for node in state.isr if node != chosen])
    appended.change(place, isr=[chosen], leader=chosen, leader_recovery_state=1, eligible_leader_replicas=[])
    appended.change(place, isr=list(state.isr), leader_recovery_state=0)
    draft.rows(Metadata)[:] = appended.draft.rows(Metadata)
    return True


def _memory_lost_later(case: Case, random: Random) -> Iterator[Injected]:
    """Let an idempotent record stand twice, and a leader be elected uncleanly elsewhere when all had been read (R8)."""
    if not case.allows_unclean or not case.remembers_producers:
        return
    for send in spread(case, random, kept_of_all):
        place = Place(send.topic, send.partition)
        other = _neighbour(case, place)
        if other is None or not is_idempotent(send) or not case.is_quiet_until(send.complete_ns or 0):
            continue
        draft = Draft(case)
        end = draft.append(place, send.value)
        if _elect_uncleanly_at_the_end(case, draft, other):
            change = f"it stands once more at {end}; {other} has an unclean election after the final read"
            yield _injected(case, draft, place, send, change)


# Positions of groups


def _positions(where: Callable[[Case, Place, int, int], tuple[Place, int] | None], change: str) -> Inject:
    """Return an injection that lets a group's position be forgotten, with a loss of disks that cannot have taken it."""

    def inject(case: Case, random: Random) -> Iterator[Injected]:
        for place in shuffled(case.places, random):
            for fetch, sure in shuffled(fetches(case, place), random)[:2]:
                home = case.home_of(GROUP_LOG, fetch.group)
                planted = None if home is None else where(case, home, sure[-1].invoke_ns, fetch.complete_ns or 0)
                if planted is None:
                    continue
                taken, at_ns = planted
                draft = Draft(case)
                injection = forgotten(draft, place, fetch, sure)
                lost = [
                    Loss(node=node, topic=taken.topic, partition=taken.partition, from_offset=0) for node in case.brokers()[:1]
                ]  # fmt: skip
                draft.rows(Fault).append(_fault(case, at_ns, *lost))
                extended = replace(injection, change=f"{injection.change}; {change}: {taken} at {at_ns / 1e9:.3f} s")
                yield Injected(injection=extended, changed=draft.changed())

    return inject


def _middle(since_ns: int, until_ns: int) -> int:
    return since_ns + (until_ns - since_ns) // 2


def _user_topic(case: Case, home: Place, since_ns: int, until_ns: int) -> tuple[Place, int] | None:
    return case.places[0], _middle(since_ns, until_ns)


def _other_coordinator(case: Case, home: Place, since_ns: int, until_ns: int) -> tuple[Place, int] | None:
    others = [place for place in case.partitions_of(GROUP_LOG) if place != home]
    return (others[0], _middle(since_ns, until_ns)) if others else None


def _before_commit(case: Case, home: Place, since_ns: int, until_ns: int) -> tuple[Place, int] | None:
    at_ns = since_ns - 3 * LAG_NS
    return (home, at_ns) if at_ns > 0 else None


def _after_fetch(case: Case, home: Place, since_ns: int, until_ns: int) -> tuple[Place, int] | None:
    return home, case.end_ns + SECOND_NS


def _class(name: str, changes: str, inject: Inject, *seen_by: str) -> AnomalyClass:
    return AnomalyClass(name=name, changes=changes, seen_by=seen_by or ("lost_writes",), inject=inject)


def _disk(name: str, where: str, inject: Callable[[str], Inject]) -> AnomalyClass:
    change = f"the proven loss that permitted it {where}"
    return _class(f"disk-loss-{name}", f"an acknowledged record is gone, {change}", inject(change))


CLASSES: Final = (
    _disk("of-other-partition", "was of another partition", lambda change: _moved(_to_other_partition, change)),
    _disk("of-other-topic", "was of another topic", lambda change: _moved(_to_other_topic, change)),
    _disk("of-other-node", "was of a node that holds no partition", lambda change: _moved(_to_other_node, change)),
    _disk("beyond-the-record", "began behind the log's end", lambda change: _moved(_beyond, change)),
    _disk(
        "not-of-the-leader", "was of replicas that were never elected", lambda change: _moved(_not_of_leaders, change)
    ),
    _disk("before-the-record", "was before the record was written", lambda change: _shifted(_before, change)),
    _disk("after-the-absence", "was after the final read", lambda change: _shifted(_after, change)),
    _class(
        "log-start-moved", "a log's start moves past records without an order", _order(_nothing, "nothing was ordered")
    ),
    _class(
        "delete-records-of-other-partition",
        "the same, DeleteRecords named another partition",
        _order(_of_other_partition, "DeleteRecords named another partition"),
    ),
    _class(
        "delete-records-of-lower-offset",
        "the same, DeleteRecords ended below the record",
        _order(_of_lower_offset, "DeleteRecords ended below the record"),
    ),
    _class(
        "delete-records-after-the-absence",
        "the same, DeleteRecords came after the final read",
        _order(_after_absence, "DeleteRecords came after the final read"),
    ),
    _class(
        "delete-records-refused", "the same, DeleteRecords was refused", _order(_refused, "DeleteRecords was refused")
    ),
    _class("retention-unlimited", "the same, retention keeps everything", _unlimited_retention),
    _class(
        "unclean-election-of-other-partition",
        "a record is gone, another partition has an unclean election",
        _elected_elsewhere,
    ),
    _class(
        "unclean-election-after-the-absence",
        "a record is gone, the unclean election comes after the final read",
        _elected_later,
    ),
    _class(
        "memory-lost-later", "an idempotent record stands twice, producers were forgotten later", _memory_lost_later
    ),
    _class(
        "offset-forgotten-loss-of-user-topic",
        "a position is forgotten, a disk lost records of a user's topic",
        _positions(_user_topic, "a disk lost"),
        "group_offsets",
    ),
    _class(
        "offset-forgotten-loss-of-other-coordinator",
        "a position is forgotten, a disk lost another coordinator's log",
        _positions(_other_coordinator, "a disk lost"),
        "group_offsets",
    ),
    _class(
        "offset-forgotten-loss-before-commit",
        "a position is forgotten, a disk lost the log before the commit",
        _positions(_before_commit, "a disk lost"),
        "group_offsets",
    ),
    _class(
        "offset-forgotten-loss-after-fetch",
        "a position is forgotten, a disk lost the log after the fetch",
        _positions(_after_fetch, "a disk lost"),
        "group_offsets",
    ),
)
