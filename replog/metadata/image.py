"""The cluster's metadata as plain state: what a replay of the metadata log up to some offset yields.

Controllers decide from it, brokers use it as their metadata cache. `replay` is the only way in, so
snapshot and log give the same state everywhere (SPEC 2.1.7). A controller applies its own records
before they are committed; an image that is `undoable` remembers how to take back everything
above the last committed offset (`commit`, `undo_to`).

Indexes answer "which partitions does this event touch" in time proportional to the answer: by ISR
member, by ELR member, leaderless, led by another than the preferred replica, being reassigned.
They hold (topic id, partition) keys and answer in that order, never in hash order.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar, cast
from uuid import UUID

import msgspec

from replog.metadata import records as r
from replog.metadata.acl_index import AclIndex
from replog.metadata.client_quotas import ClientQuotas, Entity, entity_of
from replog.metadata.record_versions import METADATA_VERSION, NEWEST
from replog.metadata.state import (
    BROKER_RESOURCE,
    CLUSTER_DEFAULT,
    CONTROLLERS_LEVEL,
    DIRECTORIES_LEVEL,
    MIGRATING,
    SCRAM_LEVEL,
    TOPIC_RESOURCE,
    UNASSIGNED,
    Broker,
    BrokerEndpoint,
    FeatureRange,
    Nodes,
    Partition,
    Topic,
)
from replog.security.acls import Acl
from replog.security.scram import Credential, ScramMechanism
from replog.types import (
    NO_BROKER_EPOCH,
    NO_NODE,
    ZERO_UUID,
    BrokerEpoch,
    LeaderEpoch,
    LeaderRecoveryState,
    NodeId,
    PartitionEpoch,
    TopicIdPartition,
)

_LEADER_UNCHANGED: Final = NodeId(-2)  # PartitionChangeRecord: -1 says "no leader", -2 "no change"
_RECOVERY_UNCHANGED: Final = -1


class PartitionIndex:
    """Partitions by node: small, and answered in (topic id, partition) order."""

    def __init__(self) -> None:
        self._keys: dict[NodeId, set[TopicIdPartition]] = {}

    def of(self, node: NodeId) -> list[TopicIdPartition]:
        """Return the node's partitions in (topic id, partition) order."""
        return in_order(self._keys.get(node, ()))

    def count(self, node: NodeId) -> int:
        """Return how many partitions the node has."""
        return len(self._keys.get(node, ()))

    def nodes(self) -> list[NodeId]:
        """Return the nodes that have any partition, ascending."""
        return sorted(self._keys)

    def move(self, key: TopicIdPartition, old: Iterable[NodeId], new: Iterable[NodeId]) -> None:
        """Take the partition from nodes that no longer have it, give it to those that now do."""
        kept = tuple(new)
        for node in old:
            if node not in kept:
                self._keys[node].discard(key)
                if not self._keys[node]:
                    del self._keys[node]
        for node in kept:
            self._keys.setdefault(node, set()).add(key)


def in_order(keys: Iterable[TopicIdPartition]) -> list[TopicIdPartition]:
    """Sort partitions by (topic id, partition): the order of every effect (SPEC 2.4.5)."""
    return sorted(keys, key=lambda key: (key.topic_id.int, key.partition))


