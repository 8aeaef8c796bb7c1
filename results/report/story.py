"""The story of the first violation, from the tables alone; each step has a time, a place and a sentence.

Who took the record, who acknowledged it, who led then, what was hurt, who was elected, who cut it away on whose order, and
what stands in its place.

Client events, faults and observations share the harness's clock. A committed metadata record is seen a little after
its commit, so a step of the controllers may stand a moment late; nothing here is evidence, the judge has that.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.results.metadata import State
from tribunal.results.plain_words import LOSSES
from tribunal.results.report.moments import Change
from tribunal.results.report.wrong_read import wrong_read
from tribunal.results.rows import Fault, Send, Watermark, typed
from tribunal.results.store import Recording
from tribunal.results.values import SEQUENCE_BITS, number_of, record_name
from tribunal.results.verdict import Finding

CLIENT: Final = "client"
CONTROLLERS: Final = "controllers"
MOST_STEPS: Final = 18
MOST_CHANGES: Final = 7
MOST_COPIES: Final = 6
AROUND_NS: Final = 2_000_000_000
LAG_NS: Final = 500_000_000
OUR_CONTROLLERS: Final = (101, 199)
UNANSWERED: Final = {
    "sent": "sent, no answer asked for",
    "info": "of unknown outcome",
    "fail": "refused",
}  # how a send ended that nobody acknowledged


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened.

    lane, to:   where in the drawing: client, controllers or `broker N`; `to` for what goes from one to another.
    label:      a few words for the drawing; text: the sentence.
    tone:       "", fault, bad.
    is_key:     whether the shortest telling has it: the record sent and acknowledged, the election that lost it, what is left.
    is_end:     whether it says what stands in the record's place in the end.
    until_ns:   end of what lasts (a fault).
    fault:      the index of the fault that it is about.
    see:        where the page shows more of it: operations, read (the first wrong one) or logs.
    """

    at_ns: int
    lane: str
    label: str
    text: str
    to: str | None = None
    tone: str = ""
    is_key: bool = False
    is_end: bool = False
    until_ns: int | None = None
    fault: int | None = None
    see: str = ""


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of one finding, in order of time, and who led meanwhile."""

    finding: Finding
    steps: list[Step]
    changes: list[Change]
    brokers: list[int]
    folded: int

    @property
    def name(self) -> str:
        """The partition's `topic-p`, or where the finding lies."""
        return self.finding.place

    @property
    def shortest(self) -> list[Step]:
        """The few steps without which nobody understands it, in order of time."""
        return [step for step in self.steps if step.is_key]

    @property
    def marks(self) -> list[tuple[int, str]]:
        """The moments worth a line in the timeline: where it became visible."""
        return [(step.at_ns, step.label) for step in self.steps if step.tone == "bad"][:4]


def protagonist(findings: Sequence[Finding]) -> Finding | None:
    """Return the finding whose story is shown: the earliest violation, else the earliest permitted loss."""
    for severity in ("violation", "permitted"):
        chosen = [finding for finding in findings if finding.severity == severity]
        if chosen:
            return min(chosen, key=_when)
    return None


def _when(finding: Finding) -> tuple[bool, int, int]:
    return (finding.acknowledged_ns is None, finding.acknowledged_ns or 0, finding.log_offset or 0)


def story_of(recording: Recording, finding: Finding, changes: Sequence[Change], end_ns: int) -> Story:
    """Return one finding's story."""
    if finding.topic is None and (steps := _lost_element(recording, finding)):
        return Story(finding=finding, steps=steps, changes=[], brokers=[], folded=0)
    partition = None if finding.topic is None else f"{finding.topic}-{finding.partition}"
    sent = _sent(recording, partition, finding)
    start, end = _window(finding, sent, end_ns)
    brokers = sorted({replica for change in changes for replica in change.state.replicas})
    own = [*_record_steps(recording, partition, finding, sent, changes)] if partition else []
    if finding.property_name == "invariant":
        own.append(_stopped(finding, end_ns))
    if not any(step.tone == "bad" or step.is_end for step in own):
        own.append(_found(recording, partition, finding, changes, end))
    chosen, folded = _near(_change_steps(finding, changes, start, end), _election_ns(finding) or end)
    around = [*_fault_steps(recording, start, end), *chosen]
    last = sorted((step for step in own if step.at_ns > end), key=lambda step: step.at_ns)
    steps = sorted([*around, *(step for step in own if step.at_ns <= end)], key=lambda step: step.at_ns)
    kept = weightiest([*steps, *last], _election_ns(finding) or finding.acknowledged_ns or end)
    return Story(
        finding=finding,
        steps=kept,
        changes=list(changes),
        brokers=brokers,
        folded=folded + len(steps) + len(last) - len(kept),
    )


