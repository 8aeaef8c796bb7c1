"""What the watch raises: an invariant of docs/invariants.md does not hold."""

import msgspec

from replog.types import TopicPartition
from tribunal.clusters.api import PartitionState
from tribunal.clusters.simulated.replica_logs import BatchMark
from tribunal.results.violation import Batch, CommittedPartition, Facts, Invariant, Violation
from tribunal.results.words import of_violation


class Violated(AssertionError):
    """An invariant does not hold, in this state, after this event."""

    def __init__(
        self,
        invariant: Invariant,
        facts: Facts,
        *,
        partition: TopicPartition | None = None,
        log_offset: int | None = None,
        node: int | None = None,
        epoch: int | None = None,
    ) -> None:
        topic, number = (None, None) if partition is None else partition
        self.violation = Violation(
            invariant=invariant, facts=facts, topic=topic, partition=number, log_offset=log_offset, node=node, epoch=epoch
        )  # fmt: skip
        super().__init__(self.violation)
        self.at_ns = 0
        self.event_count = 0

    @property
    def invariant(self) -> Invariant:
        """Which one."""
        return self.violation.invariant

    def __str__(self) -> str:
        return f"{self.invariant}: {of_violation(self.violation)}"


def batch_of(mark: BatchMark) -> Batch:
    """Return a batch of a log as a fact."""
    return msgspec.convert(mark, Batch, from_attributes=True)


def state_of(state: PartitionState) -> CommittedPartition:
    """Return a committed state as a fact."""
    return msgspec.convert(state, CommittedPartition, from_attributes=True)
