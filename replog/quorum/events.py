"""What happens to a quorum member, and what it wants done about it.

Every event carries `now_ms`: the core has no clock. Effects are carried out strictly in order; that order is what
makes a vote durable before it is sent (SPEC 1.1.2).
"""

from enum import Enum

import msgspec

from replog.config import Endpoint
from replog.quorum.messages import BatchSpan, OffsetAndEpoch, Reply, Request, VoterChangeAnswer, VoterChangeRequest
from replog.quorum.state_file import StoredQuorumState
from replog.quorum.voters import ReplicaKey
from replog.types import NodeId, QuorumEpoch


class Failure(Enum):
    """Why a request has no answer."""

    LOST = "lost"  # timed out, refused or connection lost: it may have been carried out
    UNSUPPORTED_VERSION = "unsupported version"  # the peer cannot read it: surely not carried out


class BaseEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened at a point in time (milliseconds of the node's own clock)."""

    now_ms: int


class Started(BaseEvent, frozen=True, kw_only=True):
    """The node has opened its log and read its quorum state. The first event, once."""


class Tick(BaseEvent, frozen=True, kw_only=True):
    """Time has passed: `next_deadline_ms` is due."""


class Received(BaseEvent, frozen=True, kw_only=True):
    """A request came in; `token` comes back in the `Answered` effect."""

    token: int
    request: Request | VoterChangeRequest


class Replied(BaseEvent, frozen=True, kw_only=True):
    """A request of ours was answered."""

    request_id: int
    answer: Reply


class Unanswered(BaseEvent, frozen=True, kw_only=True):
    """A request of ours will not be answered."""

    request_id: int
    failure: Failure


class AppendAsked(BaseEvent, frozen=True, kw_only=True):
    """The leader's state machine wants a batch of `count` records appended. Only legal while leading."""

    count: int
    records: bytes | memoryview | tuple[bytes, ...]


class Synced(BaseEvent, frozen=True, kw_only=True):
    """The `SyncLog` effect of this id is carried out: what was in the log then is durable."""

    sync_id: int


class SnapshotTaken(BaseEvent, frozen=True, kw_only=True):
    """The state machine has written a snapshot of committed state; it is durable."""

    snapshot: OffsetAndEpoch
    size: int


class SnapshotVoters(BaseEvent, frozen=True, kw_only=True):
    """A snapshot that took the log's place names these voters."""

    snapshot: OffsetAndEpoch
    voters: tuple[ReplicaKey, ...]
    endpoints: tuple[tuple[NodeId, Endpoint], ...] = ()


class ResignAsked(BaseEvent, frozen=True, kw_only=True):
    """Somebody wants this node to stop leading."""


class ShutDownAsked(BaseEvent, frozen=True, kw_only=True):
    """The node stops: it leaves in good order, and answers pre-votes meanwhile."""


class BaseEffect(msgspec.Struct, frozen=True, kw_only=True):
    """Something the world has to do."""


class Persist(BaseEffect, frozen=True, kw_only=True):
    """Write the quorum-state file durably."""

    state: StoredQuorumState


class Send(BaseEffect, frozen=True, kw_only=True):
    """Send a request; report `Replied` or `Unanswered` with its id."""

    request_id: int
    to: NodeId
    endpoint: Endpoint | None
    request: Request


class Answered(BaseEffect, frozen=True, kw_only=True):
    """Answer the request that came with this token."""

    token: int
    answer: Reply | VoterChangeAnswer


class AppendRecords(BaseEffect, frozen=True, kw_only=True):
    """Write a batch of the leader's own records at `base_offset`."""

    base_offset: int
    epoch: QuorumEpoch
    records: bytes | memoryview | tuple[bytes, ...]


class AppendLeaderChange(BaseEffect, frozen=True, kw_only=True):
    """Write the control batch that opens an epoch: one record."""

    base_offset: int
    epoch: QuorumEpoch
    leader_id: NodeId
    voters: tuple[ReplicaKey, ...]
    granting: tuple[NodeId, ...]


class AppendVoters(BaseEffect, frozen=True, kw_only=True):
    """Write the control batch that fixes the voters' directories: one record, or two with the version (KIP-853)."""

    base_offset: int
    epoch: QuorumEpoch
    voters: tuple[ReplicaKey, ...]
    endpoints: tuple[tuple[NodeId, Endpoint], ...] = ()
    with_version: bool = False


class AppendFetched(BaseEffect, frozen=True, kw_only=True):
    """Write a leader's batches as they are."""

    base_offset: int
    records: bytes | memoryview
    batches: tuple[BatchSpan, ...]


class SyncLog(BaseEffect, frozen=True, kw_only=True):
    """Make the log durable; report `Synced`. May take its time: nothing else waits for it."""

    sync_id: int
    end_offset: int


class TruncateLog(BaseEffect, frozen=True, kw_only=True):
    """Cut the log: `end_offset` is the first offset that goes."""

    end_offset: int


class StoreSnapshotChunk(BaseEffect, frozen=True, kw_only=True):
    """Write a piece of a snapshot that is being fetched; position 0 starts a new temporary file."""

    snapshot: OffsetAndEpoch
    position: int
    content: bytes | memoryview


class InstallSnapshot(BaseEffect, frozen=True, kw_only=True):
    """Freeze the fetched snapshot, empty the log to start at its end, reload the state machine from it."""

    snapshot: OffsetAndEpoch
    size: int


class MoveLogStart(BaseEffect, frozen=True, kw_only=True):
    """Drop the log below a committed snapshot."""

    offset: int


class Committed(BaseEffect, frozen=True, kw_only=True):
    """The log up to `high_watermark` is committed: hand it to the state machine in offset order."""

    high_watermark: int


class LeaderChanged(BaseEffect, frozen=True, kw_only=True):
    """Another leader or epoch is known (NO_NODE: none)."""

    leader_id: NodeId
    epoch: QuorumEpoch


class Leading(BaseEffect, frozen=True, kw_only=True):
    """The node leads and everything up to its epoch's start is committed: the state machine may act."""

    epoch: QuorumEpoch


class Resigned(BaseEffect, frozen=True, kw_only=True):
    """The node leads no more: what is not committed will not be by it."""

    epoch: QuorumEpoch


class Probe(BaseEffect, frozen=True, kw_only=True):
    """A rare state was reached."""

    name: str


class Note(BaseEffect, frozen=True, kw_only=True):
    """Something a person will want to read."""

    text: str


Event = (
    Started
    | Tick
    | Received
    | Replied
    | Unanswered
    | AppendAsked
    | Synced
    | SnapshotTaken
    | SnapshotVoters
    | ResignAsked
    | ShutDownAsked
)
Effect = (
    Persist
    | Send
    | Answered
    | AppendRecords
    | AppendLeaderChange
    | AppendVoters
    | AppendFetched
    | SyncLog
    | TruncateLog
    | StoreSnapshotChunk
    | InstallSnapshot
    | MoveLogStart
    | Committed
    | LeaderChanged
    | Leading
    | Resigned
    | Probe
    | Note
)
