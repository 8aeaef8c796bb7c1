"""Znodes as Kafka writes them: JSON in and out, and what cannot be Kafka's is named and refused.

A partition's state is of version 1; `leader_recovery_state` came with KIP-704 and means RECOVERED where it is missing.
Unknown fields are let pass, as Kafka does; a missing or mistyped one, an unknown version, an impossible leader or a value
that no setting has make a znode damaged: guessing would lose data.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Annotated, Final, TypeVar
from uuid import UUID

import msgspec

from replog.config import Endpoint
from replog.config.setting import INT_MAX
from replog.controller.configs import BROKER_CONFIGS, TOPIC_CONFIGS, Definition, invalid_value
from replog.controller.topics import LEGAL_NAME
from replog.types import NO_NODE, ZERO_UUID, BrokerEpoch, LeaderRecoveryState, NodeId, TopicPartition
from replog.zookeeper import paths

STATE_VERSION: Final = 1
EPOCH_DIGITS: Final = 10
JMX_UNUSED: Final = -1


class DamagedZnode(Exception):
    """A znode is not what Kafka (or we) would write there; the message names it."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"znode {path} is damaged or foreign: {reason}")
        self.path = path


_Id = Annotated[int, msgspec.Meta(ge=0, le=INT_MAX)]
_Epoch = Annotated[int, msgspec.Meta(ge=0, le=INT_MAX)]
_Leader = Annotated[int, msgspec.Meta(ge=-1)]


class PartitionStateZnode(msgspec.Struct, frozen=True, kw_only=True):
    """`/brokers/topics/<topic>/partitions/<partition>/state` (KIP-704, "ZooKeeper State")."""

    controller_epoch: int
    leader: _Leader
    version: int = STATE_VERSION
    leader_epoch: _Epoch
    isr: list[_Id]
    leader_recovery_state: int = int(LeaderRecoveryState.RECOVERED)


class TopicZnode(msgspec.Struct, frozen=True, kw_only=True):
    """`/brokers/topics/<topic>`: who has replicas, and where a reassignment is heading."""

    version: int = 3
    topic_id: str = ""
    partitions: dict[str, list[_Id]]
    adding_replicas: dict[str, list[_Id]] = {}
    removing_replicas: dict[str, list[_Id]] = {}

    @property
    def uuid(self) -> UUID:
        """The topic's id, zero where the znode is of a version without."""
        return ZERO_UUID if not self.topic_id else _uuid(self.topic_id)


class BrokerZnode(msgspec.Struct, frozen=True, kw_only=True):
    """`/brokers/ids/<id>`: a living broker.

    incarnation:  ours: which process it is, to distinguish a new process from a new session.
    """

    version: int = 5
    host: str
    port: int
    jmx_port: int = JMX_UNUSED
    timestamp: str = ""
    endpoints: list[str] = []
    rack: str | None = None
    listener_security_protocol_map: dict[str, str] = {}
    features: dict[str, object] = {}
    incarnation: str = ""


class ControllerZnode(msgspec.Struct, frozen=True, kw_only=True):
    """`/controller`."""

    version: int = 1
    brokerid: _Id
    timestamp: str = ""


class ConfigZnode(msgspec.Struct, frozen=True, kw_only=True):
    """`/config/<kind>/<name>`."""

    version: int = 1
    config: dict[str, str]


class ConfigChangeZnode(msgspec.Struct, frozen=True, kw_only=True):
    """`/config/changes/config_change_<number>`: look again at this entity."""

    version: int = 2
    entity_path: str


class ProducerIdsZnode(msgspec.Struct, frozen=True, kw_only=True):
    """`/latest_producer_id_block`: the block given away last; numbers are text, as in Kafka."""

    version: int = 1
    broker: int
    block_start: str
    block_end: str


class ClusterIdZnode(msgspec.Struct, frozen=True, kw_only=True):
    """`/cluster/id`."""

    version: str = "1"
    id: str


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """A broker that is registered: its epoch is the czxid of its znode (KIP-380)."""

    node: NodeId
    epoch: BrokerEpoch
    znode: BrokerZnode


# What Kafka has ever written there, up to 3.9.
_VERSIONS: Final[dict[type[msgspec.Struct], tuple[int | str, ...]]] = {
    PartitionStateZnode: (STATE_VERSION,),
    TopicZnode: (1, 2, 3),
    BrokerZnode: (1, 2, 3, 4, 5),
    ControllerZnode: (1, 2),
    ConfigZnode: (1,),
    ProducerIdsZnode: (1,),
    ClusterIdZnode: ("1",),
}


