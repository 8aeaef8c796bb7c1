"""One broker of a small world: the product's `Partition`, `LeaderState`, `Log` and `BrokerMetadata` without their shell.

What the shell does besides is done here in its order: settings, roles, brokers after each batch of metadata (replog/node/hosting.py),
fetched answers (replog/node/replication/copying.py), one proposal under way (replog/node/replication/proposals.py).

Time is abstract. Only one span matters to these cores, the allowed lag: a moment is either within it or longer ago. So after each
event the moments that the leader keeps are set to one of two values, and the clock stands still between events.
"""

from collections.abc import Hashable, Iterable
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from replog.broker.identity import BrokerIdentity
from replog.broker.isr import NEVER_MS, AlterPartitionAnswer, LeaderState, Proposal, Propose
from replog.broker.metadata import Assigned, BrokerMetadata
from replog.broker.partition import Effect, FetchAnswer, Partition
from replog.errors import Error
from replog.log.batch import NewRecord, batches, build, records
from replog.log.log import Log
from replog.log.settings import LogSettings
from replog.metadata import records as r
from replog.types import BrokerEpoch, LeaderRecoveryState, NodeId, TopicIdPartition, TopicPartition
from tribunal.clusters.simulated.disk import SimulatedDisk
from tribunal.harness.explore.cores import NO_CHANCE

TOPIC: Final = "t"
TOPIC_ID: Final = UUID(int=7)
KEY: Final = TopicIdPartition(TOPIC_ID, 0)
DIRECTORY: Final = "data/t-0"
MIN_ISR: Final = "min.insync.replicas"
LAG_MS: Final = 30_000
NOW_MS: Final = 1_000_000
WALL_MS: Final = 1_700_000_000_000
PLENTY_BYTES: Final = 1 << 20

Stored = tuple[tuple[int, int], ...]  # of a log: leader epoch and value of each record, from offset 0


class Fetch(msgspec.Struct, frozen=True):
    """What a follower asks its leader."""

    replica: NodeId
    broker_epoch: BrokerEpoch
    leader_epoch: int
    offset: int
    last_epoch: int
    high_watermark: int


class Fetched(msgspec.Struct, frozen=True):
    """What the leader answered, and the range that it had then."""

    leader_epoch: int
    answer: FetchAnswer
    log_start_offset: int
    log_end_offset: int


class Proposed(msgspec.Struct, frozen=True):
    """A proposal under way, as it goes over the wire."""

    sender: NodeId
    broker_epoch: BrokerEpoch
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[NodeId, BrokerEpoch], ...]
    recovery: LeaderRecoveryState


class Seen(NamedTuple):
    """What invariants and readers look at, of one broker."""

    alive: bool
    has_lost: bool  # its tail, and has not registered since
    stored: Stored
    broker_epoch: BrokerEpoch
    min_isr: int
    high_watermark: int
    leader_epoch: int
    leads: bool
    recovering: bool
    source: NodeId | None  # whom it follows
    isr: tuple[NodeId, ...]
    pending: Proposed | None


