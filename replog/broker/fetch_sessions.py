"""Incremental fetch sessions: a fetch names only what changed, and so does its answer (KIP-227).

The serving side keeps, per session, every partition as it was last asked for and what the last answer said of it. A partition is *due*
while the next answer may have to say something of it: there is data, an error, a raised high watermark, or a
reader that is not up to date. All others are not even looked at: an idle session costs nothing, however many partitions it has.
Whoever hosts the partitions marks those that move (`SessionPartition.mark`).

What a replica does not repeat it still claims: its position in an idle partition is as fresh as the session's last fetch. That
is what `Contact` is for; leaders look it up when the log grows (`replog.broker.isr`).

The asking side is `SessionClient`. A session that the server lost, or of which an answer was lost, begins anew.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from replog.broker.isr import Contact
from replog.errors import Error
from replog.types import NO_BROKER_EPOCH, BrokerEpoch, NodeId
from replog.wire.messages.fetch import FetchPartition

if TYPE_CHECKING:
    from random import Random

    from replog.node.api.fetch import Fetch
    from replog.node.replication.replicas import Replica

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0  # a full fetch that would like a session
FINAL_EPOCH: Final = -1  # a full fetch that wants none
LAST_EPOCH: Final = 0x7FFFFFFF
NOT_REPORTED: Final = -1
UNKNOWN_HIGH_WATERMARK: Final = FetchPartition().high_watermark  # of askers that do not say what they know
EVICTION_MS: Final = 120_000
PARTITIONS_MAX: Final = 500_000  # of all sessions together; a request may name any number that are not there

Key = tuple[Hashable, int]  # topic id, or topic name in requests of old versions, and partition


class SessionPartition:
    """A partition of a session: what was asked last, and what was reported."""

    __slots__ = ("hosted", "key", "reported_high_watermark", "reported_log_start_offset", "session", "wanted")

    def __init__(self, session: "FetchSession", key: Key, wanted: FetchPartition) -> None:
        self.session = session
        self.key = key
        self.wanted = wanted
        self.hosted: Replica | None = None  # whoever hosts the partition keeps it here
        self.reported_high_watermark = NOT_REPORTED
        self.reported_log_start_offset = NOT_REPORTED

    def ask(self, wanted: FetchPartition) -> None:
        """Take what is asked now."""
        self.wanted = wanted
        if wanted.high_watermark != UNKNOWN_HIGH_WATERMARK:
            self.reported_high_watermark = wanted.high_watermark
        self.mark()

    def mark(self) -> None:
        """Include it when the next answer is made: the partition changed."""
        self.session.due[self] = None

    @property
    def known_high_watermark(self) -> int:
        """The high watermark that the reader knows, as far as we know."""
        return max(self.wanted.high_watermark, self.reported_high_watermark)

    def is_news(self, high_watermark: int, log_start_offset: int) -> bool:
        """Return whether an answer without records says anything new."""
        return high_watermark != self.reported_high_watermark or log_start_offset != self.reported_log_start_offset

    def report(self, high_watermark: int, log_start_offset: int) -> None:
        """Note what was said; after an error, -1 for both: then recovery is news."""
        self.reported_high_watermark = high_watermark
        self.reported_log_start_offset = log_start_offset

    def unmark(self) -> None:
        """Skip it until the partition changes or is asked for."""
        self.session.due.pop(self, None)

    def rotate(self) -> None:
        """Let the others be looked at first: answers are cut at a total size."""
        due = self.session.due
        if self in due:
            del due[self]
            due[self] = None


class FetchSession:
    """What one reader fetches. With id 0 it is of one request only."""

    def __init__(self, session_id: int, *, replica: NodeId, uses_topic_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.replica = replica  # negative: a consumer
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.next_epoch = 1
        self.broker_epoch: BrokerEpoch = NO_BROKER_EPOCH
        self.partitions: dict[Key, SessionPartition] = {}
        self.due: dict[SessionPartition, None] = {}
        self.waiting: Fetch | None = None  # the fetch that waits for one of the partitions to move
        self.contact = Contact(now_ms) if replica >= 0 and session_id != NO_SESSION else None

    def ask(self, key: Key, wanted: FetchPartition) -> None:
        """Add a partition, or take a new position in one."""
        known = self.partitions.get(key)
        if known is None:
            known = self.partitions[key] = SessionPartition(self, key, wanted)
        known.ask(wanted)

    def forget(self, key: Key) -> SessionPartition | None:
        """Remove a partition; None when it is not in the session."""
        known = self.partitions.pop(key, None)
        if known is not None:
            known.unmark()
        return known

    def mark_all(self) -> None:
        """Look at everything again."""
        self.due = dict.fromkeys(self.partitions.values())

    def fetched(self, broker_epoch: BrokerEpoch, now_ms: int) -> None:
        """Note a fetch of the session's replica: in all its partitions it is where it was."""
        if broker_epoch != self.broker_epoch:
            self.broker_epoch = broker_epoch
            self.mark_all()
        elif self.contact is not None:
            self.contact.last_ms = now_ms


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """How a request goes on.

    is_full:  the answer names every partition, else only what there is to say.
    dropped:  partitions that are in no session any more.
    ended:    sessions that are gone.
    """

    session: FetchSession
    is_full: bool
    dropped: Sequence[SessionPartition]
    ended: Sequence[FetchSession]


