"""What the quorum commits and what it should never: leaders, ISR and ELR, elections, broker epochs.

Most classes append records behind the recorded ones: nothing that clients saw depends on them. Where a moment matters, two records
without content (NoOpRecord) give their places.
"""

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final

import msgspec
from msgspec.structs import replace

from tribunal.checkers.calibration.api import AnomalyClass, Inject, Injected, Injection, shuffled
from tribunal.checkers.calibration.case import LAG_NS, NEVER, Case, Place
from tribunal.checkers.calibration.draft import Draft
from tribunal.checkers.judge.incarnations import begun_ns, hinders, in_effect
from tribunal.checkers.judge.presence import SETTLING_NS
from tribunal.results.metadata import NO_LEADER, State
from tribunal.results.rows import Admin, Fault, Metadata, NodeEvent, Request, Send, Watermark

STEP_NS: Final = 1_000_000
LEADERLESS_NS: Final = 3 * LAG_NS  # longer than any election takes in an undisturbed cluster
ALTER_PARTITION: Final = 56
UPDATE_METADATA: Final = 6  # from a controller of ZooKeeper mode
BROKER_HEARTBEAT: Final = 63
Body = dict[str, object]
Plot = Callable[[Case, Place, State], Sequence[tuple[str, Body]]]


class Appended:
    """Records that are committed behind all others."""

    def __init__(self, case: Case) -> None:
        self.draft = Draft(case)
        last = case.metadata[-1]
        self._epoch, self._offset = last.quorum_epoch, last.metadata_offset
        self.at_ns = max(case.end_ns, last.at_ns or 0)

    def add(self, record_type: str, place: Place | None, body: Body) -> int:
        """Commit one more record; return its offset."""
        self._offset += 1
        self.at_ns += STEP_NS
        self.draft.rows(Metadata).append(record(self._offset, self._epoch, self.at_ns, record_type, place, body))
        return self._offset

    def change(self, place: Place, **body: object) -> None:
        """Commit a change of a partition."""
        self.add("PartitionChangeRecord", place, {"partition_id": place.partition, **body})


def record(offset: int, epoch: int, at_ns: int, record_type: str, place: Place | None, body: Body) -> Metadata:
    """Return a committed record."""
    return Metadata(
        metadata_offset=offset, quorum_epoch=epoch, at_ns=at_ns, record_type=record_type,
        topic=None if place is None else place.topic, partition=None if place is None else place.partition,
        body=msgspec.json.encode(body).decode(),
    )  # fmt: skip


def _in_full_isr(case: Case, random: Random) -> Iterator[tuple[Place, State]]:
    """Yield partitions whose last state has a leader and everybody in the ISR."""
    for place in shuffled(case.places, random):
        state = case.state(place)
        if state is not None and len(state.isr) == len(state.replicas) > 2 and state.leader in state.isr:
            yield place, state


def _injected(draft: Draft, place: Place | None, change: str, since_ns: int, until_ns: int) -> Injected:
    injection = Injection(change=change, place=place, since_ns=since_ns, until_ns=until_ns)
    return Injected(injection=injection, changed=draft.changed())


def _plotted(change: str, plot: Plot, fits: Callable[[Case], bool] = lambda case: True) -> Inject:
    """Return an injection that appends a partition's changes."""

    def inject(case: Case, random: Random) -> Iterator[Injected]:
        if not fits(case):
            return
        for place, state in _in_full_isr(case, random):
            appended = Appended(case)
            since_ns = appended.at_ns
            for record_type, body in plot(case, place, state):
                own = place if record_type.startswith("Partition") else None
                appended.add(record_type, own, ({"partition_id": place.partition} | body) if own else body)
            yield _injected(appended.draft, place, change, since_ns, appended.at_ns)

    return inject


def _others(state: State) -> list[int]:
    return [node for node in state.isr if node != state.leader]


def _changes(*bodies: Body) -> list[tuple[str, Body]]:
    return [("PartitionChangeRecord", body) for body in bodies]


def _isr_outside(case: Case, place: Place, state: State) -> Sequence[tuple[str, Body]]:
    return _changes({"isr": [*state.isr, max(state.replicas) + 1]}, {"isr": list(state.isr)})


def _isr_empty(case: Case, place: Place, state: State) -> Sequence[tuple[str, Body]]:
    return _changes({"isr": []}, {"isr": list(state.isr)})


