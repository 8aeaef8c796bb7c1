"""Numbers by a place each, sorted once: the least of those up to a place, or beyond one."""

import numpy as np

from tribunal.checkers.api import Array


class Leasts:
    """The least of some numbers up to any place and beyond it."""

    def __init__(self, places: Array, numbers: Array) -> None:
        order = np.argsort(places, kind="stable")
        self._places = places[order]
        self._up_to = np.minimum.accumulate(numbers[order])
        self._from = np.minimum.accumulate(numbers[order][::-1])[::-1]

    def up_to(self, place: int) -> int | None:
        """Return the least number at a place or before it; None: there is none."""
        end = int(np.searchsorted(self._places, place, "right"))
        return int(self._up_to[end - 1]) if end else None

    def beyond(self, place: int) -> int | None:
        """Return the least number behind a place; None: there is none."""
        begin = int(np.searchsorted(self._places, place, "right"))
        return int(self._from[begin]) if begin < self._places.size else None
