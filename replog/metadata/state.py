"""The values an image is made of: one partition, one registered broker (SPEC 2.1)."""

from typing import Final
from uuid import UUID

import msgspec

from replog.config.endpoints import Endpoint
from replog.types import BrokerEpoch, LeaderEpoch, LeaderRecoveryState, NodeId, PartitionEpoch

Nodes = tuple[NodeId, ...]

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
CLIENT_METRICS_RESOURCE: Final = 16
GROUP_RESOURCE: Final = 32
CLUSTER_DEFAULT: Final = ""  # a broker resource without name holds for the whole cluster

CONTROLLERS_LEVEL: Final = 15  # metadata version 3.7-IV0: controllers register
SCRAM_LEVEL: Final = 11  # metadata version 3.5-IV2: credentials of users
CORDONED_LEVEL: Final = 30  # metadata version 4.3-IV0: log directories that take no new replicas (KIP-1066)
DIRECTORIES_LEVEL: Final = 17  # metadata version 3.7-IV2: records carry log directories

# Directory ids that name no directory (KIP-858); those up to 99 are reserved.
UNASSIGNED: Final = UUID(int=0)  # nobody has said yet where the replica lies
LOST: Final = UUID(int=1)  # in some directory that has failed
MIGRATING: Final = UUID(int=2)  # in some directory, of before directories were reported


class Partition(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the controller knows of one partition (SPEC 2.1.1)."""

    replicas: Nodes
    isr: Nodes
    elr: Nodes = ()
    last_known_elr: Nodes = ()
    adding_replicas: Nodes = ()
    removing_replicas: Nodes = ()
    leader: NodeId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED
    directories: tuple[UUID, ...] = ()  # one a replica, or none: unassigned

    @property
    def preferred_leader(self) -> NodeId:
        """The first replica: who leads when all is well."""
        return self.replicas[0]

    @property
    def electable_leaders(self) -> int:
        """How many replicas could lead without loss: ISR and ELR together (KIP-966, "Metrics")."""
        return len(self.isr) + len(self.elr)

    def directory_of(self, node: NodeId) -> UUID:
        """Return where a replica lies, `UNASSIGNED` when nobody has said."""
        if not self.directories or node not in self.replicas:
            return UNASSIGNED
        return self.directories[self.replicas.index(node)]

    @property
    def is_reassigning(self) -> bool:
        """Whether replicas are still to be added or removed."""
        return bool(self.adding_replicas or self.removing_replicas)


class BrokerEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where a registered node listens."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


class FeatureRange(msgspec.Struct, frozen=True):
    """Levels of a feature that a node supports, both inclusive."""

    lowest: int
    highest: int


class Broker(msgspec.Struct, frozen=True, kw_only=True):
    """A broker's registration; its epoch is the offset of the record that made it (SPEC 2.2.3)."""

    broker_id: NodeId
    epoch: BrokerEpoch
    incarnation_id: UUID
    endpoints: tuple[BrokerEndpoint, ...] = ()
    features: dict[str, FeatureRange] = {}
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[UUID, ...] = ()
    cordoned_log_dirs: tuple[UUID, ...] = ()  # nothing new is put there (KIP-1066)

    @property
    def takes_new_replicas(self) -> bool:
        """Return whether it has a log directory that is not cordoned."""
        return not self.log_dirs or not set(self.log_dirs) <= set(self.cordoned_log_dirs)

    @property
    def is_active(self) -> bool:
        """Registered, not fenced, not in controlled shutdown: fit to lead and to join an ISR."""
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener: str) -> Endpoint | None:
        """Return where others reach one of its listeners; None when it has none of this name."""
        return next((Endpoint(one.host, one.port) for one in self.endpoints if one.name == listener), None)

    def has_online(self, directory: UUID) -> bool:
        """Return whether a replica said to lie in this directory can be served.

        A registration without directories is from before they were reported: all are online.
        """
        return directory in (UNASSIGNED, MIGRATING) or not self.log_dirs or directory in self.log_dirs


class Topic:
    """A topic and its partitions, by index ascending."""

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: UUID) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: dict[int, Partition] = {}
