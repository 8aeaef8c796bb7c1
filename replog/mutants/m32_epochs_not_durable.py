"""M32: the leader epoch checkpoint is written in place and not synced.

Evidence: after a power failure it is torn, or the one from before a truncation: wrong answers about where histories part.
KAFKA-16541.
"""

from collections.abc import Sequence

from replog.log.log import Log
from replog.log.recovery import EPOCHS_FILE

SCENARIO = "power-loss-one"


def install() -> None:
    """Leave it to the page cache."""

    def _save_epochs(self: Log) -> None:
        file = self.disk.open(f"{self.directory}/{EPOCHS_FILE}", create=True)
        try:
            file.truncate(0)
            file.append(self.epochs.to_checkpoint())
        finally:
            file.close()
        self._has_unsaved_epochs = False

    Log._save_epochs = _save_epochs  # type: ignore[method-assign]
    Log.begin_epochs = staticmethod(_one_by_one)  # type: ignore[method-assign]


def _one_by_one(elected: Sequence[tuple[Log, int]]) -> None:
    for log, leader_epoch in elected:
        log.begin_epoch(leader_epoch)
