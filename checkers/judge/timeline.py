"""A partition's committed history as facts for `guarantees`: built from metadata, registrations and faults.

The order is the metadata log's. Client events are placed into it by the harness's clock, and by leader
epochs where those are known, because the observer of the metadata log sees a commit a little late.
A record may have been lost at any election between the last proof of its presence and the leader epoch
that stands in its place; it was permitted to be lost if one of those elections permits it.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, pairwise
from typing import Final, NamedTuple, assert_never

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace
from numpy.typing import NDArray

from tribunal.checkers.guarantees import (
    Acknowledged,
    BeganAnew,
    Copies,
    CutLive,
    Elected,
    Exposed,
    Fact,
    How,
    JoinedIsr,
    LeadershipChanged,
    Ledger,
    LogStartMoved,
    Promise,
    ProvenLoss,
    Settings,
    SettingsChanged,
    ShutDownUncleanly,
    WasRead,
)
from tribunal.checkers.judge.incarnations import DOWN, KILLED, NEVER, Calm, Incarnations
from tribunal.checkers.judge.led import Leaders, Led
from tribunal.checkers.judge.orders import (
    APPLIED_NS,
    OBSERVED_NS,
    ClockSet,
    Order,
    TopicOrders,
    orders,
    settings_of_topic,
)
from tribunal.checkers.judge.removals import Directories, Removals, said
from tribunal.checkers.judge.skews import Skew, skews
from tribunal.results.admin_apis import AdminApi
from tribunal.results.manifest import MEMBERS_UNCHECKED, Setting, integer
from tribunal.results.metadata import (
    CONFIG_OF_BROKER,
    CONFIG_OF_TOPIC,
    EMPTIED,
    NO_LEADER,
    RECOVERING,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    State,
    decoded,
)
from tribunal.results.rows import Admin, Fault, NodeEvent, typed
from tribunal.results.rows import Loss as LostRecords
from tribunal.results.silences import deletion_ns

Integers = NDArray[np.int64]
OBSERVATION_LAG_NS: Final = 500_000_000
UNKNOWN_EPOCH: Final = -1
NOTHING: Final = PartitionChangeRecord()
AT_ONCE_NS: Final = 1_000_000  # between records that are made of one look
MOST_REPLICAS: Final = 1 << 15
LAG_MS: Final = ("replica.lag.time.max.ms", 30_000)
CREATED: Final = "TopicRecord"
REMOVED: Final = "RemoveTopicRecord"
GROUP_LOG: Final = "__consumer_offsets"
TRANSACTION_LOG: Final = "__transaction_state"
OF_ALL: Final = frozenset(
    kind.__name__ for kind in (RegisterBrokerRecord, BrokerRegistrationChangeRecord, ConfigRecord, ClearElrRecord)
)


# Kafka's names and what nodes were started with, as the manifest has them.
NodeSettings = Mapping[str, Setting]


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """A broker's registration as the metadata log knows it. `clean` None: nobody recorded its previous epoch."""

    metadata_offset: int
    at_ns: int
    node: int
    broker_epoch: int
    clean: bool | None


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """A fault whose proof says that records from an offset on left a node's disk."""

    node: int
    from_offset: int
    end_offset: int | None
    unseen_end_offset: int | None
    injected_ns: int
    alive: bool


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """A record of the metadata log, and when it was observed to be committed.

    written_ns:  when its controller wrote it, by the time that it is stamped with; never more than the lag of observation before.
    """

    record: MetadataRecord
    metadata_offset: int
    at_ns: int
    written_ns: int


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A moment of the partition's history: what happened and the state after it.

    from_offset, end_offset:  the facts hold only for records within these offsets (a proven loss); no end: for all from there on.
    unseen_end_offset:  of a proven loss: records up to here may stay on that disk, damaged where no checksum sees it.
    lost_ns:      of a disk's loss when that was, by the clock that says when something was found to be absent.
    changed:      the partition's own state changed here.
    written_ns:   since when a leader may have acted on it: it learns of what is committed before those who observe it; None: since then.
    made_anew:    how often the topic had been deleted and made anew.
    removed:      the topic is deleted, and not made anew yet.
    fenced:       brokers that were registered and fenced.
    """

    at_ns: int
    facts: tuple[Fact, ...]
    state: State
    settings: Settings
    from_offset: int = 0
    end_offset: int | None = None
    unseen_end_offset: int | None = None
    lost_ns: int | None = None
    changed: bool = False
    written_ns: int | None = None
    made_anew: int = 0
    removed: bool = False
    fenced: tuple[int, ...] = ()

    def concerns(self, record: "Record") -> bool:
        """Whether the facts hold for a record; where its offset is unknown (-1), only what holds from the first record on.

        No disk lost it when it had been found to be absent: what the harness did itself is not observed a little late.
        """
        if self.lost_ns is not None and record.absent_ns is not None and self.lost_ns > record.absent_ns:
            return False
        return self.from_offset <= max(record.log_offset, 0) and (
            self.end_offset is None or record.least_offset < self.end_offset
        )


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one record that is missing, or of an offset that was exposed.

    log_offset:      -1 unknown: an acknowledgement of a repeated batch does not say it. The greatest it may have, where that is all we know.
    first_offset:    the least it may have; None: it is `log_offset`.
    acks:            as acknowledged (-1, 1), 0 when sent without, None when nobody acknowledged it.
    invoke_ns:       its acknowledgement lies at or after this.
    complete_ns:     when that acknowledgement had arrived, None unknown.
    leader_epoch:    of the log it was acknowledged in, None unknown.
    exposed_ns, exposed_epoch:  first observation of a high watermark beyond it.
    exposed_later:   the first observation in each other leader epoch, by time.
    since_ns:        it was there before `invoke_ns`, from here on at the latest: what disks lost meanwhile counts.
    read_ns:         when a consumer first received it; seen_ns: when one last did.
    absent_ns:       first proof that it is not there; what was observed later excuses nothing. None: at the end.
    answered_by:     who acknowledged it, None unknown.
    stated:          the last leader epoch that each node had stated before `invoke_ns`, as a leader or as a follower.
    uncommitted_ns:  the last moment at which the leader of its leader epoch was asked, and answered in it with a high watermark at or before its offset.
    shown_epoch:     the last leader epoch whose leader showed a high watermark beyond its offset, while nothing newer stood there.
    seen_epoch:      the last leader epoch whose leader handed it out.
    replaced_epoch:  leader epoch of what stands at or behind its offset in the final log; None: nothing does.
    below_log_start: it is gone by order: the log start moved past it, or its key was written again in a compacted topic.
    taken_ns:        since when the order was in force that took it; None where that is not known.
    """

    log_offset: int
    first_offset: int | None = None
    acks: int | None
    invoke_ns: int
    complete_ns: int | None = None
    leader_epoch: int | None = None
    exposed_ns: int | None = None
    exposed_epoch: int | None = None
    exposed_later: tuple[tuple[int, int | None], ...] = ()
    since_ns: int | None = None
    read_ns: int | None = None
    seen_ns: int | None = None
    absent_ns: int | None = None
    answered_by: int | None = None
    stated: Mapping[int, int] = {}
    uncommitted_ns: int | None = None
    shown_epoch: int | None = None
    seen_epoch: int | None = None
    replaced_epoch: int | None = None
    below_log_start: bool = False
    taken_ns: int | None = None

    @property
    def least_offset(self) -> int:
        """The least offset that it may have."""
        return self.log_offset if self.first_offset is None else self.first_offset


class Judgement(msgspec.Struct, frozen=True):
    """A promise and the moment it was judged at: the election that permits the loss, or the last that could not.

    topic, partition:  where that election was: of an excuse that is not the anomaly's own partition's.
    holders:           who was known to hold the record then; lost: whose disks provably had not got it any more.
    is_known:          False: nobody recorded the partition's history, so that nothing is excused and nothing can be accused.
    by:                the rule that permits the loss from which something else follows, where the promise names what follows (R8 to R12).
    was_exposed, was_read:  what gave the record the guarantee of acks=all before that moment, whatever its acks: a high watermark had passed it, a
                       consumer had received it.
    exposed_ns:        when the first of these was observed; None: neither was, before that moment.
    """

    promise: Promise
    election: Elected | None
    leader_epoch: int
    at_ns: int | None
    isr: tuple[int, ...]
    topic: str | None = None
    partition: int | None = None
    holders: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    by: str | None = None
    is_known: bool = True
    was_exposed: bool = False
    was_read: bool = False
    exposed_ns: int | None = None


