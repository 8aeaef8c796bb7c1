"""Control messages of ZooKeeper mode, watched on the simulated network and held against KIP-380.

Z1  a broker never carries out a control request for an earlier incarnation: the epoch it registered with is larger.
Z2  a controller stops the replicas of no incarnation that did not itself ask to leave.
Z4  every incarnation of a broker is sent what it hosts: at the end of a healed run none was left out.

(Z3, that what a broker hosts does not vanish from its disk, is seen by `Watch`, which follows the disks.) Nothing here
trusts the code it watches but for the epoch that a broker says it registered with.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from replog.errors import Error
from replog.wire.apis import Api
from replog.wire.codec import decode_request, decode_response
from replog.wire.decoder import MalformedMessage
from replog.wire.exchange import exchange_of
from replog.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from replog.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from replog.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from replog.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from tribunal.clusters.api import CLIENTS
from tribunal.clusters.capabilities import Fate
from tribunal.clusters.simulated.event_fields import BrokerRegistered
from tribunal.clusters.simulated.frames import LENGTH_BYTES, Frame
from tribunal.clusters.simulated.violation import Violated
from tribunal.clusters.simulated.world import ReportedEvent
from tribunal.results.violation import Invariant, NeverTold, StaleRequestCarriedOut, StoppedUnasked

CONTROL: Final = frozenset({int(Api.LEADER_AND_ISR), int(Api.STOP_REPLICA), int(Api.UPDATE_METADATA)})
LEAVE: Final = int(Api.CONTROLLED_SHUTDOWN)
REQUESTS: Final = (LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest, ControlledShutdownRequest)
RESPONSES: Final = (LeaderAndIsrResponse, StopReplicaResponse, UpdateMetadataResponse, ControlledShutdownResponse)
LONG_REGISTERED_NS: Final = 8_000_000_000


class Asked(NamedTuple):
    """A request that waits for its answer."""

    api: int
    version: int
    broker: int
    broker_epoch: int


class ControlWatch:
    """All control messages of one simulation."""

    def __init__(self, nodes: Mapping[str, int], accuse: Callable[[Violated], None]) -> None:
        """`nodes` gives a machine's node; `accuse` gets what is wrong."""
        self._nodes = nodes
        self._accuse = accuse
        self._asked: dict[tuple[int, int], Asked] = {}
        self._registered: dict[int, tuple[int, int]] = {}  # broker -> epoch, since when
        self._informed: dict[tuple[int, int], None] = {}  # broker, epoch: it was sent a control request
        self._leaving: dict[tuple[int, int], None] = {}  # broker, epoch: it asked to leave (-1: some incarnation of it)

    def note(self, event: ReportedEvent) -> None:
        """Take note of a registration."""
        node = self._nodes.get(event.machine)
        if node is None:
            return
        if event.name == "registered":
            self._registered[node] = (msgspec.convert(event.fields, BrokerRegistered).broker_epoch, event.at_ns)
        elif event.name == "start":
            self._registered.pop(node, None)

    def observe(self, frame: Frame, fate: Fate) -> None:
        """Take a message as it is written."""
        if frame.api not in CONTROL and frame.api != LEAVE:
            return
        try:
            if frame.is_request:
                self._request(frame)
            elif fate is not Fate.DROPPED:
                self._answer(frame)
        except MalformedMessage:
            return  # the receiver will say so

    def _request(self, frame: Frame) -> None:
        body = decode_request(memoryview(frame.data)[LENGTH_BYTES:]).body
        assert isinstance(body, REQUESTS)
        source, target = frame.source, frame.target
        if CLIENTS in (source, target):
            return
        broker = body.broker_id if isinstance(body, ControlledShutdownRequest) else target
        self._asked[frame.transport.number, frame.correlation_id] = Asked(
            frame.api, frame.version, broker, body.broker_epoch
        )
        if frame.api == LEAVE:
            self._leaving[broker, body.broker_epoch] = None
        else:
            self._informed[broker, body.broker_epoch] = None
        if isinstance(body, StopReplicaRequest) and body.broker_epoch >= 0 and not _deletes(body):
            self._stops(source, broker, body.broker_epoch)

    def _stops(self, controller: int, broker: int, broker_epoch: int) -> None:
        if (broker, broker_epoch) not in self._leaving and (broker, -1) not in self._leaving:
            stopped = StoppedUnasked(controller=controller, broker_epoch=broker_epoch)
            self._accuse(Violated(Invariant.Z2, stopped, node=broker))

    def _answer(self, frame: Frame) -> None:
        asked = self._asked.pop((frame.transport.peer.number, frame.correlation_id), None)
        source = frame.source
        if asked is None or source == CLIENTS or asked.broker_epoch < 0:
            return
        _, body = decode_response(exchange_of(Api(asked.api)), asked.version, memoryview(frame.data)[LENGTH_BYTES:])
        assert isinstance(body, RESPONSES)
        if body.error_code is not Error.NONE:
            return
        epoch, _ = self._registered.get(source, (-1, 0))
        if asked.api in CONTROL and asked.broker_epoch < epoch:
            stale = StaleRequestCarriedOut(
                api=Api(asked.api).name, broker_epoch=asked.broker_epoch, registered_epoch=epoch
            )
            self._accuse(Violated(Invariant.Z1, stale, node=source))

    def look_at_end(self, registered: Mapping[int, int], now_ns: int) -> None:
        """Compare the incarnations that are registered in the end with those that were sent a control request."""
        if not any(epoch >= 0 for _, epoch in self._informed):
            return  # an old protocol version, or nobody was the controller
        for broker, epoch in sorted(registered.items()):
            own, since_ns = self._registered.get(broker, (-1, now_ns))
            if own == epoch and now_ns - since_ns > LONG_REGISTERED_NS and (broker, epoch) not in self._informed:
                self._accuse(Violated(Invariant.Z4, NeverTold(broker_epoch=epoch), node=broker))


def _deletes(body: StopReplicaRequest) -> bool:
    return body.delete_partitions or any(
        state.delete_partition for topic in body.topic_states for state in topic.partition_states
    )