def _leader_outside(case: Case, place: Place, state: State) -> Sequence[tuple[str, Body]]:
    leader = _others(state)[0]
    return _changes({"leader": leader, "isr": [node for node in state.isr if node != leader]}, {"isr": list(state.isr)})


def _unclean(case: Case, place: Place, state: State) -> Sequence[tuple[str, Body]]:
    left, *others = _others(state)
    return _changes(
        {"isr": [state.leader, *others]},
        {"isr": [left], "leader": left, "leader_recovery_state": 1, "eligible_leader_replicas": []},
        {"leader_recovery_state": 0},
        {"isr": list(state.isr)},
    )


def _elr_lost(case: Case, place: Place, state: State) -> Sequence[tuple[str, Body]]:
    return _changes(
        {"isr": [], "leader": NO_LEADER, "eligible_leader_replicas": [], "last_known_elr": [state.leader]},
        {"isr": [state.leader], "leader": state.leader, "leader_recovery_state": 1, "last_known_elr": []},
        {"leader_recovery_state": 0},
        {"isr": list(state.isr)},
    )


def _elr_forgotten(case: Case, place: Place, state: State) -> Sequence[tuple[str, Body]]:
    return _changes({"isr": [state.leader], "eligible_leader_replicas": []}, {"isr": list(state.isr)})


def _elr_beside(case: Case, place: Place, state: State) -> Sequence[tuple[str, Body]]:
    left, *others = _others(state)
    bodies: list[Body] = [{"isr": [state.leader, *others], "eligible_leader_replicas": [left]}]
    return _changes(*bodies, {"isr": list(state.isr), "eligible_leader_replicas": []})


def _recovering(case: Case, place: Place, state: State) -> Sequence[tuple[str, Body]]:
    return _changes({"leader_recovery_state": 1}, {"leader_recovery_state": 0})


def _fenced_joins(case: Case, place: Place, state: State) -> Sequence[tuple[str, Body]]:
    left, *others = _others(state)
    changed: Body = {"broker_id": left, "broker_epoch": _epoch_of(case, left)}
    return [
        *_changes({"isr": [state.leader, *others]}),
        ("BrokerRegistrationChangeRecord", changed | {"fenced": 1}),
        *_changes({"isr": list(state.isr)}),
        ("BrokerRegistrationChangeRecord", changed | {"fenced": -1}),
    ]


def _epochs_of(case: Case, node: int) -> list[tuple[int, int]]:
    """Return the broker epochs that a broker registered with, and when."""
    rows = [row for row in case.metadata if row.record_type == "RegisterBrokerRecord"]
    bodies = [(msgspec.json.decode(row.body), row.at_ns or 0) for row in rows]
    return [(int(body["broker_epoch"]), at_ns) for body, at_ns in bodies if body["broker_id"] == node]


def _epoch_of(case: Case, node: int) -> int:
    known = _epochs_of(case, node)
    return known[-1][0] if known else 0


def _clean_of_unclean(case: Case, random: Random) -> Iterator[Injected]:
    # Without ELR the last replica standing may be elected, whatever became of it (R3).
    if not _elr(case):
        return
    for place, state in _in_full_isr(case, random):
        appended = Appended(case)
        node, since_ns = _others(state)[0], appended.at_ns
        epoch = case.metadata[-1].metadata_offset + 1
        appended.add(
            "RegisterBrokerRecord",
            None,
            {"broker_id": node, "broker_epoch": epoch, "fenced": False, "incarnation_id": "new"},
        )
        appended.draft.rows(NodeEvent).append(NodeEvent(
            node=node, role="broker", event="registered", at_ns=appended.at_ns, broker_epoch=epoch, previous_broker_epoch=-1
        ))  # fmt: skip
        appended.change(place, leader=node)
        change = f"broker {node} shut down uncleanly, stays in the ISR, and is elected"
        yield _injected(appended.draft, place, change, since_ns, appended.at_ns)


