"""A follower's side of replication: where to fetch next, where to cut, what to do with errors (SPEC 3.3, 3.4).

The log of a follower is a prefix of its leader's, or it is made one: the leader tells with (epoch, end offset) where
the histories part, and the follower cuts there. It cuts by epochs, never by its high watermark as long as it
knows any epoch (KIP-101): a follower's high watermark lags by one round, and what lies between is committed.

`FetchSource` is the book-keeping for one leader broker: which of its partitions to ask for, and since when not.
"""

from enum import Enum, auto
from typing import Final, Protocol
from uuid import UUID

import msgspec

from replog.errors import Error
from replog.types import LeaderEpoch, TopicPartition

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

    source:  SPEC 3.3. A leader that is shorter than we are was elected uncleanly, or its epoch would have told us.
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

    __slots__ = ("delayed_until_ms", "leader_epoch", "name", "stopped", "topic_id")

    def __init__(self, name: TopicPartition, topic_id: UUID, leader_epoch: LeaderEpoch) -> None:
        self.name = name
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.delayed_until_ms = 0
        self.stopped = False


class FetchSource:
    """The partitions followed at one leader broker, in turn, so that none of them starves."""

    def __init__(self, backoff_ms: int) -> None:
        self.backoff_ms = backoff_ms
        self.states: dict[TopicPartition, FetchState] = {}

    def follow(self, name: TopicPartition, topic_id: UUID, leader_epoch: LeaderEpoch) -> None:
        """Begin, or begin again: each new leader epoch restarts the fetcher (KAFKA-7164, M23)."""
        self.states.pop(name, None)
        self.states[name] = FetchState(name, topic_id, leader_epoch)

    def forget(self, name: TopicPartition) -> None:
        """Stop following."""
        self.states.pop(name, None)

    def due(self, now_ms: int) -> list[FetchState]:
        """Return what to ask for now."""
        return [state for state in self.states.values() if not state.stopped and state.delayed_until_ms <= now_ms]

    def next_due_ms(self) -> int | None:
        """Return when a delayed partition becomes due, or None when nothing is ever due without news."""
        return min((state.delayed_until_ms for state in self.states.values() if not state.stopped), default=None)

    def is_current(self, name: TopicPartition, leader_epoch: LeaderEpoch) -> bool:
        """Tell whether an answer still belongs here: not removed, no newer epoch (SPEC 3.4.6)."""
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
                state.stopped = True
            case Remedy.BACK_OFF:
                self.back_off(name, now_ms)
            case Remedy.RETRY | Remedy.FIND_RANGE:
                pass
        return chosen

    def back_off(self, name: TopicPartition, now_ms: int) -> None:
        """Leave the partition alone for a while."""
        state = self.states.get(name)
        if state is not None:
            state.delayed_until_ms = now_ms + self.backoff_ms

    def stop(self, name: TopicPartition) -> None:
        """Leave the partition alone until metadata moves."""
        state = self.states.get(name)
        if state is not None:
            state.stopped = True