class Timeline:
    """One partition's history; answers what was promised to its records."""

    def __init__(
        self,
        entries: list[Entry],
        settings: Settings,
        place: tuple[str, int] | None = None,
        incarnations: Incarnations | None = None,
        calm: Calm | None = None,
        lag_ns: int | None = None,
    ) -> None:
        """Take the history; `lag_ns`: how long a leader leaves who fetches nothing in its ISR, None: nobody knows."""
        self.entries = entries
        self.settings = settings
        self.place = place
        self._incarnations = incarnations if incarnations is not None else Incarnations()
        self._calm = calm if calm is not None else Calm()
        self._lag_ns = lag_ns
        self._times = [entry.at_ns for entry in entries]
        # A topic that is deleted and made anew begins with leader epoch 0 again: how often it was is the upper half.
        self._epochs = [_whole_epoch(entry) for entry in entries]
        self._losses_ns = sorted(entry.lost_ns for entry in entries if entry.lost_ns is not None)
        self._loss_offsets = sorted({entry.from_offset for entry in entries if entry.from_offset})
        self._loss_ends = sorted({entry.end_offset for entry in entries if entry.end_offset is not None})
        self._memory: dict[tuple[object, ...], Judgement] = {}
        self._permitted: dict[int, _Permitted] = {}

    def restarted_between(self, node: int, since_ns: int, until_ns: int) -> bool:
        """Whether another life of the node began in between, as far as that is recorded."""
        return self._incarnations.ended_ns(node, since_ns) != self._incarnations.ended_ns(node, until_ns)

    def answered_by(self, node: int, asked_ns: int, at_ns: int) -> int:
        """Return until when a node may have given an answer that was observed at a moment: the process that was asked may have ended before."""
        ended_ns = self._incarnations.ended_ns(node, asked_ns)
        return min(at_ns, ended_ns) if ended_ns >= asked_ns else at_ns

    @property
    def can_lead(self) -> tuple[int, ...]:
        """Replicas that may lead in the end: the final ISR and ELR."""
        return self.entries[-1].state.members if self.entries else ()

    @cached_property
    def leaders(self) -> Leaders:
        """Every leader epoch in which somebody led, as committed, of each topic that the name had."""
        led: dict[tuple[int, int], int] = {}
        ends: list[int] = []
        anew_ns: list[int] = []
        for before, entry in pairwise((*self.entries[:1], *self.entries)):
            # One whose leader epochs go on is no other topic: it was only written down again.
            goes_on = not before.removed and entry.state.leader_epoch > before.state.leader_epoch
            if entry.made_anew != before.made_anew and not goes_on:
                ends.append(self._removed_ns(before, entry))
                anew_ns.append(entry.at_ns)
            if entry.state.leader != NO_LEADER:
                led[len(ends), entry.state.leader_epoch] = entry.state.leader
        return Leaders(
            tuple(
                Led(topic, epoch, node, self._led_until_ns(node, ends[topic]) if topic < len(ends) else NEVER)
                for (topic, epoch), node in sorted(led.items())
            ),
            tuple(anew_ns),
        )

    def _removed_ns(self, last: Entry, anew: Entry) -> int:
        """Return when the deletion of a topic was observed at the latest."""
        if not last.removed:
            return anew.at_ns
        return next(entry.at_ns for entry in self.entries if entry.removed and entry.made_anew == last.made_anew)

    def _led_until_ns(self, node: int, removed_ns: int) -> int:
        """Return until when a process may lead a topic on that was deleted: it ended, or no fault can have kept that from it any more."""
        known_ns = self._calm.lasted_ns(node, removed_ns - APPLIED_NS, APPLIED_NS + OBSERVATION_LAG_NS)
        ended_ns = self._incarnations.ended_ns(node, removed_ns) + OBSERVATION_LAG_NS
        return min(known_ns, ended_ns, NEVER)

    def leader_epoch_at(self, at_ns: int) -> int | None:
        """Return the leader epoch committed at that time, as far as it was observed."""
        position = bisect_right(self._times, at_ns)
        return self.entries[position - 1].state.leader_epoch if position else None

    def leader_epochs_at(self, at_ns: Integers) -> Integers:
        """Return the leader epochs committed at some times, as far as they were observed; UNKNOWN_EPOCH where none was."""
        epochs = np.array([UNKNOWN_EPOCH, *(entry.state.leader_epoch for entry in self.entries)], np.int64)
        return epochs[np.searchsorted(self._times, at_ns, side="right")]

    def turns(self, at_ns: Integers) -> Integers:
        """Return a number for each of some moments: nothing was committed, as far as anybody may have acted on it, between two that have the same one."""
        return np.searchsorted(self._moments, at_ns, side="right")

    @cached_property
    def _moments(self) -> Integers:
        written_ns = [entry.written_ns for entry in self.entries if entry.written_ns is not None]
        return np.unique(np.array([*self._times, *written_ns], np.int64))

    def stretch(self, offset: int) -> tuple[int, int]:
        """Return what is the same of two offsets between which no loss on a disk begins or ends."""
        return bisect_right(self._loss_offsets, offset), bisect_right(self._loss_ends, offset)

    def newest_epoch(self, complete_ns: int | None) -> int | None:
        """Return the newest leader epoch in which something may have been written that had been answered by then; None: nobody knows."""
        return None if complete_ns is None else self.leader_epoch_at(complete_ns + OBSERVATION_LAG_NS)

    def offsets_of_interest(self, first: int, end: int) -> list[int]:
        """Offsets in [first, end) whose promises may differ: the first, and where a proven loss begins."""
        return [first, *(offset for offset in self._loss_offsets if first < offset < end)]

    def aborting(self, since_ns: int, absent_ns: int | None, leader_epoch: int | None = None) -> Judgement | None:
        """Return the first election between two moments whose leader aborts what its log leaves open: an unclean one that was allowed.

        leader_epoch:  of what may be open; who was elected in it or before found nothing of it in its log. None: unknown.
        """
        if not self.entries:
            return None
        written = self._whole(leader_epoch, absent_ns)
        for place in range(self._position(since_ns, None), self._until(absent_ns)):
            entry = self.entries[place]
            if written is not None and self._epochs[place] <= written:
                continue
            for fact in entry.facts:
                if isinstance(fact, Elected) and self._may_recover(entry, fact, since_ns):
                    promise = Promise(rule="R4", violations=())
                    return self._placed(
                        Judgement(promise, fact, entry.state.leader_epoch, entry.at_ns, entry.state.isr)
                    )
        return None

    def recovered_ns(self, at_ns: int) -> int | None:
        """Return when a leader had recovered here for the last time before a moment (KIP-704); None: nobody has."""
        for place in range(bisect_right(self._times, at_ns) - 1, 0, -1):
            before, entry = self.entries[place - 1], self.entries[place]
            is_its_own = _whole_epoch(before) == _whole_epoch(entry)
            if is_its_own and before.state.recovery == RECOVERING and entry.state.recovery != RECOVERING:
                return entry.at_ns
        return None

    def recovers(self, judgement: Judgement) -> bool:
        """Whether the leader of that election had to recover (KIP-704), as committed: releases before it elect uncleanly without."""
        if judgement.at_ns is None:
            return False
        then = slice(bisect_left(self._times, judgement.at_ns), bisect_right(self._times, judgement.at_ns))
        return any(
            entry.state.recovery == RECOVERING and entry.state.leader_epoch == judgement.leader_epoch
            for entry in self.entries[then]
        )

    def _may_recover(self, entry: Entry, election: Elected, since_ns: int) -> bool:
        """Whether a leader was elected that has to recover (KIP-704), and was allowed to be.

        The last known leader is, and who the recovery manager chose, where so many holders of what was written at that moment had shut down
        uncleanly that no ELR could have kept them (KIP-966).
        """
        if election.how is How.CLEAN:
            return False
        if entry.settings.allows_unclean(election):
            return True
        if election.how is How.UNCLEAN or not (entry.settings.elr and election.empty):
            return False
        record = Record(log_offset=NEVER, acks=-1, invoke_ns=since_ns, absent_ns=entry.at_ns)
        return not self._judged_from(self._position(since_ns, None), record).promise.violations

    def permitting(
        self,
        since_ns: int,
        absent_ns: int | None,
        *,
        done_ns: int | None = None,
        first_offset: int = 0,
        leader_epoch: int | None = None,
    ) -> Judgement | None:
        """Return what permits the loss of something that was written as with acks=all, nobody knows when, between two moments.

        done_ns:       when it had been written at the latest; None: before it was found to be absent.
        first_offset:  the least offset that it may have.
        leader_epoch:  it was written in this one or later.
        """
        if not self.entries:
            return None
        whole, until = self._whole(leader_epoch, absent_ns), self._until(absent_ns)
        begun = bisect_left(self._epochs, whole) + 1 if whole is not None and whole in self._epochs else 0
        begin = max(begun, self._position(since_ns, None))
        last = until if done_ns is None else max(begin, min(until, self._until(done_ns)))
        until = max(begin, until)
        permitted = self._permitted_from(bisect_right(self._loss_ends, first_offset), first_offset)
        # A disk's loss is not observed late: none of those that come behind the moment itself took anything.
        strict = until if absent_ns is None else max(begin, bisect_right(self._times, absent_ns))
        late = [place for place in range(strict, until) if (self.entries[place].lost_ns or 0) > (absent_ns or 0)]
        is_lost = (permitted.places[begin : last + 1] < until) & ~np.isin(permitted.places[begin : last + 1], late)
        if until == len(self.entries):
            is_lost |= permitted.is_undecided[begin : last + 1]
        starts = np.flatnonzero(is_lost)
        return self._placed(permitted.judgements[begin + int(starts[0])]) if starts.size else None

    def _permitted_from(self, reach: int, first_offset: int) -> "_Permitted":
        """Return what permits the loss of what was acknowledged with acks=all at each place, whatever its offset is from this one on.

        Of all places at once: from where two of them have come to the same on they say the same.
        """
        if reach in self._permitted:
            return self._permitted[reach]
        record = Record(log_offset=NEVER, first_offset=first_offset, acks=-1, invoke_ns=0)
        count = len(self.entries)
        places, is_undecided = np.full(count + 1, NEVER, np.int64), np.zeros(count + 1, bool)
        judgements: dict[int, Judgement] = {}
        same: dict[Hashable, tuple[Ledger, list[int]]] = {}  # by what is known, of which places
        for position in range(1, count + 1):
            before = self.entries[position - 1]
            ledger = Ledger(before.settings)
            ledger.add(Acknowledged(-1, before.state.isr, before.state.leader, before.state.isr))
            same.setdefault(ledger.state, (ledger, []))[1].append(position)
            entry = self.entries[position] if position < count else None
            if entry is None or not entry.facts or not entry.concerns(record):
                continue
            following: dict[Hashable, tuple[Ledger, list[int]]] = {}
            for ledger, starts in same.values():
                for fact in entry.facts:
                    ledger.add(fact)
                judgement = _judgement(ledger, entry) if _may_lose(entry) else None
                if judgement is not None and not judgement.promise.must_survive:
                    places[starts] = position
                    judgements |= dict.fromkeys(starts, judgement)
                    continue
                _, others = following.get(ledger.state, (ledger, []))
                few, many = sorted((starts, others), key=len)
                many.extend(few)
                following[ledger.state] = (ledger, many)
            same = following
        for ledger, starts in same.values():
            undecided = self._undecided(ledger, self.entries[-1], count)
            if undecided is not None:
                is_undecided[starts] = True
                judgements |= dict.fromkeys(starts, undecided)
        self._permitted[reach] = _Permitted(places, is_undecided, judgements)
        return self._permitted[reach]

    def answered_since(self, at_ns: int, answered_by: int | None = None) -> int:
        """Return the earliest moment whose log an answer may have been of: a leader that was deposed and does not know it answers on.

        answered_by:  whose answer it was; None: nobody knows.
        """
        record = Record(log_offset=NEVER, acks=None, invoke_ns=at_ns, answered_by=answered_by)
        places = self._before_deposed(self._position(at_ns, None), record) if self.entries else ()
        return min((self.entries[place].at_ns - 1 for place in places), default=at_ns)

    def deposed(self, node: int, at_ns: int, rule: str) -> "Deposed | None":
        """Return, as what excuses by a rule, the election that a node which answered at a moment may not have known of: it led before.

        One that was observed a little later may have been before the answer.
        """
        if not self.entries:
            return None
        record = Record(log_offset=NEVER, acks=None, invoke_ns=at_ns, answered_by=node)
        position = self._position(at_ns, None)
        first, end = (bisect_left(self._depositions, place) for place in (position, self._until(at_ns)))
        unobserved = (
            place
            for place in self._depositions[first:end]
            if self._leader_at(place) == node and _written_ns(self.entries[place]) <= at_ns
        )
        place = next(chain(self._before_deposed(position, record), unobserved), None)
        if place is None:
            return None
        entry = self.entries[place]
        return Deposed(self._placed(excused(entry, rule)), _written_ns(entry))

    def may_bring_back(self, since_ns: int | None) -> bool:
        """Whether anybody was elected after a moment (None: the end) who may have had in its log what had been lost: not from ISR or ELR."""
        first = len(self.entries) if since_ns is None else bisect_left(self._times, since_ns)
        facts = (fact for entry in self.entries[first:] for fact in entry.facts)
        return any(isinstance(fact, Elected) and fact.how is not How.CLEAN for fact in facts)

    def absence(self, absent_ns: int) -> tuple[int, int]:
        """Return what it matters when something that was written at a known time was absent: of two moments with the same the same is judged."""
        return self._until(absent_ns), bisect_right(self._losses_ns, absent_ns)

    def _until(self, absent_ns: int | None) -> int:
        """Return how many entries may have happened before something was found to be absent."""
        return len(self.entries) if absent_ns is None else bisect_right(self._times, absent_ns + OBSERVATION_LAG_NS)

    def _placed(self, judgement: Judgement) -> Judgement:
        return judgement if self.place is None else replace(judgement, topic=self.place[0], partition=self.place[1])

    def judge(self, record: Record) -> Judgement:
        """Say whether the record had to survive: permitted by any election that may have lost it is permitted."""
        if not self.entries:
            return _without_metadata(record, self.settings)
        judgement: Judgement | None = None
        for start in self._starts(record):
            other = self._judged_from(start, record)
            if judgement is None or not other.promise.must_survive:
                judgement = other
            if not judgement.promise.must_survive:
                break
        assert judgement is not None
        return self._placed(judgement)

    def _starts(self, record: Record) -> Iterator[int]:
        """Yield the places in history at which the record may have been acknowledged, the likeliest first.

        Whose log it was written to is known by the leader epoch or by who answered; else it was the leader of that time, or one
        that had been deposed already and did not know.
        """
        start = self._position(record.invoke_ns, record.leader_epoch)
        if record.leader_epoch is not None:
            yield start
            yield from self._once_committed(start, record)
            return
        end = start if record.complete_ns is None else max(start, bisect_right(self._times, record.complete_ns))
        own = range(start, end + 1)
        if record.answered_by is None:
            yield start
        elif (led := next((place for place in own if self._leader_at(place) == record.answered_by), None)) is not None:
            yield led
            yield from self._before_named_anew(led, record)
            return
        none = True
        for place in self._before_deposed(start, record):
            none = False
            yield place
        if record.answered_by is not None and none:
            yield start  # it was nobody's to answer: judged as if its leader had

    def _once_committed(self, start: int, record: Record) -> Iterator[int]:
        """Yield the places behind a start at which the record may have been committed, where its leader had shown later than it was written that it was not.

        Who joined the ISR meanwhile need not hold it: what is not committed yet is copied by the ISR from then on. With acks=all its leader
        acknowledged it behind that, also in a later leader epoch of its own that nobody else's lies before.
        """
        if record.uncommitted_ns is None:
            return
        first = self._position(record.uncommitted_ns, record.leader_epoch)
        last = first
        if record.acks == -1 and record.complete_ns is not None:
            last = max(first, bisect_right(self._times, record.complete_ns))
        leader = self._leader_at(start)
        for place in range(start + 1, last + 1):
            joined = place > first and any(isinstance(fact, JoinedIsr) for fact in self.entries[place - 1].facts)
            if joined or self._leader_at(place) != leader:
                return  # who joined later may have found it committed
            if place >= first:
                yield place

    def _leader_at(self, place: int) -> int:
        return self.entries[place - 1].state.leader

    def _judged_from(self, start: int, record: Record) -> Judgement:
        """Judge a record that was acknowledged, or an offset that was shown, when so many entries had been."""
        since = start if record.since_ns is None else self._passed_by(min(start, self._position(record.since_ns, None)))
        exposed, exposed_in_force, exposed_ns = self._exposure(record, start)
        read = None if record.read_ns is None else max(start, self._position(record.read_ns, None))
        seen = start if record.seen_ns is None else max(start, self._position(record.seen_ns, None))
        shown = max(self._begin(epoch, record) for epoch in (record.shown_epoch, record.seen_epoch))
        seen = max(seen, shown)
        answered = start if record.complete_ns is None else max(start, bisect_right(self._times, record.complete_ns))
        replaced = self._whole(record.replaced_epoch, record.absent_ns)
        if replaced is not None and self._known_epoch(answered, max(read or 0, shown)) > replaced:
            # What stands there is older than the record, or than the last leader epoch that handed it out: somebody who had kept an older
            # log was elected later (KIP-704).
            record = replace(record, replaced_epoch=None)
        reach = (
            bisect_right(self._loss_offsets, record.log_offset),
            bisect_right(self._loss_ends, record.least_offset),
            NEVER if record.absent_ns is None else bisect_right(self._losses_ns, record.absent_ns),
        )
        until = max(answered, self._until(record.absent_ns))
        in_force = self._in_force(answered, record.complete_ns)
        places = _Places(since, start, answered, in_force, exposed, exposed_in_force, read, shown, seen, until)
        key = (*places, *reach, record.acks, record.replaced_epoch, record.below_log_start, record.taken_ns)
        if key not in self._memory:
            self._memory[key] = self._judge(record, places)
        judgement = self._memory[key]
        if not judgement.was_exposed and not judgement.was_read:
            return judgement
        known = (exposed_ns if judgement.was_exposed else None, record.read_ns if judgement.was_read else None)
        return replace(judgement, exposed_ns=min((at_ns for at_ns in known if at_ns is not None), default=None))

    def _in_force(self, answered: int, complete_ns: int | None) -> int:
        """Return how many entries may have been in force for the leader that answered: also such as were written by then and observed later.

        It has them by the controllers' answer to what it proposed. Those of a later leader epoch are none that it acts on.
        """
        last = self.entries[answered - 1]
        place = answered
        while complete_ns is not None and place < len(self.entries):
            entry = self.entries[place]
            is_own = _whole_epoch(entry) == _whole_epoch(last) and entry.state.leader == last.state.leader
            if not is_own or entry.written_ns is None or entry.written_ns > complete_ns:
                break
            place += 1
        return place

    def _certain(self, place: int, in_force: int) -> tuple[int, ...]:
        """Return the ISR after so many entries, without who may have left it by then as far as its leader knew."""
        meanwhile = [entry.state.isr for entry in self.entries[place:in_force]]
        return tuple(node for node in self.entries[place - 1].state.isr if all(node in isr for isr in meanwhile))

    def _position(self, at_ns: int, leader_epoch: int | None) -> int:
        """Return how many entries lie before a client event, by its time unless its leader epoch knows better."""
        position = bisect_right(self._times, at_ns)
        whole = self._whole(leader_epoch, at_ns)
        if whole is not None and whole in self._epochs:
            first = bisect_left(self._epochs, whole) + 1
            position = min(max(position, first), self._end(first, bisect_right(self._epochs, whole)))
        return max(position, 1)

    def _end(self, first: int, last: int) -> int:
        """Return how many entries the leader of a leader epoch acted on, that of its beginning being the first.

        Settings that were written in one with the next leader epoch nobody acted on in this one: who learns of them learns that it is over. That is how a larger
        min ISR takes force (decision 0010).
        """
        while first < last < len(self.entries):
            entry, following = self.entries[last - 1], self.entries[last]
            only_settings = not entry.changed and all(isinstance(fact, SettingsChanged) for fact in entry.facts)
            if not only_settings or (entry.at_ns, entry.written_ns) != (following.at_ns, following.written_ns):
                break
            last -= 1
        return last

    def _whole(self, leader_epoch: int | None, at_ns: int | None) -> int | None:
        """Return a leader epoch of the topic that there was at a moment (None: in the end) as the entries count them."""
        if leader_epoch is None:
            return None
        position = len(self.entries) if at_ns is None else bisect_right(self._times, at_ns)
        return self.entries[max(position, 1) - 1].made_anew << 32 | leader_epoch

    def _begin(self, leader_epoch: int | None, record: Record) -> int:
        """Return how many entries there were when this leader epoch had begun; 0 where nobody knows."""
        whole = self._whole(leader_epoch, record.invoke_ns)
        return bisect_left(self._epochs, whole) + 1 if whole is not None and whole in self._epochs else 0

    def _known_epoch(self, answered: int, read: int) -> int:
        """Return the leader epoch in which the record was there at the latest, by its answer and its readers."""
        return self._epochs[max(answered, read) - 1]

    def _before_deposed(self, position: int, record: Record) -> Iterator[int]:
        """Yield the positions before the elections that a leader may not have known of when it answered.

        A deposed leader that is cut off or paused goes on to answer acks=1 and ListOffsets until it is notified, and
        its answer does not say in which epoch it was given. It has learned it once it is in the ISR of another; one
        that leaves it within the lag of observation need not know of it; so has one that stated a later leader epoch. With acks=all it
        can answer only where the new leader was not in its ISR (behind an election that was not clean), and while the others of its ISR
        follow it: they no longer do once they are in the ISR of another, nor does anybody who was not fenced and whom nothing hindered for so
        long that it has heard of the other one. Only the process that led can: one that had ended
        before the record was sent has not answered it, nor has a new process that registered since.
        """
        for place in self._depositions[: bisect_left(self._depositions, position)]:
            before, entry = self.entries[place - 1].state, self.entries[place]
            if record.answered_by not in (None, before.leader):
                continue
            if record.acks == -1 and any(isinstance(fact, Elected) and fact.how is How.CLEAN for fact in entry.facts):
                continue
            if self._incarnations.ended_ns(before.leader, entry.at_ns) + OBSERVATION_LAG_NS < record.invoke_ns:
                continue
            if not entry.made_anew and record.stated.get(before.leader, UNKNOWN_EPOCH) >= entry.state.leader_epoch:
                continue
            needed = dict.fromkeys((before.leader, *(before.isr if record.acks == -1 else ())))
            if any(self._knows_its_successor(node, place, position, record.invoke_ns) for node in needed):
                continue
            informed = (
                self._surely_knows(node, place, record.invoke_ns) for node in needed if node != record.answered_by
            )
            if record.acks != -1 or not any(informed):
                yield place

    def _before_named_anew(self, position: int, record: Record) -> Iterator[int]:
        """Yield the positions before a larger min ISR of which the leader that answered may not have known: it comes with a new leader epoch of the same leader.

        Until it hears of it, it goes on with the smaller one (decision 0010); with acks=all as long as all of its ISR follow it there. One
        that has stated the new leader epoch, or that nothing has hindered for longer than a session, knows.
        """
        for place, end in self._named_anew:
            if place >= position:
                break
            before, entry = self.entries[place - 1], self.entries[place]
            if record.answered_by != entry.state.leader or entry.state.leader != self._leader_at(position):
                continue
            if record.stated.get(entry.state.leader, UNKNOWN_EPOCH) >= entry.state.leader_epoch:
                continue
            needed = before.state.isr if record.acks == -1 else (entry.state.leader,)
            if not any(self._surely_knows(node, place, record.invoke_ns) for node in needed):
                yield end

    def _surely_knows(self, node: int, place: int, at_ns: int) -> bool:
        """Whether a node that is in touch with the controllers knows of an election at a place: nothing hindered it for longer than a session."""
        return self._calm.lasted(node, self.entries[place].at_ns, at_ns, APPLIED_NS)

    def _knows_its_successor(self, deposed: int, place: int, position: int, at_ns: int) -> bool:
        """Whether a leader that was deposed at a place is known to have been in the ISR of its successors before that time.

        Who joined it follows them. Who was in it when they were elected is left there for as long as followers may lag: it knows of them once
        nothing has hindered it there for the lag of observation, or once it has been there for longer than anybody is left that fetches nothing,
        while nothing hindered who would have taken it out.
        """
        known_ns = self.entries[place].at_ns + OBSERVATION_LAG_NS
        left = min(self._out_of_isr_since(deposed, place), position)
        if left > place:
            stayed_ns = min(at_ns, self._times[left]) if left < position else at_ns
            if stayed_ns > known_ns and self._must_follow(deposed, self.entries[place], stayed_ns):
                return True
        if left < position - 1 and at_ns > known_ns and deposed in self.entries[position - 1].state.isr:
            return True
        own = self._in_isr.get(deposed, [])
        # Those of the states before the last that ended later than it was known; the last one ends with the answer.
        first = bisect_left(own, max(left, bisect_right(self._times, known_ns) - 1))
        return first < len(own) and own[first] < position - 1

    def _out_of_isr_since(self, node: int, place: int) -> int:
        """Return the first place from this one on at which a node is not in the ISR."""
        own = self._in_isr.get(node, [])
        first = bisect_left(own, place)
        # As long as it stays there its places follow each other.
        stays = bisect_right(range(first, len(own)), place - first, key=lambda one: own[one] - one)
        return min(place + stays, len(self.entries))

    def _must_follow(self, node: int, elected: Entry, until_ns: int) -> bool:
        """Whether a node that was in the ISR all the time between the election of a leader and a later moment must have heard of it.

        That leader takes out who fetches nothing, and needs a controller for it. In ZooKeeper mode nobody but the controller notifies either of them, and any
        broker may be it: one that is lost behind the election has notified nobody, until the next one does.
        """
        if not self.settings.high_watermark_needs_min_isr:
            return self._calm.lasted(node, elected.at_ns, until_ns, OBSERVATION_LAG_NS)
        if self._lag_ns is None:
            return True
        leader, longest_ns = elected.state.leader, self._lag_ns + OBSERVATION_LAG_NS
        is_long = until_ns - elected.at_ns > longest_ns
        if is_long and self._calm.left_alone(leader, elected.at_ns, until_ns, longest_ns):
            return True
        return self._calm.left_alone(node, elected.at_ns, until_ns, OBSERVATION_LAG_NS)

    @cached_property
    def _depositions(self) -> list[int]:
        """The places of the entries behind which who had led leads no longer: looked for once, not for each record."""
        return [
            place
            for place, (before, entry) in enumerate(pairwise(self.entries), 1)
            if before.state.leader not in (NO_LEADER, entry.state.leader)
        ]

    @cached_property
    def _named_anew(self) -> list[tuple[int, int]]:
        """The places of the entries in which a leader was given a new leader epoch behind a larger min ISR that was written in one with it.

        With each, how many entries that leader had acted on in its former epoch.
        """
        found = []
        for place, (before, entry) in enumerate(pairwise(self.entries), 1):
            is_anew = before.state.leader == entry.state.leader and _whole_epoch(before) < _whole_epoch(entry)
            if is_anew and (end := self._end(bisect_left(self._epochs, _whole_epoch(before)) + 1, place)) < place:
                former = self.entries[end - 1].settings
                if former.effective_min_isr < entry.settings.effective_min_isr:
                    found.append((place, end))
        return found

    @cached_property
    def _in_isr(self) -> dict[int, list[int]]:
        """The places of the entries with a node in the ISR, by node."""
        found: dict[int, list[int]] = {}
        for place, entry in enumerate(self.entries):
            for node in dict.fromkeys(entry.state.isr):
                found.setdefault(node, []).append(place)
        return found

    def _copies_between(self, record: Record, since: int, start: int) -> Copies:
        """Return what became of the copies of an offset between being shown at first and being shown here, entry by entry.

        Who held it at first holds it here, too: an ISR that is smaller now shows what a larger one has committed.
        """
        copies = Copies(holders=dict.fromkeys(self.entries[since - 1].state.isr if since < start else ()))
        for entry in self.entries[since:start]:
            for fact in entry.facts if entry.concerns(record) else ():
                copies.add(fact)
        return copies

    def _observe(self, ledger: Ledger, position: int, places: "_Places") -> None:
        if position == places.exposed:
            isr = self.entries[position - 1].state.isr
            ledger.add(Exposed(isr, self._certain(position, places.exposed_in_force)))
        if position == places.read:
            ledger.add(WasRead())

    def _exposure(self, record: Record, start: int) -> tuple[int | None, int, int | None]:
        """Return how many entries there were when a high watermark had passed it, how many the leader that showed that may have acted on, and when it was."""
        if record.exposed_ns is None:
            return None, 0, None
        if record.exposed_ns == record.invoke_ns:  # that it was shown is all that is known of it
            return start, self._in_force(start, record.exposed_ns), record.exposed_ns
        for at_ns, epoch in ((record.exposed_ns, record.exposed_epoch), *record.exposed_later):
            whole = self._whole(epoch, at_ns)
            if whole is not None and whole < self._epochs[start - 1]:
                continue  # a deposed leader shows the end of its own log
            lag = 0 if epoch is not None else OBSERVATION_LAG_NS
            place = max(start, self._position(at_ns + lag, epoch))
            # An acknowledged one is held by who was in the ISR then; for it an earlier moment would only be a stricter promise.
            is_of_readers = record.acks is None
            passed = self._last_large(max(start, self._uncommitted(record)), place) if is_of_readers else None
            return (place, self._in_force(place, at_ns), at_ns) if passed is None else (passed, passed, at_ns)
        return None, 0, None

    def _uncommitted(self, record: Record) -> int:
        """Return how many entries there were when the record's leader showed last that no high watermark had passed it."""
        return 0 if record.uncommitted_ns is None else self._position(record.uncommitted_ns, record.leader_epoch)

    def _last_large(self, first: int, place: int) -> int | None:
        """Return the last place from `first` on at which a high watermark may have moved, where it may not have at `place`; None: it may have there, or nowhere.

        With ELR it moves over no ISR below min ISR (KIP-966): what is shown then had been passed before, and more may have held it then.
        """
        if not self.entries[place - 1].settings.elr or self._is_large(place):
            return None
        return next((one for one in range(place - 1, first - 1, -1) if self._is_large(one)), None)

    def _passed_by(self, place: int) -> int:
        """Return the last place at which a high watermark may have passed what was shown at this one for the first time: its leader shows what its predecessor had committed.

        With ELR it moves over no ISR below min ISR (KIP-966): who was in the last one that was large enough held it.
        """
        passed = self._last_large(1, place)
        return place if passed is None else passed

    def _is_large(self, place: int) -> bool:
        entry = self.entries[place - 1]
        return len(set(entry.state.isr)) >= entry.settings.effective_min_isr

    def _judge(self, record: Record, places: "_Places") -> Judgement:
        start, until = places.start, places.until
        before = self.entries[start - 1]
        ledger = Ledger(before.settings, self._copies_between(record, places.since, start))
        if record.acks is not None:
            certain = self._certain(start, places.in_force)
            ledger.add(Acknowledged(record.acks, before.state.isr, before.state.leader, certain))
        if record.below_log_start:
            ledger.add(LogStartMoved())
        judgement = replace(_judgement(ledger, before), at_ns=record.taken_ns) if record.below_log_start else None
        last, replaced = before, self._whole(record.replaced_epoch, record.absent_ns)
        for position in range(start, until + 1):
            self._observe(ledger, position, places)
            if position == places.shown > start and last.state.leader != NO_LEADER:
                ledger.show(last.state.leader)
            if position == until or (judgement is not None and not judgement.promise.must_survive):
                break  # what is permitted once stays so
            entry = self.entries[position]
            if replaced is not None and self._epochs[position] > replaced:
                break
            if entry.concerns(record):
                for fact in entry.facts:
                    ledger.add(fact)
                if (
                    position >= places.seen
                    and _may_lose(entry)
                    and (judgement is None or judgement.promise.must_survive)
                ):
                    judgement = _judgement(ledger, entry)
            last = entry
        undecided = self._undecided(ledger, last, until)
        if undecided is not None and (judgement is None or judgement.promise.must_survive):
            return undecided
        if judgement is None:
            ledger.election = None  # it was there after all of them
            judgement = _judgement(ledger, last)
        return judgement

    def _undecided(self, ledger: Ledger, last: Entry, until: int) -> Judgement | None:
        """Return what R3 permits where nobody leads to the end: who may be elected has lost the record, and nobody else may be."""
        if until < len(self.entries) or last is not self.entries[-1] or last.state.leader != NO_LEADER:
            return None
        rule = ledger.rule_of_members(last.state.isr)
        if rule is None:
            return None
        ledger.election = None
        return replace(_judgement(ledger, last), promise=Promise(rule, tuple(ledger.violations)))


