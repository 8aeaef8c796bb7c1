"""A page of memory shared with whoever tests the node: how its clock and its disk are to misbehave, and what it saw.

The page is a small file that both map. The harness writes how things shall be and then a new number; the node looks
at the number whenever it asks for the time or writes, and notes in its own half what it has read and done: that is the
proof that a clock really jumped and a disk really refused. No page, no cost: it exists only where it is configured
(`tribunal.control.page`). Events keep the machine's own clock, so that a recording is not bent by what it records.
"""

import errno
import mmap
import os
import struct
import time
from pathlib import Path
from typing import Final

import msgspec

PAGE_BYTES: Final = 4096
WANTED: Final = struct.Struct("<Qqqqqq")  # number, offset ms, drift ppm, writes, fsync delay ms, since ns
SEEN_AT: Final = 1024
SEEN: Final = struct.Struct("<QqqqQQ")  # number, real ns, local ns, wall ms, refused writes, delayed fsyncs
COUNTS: Final = struct.Struct("<QQ")  # the last two of them
NOTE_EVERY_NS: Final = 20_000_000
MILLION: Final = 1_000_000
WRITES_FINE, WRITES_FULL, WRITES_READ_ONLY = 0, 1, 2
REFUSALS: Final = {WRITES_FULL: errno.ENOSPC, WRITES_READ_ONLY: errno.EROFS}


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the harness asks for; `since_ns`: from when on a clock drifts, of the machine's monotonic clock (several processes have one clock)."""

    number: int = 0
    offset_ms: int = 0
    drift_ppm: int = 0
    writes: int = WRITES_FINE
    fsync_delay_ms: int = 0
    since_ns: int = 0


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What the node has noted: the last number it has seen, two clocks at one moment, and what its disk did."""

    number: int
    real_ns: int
    local_ns: int
    wall_ms: int
    refused_count: int
    delayed_count: int


class ControlPage:
    """One page, seen from either side."""

    def __init__(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(descriptor).st_size < PAGE_BYTES:
                os.ftruncate(descriptor, PAGE_BYTES)
            self._map = mmap.mmap(descriptor, PAGE_BYTES)
        finally:
            os.close(descriptor)
        self.refused_count = 0
        self.delayed_count = 0

    @property
    def number(self) -> int:
        """The number of what is asked for now."""
        return int.from_bytes(self._map[:8], "little")

    def wanted(self) -> Wanted:
        """Return what is asked for now."""
        number, offset_ms, drift_ppm, writes, fsync_delay_ms, since_ns = WANTED.unpack_from(self._map)
        return Wanted(
            number=number,
            offset_ms=offset_ms,
            drift_ppm=drift_ppm,
            writes=writes,
            fsync_delay_ms=fsync_delay_ms,
            since_ns=since_ns,
        )

    def ask(self, wanted: Wanted) -> None:
        """Ask for something else (the harness); its number has to be new."""
        values = (wanted.offset_ms, wanted.drift_ppm, wanted.writes, wanted.fsync_delay_ms, wanted.since_ns)
        self._map[8 : WANTED.size] = WANTED.pack(0, *values)[8:]
        self._map[:8] = wanted.number.to_bytes(8, "little")

    def seen(self) -> Seen:
        """Return what the node has noted."""
        number, real_ns, local_ns, wall_ms, refused_count, delayed_count = SEEN.unpack_from(self._map, SEEN_AT)
        return Seen(
            number=number,
            real_ns=real_ns,
            local_ns=local_ns,
            wall_ms=wall_ms,
            refused_count=refused_count,
            delayed_count=delayed_count,
        )

    def note(self, number: int, *, real_ns: int, local_ns: int, wall_ms: int) -> None:
        """Note what the node sees (the node)."""
        SEEN.pack_into(self._map, SEEN_AT, number, real_ns, local_ns, wall_ms, self.refused_count, self.delayed_count)

    def check_write(self, path: str) -> None:
        """Refuse a write, where the disk is to be full or read-only; as `OSError`."""
        refusal = REFUSALS.get(int.from_bytes(self._map[24:32], "little"))
        if refusal is not None:
            self.refused_count += 1
            self._note_counts()
            raise OSError(refusal, os.strerror(refusal), path)

    def hold_up_sync(self) -> None:
        """Let an fsync take longer, where it is to be slow."""
        delay_ms = int.from_bytes(self._map[32:40], "little")
        if delay_ms:
            time.sleep(delay_ms / 1000)  # noqa: TID251 - a disk that blocks, blocks
            self.delayed_count += 1
            self._note_counts()

    def _note_counts(self) -> None:
        COUNTS.pack_into(self._map, SEEN_AT + SEEN.size - COUNTS.size, self.refused_count, self.delayed_count)

    def close(self) -> None:
        """Let go of the page."""
        self._map.close()


class SteeredClock:
    """The machine's clocks, bent as the page says."""

    def __init__(self, page: ControlPage) -> None:
        self._page = page
        self._wanted = Wanted()
        self._real_origin_ns = self._local_origin_ns = time.monotonic_ns()
        self._wall_origin_ns = self._real_origin_ns  # since when wall time drifts
        self._noted_ns = 0

    def now_ms(self) -> int:
        """Monotonic milliseconds."""
        return self.now_ns() // 1_000_000

    def now_ns(self) -> int:
        """Monotonic nanoseconds: too fast or too slow, never back."""
        real_ns = time.monotonic_ns()
        if self._page.number != self._wanted.number:
            self._change(real_ns)
        local_ns = self._local_ns(real_ns)
        if real_ns - self._noted_ns >= NOTE_EVERY_NS:
            self._note(real_ns, local_ns)
        return local_ns

    def wall_ms(self) -> int:
        """Milliseconds since 1970: jumps and drifts."""
        real_ns = time.monotonic_ns()
        if self._page.number != self._wanted.number:
            self._change(real_ns)
        return self._wall_ms(real_ns)

    def _local_ns(self, real_ns: int) -> int:
        elapsed_ns = real_ns - self._real_origin_ns
        return self._local_origin_ns + elapsed_ns + elapsed_ns * self._wanted.drift_ppm // MILLION

    def _wall_ms(self, real_ns: int) -> int:
        drifted_ns = (real_ns - self._wall_origin_ns) * self._wanted.drift_ppm // MILLION
        return (time.time_ns() + drifted_ns) // 1_000_000 + self._wanted.offset_ms

    def _change(self, real_ns: int) -> None:
        """Begin to be as asked; monotonic time goes on from where it was."""
        self._local_origin_ns = self._local_ns(real_ns)
        self._real_origin_ns = self._wall_origin_ns = real_ns
        self._wanted = self._page.wanted()
        self._note(real_ns, self._local_ns(real_ns))

    def _note(self, real_ns: int, local_ns: int) -> None:
        self._noted_ns = real_ns
        self._page.note(self._wanted.number, real_ns=real_ns, local_ns=local_ns, wall_ms=self._wall_ms(real_ns))


def fresh_page(path: Path) -> None:
    """Make an empty page: everything as it should be."""
    path.write_bytes(bytes(PAGE_BYTES))
