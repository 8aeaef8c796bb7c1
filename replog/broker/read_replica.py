"""Which replica a consumer had better read from: one in its own rack (KIP-392).

The leader says so instead of sending data; the consumer then asks that follower, and comes back when it is refused there.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from replog.types import NodeId

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class Readable(NamedTuple):
    """A replica in sync that has what is asked for."""

    node: NodeId
    rack: str
    log_end_offset: int
    last_caught_up_ms: int


def preferred_read_replica(rack: str, *, leader_rack: str, readable: Iterable[Readable]) -> NodeId | None:
    """Return whom to ask instead of the leader; None where the leader is as near as anyone.

    readable:  followers only.
    source:    KIP-392, "RackAwareReplicaSelector": the most caught-up one of the reader's rack.
    """
    if not rack or rack == leader_rack:
        return None
    near = [replica for replica in readable if replica.rack == rack]
    best = max(near, key=lambda one: (one.log_end_offset, one.last_caught_up_ms, -one.node), default=None)
    return None if best is None else best.node