class _Permitted(NamedTuple):
    """By the place at which something was acknowledged: the entry that permits its loss first (NEVER: none does), whether it is permitted as nobody leads in the end."""

    places: Integers
    is_undecided: NDArray[np.bool_]
    judgements: Mapping[int, Judgement]


class _Places(NamedTuple):
    """How many entries there were when something was known of a record; what nobody saw is None, or 0.

    since:     it was there; start: it was acknowledged at the earliest; answered: its acknowledgement had arrived.
    in_force:  what the leader that answered may have acted on by then.
    exposed:   a high watermark had passed it, exposed_in_force: what the leader that showed that may have acted on by then; read: a consumer had received it.
    shown:     the last leader epoch began that showed it; seen: it was there at the latest.
    until:     it was absent.
    """

    since: int
    start: int
    answered: int
    in_force: int
    exposed: int | None
    exposed_in_force: int
    read: int | None
    shown: int
    seen: int
    until: int


class Deposed(NamedTuple):
    """The election by which somebody was deposed who may not have known of it, and since when who was elected may have acted on it."""

    judgement: Judgement
    written_ns: int


def _written_ns(entry: Entry) -> int:
    return entry.at_ns if entry.written_ns is None else entry.written_ns


def _may_lose(entry: Entry) -> bool:
    return any(isinstance(fact, Elected | CutLive | LogStartMoved) for fact in entry.facts)


