"""M34: a new leader tells its own late high watermark as the latest offset.

Evidence: the latest offset goes back between two calls. KIP-207, KAFKA-2334.
"""

from typing import Any

from replog.broker.partition import OffsetAnswer, Partition

SCENARIO = "fast-failovers"


def install() -> None:
    """Answer as if the epoch had begun at offset 0."""
    strict = Partition.list_offset

    def list_offset(self: Partition, **given: Any) -> OffsetAnswer:
        leadership = self.leadership
        if leadership is None:
            return strict(self, **given)
        start, leadership.epoch_start_offset = leadership.epoch_start_offset, 0
        try:
            return strict(self, **given)
        finally:
            leadership.epoch_start_offset = start

    Partition.list_offset = list_offset  # type: ignore[method-assign]
