"""M30: a leader epoch is noted with its first record, not when the leadership begins.

Evidence: a follower that asks about the new epoch is out of range, and does not come back. KAFKA-7415, KAFKA-15608.
"""

from replog.broker.identity import BrokerIdentity
from replog.broker.isr import PartitionState
from replog.broker.partition import Effect, Partition
from replog.log.log import Log

SCENARIO = "idle-failovers"


def install() -> None:
    """Write nothing down when leadership begins."""
    become_leader, begin_epoch = Partition._become_leader, Log.begin_epoch
    taking: list[Log] = []

    def _become_leader(
        self: Partition, state: PartitionState, *, identity: BrokerIdentity, now_ms: int, wall_ms: int
    ) -> list[Effect]:
        taking.append(self.log)
        try:
            return become_leader(self, state, identity=identity, now_ms=now_ms, wall_ms=wall_ms)
        finally:
            taking.pop()

    def with_first_record(self: Log, leader_epoch: int) -> None:
        if self not in taking:
            begin_epoch(self, leader_epoch)

    Partition._become_leader = _become_leader  # type: ignore[method-assign]
    Log.begin_epoch = with_first_record  # type: ignore[method-assign]
    Log.begin_epochs = staticmethod(lambda elected: None)  # type: ignore[method-assign]
