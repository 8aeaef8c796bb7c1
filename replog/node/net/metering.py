"""Quotas where requests come in: what a produce or a fetch uses is counted, and a connection of who used too much is not read for a while.

Where no quota is set nothing is counted. Followers have none: they act for the cluster, as with Kafka.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec.structs import replace

from replog.broker.quotas import Usage, bytes_at_once
from replog.metadata.client_quotas import CONSUMER_RATE, PRODUCER_RATE, ClientQuotas, Share
from replog.node.net.server import AnyRequest
from replog.ports import Clock
from replog.wire.messages.fetch import FetchRequest
from replog.wire.messages.produce import ProduceRequest

USER_PREFIX: Final = "User:"


class Metering:
    """One broker's account of what its clients use."""

    def __init__(self, clock: Clock, quotas: Callable[[], ClientQuotas]) -> None:
        self._clock = clock
        self._quotas = quotas
        self._usage = Usage()

    def watch(self, request: AnyRequest) -> None:
        """Let a request be counted when it is answered, if a quota holds for it."""
        body = request.body
        if isinstance(body, ProduceRequest):
            share = self._share(request, PRODUCER_RATE)
            if share is not None:
                request.charge = partial(self._used, PRODUCER_RATE, share, request.size_bytes)
        elif isinstance(body, FetchRequest) and body.replica_id < 0 and body.replica_state.replica_id < 0:
            share = self._share(request, CONSUMER_RATE)
            if share is not None:
                request.body = replace(body, max_bytes=min(body.max_bytes, bytes_at_once(share)))
                request.charge = partial(self._used, CONSUMER_RATE, share, 0)

    def _share(self, request: AnyRequest, key: str) -> Share | None:
        quotas = self._quotas()
        if not quotas.by_entity:
            return None
        return quotas.share_of(key, request.peer.principal.removeprefix(USER_PREFIX), request.client_id or "")

    def _used(self, key: str, share: Share, asked_bytes: int, answered_bytes: int) -> int:
        size_bytes = asked_bytes or answered_bytes
        return self._usage.use(key, share, size_bytes, self._clock.now_ms())