class Image:
    """Topics, partitions, brokers, configs, features and producer ids after some metadata offset."""

    def __init__(self) -> None:
        self.last_offset = -1  # of the last record that was replayed
        self.topics: dict[UUID, Topic] = {}
        self.topics_by_name: dict[str, Topic] = {}
        self._colliding: dict[str, list[str]] = {}  # metric names make no difference between "." and "_"
        self.brokers: dict[NodeId, Broker] = {}
        self.controllers: dict[NodeId, r.RegisterControllerRecord] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self.next_producer_id = 0
        self.acls = AclIndex()
        self.scram_credentials: dict[tuple[str, int], r.UserScramCredentialRecord] = {}  # by user and mechanism
        self.client_quotas = ClientQuotas()
        self.isr_members = PartitionIndex()
        self.elr_members = PartitionIndex()
        self.leaders = PartitionIndex()
        self._leaderless: set[TopicIdPartition] = set()
        self._directories: dict[tuple[UUID, ...], tuple[UUID, ...]] = {}
        self._not_preferred: set[TopicIdPartition] = set()
        self._reassigning: set[TopicIdPartition] = set()
        self.partition_count = 0
        # An atomic group of records takes effect at its end (SPEC 2.1.6).
        self._transaction: list[tuple[int, r.MetadataRecord]] | None = None
        self.undoable = False  # an active controller sets it: then changes are remembered until committed
        self._undo: deque[tuple[int, Callable[..., object], tuple[object, ...]]] = deque()
        self._undoing = False

    # --- questions -------------------------------------------------------------------------

    def partition(self, topic_id: UUID, index: int) -> Partition | None:
        """Return a partition's state, None when it does not exist."""
        topic = self.topics.get(topic_id)
        return topic.partitions.get(index) if topic else None

    def colliding_topic(self, name: str) -> str | None:
        """Return an existing topic whose name differs only in "." and "_"."""
        return next((other for other in self._colliding.get(_metric_name(name), []) if other != name), None)

    def partitions(self) -> Iterator[tuple[TopicIdPartition, Partition]]:
        """Yield all partitions in (topic id, partition) order."""
        for topic_id in sorted(self.topics, key=lambda topic_id: topic_id.int):
            for index, partition in self.topics[topic_id].partitions.items():
                yield TopicIdPartition(topic_id, index), partition

    def leaderless(self) -> list[TopicIdPartition]:
        """Return partitions without a leader, in order."""
        return in_order(self._leaderless)

    def not_preferred(self) -> list[TopicIdPartition]:
        """Return partitions led by another than their first replica (or by nobody), in order."""
        return in_order(self._not_preferred)

    def reassigning(self) -> list[TopicIdPartition]:
        """Return partitions in the middle of a reassignment, in order."""
        return in_order(self._reassigning)

    def is_active(self, broker_id: NodeId) -> bool:
        """Return whether a broker is registered, unfenced and not shutting down."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def is_alive(self, broker_id: NodeId) -> bool:
        """Return whether a broker is registered and unfenced (it may be shutting down)."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def is_online(self, partition: Partition, node: NodeId) -> bool:
        """Return whether a replica can be served: its broker unfenced, its log directory not failed (KIP-858)."""
        broker = self.brokers.get(node)
        return broker is not None and not broker.fenced and broker.has_online(partition.directory_of(node))

    def default_directory(self, node: NodeId) -> UUID:
        """Return where a new replica of a broker will lie: known beforehand where it has one directory (KIP-858)."""
        broker = self.brokers.get(node)
        if broker is None or self.features.get(METADATA_VERSION, 0) < DIRECTORIES_LEVEL:  # none: ZooKeeper mode
            return UNASSIGNED
        if not broker.log_dirs:
            return MIGRATING
        return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED

    def default_directories(self, replicas: Nodes) -> tuple[UUID, ...]:
        """Return where the replicas of a new partition will lie."""
        return _directories(self.default_directory(node) for node in replicas)

    def fit(self, partition: Partition, acceptable: Callable[[NodeId], bool]) -> Callable[[NodeId], bool]:
        """Return `acceptable` for the partition's replicas: a replica in a failed directory is not (SPEC 0.4)."""
        if not partition.directories:
            return acceptable
        brokers = self.brokers
        return lambda node: (
            acceptable(node) and node in brokers and brokers[node].has_online(partition.directory_of(node))
        )

    def broker_epoch(self, broker_id: NodeId) -> BrokerEpoch:
        """Return the epoch of a broker's registration, -1 when there is none."""
        broker = self.brokers.get(broker_id)
        return broker.epoch if broker else NO_BROKER_EPOCH

    def topic_config(self, topic: str, name: str) -> str | None:
        """Return a topic's own value of a config."""
        return self.configs.get((TOPIC_RESOURCE, topic), {}).get(name)

    def broker_config(self, broker_id: NodeId, name: str) -> str | None:
        """Return a broker's own dynamic value of a config."""
        return self.configs.get((BROKER_RESOURCE, str(broker_id)), {}).get(name)

    @property
    def metadata_version(self) -> int:
        """The finalized metadata version; the newest before there is any."""
        return self.features.get(METADATA_VERSION, NEWEST)

    def scram_credential(self, mechanism: ScramMechanism, user: str) -> Credential | None:
        """Return what a user's password is checked by; None when there is nothing."""
        record = self.scram_credentials.get((user, mechanism.value))
        if record is None:
            return None
        return Credential(
            salt=record.salt,
            stored_key=record.stored_key,
            server_key=record.server_key,
            iterations=record.iterations,
        )

    def cluster_config(self, name: str) -> str | None:
        """Return the cluster-wide dynamic value of a config."""
        return self.configs.get((BROKER_RESOURCE, CLUSTER_DEFAULT), {}).get(name)

    @property
    def in_transaction(self) -> bool:
        """Whether an atomic group of records has begun and not ended."""
        return self._transaction is not None

    # --- replay ----------------------------------------------------------------------------

    def replay(self, record: r.MetadataRecord, offset: int) -> None:
        """Apply one record of the metadata log (or of a snapshot: then with the snapshot's last offset)."""
        assert offset >= self.last_offset, f"replay of {offset} after {self.last_offset}"
        self.last_offset = offset
        match record:
            case r.BeginTransactionRecord():
                self._set_transaction([])
            case r.EndTransactionRecord():
                buffered = self._transaction or []
                self._set_transaction(None)
                for _, inner in buffered:
                    self._apply(inner)
            case r.AbortTransactionRecord():
                self._set_transaction(None)
            case _ if self._transaction is not None:
                self._transaction.append((offset, record))
                self._remember(self._transaction.pop)
            case _:
                self._apply(record)

    def _apply(self, record: r.MetadataRecord) -> None:
        method = _APPLY.get(type(record))
        if method is not None:  # others' records (tokens) say nothing of our concern
            method(self, record)

    def _apply_topic(self, record: r.TopicRecord) -> None:
        self._put_topic(Topic(record.name, record.topic_id))

    def _apply_remove_topic(self, record: r.RemoveTopicRecord) -> None:
        topic = self.topics.get(record.topic_id)
        if topic is None:
            return
        for index in reversed(list(topic.partitions)):  # undone ascending
            self._put_partition(topic, index, None)
        for name in list(self.configs.get((TOPIC_RESOURCE, topic.name), {})):
            self._put_config(TOPIC_RESOURCE, topic.name, name, None)
        self._remove_topic(topic)

    def _apply_partition(self, record: r.PartitionRecord) -> None:
        topic = self.topics.get(record.topic_id)
        if topic is None:
            return
        replicas = _nodes(record.replicas)
        partition = Partition(
            replicas=replicas,
            isr=_same(_nodes(record.isr), replicas),
            elr=_nodes(record.eligible_leader_replicas or ()),
            last_known_elr=_nodes(record.last_known_elr or ()),
            adding_replicas=_nodes(record.adding_replicas),
            removing_replicas=_nodes(record.removing_replicas),
            leader=NodeId(record.leader),
            leader_epoch=LeaderEpoch(record.leader_epoch),
            partition_epoch=PartitionEpoch(record.partition_epoch),
            leader_recovery_state=LeaderRecoveryState(record.leader_recovery_state),
            directories=self._shared(_directories(record.directories)),
        )
        self._put_partition(topic, record.partition_id, partition)

    def _shared(self, directories: tuple[UUID, ...]) -> tuple[UUID, ...]:
        """Return the one tuple that all partitions with these directories have: a third of the memory."""
        return self._directories.setdefault(directories, directories)

    def _apply_partition_change(self, record: r.PartitionChangeRecord) -> None:
        topic = self.topics.get(record.topic_id)
        partition = topic.partitions.get(record.partition_id) if topic else None
        if topic is not None and partition is not None:
            self._put_partition(topic, record.partition_id, merged(partition, record))

    def _apply_clear_elr(self, record: r.ClearElrRecord) -> None:
        names = [record.topic_name] if record.topic_name else sorted(self.topics_by_name)
        for name in names:
            topic = self.topics_by_name.get(name)
            for index, partition in list(topic.partitions.items()) if topic else []:
                if topic is not None and (partition.elr or partition.last_known_elr):
                    change = r.PartitionChangeRecord(
                        partition_id=index, topic_id=topic.topic_id, eligible_leader_replicas=[], last_known_elr=[]
                    )
                    self._put_partition(topic, index, merged(partition, change))

    def _apply_register_broker(self, record: r.RegisterBrokerRecord) -> None:
        broker = Broker(
            broker_id=NodeId(record.broker_id),
            epoch=BrokerEpoch(record.broker_epoch),
            incarnation_id=record.incarnation_id,
            endpoints=tuple(
                BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in record.end_points
            ),
            features={f.name: FeatureRange(f.min_supported_version, f.max_supported_version) for f in record.features},
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            log_dirs=tuple(record.log_dirs),
            cordoned_log_dirs=tuple(record.cordoned_log_dirs or ()),
        )
        self._put_broker(broker.broker_id, broker)

    def _apply_unregister_broker(self, record: r.UnregisterBrokerRecord) -> None:
        self._put_broker(NodeId(record.broker_id), None)

    def _apply_registration_change(self, record: r.BrokerRegistrationChangeRecord) -> None:
        broker = self.brokers.get(NodeId(record.broker_id))
        if broker is None or broker.epoch != record.broker_epoch:
            return
        changes: dict[str, object] = {}
        if record.fenced:
            changes["fenced"] = record.fenced == r.FENCE
        if record.in_controlled_shutdown:
            changes["in_controlled_shutdown"] = True
        if record.log_dirs:
            # A broker is never without directories: an empty list says nothing of them.
            changes["log_dirs"] = tuple(record.log_dirs)
        if record.cordoned_log_dirs is not None:
            changes["cordoned_log_dirs"] = tuple(record.cordoned_log_dirs)
        self._put_broker(broker.broker_id, msgspec.structs.replace(broker, **changes))

    def _apply_register_controller(self, record: r.RegisterControllerRecord) -> None:
        self._put_controller(NodeId(record.controller_id), record)

    def _apply_config(self, record: r.ConfigRecord) -> None:
        self._put_config(record.resource_type, record.resource_name, record.name, record.value)

    def _apply_feature(self, record: r.FeatureLevelRecord) -> None:
        self._put_feature(record.name, record.feature_level)

    def _apply_producer_ids(self, record: r.ProducerIdsRecord) -> None:
        self._set_next_producer_id(record.next_producer_id)

    def _apply_acl(self, record: r.AccessControlEntryRecord) -> None:
        acl = Acl(
            resource_type=record.resource_type,
            resource_name=record.resource_name,
            pattern_type=record.pattern_type,
            principal=record.principal,
            host=record.host,
            operation=record.operation,
            permission=record.permission_type,
        )
        self._put_acl(record.id, acl)

    def _apply_remove_acl(self, record: r.RemoveAccessControlEntryRecord) -> None:
        self._put_acl(record.id, None)

    def _apply_scram_credential(self, record: r.UserScramCredentialRecord) -> None:
        self._put_scram_credential((record.name, record.mechanism), record)

    def _apply_remove_scram_credential(self, record: r.RemoveUserScramCredentialRecord) -> None:
        self._put_scram_credential((record.name, record.mechanism), None)

    def _apply_client_quota(self, record: r.ClientQuotaRecord) -> None:
        entity = entity_of({part.entity_type: part.entity_name for part in record.entity})
        self._put_client_quota(entity, record.key, None if record.remove else record.value)

    # --- the only places that change state; each can be taken back by itself -----------------

    def _put_topic(self, topic: Topic) -> None:
        self._remember(self._remove_topic, topic)
        self.topics[topic.topic_id] = topic
        self.topics_by_name[topic.name] = topic
        self._colliding.setdefault(_metric_name(topic.name), []).append(topic.name)

    def _remove_topic(self, topic: Topic) -> None:
        self._remember(self._put_topic, topic)
        del self.topics[topic.topic_id]
        del self.topics_by_name[topic.name]
        names = self._colliding[_metric_name(topic.name)]
        names.remove(topic.name)
        if not names:
            del self._colliding[_metric_name(topic.name)]

    def _put_partition(self, topic: Topic, index: int, new: Partition | None) -> None:
        old = topic.partitions.get(index)
        self._remember(self._put_partition, topic, index, old)
        key = TopicIdPartition(topic.topic_id, index)
        self.partition_count += (new is not None) - (old is not None)
        self.isr_members.move(key, old.isr if old else (), new.isr if new else ())
        self.elr_members.move(key, old.elr if old else (), new.elr if new else ())
        self.leaders.move(key, _leader(old), _leader(new))
        _keep(self._leaderless, key, wanted=new is not None and new.leader == NO_NODE)
        _keep(self._not_preferred, key, wanted=new is not None and new.leader != new.preferred_leader)
        _keep(self._reassigning, key, wanted=new is not None and new.is_reassigning)
        if new is None:
            topic.partitions.pop(index, None)
        else:
            topic.partitions[index] = new

    def _put_broker(self, broker_id: NodeId, new: Broker | None) -> None:
        self._remember(self._put_broker, broker_id, self.brokers.get(broker_id))
        if new is None:
            self.brokers.pop(broker_id, None)
        else:
            self.brokers[broker_id] = new

    def _put_controller(self, controller_id: NodeId, new: r.RegisterControllerRecord | None) -> None:
        self._remember(self._put_controller, controller_id, self.controllers.get(controller_id))
        if new is None:
            self.controllers.pop(controller_id, None)
        else:
            self.controllers[controller_id] = new

    def _put_config(self, resource_type: int, resource_name: str, name: str, value: str | None) -> None:
        resource = (resource_type, resource_name)
        values = self.configs.setdefault(resource, {})
        self._remember(self._put_config, resource_type, resource_name, name, values.get(name))
        if value is None:
            values.pop(name, None)
        else:
            values[name] = value
        if not values:
            del self.configs[resource]

    def _put_feature(self, name: str, level: int) -> None:
        self._remember(self._put_feature, name, self.features.get(name, 0))
        if level == 0 and name != "kraft.version":  # level 0 is absence, as in Kafka's feature image
            self.features.pop(name, None)
        else:
            self.features[name] = level

    def _set_next_producer_id(self, value: int) -> None:
        self._remember(self._set_next_producer_id, self.next_producer_id)
        self.next_producer_id = value

    def _put_acl(self, acl_id: UUID, new: Acl | None) -> None:
        self._remember(self._put_acl, acl_id, self.acls.by_id.get(acl_id))
        self.acls.put(acl_id, new)

    def _put_scram_credential(self, key: tuple[str, int], new: r.UserScramCredentialRecord | None) -> None:
        self._remember(self._put_scram_credential, key, self.scram_credentials.get(key))
        if new is None:
            self.scram_credentials.pop(key, None)
        else:
            self.scram_credentials[key] = new

    def _put_client_quota(self, entity: Entity, key: str, value: float | None) -> None:
        self._remember(self._put_client_quota, entity, key, self.client_quotas.value(entity, key))
        self.client_quotas.put(entity, key, value)

    def _set_transaction(self, buffered: list[tuple[int, r.MetadataRecord]] | None) -> None:
        self._remember(self._set_transaction, self._transaction)
        self._transaction = buffered

    # --- taking back what was never committed -------------------------------------------------

    def _remember(self, undo: Callable[..., object], *arguments: object) -> None:
        if self.undoable and not self._undoing:
            self._undo.append((self.last_offset, undo, arguments))

    def commit(self, offset: int) -> None:
        """Forget how to undo records up to this offset: they are committed."""
        while self._undo and self._undo[0][0] <= offset:
            self._undo.popleft()

    def undo_to(self, offset: int) -> None:
        """Take back, newest first, all records above this offset (SPEC 1.8.7)."""
        self._undoing = True
        while self._undo and self._undo[-1][0] > offset:
            _, undo, arguments = self._undo.pop()
            undo(*arguments)
        self._undoing = False
        self._undo.clear()
        self.last_offset = min(self.last_offset, offset)

    def seal(self, first_offset: int, offset: int) -> None:
        """Count everything from `first_offset` on as one record at `offset`: an atomic group's end."""
        retagged = []
        while self._undo and self._undo[-1][0] >= first_offset:
            retagged.append((offset, *self._undo.pop()[1:]))
        self._undo.extend(reversed(retagged))
        self.last_offset = offset

    def resume_transaction(self, buffered: list[tuple[int, r.MetadataRecord]]) -> None:
        """Stand in the middle of an atomic group whose beginning is committed and whose end is not."""
        self._transaction = list(buffered)

    # --- snapshot ---------------------------------------------------------------------------

    def snapshot(self) -> Iterator[r.MetadataRecord]:
        """Yield records whose replay on an empty image gives this one (uncommitted groups left out)."""
        for name, level in sorted(self.features.items()):
            yield r.FeatureLevelRecord(name=name, feature_level=level)
        # Older software knows no registrations of controllers; after an upgrade they register again.
        registered = self.controllers if self.metadata_version >= CONTROLLERS_LEVEL else {}
        for _, controller in sorted(registered.items()):
            yield controller
        for _, broker in sorted(self.brokers.items()):
            yield r.registration_record(broker)
        for topic_id in sorted(self.topics, key=lambda topic_id: topic_id.int):
            topic = self.topics[topic_id]
            yield r.TopicRecord(name=topic.name, topic_id=topic_id)
            for index, partition in sorted(topic.partitions.items()):
                yield r.partition_record(topic_id, index, partition)
        for (resource_type, resource_name), values in sorted(self.configs.items()):
            for name, value in sorted(values.items()):
                yield r.ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
        for acl_id, acl in sorted(self.acls.by_id.items()):
            yield r.acl_record(acl_id, acl)
        credentials = self.scram_credentials if self.metadata_version >= SCRAM_LEVEL else {}
        for _, credential in sorted(credentials.items()):
            yield credential
        for entity, key, limit in self.client_quotas.in_order():
            yield r.quota_record(entity, key, limit)
        if self.next_producer_id:
            yield r.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=self.next_producer_id)


