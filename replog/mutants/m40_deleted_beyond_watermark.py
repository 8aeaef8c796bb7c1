"""M40: retention deletes segments that are not replicated.

Evidence: the log start lies beyond the high watermark; after a fail-over the first offset is beyond the last. KAFKA-5634.
"""

from replog.log.log import Log

SCENARIO = "retention"


def install() -> None:
    """Ask for age and size only."""
    strict = Log._first_may_go

    def _first_may_go(self: Log, now_ms: int, high_watermark: int) -> bool:
        return strict(self, now_ms, self.log_end_offset)

    Log._first_may_go = _first_may_go  # type: ignore[method-assign]
