"""Which version of a record may be written under a metadata version, and what of the record that carries.

A cluster that has gone back to an older metadata version writes what software of that version can read (KIP-966,
"Software downgrade"; SPEC 2.13). What an old version cannot carry is gone for everyone at once: the active controller
goes on with the record as the others will read it, or its image would differ from theirs.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from replog.metadata import records as r
from replog.wire.records.metadata import decode_metadata_record, encode_metadata_record

METADATA_VERSION: Final = "metadata.version"
NEWEST: Final = 25  # 4.0-IV3, all that this software writes

# Record -> (from this metadata version on, this record version), newest first. Of what is not named there is one only.
# Versions beyond (log directories that are cordoned) belong to metadata versions that this software does not know.
_VERSIONS: Final[dict[type[r.MetadataRecord], tuple[tuple[int, int], ...]]] = {
    r.RegisterBrokerRecord: ((17, 3), (8, 2), (7, 1)),
    r.BrokerRegistrationChangeRecord: ((17, 2), (7, 1)),
    r.PartitionRecord: ((23, 2), (17, 1), (0, 0)),
    r.PartitionChangeRecord: ((23, 2), (17, 1), (0, 0)),
}


def record_version(record: r.MetadataRecord, metadata_version: int) -> int:
    """Return the version in which to write a record."""
    for first, version in _VERSIONS.get(type(record), ()):
        if metadata_version >= first:
            return version
    return 0


def as_read_back(record: r.MetadataRecord, metadata_version: int) -> r.MetadataRecord:
    """Return the record without what its version leaves out."""
    if metadata_version >= NEWEST or type(record) not in _VERSIONS:
        return record
    return decode_metadata_record(encode_metadata_record(record, record_version(record, metadata_version)))


class RecordWriter:
    """Encodes records in the order of the log; one that changes the metadata version holds for those after it."""

    def __init__(self, metadata_version: int) -> None:
        """Begin with the metadata version that is in force."""
        self.metadata_version = metadata_version

    def encoded(self, records: Iterable[r.MetadataRecord]) -> Iterator[bytes]:
        """Yield records as they stand on the log."""
        for record in records:
            yield encode_metadata_record(record, record_version(record, self.metadata_version))
            if isinstance(record, r.FeatureLevelRecord) and record.name == METADATA_VERSION:
                self.metadata_version = record.feature_level