def merged(partition: Partition, change: r.PartitionChangeRecord) -> Partition:
    """Return the partition after a change record (SPEC 2.1.4)."""
    names_leader = change.leader != _LEADER_UNCHANGED
    recovery = change.leader_recovery_state
    replicas = partition.replicas if change.replicas is None else _nodes(change.replicas)
    return Partition(
        replicas=replicas,
        isr=partition.isr if change.isr is None else _same(_nodes(change.isr), replicas),
        elr=_or_nodes(change.eligible_leader_replicas, partition.elr),
        last_known_elr=_or_nodes(change.last_known_elr, partition.last_known_elr),
        adding_replicas=_or_nodes(change.adding_replicas, partition.adding_replicas),
        removing_replicas=_or_nodes(change.removing_replicas, partition.removing_replicas),
        leader=NodeId(change.leader) if names_leader else partition.leader,
        leader_epoch=LeaderEpoch(partition.leader_epoch + names_leader),
        partition_epoch=PartitionEpoch(partition.partition_epoch + 1),
        leader_recovery_state=(
            partition.leader_recovery_state if recovery == _RECOVERY_UNCHANGED else LeaderRecoveryState(recovery)
        ),
        directories=(
            _kept_directories(partition, replicas) if change.directories is None else _directories(change.directories)
        ),
    )


