"""The harness's half of a node's control page: ask for a skewed clock or a troubled disk, and see that it came to be."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from replog.host.sabotage.control_page import (
    WRITES_FINE,
    WRITES_FULL,
    WRITES_READ_ONLY,
    ControlPage,
    Seen,
    Wanted,
    fresh_page,
)
from tribunal.clusters.api import Proof, Unsettled, until
from tribunal.clusters.capabilities import ClockSkew, DiskTrouble

SEEN_TIMEOUT_MS: Final = 6_000
POLL_MS: Final = 10
WALL_TOLERANCE_MS: Final = 30
DRIFT_SAMPLE_MS: Final = 400
DRIFT_TOLERANCE_PPM: Final = 5_000
MILLION: Final = 1_000_000
WRITES: Final = {"fine": WRITES_FINE, "full": WRITES_FULL, "read-only": WRITES_READ_ONLY}


class NodeControl:
    """One node's page."""

    def __init__(self, path: Path, *, fresh: bool = True) -> None:
        if fresh:
            fresh_page(path)
        self._page = ControlPage(str(path))
        self._wanted = self._page.wanted()

    def _ask(self, **changes: int) -> Wanted:
        self._wanted = msgspec.structs.replace(self._wanted, number=self._wanted.number + 1, **changes)
        self._page.ask(self._wanted)
        return self._wanted

    async def set_clock(self, skew: ClockSkew) -> Proof:
        """Skew the node's clock; the proof compares what its clock port read with the machine's clock."""
        wanted = self._ask(offset_ms=skew.offset_ms, drift_ppm=skew.drift_ppm, since_ns=time.monotonic_ns())
        took_note = await _until(lambda: self._page.seen().number == wanted.number)
        first = self._page.seen()
        wall_error_ms = first.wall_ms - _wall_ms_at(first.real_ns) - skew.offset_ms
        facts = {**msgspec.to_builtins(skew), "heard": took_note, "wall_error_ms": wall_error_ms}
        holds = took_note and abs(wall_error_ms) <= WALL_TOLERANCE_MS
        if skew.drift_ppm:
            await asyncio.sleep(DRIFT_SAMPLE_MS / 1000)
            await _until(lambda: self._page.seen().real_ns - first.real_ns > DRIFT_SAMPLE_MS * MILLION // 2)
            facts["measured_ppm"] = _ppm(first, self._page.seen())
            holds = holds and abs(facts["measured_ppm"] - skew.drift_ppm) <= DRIFT_TOLERANCE_PPM
        return Proof(holds=holds, facts=facts)

    async def trouble_disk(self, trouble: DiskTrouble) -> Proof:
        """Let the node's disk misbehave; the proof is that the node met it."""
        before = self._page.seen()
        self._ask(writes=WRITES[trouble.writes], fsync_delay_ms=trouble.fsync_delay_ms)
        met = True
        if trouble.writes != "fine":
            met = await _until(lambda: self._page.seen().refused_count != before.refused_count)
        if trouble.fsync_delay_ms:
            met = await _until(lambda: self._page.seen().delayed_count != before.delayed_count) and met
        seen = self._page.seen()
        facts = {"refused_writes": seen.refused_count, "delayed_fsyncs": seen.delayed_count}
        return Proof(holds=met, facts={**msgspec.to_builtins(trouble), **facts})

    def close(self) -> None:
        """Let go of the page."""
        self._page.close()


async def _until(holds: Callable[[], bool]) -> bool:
    with contextlib.suppress(Unsettled):
        await until(holds, timeout_ms=SEEN_TIMEOUT_MS, what="the node takes note", poll_ms=POLL_MS)
    return holds()


def _wall_ms_at(real_ns: int) -> int:
    """Return the machine's wall time at a reading of its monotonic clock."""
    return (time.time_ns() - (time.monotonic_ns() - real_ns)) // MILLION


def _ppm(first: Seen, second: Seen) -> int:
    real_ns, local_ns = second.real_ns - first.real_ns, second.local_ns - first.local_ns
    return round((local_ns - real_ns) * MILLION / real_ns) if real_ns else 0
