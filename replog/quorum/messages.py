"""What quorum members say to each other, without the wire's nesting and versions.

Kafka's messages hold lists of topics of partitions; the metadata log has one partition, so these are flat.
`replog/quorum/translate.py` builds them from, and turns them into, `replog/wire/messages`.
`only_metadata` is False when a request named anything but exactly the metadata partition (SPEC 1.5.2).
"""

from enum import StrEnum

import msgspec

from replog.config import Endpoint
from replog.errors import Error
from replog.quorum.voters import ReplicaKey
from replog.types import NO_NODE, NO_OFFSET, NodeId

UNKNOWN_HIGH_WATERMARK = -1
UNSUPPORTED_HIGH_WATERMARK = (1 << 63) - 1  # Fetch before v18 does not carry what the follower knows


class OffsetAndEpoch(msgspec.Struct, frozen=True, order=True):
    """A point in a log: an exclusive end offset and the epoch of the record before it. Also a snapshot's id."""

    offset: int
    epoch: int


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Anything that one node sends to another."""


class VoteRequest(Message, frozen=True, kw_only=True):
    """Ask for a vote, or (pre-vote, KIP-996) whether one would be given."""

    cluster_id: str | None = None
    only_metadata: bool = True
    epoch: int
    candidate: ReplicaKey
    voter: ReplicaKey | None = None  # whom it is meant for; None in old versions
    last_epoch: int
    last_offset: int
    pre_vote: bool


class BeginQuorumEpochRequest(Message, frozen=True, kw_only=True):
    """A new leader presents itself."""

    cluster_id: str | None = None
    only_metadata: bool = True
    epoch: int
    leader_id: NodeId
    voter: ReplicaKey | None = None
    endpoint: Endpoint | None = None


class EndQuorumEpochRequest(Message, frozen=True, kw_only=True):
    """A leader says goodbye and names whom it would like to follow it, most caught-up first."""

    cluster_id: str | None = None
    only_metadata: bool = True
    epoch: int
    leader_id: NodeId
    preferred: tuple[ReplicaKey, ...] = ()
    endpoint: Endpoint | None = None


class FetchRequest(Message, frozen=True, kw_only=True):
    """Ask for the log from an offset on; says by the way what the asker holds."""

    cluster_id: str | None = None
    only_metadata: bool = True
    replica: ReplicaKey
    epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    max_wait_ms: int
    high_watermark: int = UNSUPPORTED_HIGH_WATERMARK


class FetchSnapshotRequest(Message, frozen=True, kw_only=True):
    """Ask for a piece of a snapshot."""

    cluster_id: str | None = None
    only_metadata: bool = True
    replica: ReplicaKey
    epoch: int
    snapshot: OffsetAndEpoch
    position: int
    max_bytes: int


class Answer(Message, frozen=True, kw_only=True):
    """What every answer carries: errors, and the leader as far as the answering node knows."""

    top_error: Error = Error.NONE
    error: Error = Error.NONE
    epoch: int = -1
    leader_id: NodeId = NO_NODE
    endpoint: Endpoint | None = None


class VoteAnswer(Answer, frozen=True, kw_only=True):
    """Answer to a `VoteRequest`."""

    granted: bool = False


class BeginQuorumEpochAnswer(Answer, frozen=True, kw_only=True):
    """Answer to a `BeginQuorumEpochRequest`."""


class EndQuorumEpochAnswer(Answer, frozen=True, kw_only=True):
    """Answer to an `EndQuorumEpochRequest`."""


class BatchSpan(msgspec.Struct, frozen=True):
    """One batch of the log by its outline: offsets from `base_offset` to before `end_offset`, all of one epoch."""

    base_offset: int
    end_offset: int
    epoch: int
    voters: tuple[ReplicaKey, ...] | None = None  # a control batch that fixes the voter set (KIP-853)
    endpoints: tuple[tuple[NodeId, Endpoint], ...] = ()  # where it says that they listen


class FetchAnswer(Answer, frozen=True, kw_only=True):
    """Answer to a `FetchRequest`.

    Going out it names the range of the log to send (`read_offset` up to `read_end`, both NO_OFFSET for none); coming
    in it holds the batches themselves and their outline.
    """

    high_watermark: int = UNKNOWN_HIGH_WATERMARK
    log_start_offset: int = NO_OFFSET
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None
    read_offset: int = NO_OFFSET
    read_end: int = NO_OFFSET
    records: bytes | memoryview = b""
    batches: tuple[BatchSpan, ...] = ()


class FetchSnapshotAnswer(Answer, frozen=True, kw_only=True):
    """Answer to a `FetchSnapshotRequest`; going out it names the bytes, coming in it holds them."""

    snapshot: OffsetAndEpoch | None = None
    size: int = 0
    position: int = 0
    length: int = 0
    content: bytes | memoryview = b""


class VoterChange(StrEnum):
    """What is to become of a voter (KIP-853)."""

    ADD = "add"
    REMOVE = "remove"
    UPDATE = "update"


class VoterChangeRequest(Message, frozen=True, kw_only=True):
    """Ask the leader for another voter, one less, or to know another address of one. Tools ask it, members do not."""

    change: VoterChange
    cluster_id: str | None = None
    voter: ReplicaKey
    endpoint: Endpoint | None = None
    epoch: int = -1  # of UPDATE
    timeout_ms: int = 0
    ack_when_committed: bool = True


class VoterChangeAnswer(Answer, frozen=True, kw_only=True):
    """Answer to a `VoterChangeRequest`."""

    change: VoterChange
    message: str | None = None


Request = VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest | FetchRequest | FetchSnapshotRequest
Reply = VoteAnswer | BeginQuorumEpochAnswer | EndQuorumEpochAnswer | FetchAnswer | FetchSnapshotAnswer
