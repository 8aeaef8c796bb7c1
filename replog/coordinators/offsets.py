"""The offsets that one group has committed, and those that wait for a transaction's end (SPEC 4.3.4, 4.2.12).

An offset counts when its record is committed, and a later record wins, whatever offset it names. Offsets of an open
transaction are held back by producer id; its end marker makes them count, in the order of their own records, or
drops them. From the moment that such a record is offered to the log until its transaction ends the partition is
unstable: who asks for stable offsets only has to retry (KIP-447).
"""

from collections.abc import Iterable

from replog.coordinators.group_records import NO_EXPIRY, CommittedOffset
from replog.types import TopicPartition

Offsets = dict[TopicPartition, CommittedOffset]


class GroupOffsets:
    """Committed offsets of one group."""

    def __init__(self) -> None:
        self.committed: Offsets = {}
        self._pending: dict[int, Offsets] = {}  # producer id -> offsets of its open transaction
        self._offered: dict[int, dict[TopicPartition, int]] = {}  # producer id -> partitions being written, how often

    def __bool__(self) -> bool:
        return bool(self.committed or self._pending or self._offered)

    def commit(self, partition: TopicPartition, committed: CommittedOffset) -> None:
        """Note a committed record; one that was written earlier than what is known does not count."""
        known = self.committed.get(partition)
        if known is None or known.log_offset <= committed.log_offset:
            self.committed[partition] = committed

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """All partitions of which the log has an offset, of open transactions too."""
        return tuple(dict.fromkeys([*self.committed, *(name for held in self._pending.values() for name in held)]))

    @property
    def offered(self) -> tuple[TopicPartition, ...]:
        """All partitions of which transactions' offsets are on their way to the log."""
        return tuple(dict.fromkeys(name for offered in self._offered.values() for name in offered))

    def forget(self, partition: TopicPartition) -> None:
        """Note a tombstone; what open transactions wrote before it goes, too (as in Apache Kafka)."""
        self.committed.pop(partition, None)
        for producer_id, held in list(self._pending.items()):
            held.pop(partition, None)
            if not held:
                del self._pending[producer_id]

    def offer(self, producer_id: int, partitions: Iterable[TopicPartition]) -> None:
        """Note that offsets of a transaction are on their way to the log."""
        offered = self._offered.setdefault(producer_id, {})
        for partition in partitions:
            offered[partition] = offered.get(partition, 0) + 1

    def withdraw(self, producer_id: int, partitions: Iterable[TopicPartition]) -> None:
        """Note that they arrived there, or were refused."""
        offered = self._offered[producer_id]
        for partition in partitions:
            offered[partition] -= 1
            if offered[partition] == 0:
                del offered[partition]
        if not offered:
            del self._offered[producer_id]

    def hold(self, producer_id: int, partition: TopicPartition, committed: CommittedOffset) -> None:
        """Note a committed record within an open transaction."""
        self._pending.setdefault(producer_id, {})[partition] = committed

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Let a transaction's offsets count, or drop them."""
        for partition, offset in self._pending.pop(producer_id, {}).items():
            if committed:
                self.commit(partition, offset)

    def is_stable(self, partition: TopicPartition) -> bool:
        """Return whether no transaction is about to change this partition's offset."""
        return not (
            any(partition in held for held in self._pending.values())
            or any(partition in offered for offered in self._offered.values())
        )

    @property
    def has_pending(self) -> bool:
        """Return whether any transaction is about to change something."""
        return bool(self._pending or self._offered)

    def expired(self, wall_ms: int, *, retention_ms: int, not_before_ms: int) -> list[TopicPartition]:
        """Return partitions whose offset is older than the retention, counted from `not_before_ms` at the earliest, or than its commit said."""

        def is_over(committed: CommittedOffset) -> bool:
            if committed.expire_timestamp_ms != NO_EXPIRY:
                return wall_ms >= committed.expire_timestamp_ms
            return wall_ms - max(committed.commit_timestamp_ms, not_before_ms) >= retention_ms

        return [
            partition
            for partition, committed in self.committed.items()
            if self.is_stable(partition) and is_over(committed)
        ]
