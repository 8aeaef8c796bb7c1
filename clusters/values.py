"""The words that clusters, faults and workloads share: links, proofs, the committed state, and how a call fails.

They stand apart from `tribunal.clusters.api`, which offers them to everybody, because `tribunal.clusters.capabilities` speaks in
them too.
"""

from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from replog.types import TopicPartition
from tribunal.clusters.spec import ClusterSpec
from tribunal.results.not_started import Attempt

CLIENTS: Final = 0  # the node id that stands for every client


class ClusterError(Exception):
    """The place to run failed: one line that says which node and why, and what its log said last."""


class Unsupported(ClusterError):
    """Not possible on this kind of cluster; the message says why."""


class Declined(ClusterError):
    """The cluster said no; an earlier asking that nobody answered may have been carried out."""


class Refused(Declined):
    """The cluster said no to the first asking: surely nothing was done."""


class NotAsked(ClusterError):
    """Nobody could be asked: surely nothing was done."""


class Unanswered(ClusterError):
    """Somebody was asked and did not answer: nobody knows what was done."""


class Unsettled(ClusterError):
    """Something waited for did not come about in time."""


class NotServing(ClusterError):
    """A node that was started after a fault has ended by itself, or was silent for as long as a start may take.

    within_ms:  how long that is.
    """

    def __init__(self, words: str, *, node: int, within_ms: int, attempt: Attempt) -> None:
        super().__init__(words)
        self.node = node
        self.within_ms = within_ms
        self.attempt = attempt


class Link(NamedTuple):
    """A directed pair: what `source` sends to `target`."""

    source: int
    target: int

    def __str__(self) -> str:
        return f"{self.source or 'clients'}->{self.target or 'clients'}"


class CutMode(StrEnum):
    """What becomes of bytes on a link that is cut."""

    HOLD = "hold"  # as a dead cable does to TCP: nothing passes; the senders' kernels send it again after the heal
    DROP = "drop"  # bytes are lost for good: connections that lost some are reset at the heal
    RESET = "reset"  # connections are reset at once, new ones refused


Facts = dict[str, object]  # whatever JSON can say: written down, for readers of the recording


class Proof(msgspec.Struct, frozen=True):
    """What was seen of a fault or of its heal.

    undone:  of a heal that does not hold: the fault itself is undone, only full service did not come about.
    """

    holds: bool
    facts: Facts
    undone: bool = False

    @property
    def is_undone(self) -> bool:
        """Whether the fault itself is undone, also where the cluster did not come back into full service."""
        return self.holds or self.undone


class PartitionState(msgspec.Struct, frozen=True, kw_only=True):
    """One partition as last committed."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    recovering: bool = False


class BrokerState(msgspec.Struct, frozen=True, kw_only=True):
    """One broker's registration as last committed."""

    broker_epoch: int
    incarnation: str
    fenced: bool


class ClusterState(msgspec.Struct, kw_only=True):
    """What is known of the committed metadata: grows while the run goes on; read it, never write it."""

    metadata_offset: int = -1
    quorum_leader: int = -1
    quorum_epoch: int = -1
    brokers: dict[int, BrokerState] = {}
    partitions: dict[TopicPartition, PartitionState] = {}
    topic_ids: dict[str, str] = {}  # of the topics that there are
    missed: dict[int, int] = {}  # how often each broker was fenced, or left an ISR that went on without it
    roles: dict[str, frozenset[int]] = {}  # of a described system: which nodes said that they have each

    def is_fully_in_sync(self, spec: ClusterSpec) -> bool:
        """Return whether every broker serves and every partition has all its replicas in the ISR."""
        serving = sum(not broker.fenced for broker in self.brokers.values()) == spec.brokers
        return serving and all(
            partition.leader >= 0 and len(partition.isr) == len(partition.replicas)
            for partition in self.partitions.values()
        )