def _lost_element(recording: Recording, finding: Finding) -> list[Step]:
    """Return how an element of a system's object was added, what was hurt then, and the read that lacks it; nothing of other findings."""
    if finding.kind != "element_lost" or finding.value is None or finding.acknowledged_ns is None:
        return []
    calls = recording.table("operations")
    at = pc.and_(
        pc.equal(calls["complete_ns"], finding.acknowledged_ns), pc.equal(calls["argument"], str(finding.value))
    )
    added = calls.filter(pc.fill_null(at, False)).to_pylist()  # noqa: FBT003 - pyarrow's own signature
    if not added:
        return []
    call = added[0]
    own = pc.and_(
        pc.equal(calls["key"].cast(pa.string()), call["key"]), pc.equal(calls["outcome"].cast(pa.string()), "ok")
    )
    is_read = pc.is_in(calls["function"].cast(pa.string()), pa.array(["read-all", "read-stream"]))
    reads = calls.filter(pc.and_(own, is_read)).to_pylist()
    last = max(reads, key=lambda read: read["complete_ns"], default=None)
    if last is None:
        return []
    done_ns, read_ns = call["complete_ns"], last["complete_ns"]
    faults = [
        msgspec.structs.replace(step, is_key=True) for step in _fault_steps(recording, call["invoke_ns"], read_ns)
    ]
    steps = [
        Step(
            at_ns=call["invoke_ns"],
            lane=CLIENT,
            label=f"{call['function']} {finding.value}",
            text=f"Process {call['process']} calls {call['function']} {finding.value} on {call['key']}.",
            is_key=True,
        ),
        Step(
            at_ns=done_ns,
            lane=CLIENT,
            label="acknowledged",
            text=f"It is acknowledged{_by_node(call)}, {(done_ns - call['invoke_ns']) / 1e6:,.1f} ms later.",
            is_key=True,
        ),
        *faults[: MOST_STEPS - 3],
        Step(
            at_ns=read_ns,
            lane=CLIENT,
            label=f"✕ {finding.value} is missing",
            text=f"The last read of {call['key']}, by process {last['process']}{_by_node(last, 'answered ')}, lacks it: {finding.explanation}.",
            is_key=True,
            is_end=True,
            tone="bad" if finding.severity == "violation" else "",
        ),
    ]
    return sorted(steps, key=lambda step: step.at_ns)


def _by_node(call: Mapping[str, object], word: str = "") -> str:
    """Say which node answered a call, where its client said so."""
    return "" if call["answered_by"] is None else f"{', ' if word else ' '}{word}by node {call['answered_by']}"


def weightiest(steps: Sequence[Step], at_ns: int) -> list[Step]:
    """Keep `MOST_STEPS` in order of time: those that explain the finding before all others, then the nearest to its moment."""
    weighed = sorted(steps, key=lambda step: (not (step.is_key or step.tone == "bad"), abs(step.at_ns - at_ns)))
    kept = {id(step) for step in weighed[:MOST_STEPS]}
    return [step for step in steps if id(step) in kept]


def located(recording: Recording, finding: Finding) -> Finding:
    """Return a violated invariant with its place, and the first acknowledged record that it concerns."""
    violation = finding.violation
    if violation is None or violation.topic is None or finding.topic is not None:
        return finding
    found = msgspec.structs.replace(finding, topic=violation.topic, partition=violation.partition)
    if violation.log_offset is None:
        return found
    sends = recording.table("sends", f"{found.topic}-{found.partition}", ["value", "acks", "log_offset", "complete_ns"])
    rows = sends.filter(pc.greater_equal(sends["log_offset"], violation.log_offset)).sort_by("log_offset")
    if not rows.num_rows:
        return found
    row = rows.slice(0, 1).to_pylist()[0]
    return msgspec.structs.replace(
        found, value=row["value"], acks=row["acks"], log_offset=row["log_offset"], acknowledged_ns=row["complete_ns"]
    )


