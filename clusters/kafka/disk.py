"""What Apache Kafka's own files say: how far they were flushed, and whether the last process ended in good order.

Kafka writes records to the page cache and leaves flushing to the kernel (`log.flush.interval.messages` is endless). What it
answers for as flushed is the recovery point: it moves when a segment is rolled and at an orderly end, and
`recovery-point-offset-checkpoint` says so. A power failure may take everything behind it, and that is what is taken here:
never a byte that Kafka has claimed to be on the disk. The metadata log is spared: Raft flushes every append before it counts.
"""

from pathlib import Path
from typing import Final

import msgspec

from replog.log import batch
from replog.log.batch import CorruptBatch
from replog.log.checkpoints import RECOVERY_POINTS, CorruptCheckpoint, parsed_lines
from replog.types import METADATA_TOPIC
from tribunal.clusters.api import Proof
from tribunal.clusters.nodes.log_damage import log_ends
from tribunal.results.unreadable import UNREADABLE

CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
INDEXES: Final = (".index", ".timeindex", ".txnindex")  # of a segment; Kafka builds them anew where they are missing


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """What a power failure took."""

    file_count: int
    byte_count: int


class _CleanShutdown(msgspec.Struct, frozen=True, rename="camel"):
    broker_epoch: int = -1


def previous_broker_epoch(data: Path) -> int | None:
    """Return the broker epoch with which the previous process ended in good order; -1 when it did not, or there was none; None where that may not be read.

    It is what the broker will say of itself when it registers (KIP-966): it reads the same file, and then removes it.
    """
    try:
        return msgspec.json.decode((data / CLEAN_SHUTDOWN).read_bytes(), type=_CleanShutdown).broker_epoch
    except (FileNotFoundError, *UNREADABLE):
        return -1
    except OSError:
        return None  # unknown: an excuse made of it would be none


def power_fail(folder: Path) -> Proof:
    """Take from the disk in a dead node's folder what Kafka does not claim to have flushed."""
    data = folder / "data"
    before = log_ends(data)
    lost = lose_unflushed(data)
    after = log_ends(data)
    return Proof(
        holds=all(after[name] <= end for name, end in before.items()),
        facts={
            "files_cut": lost.file_count,
            "bytes_lost": lost.byte_count,
            "log_end_offsets_before": before,
            "log_end_offsets_after": after,
        },
    )


def lose_unflushed(data: Path) -> Lost:
    """Cut every partition's log back to where Kafka claims to have flushed it; for a node that is down."""
    points = recovery_points(data)
    files = count = 0
    for folder in sorted(path for path in data.iterdir() if path.is_dir()):
        topic, dash, number = folder.name.rpartition("-")
        segments = sorted(folder.glob("*.log"))
        if not (dash and number.isdecimal() and segments) or topic == METADATA_TOPIC:
            continue
        # A segment that was rolled is being flushed: all of it is kept, though the checkpoint may not say so yet.
        flushed_to = max(points.get(folder.name, 0), int(segments[-1].stem))
        taken = _cut(segments[-1], flushed_to)
        files, count = files + bool(taken), count + taken
    return Lost(file_count=files, byte_count=count)


def recovery_points(data: Path) -> dict[str, int]:
    """Return the checkpointed recovery point of each `topic-partition`; none where there is no such file yet."""
    try:
        lines = parsed_lines((data / RECOVERY_POINTS).read_bytes(), fields=3, numbers=(1, 2))
    except (OSError, CorruptCheckpoint):
        return {}
    return {f"{topic}-{number}": int(offset) for topic, number, offset in lines}


def _cut(segment: Path, flushed_to: int) -> int:
    """Cut a segment before its first batch that is not flushed; return how many bytes went."""
    content = segment.read_bytes()
    keep = 0
    try:
        for header in batch.batches(content):
            if header.next_offset > flushed_to:
                break
            keep = header.end
    except CorruptBatch:
        pass  # a batch that kill -9 tore is not flushed either
    if keep == len(content):
        return 0
    with segment.open("r+b") as file:
        file.truncate(keep)
    for suffix in INDEXES:
        segment.with_suffix(suffix).unlink(missing_ok=True)
    return len(content) - keep
