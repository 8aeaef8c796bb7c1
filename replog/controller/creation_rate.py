"""How many partitions may be created in a second: each costs every broker memory and descriptors, and the metadata log records.

A bucket of one second's worth, as Kafka's controller mutation quota (KIP-599): who comes while something is left is served whole, and
who comes after him waits until it is made up for. So a request for more than a second's worth is served, too.
"""

from replog.controller.token_bucket import TokenBucket


class CreationRate:
    """The active controller's account."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._bucket = TokenBucket(float(per_second), 0)

    def wait_ms(self, now_ms: int) -> int:
        """Return how long who wants to create partitions has to wait; 0: not at all."""
        left = self._bucket.fill(self._per_second, float(self._per_second), now_ms)
        return 0 if left > 0 else self._bucket.made_up_ms(self._per_second)

    def spend(self, count: int) -> None:
        """Note what was created."""
        self._bucket.take(count)
