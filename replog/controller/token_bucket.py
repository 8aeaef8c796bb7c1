"""Tokens that come back at a rate: what is left may fall below 0, and is made up for then."""

from typing import Final

WAIT_MS_MAX: Final = 2**31 - 1  # what an answer can say; at a rate near 0 the time is beyond all numbers


class TokenBucket:
    """The tokens that somebody has left."""

    __slots__ = ("_counted_ms", "left")

    def __init__(self, left: float, counted_ms: int) -> None:
        self.left = left
        self._counted_ms = counted_ms  # until when it was filled up

    def fill(self, rate: float, most: float, now_ms: int) -> float:
        """Fill up, by so many tokens a second to so many at most; return what is left."""
        since_ms = max(0, now_ms - self._counted_ms)
        self.left = min(most, self.left + since_ms * rate / 1000)
        self._counted_ms = now_ms
        return self.left

    def take(self, count: int) -> None:
        """Note what was used."""
        self.left -= count

    def made_up_ms(self, rate: float) -> int:
        """Return how long it takes at a rate until nothing is owed."""
        return 1 + int(min(WAIT_MS_MAX - 1, -self.left * 1000 / rate))
