"""M05: the clean-shutdown file is written although a directory has failed.

Evidence: the next start takes logs for whole that were never closed: a log end beyond the last whole batch, checksum errors,
lost records. What was never closed need not be on the disk: that shows as soon as the broker has ended (I20). KAFKA-15375, KAFKA-19221.
"""

import json

from replog.log.clean_shutdown import CLEAN_SHUTDOWN_FILE, VERSION
from replog.node.directories.log_directories import LogDirectories
from replog.types import BrokerEpoch

SCENARIO = "failing-directory"


def install() -> None:
    """Vouch for every directory, whatever became of it."""
    close_in_order = LogDirectories.close_in_order

    def vouching_for_all(self: LogDirectories, broker_epoch: BrokerEpoch) -> None:
        close_in_order(self, broker_epoch)
        content = json.dumps({"version": VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        for path in self.offline:
            self.world.disk.replace_file(f"{path}/{CLEAN_SHUTDOWN_FILE}", content.encode())

    LogDirectories.close_in_order = vouching_for_all  # type: ignore[method-assign]