def _metric_name(topic: str) -> str:
    return topic.replace(".", "_")


def _nodes(ids: Iterable[int]) -> Nodes:
    return tuple(NodeId(node) for node in ids)


def _or_nodes(ids: Iterable[int] | None, otherwise: Nodes) -> Nodes:
    return otherwise if ids is None else _nodes(ids)


def _same(nodes: Nodes, replicas: Nodes) -> Nodes:
    return replicas if nodes == replicas else nodes  # one tuple for both: a tenth of the memory


def _directories(ids: Iterable[UUID] | None) -> tuple[UUID, ...]:
    directories = tuple(ids or ())
    return () if all(directory == ZERO_UUID for directory in directories) else directories


def _kept_directories(partition: Partition, replicas: Nodes) -> tuple[UUID, ...]:
    if replicas == partition.replicas or not partition.directories:
        return partition.directories
    # A change of an old record version: it moves replicas and cannot say where they lie.
    return _directories(partition.directory_of(node) for node in replicas)


def _leader(partition: Partition | None) -> Nodes:
    return (partition.leader,) if partition is not None and partition.leader != NO_NODE else ()


def _keep(keys: set[TopicIdPartition], key: TopicIdPartition, *, wanted: bool) -> None:
    if wanted:
        keys.add(key)
    else:
        keys.discard(key)