def _whole_epoch(entry: Entry) -> int:
    return entry.made_anew << 32 | max(entry.state.leader_epoch, 0)


def excused(entry: Entry, rule: str) -> Judgement:
    """Return the judgement that what happened there excuses, by this rule."""
    election = next((fact for fact in entry.facts if isinstance(fact, Elected)), None)
    promise = Promise(rule=rule, violations=())
    return Judgement(promise, election, entry.state.leader_epoch, entry.at_ns, entry.state.isr)


def _judgement(ledger: Ledger, entry: Entry) -> Judgement:
    return Judgement(
        ledger.promise(),
        ledger.election,
        entry.state.leader_epoch,
        entry.at_ns,
        entry.state.isr,
        holders=tuple(sorted(ledger.holders)),
        lost=tuple(sorted(ledger.lost)),
        was_exposed=ledger.was_exposed,
        was_read=ledger.was_read,
    )


def _without_metadata(record: Record, settings: Settings) -> Judgement:
    """Nothing is known of the partition's elections: nothing is excused, but for what acks=0 never promised."""
    ledger = Ledger(settings)
    if record.acks is not None:
        ledger.add(Acknowledged(record.acks, (), NO_LEADER))
    if record.below_log_start:
        ledger.add(LogStartMoved())
    if record.exposed_ns is not None or record.read_ns is not None:
        ledger.add(WasRead())
    return Judgement(ledger.promise(), None, -1, None, (), is_known=False)


