"""The files of a log that begins: laid down together for many logs, they are durable after a few syncs.

`Log.open` makes one log at a time and waits for the disk at each step. A log that lies there already, empty, with its
topic's id and its leader's epoch, opens without any sync, and a crash on the way leaves what a crash in `Log.open` leaves.
"""

import base64
from typing import Final
from uuid import UUID

from replog.log.epochs import EpochCache
from replog.log.recovery import EPOCHS_FILE
from replog.log.segment import LOG_SUFFIX, file_name

PARTITION_METADATA_FILE: Final = "partition.metadata"


def files_of_new_log(topic_id: UUID, *, leader_epoch: int | None) -> dict[str, bytes]:
    """Return the files of an empty log by name.

    leader_epoch:  that begins here; None where this replica follows.
    """
    files = {file_name(0, LOG_SUFFIX): b"", PARTITION_METADATA_FILE: partition_metadata(topic_id)}
    if leader_epoch is not None:
        files[EPOCHS_FILE] = EpochCache([(leader_epoch, 0)]).to_checkpoint()
    return files


def partition_metadata(topic_id: UUID) -> bytes:
    """Return the content of `partition.metadata`."""
    text = base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
    return f"version: 0\ntopic_id: {text}\n".encode()