def _broker_epoch_back(case: Case, random: Random) -> Iterator[Injected]:
    for node in shuffled(case.brokers(), random):
        known = _epochs_of(case, node)
        if not known:
            continue
        appended = Appended(case)
        since_ns = appended.at_ns
        body: Body = {"broker_id": node, "broker_epoch": known[-1][0] - 1, "fenced": False, "incarnation_id": "older"}
        appended.add("RegisterBrokerRecord", None, body)
        appended.draft.rows(NodeEvent).append(NodeEvent(
            node=node, role="broker", event="registered", at_ns=appended.at_ns, broker_epoch=known[-1][0] - 1,
            previous_broker_epoch=known[-1][0],
        ))  # fmt: skip
        yield _injected(appended.draft, None, f"broker {node} registers with a lower epoch", since_ns, appended.at_ns)


def _quorum_epoch_back(case: Case, random: Random) -> Iterator[Injected]:
    highest = max((row.quorum_epoch for row in case.metadata), default=0)
    rows = [row for row in case.metadata[1:] if row.quorum_epoch == highest > 0]
    for row in shuffled(rows[1:], random):
        draft = Draft(case)
        draft.replace_row(None, row, replace(row, quorum_epoch=highest - 1))
        change = f"the record at metadata offset {row.metadata_offset} has quorum epoch {highest - 1} behind {highest}"
        yield _injected(draft, None, change, row.at_ns or 0, row.at_ns or 0)


def _leaderless(case: Case, random: Random) -> Iterator[Injected]:
    """Leave a partition without leader to the end although its ISR runs and holds everything; what the leader changed is not there.

    Long before the end, and the last heal is longer ago than an election takes: while something is hurt nothing is promised.
    """
    healed_ns = max((NEVER if fault.healed_ns is None else fault.healed_ns for fault in case.of_run(Fault)), default=0)
    end_ns = max((row.at_ns or 0 for row in case.metadata), default=0)
    if healed_ns >= end_ns - LAG_NS:
        return
    downs = [event for event in case.of_run(NodeEvent) if event.event in ("killed", "stop", "exit", "fenced")]
    for place in shuffled(case.places, random):
        elected_ns = max((change.at_ns for change in case.elections(place)), default=0)
        fitting = []
        for row in case.metadata:
            at_ns = row.at_ns or 0
            state = case.state(place, at_ns)
            if row.record_type != "NoOpRecord" or not elected_ns < at_ns < end_ns - LEADERLESS_NS or state is None:
                continue
            alive = not any(event.node in state.isr and event.at_ns > at_ns - LAG_NS for event in downs)
            if alive and len(state.isr) == len(state.replicas) > 2:
                fitting.append((row, at_ns, state))
        if not fitting:
            continue
        row, at_ns, state = random.choice(fitting)
        draft = Draft(case)
        body: Body = {"partition_id": place.partition, "leader": NO_LEADER, "isr": _others(state)}
        changed = record(row.metadata_offset, row.quorum_epoch, at_ns, "PartitionChangeRecord", place, body)
        draft.replace_row(None, row, changed)
        rows = draft.rows(Metadata)
        rows[:] = [
            one for one in rows
            if one.metadata_offset <= row.metadata_offset or (one.topic, one.partition) != (place.topic, place.partition)
        ]  # fmt: skip
        change = f"no leader from there on, {_others(state)} are in the ISR and alive"
        yield _injected(draft, place, change, at_ns, case.end_ns)


def _two_leaders(case: Case, random: Random) -> Iterator[Injected]:
    for place in shuffled(case.places, random):
        own = [
            seen for seen in case.rows(Watermark, place)
            if seen.source == "node" and seen.leader_epoch is not None and seen.high_watermark is not None
        ]  # fmt: skip
        state = case.state(place)
        if not own or state is None:
            continue
        seen = random.choice(own)
        other = next(node for node in state.replicas if f"node-{node}" != seen.observer)
        draft = Draft(case)
        rows = draft.rows(Watermark, place)
        rows.insert(rows.index(seen) + 1, replace(seen, observer=f"node-{other}"))
        change = f"{seen.observer} and node-{other} both lead in leader epoch {seen.leader_epoch}"
        yield _injected(draft, place, change, seen.at_ns, seen.at_ns)


