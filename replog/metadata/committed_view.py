"""What a controller shows of features, ACLs and SCRAM credentials: what is committed, and nothing before.

The image of an active controller runs ahead of what is committed: it decides the next request by it. Whoever is shown a
feature of it, or let in by an ACL of it, sees what may be lost with that controller. Kafka's controllers publish committed
state alone (`MetadataImage`).
"""

from typing import Final

from replog.metadata.image import Image
from replog.metadata.records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from replog.wire.layout import layout_of
from replog.wire.records.metadata import decode_metadata_record, key_of_record

SHOWN: Final = frozenset(
    layout_of(record).key
    for record in (
        FeatureLevelRecord,
        AccessControlEntryRecord,
        RemoveAccessControlEntryRecord,
        UserScramCredentialRecord,
        RemoveUserScramCredentialRecord,
        # A group of records counts from its end on.
        BeginTransactionRecord,
        EndTransactionRecord,
        AbortTransactionRecord,
    )
)


class CommittedView:
    """Features, ACLs and SCRAM credentials after the last committed record; of all else its image knows nothing."""

    def __init__(self) -> None:
        self.image = Image()
        self.last_offset = -1

    def replay(self, offset: int, value: bytes) -> None:
        """Apply a committed record of the metadata log, as it stands there."""
        self.last_offset = offset
        if key_of_record(value) in SHOWN:
            self.image.replay(decode_metadata_record(value), offset)

    def start_over(self) -> None:
        """Forget everything: a snapshot follows."""
        self.image, self.last_offset = Image(), -1