class FetchSessions:
    """The sessions of one broker, at most `slots`.

    source:  KIP-227, "Fetch Session Caching": a session that nobody used for two minutes makes room for anyone; one
             that is older than that for a larger one; replicas displace consumers, never the other way round.
    """

    def __init__(
        self, slots: int, random: "Random", *, eviction_ms: int = EVICTION_MS, partitions_max: int = PARTITIONS_MAX
    ) -> None:
        self.slots = slots
        self.partitions_max = partitions_max
        self.partition_count = 0  # of all sessions
        self.eviction_ms = eviction_ms
        self.sessions: dict[int, FetchSession] = {}  # the one used longest ago first
        self._random = random

    def open(
        self,
        *,
        session_id: int,
        epoch: int,
        wanted: Iterable[tuple[Key, FetchPartition]],
        forgotten: Iterable[Key],
        replica: NodeId,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> Opened | Error:
        """Take a request's session fields and partitions."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            return self._begin(session_id, epoch, list(wanted), replica, uses_topic_ids, now_ms)
        session = self.sessions.get(session_id)
        if session is None or session.replica != replica:
            return Error.FETCH_SESSION_ID_NOT_FOUND
        if session.next_epoch != epoch:
            return Error.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return Error.FETCH_SESSION_TOPIC_ID_ERROR
        return self._continue(session, wanted, forgotten, now_ms)

    def _begin(
        self,
        session_id: int,
        epoch: int,
        wanted: list[tuple[Key, FetchPartition]],
        replica: NodeId,
        uses_topic_ids: bool,  # noqa: FBT001 - fields of the request
        now_ms: int,
    ) -> Opened:
        ended = [self.remove(session_id)] if session_id in self.sessions else []
        fresh_id = NO_SESSION
        if epoch == INITIAL_EPOCH and wanted:
            victim = self._victim(is_replica=replica >= 0, size=len(wanted), now_ms=now_ms)
            if victim is not None:
                ended.append(self.remove(victim.session_id))
            if self._has_room(len(wanted)):
                fresh_id = self._fresh_id()
        session = FetchSession(fresh_id, replica=replica, uses_topic_ids=uses_topic_ids, now_ms=now_ms)
        if fresh_id != NO_SESSION:
            self.sessions[fresh_id] = session
        for key, partition in wanted:
            session.ask(key, partition)
        if fresh_id != NO_SESSION:
            self.partition_count += len(session.partitions)
        dropped = [partition for gone in ended for partition in gone.partitions.values()]
        return Opened(session=session, is_full=True, dropped=dropped, ended=ended)

    def _continue(
        self,
        session: FetchSession,
        wanted: Iterable[tuple[Key, FetchPartition]],
        forgotten: Iterable[Key],
        now_ms: int,
    ) -> Opened | Error:
        wanted = list(wanted)
        if wanted and self.partition_count + len(wanted) > self.partitions_max:
            added = sum(key not in session.partitions for key, _ in wanted)
            if added and self.partition_count + added > self.partitions_max:
                return Error.FETCH_SESSION_ID_NOT_FOUND  # it begins anew, and gets no session while there is no room
        count_before = len(session.partitions)
        for key, partition in wanted:
            session.ask(key, partition)
        dropped = [gone for gone in map(session.forget, forgotten) if gone is not None]
        session.next_epoch = session.next_epoch + 1 if session.next_epoch < LAST_EPOCH else 1
        session.last_used_ms = now_ms
        self.partition_count += len(session.partitions) - count_before
        del self.sessions[session.session_id]
        if session.partitions:
            self.sessions[session.session_id] = session
        else:  # nothing is left to be asked: the answer says that the session is over
            session.session_id = NO_SESSION
        return Opened(session=session, is_full=False, dropped=dropped, ended=())

    def remove(self, session_id: int) -> FetchSession:
        """End a session."""
        gone = self.sessions.pop(session_id)
        self.partition_count -= len(gone.partitions)
        return gone

    def _has_room(self, size: int) -> bool:
        return len(self.sessions) < self.slots and self.partition_count + size <= self.partitions_max

    def _victim(self, *, is_replica: bool, size: int, now_ms: int) -> FetchSession | None:
        """Return whom a newcomer may displace; None when there is room, nobody has to go, or the newcomer would not fit all the same."""
        if self._has_room(size):
            return None
        victim = self._displaced(is_replica=is_replica, size=size, now_ms=now_ms)
        if victim is None or self.partition_count - len(victim.partitions) + size > self.partitions_max:
            return None
        return victim

    def _displaced(self, *, is_replica: bool, size: int, now_ms: int) -> FetchSession | None:
        oldest = next(iter(self.sessions.values()), None)
        if oldest is None or now_ms - oldest.last_used_ms > self.eviction_ms:
            return oldest
        evictable = [
            session
            for session in self.sessions.values()
            if now_ms - session.created_ms > self.eviction_ms and (is_replica or session.replica < 0)
        ]
        smallest = min(evictable, key=_rank, default=None)
        return None if smallest is None or (is_replica, size) < _rank(smallest) else smallest

    def _fresh_id(self) -> int:
        while (session_id := self._random.randrange(1, LAST_EPOCH)) in self.sessions:
            pass
        return session_id


def _rank(session: FetchSession) -> tuple[bool, int]:
    return session.replica >= 0, len(session.partitions)


class Asked(NamedTuple):
    """Which fetch an answer belongs to: how often the asking side had begun anew, and the session epoch."""

    beginning: int
    epoch: int


class SessionClient:
    """The asking side: which session to name, and what the server knows of us by it."""

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self.stated: dict[Key, FetchPartition] = {}
        self._beginning = 0

    @property
    def asked(self) -> Asked:
        """Name the fetch that is about to be sent, for `answered`."""
        return Asked(self._beginning, self.epoch)

    @property
    def is_new(self) -> bool:
        """Return whether the next fetch has to name everything."""
        return self.epoch == INITIAL_EPOCH

    def begin_anew(self) -> None:
        """Name everything in the next fetch, and have the old session ended."""
        self.epoch = INITIAL_EPOCH
        self.stated.clear()
        self._beginning += 1

    def answered(self, asked: Asked, error: Error, session_id: int) -> None:
        """Take the session fields of the answer to this fetch."""
        if asked != self.asked:  # it began anew meanwhile
            if asked.epoch == INITIAL_EPOCH and error is Error.NONE:
                self.session_id = session_id  # nobody knows here any more what it has: the next fetch ends it
            return
        if error is Error.FETCH_SESSION_ID_NOT_FOUND:
            self.session_id = NO_SESSION
        if error is not Error.NONE:
            self.begin_anew()
        elif session_id == NO_SESSION:  # it has none for us, or no more
            self.session_id = NO_SESSION
            self.begin_anew()
        elif self.is_new:
            self.session_id, self.epoch = session_id, 1
        else:
            self.epoch = self.epoch + 1 if self.epoch < LAST_EPOCH else 1
