"""A follower's side of replication: where to fetch next, where to cut, what to do with errors (SPEC 3.3, 3.4).

The log of a follower is a prefix of its leader's, or it is made one: the leader reports with (epoch, end offset) where
the histories part, and the follower cuts there. It cuts by epochs, never by its high watermark as long as it
knows any epoch (KIP-101): a follower's high watermark lags by one round, and what lies between is committed.

`FetchSource` is the book-keeping for one leader broker: what to ask for, what its session knows already, and what rests.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from uuid import UUID

import msgspec

from replog.broker.fetch_sessions import Key, SessionClient
from replog.errors import Error
from replog.types import LeaderEpoch, TopicPartition
from replog.wire.messages.fetch import FetchPartition

if TYPE_CHECKING:
    from replog.node.replication.replicas import Replica

UNKNOWN_EPOCH: Final = -1
UNKNOWN_OFFSET: Final = -1


class Epochs(Protocol):
    """The leader epoch cache, as far as truncation asks it."""

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (largest epoch <= `epoch`, its end offset), or (-1, -1) when undefined (SPEC 3.8.2)."""

    @property
    def latest(self) -> int:
        """The latest epoch, -1 when none is known."""


class Truncation(msgspec.Struct, frozen=True, kw_only=True):
    """Cut the log to `offset`; when not done, the next fetch asks again with the then last epoch."""

    offset: int
    done: bool


class Restart(msgspec.Struct, frozen=True, kw_only=True):
    """Drop the whole log and begin at `offset`: the leader no longer has what would follow ours."""

    offset: int


def truncation_point(
    epochs: Epochs, *, log_end_offset: int, high_watermark: int, leader_epoch: int, leader_end_offset: int
) -> Truncation:
    """Return where to cut after the leader said that `leader_epoch` ends at `leader_end_offset`.

    source:  SPEC 3.4.1; KIP-279 for the intermediate step of an epoch the follower does not know (M29).
    """
    if epochs.latest == UNKNOWN_EPOCH or leader_end_offset == UNKNOWN_OFFSET:
        return Truncation(offset=min(high_watermark, log_end_offset), done=True)
    local_epoch, local_end_offset = epochs.end_offset_for(leader_epoch, log_end_offset)
    if local_epoch == UNKNOWN_EPOCH:
        # The leader names an epoch later than all of ours: our whole log is older than that.
        return Truncation(offset=min(leader_end_offset, log_end_offset), done=True)
    if local_epoch == leader_epoch:
        return Truncation(offset=min(local_end_offset, leader_end_offset, log_end_offset), done=True)
    return Truncation(offset=min(local_end_offset, log_end_offset), done=False)


def after_out_of_range(
    *, log_end_offset: int, leader_log_start_offset: int, leader_log_end_offset: int
) -> Truncation | Restart | None:
    """Return how to come back into the leader's range; None to keep the log and ask again.

    source:  SPEC 3.3. A leader that is shorter than we are was elected uncleanly, or its epoch would have shown it.
    """
    if leader_log_end_offset < log_end_offset:
        return Truncation(offset=leader_log_end_offset, done=True)
    if leader_log_start_offset > log_end_offset:
        return Restart(offset=leader_log_start_offset)
    return None


class Remedy(Enum):
    """What to do about a partition's fetch error."""

    STOP = auto()  # wait for metadata
    RETRY = auto()
    BACK_OFF = auto()
    FIND_RANGE = auto()  # ask the leader for its offsets
    FAIL = auto()  # the local disk is broken


def remedy(error: Error, *, asked_epoch: LeaderEpoch, current_epoch: LeaderEpoch) -> Remedy:
    """Return the remedy for an error of the leader (SPEC 3.3)."""
    match error:
        case Error.FENCED_LEADER_EPOCH:
            return Remedy.STOP if asked_epoch == current_epoch else Remedy.RETRY
        case Error.OFFSET_OUT_OF_RANGE:
            return Remedy.FIND_RANGE
        case _:
            return Remedy.BACK_OFF


class FetchState:
    """One followed partition."""

    __slots__ = ("delayed_until_ms", "hosted", "key", "leader_epoch", "name", "stated", "stopped", "topic_id")

    def __init__(self, name: TopicPartition, topic_id: UUID, leader_epoch: LeaderEpoch) -> None:
        self.name = name
        self.topic_id = topic_id
        self.key: Key = (topic_id, name.partition)  # as fetch sessions name the partition
        self.leader_epoch = leader_epoch
        self.hosted: Replica | None = None  # whoever hosts the partition keeps it here
        self.delayed_until_ms = 0
        self.stopped = False
        self.stated: FetchPartition | None = None  # what the leader's session knows of this very state


class Question(NamedTuple):
    """What to put into the next fetch.

    wanted:     the partitions to be named, with their positions.
    forgotten:  the partitions that the session is to let go.
    """

    wanted: list[tuple[FetchState, FetchPartition]]
    forgotten: list[Key]


