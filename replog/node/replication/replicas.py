"""The replicas that a broker hosts, and everyone who waits for one of them to move.

Cores say what follows from an event; here it is carried out: waiting requests are looked at again, proposals go to
the controller, fetchers start and stop, the journal gets an event. Moves are collected and acted upon once per turn of
the event loop, so that a request that touches many partitions wakes a waiting fetch once.

Single-threaded and without tasks: a request that can be answered at once never leaves its callback.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from replog.broker.fetch_sessions import SessionPartition
from replog.broker.isr import Advance, CommitState, Proposal, Propose, Refuse
from replog.broker.metadata import BrokerMetadata
from replog.broker.partition import Effect, Follow, Lead, Partition, StepDown, Truncated, Unfollow
from replog.broker.purgatory import Deadlines, DelayedProduce, ProduceQueue
from replog.errors import Error
from replog.ports import World
from replog.types import NO_NODE, ZERO_UUID, NodeId, TopicIdPartition, TopicPartition

JOURNAL_INTERVAL_MS: Final = 100


class WaitingFetch(Protocol):
    """A fetch that waits for data, time or bad news."""

    deadline_ms: int
    waits_for_appends: bool  # whether a longer log alone may be worth an answer
    waits_for_watermarks: bool  # the same of a raised high watermark

    def look_again(self, *, is_final: bool) -> bool:
        """Answer if there is enough now, or anyhow when final; return whether it was answered."""


class Replica:
    """A hosted partition with those who wait for it."""

    __slots__ = ("flushes", "is_hosted", "key", "name", "partition", "produces", "watchers")

    def __init__(self, key: TopicIdPartition, partition: Partition) -> None:
        self.key = key
        self.name = partition.name
        self.partition = partition
        self.is_hosted = True
        self.produces = ProduceQueue()
        self.flushes = ProduceQueue()  # acks=1, where a topic's records have to be durable
        self.watchers: dict[SessionPartition, None] = {}  # fetch sessions to be notified of the next change


class Replication(Protocol):
    """Who copies from leaders."""

    def follow(self, replica: Replica, source: NodeId) -> None:
        """Fetch from this broker in the partition's current leader epoch."""

    def unfollow(self, replica: Replica) -> None:
        """Stop fetching."""

    def moved(self, replica: Replica) -> None:
        """Report to the leader, if we follow one, with the next fetch where our log begins now."""


class Proposals(Protocol):
    """Who brings proposals to the controller."""

    def submit(self, replica: Replica, proposal: Proposal, after_ms: int) -> None:
        """Send the proposal, not before `after_ms` from now; a newer one replaces it."""


class EarlyFlushes(Protocol):
    """Who makes logs durable that may not wait for the periodic flush."""

    def grew(self, replica: Replica) -> None:
        """Flush if the log's settings ask for it, now or in time."""

    def forget(self, replica: Replica) -> None:
        """Leave the log alone."""


class Coordination(Protocol):
    """Who coordinates groups and transactions on partitions of the internal topics."""

    def elected(self, replica: Replica) -> None:
        """Begin to coordinate, in the partition's current leader epoch."""

    def resigned(self, replica: Replica) -> None:
        """Stop coordinating, if it was begun."""


class ReplicaPorts(NamedTuple):
    """Who acts on what becomes of replicas."""

    replication: Replication
    proposals: Proposals
    coordination: Coordination
    flushing: EarlyFlushes
    on_truncated: Callable[[], None]


