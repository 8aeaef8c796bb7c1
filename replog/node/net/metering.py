"""Quotas where requests come in: what a request uses is counted, and a connection of who used too much is not read for a while.

Where no quota is set nothing is counted. Nodes have none: they act for the cluster, as with Kafka. The time of a request is what it keeps the
event loop from others until it is handled; what is done for it later, when records or the controller's answer have come, is not in it.
"""

from collections.abc import Callable

from msgspec.structs import replace

from replog.broker.quotas import Arrivals, Usage, bytes_at_once
from replog.controller.authorization import BY_NODES
from replog.controller.served_api import AnyServedApi
from replog.metadata.client_quotas import CONSUMER_RATE, PRODUCER_RATE, REQUEST_PERCENTAGE, ClientQuotas, Share
from replog.node.net.envelopes import USER_PREFIX
from replog.node.net.server import AnyRequest
from replog.ports import Clock
from replog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from replog.wire.messages.fetch import FetchRequest
from replog.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from replog.wire.messages.produce import ProduceRequest


class Meter:
    """What one request uses, and of whose quotas."""

    __slots__ = ("_asked_bytes", "_began_ns", "_bytes", "_clock", "_spent_ns", "_time", "_usage")

    def __init__(self, usage: Usage, clock: Clock, time: Share | None) -> None:
        self._usage = usage
        self._clock = clock
        self._time = time
        self._bytes: tuple[str, Share] | None = None
        self._asked_bytes = 0
        self._began_ns = clock.now_ns()
        self._spent_ns: int | None = None

    def count_bytes(self, key: str, share: Share, asked_bytes: int) -> None:
        """Count bytes, too: so many of the request, or 0 for those of the answer."""
        self._bytes = key, share
        self._asked_bytes = asked_bytes

    def handled(self) -> None:
        """Stop the time: its handler is done with it, for now."""
        self._spent_ns = self._clock.now_ns() - self._began_ns

    def charge(self, answered_bytes: int) -> int:
        """Count it with an answer of so many bytes; return for how many ms nothing more may come."""
        now_ms, delay_ms = self._clock.now_ms(), 0
        if self._bytes is not None:
            delay_ms = self._usage.use(*self._bytes, self._asked_bytes or answered_bytes, now_ms)
        if self._time is not None:
            if self._spent_ns is None:
                self.handled()
            delay_ms = max(delay_ms, self._usage.use_time(self._time, self._spent_ns or 0, now_ms))
        return delay_ms


class Metering:
    """One broker's account of what its clients use."""

    def __init__(self, clock: Clock, quotas: Callable[[], ClientQuotas]) -> None:
        self._clock = clock
        self._quotas = quotas
        self._usage = Usage()
        self._arrivals = Arrivals()

    def may_come(self, host: str) -> bool:
        """Count one more connection from an address; False where that is more than its limit (KIP-612)."""
        limit = self._quotas().connection_rate(host)
        return limit is None or self._arrivals.admit(host, limit, self._clock.now_ms())

    def watch(self, request: AnyRequest, served: AnyServedApi) -> Meter | None:
        """Let a request be counted when it is answered, if a quota holds for it."""
        if not self._quotas().by_entity or served.questions is BY_NODES or _is_of_node(request):
            return None
        time, data = self._share(request, REQUEST_PERCENTAGE), self._share_of_data(request)
        if time is None and data is None:
            return None
        meter = Meter(self._usage, self._clock, time)
        body = request.body
        if data is not None and isinstance(body, ProduceRequest):
            meter.count_bytes(PRODUCER_RATE, data, request.size_bytes)
        elif data is not None and isinstance(body, FetchRequest):
            request.body = replace(body, max_bytes=min(body.max_bytes, bytes_at_once(data)))
            meter.count_bytes(CONSUMER_RATE, data, 0)
        request.charge = meter.charge
        return meter

    def _share_of_data(self, request: AnyRequest) -> Share | None:
        if isinstance(request.body, ProduceRequest):
            return self._share(request, PRODUCER_RATE)
        return self._share(request, CONSUMER_RATE) if isinstance(request.body, FetchRequest) else None

    def _share(self, request: AnyRequest, key: str) -> Share | None:
        return self._quotas().share_of(key, request.peer.principal.removeprefix(USER_PREFIX), request.client_id or "")


def _is_of_node(request: AnyRequest) -> bool:
    """Return whether a request that clients send, too, says that another broker sent it."""
    body = request.body
    if isinstance(body, FetchRequest):
        return body.replica_id >= 0 or body.replica_state.replica_id >= 0
    if isinstance(body, OffsetForLeaderEpochRequest):
        return body.replica_id >= 0
    return isinstance(body, AddPartitionsToTxnRequest) and bool(body.transactions)
