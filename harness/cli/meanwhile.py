"""What can be prepared while a run goes on: Spark takes seconds to start, with low priority beside the nodes."""

from typing import Final, Self

from tribunal.checkers.spark.session import Prepared
from tribunal.harness.progress import Progress

START_PHASES: Final = frozenset({"warm-up", "collect"})


class StartsSpark:
    """Shows progress like the one it wraps, and starts Spark when the cluster is up."""

    def __init__(self, progress: Progress, prepared: Prepared) -> None:
        self._progress = progress
        self._prepared = prepared

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the end to whoever owns the screen."""

    def phase(self, name: str, elapsed_ms: int) -> None:
        """Begin a phase."""
        if name in START_PHASES:
            self._prepared.start()
        self._progress.phase(name, elapsed_ms)

    def say(self, line: str) -> None:
        """Show one thing that happened."""
        self._progress.say(line)

    def update(self, elapsed_ms: int, cluster: str, load: str) -> None:
        """Show how it stands."""
        self._progress.update(elapsed_ms, cluster, load)

    def lasts(self, elapsed_ms: int, line: str) -> None:
        """Show how something stands that takes long."""
        self._progress.lasts(elapsed_ms, line)
