"""The quorum-state file: what a member must not forget (SPEC 1.1).

JSON in Kafka's layout: version 1 has leaderId, leaderEpoch, votedId, votedDirectoryId; version 0, which is read
too, has no directory and three fields nobody needs. A file that cannot be read counts as missing: the epoch of the
log's last batch then keeps the member from going back (SPEC 1.1.4).
"""

import base64
import binascii
import json
from uuid import UUID

import msgspec

from replog.config.setting import INT_MAX
from replog.quorum.voters import ReplicaKey
from replog.types import NO_NODE, ZERO_UUID, NodeId, QuorumEpoch

FILE_NAME = "quorum-state"
VERSION = 1


class StoredQuorumState(msgspec.Struct, frozen=True, kw_only=True):
    """What is durable: the epoch, and who leads it and who got this member's vote in it, if known."""

    epoch: QuorumEpoch = QuorumEpoch(0)
    leader_id: NodeId = NO_NODE
    voted: ReplicaKey | None = None


def encode(state: StoredQuorumState) -> bytes:
    """Return the file's content."""
    voted = state.voted or ReplicaKey(NO_NODE)
    fields = {
        "leaderId": state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": voted.node_id,
        "votedDirectoryId": base64.urlsafe_b64encode(voted.directory_id.bytes).decode().rstrip("="),
        "data_version": VERSION,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode(content: bytes) -> StoredQuorumState | None:
    """Return what the file says; None when it cannot be read."""
    try:
        fields = json.loads(content)
        if fields.get("data_version", 0) not in (0, VERSION):
            return None
        numbers = [fields.get(name, -1) for name in ("leaderEpoch", "leaderId", "votedId")]
        directory_id = _uuid(fields.get("votedDirectoryId", ""))
    except (ValueError, TypeError, AttributeError, RecursionError, binascii.Error):
        return None
    if not all(type(number) is int and -1 <= number <= INT_MAX for number in numbers):
        return None  # what no member has written would be sent to others, or be another epoch than was voted in
    epoch, leader_id, voted_id = numbers
    if epoch < 0:
        return None
    voted = ReplicaKey(NodeId(voted_id), directory_id) if voted_id >= 0 else None
    return StoredQuorumState(epoch=QuorumEpoch(epoch), leader_id=NodeId(max(leader_id, -1)), voted=voted)


def _uuid(text: str) -> UUID:
    if not text:
        return ZERO_UUID
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
