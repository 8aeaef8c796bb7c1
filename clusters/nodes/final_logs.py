"""Every replica's log as its files say when the node is down: evidence that asks no node."""

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import UUID

from replog.log import batch
from replog.log.creation import PARTITION_METADATA_FILE
from replog.types import METADATA_TOPIC
from tribunal.clusters.api import LogEntry
from tribunal.results.values import value_in

OWNER: Final = re.compile(rb"^topic_id: ([\w-]{22})$", re.MULTILINE)


def partition_directories(log_dir: Path) -> list[tuple[str, int, Path]]:
    """Return the partitions whose logs lie in a log directory: topic, number, folder; internal ones left out."""
    return [one for one in all_partition_directories(log_dir) if not one[0].startswith("__")]


def all_partition_directories(log_dir: Path) -> list[tuple[str, int, Path]]:
    """Return the partitions whose logs lie in a log directory, those of internal topics too; not the metadata log."""
    found = []
    for folder in sorted(log_dir.iterdir()) if log_dir.is_dir() else []:
        topic, dash, number = folder.name.rpartition("-")
        if folder.is_dir() and dash and number.isdigit() and topic != METADATA_TOPIC:
            found.append((topic, int(number), folder))
    return found


def log_entries(node: int, log_dir: Path) -> Iterator[LogEntry]:
    """Yield every record of a node's replicas by partition and offset; a log ends at its first damaged batch."""
    for topic, partition, folder in partition_directories(log_dir):
        owner = folder / PARTITION_METADATA_FILE
        topic_id = topic_id_of(owner.read_bytes()) if owner.is_file() else None
        for segment in sorted(folder.glob("*.log")):
            yield from segment_entries(node, topic, partition, segment.read_bytes(), topic_id)


def topic_id_of(content: bytes) -> str | None:
    """Return the topic that a log belongs to, as its `partition.metadata` says; None when it says nothing."""
    match = OWNER.search(content)
    return None if match is None else str(UUID(bytes=base64.urlsafe_b64decode(match[1] + b"==")))


def segment_entries(
    node: int, topic: str, partition: int, content: bytes, topic_id: str | None = None
) -> Iterator[LogEntry]:
    """Yield the records of one segment, up to its first damaged batch."""
    try:
        for header in batch.batches(content):
            is_control = header.is_control
            for record in batch.records(content, header):
                value = None if is_control else value_in(record.value)
                yield LogEntry(
                    node=node,
                    topic=topic,
                    partition=partition,
                    log_offset=record.offset,
                    leader_epoch=header.leader_epoch,
                    value=value,
                    batch_first_offset=header.base_offset,
                    is_control=is_control,
                    key=record.key,
                    headers=record.headers,
                    timestamp_ms=record.timestamp_ms,
                    log_append_time=header.is_log_append_time,
                    topic_id=topic_id,
                    foreign_value=record.value if value is None else None,
                )
    except batch.CorruptBatch:
        return


def log_bytes(log_dir: Path) -> dict[str, int]:
    """Return the bytes of log that each partition has on this disk."""
    return {
        f"{topic}-{partition}": sum(segment.stat().st_size for segment in folder.glob("*.log"))
        for topic, partition, folder in partition_directories(log_dir)
    }