def _wrong_leader(case: Case, random: Random) -> Iterator[Injected]:
    """Let all that a leader recorded of an epoch be recorded by another broker."""
    for place in shuffled(case.places, random):
        state = case.state(place)
        recorded = [
            seen for seen in case.rows(Watermark, place) if seen.source == "node" and seen.high_watermark is not None
        ]
        epochs = sorted({seen.leader_epoch for seen in recorded if seen.leader_epoch is not None})
        if not epochs or state is None:
            continue
        epoch = random.choice(epochs)
        first = next(seen for seen in recorded if seen.leader_epoch == epoch)
        other = next(node for node in state.replicas if f"node-{node}" != first.observer)
        draft = Draft(case)
        draft.edit(Watermark, place, lambda seen, epoch=epoch, other=other: (  # type: ignore[misc]
            replace(seen, observer=f"node-{other}")
            if seen.source == "node" and seen.leader_epoch == epoch and seen.high_watermark is not None else seen
        ))  # fmt: skip
        yield _injected(
            draft, place, f"node-{other} leads in leader epoch {epoch}, another was elected", first.at_ns, first.at_ns
        )


def between(case: Case, place: Place) -> Iterator[tuple[Metadata, Metadata, State]]:
    """Yield pairs of records without content between which nothing of a partition changes, a while apart."""
    empty = [row for row in case.metadata if row.record_type == "NoOpRecord" and row.at_ns is not None]
    for first, last in zip(empty, empty[6:], strict=False):
        state = case.state(place, first.at_ns or 0)
        changed = any(
            first.metadata_offset < change.metadata_offset < last.metadata_offset for change in case.history(place)
        )
        if state is not None and not changed and (last.at_ns or 0) - (first.at_ns or 0) > 2 * LAG_NS:
            yield first, last, state


def _below_min_isr(case: Case, random: Random) -> Iterator[Injected]:
    """Commit an ISR of the leader alone while acks=all is acknowledged; it is the committed ISR that counts.

    The leader has to have learned of it: one that is paused or cut off, or was a moment ago, acknowledges what it may.
    """
    least = int(str(case.settings.get("min.insync.replicas", 1)))
    for place in shuffled(case.places, random):
        if least < 2 or case.is_zookeeper:
            continue
        for first, last, state in shuffled(between(case, place), random):
            begin, end = (first.at_ns or 0) + LAG_NS // 2, (last.at_ns or 0) - LAG_NS // 2
            hindered = [fault for fault in case.of_run(Fault) if hinders(fault, {state.leader})]
            inside = [
                send for send in case.rows(Send, place)
                if send.acks == -1 and send.outcome == "ok" and begin < send.invoke_ns < (send.complete_ns or 0) < end
                and not any(_is_in_effect(fault, send.invoke_ns) for fault in hindered)
            ]  # fmt: skip
            if not inside or state.leader == NO_LEADER or len(state.isr) < least:
                continue
            draft = Draft(case)
            for row, body in (
                (first, {"isr": [state.leader], "eligible_leader_replicas": _others(state) if case.has_elr else []}),
                (last, {"isr": list(state.isr), "eligible_leader_replicas": list(state.elr)}),
            ):
                named = {"partition_id": place.partition, **body}
                draft.replace_row(None, row, record(
                    row.metadata_offset, row.quorum_epoch, row.at_ns or 0, "PartitionChangeRecord", place, named
                ))  # fmt: skip
            change = f"the committed ISR is [{state.leader}], min ISR {least}, and {len(inside)} records are acknowledged with acks=all"
            yield _injected(draft, place, change, first.at_ns or 0, last.at_ns or 0)
            break


def _is_in_effect(fault: Fault, at_ns: int) -> bool:
    """Return whether a fault was in effect at a moment, or so shortly before that not everybody has learned everything since."""
    if begun_ns(fault) is None:
        return False
    since_ns, until_ns = in_effect(fault)
    return since_ns - LAG_NS <= at_ns < until_ns + SETTLING_NS


def _stale_member(case: Case, random: Random) -> Iterator[Injected]:
    yield from _stale(case, random, ALTER_PARTITION)


def _stale_request(case: Case, random: Random) -> Iterator[Injected]:
    yield from _stale(case, random, UPDATE_METADATA if case.is_zookeeper else BROKER_HEARTBEAT)


