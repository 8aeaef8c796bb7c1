"""A broker's lifecycle with its controller: registration, heartbeats, controlled shutdown (SPEC 2.3, 3.1.7, 3.11).

One process is one incarnation. It registers and gets a broker epoch, reports its metadata position with every
heartbeat, asks to stay fenced until it has caught up with the metadata, and asks to leave before it stops. A
session lost while alive costs nothing but the fence: epoch and incarnation stay (3.11.6). Only a controller that no
longer knows the broker makes it register again.

The shell calls `on_tick` at the time that `next_ms` names and carries out the effects.
"""

from collections.abc import Sequence
from enum import Enum, auto
from uuid import UUID

import msgspec

from replog.broker.identity import BrokerIdentity
from replog.errors import Error
from replog.types import BrokerEpoch


class Phase(Enum):
    """Where the broker is in its lifecycle."""

    REGISTERING = auto()
    CATCHING_UP = auto()  # registered; asks to stay fenced
    READY = auto()  # asks to be unfenced
    LEAVING = auto()  # controlled shutdown under way
    STOPPED = auto()


class Register(msgspec.Struct, frozen=True, kw_only=True):
    """Send BrokerRegistration to the active controller."""

    incarnation: UUID
    previous_broker_epoch: BrokerEpoch


class SendHeartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """Send BrokerHeartbeat to the active controller."""

    broker_epoch: BrokerEpoch
    metadata_offset: int
    want_fence: bool
    want_shutdown: bool
    offline_directories: tuple[UUID, ...] = ()


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """The controller gave this incarnation its broker epoch: replication may begin."""

    broker_epoch: BrokerEpoch
    previous_broker_epoch: BrokerEpoch


class Fenced(msgspec.Struct, frozen=True):
    """The controller fenced this broker."""


class Unfenced(msgspec.Struct, frozen=True):
    """The controller lets this broker lead and join ISRs."""


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """Stop serving and close; `agreed` when the controller said so, otherwise time was up."""

    agreed: bool


class Give(msgspec.Struct, frozen=True, kw_only=True):
    """Registration is hopeless: end the process with this reason."""

    reason: str


Effect = Register | SendHeartbeat | Registered | Fenced | Unfenced | Stop | Give