class Replicas:
    """All hosted partitions by name and by id."""

    def __init__(self, world: World, metadata: BrokerMetadata, ports: Callable[["Replicas"], ReplicaPorts]) -> None:
        """`ports` makes those who act on replicas; they find these here, so they come with them."""
        self.world = world
        self.metadata = metadata
        self.node_id = metadata.node_id
        self.by_topic: dict[str, dict[int, Replica]] = {}
        self.by_topic_id: dict[UUID, dict[int, Replica]] = {}
        # Assigned to this broker, but in a log directory that failed: which one, for the report to the controller.
        self.offline: dict[TopicIdPartition, UUID] = {}
        self._grown: dict[Replica, None] = {}  # logs that grew, or of which the role changed
        self._advanced: dict[Replica, None] = {}  # high watermarks that moved
        self._wake_is_due = False
        self._deadlines: Deadlines[DelayedProduce | WaitingFetch] = Deadlines()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._unjournaled: dict[Replica, None] = {}
        self._is_closed = False
        self.replication, self.proposals, self.coordination, self.flushing, self.on_truncated = ports(self)

    # --- who is here ---------------------------------------------------------------------

    def __iter__(self) -> Iterator[Replica]:
        for replicas in list(self.by_topic.values()):
            yield from list(replicas.values())

    def find(self, name: TopicPartition) -> Replica | None:
        """Return a hosted partition by name."""
        return self.by_topic.get(name.topic, {}).get(name.partition)

    def find_by_id(self, topic_id: UUID, partition: int) -> Replica | None:
        """Return a hosted partition by topic id."""
        return self.by_topic_id.get(topic_id, {}).get(partition)

    def missing_error(self, topic: str, topic_id: UUID, index: int) -> Error:
        """Return what to say of a partition that is not hosted here; asked by id unless that is zero."""
        image = self.metadata.image
        known = image.topics_by_name.get(topic) if topic_id == ZERO_UUID else image.topics.get(topic_id)
        if known is None:
            return Error.UNKNOWN_TOPIC_OR_PARTITION if topic_id == ZERO_UUID else Error.UNKNOWN_TOPIC_ID
        if TopicIdPartition(known.topic_id, index) in self.offline:
            return Error.KAFKA_STORAGE_ERROR
        return Error.NOT_LEADER_OR_FOLLOWER if index in known.partitions else Error.UNKNOWN_TOPIC_OR_PARTITION

    def other_leader(self, topic: str, topic_id: UUID, index: int) -> tuple[NodeId, int]:
        """Return who leads instead of us, and since which epoch; (-1, -1) when nobody is known (KIP-951)."""
        image = self.metadata.image
        known = image.topics_by_name.get(topic) if topic_id == ZERO_UUID else image.topics.get(topic_id)
        partition = known.partitions.get(index) if known is not None else None
        if partition is None or partition.leader in (NO_NODE, self.node_id):
            return NO_NODE, -1
        return partition.leader, partition.leader_epoch

    def add(self, replica: Replica) -> None:
        """Host a partition."""
        self.by_topic.setdefault(replica.name.topic, {})[replica.name.partition] = replica
        self.by_topic_id.setdefault(replica.key.topic_id, {})[replica.key.partition] = replica

    def remove(self, replica: Replica) -> None:
        """Host it no more; all who wait are answered."""
        self.perform(replica, replica.partition.resign())
        for index, outer in ((replica.name.topic, self.by_topic), (replica.key.topic_id, self.by_topic_id)):
            inner = outer[index]  # type: ignore[index]
            del inner[replica.key.partition]
            if not inner:
                del outer[index]  # type: ignore[arg-type]
        self._unjournaled.pop(replica, None)
        replica.is_hosted = False
        self.flushing.forget(replica)

    # --- what follows --------------------------------------------------------------------

    def perform(self, replica: Replica, effects: Sequence[Effect]) -> None:
        """Carry out what a partition said, in order."""
        for effect in effects:
            PERFORM[type(effect)](self, replica, effect)

    def grew(self, replica: Replica) -> None:
        """Note an append: followers may be waiting for it."""
        self._grown[replica] = None
        self._wake_soon()
        if replica.partition.log.settings.flushes_early:
            self.flushing.grew(replica)

    def log_start_moved(self, replica: Replica) -> None:
        """Note that old records went: followers report it to their leader, leaders to their followers."""
        self._advanced[replica] = None
        self._wake_soon()
        self.replication.moved(replica)

    def flushed(self, replica: Replica) -> None:
        """Note that a log is durable further than before, or has to be: acknowledgements may be due."""
        self.perform(replica, replica.partition.on_flushed(self.world.clock.now_ms()))
        self._advanced[replica] = None
        self._wake_soon()

    def _advance(self, replica: Replica, _: Effect) -> None:
        self._advanced[replica] = None
        self._wake_soon()
        if replica.partition.leadership is not None:
            if not self._unjournaled:
                asyncio.get_running_loop().call_later(JOURNAL_INTERVAL_MS / 1000, self._journal_watermarks)
            self._unjournaled[replica] = None

    def _propose(self, replica: Replica, effect: Effect) -> None:
        assert isinstance(effect, Propose)
        self.proposals.submit(replica, effect.proposal, effect.after_ms)

    def _step_down(self, replica: Replica, _: Effect) -> None:
        self.coordination.resigned(replica)
        # SPEC 3.7.3: whatever waited under the last leader epoch has an unknown outcome now (M46).
        error = Error.KAFKA_STORAGE_ERROR if replica.partition.is_offline else Error.NOT_LEADER_OR_FOLLOWER
        for queue in (replica.produces, replica.flushes):
            for op in queue.fail(error):
                self._complete(op)
        self.grew(replica)
        self._advanced[replica] = None

    def _follow(self, replica: Replica, effect: Effect) -> None:
        assert isinstance(effect, Follow)
        # What this replica brings into the leader epoch: what it has to cut or to copy follows from here.
        self.world.journal.event(
            "follows",
            node=self.node_id,
            topic=replica.name.topic,
            topic_id=str(replica.partition.topic_id),
            partition=replica.name.partition,
            leader_epoch=replica.partition.leader_epoch,
            leader=effect.source,
            log_end_offset=replica.partition.log.log_end_offset,
        )
        self.replication.follow(replica, effect.source)

    def _unfollow(self, replica: Replica, _: Effect) -> None:
        self.replication.unfollow(replica)

    def _lead(self, replica: Replica, _: Effect) -> None:
        self._journal_watermark(replica)
        self.coordination.elected(replica)

    def _truncated(self, replica: Replica, effect: Effect) -> None:
        assert isinstance(effect, Truncated)
        self.world.journal.event(
            "truncated",
            node=self.node_id,
            topic=replica.name.topic,
            topic_id=str(replica.partition.topic_id),
            partition=replica.name.partition,
            from_offset=effect.from_offset,
            to_offset=effect.to_offset,
            leader_epoch=replica.partition.leader_epoch,
        )
        self.world.journal.probe("log_truncated")
        self.on_truncated()
        self._advanced[replica] = None
        self._wake_soon()

    def _commit_state(self, replica: Replica, _: Effect) -> None:
        self.world.journal.probe("isr_changed")
        self._advanced[replica] = None  # a replica outside of the ISR has to be looked at with each of its fetches
        self._wake_soon()

    # --- waiting -------------------------------------------------------------------------

    def delay_produce(
        self, op: DelayedProduce, waits: Iterable[tuple[Replica, int]], *, is_replicated: bool = True
    ) -> None:
        """Let a produce wait; `waits` names each partition and the index of its result.

        is_replicated:  wait for the high watermark, else only for the leader's own disk.
        """
        for replica, index in waits:
            (replica.produces if is_replicated else replica.flushes).add(op, op.results[index])
        self._deadlines.add(op)
        self._arm_timer()

    def delay_fetch(self, op: WaitingFetch) -> None:
        """Let a fetch wait; sessions know for what."""
        self._deadlines.add(op)
        self._arm_timer()

    def forget_fetch(self, op: WaitingFetch) -> None:
        """Let go of a fetch that was answered."""
        self._deadlines.discard(op)

    def close(self) -> None:
        """Wake nobody any more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _wake_soon(self) -> None:
        if not self._wake_is_due:
            self._wake_is_due = True
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        """Look at all who waited for what moved; produces first, because their outcome is older."""
        self._wake_is_due = False
        if self._is_closed:
            return
        advanced, self._advanced = self._advanced, {}
        grown, self._grown = self._grown, {}
        for replica in advanced:
            leadership = replica.partition.leadership
            if leadership is not None:
                for op in replica.produces.complete_ready(leadership.produce_outcome):
                    self._complete(op)
                for op in replica.flushes.complete_ready(leadership.flush_outcome):
                    self._complete(op)
        fetches: dict[WaitingFetch, None] = {}
        for replica in {**advanced, **grown}:
            for watcher in list(replica.watchers):
                watcher.mark()
                fetch: WaitingFetch | None = watcher.session.waiting
                if fetch is None:
                    del replica.watchers[watcher]  # one notification is enough until its reader comes, if it ever does
                elif (fetch.waits_for_appends and replica in grown) or (
                    fetch.waits_for_watermarks and replica in advanced
                ):
                    fetches[fetch] = None
        for fetch in fetches:
            fetch.look_again(is_final=False)

    def _complete(self, op: DelayedProduce) -> None:
        self._deadlines.discard(op)
        op.respond(op.results)

    def _arm_timer(self) -> None:
        next_ms = self._deadlines.next_ms
        if next_ms is None or (self._timer is not None and self._timer_ms <= next_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = next_ms
        delay_ms = max(0, next_ms - self.world.clock.now_ms())
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        for op in self._deadlines.expire(self.world.clock.now_ms()):
            if isinstance(op, DelayedProduce):
                op.time_out()
                op.respond(op.results)
            else:
                op.look_again(is_final=True)
        self._arm_timer()

    # --- journal -------------------------------------------------------------------------

    def _journal_watermarks(self) -> None:
        moved, self._unjournaled = self._unjournaled, {}
        for replica in moved:
            if replica.partition.leadership is not None and not self._is_closed:
                self._journal_watermark(replica)

    def _journal_watermark(self, replica: Replica) -> None:
        partition = replica.partition
        self.world.journal.event(
            "high_watermark",
            node=self.node_id,
            topic=replica.name.topic,
            topic_id=str(partition.topic_id),
            partition=replica.name.partition,
            leader_epoch=partition.leader_epoch,
            high_watermark=partition.high_watermark,
            log_end_offset=partition.log.log_end_offset,
            log_start_offset=partition.log.log_start_offset,
            last_stable_offset=partition.last_stable_offset,
        )


def _refuse(_: Replicas, replica: Replica, effect: Effect) -> None:
    raise AssertionError(f"{replica.name}: {effect} belongs into an answer")


PERFORM: Final[dict[type[Effect], Callable[[Replicas, Replica, Effect], None]]] = {
    Advance: Replicas._advance,
    Propose: Replicas._propose,
    StepDown: Replicas._step_down,
    Follow: Replicas._follow,
    Unfollow: Replicas._unfollow,
    Lead: Replicas._lead,
    Truncated: Replicas._truncated,
    CommitState: Replicas._commit_state,
    Refuse: _refuse,
}