def _election_ns(finding: Finding) -> int | None:
    return None if finding.detail.election is None else finding.detail.election.at_ns


def _guilty_epoch(finding: Finding) -> int | None:
    """Return the leader epoch at whose beginning the record was lost."""
    return None if finding.detail.election is None else finding.detail.election.leader_epoch


def _window(finding: Finding, sent: Send | None, end_ns: int) -> tuple[int, int]:
    at_ns = end_ns if finding.property_name == "invariant" else finding.acknowledged_ns
    start = sent.invoke_ns if sent is not None else max(0, (at_ns or 0) - AROUND_NS)
    after = _election_ns(finding) or (at_ns if at_ns is not None else end_ns)
    return start, min(max(after, start) + LAG_NS, max(end_ns, after))


def _sent(recording: Recording, partition: str | None, finding: Finding) -> Send | None:
    """Return the row of the send whose record the finding is about."""
    if partition is None or finding.value is None:
        return None
    sends = recording.table("sends", partition)
    rows = typed(sends.filter(pc.equal(sends["value"], finding.value)), Send)
    return rows[0] if rows else None


def _record_steps(
    recording: Recording, partition: str, finding: Finding, sent: Send | None, changes: Sequence[Change]
) -> Iterator[Step]:
    if sent is not None:
        yield from _send_steps(sent, changes)
        yield from _exposure_steps(recording, partition, finding, sent)
        yield from _copy_steps(recording, partition, finding, sent, changes)
    if finding.value is not None:
        yield from _read_steps(recording, partition, finding)
    if finding.log_offset is not None and finding.value is not None:
        yield from _wrong_read_steps(recording, finding)
        yield from _ending_steps(recording, partition, finding, changes)


def _wrong_read_steps(recording: Recording, finding: Finding) -> Iterator[Step]:
    read = wrong_read(recording, finding)
    if read is not None:
        known = "read" if finding.acknowledged_ns is None else "acknowledged"
        other = "a record without a value" if read.value is None else record_name(read.value)
        yield Step(
            at_ns=read.at_ns,
            lane=CLIENT,
            label="✕ reads another record",
            see="read",
            is_key=True,
            tone="bad" if finding.severity == "violation" else "",
            text=f"The first wrong read: process {read.process} receives {other} at offset {read.log_offset}, where "
            f"{record_name(finding.value or 0)} had been {known}.",
        )


def _own_name(sent: Send) -> str:
    """Return a record as its sender's sentence has it: the process is named there already."""
    if sent.value >> SEQUENCE_BITS != sent.process:
        return record_name(sent.value)
    return f"its record {number_of(sent.value)}"


def acks_name(acks: int | None) -> str:
    """Return acks as users write it."""
    return {None: "unknown acks", -1: "acks=all"}.get(acks, f"acks={acks}")


def state_at(changes: Sequence[Change], at_ns: int) -> State | None:
    """Return the partition's committed state at a moment."""
    before = [change.state for change in changes if change.at_ns <= at_ns]
    return before[-1] if before else None


def broker_lane(node: int) -> str:
    """Return the lane of a broker."""
    return CONTROLLERS if node < 0 else f"broker {node}"


def _node_lane(node: int, brokers: Iterable[int]) -> str:
    """Return the lane of a node of which it is not said what it is: our own controllers are 101..199 (docs/contract.md), other clusters' brokers may be."""
    return broker_lane(node) if node in brokers or not OUR_CONTROLLERS[0] <= node <= OUR_CONTROLLERS[1] else CONTROLLERS


def ids(nodes: Iterable[int]) -> str:
    """Return node ids as a set is written."""
    return "{" + ", ".join(str(node) for node in nodes) + "}"


def _led(state: State | None) -> str:
    if state is None:
        return "the partition's leader is not recorded"
    leader = "nobody leads it" if state.leader < 0 else f"broker {state.leader} leads it"
    elr = f", ELR {ids(state.elr)}" if state.elr else ""
    return f"{leader} in leader epoch {state.leader_epoch}, ISR {ids(state.isr)}{elr}"


