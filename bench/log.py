"""How fast is a log? Appends, reads, starts and compaction of 100-byte records on a directory of this machine.

Run: python -m bench.log [directory]. Each figure is the best of several rounds; nothing is synced, as with acks=1.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from replog.log.batch import NewRecord, batches, build, has_valid_crc
from replog.log.cleaner import Cleaner
from replog.log.compression import Codec
from replog.log.log import Log
from replog.log.settings import LogSettings
from replog.ports import Buffer, Disk
from tribunal.clusters.simulated.disk import SimulatedDisk

RECORD = NewRecord(None, b"x" * 100)
ROUNDS = 5


def best(work: Callable[[], int]) -> tuple[float, int]:
    """Return (seconds, what the work returned) of the fastest round."""
    results = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        count = work()
        results.append((time.perf_counter() - start, count))
    return min(results)


def a_log(disk: Disk, directory: str) -> Log:
    settings = LogSettings(message_bytes_max=1 << 30, timestamp_after_ms_max=1 << 40)
    return Log.open(disk, directory, settings, recover=False, recovery_point=0, log_start_offset=0, now_ms=0)


def show(name: str, seconds: float, size: int, count: int) -> None:
    print(f"{name:<52}{size / seconds / 1e9:7.2f} GB/s{seconds / count * 1e6:10.2f} us a call")


def main(directory: str) -> None:
    disk = real_disk()
    small = build([RECORD] * 100, timestamp_ms=0)
    chunk = small * (-(-(1 << 20) // len(small)))
    print(f"batch of 100 records: {len(small)} bytes; chunk: {len(chunk)} bytes, {len(chunk) // len(small)} batches")
    for name, content, count in (("1 MiB chunks", chunk, 256), ("one batch", small, 20_000)):
        _checksums(name, content, count)
        _appends(disk, f"{directory}/leader-{count}", name, content, count)
    idempotent = f"{directory}/idempotent"
    _idempotent_appends(disk, idempotent)
    _reads(disk, f"{directory}/leader-256")
    _recovery(disk, f"{directory}/leader-256")
    _growth(disk, directory)
    _cleaning(disk, f"{directory}/cleaned")


def _checksums(name: str, content: bytes, count: int) -> None:
    view = memoryview(content)

    def work() -> int:
        for _ in range(count):
            assert all(has_valid_crc(view, header) for header in batches(view))
        return count

    seconds, _ = best(work)
    show(f"walk and checksum, {name}", seconds, count * len(content), count)


def _appends(disk: Disk, directory: str, name: str, content: bytes, count: int) -> None:
    log = a_log(disk, directory)

    def lead() -> int:
        log.restart_at(0)
        for _ in range(count):
            log.append_as_leader(content, leader_epoch=1, now_ms=0)
        return count

    seconds, _ = best(lead)
    show(f"append as leader, {name}", seconds, count * len(content), count)
    seconds, _ = best(lambda: _raw_writes(directory, content, count))
    show(f"  (os.write alone, {name})", seconds, count * len(content), count)


def _raw_writes(directory: str, content: bytes, count: int) -> int:
    path = f"{directory}/raw"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    for _ in range(count):
        os.write(descriptor, content)
    os.close(descriptor)
    Path(path).unlink()
    return count


def _idempotent_appends(disk: Disk, directory: str) -> None:
    log = a_log(disk, directory)
    sent = [build([RECORD] * 100, timestamp_ms=0, producer=(1, 0, i * 100)) for i in range(5_000)]

    def work() -> int:
        log.restart_at(0)
        for content in sent:
            log.append_as_leader(content, leader_epoch=1, now_ms=0)
        return len(sent)

    seconds, _ = best(work)
    show("append as leader, one idempotent batch", seconds, sum(map(len, sent)), len(sent))


def _reads(disk: Disk, directory: str) -> None:
    log = a_log(disk, directory)
    log.log_end_offset = log.segments[-1].next_offset

    def sequential() -> int:
        offset = count = 0
        while offset < log.log_end_offset:
            content = log.read(offset, max_bytes=1 << 20, end_offset=log.log_end_offset, at_least_one=True)
            offset = last_offset(content) + 1
            count += 1
        return count

    seconds, count = best(sequential)
    show("read 1 MiB, one behind the other", seconds, log.size, count)
    random = Random(1)
    offsets = [random.randrange(log.log_end_offset) for _ in range(5_000)]

    def scattered() -> int:
        for offset in offsets:
            log.read(offset, max_bytes=1, end_offset=log.log_end_offset, at_least_one=True)
        return len(offsets)

    seconds, count = best(scattered)
    show("read one batch anywhere", seconds, count * 11_000, count)


def last_offset(content: Buffer) -> int:
    """Return the last offset of equal-sized batches without walking them all."""
    first = next(batches(content))
    header = next(batches(memoryview(content)[len(content) - first.size :]))
    return header.last_offset


def _recovery(disk: Disk, directory: str) -> None:
    log = a_log(disk, directory)
    size = log.size
    settings = log.settings

    def recovered(recovery_point: int) -> Callable[[], int]:
        def work() -> int:
            Log.open(
                disk,
                directory,
                settings,
                recover=True,
                recovery_point=recovery_point,
                log_start_offset=0,
                now_ms=0,
            ).close_files()
            return 1

        return work

    seconds, _ = best(recovered(0))
    show(f"recover {size >> 20} MiB after a crash, nothing flushed", seconds, size, 1)
    seconds, _ = best(recovered(log.log_end_offset))
    show(f"recover {size >> 20} MiB after a crash, all of it flushed", seconds, size, 1)


def _growth(disk: Disk, directory: str) -> None:
    """Opening after a clean stop and after a crash, from 16 to 256 segments: linear, or something is wrong."""
    content = build([RECORD] * 100, timestamp_ms=0)
    settings = LogSettings(segment_bytes=1 << 20, timestamp_after_ms_max=1 << 40)
    for count in (16, 64, 256):
        path = f"{directory}/growth-{count}"
        log = Log.open(disk, path, settings, recover=False, recovery_point=0, log_start_offset=0, now_ms=0)
        while len(log.segments) < count:
            log.append_as_leader(content, leader_epoch=1, now_ms=0)
        size, end_offset = log.size, log.log_end_offset
        log.close()
        for name, recover in (("a clean stop", False), ("a crash", True)):

            def work(path: str = path, recover: bool = recover, end_offset: int = end_offset) -> int:  # noqa: FBT001
                opened = Log.open(
                    disk,
                    path,
                    settings,
                    recover=recover,
                    recovery_point=end_offset,
                    log_start_offset=0,
                    now_ms=0,
                )
                opened.close_files()
                return len(opened.segments)

            seconds, segments = best(work)
            show(f"open {size >> 20} MiB in {count} segments after {name}", seconds, size, segments)


def _cleaning(disk: Disk, directory: str) -> None:
    settings = LogSettings(segment_bytes=8 << 20, compacts=True, timestamp_after_ms_max=1 << 40)
    for codec in Codec:
        path = f"{directory}-{codec.name}"
        log = Log.open(disk, path, settings, recover=False, recovery_point=0, log_start_offset=0, now_ms=0)
        for number in range(2_000):
            entries = [NewRecord(b"key-%d" % ((number * 100 + i) % 5_000), b"x" * 100) for i in range(100)]
            log.append_as_leader(build(entries, timestamp_ms=0, attributes=codec), leader_epoch=1, now_ms=0)
        log.roll(0)
        log.flush()
        size = log.size
        start = time.perf_counter()
        Cleaner(log, high_watermark=log.log_end_offset, now_ms=0).run()
        show(f"compact 200,000 records, {codec.name.lower()}", time.perf_counter() - start, size, 200_000)


def real_disk() -> Disk:
    """Return the operating system's disk, or a simulated one where the shell is missing."""
    try:
        from replog.host.world import RealDisk
    except ImportError:
        return SimulatedDisk(Random(0))
    return RealDisk()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as scratch:
        main(scratch)