class SmallBroker:
    """A broker with one replica; dead ones keep their disk."""

    def __init__(self, node: NodeId, min_isr: int) -> None:
        """`min_isr` is what the broker's own file says."""
        self.identity = BrokerIdentity(node, UUID(int=node))
        self.min_isr = min_isr
        self.disk = SimulatedDisk(NO_CHANCE)
        self.metadata = BrokerMetadata(node)
        self.partition: Partition | None = None
        self.has_lost = False

    @property
    def node(self) -> NodeId:
        """Its id."""
        return self.identity.node_id

    # --- events

    def crash(self, *, loses_tail: bool) -> None:
        """End the process; and, if asked, all that the log had not synced."""
        if loses_tail:
            log = self._open()
            if log.log_end_offset:
                log.truncate_to(0)
                self.has_lost = True
        self.partition = None
        self.identity = BrokerIdentity(self.node, UUID(int=self.node))
        self.metadata = BrokerMetadata(self.node)

    def start(self, epoch: BrokerEpoch, last_offset: int, image: Iterable[r.MetadataRecord]) -> list[Proposed]:
        """Begin a new incarnation, registered with this epoch, from the committed metadata up to its registration."""
        self.identity.broker_epoch = epoch
        self.has_lost = False
        self.metadata.restore(last_offset, image)
        return self._update()

    def replay(self, batch: Iterable[tuple[int, r.MetadataRecord]]) -> list[Proposed]:
        """Replay the next committed batch and act upon it."""
        batch = tuple(batch)
        # Equal states may have come by different numbers of records; how many is not part of a state.
        self.metadata.image.last_offset = batch[0][0] - 1
        self.metadata.replay(batch)
        return self._update()

    def produce(self, value: int) -> None:
        """Append a record of an acks=all producer; or refuse it."""
        assert self.partition is not None
        batch = build([NewRecord(None, b"%d" % value)], timestamp_ms=WALL_MS)
        self.partition.append(batch, acks=-1, now_ms=NOW_MS, wall_ms=WALL_MS)

    def lag(self) -> list[Proposed]:
        """Let more than the allowed lag pass without a fetch."""
        leadership = self._leadership()
        now_ms = NOW_MS + LAG_MS + 1
        effects = leadership.on_tick(now_ms)
        _forget_moments(leadership, now_ms)
        return self._perform(effects)

    def retry(self) -> list[Proposed]:
        """Send the proposal under way again: no answer came."""
        pending = self._leadership().pending
        return [] if pending is None else [self._proposed(pending)]

    def fetch(self) -> Fetch | None:
        """Return what this follower would ask its leader; None when it follows nobody."""
        partition = self.partition
        if partition is None or partition.leadership is not None or self.source is None:
            return None
        log = partition.log
        return Fetch(
            replica=self.node,
            broker_epoch=self.identity.broker_epoch,
            leader_epoch=partition.leader_epoch,
            offset=log.log_end_offset,
            last_epoch=log.last_epoch,
            high_watermark=partition.high_watermark,
        )

    def answer_fetch(self, fetch: Fetch) -> tuple[Fetched, list[Proposed]]:
        """Answer a replica's fetch."""
        assert self.partition is not None
        answer, effects = self.partition.fetch_as_replica(
            replica=fetch.replica,
            broker_epoch=fetch.broker_epoch,
            current_leader_epoch=fetch.leader_epoch,
            fetch_offset=fetch.offset,
            last_fetched_epoch=fetch.last_epoch,
            log_start_offset=0,
            known_high_watermark=fetch.high_watermark,
            max_bytes=PLENTY_BYTES,
            at_least_one=True,
            takes_position=True,
            now_ms=NOW_MS,
        )
        log = self.partition.log
        return Fetched(fetch.leader_epoch, answer, log.log_start_offset, log.log_end_offset), self._perform(effects)

    def take_fetched(self, fetched: Fetched) -> None:
        """Take an answer; one of an earlier leader epoch is thrown away."""
        partition, answer = self.partition, fetched.answer
        assert partition is not None
        if partition.leadership is not None or fetched.leader_epoch != partition.leader_epoch:
            return
        if answer.error is Error.OFFSET_OUT_OF_RANGE:
            partition.on_leader_range(log_start_offset=fetched.log_start_offset, log_end_offset=fetched.log_end_offset)
        elif answer.diverging is not None:
            partition.on_divergence(*answer.diverging, leader_log_start_offset=answer.log_start_offset)
        elif answer.error is Error.NONE:
            partition.on_fetched(
                answer.records,
                high_watermark=answer.high_watermark,
                log_start_offset=answer.log_start_offset,
                wall_ms=WALL_MS,
            )

    def take_answer(self, proposed: Proposed, answer: AlterPartitionAnswer) -> list[Proposed]:
        """Take the controller's answer, if it is to the proposal under way."""
        leadership = None if self.partition is None else self.partition.leadership
        if leadership is None or leadership.pending is None or self._proposed(leadership.pending) != proposed:
            return []
        return self._perform(leadership.on_alter_partition_answer(leadership.pending, answer, NOW_MS))

    # --- what the shell does

    def _open(self) -> Log:
        return Log.open(
            self.disk,
            DIRECTORY,
            LogSettings(),
            recover=True,
            recovery_point=0,
            log_start_offset=0,
            now_ms=WALL_MS,
        )

    def _update(self) -> list[Proposed]:
        change = self.metadata.take_change()
        if change is None:
            return []
        effects: list[Effect] = []
        image = self.metadata.image
        if self.partition is not None and (change.topics is None or TOPIC in change.topics):
            effects += self.partition.on_min_insync_replicas(self._min_insync_replicas(), NOW_MS)
        if KEY in change.partitions or (self.partition is None and image.partition(*KEY) is not None):
            effects += self._assign()
        if change.brokers and self.partition is not None and self.partition.leadership is not None:
            effects += self.partition.leadership.on_brokers(NOW_MS)
        return self._perform(effects)

    def _assign(self) -> list[Effect]:
        action = self.metadata.action(KEY)
        assert isinstance(action, Assigned)
        if self.partition is None:
            self.partition = Partition(
                name=TopicPartition(TOPIC, 0),
                topic_id=TOPIC_ID,
                node_id=self.node,
                log=self._open(),
                high_watermark=0,  # the checkpoint is written now and then: a kill may leave any former one
                brokers=self.metadata.brokers,
                lag_ms_max=LAG_MS,
                refuses_while_recovering=True,
            )
            self.partition.min_insync_replicas = self._min_insync_replicas()
        return self.partition.on_metadata(action.state, identity=self.identity, now_ms=NOW_MS, wall_ms=WALL_MS)

    def _min_insync_replicas(self) -> int:
        image = self.metadata.image
        own, shared = image.topic_config(TOPIC, MIN_ISR), image.cluster_config(MIN_ISR)
        return int(own or shared or self.min_isr)

    def _perform(self, effects: Iterable[Effect]) -> list[Proposed]:
        leadership = None if self.partition is None else self.partition.leadership
        if leadership is not None:
            _forget_moments(leadership, NOW_MS)
        return [self._proposed(effect.proposal) for effect in effects if isinstance(effect, Propose)]

    def _proposed(self, proposal: Proposal) -> Proposed:
        return Proposed(
            sender=self.node,
            broker_epoch=self.identity.broker_epoch,
            leader_epoch=proposal.leader_epoch,
            partition_epoch=proposal.partition_epoch,
            isr=proposal.isr,
            recovery=proposal.recovery,
        )

    def _leadership(self) -> LeaderState:
        assert self.partition is not None
        assert self.partition.leadership is not None
        return self.partition.leadership

    # --- what is

    @property
    def source(self) -> NodeId | None:
        """Whom it follows."""
        state = None if self.partition is None else self.partition.state
        return None if state is None or state.leader in (-1, self.node) else state.leader

    def seen(self) -> Seen:
        """Return what invariants look at."""
        partition = self.partition
        leadership = None if partition is None else partition.leadership
        state = None if partition is None else partition.state
        return Seen(
            alive=self.identity.is_registered,
            has_lost=self.has_lost,
            stored=_stored(self._open() if partition is None else partition.log),
            broker_epoch=self.identity.broker_epoch,
            min_isr=0 if partition is None else partition.min_insync_replicas,
            high_watermark=0 if partition is None else partition.high_watermark,
            leader_epoch=-1 if partition is None else partition.leader_epoch,
            leads=leadership is not None,
            recovering=partition is not None and partition.is_recovering,
            source=self.source,
            isr=() if state is None else state.isr,
            pending=None if leadership is None or leadership.pending is None else self._proposed(leadership.pending),
        )

    def key(self) -> Hashable:
        """Return all that can matter to what it does next."""
        partition, image = self.partition, self.metadata.image
        return (
            self.node,
            self.seen(),
            image.partition(*KEY),
            tuple(self.metadata.brokers.items()),
            None if partition is None else _partition_key(partition),
        )


