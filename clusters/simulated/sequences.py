"""The sequences of idempotent producers in each replica's log (I17).

A leader takes any sequence from a producer that it does not know. By right it does not know one whose last batch it has never held (retention or
DeleteRecords had taken that from the log that it copied: docs/decisions/0011-a-follower-whose-history-the-leader-deleted.md), and one that it may have
forgotten: it wrote nothing for `producer.id.expiration.ms`, by the wall clock of that node, and has no transaction open there. Replicas that hold
what the leader did not know have both.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from replog.types import TopicPartition
from tribunal.clusters.simulated.replica_logs import BatchMark, ReplicaLog
from tribunal.clusters.simulated.violation import Violated
from tribunal.clusters.simulated.world import Machine
from tribunal.results.violation import Invariant, OutOfSequence

SEQUENCE_MODULUS: Final = 1 << 31


class Moment(NamedTuple):
    """When something was written: in virtual time, and by the wall clock of the node."""

    virtual_ns: int
    wall_ms: int


class Expiration(NamedTuple):
    """For how long a node remembers a silent producer, by its own wall clock."""

    machine: Machine
    after_ms: int

    def now(self) -> Moment:
        """Return the present moment, no later than what the node writes now."""
        virtual_ns = self.machine.simulation.loop.now_ns
        return Moment(virtual_ns, self.machine.wall_ms(virtual_ns))

    def may_have_ended(self, since: Moment) -> bool:
        """Return whether the node's clock has shown, since then, a time at which a producer could be forgotten."""
        return self.machine.latest_wall_ms(since.virtual_ns) - since.wall_ms >= self.after_ms


class _Seen(NamedTuple):
    """A producer's last batch or marker in a log. is_open: its transaction is."""

    at: Moment
    is_open: bool


class Sequences:
    """I17: the sequences of an idempotent producer are gapless and unique in a replica's log, as far as the leaders that wrote it knew the producer."""

    def __init__(
        self, partition: TopicPartition, node: int, expiration: Expiration, forgotten: dict[BatchMark, None]
    ) -> None:
        """Follow a replica.

        forgotten:  is filled with the batches before which this node may have forgotten their producer.
        """
        self._partition = partition
        self._node = node
        self._expiration = expiration
        self._forgotten = forgotten
        self._count = 0  # batches of the log that are accounted for
        # producer id -> epoch, next sequence, offset of its last batch
        self._next: dict[int, tuple[int, int, int]] = {}
        self._last: dict[int, _Seen] = {}
        self._before: dict[int, _Seen] = {}  # of producers of which the log may hold nothing any more
        self._written: dict[BatchMark, Moment] = {}
        self.lowest: int | None = None  # the first offset that this replica has ever held

    def see(self, log: ReplicaLog, first: int, unknown: Callable[[BatchMark, int], bool]) -> None:
        """Take new batches; after a cut, count again.

        unknown:  whether who wrote a batch, as leader of its epoch, by right did not know of what its producer had written up to an offset.
        """
        if log.batches:
            begins = log.batches[0].base_offset
            self.lowest = begins if self.lowest is None else min(self.lowest, begins)
        if first < self._count:
            self._before |= self._last
            self._count, self._next, self._last = 0, {}, {}
        for mark in log.batches[self._count :]:
            if mark.producer_id >= 0:
                self._note(mark)
                # Offsets that a transaction commits have a producer and no sequences (SPEC 4.2).
                if mark.first_sequence >= 0 and not mark.is_control:
                    self._take(mark, unknown)
        self._count = len(log.batches)

    def _note(self, mark: BatchMark) -> None:
        producer_id = mark.producer_id
        last = self._last.get(producer_id, self._before.get(producer_id))
        at = self._written.get(mark)
        if at is None:
            at = self._written[mark] = self._expiration.now()
            if last is not None and not last.is_open and self._expiration.may_have_ended(last.at):
                self._forgotten[mark] = None
        was_open = producer_id in self._last and self._last[producer_id].is_open
        self._last[producer_id] = _Seen(at, not mark.is_control and (was_open or mark.is_transactional))

    def _take(self, mark: BatchMark, unknown: Callable[[BatchMark, int], bool]) -> None:
        known = self._next.get(mark.producer_id)
        if known is not None:
            epoch, expected, last_offset = known
            if mark.producer_epoch > epoch:
                expected = 0
            follows = mark.producer_epoch >= epoch and mark.first_sequence == expected
            if not follows and not unknown(mark, last_offset):
                raise Violated(
                    Invariant.I17,
                    OutOfSequence(
                        producer_id=mark.producer_id,
                        producer_epoch=mark.producer_epoch,
                        sequence=mark.first_sequence,
                        expected=expected,
                        expected_epoch=epoch,
                    ),
                    partition=self._partition,
                    log_offset=mark.base_offset,
                    node=self._node,
                    epoch=mark.epoch,
                )
        count = mark.last_offset - mark.base_offset + 1
        following = (mark.first_sequence + count) % SEQUENCE_MODULUS
        self._next[mark.producer_id] = (mark.producer_epoch, following, mark.last_offset)
