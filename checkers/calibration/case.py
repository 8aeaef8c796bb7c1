"""One recording as calibration sees it: rows, final logs, committed history, and where nothing may be lost.

`must_survive` and its kin are an independent and conservative reading of docs/verdicts.md. They name only what no rule could
excuse, whoever was a holder; of most records in a run with faults they say nothing.
"""

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import Final

import msgspec

from tribunal.results.manifest import PRODUCER_EXPIRATION, Setting, integer
from tribunal.results.metadata import NO_LEADER, RECOVERING, PartitionChangeRecord, PartitionRecord, State, decoded
from tribunal.results.recording import NO_PARTITION
from tribunal.results.rows import (
    TABLE_OF,
    Admin,
    AnyRow,
    Commit,
    Fault,
    LogRecord,
    Metadata,
    Poll,
    Read,
    Send,
    Transaction,
    Watermark,
    typed,
)
from tribunal.results.store import Recording, partition_order

LAG_NS: Final = 1_000_000_000  # observers of the metadata log see a commit a little late
GROUP_LOG: Final = "__consumer_offsets"
TRANSACTION_LOG: Final = "__transaction_state"
POWER: Final = frozenset({"power-loss", "restored-disk", "wipe"})  # a disk loses records while its node is down
GONE_BY_ORDER: Final = ("delete_records", "delete_topic", "retention", "cleanup.policy")
NEVER: Final = 1 << 62


class Place(msgspec.Struct, frozen=True, order=True):
    """A partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A committed change of a partition. `elected`: somebody was given a new leader epoch."""

    metadata_offset: int
    at_ns: int
    before: State
    after: State
    elected: bool
    clean: bool


class FinalLog(msgspec.Struct, frozen=True, kw_only=True):
    """What complete final reads returned: offset to its row, and who they were by isolation."""

    records: dict[int, Read]
    readers: dict[int, str]
    end: int


