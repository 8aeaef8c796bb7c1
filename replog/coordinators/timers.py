"""Time-outs by name: set, moved, cancelled often; due rarely.

A session's time-out moves with every heartbeat, so moving one later costs one dict entry: the heap keeps the old time and
finds out when it comes up. What is due at the same time comes in the order it was queued.
"""

import heapq
from typing import Generic, TypeVar

Name = TypeVar("Name", bound=tuple[str, ...])


class Timers(Generic[Name]):
    """Named times; each name has at most one."""

    def __init__(self) -> None:
        self._at_ms: dict[Name, int] = {}
        self._queued_ms: dict[Name, int] = {}
        self._heap: list[tuple[int, int, Name]] = []
        self._queued_count = 0

    def __contains__(self, name: Name) -> bool:
        return name in self._at_ms

    def set(self, name: Name, at_ms: int) -> None:
        """Be due at this time, and at no other."""
        self._at_ms[name] = at_ms
        if at_ms < self._queued_ms.get(name, at_ms + 1):
            self._queue(name, at_ms)

    def cancel(self, name: Name) -> None:
        """Never be due; an unknown name is fine."""
        self._at_ms.pop(name, None)

    def due(self, now_ms: int) -> list[Name]:
        """Take out the names whose time has come, earliest first."""
        due: list[Name] = []
        while self._heap and self._heap[0][0] <= now_ms:
            queued_ms, _, name = heapq.heappop(self._heap)
            if self._queued_ms.get(name) != queued_ms:
                continue  # queued again for an earlier time
            del self._queued_ms[name]
            at_ms = self._at_ms.get(name)
            if at_ms is None:
                continue
            if at_ms > now_ms:
                self._queue(name, at_ms)
                continue
            del self._at_ms[name]
            due.append(name)
        return due

    @property
    def next_ms(self) -> int | None:
        """When to ask next; something may not be due yet then."""
        return self._heap[0][0] if self._heap else None

    def _queue(self, name: Name, at_ms: int) -> None:
        self._queued_ms[name] = at_ms
        self._queued_count += 1
        heapq.heappush(self._heap, (at_ms, self._queued_count, name))
