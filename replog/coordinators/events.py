"""What comes to a coordinator and what it wants done: requests in, log writes and replies out.

A coordinator is a state machine over one partition of an internal topic. It changes lasting state only when the records
that say so are committed: `Write` hands them to the shell, `Written` comes back once the high watermark has passed
them, in the order of the log, and only while the same leadership lasts. A write that was refused comes back at
once as `NotWritten`; one whose outcome nobody knows never comes back: leadership is gone then and with it this core.
"""

from typing import Generic, NamedTuple, TypeGuard, TypeVar

import msgspec

from replog.errors import Error
from replog.types import TopicPartition

Token = int
Body = TypeVar("Body", bound=msgspec.Struct)


class Now(NamedTuple):
    """The time of an event: monotonic for time-outs, wall clock for what is stored."""

    now_ms: int
    wall_ms: int


class Request(msgspec.Struct, Generic[Body], frozen=True, kw_only=True):
    """A client's request; `token` names it in the reply."""

    token: Token
    version: int
    client_id: str
    client_host: str
    body: Body


AnyRequest = Request[msgspec.Struct]


def asks(request: AnyRequest, of: type[Body]) -> TypeGuard[Request[Body]]:
    """Return whether a request is of this type."""
    return isinstance(request.body, of)


class Entry(NamedTuple):
    """A record of the internal topic, framed; a None value is a tombstone."""

    key: bytes
    value: bytes | None


class Producer(NamedTuple):
    """Whose transaction a write belongs to."""

    producer_id: int
    producer_epoch: int


class Reply(msgspec.Struct, frozen=True):
    """Answer a request."""

    token: Token
    body: msgspec.Struct


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """Append these records as one batch, acks=all; the outcome comes with the ticket."""

    entries: list[Entry]
    ticket: msgspec.Struct
    producer: Producer | None = None


class SendMarkers(msgspec.Struct, frozen=True, kw_only=True):
    """Write end markers to these partitions until each has one; then comes `MarkersWritten`."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int


Effect = Reply | Write | SendMarkers


class Written(msgspec.Struct, frozen=True):
    """A write is committed: the high watermark has passed it."""

    ticket: msgspec.Struct
    base_offset: int


class NotWritten(msgspec.Struct, frozen=True):
    """A write was refused; nothing of it is in the log."""

    ticket: msgspec.Struct
    error: Error


class MarkersWritten(msgspec.Struct, frozen=True):
    """All end markers of this transaction are committed."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
