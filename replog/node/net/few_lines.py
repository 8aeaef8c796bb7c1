"""Lines in the log that anybody can cause: so many in a second, and of the others how many they were."""

from typing import Final

from replog.ports import World

LINES_PER_SECOND_MAX: Final = 20


class FewLines:
    """The way of such lines to a node's journal."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._second = -1
        self._written_count = 0  # in this second
        self._left_out_count = 0

    def log(self, level: str, message: str) -> None:
        """Write a line, or count it: the next one that is written says how many there were."""
        second = self._world.clock.now_ms() // 1000
        if second != self._second:
            self._second, self._written_count = second, 0
        if self._written_count >= LINES_PER_SECOND_MAX:
            self._left_out_count += 1
            return
        self._written_count += 1
        if self._left_out_count:
            message = f"{message} (before it {self._left_out_count} lines of this kind were left out)"
            self._left_out_count = 0
        self._world.journal.log(level, message)
