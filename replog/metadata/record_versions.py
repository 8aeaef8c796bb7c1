"""Which version of a record may be written under a metadata version, and what of the record that carries.

A cluster that has gone back to an older metadata version writes what software of that version can read (KIP-966,
"Software downgrade"; SPEC 2.13). What an old version cannot carry is gone for everyone at once: the active controller
goes on with the record as the others will read it, or its image would differ from theirs.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from replog.metadata import records as r
from replog.wire.layout import layout_of
from replog.wire.records.metadata import decode_metadata_record, encode_metadata_record

METADATA_VERSION: Final = "metadata.version"
NEWEST: Final = 25  # 4.0-IV3: all that is written without being asked for, and what new clusters begin with
# 4.3-IV0: from 26 to 29 levels say what new clusters begin with and which requests brokers send; 30 brings cordoned directories.
HIGHEST: Final = 30


def record_version(record: r.MetadataRecord, metadata_version: int) -> int:
    """Return the version in which to write a record."""
    for first, version in layout_of(type(record)).levels:
        if metadata_version >= first:
            return version
    return 0


def as_read_back(record: r.MetadataRecord, metadata_version: int) -> r.MetadataRecord:
    """Return the record without what its version leaves out."""
    if metadata_version >= NEWEST or not layout_of(type(record)).levels:
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