class History:
    """What a whole run's timelines are made of: read once, then `timeline` per partition."""

    def __init__(
        self,
        metadata: pa.Table,
        nodes: pa.Table,
        faults: pa.Table,
        admin: pa.Table,
        settings: NodeSettings | None,
        requests: Callable[[], pa.Table] | None = None,
    ) -> None:
        """Take what was recorded; `requests` is asked for only where it can say something."""
        self._metadata = metadata.sort_by("metadata_offset")
        self._offsets: list[int] = self._metadata["metadata_offset"].to_pylist()
        self._at_ns = _filled(self._metadata["at_ns"].to_pylist())
        self._stamped_ns: list[int | None] = self._metadata["stamped_ns"].to_pylist()
        self._types: list[str] = self._metadata["record_type"].cast(pa.string()).to_pylist()
        self._given = settings
        self._nodes = typed(nodes.sort_by("at_ns"), NodeEvent)
        self.incarnations = Incarnations(self._nodes)
        self._removals = Removals(
            lambda: () if requests is None else said(requests()), lambda: self._directories, self.incarnations
        )
        self._timelines: dict[tuple[str, int], Timeline] = {}
        # Says of a value of a partition whether readers had read on where it was written anew, and what permitted the loss of what they had read.
        self.written_anew: Callable[[str, int], Judgement | None] = lambda key, value: None
        # Says of a value of a partition (`topic-p`) whether it was permitted to be lost before a moment; None: nobody knows the value.
        self.lost_value: Callable[[str, int, int], Judgement | None] = lambda key, value, absent_ns: None
        self._faults = typed(faults, Fault)
        self._ordered = typed(admin, Admin)
        self._admin = list(self._of_their_topics(self._ordered))
        self.orders = orders(self._admin, deletes_later=settings is not None and settings.get("mode") == "zookeeper")
        self.registrations = list(self._registrations())

    def _of_their_topics(self, ordered: Iterable[Admin]) -> Iterator[Admin]:
        """Yield the orders, but for those that name a topic by another id than any topic of that name has."""
        return (row for row in ordered if self._is_of_its_name(row.topic, row.topic_id))

    def _is_of_its_name(self, topic: str | None, topic_id: str | None) -> bool:
        """Whether a topic of a name has this id, as far as ids are known."""
        if topic is None or topic_id is None:
            return True
        return topic_id in self._ids.get(topic, (topic_id,))

    @cached_property
    def _ids(self) -> dict[str, set[str]]:
        """The ids that the metadata know of each topic; none of a topic whose ids were not recorded."""
        found: dict[str, set[str]] = {}
        for topic, topic_id in zip(*(self._metadata[name].to_pylist() for name in ("topic", "topic_id")), strict=True):
            if topic is not None and topic_id is not None:
                found.setdefault(topic, set()).add(topic_id)
        return found

    def timeline(self, topic: str, partition: int) -> Timeline:
        """Return the partition's history; one without entries when its metadata was not recorded."""
        if (topic, partition) not in self._timelines:
            self._timelines[topic, partition] = self._built(topic, partition)
        return self._timelines[topic, partition]

    def _built(self, topic: str, partition: int) -> Timeline:
        positions = self._positions(topic, partition)
        losses = self._losses(topic, partition)
        builder = _Builder(
            (topic, partition),
            self._given,
            losses,
            _Brokers(self.registrations, self.incarnations, self._calm, self._removals),
            self._orders_of_kind(AdminApi.ELECT_LEADERS, topic, partition),
            self._orders_of_kind(AdminApi.DELETE_TOPIC, topic, partition),
        )
        records = [record for position in positions if (record := self._committed(position)) is not None]
        for index, committed in enumerate(records):
            following = records[index + 1] if index + 1 < len(records) else None
            if following is not None and following.at_ns == committed.at_ns:
                builder.expect(following)
            builder.add(committed)
        return builder.timeline()

    def _orders_of_kind(self, api: AdminApi, topic: str, partition: int) -> list[Order]:
        return [one for one in self.orders if one.api == api and one.names(topic, partition)]

    def deletion_ns(self, topic: str) -> int | None:
        """Return when a topic's deletion was ordered first; None: it never was."""
        return deletion_ns(self._ordered, topic)

    def orders_of(self, topic: str, partition: int) -> TopicOrders:
        """Return what was ordered that takes records of a partition away."""
        settings = settings_of_topic(self._given or {}, self._configured.get(topic, ()), self._admin, topic)
        clocks = [_clock(skew) for skew in skews(self._faults)]
        leaders = dict.fromkeys(one.leader for one in self.timeline(topic, partition).leaders.led)
        return TopicOrders(
            (topic, partition),
            self.orders,
            settings,
            clocks=[clock for clock in clocks if clock.node is None or not leaders or clock.node in leaders],
            clocks_of_followers=[clock for clock in clocks if clock.node is not None],
            removed_ns=self._removed_ns.get(topic),
        )

    @cached_property
    def _removed_ns(self) -> dict[str, int]:
        """When the removal of each topic was committed of which that was the last that was committed of it as a whole."""
        found: dict[str, int] = {}
        for place, topic in enumerate(self._metadata["topic"].to_pylist()):
            if topic is not None and self._types[place] == REMOVED:
                found[topic] = self._at_ns[place]
            elif topic is not None and self._types[place] in (CREATED, PartitionRecord.__name__):
                found.pop(topic, None)
        return found

    @property
    def faults(self) -> list[Fault]:
        """The rows of `faults`."""
        return self._faults

    @property
    def settings(self) -> NodeSettings:
        """What every node was started with; nothing where that is unknown."""
        return self._given or {}

    def home(self, topic: str, name: str) -> tuple[str, int] | None:
        """Return the partition of an internal topic in which the coordinator of a group or a transactional id remembers it."""
        count = self._partition_counts[topic]
        return (topic, _hashed(name) % count) if count else None

    @cached_property
    def _partition_counts(self) -> Counter[str]:
        return Counter(topic for topic, _ in self.partitions())

    def _committed(self, position: int) -> Committed | None:
        """Return a record of the metadata log; None for one that says nothing of who holds what."""
        record = decoded(self._types[position], self._metadata["body"][position].as_py())
        if record is None:
            return None
        at_ns, stamped_ns = self._at_ns[position], self._stamped_ns[position]
        written_ns = at_ns if stamped_ns is None else max(at_ns - OBSERVATION_LAG_NS, min(at_ns, stamped_ns))
        return Committed(record=record, metadata_offset=self._offsets[position], at_ns=at_ns, written_ns=written_ns)

    def partitions(self) -> list[tuple[str, int]]:
        """Return all partitions that the metadata names, in order."""
        created = self._metadata.filter(pc.equal(self._metadata["record_type"].cast(pa.string()), "PartitionRecord"))
        pairs = zip(created["topic"].to_pylist(), created["partition"].to_pylist(), strict=True)
        return sorted({(topic, partition) for topic, partition in pairs if topic is not None and partition is not None})

    def _positions(self, topic: str, partition: int) -> list[int]:
        """Return the places of the records that concern a partition, ascending."""
        places, shared = self._places
        return sorted([*places.get((topic, partition), ()), *places.get((topic, None), ()), *shared])

    @cached_property
    def _places(self) -> tuple[dict[tuple[str, int | None], list[int]], list[int]]:
        """The places of the records of each partition, and (partition None) of each topic's end; and of those that concern all."""
        own: dict[tuple[str, int | None], list[int]] = {}
        shared: list[int] = []
        named = (self._metadata[name].to_pylist() for name in ("topic", "partition"))
        for position, (record_type, topic, partition) in enumerate(zip(self._types, *named, strict=True)):
            if record_type in OF_ALL:
                shared.append(position)
            elif topic is not None and (partition is not None or record_type == RemoveTopicRecord.__name__):
                own.setdefault((topic, partition), []).append(position)
        return own, shared

    @cached_property
    def _calm(self) -> Calm:
        return Calm(self._faults, self._fenced())

    @cached_property
    def _directories(self) -> list[Directories]:
        """With which log directories each broker registered, and when it lost some, in order."""
        found = []
        for position in self._places[1]:
            committed = self._committed(position)
            match None if committed is None else committed.record:
                case RegisterBrokerRecord() as one:
                    ids = frozenset(one.log_dirs or ())
                    found.append(Directories(self._offsets[position], one.broker_id, ids, is_registration=True))
                case BrokerRegistrationChangeRecord() as one if one.log_dirs:
                    ids = frozenset(one.log_dirs)
                    found.append(Directories(self._offsets[position], one.broker_id, ids, is_registration=False))
                case _:
                    pass  # says nothing of directories
        return found

    def _fenced(self) -> Iterator[tuple[int, int, bool]]:
        """Yield when which broker was fenced or was so no longer, as committed."""
        for position in self._places[1]:
            committed = self._committed(position)
            match None if committed is None else committed.record:
                case RegisterBrokerRecord() as registered:
                    yield self._at_ns[position], registered.broker_id, registered.fenced
                case BrokerRegistrationChangeRecord() as change if change.fenced:
                    yield self._at_ns[position], change.broker_id, change.fenced == 1
                case _:
                    pass  # says nothing of it

    @cached_property
    def _configured(self) -> dict[str, list[tuple[int, str, str | None]]]:
        """When which settings of each topic were given which value, as committed."""
        found: dict[str, list[tuple[int, str, str | None]]] = {}
        for position in self._places[1]:
            if self._types[position] == ConfigRecord.__name__ and (committed := self._committed(position)) is not None:
                record = committed.record
                assert isinstance(record, ConfigRecord)
                if record.resource_type == CONFIG_OF_TOPIC:
                    setting = (committed.at_ns, record.name, record.value)
                    found.setdefault(record.resource_name, []).append(setting)
        return found

    def _registrations(self) -> Iterator[Registration]:
        """Pair each committed registration with what the broker said about its previous incarnation."""
        previous_epochs = {
            (row.node, row.broker_epoch): row.previous_broker_epoch
            for row in self._nodes
            if row.event == "registered" and row.previous_broker_epoch is not None
        }
        known: dict[int, int] = {}
        known_ns: dict[int, int] = {}
        for position, record_type in enumerate(self._types):
            if record_type != RegisterBrokerRecord.__name__:
                continue
            committed = self._committed(position)
            assert committed is not None
            assert isinstance(committed.record, RegisterBrokerRecord)
            node, epoch = committed.record.broker_id, committed.record.broker_epoch
            if node in known and known[node] != epoch:
                previous = previous_epochs.get((node, epoch))
                clean = None if previous is None else previous == known[node]
                if previous is None and self._was_killed(node, known_ns[node], committed.at_ns):
                    clean = False
                yield Registration(
                    metadata_offset=committed.metadata_offset,
                    at_ns=committed.at_ns,
                    node=node,
                    broker_epoch=epoch,
                    clean=clean,
                )
            known[node], known_ns[node] = epoch, committed.at_ns

    def _was_killed(self, node: int, since_ns: int, until_ns: int) -> bool:
        """Whether a broker's incarnation is known to have ended by kill -9 alone: where nobody reads what it says of that itself, the harness's own doing does."""
        ends = [
            row.event
            for row in self._nodes
            if row.node == node and row.role == "broker" and row.event in DOWN and since_ns < row.at_ns < until_ns
        ]
        return bool(ends) and set(ends) == {KILLED}

    def _losses(self, topic: str, partition: int) -> list[Loss]:
        losses = []
        for fault in self._faults:
            for lost in fault.losses or ():
                here = lost.topic is None or (lost.topic == topic and lost.partition == partition)
                here = here and self._is_of_its_name(lost.topic, lost.topic_id)
                if here and lost.node is not None:
                    for at_ns, alive in self._moments_of(lost, fault.injected_ns, fault.healed_ns):
                        losses.append(
                            Loss(
                                node=lost.node,
                                from_offset=lost.from_offset or 0,
                                end_offset=lost.end_offset,
                                unseen_end_offset=lost.unseen_end_offset,
                                injected_ns=at_ns,
                                alive=alive,
                            )
                        )
        return losses

    def _moments_of(self, lost: LostRecords, began_ns: int | None, healed_ns: int | None) -> list[tuple[int, bool]]:
        """Return when it was lost: a loss with a time of its own is one also where its fault was broken off before all of it was injected."""
        assert lost.node is not None
        if lost.end_ns is not None:
            return [(lost.end_ns, self._alive(lost.node, lost.end_ns))]
        return [] if began_ns is None else self._moments(lost.node, began_ns, healed_ns)

    def _moments(self, node: int, began_ns: int, healed_ns: int | None) -> list[tuple[int, bool]]:
        """Return when a fault may have taken a node's data, and whether its process ran on.

        A fault of many episodes is recorded by the beginning of the first; the power may have failed in any of them.
        """
        alive = self._alive(node, began_ns)
        ends_ns = [
            row.at_ns
            for row in self._nodes
            if row.node == node and row.event in DOWN and began_ns < row.at_ns
            if healed_ns is None or row.at_ns <= healed_ns
        ]
        return [(began_ns, alive), *((at_ns, False) for at_ns in ends_ns if alive)]

    def _alive(self, node: int, at_ns: int) -> bool:
        """Whether the node's process ran at that moment, by the last thing recorded of it."""
        last = None
        for row in self._nodes:
            if row.node == node and row.at_ns <= at_ns and row.event in (*DOWN, "start", "registered"):
                last = row.event
        return last is not None and last not in DOWN