class Case:
    """A recording to put anomalies into."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.settings: dict[str, Setting] = dict(recording.settings or {})
        self.is_zookeeper = recording.manifest is not None and recording.manifest.mode == "zookeeper"
        self.has_elr = not self.is_zookeeper and self._is_on("eligible.leader.replicas.enable", otherwise=True)
        self.allows_unclean = self._is_on("unclean.leader.election.enable", otherwise=False)
        self.allows_unclean |= self._is_on("unclean.recovery.manager.enabled", otherwise=False)
        self._expiration_ns = integer(self.settings, *PRODUCER_EXPIRATION) * 1_000_000
        self._rows: dict[tuple[type, str], list[object]] = {}
        self._logs: dict[Place, FinalLog] = {}
        self._histories: dict[Place, list[Change]] = {}
        self._kept: dict[tuple[Place, int], list[Send]] = {}

    def _is_on(self, name: str, *, otherwise: bool) -> bool:
        return str(self.settings.get(name, otherwise)).lower() == "true"

    def of_run(self, kind: type[AnyRow]) -> list[AnyRow]:
        """Return the rows of a table that has no partitions."""
        return self._typed(kind, NO_PARTITION)

    def rows(self, kind: type[AnyRow], place: Place) -> list[AnyRow]:
        """Return a partition's rows of a table."""
        return self._typed(kind, str(place))

    def _typed(self, kind: type[AnyRow], part: str) -> list[AnyRow]:
        if (kind, part) not in self._rows:
            self._rows[kind, part] = list(typed(self.recording.table(TABLE_OF[kind], part), kind))
        return self._rows[kind, part]  # type: ignore[return-value]

    @cached_property
    def places(self) -> list[Place]:
        """The partitions that clients wrote to, in order."""
        names = [partition_order(name) for name in self.recording.partitions("sends")]
        return [Place(topic, partition) for topic, partition in names if not topic.startswith("__")]

    @cached_property
    def metadata(self) -> list[Metadata]:
        """The committed metadata in order."""
        return sorted(self.of_run(Metadata), key=lambda row: row.metadata_offset)

    @cached_property
    def end_ns(self) -> int:
        """The last moment that any client or node recorded."""
        times = [row.at_ns or 0 for row in self.metadata]
        for place in self.places:
            times += [poll.complete_ns or poll.invoke_ns for poll in self.rows(Poll, place)]
            times += [seen.at_ns for seen in self.rows(Watermark, place)]
        return max(times, default=0)

    @cached_property
    def committed_values(self) -> dict[int, Transaction]:
        """What committed transactions sent."""
        return {
            step.value: transaction
            for transaction in self.of_run(Transaction)
            if transaction.outcome == "committed"
            for step in transaction.operations or ()
            if step.kind in ("send", "append") and step.value is not None
        }

    # The final log

    def log(self, place: Place) -> FinalLog:
        """Return the final log as complete final reads have it; empty without one."""
        if place not in self._logs:
            readers = dict(_complete_readers(self.rows(Poll, place)))
            records: dict[int, Read] = {}
            for read in self.rows(Read, place):
                if read.phase == "final" and read.process in readers:
                    records.setdefault(read.log_offset, read)
            self._logs[place] = FinalLog(
                records=dict(sorted(records.items())), readers=readers, end=max(records, default=-1) + 1
            )
        return self._logs[place]

    def replicas_logs(self, place: Place) -> dict[int, dict[int, LogRecord]]:
        """Return each node's final log by offset."""
        logs: dict[int, dict[int, LogRecord]] = {}
        for record in self.rows(LogRecord, place):
            logs.setdefault(record.node, {})[record.log_offset] = record
        return logs

    def final_read_ns(self, place: Place) -> int:
        """Return when final reads began: the first proof of a final log."""
        return min((poll.invoke_ns for poll in self.rows(Poll, place) if poll.phase == "final"), default=self.end_ns)

    # Committed history

    def history(self, place: Place) -> list[Change]:
        """Return the partition's committed changes in order."""
        if place not in self._histories:
            self._histories[place] = list(self._changes(place))
        return self._histories[place]

    def _changes(self, place: Place) -> Iterator[Change]:
        state: State | None = None
        at_ns = 0
        for row in self.metadata:
            at_ns = max(at_ns, row.at_ns or 0)
            if (row.topic, row.partition) != (place.topic, place.partition):
                continue
            match decoded(row.record_type, row.body):
                case PartitionRecord() as created:
                    after = State.created_by(created)
                case PartitionChangeRecord() as change if state is not None:
                    after = state.changed_by(change)
                case _:
                    continue
            before = after if state is None else state
            elected = after.leader_epoch != before.leader_epoch and after.leader != NO_LEADER
            known = after.leader in (*before.isr, *before.elr)
            clean = known and not (after.recovery == RECOVERING != before.recovery)
            yield Change(
                metadata_offset=row.metadata_offset,
                at_ns=at_ns,
                before=before,
                after=after,
                elected=elected,
                clean=clean,
            )
            state = after

    def state(self, place: Place, at_ns: int = NEVER) -> State | None:
        """Return the committed state at a moment, or at the end."""
        known = [change.after for change in self.history(place) if change.at_ns <= at_ns]
        return known[-1] if known else None

    def partitions_of(self, topic: str) -> list[Place]:
        """Return the topic's partitions that the metadata names."""
        found = {(row.topic, row.partition) for row in self.metadata if row.topic == topic}
        return sorted(Place(topic, partition) for _, partition in found if partition is not None)

    def brokers(self) -> list[int]:
        """Return all brokers that were ever replicas, in order."""
        return sorted(
            {node for place in self.places for change in self.history(place) for node in change.after.replicas}
        )

    # What no rule excuses

    @cached_property
    def is_timely(self) -> bool:
        """Whether times can be believed: no clock was set."""
        described = (f"{fault.kind} {fault.proof or ''}" for fault in self.of_run(Fault))
        return not any("clock" in text for text in described)

    def is_untouched(self, topic: str) -> bool:
        """Whether no order was given that may take records of the topic away."""
        described = [f"{row.api} {row.setting or ''}".lower() for row in self.of_run(Admin)]
        described += [f"{name}={value}".lower() for name, value in self.settings.items()]
        described += [
            row.body.lower() for row in self.metadata if row.record_type == "ConfigRecord" and _is_about(row, topic)
        ]
        return not any(word in text for text in described for word in GONE_BY_ORDER)

    def holds(self, place: Place, since_ns: int, until_ns: int = NEVER) -> bool:
        """Whether the partition kept all that had the guarantee of acks=all from one moment to another, by every rule.

        With ELR (SPEC 2.6) a clean election loses nothing however many disks died. Without it no election and no loss of a
        disk may lie inside.
        """
        first, last = since_ns - LAG_NS, until_ns + LAG_NS
        history = self.history(place)
        if not history or not self.is_timely or not self.is_untouched(place.topic):
            return False
        inside = [change for change in history[1:] if first <= change.at_ns <= last]
        if any(change.before.replicas != change.after.replicas for change in inside):
            return False
        elections = [change for change in inside if change.elected]
        if any(not (self.has_elr and change.clean) for change in elections):
            return False
        return all(
            self.has_elr and fault.kind in POWER
            for fault in self.of_run(Fault)
            if _takes_from(fault, place)
            if (fault.injected_ns or 0) <= last and first <= (NEVER if fault.healed_ns is None else fault.healed_ns)
        )

    def deposed_leaders_know(self, place: Place, at_ns: int) -> bool:
        """Whether every deposed leader was in the ISR of a later one for long enough before that moment, or there was none."""
        history = [change for change in self.history(place) if change.at_ns <= at_ns]
        for position, change in enumerate(history):
            deposed = change.before.leader
            if deposed in (NO_LEADER, change.after.leader):
                continue
            spans = pairwise([*history[position:], None])
            times = [
                (one.at_ns, at_ns if two is None else two.at_ns, one.after) for one, two in spans if one is not None
            ]
            if not any(
                deposed in state.isr and state.leader != NO_LEADER and end - max(begin, change.at_ns) > LAG_NS
                for begin, end, state in times
            ):
                return False
        return True

    def elections(self, place: Place) -> list[Change]:
        """Return the partition's elections after its first leader."""
        return [change for change in self.history(place)[1:] if change.elected]

    def elections_ns(self, place: Place) -> int:
        """Return when the partition's last leader was elected."""
        return max((change.at_ns + 2 * LAG_NS for change in self.elections(place)), default=0)

    def must_survive(self, send: Send) -> bool:
        """Whether an acknowledged record that stands in the final log had to survive, whatever rule one takes."""
        place = Place(send.topic, send.partition)
        if send.outcome != "ok" or send.complete_ns is None or send.log_offset is None:
            return False
        if send.txn_id is not None and send.value not in self.committed_values:
            return False
        standing = self.log(place).records.get(send.log_offset)
        if standing is None or standing.value != send.value or not self.holds(place, send.invoke_ns):
            return False
        if send.acks == -1:
            return all(
                one.clean or one.at_ns > send.invoke_ns for one in self.elections(place)
            ) or self.deposed_leaders_know(place, send.invoke_ns - LAG_NS)
        # acks=1 binds its leader only: nobody else may have answered, and no election may lie behind it.
        quiet = all(one.at_ns < send.invoke_ns - LAG_NS for one in self.elections(place))
        return quiet and self.deposed_leaders_know(place, send.invoke_ns - LAG_NS)

    def kept(self, place: Place, acks: int) -> list[Send]:
        """Return the partition's acknowledged records that had to survive."""
        if (place, acks) not in self._kept:
            own = (send for send in self.rows(Send, place) if send.acks == acks)
            self._kept[place, acks] = [send for send in own if self.must_survive(send)]
        return self._kept[place, acks]

    def tail_reads(self, place: Place) -> dict[int, list[Read]]:
        """Return what tailing consumers received, by value."""
        found: dict[int, list[Read]] = {}
        for read in self.rows(Read, place):
            if read.phase == "tail" and read.value is not None:
                found.setdefault(read.value, []).append(read)
        return found

    def shown_end(self, place: Place, send: Send) -> bool:
        """Whether a watermark of the record's last leader epoch passed it behind its acknowledgement."""
        state = self.state(place)
        return state is not None and any(
            seen.source == "node" and seen.leader_epoch == state.leader_epoch and seen.observer == f"node-{state.leader}"
            and (seen.high_watermark or 0) > (send.log_offset or 0) and seen.at_ns >= (send.complete_ns or 0)
            for seen in self.rows(Watermark, place)
        )  # fmt: skip

    def home_of(self, topic: str, name: str) -> Place | None:
        """Return the partition of an internal topic that a group's or a transactional id's coordinator keeps."""
        homes = self.partitions_of(topic)
        return homes[_hashed(name) % len(homes)] if homes else None

    def is_quiet_until(self, at_ns: int) -> bool:
        """Whether until then nothing was permitted to be lost anywhere: no disk lost anything, every election was clean."""
        faults = [fault for fault in self.of_run(Fault) if fault.losses]
        changes = [change for place in self._all_places() for change in self.elections(place)]
        return all((fault.injected_ns or 0) > at_ns + LAG_NS for fault in faults) and all(
            change.at_ns > at_ns + LAG_NS or (self.has_elr and change.clean) for change in changes
        )

    @property
    def remembers_producers(self) -> bool:
        """Whether no producer was ever silent for long enough to be forgotten (R8)."""
        return self.end_ns < self._expiration_ns

    def _all_places(self) -> list[Place]:
        found = {(row.topic, row.partition) for row in self.metadata if row.record_type == "PartitionRecord"}
        return sorted(Place(topic, number) for topic, number in found if topic is not None and number is not None)

    def commits(self, place: Place) -> list[Commit]:
        """Return the groups' commits and fetches in order of time."""
        return sorted(self.rows(Commit, place), key=lambda commit: commit.invoke_ns)


