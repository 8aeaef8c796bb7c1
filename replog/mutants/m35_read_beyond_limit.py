"""M35: a consumer's read takes its limit before, and the data after, an append.

Evidence: records above the high watermark are read and vanish; a read_committed consumer sees a transaction that is open.
KAFKA-9807, KAFKA-9835.
"""

from replog.broker.partition import Partition
from replog.errors import Error

SCENARIO = "fast-failovers"


def install() -> None:
    """Read to the end of the log as it is by now."""
    strict = Partition._read

    def _read(
        self: Partition, offset: int, max_bytes: int, end_offset: int, *, at_least_one: bool
    ) -> tuple[Error, bytes]:
        return strict(self, offset, max_bytes, self.log.log_end_offset, at_least_one=at_least_one)

    Partition._read = _read  # type: ignore[method-assign]
