"""Sessions of brokers, and what a heartbeat may change (SPEC 2.2.7, 2.3).

Soft state of the active controller: nothing here is in the metadata log. A session belongs to one
incarnation of a broker, (id, epoch).
"""

from enum import Enum

import msgspec

from replog.metadata.image import Image
from replog.metadata.state import Broker
from replog.types import BrokerEpoch, NodeId


class BrokerState(Enum):
    """The controller's view of a broker."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled_shutdown"
    SHUTDOWN_NOW = "shutdown_now"


def broker_state(broker: Broker) -> BrokerState:
    """Return the state that a registration stands for."""
    if broker.fenced:
        return BrokerState.FENCED
    return BrokerState.CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else BrokerState.UNFENCED


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """What a heartbeat says, and what the controller knows when it comes."""

    want_fence: bool = False
    want_shut_down: bool = False
    caught_up: bool  # the broker has replayed its own registration record
    has_leaderships: bool
    shutdown_offset: int | None = None  # end of the records by which it entered controlled shutdown
    lowest_active_offset: int | None = None  # how far the slowest active broker has replayed


def next_state(state: BrokerState, beat: Beat) -> BrokerState:
    """Return the broker's next state (SPEC 2.3.2-4)."""
    match state:
        case BrokerState.FENCED:
            if beat.want_shut_down:
                return BrokerState.SHUTDOWN_NOW
            return BrokerState.UNFENCED if beat.caught_up and not beat.want_fence else BrokerState.FENCED
        case BrokerState.UNFENCED:
            if beat.want_fence:
                return BrokerState.SHUTDOWN_NOW if beat.want_shut_down else BrokerState.FENCED
            if not beat.want_shut_down:
                return BrokerState.UNFENCED
            return BrokerState.CONTROLLED_SHUTDOWN if beat.has_leaderships else BrokerState.SHUTDOWN_NOW
        case BrokerState.CONTROLLED_SHUTDOWN:
            return BrokerState.SHUTDOWN_NOW if _all_know_of_shutdown(beat) else BrokerState.CONTROLLED_SHUTDOWN
        case BrokerState.SHUTDOWN_NOW:
            return BrokerState.SHUTDOWN_NOW


def _all_know_of_shutdown(beat: Beat) -> bool:
    if beat.has_leaderships or beat.shutdown_offset is None:
        return False
    return beat.lowest_active_offset is None or beat.shutdown_offset <= beat.lowest_active_offset


class Session:
    """Contact with one incarnation of a broker."""

    __slots__ = ("epoch", "last_contact_ms", "metadata_offset", "shutdown_offset")

    def __init__(self, epoch: BrokerEpoch, last_contact_ms: int) -> None:
        self.epoch = epoch
        self.last_contact_ms = last_contact_ms
        self.metadata_offset = -1
        self.shutdown_offset: int | None = None


class Sessions:
    """When the last heartbeat of each broker came, by (id, epoch)."""

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._sessions: dict[NodeId, Session] = {}

    def activate(self, image: Image, now_ms: int) -> None:
        """Begin a term: for every unfenced broker a heartbeat counts as just come, for fenced ones as never (D14)."""
        self._sessions = {
            broker_id: Session(broker.epoch, now_ms) for broker_id, broker in image.brokers.items() if not broker.fenced
        }

    def touch(self, broker_id: NodeId, epoch: BrokerEpoch, now_ms: int) -> Session:
        """Record contact with an incarnation of a broker; an older one's session ends."""
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != epoch:
            session = self._sessions[broker_id] = Session(epoch, now_ms)
        session.last_contact_ms = max(session.last_contact_ms, now_ms)
        return session

    def drop(self, broker_id: NodeId) -> None:
        """Forget a broker: registered anew, or unregistered."""
        self._sessions.pop(broker_id, None)

    def is_valid(self, broker_id: NodeId, epoch: BrokerEpoch, now_ms: int) -> bool:
        """Return whether a heartbeat of this very incarnation came within the session timeout."""
        session = self._sessions.get(broker_id)
        return session is not None and session.epoch == epoch and now_ms - session.last_contact_ms < self.timeout_ms

    def expired(self, image: Image, now_ms: int) -> list[NodeId]:
        """Return unfenced brokers whose session is over, longest silent first (SPEC 2.3.8)."""
        silent = [
            (session.last_contact_ms if session else 0, broker_id)
            for broker_id, broker in image.brokers.items()
            if not broker.fenced
            for session in [self._session_of(broker)]
            if session is None or now_ms - session.last_contact_ms >= self.timeout_ms
        ]
        return [broker_id for _, broker_id in sorted(silent)]

    def next_expiry_ms(self, image: Image) -> int | None:
        """Return when the next session ends, None when no unfenced broker has one."""
        sessions = [self._session_of(broker) for broker in image.brokers.values() if not broker.fenced]
        contacts = [session.last_contact_ms for session in sessions if session]
        return min(contacts) + self.timeout_ms if contacts else None

    def lowest_active_offset(self, image: Image) -> int | None:
        """Return how far the slowest active broker has replayed the metadata log; None without any."""
        offsets = [
            session.metadata_offset if session else -1
            for broker in image.brokers.values()
            if broker.is_active
            for session in [self._session_of(broker)]
        ]
        return min(offsets) if offsets else None

    def _session_of(self, broker: Broker) -> Session | None:
        session = self._sessions.get(broker.broker_id)
        return session if session and session.epoch == broker.epoch else None
