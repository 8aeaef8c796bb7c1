"""M68: voters count and claim what they have not made durable.

Evidence: a committed metadata record is lost when a majority loses power. Derived from KIP-595.
"""

from replog.quorum.replication import Replication

SCENARIO = "unsynced-metadata"


def install() -> None:
    """Take the log for durable as soon as its sync was asked for."""
    strict = Replication.sync_due

    def sync_due(self: Replication) -> None:
        strict(self)
        self._state.log.synced_offset = self._state.log.end_offset

    Replication.sync_due = sync_due  # type: ignore[method-assign]