def _send_steps(sent: Send, changes: Sequence[Change]) -> Iterator[Step]:
    state = state_at(changes, sent.invoke_ns)
    acks = acks_name(sent.acks)
    place = f"{sent.topic}-{sent.partition}"
    yield Step(
        at_ns=sent.invoke_ns,
        lane=CLIENT,
        to=_leaders_lane(state),
        label=f"Produce, {acks}",
        is_key=True,
        text=f"Process {sent.process} ({sent.worker_class}) sends {_own_name(sent)} to {place} with {acks}; "
        f"{_led(state)}.",
    )
    if sent.complete_ns is None:
        return
    answerer = _answerers_lane(sent, changes)
    at = "" if sent.log_offset is None else f" at offset {sent.log_offset}"
    word = f"acknowledged{at}" if sent.outcome == "ok" else UNANSWERED.get(sent.outcome, sent.outcome)
    took_ms = (sent.complete_ns - sent.invoke_ns) / 1e6
    attempts = f", attempt {sent.attempts}" if (sent.attempts or 1) > 1 else ""
    yield Step(
        at_ns=sent.complete_ns,
        lane=answerer or CLIENT,
        to=None if answerer is None else CLIENT,
        label=word,
        is_key=True,
        see="operations",
        text=f"The record is {word}, {took_ms:,.1f} ms later{attempts}; {_led(state_at(changes, sent.complete_ns))}.",
    )


def _leaders_lane(state: State | None) -> str | None:
    return None if state is None or state.leader < 0 else broker_lane(state.leader)


def _answerers_lane(sent: Send, changes: Sequence[Change]) -> str | None:
    """Return the lane of who acknowledged a record; where that is not recorded, of who led then. None: nobody is known to have answered."""
    if sent.outcome != "ok" or sent.complete_ns is None:
        return None
    if sent.answered_by is not None:
        return broker_lane(sent.answered_by)
    return _leaders_lane(state_at(changes, sent.complete_ns))


def _exposure_steps(recording: Recording, partition: str, finding: Finding, sent: Send) -> Iterator[Step]:
    """When somebody first saw a high watermark beyond the record."""
    offset = finding.log_offset if sent.log_offset is None else sent.log_offset
    if offset is None:
        return
    rows = recording.table("watermarks", partition, ["observer", "at_ns", "high_watermark", "leader_epoch"])
    beyond = pc.and_(pc.greater(rows["high_watermark"], offset), pc.greater_equal(rows["at_ns"], sent.invoke_ns))
    seen = rows.filter(pc.fill_null(beyond, False)).sort_by("at_ns")  # noqa: FBT003 - pyarrow's own signature
    if seen.num_rows == 0:
        return
    first = seen.slice(0, 1).to_pylist()[0]
    replaced = _election_ns(finding)
    late = replaced is not None and first["at_ns"] >= replaced
    lane = _observer_lane(first["observer"])
    tale = (
        f"Only now an observer ({first['observer']}) sees a high watermark beyond offset {offset}: {first['high_watermark']}. "
        + (
            "The record was acknowledged although nobody had seen it committed."
            if sent.acks == -1 and sent.outcome == "ok"
            else "Nobody had seen the record committed before."
        )
        if late
        else f"{first['observer']} sees the high watermark at {first['high_watermark']}, beyond the record."
    )
    yield Step(at_ns=first["at_ns"], lane=lane, label=f"high watermark {first['high_watermark']}", text=tale)


class LogEnd(NamedTuple):
    """What a follower reported of its log: its end as it began to follow a leader epoch, or before and behind a cut."""

    at_ns: int
    node: int
    leader_epoch: int | None
    before: int
    after: int | None  # of a cut


def log_ends(recording: Recording, partition: str) -> list[LogEnd]:
    """Return what followers reported of their logs (rows of `watermarks` without a high watermark), in order of time."""
    rows = recording.table("watermarks", partition)
    own = pc.and_(pc.equal(rows["source"].cast(pa.string()), "node"), pc.is_valid(rows["log_end_offset"]))
    of_followers = typed(rows.filter(pc.and_(own, pc.is_null(rows["high_watermark"]))), Watermark)
    ends: dict[tuple[int, str], list[Watermark]] = {}
    for row in sorted(of_followers, key=lambda row: (row.at_ns, row.observer)):
        ends.setdefault((row.at_ns, row.observer), []).append(row)
    return [_log_end(at_ns, int(observer.removeprefix("node-")), same) for (at_ns, observer), same in ends.items()]


