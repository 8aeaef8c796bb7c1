"""How fast is a log? Appends and reads of 100-byte records on a directory of this machine.

Run: python -m bench.log [directory]. Each figure is the best of several rounds; nothing is synced, as with acks=1.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from clusters.simulated.disk import SimulatedDisk
from replog.log.batch import NewRecord, batches, build, has_valid_crc
from replog.log.log import Log
from replog.log.settings import LogSettings
from replog.ports import Buffer, Disk

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

    def work() -> int:
        Log.open(disk, directory, settings, recover=True, recovery_point=0, log_start_offset=0, now_ms=0)
        return 1

    seconds, _ = best(work)
    show(f"recover {size >> 20} MiB after a crash", seconds, size, 1)


def real_disk() -> Disk:
    """Return the operating system's disk, or a simulated one where the shell is missing."""
    try:
        from replog.node.world import RealDisk
    except ImportError:
        return SimulatedDisk(Random(0))
    return RealDisk()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as scratch:
        main(scratch)
