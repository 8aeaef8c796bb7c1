"""Every replica's log as its files say when the node is down: evidence that asks no node."""

import base64
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final
from uuid import UUID

from replog.log import batch
from replog.log.creation import PARTITION_METADATA_FILE
from replog.types import METADATA_TOPIC
from tribunal.clusters.api import ClusterError, DumpedLog, LogEntry
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
        if folder.is_dir() and dash and number.isdecimal() and topic != METADATA_TOPIC:
            found.append((topic, int(number), folder))
    return found


def dumped_logs(node: int, log_dir: Path) -> Iterator[DumpedLog]:
    """Yield a node's replicas by partition; a log ends at its first damaged batch. `ClusterError` where files may not be read."""
    try:
        for topic, partition, folder in partition_directories(log_dir):
            owner = folder / PARTITION_METADATA_FILE
            topic_id = topic_id_of(owner.read_bytes()) if owner.is_file() else None
            segments = [path for path in segments_of(folder) if path.stem.isdecimal()]
            if segments:
                contents = [(int(path.stem), partial(_content, node, path)) for path in segments]
                yield dumped_log(node, (topic, partition), topic_id, contents)
    except OSError as problem:
        raise unreadable(node, problem) from None


def segments_of(folder: Path) -> list[Path]:
    """Return a log's segments, in their order; `OSError` where they may not be looked for (`Path.glob` would find none)."""
    return sorted(path for path in folder.iterdir() if path.suffix == ".log")


def _content(node: int, segment: Path) -> bytes:
    try:
        return segment.read_bytes()
    except OSError as problem:
        raise unreadable(node, problem) from None


def unreadable(node: int, problem: OSError) -> ClusterError:
    """Say that a node's files may not be read: of a log that nobody can read nothing is known."""
    where = f"{problem.filename}: {problem.strerror}"
    return ClusterError(f"node {node}: its files cannot be read: {where}; give this user the right to, or be root")


def dumped_log(
    node: int, place: tuple[str, int], topic_id: str | None, segments: Sequence[tuple[int, Callable[[], bytes]]]
) -> DumpedLog:
    """Return a replica's log as its segments have it: each one's base offset, and what reads it."""
    entries = (entry for _, content in segments for entry in segment_entries(node, *place, content(), topic_id))
    return DumpedLog(node, *place, topic_id, segments[0][0], segments[-1][0], entries)


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
    """Return the bytes of log that each partition has on this disk, and those of the metadata log, which a controller has alone."""
    folders = [folder for _, _, folder in partition_directories(log_dir)]
    folders += sorted(log_dir.glob(f"{METADATA_TOPIC}-*"))
    return {folder.name: sum(segment.stat().st_size for segment in folder.glob("*.log")) for folder in folders}