def encoded(znode: msgspec.Struct) -> bytes:
    """Return a znode's data."""
    return msgspec.json.encode(znode)


_T = TypeVar("_T", bound=msgspec.Struct)


def decoded(kind: type[_T], path: str, data: bytes) -> _T:
    """Return what a znode says; `DamagedZnode` names one that says something else."""
    try:
        found = msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise DamagedZnode(path, str(problem)) from None
    version = getattr(found, "version")  # noqa: B009 - every kind has one
    if version not in _VERSIONS[kind]:
        raise DamagedZnode(path, f"version {version} is unknown")
    return found


def partition_state(key: TopicPartition, data: bytes) -> PartitionStateZnode:
    """Read a partition's state."""
    path = paths.state(key)
    found = decoded(PartitionStateZnode, path, data)
    if found.leader_recovery_state not in (0, 1):
        raise DamagedZnode(path, f"leader_recovery_state {found.leader_recovery_state}")
    if len(set(found.isr)) != len(found.isr) or not found.isr:
        raise DamagedZnode(path, f"isr {found.isr}")
    if found.leader != NO_NODE and found.leader not in found.isr:
        raise DamagedZnode(path, f"leader {found.leader} is not in the isr {found.isr}")
    return found


def topic(name: str, data: bytes) -> TopicZnode:
    """Read a topic's assignment."""
    path = paths.topic(name)
    found = decoded(TopicZnode, path, data)
    if not LEGAL_NAME.fullmatch(name) or name in (".", ".."):
        raise DamagedZnode(path, "no topic may have this name")
    for index, replicas in found.partitions.items():
        if number(index) is None or not replicas or len(set(replicas)) != len(replicas):
            raise DamagedZnode(path, f"partition {index!r} has replicas {replicas}")
    if found.topic_id:
        try:
            _uuid(found.topic_id)
        except (ValueError, binascii.Error):
            raise DamagedZnode(path, f"topic id {found.topic_id!r}") from None
    return found


def broker(node: NodeId, data: bytes, czxid: int) -> Registered:
    """Read a registration."""
    path = paths.broker(node)
    found = decoded(BrokerZnode, path, data)
    if not Endpoint(found.host, found.port).is_usable:
        raise DamagedZnode(path, f"nobody can be reached at {found.host[:300]!r}, port {found.port}")
    return Registered(node=node, epoch=BrokerEpoch(czxid), znode=found)


def topic_config(name: str, data: bytes) -> dict[str, str]:
    """Read a topic's settings; those we do not have are Kafka's, and let pass."""
    return _config(paths.topic_config(name), data, TOPIC_CONFIGS)


def broker_config(name: str, data: bytes) -> dict[str, str]:
    """Read a broker's settings, or those of all; the empty name."""
    return _config(paths.broker_config(name), data, BROKER_CONFIGS)


def _config(path: str, data: bytes, definitions: Mapping[str, Definition]) -> dict[str, str]:
    found = decoded(ConfigZnode, path, data).config
    for name, value in found.items():
        wrong = invalid_value(definitions[name], name, value) if name in definitions else None
        if wrong:
            raise DamagedZnode(path, wrong)
    return found


def controller_epoch(data: bytes) -> int:
    """Read `/controller_epoch`: a number, no JSON, after which there is another."""
    if not data.isdigit():
        raise DamagedZnode(paths.CONTROLLER_EPOCH, f"{data[:40]!r} is no number")
    if len(data) > EPOCH_DIGITS or int(data) >= INT_MAX:
        raise DamagedZnode(paths.CONTROLLER_EPOCH, f"no epoch comes after {data[:40].decode()}: {INT_MAX} is the last")
    return int(data)


def node_id(path: str, name: str) -> NodeId:
    """Read a broker's id from a znode's name."""
    found = number(name)
    if found is None:
        raise DamagedZnode(f"{path}/{name}", "no broker id")
    return NodeId(found)


def number(text: str) -> int | None:
    """Read a node's or partition's number as Kafka writes it: whoever writes it again has to come to the same znode; None: it is none."""
    found = int(text) if text.isdecimal() and len(text) <= EPOCH_DIGITS else -1
    return found if str(found) == text and found <= INT_MAX else None


def id_text(topic_id: UUID) -> str:
    """Return a topic id as Kafka writes it: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def _uuid(text: str) -> UUID:
    return UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
