"""A partition's committed states over time."""

from collections.abc import Iterator
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.results.metadata import EMPTIED, ClearElrRecord, PartitionChangeRecord, PartitionRecord, State, decoded
from tribunal.results.rows import Metadata, typed
from tribunal.results.store import Recording, partition_order

CLEARED: Final = ClearElrRecord.__name__


class Change(msgspec.Struct, frozen=True):
    """A partition's state from a moment on."""

    at_ns: int
    state: State


def changes_of(recording: Recording, name: str) -> Iterator[Change]:
    """Yield the states of the partition `topic-p` in the order of the metadata log."""
    topic, partition = partition_order(name)
    metadata = recording.table("metadata")
    own = pc.and_(pc.equal(metadata["topic"].cast(pa.string()), topic), pc.equal(metadata["partition"], partition))
    own = pc.or_(pc.fill_null(own, fill_value=False), pc.equal(metadata["record_type"].cast(pa.string()), CLEARED))
    state: State | None = None
    for row in typed(metadata.filter(own).sort_by("metadata_offset"), Metadata):
        match decoded(row.record_type, row.body):
            case PartitionRecord() as created:
                state = State.created_by(created)
            case PartitionChangeRecord() as change if state is not None:
                state = state.changed_by(change)
            case ClearElrRecord() as cleared if state is not None and cleared.names(topic):
                state = state.changed_by(EMPTIED)
            case _:
                continue  # other records leave the state as it is
        if state is not None:
            yield Change(row.at_ns or 0, state)
