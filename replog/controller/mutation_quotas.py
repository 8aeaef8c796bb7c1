"""How many partitions a client may have created and deleted in a second: `controller_mutation_rate` (KIP-599).

A bucket for each that a quota counts together: it fills at the rate, up to what a window of it holds, and a topic takes one token a
partition. What is left may fall below 0, so that a topic larger than the window can be created at all; who finds it there is refused, topic
by topic, with THROTTLING_QUOTA_EXCEEDED and the time to wait. Older versions of the requests do not know that error: they are served, and wait.

The active controller counts, for all brokers. A successor begins with full buckets.
"""

import math
from typing import Final

from replog.controller.token_bucket import TokenBucket
from replog.controller.turn import Turn
from replog.metadata.client_quotas import MUTATION_RATE
from replog.recent import Recent

WINDOW_S: Final = 11  # controller.quota.window.num times controller.quota.window.size.seconds
KEPT_MAX: Final = 10_000  # buckets that are remembered


def _wait_ms(bucket: TokenBucket, rate: float, now_ms: int) -> int:
    """Fill up; return how long until nothing is owed."""
    return 0 if bucket.fill(rate, rate * WINDOW_S, now_ms) >= 0 else bucket.made_up_ms(rate)


def _full_bucket() -> TokenBucket:
    """Return a bucket that is as full as any rate fills it: the first look at it leaves what a window of the rate holds."""
    return TokenBucket(math.inf, 0)


class Account:
    """What one request may change; without a quota it may change anything."""

    def __init__(self, bucket: TokenBucket | None, rate: float, now_ms: int, *, refuses: bool) -> None:
        self._bucket = bucket
        self._rate = rate
        self._now_ms = now_ms
        self._refuses = refuses
        self.throttle_ms = 0  # how long its client has to wait

    def admits(self, partition_count: int) -> bool:
        """Take so many partitions; False where they are refused."""
        if self._bucket is None:
            return True
        if self._refuses and (wait_ms := _wait_ms(self._bucket, self._rate, self._now_ms)):
            self.throttle_ms = wait_ms
            return False
        self._bucket.take(partition_count)
        if not self._refuses:
            self.throttle_ms = _wait_ms(self._bucket, self._rate, self._now_ms)
        return True


UNLIMITED: Final = Account(None, 0.0, 0, refuses=False)


class MutationQuotas:
    """The active controller's account of all clients."""

    def __init__(self) -> None:
        self._buckets: Recent[tuple[str, str], TokenBucket] = Recent(KEPT_MAX, _full_bucket)

    def account(self, turn: Turn, refuses_from: int) -> Account:
        """Return what the request of a turn may change.

        refuses_from:  the first version of its API whose clients know THROTTLING_QUOTA_EXCEEDED.
        """
        client = turn.client
        share = None
        if client is not None:
            share = turn.image.client_quotas.share_of(MUTATION_RATE, client.user, client.client_id)
        if client is None or share is None:
            return UNLIMITED
        bucket = self._buckets.of((share.user, share.client_id))
        bucket.fill(share.limit, share.limit * WINDOW_S, turn.now_ms)
        return Account(bucket, share.limit, turn.now_ms, refuses=client.version >= refuses_from)
