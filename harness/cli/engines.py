"""Which engine judges where nobody has said: Spark, but for small recordings of described systems, which this process judges sooner than Spark starts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tribunal.results.recording import DamagedRecording
from tribunal.results.store import Recording

SPARK: Final = "spark"
INLINE: Final = "inline"
SMALL_BYTES: Final = 4 << 20  # some 100,000 calls
WHY: Final = (
    "a small recording of a described system: judged in this process, by the same rules (--engine spark for Spark)"
)


def engine_for(run_dirs: Sequence[Path]) -> str:
    """Return who judges these runs."""
    return INLINE if run_dirs and all(map(_is_small, run_dirs)) else SPARK


def _is_small(run_dir: Path) -> bool:
    try:
        manifest = Recording.open(run_dir, compare=False).manifest
    except DamagedRecording:
        return False
    if manifest is None or not manifest.runs_described_system:
        return False
    return sum(path.stat().st_size for path in (run_dir / "recording").rglob("*.parquet")) < SMALL_BYTES
