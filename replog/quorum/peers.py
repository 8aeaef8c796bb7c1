"""Requests on their way: at most one a peer, with a time limit, and a pause after each failure.

Answers are matched by request id; `forget_all`, called at every change of role, is what keeps an answer of an earlier
round from being counted in a later one (SPEC 1.6.4).
"""

from replog.types import NodeId

BACKOFF_DOUBLINGS = 4  # 20 ms, 40, 80, 160, 320: nobody hammers a dead peer


class Peers:
    """What this node has asked whom, and whom it leaves in peace for a while."""

    def __init__(self, *, request_timeout_ms: int, retry_backoff_ms: int) -> None:
        self._request_timeout_ms = request_timeout_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._last_request_id = 0
        self._in_flight: dict[NodeId, tuple[int, int]] = {}  # peer -> (request id, deadline)
        self._backoff_until_ms: dict[NodeId, int] = {}
        self._failures: dict[NodeId, int] = {}

    def is_ready(self, peer: NodeId, now_ms: int) -> bool:
        """Return whether a request may go to the peer now."""
        return peer not in self._in_flight and not self.is_backing_off(peer, now_ms)

    def is_backing_off(self, peer: NodeId, now_ms: int) -> bool:
        """Return whether the peer failed a moment ago."""
        return now_ms < self._backoff_until_ms.get(peer, now_ms)

    @property
    def any_in_flight(self) -> bool:
        """Whether any request is on its way."""
        return bool(self._in_flight)

    def start(self, peer: NodeId, now_ms: int) -> int:
        """Note a request to the peer and return its id."""
        self._last_request_id += 1
        self._in_flight[peer] = (self._last_request_id, now_ms + self._request_timeout_ms)
        return self._last_request_id

    def finish(self, request_id: int) -> NodeId | None:
        """Return whom this request went to, and forget it; None when it is not awaited (any more)."""
        for peer, (pending, _) in self._in_flight.items():
            if pending == request_id:
                del self._in_flight[peer]
                return peer
        return None

    def succeeded(self, peer: NodeId) -> None:
        """Forget the peer's failures."""
        self._failures.pop(peer, None)
        self._backoff_until_ms.pop(peer, None)

    def failed(self, peer: NodeId, now_ms: int) -> None:
        """Leave the peer in peace for a while, longer each time."""
        doublings = self._failures.get(peer, 0)
        self._failures[peer] = min(doublings + 1, BACKOFF_DOUBLINGS)
        self._backoff_until_ms[peer] = now_ms + (self._retry_backoff_ms << doublings)

    def expire(self, now_ms: int) -> None:
        """Give up requests whose time is over; their answers will not be awaited any more."""
        late = [peer for peer, (_, deadline_ms) in self._in_flight.items() if deadline_ms <= now_ms]
        for peer in late:
            del self._in_flight[peer]
            self.failed(peer, now_ms)
        over = [peer for peer, until_ms in self._backoff_until_ms.items() if until_ms <= now_ms]
        for peer in over:
            del self._backoff_until_ms[peer]

    def forget_all(self) -> None:
        """Await no answer any more and bear no grudge."""
        self._in_flight.clear()
        self._backoff_until_ms.clear()
        self._failures.clear()

    @property
    def next_deadline_ms(self) -> int | None:
        """When a time limit or a pause ends."""
        deadlines = [deadline_ms for _, deadline_ms in self._in_flight.values()]
        return min([*deadlines, *self._backoff_until_ms.values()], default=None)
