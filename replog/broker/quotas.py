"""How long who used more than his quota has to wait: rates over samples of a second, as Kafka counts them (KIP-13, KIP-124, KIP-219, KIP-612)."""

from collections import deque
from typing import Final

from replog.metadata.client_quotas import REQUEST_PERCENTAGE, Share
from replog.recent import Recent

SAMPLE_MS: Final = 1000  # quota.window.size.seconds
SAMPLES: Final = 11  # quota.window.num
WINDOW_MS: Final = (SAMPLES - 1) * SAMPLE_MS  # what a rate is of at least: else the first request would count as many
NS_OF_PERCENT: Final = 10_000_000  # of a second
REQUEST_DELAY_MS_MAX: Final = (
    SAMPLE_MS  # Kafka's: who took long answers to make is not kept away for as long as that asks
)
DELAY_MS_MAX: Final = 2**31 - 1  # what an answer can say; of a limit near 0 the time to wait is beyond all numbers
KEPT_MAX: Final = 10_000  # rates that are remembered

Counted = tuple[str, str, str]  # key of the quota, user, client id


class Rate:
    """What somebody used, a second at a time."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[list[int]] = deque()  # when each began, and how much of it was used

    def add(self, amount: int, now_ms: int) -> None:
        """Count what was used now: bytes, or ns."""
        while self._samples and self._samples[0][0] <= now_ms - SAMPLES * SAMPLE_MS:
            self._samples.popleft()
        if not self._samples or now_ms - self._samples[-1][0] >= SAMPLE_MS:
            self._samples.append([now_ms, 0])
        self._samples[-1][1] += amount

    def delay_ms(self, per_second: float, now_ms: int) -> int:
        """Return how long nothing more may come, so that the rate falls to this limit."""
        rate, window_ms = self._measured(now_ms)
        return round(min(DELAY_MS_MAX, max(0.0, (rate - per_second) / per_second * window_ms)))

    def exceeds(self, per_second: float, now_ms: int) -> bool:
        """Return whether more than the limit was used."""
        return self._measured(now_ms)[0] > per_second

    def _measured(self, now_ms: int) -> tuple[float, int]:
        """Return the rate in a second, and the ms that it is of."""
        elapsed_ms = now_ms - self._samples[0][0]
        window_ms = elapsed_ms + max(0, SAMPLES - 1 - elapsed_ms // SAMPLE_MS) * SAMPLE_MS
        return sum(amount for _, amount in self._samples) * 1000 / window_ms, window_ms


class Usage:
    """The rates of everybody who has a quota at this broker."""

    def __init__(self) -> None:
        self._rates: Recent[Counted, Rate] = Recent(KEPT_MAX, Rate)

    def use(self, key: str, share: Share, size_bytes: int, now_ms: int) -> int:
        """Count bytes; return for how many ms who used them has to wait."""
        return self._delay_ms(key, share, size_bytes, share.limit, now_ms)

    def use_time(self, share: Share, duration_ns: int, now_ms: int) -> int:
        """Count the time that a request took; return for how many ms who sent it has to wait."""
        limit = share.limit * NS_OF_PERCENT
        return min(REQUEST_DELAY_MS_MAX, self._delay_ms(REQUEST_PERCENTAGE, share, duration_ns, limit, now_ms))

    def _delay_ms(self, key: str, share: Share, amount: int, per_second: float, now_ms: int) -> int:
        rate = self._rates.of((key, share.user, share.client_id))
        rate.add(amount, now_ms)
        return rate.delay_ms(per_second, now_ms)


class Arrivals:
    """The connections that came from each address that has a limit (KIP-612), at all listeners of a broker together."""

    def __init__(self) -> None:
        self._rates: Recent[str, Rate] = Recent(KEPT_MAX, Rate)

    def admit(self, host: str, per_second: float, now_ms: int) -> bool:
        """Count a new connection, if one more does not exceed the limit: who is refused does not use it up."""
        rate = self._rates.of(host)
        rate.add(1, now_ms)
        if not rate.exceeds(per_second, now_ms):
            return True
        rate.add(-1, now_ms)
        return False


def bytes_at_once(share: Share) -> int:
    """Return how much an answer may have so that it fits the window: a larger one would be made up for too long."""
    return max(1, min(2**31 - 1, int(share.limit * WINDOW_MS / 1000)))
