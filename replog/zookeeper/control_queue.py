"""The control requests for one registration of one broker: in order, one at a time, until each is answered (KIP-380).

A request that gets no answer is sent again, also to a broker that has restarted meanwhile: only the broker epoch in it
shows the broker that it was not meant. STALE_BROKER_EPOCH ends it: the new registration gets its requests when its start is
noticed, with its own epoch.
"""

from collections import deque

import msgspec

from replog.errors import Error
from replog.types import BrokerEpoch, NodeId


class ControlRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request, complete, and the version it goes out in."""

    body: msgspec.Struct
    version: int


class ControlQueue:
    """The control requests that one registration of one broker has not answered yet."""

    def __init__(self, node: NodeId, broker_epoch: BrokerEpoch) -> None:
        self.node = node
        self.broker_epoch = broker_epoch
        self._waiting: deque[ControlRequest] = deque()

    def put(self, request: ControlRequest) -> None:
        """Say this after everything else."""
        self._waiting.append(request)

    @property
    def next(self) -> ControlRequest | None:
        """What is to be sent now, again if it was not answered; None when all is said."""
        return self._waiting[0] if self._waiting else None

    def on_answer(self, request: ControlRequest, error: Error) -> bool:
        """Take an answer; return whether the request was carried out."""
        assert self._waiting[0] is request
        self._waiting.popleft()
        return error is Error.NONE