def _stale(case: Case, random: Random, api_key: int) -> Iterator[Injected]:
    requests = case.of_run(Request)
    for node in shuffled(case.brokers(), random):
        known = _epochs_of(case, node)
        epochs = sorted({epoch for epoch, _ in known})
        if len(epochs) < 2 or not requests:
            continue
        controller = max(row.target for row in requests) if any(row.target > node for row in requests) else node + 100
        at_ns = known[-1][1] + LAG_NS
        other = next(broker for broker in case.brokers() if broker != node)
        own: Body = {"broker_id": node, "broker_epoch": epochs[-2]}
        members: Body = {"broker_id": other, "broker_epoch": _epoch_of(case, other), "members": [[node, epochs[-2]]]}
        source, target, summary = {
            ALTER_PARTITION: (other, controller, members),
            BROKER_HEARTBEAT: (node, controller, own),
            UPDATE_METADATA: (controller, node, own),
        }[api_key]
        asked = Request(
            source=source, target=target, api_key=api_key, api_version=3, correlation_id=1 << 30, direction="request",
            fate="delivered", at_ns=at_ns, summary=msgspec.json.encode(summary).decode(),
        )  # fmt: skip
        answer = replace(
            asked, source=asked.target, target=asked.source, direction="response", at_ns=at_ns + STEP_NS,
            summary='{"error":"NONE"}',
        )  # fmt: skip
        draft = Draft(case)
        draft.rows(Request).extend([asked, answer])
        change = f"a request naming broker {node} by its previous epoch {epochs[-2]} is carried out, {epochs[-1]} is registered"
        yield _injected(draft, None, change, known[-1][1], at_ns)


def _elr(case: Case) -> bool:
    return case.has_elr and int(str(case.settings.get("min.insync.replicas", 1))) > 1


def _forbids_unclean(case: Case) -> bool:
    return not case.allows_unclean and not any(row.api == "elect_leaders" for row in case.of_run(Admin))


def _class(name: str, changes: str, inject: Inject, *seen_by: str) -> AnomalyClass:
    return AnomalyClass(name=name, changes=changes, seen_by=seen_by or ("control_plane",), inject=inject)


def _appending(name: str, changes: str, plot: Plot, fits: Callable[[Case], bool] = lambda case: True) -> AnomalyClass:
    return _class(name, changes, _plotted(changes, plot, fits))


CLASSES: Final = (
    _class("two-leaders", "two nodes lead in one leader epoch", _two_leaders, "leaders"),
    _class("leader-not-elected", "a node leads in an epoch that another was elected for", _wrong_leader, "leaders"),
    _appending("isr-outside-replicas", "the committed ISR names a broker that is no replica", _isr_outside),
    _appending("isr-empty-with-leader", "the committed ISR is empty and there is a leader", _isr_empty),
    _appending("leader-outside-isr", "the committed leader is not in the committed ISR", _leader_outside),
    _appending(
        "unclean-election-forbidden",
        "a replica outside of ISR and ELR is elected, the settings forbid it",
        _unclean,
        _forbids_unclean,
    ),
    _class(
        "clean-election-of-unclean-replica",
        "a replica that shut down uncleanly is elected from the ISR",
        _clean_of_unclean,
    ),
    _appending(
        "elr-member-lost",
        "ISR and ELR are empty without any unclean shutdown, and the last known leader is elected",
        _elr_lost,
        _elr,
    ),
    _appending(
        "elr-member-forgotten", "members leave the ISR below min ISR and the ELR stays empty", _elr_forgotten, _elr
    ),
    _appending("elr-beside-full-isr", "the ELR is not empty beside a full enough ISR", _elr_beside, _elr),
    _appending("recovering-with-others", "RECOVERING with more than one member of the ISR", _recovering),
    _appending(
        "fenced-replica-joins", "a fenced broker joins the ISR", _fenced_joins, lambda case: not case.is_zookeeper
    ),
    _class("broker-epoch-back", "a broker registers with a lower epoch", _broker_epoch_back),
    _class("quorum-epoch-back", "the quorum epoch goes back along the metadata log", _quorum_epoch_back),
    _class("leaderless-at-the-end", "a partition with a living whole ISR has no leader to the end", _leaderless, "led"),
    _class(
        "acknowledged-below-min-isr",
        "acks=all is acknowledged while the committed ISR is below min ISR",
        _below_min_isr,
        "min_isr",
    ),
    _class(
        "stale-member-accepted", "AlterPartition with a stale broker epoch is accepted", _stale_member, "stale_epochs"
    ),
    _class(
        "stale-request-accepted",
        "a request with a stale broker epoch is carried out",
        _stale_request,
        "stale_epochs",
    ),
)