def _joined_at_the_end(before: State, after: State) -> list[int]:
    """Return who joined the ISR by the leader's word in the very change that ends a reassignment, and with it elects from that ISR.

    One that is given up adds nobody: all that were to be added are in the ISR at its end, or it did not come to its end.
    """
    ends = before.is_reassigned and not after.is_reassigned and set(before.adding) <= set(after.isr)
    if not ends or before.leader == NO_LEADER or after.recovery == RECOVERING:
        return []
    return [node for node in after.isr if node not in before.isr]


def _lag_ns(settings: NodeSettings) -> int:
    """Return for how long a leader leaves a follower in its ISR that fetches nothing: it looks twice in that time (SPEC 3.4)."""
    return integer(settings, *LAG_MS) * 3 // 2 * 1_000_000


def _clock(skew: Skew) -> ClockSet:
    """Return a clock that a fault set, and until when those that read it know that it was set right."""
    until_ns = min(skew.until_ns + OBSERVATION_LAG_NS, NEVER)
    return ClockSet(since_ns=skew.since_ns, until_ns=until_ns, node=skew.node, span_ns=skew.span_ns)


def _hashed(text: str) -> int:
    """Return the absolute value of Java's `hashCode` of a string, by which coordinators are chosen (Kafka's `Utils.abs`: 0 for the least)."""
    units = text.encode("utf-16-be")
    hashed = 0
    for index in range(0, len(units), 2):
        hashed = (31 * hashed + int.from_bytes(units[index : index + 2])) & 0xFFFFFFFF
    return min(hashed, (1 << 32) - hashed) & 0x7FFFFFFF