class Lifecycle:
    """One broker process, from the first registration to the last heartbeat."""

    def __init__(
        self,
        *,
        identity: BrokerIdentity,
        previous_broker_epoch: BrokerEpoch,
        heartbeat_interval_ms: int,
        registration_timeout_ms: int,
        shutdown_timeout_ms: int,
        retry_ms: int,
        now_ms: int,
    ) -> None:
        self.identity = identity
        self.previous_broker_epoch = previous_broker_epoch
        self.heartbeat_interval_ms = heartbeat_interval_ms
        self.shutdown_timeout_ms = shutdown_timeout_ms
        self.retry_ms = retry_ms
        self.phase = Phase.REGISTERING
        self.is_fenced = True
        self.metadata_offset = -1
        self.offline_directories: tuple[UUID, ...] = ()
        self._reported_directories: tuple[UUID, ...] = ()
        self._has_other_cordons = False  # than the last heartbeat said
        self.registration_deadline_ms = now_ms + registration_timeout_ms
        self.shutdown_deadline_ms: int | None = None
        self.in_flight = False
        self.next_ms: int | None = now_ms
        self.next_heartbeat_interval_ms = heartbeat_interval_ms

    def on_tick(self, now_ms: int) -> Sequence[Effect]:
        """Send what is due; nothing while a request is in flight or before its time."""
        if self.phase is Phase.STOPPED:
            return []
        if self.shutdown_deadline_ms is not None and now_ms >= self.shutdown_deadline_ms:
            return self._stop(agreed=False)
        if self.in_flight or self.next_ms is None or now_ms < self.next_ms:
            return []
        self.in_flight = True
        self.next_ms = self.shutdown_deadline_ms
        if self.phase is Phase.REGISTERING:
            return [Register(incarnation=self.identity.incarnation, previous_broker_epoch=self.previous_broker_epoch)]
        return [self._send_heartbeat()]

    def on_registration_answer(self, error: Error, broker_epoch: BrokerEpoch, now_ms: int) -> Sequence[Effect]:
        """Begin to beat with the new epoch, or try again until time is up.

        A predecessor's session may have to expire first (DUPLICATE_BROKER_REGISTRATION), so no refusal is final.
        """
        if self.phase is not Phase.REGISTERING:
            return []
        self.in_flight = False
        if error is not Error.NONE:
            if now_ms >= self.registration_deadline_ms:
                return [Give(reason=f"the controller refused registration: {error.name}")]
            self.next_ms = now_ms + self.retry_ms
            return []
        previous, self.identity.broker_epoch = self.identity.broker_epoch, broker_epoch
        self.phase = Phase.CATCHING_UP
        self.next_ms = now_ms
        return [Registered(broker_epoch=broker_epoch, previous_broker_epoch=previous)]

    def on_heartbeat_answer(
        self, error: Error, *, is_caught_up: bool, is_fenced: bool, should_shut_down: bool, now_ms: int
    ) -> Sequence[Effect]:
        """Take the controller's view; register anew if it does not know us (SPEC 3.11.6)."""
        if self.phase in (Phase.REGISTERING, Phase.STOPPED):
            return []
        self.in_flight = False
        if error in (Error.STALE_BROKER_EPOCH, Error.BROKER_ID_NOT_REGISTERED):
            return self._register_again(now_ms)
        if error is not Error.NONE:
            self._wake(now_ms + self.retry_ms)
            return []
        if self.phase is Phase.LEAVING:
            if should_shut_down:
                return self._stop(agreed=True)
            # The controller moves leaderships in batches and answers when asked: ask faster than at other times.
            self._wake(now_ms + min(self.retry_ms, self.heartbeat_interval_ms))
            return []
        is_reported = self._reported_directories == self.offline_directories and not self._has_other_cordons
        self._wake(now_ms + self.heartbeat_interval_ms if is_reported else now_ms)
        if self.phase is Phase.CATCHING_UP:
            if is_caught_up:
                self.phase = Phase.READY
            # Or it has caught up while the question was on its way: then it asks again.
            if is_caught_up or self.metadata_offset >= self.identity.broker_epoch:
                self._wake(now_ms)
        return self._note_fence(is_fenced=is_fenced)

    def on_no_answer(self, now_ms: int) -> Sequence[Effect]:
        """The request failed on the way, or nobody is the active controller: try again soon."""
        self.in_flight = False
        if self.phase is Phase.REGISTERING and now_ms >= self.registration_deadline_ms:
            return [Give(reason="no controller accepted a registration")]
        if self.phase is not Phase.STOPPED:
            self._wake(now_ms + self.retry_ms)
        return []

    def on_metadata(self, metadata_offset: int, now_ms: int) -> None:
        """Note the last applied metadata offset; reaching our own registration is reported at once."""
        has_caught_up = self.metadata_offset < self.identity.broker_epoch <= metadata_offset
        self.metadata_offset = metadata_offset
        if self.phase is Phase.CATCHING_UP and has_caught_up and not self.in_flight:
            self._wake(now_ms)

    def on_directory_failed(self, directory_id: UUID, now_ms: int) -> None:
        """Report them to the controller at once, and with every heartbeat: it moves the leaderships that lay there (KIP-858)."""
        self.offline_directories = (*self.offline_directories, directory_id)
        if self.phase in (Phase.CATCHING_UP, Phase.READY):
            self._wake(now_ms)

    def on_cordons_changed(self, now_ms: int) -> None:
        """Report at once that other directories take new replicas than before: controllers place by what heartbeats say (KIP-1066)."""
        self._has_other_cordons = True
        if self.phase in (Phase.CATCHING_UP, Phase.READY) and not self.in_flight:
            self._wake(now_ms)

    def begin_shutdown(self, now_ms: int) -> Sequence[Effect]:
        """Ask to leave; a broker that never registered may go at once."""
        if self.phase is Phase.STOPPED:
            return []
        if self.phase is Phase.REGISTERING:
            return self._stop(agreed=False)
        self.phase = Phase.LEAVING
        self.shutdown_deadline_ms = now_ms + self.shutdown_timeout_ms
        self._wake(now_ms if not self.in_flight else self.shutdown_deadline_ms)
        return []

    def _send_heartbeat(self) -> SendHeartbeat:
        self._reported_directories = self.offline_directories
        self._has_other_cordons = False
        return SendHeartbeat(
            broker_epoch=self.identity.broker_epoch,
            metadata_offset=self.metadata_offset,
            want_fence=self.phase is Phase.CATCHING_UP,
            want_shutdown=self.phase is Phase.LEAVING,
            offline_directories=self.offline_directories,
        )

    def _register_again(self, now_ms: int) -> Sequence[Effect]:
        if self.phase is Phase.LEAVING:
            return self._stop(agreed=False)
        self.phase = Phase.REGISTERING
        # Still the same process with all its data: what it names as its previous broker epoch is the one just ended.
        self.previous_broker_epoch = self.identity.broker_epoch
        self.registration_deadline_ms = now_ms + 60_000
        self.next_ms = now_ms
        return self._note_fence(is_fenced=True)

    def _note_fence(self, *, is_fenced: bool) -> Sequence[Effect]:
        if is_fenced == self.is_fenced:
            return []
        self.is_fenced = is_fenced
        return [Fenced() if is_fenced else Unfenced()]

    def _stop(self, *, agreed: bool) -> Sequence[Effect]:
        self.phase = Phase.STOPPED
        self.next_ms = None
        return [Stop(agreed=agreed)]

    def _wake(self, at_ms: int) -> None:
        if self.shutdown_deadline_ms is not None:
            at_ms = min(at_ms, self.shutdown_deadline_ms)
        self.next_ms = at_ms