class FetchSource:
    """The partitions followed at one leader broker, and the fetch session there (KIP-227).

    Only partitions that changed since they were last named are looked at: new ones, those that were answered, those whose
    rest is over. Without a session all are named, in turn, so that none of them starves.
    """

    def __init__(self, backoff_ms: int) -> None:
        self.backoff_ms = backoff_ms
        self.session = SessionClient()
        self.states: dict[TopicPartition, FetchState] = {}
        self._resting: dict[TopicPartition, FetchState] = {}  # delayed or stopped
        self._changed: dict[TopicPartition, None] = {}
        self._forgotten: dict[Key, None] = {}

    def follow(self, name: TopicPartition, topic_id: UUID, leader_epoch: LeaderEpoch) -> None:
        """Begin, or begin again: each new leader epoch restarts the fetcher (KAFKA-7164, M23)."""
        self.forget(name)
        self.states[name] = FetchState(name, topic_id, leader_epoch)
        self._changed[name] = None

    def forget(self, name: TopicPartition) -> None:
        """Stop following."""
        state = self.states.pop(name, None)
        if state is not None:
            self._resting.pop(name, None)
            self._changed.pop(name, None)
            self._forgotten[state.key] = None

    def changed(self, name: TopicPartition) -> None:
        """Look at our position again with the next fetch."""
        if name in self.states:
            self._changed[name] = None

    def is_due(self, now_ms: int) -> bool:
        """Return whether there is anything to ask for; those whose rest is over are asked for again."""
        if self._resting:
            for state in [state for state in self._resting.values() if not state.stopped]:
                if state.delayed_until_ms <= now_ms:
                    del self._resting[state.name]
                    self._changed[state.name] = None
        return len(self.states) > len(self._resting)

    def next_due_ms(self) -> int | None:
        """Return when a delayed partition becomes due, or None when nothing is ever due without news."""
        return min((state.delayed_until_ms for state in self._resting.values() if not state.stopped), default=None)

    def candidates(self) -> list[FetchState]:
        """Return what the next question may name."""
        if self.session.is_new:
            return [state for name, state in self.states.items() if name not in self._resting]
        return [self.states[name] for name in self._changed if name not in self._resting]

    def question(self, position: Callable[[FetchState], FetchPartition | None]) -> Question:
        """Make the next question, and count it as asked.

        position:  what to ask for a partition; None when it cannot be asked for now.
        """
        session = self.session
        is_new = session.is_new
        wanted: list[tuple[FetchState, FetchPartition]] = []
        for state in self.candidates():
            partition = position(state)
            if partition is None:
                continue
            self._changed.pop(state.name, None)
            if self._forgotten:
                self._forgotten.pop(state.key, None)
            if is_new or session.stated.get(state.key) != partition:
                wanted.append((state, partition))
                session.stated[state.key] = partition
            state.stated = partition
        forgotten: list[Key] = []
        if self._forgotten:
            forgotten = [key for key in self._forgotten if session.stated.pop(key, None) is not None]
            self._forgotten.clear()
        return Question(wanted, forgotten)

    def state_of(self, key: Key, name: TopicPartition) -> FetchState | None:
        """Return the state an answer belongs to: not removed, no newer epoch since it was asked for (SPEC 3.4.6)."""
        state = self.states.get(name)
        return None if state is None or state.stated is None or state.key != key else state

    def is_current(self, name: TopicPartition, leader_epoch: LeaderEpoch) -> bool:
        """Return whether the partition is still followed in this epoch."""
        state = self.states.get(name)
        return state is not None and state.leader_epoch == leader_epoch

    def served(self, name: TopicPartition) -> None:
        """Put a partition that got data behind the others: answers are cut at a total size."""
        state = self.states.pop(name, None)
        if state is not None:
            self.states[name] = state

    def on_error(self, name: TopicPartition, asked_epoch: LeaderEpoch, error: Error, now_ms: int) -> Remedy:
        """Note an error of the leader; return what is left to do."""
        state = self.states[name]
        chosen = remedy(error, asked_epoch=asked_epoch, current_epoch=state.leader_epoch)
        match chosen:
            case Remedy.STOP | Remedy.FAIL:
                self.stop(name)
            case Remedy.BACK_OFF:
                self.back_off(name, now_ms)
            case Remedy.RETRY | Remedy.FIND_RANGE:
                pass
        return chosen

    def on_lost(self, now_ms: int) -> None:
        """Leave all partitions alone for a while; it is unknown what reached the leader."""
        self.session.begin_anew()
        for name, state in self.states.items():
            if not state.stopped:
                self.back_off(name, now_ms)

    def back_off(self, name: TopicPartition, now_ms: int) -> None:
        """Leave the partition alone for a while."""
        state = self.states.get(name)
        if state is not None:
            state.delayed_until_ms = now_ms + self.backoff_ms
            self._rest(state)

    def stop(self, name: TopicPartition) -> None:
        """Leave the partition alone until metadata moves."""
        state = self.states.get(name)
        if state is not None:
            state.stopped = True
            self._rest(state)

    def _rest(self, state: FetchState) -> None:
        self._resting[state.name] = state
        self._changed.pop(state.name, None)
        self._forgotten[state.key] = None
        state.stated = None
