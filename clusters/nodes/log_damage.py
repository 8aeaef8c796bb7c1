"""Harm done to the log files of a node that is down, and what the files are still worth afterwards.

A log ends where its first batch is torn or fails its checksum: that is all that recovery can find again. What lies
behind that offset is provably lost on this disk (docs/verdicts.md, proven loss).
"""

from pathlib import Path

from replog.log import batch
from replog.log.batch import BatchHeader, CorruptBatch, has_valid_crc
from tribunal.clusters.api import Proof
from tribunal.clusters.capabilities import Damage
from tribunal.clusters.nodes.final_logs import all_partition_directories, partition_directories, segments_of

RECORDS_AT = 61  # where a batch's records begin: a bit turned there is seen by the checksum alone


def log_ends(log_dir: Path) -> dict[str, int]:
    """Return for each partition on this disk, those of internal topics too, the offset behind its last sound batch."""
    return {f"{topic}-{partition}": _log_end(folder) for topic, partition, folder in all_partition_directories(log_dir)}


def _log_end(folder: Path) -> int:
    end = 0
    for segment in segments_of(folder):
        content = memoryview(segment.read_bytes())
        end = max(end, int(segment.stem))
        try:
            for header in batch.batches(content, str(segment)):
                if not has_valid_crc(content, header):
                    return end
                end = header.next_offset
        except CorruptBatch:
            return end
    return end


def do_damage(log_dir: Path, damage: Damage) -> Proof:
    """Damage the newest segment that holds anything of each partition; the proof has every log's end before and after."""
    before = log_ends(log_dir)
    harmed = []
    for topic, partition, folder in partition_directories(log_dir):
        segments = [segment for segment in segments_of(folder) if segment.stat().st_size]
        if segments and _harm(segments[-1], damage):
            harmed.append(f"{topic}-{partition}")
    after = log_ends(log_dir)
    shorter = all(after[name] < before[name] for name in harmed)
    return Proof(
        holds=bool(harmed) and shorter,
        facts={"damage": damage.value, "log_end_offsets_before": before, "log_end_offsets_after": after},
    )


def _harm(segment: Path, damage: Damage) -> bool:
    """Damage a segment; return whether there was anything: a process that was killed may have left half a batch."""
    content = bytearray(segment.read_bytes())
    headers = _headers(content)
    if not headers:
        return False
    match damage:
        case Damage.TORN_TAIL:
            del content[headers[-1].position + headers[-1].size // 2 :]
        case Damage.TRUNCATED:
            del content[len(content) * 2 // 3 :]
        case Damage.BIT_FLIP:
            chosen = headers[len(headers) // 2]
            content[chosen.position + min(RECORDS_AT, chosen.size - 1)] ^= 0x10
    segment.write_bytes(content)
    return True


def _headers(content: bytearray) -> list[BatchHeader]:
    headers = []
    try:
        for header in batch.batches(bytes(content)):
            headers.append(header)  # noqa: PERF402 - the rest of a torn log is still a log
    except CorruptBatch:
        pass
    return headers
