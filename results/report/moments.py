"""A partition's committed states over time."""

from collections.abc import Iterator
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.results.metadata import (
    CONFIG_OF_BROKER,
    CONFIG_OF_TOPIC,
    EMPTIED,
    ClearElrRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    State,
    decoded,
)
from tribunal.results.rows import Metadata, typed
from tribunal.results.store import Recording, partition_order

CLEARED: Final = ClearElrRecord.__name__
MIN_ISR: Final = "min.insync.replicas"


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


def min_isrs(recording: Recording, topic: str, begins_ns: int) -> list[str]:
    """Return a topic's min ISR from a moment on, value after value: a setting of the topic, else of all brokers, else of their files."""
    settings = {} if recording.manifest is None else recording.manifest.settings or {}
    of_files = settings.get(MIN_ISR)
    if of_files is None:
        return []
    of_brokers, of_topic = str(of_files), ""
    found = [of_brokers]
    metadata = recording.table("metadata")
    own = metadata.filter(pc.equal(metadata["record_type"].cast(pa.string()), ConfigRecord.__name__))
    for row in typed(own.sort_by("metadata_offset"), Metadata):
        record = decoded(row.record_type, row.body)
        if not isinstance(record, ConfigRecord) or record.name != MIN_ISR:
            continue
        if (record.resource_type, record.resource_name) == (CONFIG_OF_TOPIC, topic):
            of_topic = record.value or ""
        elif (record.resource_type, record.resource_name) == (CONFIG_OF_BROKER, ""):
            of_brokers = record.value or str(of_files)
        now = of_topic or of_brokers
        if (row.at_ns or 0) <= begins_ns:
            found = [now]
        elif now != found[-1]:
            found.append(now)
    return found