def _log_end(at_ns: int, node: int, rows: Sequence[Watermark]) -> LogEnd:
    offsets = [row.log_end_offset for row in rows if row.log_end_offset is not None]
    cut = min(offsets) if len(offsets) > 1 else None
    return LogEnd(at_ns=at_ns, node=node, leader_epoch=rows[-1].leader_epoch, before=max(offsets), after=cut)


def _copy_steps(
    recording: Recording, partition: str, finding: Finding, sent: Send, changes: Sequence[Change]
) -> Iterator[Step]:
    """Who had the record when an epoch began, and who cut it away on whose order."""
    offset = finding.log_offset if sent.log_offset is None else sent.log_offset
    if offset is None:
        return
    after = [end for end in log_ends(recording, partition) if end.at_ns >= sent.invoke_ns]
    state = state_at(changes, sent.invoke_ns)
    own_epoch = -1 if state is None else state.leader_epoch  # they all began it without the record
    after = [end for end in after if end.after is not None or (end.leader_epoch or 0) > own_epoch]
    guilty = _guilty_epoch(finding)
    if guilty is not None:
        # What followers bring into later epochs is what stands in the record's place.
        after = [end for end in after if end.after is not None or (end.leader_epoch or 0) <= guilty]
    gone: dict[int, None] = {}
    count = 0
    for end in after:
        if end.node in gone or count == MOST_COPIES:
            continue
        count += 1
        if end.after is None:
            yield _follow_step(end, offset, changes)
        elif end.after <= offset < end.before:
            gone[end.node] = None
            yield _cut_step(end, offset, finding, changes)
        else:
            count -= 1  # a cut that leaves the record alone


def _follow_step(end: LogEnd, offset: int, changes: Sequence[Change]) -> Step:
    holds = "and reaches beyond it" if end.before > offset else "the record is not in it"
    return Step(
        at_ns=end.at_ns,
        lane=broker_lane(end.node),
        label=f"log ends at {end.before}",
        text=f"Broker {end.node} begins to follow {_leader_of(end.leader_epoch, changes)}; its log ends at {end.before}, {holds}"
        f" (offset {offset}).",
    )


def _cut_step(end: LogEnd, offset: int, finding: Finding, changes: Sequence[Change]) -> Step:
    leader = next((c.state.leader for c in changes if c.state.leader_epoch == end.leader_epoch), -1)
    return Step(
        at_ns=end.at_ns,
        lane=broker_lane(leader),
        to=broker_lane(end.node),
        label=f"truncate to {end.after}",
        see="logs",
        text=f"Broker {end.node} follows {_leader_of(end.leader_epoch, changes)} and cuts its log from {end.before} "
        f"to {end.after}: what it had at offset {offset} is gone from it.",
        tone="bad" if finding.severity == "violation" else "",
    )


def _leader_of(leader_epoch: int | None, changes: Sequence[Change]) -> str:
    state = next((change.state for change in changes if change.state.leader_epoch == leader_epoch), None)
    leader = "a leader" if state is None or state.leader < 0 else f"broker {state.leader}"
    return leader if leader_epoch is None else f"{leader} in leader epoch {leader_epoch}"


def _observer_lane(observer: str) -> str:
    node = observer.removeprefix("node-")
    return broker_lane(int(node)) if observer.startswith("node-") and node.isdecimal() else CLIENT


