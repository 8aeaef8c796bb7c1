"""What comes into a controller and what has to be done about it."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from replog.metadata.records import MetadataRecord
from replog.types import BrokerEpoch, NodeId
from replog.wire.messages.get_replica_log_info import GetReplicaLogInfoRequest, GetReplicaLogInfoResponse


class Client(NamedTuple):
    """Who asked a broker for what that passed on, and in which version of the API."""

    user: str
    client_id: str
    version: int


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a broker or of an admin client (forwarded by a broker): a body of `replog.wire.messages`."""

    token: int  # goes back with the reply
    body: msgspec.Struct
    received_ms: int  # contact counts from here, however long the request waited (SPEC 2.2.7)
    client: Client | None = None  # as far as its sender says whose it is


class LogInfoAnswered(msgspec.Struct, frozen=True, kw_only=True):
    """A broker's answer to `AskLogInfo`; None when none came."""

    broker_id: NodeId
    request: GetReplicaLogInfoRequest
    response: GetReplicaLogInfoResponse | None


class BrokerRefuses(msgspec.Struct, frozen=True, kw_only=True):
    """A broker's address refuses connections, and the one by which this incarnation sent heartbeats is lost."""

    broker_id: NodeId
    broker_epoch: BrokerEpoch


class Tick(msgspec.Struct, frozen=True):
    """Time has passed: sessions may have ended, periodic work may be due."""


Event = Request | LogInfoAnswered | BrokerRefuses | Tick


class Append(msgspec.Struct, frozen=True):
    """Write these records to the metadata log as one batch."""

    records: list[MetadataRecord]


class Reply(msgspec.Struct, frozen=True):
    """Answer a request, as soon as everything appended so far is committed (SPEC 2.14.1)."""

    token: int
    body: msgspec.Struct


class Emit(msgspec.Struct, frozen=True):
    """Record a fact for the recording, as soon as everything appended so far is committed."""

    event: str
    fields: Mapping[str, object]


class Probe(msgspec.Struct, frozen=True):
    """A rare state was reached."""

    name: str


class AskLogInfo(msgspec.Struct, frozen=True):
    """Ask a broker how far its logs reach."""

    broker_id: NodeId
    request: GetReplicaLogInfoRequest


Effect = Append | Reply | Emit | Probe | AskLogInfo
