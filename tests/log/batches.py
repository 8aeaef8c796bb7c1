"""Batches, disks and logs for the tests of the log."""

from random import Random

from replog.log.batch import NewRecord, batches, build
from replog.log.log import Appended, Log
from replog.log.settings import LogSettings
from replog.ports import Disk
from tribunal.clusters.simulated.disk import SimulatedDisk

DIRECTORY = "data/t-0"
SMALL = LogSettings(segment_bytes=700, index_interval_bytes=150, timestamp_after_ms_max=1 << 40)


def a_disk(seed: int = 0) -> SimulatedDisk:
    disk = SimulatedDisk(Random(seed))
    disk.make_directory("data")
    disk.sync_directory("")
    return disk


def opened(
    disk: Disk,
    settings: LogSettings = SMALL,
    *,
    recover: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    high_watermark: int | None = None,
    directory: str = DIRECTORY,
) -> Log:
    return Log.open(
        disk,
        directory,
        settings,
        recover=recover,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        now_ms=0,
        high_watermark=high_watermark,
    )


def a_batch(*values: bytes, timestamp_ms: int = 0, **fields: object) -> bytes:
    return build([NewRecord(None, value) for value in values or (b"v",)], timestamp_ms=timestamp_ms, **fields)


def append(log: Log, *values: bytes, epoch: int = 0, **fields: object) -> Appended:
    appended = log.append_as_leader(a_batch(*values, **fields), leader_epoch=epoch, now_ms=0)
    assert isinstance(appended, Appended), appended
    return appended


def content(log: Log) -> bytes:
    """Return all batches of a log, read as a consumer would, in small steps."""
    offset, parts = log.log_start_offset, []
    while offset < log.log_end_offset:
        part = log.read(offset, max_bytes=300, end_offset=log.log_end_offset, at_least_one=True)
        assert part, f"nothing at {offset} before {log.log_end_offset}"
        parts.append(part)
        offset = list(batches(part))[-1].next_offset
    return b"".join(parts)


def state(log: Log) -> dict[str, object]:
    """Return everything that recovery has to find again, by value."""
    return {
        "log_end_offset": log.log_end_offset,
        "epochs": log.epochs.entries,
        "producers": sorted(
            (
                p.producer_id,
                p.epoch,
                p.last_sequence,
                list(p.recent)[-1][:4] if p.recent else None,
                p.coordinator_epoch,
                p.transaction_first_offset,
            )
            for p in log.producers
        ),
        "segments": [
            (
                segment.base_offset,
                segment.size,
                segment.next_offset,
                segment.largest_timestamp_ms,
                segment.aborted,
                segment.index_entries,
            )
            for segment in log.segments
        ],
    }