def _read_steps(recording: Recording, partition: str, finding: Finding) -> Iterator[Step]:
    reads = recording.table("reads", partition, ["process", "poll_index", "log_offset", "value"])
    own = reads.filter(pc.fill_null(pc.equal(reads["value"], finding.value), False)).to_pylist()  # noqa: FBT003
    if not own:
        return
    polls = recording.table("polls", partition, ["process", "poll_index", "complete_ns"])
    times = []
    for row in own[:100]:
        mine = pc.and_(pc.equal(polls["process"], row["process"]), pc.equal(polls["poll_index"], row["poll_index"]))
        times += [at_ns for at_ns in polls.filter(mine)["complete_ns"].to_pylist() if at_ns is not None]
    if times:
        yield Step(
            at_ns=min(times),
            lane=CLIENT,
            label="a consumer reads it",
            text=f"A consumer receives the record at offset {own[0]['log_offset']}"
            + (f"; it was received {len(own)} times." if len(own) > 1 else "."),
        )


def _ending_steps(recording: Recording, partition: str, finding: Finding, changes: Sequence[Change]) -> Iterator[Step]:
    """What stands at the record's offset in the end: in the final read, and in each replica's final log."""
    end_ns = _final_read_ns(recording, partition)
    replicas = changes[-1].state.replicas if changes else ()
    held = _held(recording, partition, finding, replicas)
    if not held:
        return
    by_content: dict[str, list[int]] = {}
    for node, content in held.items():
        by_content.setdefault(content, []).append(node)
    for content, nodes in by_content.items():
        brokers = f"broker{'s' if len(nodes) > 1 else ''} {', '.join(map(str, nodes))}"
        gone = content != "it"
        yield Step(
            at_ns=end_ns,
            lane=broker_lane(nodes[0]),
            label=f"✕ gone from {brokers}" if gone else f"still at {brokers}",
            is_key=True,
            is_end=gone,
            see="logs",
            tone="bad" if gone and finding.severity == "violation" else "",
            text=f"In the final log{'s' if len(nodes) > 1 else ''} of {brokers} offset {finding.log_offset} holds "
            f"{content if gone else 'the record'}.",
        )


def _final_read_ns(recording: Recording, partition: str) -> int:
    polls = recording.table("polls", partition, ["phase", "complete_ns"])
    final = polls.filter(pc.equal(polls["phase"].cast(pa.string()), "final"))["complete_ns"]
    last = pc.max(final).as_py()
    if last is None:
        ends = recording.table("phases", columns=["end_ns"])["end_ns"]
        last = pc.max(ends).as_py()
    return int(last or 0)


def _held(recording: Recording, partition: str, finding: Finding, replicas: Iterable[int]) -> dict[int, str]:
    """Return node -> what its final log holds at the record's offset: "it", another record, or nothing."""
    logs = recording.table("logs", partition, ["node", "log_offset", "leader_epoch", "value", "is_control"])
    held = {}
    nodes = pc.unique(logs["node"]).to_pylist()
    for node in sorted({*nodes, *replicas} if nodes else []):
        own = logs.filter(pc.equal(logs["node"], node))
        rows = own.filter(pc.equal(own["log_offset"], finding.log_offset)).to_pylist()
        if not rows:
            held[node] = f"nothing ({_around(own['log_offset'], finding.log_offset or 0)})"
        elif rows[0]["value"] == finding.value:
            held[node] = "it"
        elif rows[0]["is_control"] or rows[0]["value"] is None:
            held[node] = f"a control record of leader epoch {rows[0]['leader_epoch']}"
        else:
            held[node] = f"another one: {record_name(rows[0]['value'])}, leader epoch {rows[0]['leader_epoch']}"
    return held


def _around(offsets: pa.ChunkedArray, offset: int) -> str:
    """Say how a log goes past an offset that it has not."""
    later = pc.min(offsets.filter(pc.greater(offsets, offset))).as_py()
    if later is None:
        last = pc.max(offsets).as_py()
        return f"the log ends at {0 if last is None else last + 1}"
    return f"the log {'begins' if later == pc.min(offsets).as_py() else 'goes on'} at {later}"


def _fault_steps(recording: Recording, start: int, end: int) -> Iterator[Step]:
    for row in sorted(typed(recording.table("faults"), Fault), key=lambda row: row.index):
        injected, healed = row.injected_ns, row.healed_ns
        if injected is None or injected > end or (healed is not None and healed < start):
            continue
        target = row.resolved_target or row.planned_target or "?"
        effect = ", without effect" if row.took_effect is False else ""
        until = "not healed" if healed is None else f"healed at {healed / 1e9:.3f} s"
        yield Step(
            at_ns=injected,
            lane=_target_lane(target),
            label=f"{row.kind} {target}{effect}",
            text=f"Fault {row.index}: {row.kind} {target}{effect}; {until}.",
            tone="fault",
            until_ns=healed,
            fault=row.index,
        )


