"""M34: a new leader answers with its own late high watermark as the latest offset.

Evidence: the latest offset goes back between two calls. KIP-207, KAFKA-2334.
"""

from replog.broker.partition import OffsetAnswer, Partition

SCENARIO = "fast-failovers"


def install() -> None:
    """Answer as if the epoch had begun at offset 0."""
    strict = Partition.list_offset

    def list_offset(
        self: Partition,
        *,
        current_leader_epoch: int,
        timestamp: int,
        isolation: int,
        is_replica: bool,
        leader_only: bool,
    ) -> OffsetAnswer:
        leadership = self.leadership
        start = 0 if leadership is None else leadership.epoch_start_offset
        if leadership is not None:
            leadership.epoch_start_offset = 0
        try:
            return strict(
                self,
                current_leader_epoch=current_leader_epoch,
                timestamp=timestamp,
                isolation=isolation,
                is_replica=is_replica,
                leader_only=leader_only,
            )
        finally:
            if leadership is not None:
                leadership.epoch_start_offset = start

    Partition.list_offset = list_offset  # type: ignore[method-assign]
