"""M31: a truncation that cuts no record leaves the epoch entries at the log's end.

Evidence: who led for a moment and wrote nothing keeps an epoch that nobody else has; the next leader says again and again that
their histories part there, and the follower never fetches a record. KAFKA-10706.
"""

from replog.log.log import Log

SCENARIO = "idle-failovers"


def install() -> None:
    """Do nothing where there is no record to cut."""
    strict = Log.truncate_to

    def truncate_to(self: Log, offset: int) -> None:
        if offset < self.log_end_offset:
            strict(self, offset)

    Log.truncate_to = truncate_to  # type: ignore[method-assign]