AnyRecord = TypeVar("AnyRecord", bound=r.MetadataRecord)
Apply = Callable[[Image, r.MetadataRecord], None]


def _applies(kind: type[AnyRecord], apply: Callable[[Image, AnyRecord], None]) -> dict[type[msgspec.Struct], Apply]:
    return {kind: cast(Apply, apply)}


_APPLY: Final[dict[type[msgspec.Struct], Apply]] = {
    **_applies(r.TopicRecord, Image._apply_topic),
    **_applies(r.RemoveTopicRecord, Image._apply_remove_topic),
    **_applies(r.PartitionRecord, Image._apply_partition),
    **_applies(r.PartitionChangeRecord, Image._apply_partition_change),
    **_applies(r.ClearElrRecord, Image._apply_clear_elr),
    **_applies(r.RegisterBrokerRecord, Image._apply_register_broker),
    **_applies(r.UnregisterBrokerRecord, Image._apply_unregister_broker),
    **_applies(r.BrokerRegistrationChangeRecord, Image._apply_registration_change),
    **_applies(r.RegisterControllerRecord, Image._apply_register_controller),
    **_applies(r.ConfigRecord, Image._apply_config),
    **_applies(r.FeatureLevelRecord, Image._apply_feature),
    **_applies(r.ProducerIdsRecord, Image._apply_producer_ids),
    **_applies(r.AccessControlEntryRecord, Image._apply_acl),
    **_applies(r.RemoveAccessControlEntryRecord, Image._apply_remove_acl),
    **_applies(r.ClientQuotaRecord, Image._apply_client_quota),
    **_applies(r.UserScramCredentialRecord, Image._apply_scram_credential),
    **_applies(r.RemoveUserScramCredentialRecord, Image._apply_remove_scram_credential),
}
