"""How many partitions may be created in a second: each costs every broker memory and descriptors, and the metadata log records.

A bucket of one second's worth, as Kafka's controller mutation quota (KIP-599): who comes while something is left is served whole, and
who comes after him waits until it is made up for. So a request for more than a second's worth is served, too.
"""


class CreationRate:
    """The active controller's account."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._left = float(per_second)
        self._counted_ms = 0  # until when `_left` was filled up

    def wait_ms(self, now_ms: int) -> int:
        """Return how long who wants to create partitions has to wait; 0: not at all."""
        since_ms = max(0, now_ms - self._counted_ms)
        self._left = min(float(self._per_second), self._left + since_ms * self._per_second / 1000)
        self._counted_ms = now_ms
        return 0 if self._left > 0 else 1 + int(-self._left * 1000 / self._per_second)

    def spend(self, count: int) -> None:
        """Note what was created."""
        self._left -= count
