"""What the watch and the cluster read of the events that nodes report: the fields of each, typed."""

import msgspec


class AboutNode(msgspec.Struct):
    """Of any event: the node that it is about, where that is not the one that reports it."""

    node: int | None = None


class BrokerRegistered(msgspec.Struct):
    """Of `registered`: reported by the controller (KRaft) or by the broker itself (ZooKeeper mode)."""

    node: int
    broker_epoch: int


class QuorumLeader(msgspec.Struct):
    """Of `quorum_leader`: whom the reporting node takes for the leader of this quorum epoch."""

    leader: int
    epoch: int


class Followed(msgspec.Struct):
    """Of `follows`: a replica has taken the order to follow in a leader epoch."""

    node: int
    topic: str
    partition: int
    leader_epoch: int


class HighWatermark(msgspec.Struct):
    """Of `high_watermark`: how far the reporting leader takes its partition for committed."""

    topic: str
    partition: int
    leader_epoch: int
    high_watermark: int
    last_stable_offset: int | None = None
    log_start_offset: int = 0
