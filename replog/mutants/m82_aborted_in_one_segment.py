"""M82: the list of aborted transactions leaves out those that end in a later segment.

Evidence: a read_committed consumer receives what an aborted transaction wrote (G1a).
"""

from replog.log.log import Log
from replog.log.segment import AbortedTransaction

SCENARIO = "small-segments"


def install() -> None:
    """Look into the first segment of the range only."""
    strict = Log.aborted_transactions

    def aborted_transactions(self: Log, offset: int, end_offset: int) -> list[AbortedTransaction]:
        index = self._segment_index(offset)
        after = self.segments[index + 1].base_offset if index + 1 < len(self.segments) else self.log_end_offset
        return [found for found in strict(self, offset, end_offset) if found.last_offset < after]

    Log.aborted_transactions = aborted_transactions  # type: ignore[method-assign]