def _filled(times: list[int | None]) -> list[int]:
    """Unknown times take the one before; observed times never go back along the log."""
    filled, last = [], 0
    for at_ns in times:
        last = max(last, at_ns or 0)
        filled.append(last)
    return filled


class _Brokers(NamedTuple):
    """What is known of a run's brokers, whatever the partition."""

    registrations: list[Registration]
    incarnations: Incarnations
    calm: Calm
    removals: Removals


class _Builder:
    """Folds metadata records into entries."""

    def __init__(
        self,
        place: tuple[str, int],
        given: NodeSettings | None,
        losses: list[Loss],
        brokers: _Brokers,
        orders: list[Order],
        deletions: list[Order],
    ) -> None:
        self._brokers = brokers
        self._left: dict[int, int] = {}  # where in the metadata log who was a replica ceased to be one
        self._place = place
        self._deletions = deletions
        self._topic = place[0]
        self._given = given
        self._of_cluster: dict[str, str] = {}
        self._of_topic: dict[str, str] = {}
        self._losses = losses
        self._by_offset = {registration.metadata_offset: registration for registration in brokers.registrations}
        self._registered_ns: dict[int, int] = {}
        self._fenced: dict[int, None] = {}
        self._orders = orders
        self._expected: tuple[int, int] | None = None  # a broker, and the offset of its registration right behind
        self._state: State | None = None
        self._made_anew = 0
        self._removed = False
        self._deleted = False  # by an order
        self._entries: list[Entry] = []
        self._written: Committed | None = None  # what is taken in now
        self._unseen: Committed | None = None  # the last change of the partition, where it changed nothing

    def expect(self, following: Committed) -> None:
        """Take note of the record right behind the next one: the registration that fencing and ISR changes before it belong to."""
        if isinstance(following.record, RegisterBrokerRecord):
            self._expected = (following.record.broker_id, following.metadata_offset)

    def add(self, committed: Committed) -> None:
        """Take in the next committed record that concerns the partition."""
        at_ns = committed.at_ns
        self._add_live_cuts(until_ns=at_ns)
        self._written = committed
        expected, self._expected = self._expected, None
        match committed.record:
            case RegisterBrokerRecord() as registered:
                self._on_registered(registered.broker_id, committed.metadata_offset, at_ns)
                self._fence(registered.broker_id, fenced=registered.fenced)
            case BrokerRegistrationChangeRecord() as change:
                if change.fenced:
                    self._fence(change.broker_id, fenced=change.fenced == 1)
            case ConfigRecord() as config:
                self._on_config(config, at_ns)
            case ClearElrRecord() as cleared:
                self._on_cleared(cleared, at_ns)
            case RemoveTopicRecord():
                self._removed = True
                self._deleted = any(
                    order.since_ns <= at_ns <= order.until_ns + OBSERVED_NS for order in self._deletions
                )
                self._append(at_ns, ())
            case PartitionRecord() as created:
                anew = self._state is not None
                # Where nobody recorded when the topic was removed it may have been at any time before.
                deleted = self._deleted if self._removed else any(order.since_ns <= at_ns for order in self._deletions)
                gone = (LogStartMoved(),) if anew and deleted else ()
                self._removed = False
                self._made_anew += anew
                self._left.clear()
                self._state = State.created_by(created)
                self._append(at_ns, gone, changed=True)
            case PartitionChangeRecord() as change:
                if self._state is not None:
                    self._on_change(self._without_unclean(self._state, change, expected, at_ns), change, committed)
            case _:
                assert_never(committed.record)

    def timeline(self) -> Timeline:
        """Return what was built."""
        self._add_live_cuts(until_ns=1 << 62)
        lag_ns = None if self._given is None else _lag_ns(self._given)
        brokers = self._brokers
        return Timeline(self._entries, self._settings(), self._place, brokers.incarnations, brokers.calm, lag_ns)

    def _append(
        self,
        at_ns: int,
        facts: tuple[Fact, ...],
        loss: Loss | None = None,
        *,
        changed: bool = False,
        unseen: Sequence[int] = (),
    ) -> None:
        """Append an entry; `unseen`: who joined the ISR nobody knows when, and need not have been fenced then."""
        if self._state is None:
            return
        entry = Entry(
            at_ns=at_ns,
            facts=facts,
            state=self._state,
            settings=self._settings(),
            from_offset=0 if loss is None else loss.from_offset,
            end_offset=None if loss is None else loss.end_offset,
            unseen_end_offset=None if loss is None else loss.unseen_end_offset,
            lost_ns=None if loss is None else loss.injected_ns,
            changed=changed,
            written_ns=self._written.written_ns if self._written is not None and self._written.at_ns == at_ns else None,
            made_anew=self._made_anew,
            removed=self._removed,
            fenced=tuple(sorted(self._fenced.keys() - {*unseen})),
        )
        self._entries.append(entry)

    def _fence(self, node: int, *, fenced: bool) -> None:
        if fenced and not true((self._given or {}).get(MEMBERS_UNCHECKED, False)):
            self._fenced[node] = None
        else:
            self._fenced.pop(node, None)

    def _add_live_cuts(self, until_ns: int) -> None:
        due = [loss for loss in self._losses if loss.alive and loss.injected_ns <= until_ns]
        for loss in due:
            self._losses.remove(loss)
            at_ns = max([loss.injected_ns, *(entry.at_ns for entry in self._entries[-1:])])
            self._append(at_ns, (CutLive(loss.node),), loss)

    def _on_registered(self, node: int, offset: int, at_ns: int) -> None:
        """A new registration: what its disk lost since the previous one counts from here on."""
        former_ns = self._registered_ns.get(node, -1)
        for loss in self._losses:
            if loss.node == node and former_ns < loss.injected_ns <= at_ns:
                self._append(at_ns, (ProvenLoss(node),), loss)
        registration = self._by_offset.get(offset)
        if registration is not None and registration.clean is False:
            self._append(at_ns, (ShutDownUncleanly(node),))
        self._registered_ns[node] = at_ns

    def _on_config(self, config: ConfigRecord, at_ns: int) -> None:
        of_topic = config.resource_type == CONFIG_OF_TOPIC and config.resource_name == self._topic
        of_cluster = config.resource_type == CONFIG_OF_BROKER and not config.resource_name
        if not of_topic and not of_cluster:
            return
        layer = self._of_topic if of_topic else self._of_cluster
        if config.value is None:
            layer.pop(config.name, None)
        else:
            layer[config.name] = config.value
        self._append(at_ns, (SettingsChanged(self._settings()),))

    def _on_cleared(self, cleared: ClearElrRecord, at_ns: int) -> None:
        state = self._state
        if state is None or self._removed or not cleared.names(self._topic) or not (state.elr or state.last_known):
            return
        self._state = state.changed_by(EMPTIED)
        self._append(at_ns, (), changed=True)

    def _without_unclean(
        self, before: State, change: PartitionChangeRecord, expected: tuple[int, int] | None, at_ns: int
    ) -> State:
        """Return the state that a change began with: without a member that this very change drops as unclean.

        What an unclean registration does to partitions is written before it, in the same batch; and where it
        empties ISR and ELR the same change elects the last known leader (SPEC 2.2.5, 2.6.4).
        """
        registration = self._by_offset.get(expected[1]) if expected is not None else None
        if expected is None or registration is None or registration.clean is not False:
            return before
        after = before.changed_by(change)
        node = expected[0]
        if node not in (*before.isr, *before.elr) or node in (*after.isr, *after.elr):
            return before
        self._on_registered(node, expected[1], at_ns)
        return msgspec.structs.replace(
            before,
            isr=tuple(member for member in before.isr if member != node),
            elr=tuple(member for member in before.elr if member != node),
        )

    def _on_change(self, before: State, change: PartitionChangeRecord, committed: Committed) -> None:
        after, at_ns = before.changed_by(change), committed.at_ns
        unseen: list[int] = []
        facts: list[Fact] = [BeganAnew(node) for node in self._began_anew(before, after, committed)]
        if after.leader_epoch != before.leader_epoch:
            joined = _joined_at_the_end(before, after) or self._joined_unseen(before, after, committed)
            facts += [JoinedIsr(node) for node in joined]
            facts.append(self._leadership(replace(before, isr=(*before.isr, *joined)), after, at_ns))
            unseen = self._joined_beside(before, after, joined)
            facts += [JoinedIsr(node) for node in unseen]
        elif len(after.isr) > 0:
            # Only a leader adds members, and only those that have caught up (KIP-966: past its high watermark).
            facts += [JoinedIsr(node) for node in after.isr if node not in before.isr and node != after.leader]
        if len(after.replicas) != len(before.replicas):
            self._state = after
            facts.append(SettingsChanged(self._settings()))
        self._state = after
        self._append(at_ns, tuple(facts), changed=True, unseen=unseen)
        self._unseen = committed if change == NOTHING else None

    def _joined_beside(self, before: State, after: State, joined: Sequence[int]) -> list[int]:
        """Return who else is new in the ISR of a new leader epoch, but for its leader: in ZooKeeper mode several writes may be seen as one.

        No controller adds members there; each has joined that leader or the one before, and is whole.
        """
        if not self._is_zookeeper_mode:
            return []
        return [node for node in after.isr if node not in (*before.isr, *joined, after.leader)]

    def _joined_unseen(self, before: State, after: State, committed: Committed) -> list[int]:
        """Return the leader of a new leader epoch, where it may have joined the ISR before it was elected by a write that nobody saw by itself.

        In ZooKeeper mode a write that was not seen stands as a change of nothing right before the one that was. Where no unclean election was allowed nothing
        says that there was one: it is taken for a clean one, which excuses nothing.
        """
        unseen = self._unseen
        if not self._is_zookeeper_mode or unseen is None or after.leader in (NO_LEADER, *before.isr):
            return []
        is_one = unseen.metadata_offset == committed.metadata_offset - 1 and committed.at_ns - unseen.at_ns < AT_ONCE_NS
        is_recovering = after.recovery == RECOVERING and before.recovery != RECOVERING
        may_be_unclean = is_recovering or self._settings().unclean or self._is_ordered(committed.at_ns)
        return [after.leader] if is_one and after.leader in after.isr and not may_be_unclean else []

    @property
    def _is_zookeeper_mode(self) -> bool:
        return not self._settings().high_watermark_needs_min_isr

    def _is_ordered(self, at_ns: int) -> bool:
        """Whether an operator's order of an unclean election may have been carried out at a moment."""
        return any(order.since_ns <= at_ns <= order.until_ns + OBSERVATION_LAG_NS for order in self._orders)

    def _began_anew(self, before: State, after: State, committed: Committed) -> list[int]:
        """Return who becomes a replica again by a change, and had deleted its log when it ceased to be one."""
        offset, at_ns = committed.metadata_offset, committed.at_ns
        self._left |= {node: offset for node in before.replicas if node not in after.replicas}
        again = [node for node in after.replicas if node not in before.replicas and node in self._left]
        return [node for node in again if self._brokers.removals.carried_out(node, self._left[node], offset, at_ns)]

    def _leadership(self, before: State, after: State, at_ns: int) -> Fact:
        if after.leader == NO_LEADER or (after.leader == before.leader and after.replicas != before.replicas):
            return LeadershipChanged()
        return Elected(
            leader=after.leader,
            how=self._how(before, after),
            empty=not before.isr and not before.elr,
            ordered=self._is_ordered(at_ns),
            last_known=before.last_known or None,
        )

    def _how(self, before: State, after: State) -> How:
        chosen_from = {*before.isr, *before.elr}
        unclean = (after.recovery == RECOVERING and before.recovery != RECOVERING) or after.leader not in chosen_from
        if not unclean:
            return How.CLEAN
        if before.isr or before.elr:
            return How.UNCLEAN
        settings = self._settings()
        if settings.recovery != "off":
            return How.RECOVERY
        # SPEC 2.6.4: exactly one recorded id, elected although it cannot be known to hold everything.
        return How.LAST_KNOWN if settings.elr and before.last_known == (after.leader,) else How.UNCLEAN

    def _settings(self) -> Settings:
        replicas = len(self._state.replicas) if self._state is not None else MOST_REPLICAS
        return settings_from(self._given, {**self._of_cluster, **self._of_topic}, replicas)


def settings_from(given: NodeSettings | None, recorded: Mapping[str, str], replication_factor: int) -> Settings:
    """Return the settings in force: recorded changes over what the nodes were started with.

    given:  Kafka's names, as the manifest's `settings`; None: unknown, then the strictest reading holds.
    """
    strictest: NodeSettings = {"min.insync.replicas": MOST_REPLICAS} if given is None else {}
    values = {**strictest, **(given or {}), **recorded}
    zookeeper = values.get("mode") == "zookeeper"
    manager = true(values.get("unclean.recovery.manager.enabled", False))
    strategy = str(values.get("unclean.recovery.strategy", "balanced")).lower()
    return Settings(
        min_isr=integer(values, "min.insync.replicas", 1),
        replication_factor=replication_factor,
        elr=not zookeeper and true(values.get("eligible.leader.replicas.enable", True)),
        unclean=true(values.get("unclean.leader.election.enable", False)),
        recovery=strategy if manager and strategy != "none" else "off",
        high_watermark_needs_min_isr=not zookeeper,
    )


def true(value: object) -> bool:
    """Return whether a setting says yes, given as text or not."""
    return value is True or str(value).lower() == "true"