def _target_lane(target: str) -> str:
    """Return the lane of a fault's target; the nodes of a system are neither brokers nor controllers."""
    if target.startswith("node "):
        return target
    role, _, node = target.rpartition(" ")
    if not node.isdecimal():
        return CONTROLLERS
    return broker_lane(int(node)) if role == "broker" else _node_lane(int(node), ())


def _change_steps(finding: Finding, changes: Sequence[Change], start: int, end: int) -> list[Step]:
    guilty = _guilty_epoch(finding)
    steps = []
    for before, change in pairwise(changes):
        if start <= change.at_ns <= end:
            steps.append(change_step(before.state, change, guilty, finding.severity))
    return steps


def change_step(before: State, change: Change, guilty: int | None, severity: str) -> Step:
    """Return the step that says what the controllers committed of a partition; `guilty` is the leader epoch that lost the record."""
    state = change.state
    rest = f"ISR {ids(state.isr)}" + (f", ELR {ids(state.elr)}" if state.elr else "")
    if state.leader_epoch == before.leader_epoch:
        return Step(
            at_ns=change.at_ns, lane=CONTROLLERS, label=rest, text=f"The controllers commit {rest}; the leader stays."
        )
    if state.leader < 0:
        return Step(
            at_ns=change.at_ns,
            lane=CONTROLLERS,
            label=f"no leader, {rest}",
            text=f"Nobody can lead: leader epoch {state.leader_epoch}, {rest}.",
        )
    bad = guilty == state.leader_epoch
    missing = " The record is not in this leader's log: from here on it is gone." if bad else ""
    return Step(
        at_ns=change.at_ns,
        lane=CONTROLLERS,
        to=broker_lane(state.leader),
        label=f"leader {state.leader} e{state.leader_epoch}, {rest}",
        text=f"The controllers elect broker {state.leader} (before: {before.leader if before.leader >= 0 else 'nobody'}): leader epoch {state.leader_epoch}, {rest}.{missing}",
        tone="bad" if bad and severity == "violation" else "",
        is_key=bad,
    )


def _stopped(finding: Finding, end_ns: int) -> Step:
    event = finding.detail.event
    stops = "" if event is None else f"The simulation stops here, at event {event}: "
    return Step(
        at_ns=end_ns,
        lane=CONTROLLERS,
        label=f"✕ {finding.kind}",
        text=f"{stops}{finding.explanation}.",
        tone="bad" if finding.severity == "violation" else "",
        is_key=True,
    )


def _near(steps: list[Step], at_ns: int) -> tuple[list[Step], int]:
    """Keep the steps nearest to a moment; return them in order and how many were left out."""
    kept = sorted(steps, key=lambda step: (not step.tone, abs(step.at_ns - at_ns)))[:MOST_CHANGES]
    return sorted(kept, key=lambda step: step.at_ns), len(steps) - len(kept)


def _found(recording: Recording, partition: str | None, finding: Finding, changes: Sequence[Change], end: int) -> Step:
    """Return the step that says what was found, where it was seen: a loss in the final read, not when the record was acknowledged."""
    at_ns = finding.acknowledged_ns if finding.acknowledged_ns is not None else end
    if finding.kind in LOSSES and partition is not None:
        at_ns = max(at_ns, _final_read_ns(recording, partition))
    was_at = finding.detail.was_at
    moved = f" (from {was_at} to {finding.log_offset})" if was_at is not None else ""
    brokers = {replica for change in changes for replica in change.state.replicas}
    lane = _node_lane(finding.node, brokers) if finding.node is not None else CLIENT
    led = f"; {_led(state_at(changes, at_ns))}" if changes else ""
    return Step(
        at_ns=at_ns,
        lane=lane,
        label=f"✕ {finding.kind.replace('_', ' ')}{moved}",
        is_key=True,
        text=f"{finding.place}: {finding.explanation}{moved}{led}. {finding.detail.detail or ''}".strip(),
        tone="bad" if finding.severity == "violation" else "",
    )
