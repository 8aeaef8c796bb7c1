"""A broker's registration: the ephemeral znode whose czxid is the broker's epoch (KIP-380).

ZooKeeper's answer to a create has no Stat. So the znode is created and written again in one transaction: the second
operation's Stat has the czxid, and nobody can have come between.
"""

from collections.abc import Sequence
from enum import Enum

import msgspec

from replog.config import Endpoint
from replog.types import BrokerEpoch, NodeId
from replog.zookeeper import paths
from replog.zookeeper.operations import ANY_VERSION, Create, Operation, Result, SetData, Stat
from replog.zookeeper.znodes import BrokerZnode, encoded

LISTENER = "PLAINTEXT"


def broker_znode(endpoint: Endpoint, *, rack: str | None, incarnation: str, wall_ms: int) -> BrokerZnode:
    """Return what a broker says of itself."""
    return BrokerZnode(
        host=endpoint.host,
        port=endpoint.port,
        timestamp=str(wall_ms),
        endpoints=[f"{LISTENER}://{endpoint}"],
        rack=rack,
        listener_security_protocol_map={LISTENER: LISTENER},
        incarnation=incarnation,
    )


def transaction(node: NodeId, znode: msgspec.Struct) -> list[Operation]:
    """Return the operations that register a broker and return its epoch, atomically."""
    path, data = paths.broker(node), encoded(znode)
    return [Create(path=path, data=data, ephemeral=True), SetData(path=path, data=data, version=ANY_VERSION)]


def epoch_of(results: Sequence[Result]) -> BrokerEpoch:
    """Return the epoch that the transaction gave."""
    stat = results[-1]
    assert isinstance(stat, Stat)
    return BrokerEpoch(stat.czxid)


class Found(Enum):
    """Whose registration is in the way."""

    OURS = "ours"  # an answer was lost: this session registered already
    SOMEBODY = "somebody"  # an earlier process whose session has not ended yet, or another live broker


def whose(stat: Stat, session_id: int) -> Found:
    """Return whose znode it is."""
    return Found.OURS if stat.ephemeral_owner == session_id else Found.SOMEBODY