def _partition_key(partition: Partition) -> Hashable:
    leadership = partition.leadership
    return (
        partition._state,
        partition._committed_elsewhere,
        partition._high_watermark,
        tuple(partition.log.epochs.entries),
        None if leadership is None else _leadership_key(leadership),
    )


def _leadership_key(leadership: LeaderState) -> Hashable:
    return (
        leadership.state,
        leadership.maximal_isr,
        leadership.high_watermark,
        leadership.epoch_start_offset,
        tuple(
            (
                replica,
                follower.log_end_offset,
                follower.last_caught_up_ms,
                follower.last_fetch_ms,
                follower.last_fetch_leader_log_end_offset,
                follower.broker_epoch,
            )
            for replica, follower in leadership.followers.items()
        ),
    )


def _forget_moments(leadership: LeaderState, now_ms: int) -> None:
    """Keep of each moment whether it is longer ago than the allowed lag: nothing else is ever asked of it."""
    for follower in leadership.followers.values():
        recently = now_ms - follower.last_caught_up_ms <= leadership.lag_ms_max
        follower.last_caught_up_ms = NOW_MS if recently else NEVER_MS
        recently = now_ms - follower.last_fetch_ms <= leadership.lag_ms_max
        follower.last_fetch_ms = NOW_MS if recently else NEVER_MS


def _stored(log: Log) -> Stored:
    found: list[tuple[int, int]] = []
    while len(found) < log.log_end_offset:
        chunk = log.read(len(found), max_bytes=PLENTY_BYTES, end_offset=log.log_end_offset, at_least_one=True)
        for header in batches(chunk):
            found += [(header.leader_epoch, int(record.value or b"-1")) for record in records(chunk, header)]
    return tuple(found)
