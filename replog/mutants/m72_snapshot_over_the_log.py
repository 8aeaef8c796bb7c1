"""M72: a snapshot is installed and the log before it stays.

Evidence: what is fetched next does not stand where it belongs: a record is applied twice or never.
"""

from replog.node.quorum.metadata_log import MetadataLog
from replog.quorum.messages import OffsetAndEpoch

SCENARIO = "metadata-snapshots"


def install() -> None:
    """Keep the snapshot, and keep the log."""

    def install_beside(self: MetadataLog, snapshot: OffsetAndEpoch) -> None:
        self._freeze(snapshot)

    MetadataLog.install = install_beside  # type: ignore[method-assign]