def _takes_from(fault: Fault, place: Place) -> bool:
    return any(
        lost.topic is None or (lost.topic, lost.partition) == (place.topic, place.partition)
        for lost in fault.losses or ()
    )


def _is_about(config: Metadata, topic: str) -> bool:
    """Whether a setting is the topic's own; internal topics are compacted, which takes nothing that counts."""
    body = msgspec.json.decode(config.body)
    return body.get("resource_name") == topic and not topic.startswith("__")


def _complete_readers(polls: list[Poll]) -> Iterator[tuple[int, str]]:
    """Yield who read from the log start to the end (docs/recording-format.md, final read)."""
    by_process: dict[int, list[Poll]] = {}
    for poll in polls:
        if poll.phase == "final":
            by_process.setdefault(poll.process, []).append(poll)
    for process, own in sorted(by_process.items()):
        own.sort(key=lambda poll: poll.poll_index)
        first, last = own[0], own[-1]
        begins = first.position is not None and first.position <= (first.log_start_offset or 0)
        ends = last.outcome == "ok" and last.record_count == 0 and last.high_watermark is not None
        if begins and ends and (last.position or 0) >= (last.high_watermark or 0):
            yield process, last.isolation


def _hashed(text: str) -> int:
    """Return the absolute value of Java's `hashCode` of a string, by which coordinators are chosen (Kafka's `Utils.abs`: 0 for the least)."""
    units = text.encode("utf-16-be")
    hashed = 0
    for index in range(0, len(units), 2):
        hashed = (31 * hashed + int.from_bytes(units[index : index + 2])) & 0xFFFFFFFF
    return min(hashed, (1 << 32) - hashed) & 0x7FFFFFFF
