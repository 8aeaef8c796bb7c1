"""The names of topics as they come and go, so that a pattern is not compared again with those that it was compared with."""

from collections import deque
from collections.abc import Sequence
from typing import Final

CHANGES_MAX: Final = 100  # that are remembered: who was compared before them is compared with all names


class TopicNames:
    """All names, and which came with each change."""

    def __init__(self) -> None:
        self.all: Sequence[str] = ()
        self.change = 0
        self._known: frozenset[str] = frozenset()
        self._added: deque[list[str]] = deque(maxlen=CHANGES_MAX)

    def note(self, names: Sequence[str]) -> None:
        """Take over how it is now."""
        if names == self.all:
            return
        known = frozenset(names)
        self._added.append([name for name in names if name not in self._known])
        self.all, self._known = names, known
        self.change += 1

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def added_since(self, change: int) -> list[str] | None:
        """Return the names that came after a change and are there; None when that is too long ago to be known."""
        count = self.change - change
        if not 0 <= count <= len(self._added):
            return None
        latest = list(self._added)[len(self._added) - count :]
        return [name for name in dict.fromkeys(name for added in latest for name in added) if name in self._known]
