"""The controller of ZooKeeper mode: one event in, ordered effects out (KIP-380, KIP-704, SPEC 3.12).

It decides from an image that it read once, when it was elected; from then on nobody else writes what it holds. Every
write is fenced by the version of `/controller_epoch`, so a deposed controller's first write fails and ends its term. What
is written is said to the brokers afterwards: LeaderAndIsr to those who hold a partition, UpdateMetadata to all.

Brokers are distinguished by epoch. One that bounced is first treated as failed, with the others as they are, then as
started: so it is sent everything that it hosts, and is not elected in between.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, cast
from uuid import UUID

import msgspec

from replog.controller import admin_requests as admin
from replog.controller import broker_requests, config_requests, fencing
from replog.controller.authorization import BY_NODES
from replog.controller.election import Election, Wish
from replog.controller.events import Emit, Probe, Reply, Request
from replog.controller.policy import Policy, Settings
from replog.controller.served_api import AnyServedApi, ServedApi
from replog.errors import Error
from replog.metadata import records as r
from replog.metadata.image import Image
from replog.metadata.state import TOPIC_RESOURCE, Broker, BrokerEndpoint, Partition
from replog.types import NO_NODE, NodeId, TopicIdPartition, TopicPartition
from replog.wire.exchange import Q, R
from replog.wire.messages import (
    alter_partition,
    alter_partition_reassignments,
    controlled_shutdown,
    create_partitions,
    delete_topics,
    elect_leaders,
    stop_replica,
)
from replog.wire.translate import current_alter_partition
from replog.zookeeper import acceptance, broker_changes, paths
from replog.zookeeper.broker_changes import Step
from replog.zookeeper.control_queue import ControlRequest
from replog.zookeeper.operations import ANY_VERSION, Create, Delete, Operation, Stat
from replog.zookeeper.requests import DELETED, ControlRequests, Named, Stopped, deleted_by
from replog.zookeeper.turn import Znodes, ZooKeeperTurn
from replog.zookeeper.versions import ProtocolVersion
from replog.zookeeper.znodes import PartitionStateZnode, Registered, TopicZnode

if TYPE_CHECKING:
    from random import Random

ELECTIONS_PER_BALANCE_MAX: Final = 1000


class Loaded(msgspec.Struct, kw_only=True):
    """What a new controller found in ZooKeeper.

    states:      by partition: the state and its znode's Stat. A partition may have none yet.
    configs:     by (kind, name) as in the image.
    deletions:   topics that somebody asked to delete.
    left:        by topic of which a state is missing (a creation or deletion ended midway, being several transactions):
                 the partitions that have a znode; None: not even the parent of these.
    """

    registered: dict[NodeId, Registered]
    topics: dict[str, TopicZnode]
    states: dict[TopicPartition, tuple[PartitionStateZnode, Stat]]
    configs: dict[tuple[int, str], dict[str, str]]
    deletions: list[str]
    next_producer_id: int | None
    left: dict[str, list[int] | None] = {}


class BrokersChanged(msgspec.Struct, frozen=True):
    """These are registered now."""

    registered: dict[NodeId, Registered]


class ControlAnswered(msgspec.Struct, frozen=True, kw_only=True):
    """A broker carried a control request out, or said why not."""

    node: NodeId
    request: ControlRequest
    response: msgspec.Struct


class Tick(msgspec.Struct, frozen=True):
    """Time has passed: periodic work may be due."""


Event = BrokersChanged | ControlAnswered | Request | Tick


class Write(msgspec.Struct, frozen=True):
    """Do this in ZooKeeper, fenced; nothing after it happens unless it was done."""

    operations: list[Operation]


class OpenChannel(msgspec.Struct, frozen=True):
    """Open the channel to this registration of a broker; requests still queued for an earlier one are dropped."""

    broker: Broker


class CloseChannel(msgspec.Struct, frozen=True):
    """Talk to the broker no more."""

    node: NodeId


class Command(msgspec.Struct, frozen=True):
    """Send a control request to a broker, after all earlier ones."""

    node: NodeId
    request: ControlRequest


Effect = Write | OpenChannel | CloseChannel | Command | Reply | Emit | Probe


class ZooKeeperController:
    """One controller epoch of one controller."""

    def __init__(
        self,
        settings: Settings,
        *,
        node_id: NodeId,
        epoch: int,
        protocol: ProtocolVersion,
        new_topic_id: Callable[[], UUID],
        random: "Random",
    ) -> None:
        self.settings = settings
        self.node_id = node_id
        self.epoch = epoch
        self.protocol = protocol
        self.image = Image()
        self.policy = Policy(self.image, settings)
        self.requests = ControlRequests(node_id, epoch, protocol)
        self.deleting: dict[str, dict[tuple[int, NodeId], None]] = {}  # topic -> replicas that still exist
        self._znodes = Znodes()
        self._left: dict[str, list[int] | None] = {}  # as in `Loaded`, of topics that are being deleted
        self._new_topic_id = new_topic_id
        self._random = random
        self._next_balance_ms = 0

    # --- a controller epoch begins ----------------------------------------------------------------------

    def activate(self, loaded: Loaded, now_ms: int) -> list[Effect]:
        """Take over: see who is missing, elect where no leader is, and send every broker everything."""
        self._next_balance_ms = now_ms + self.settings.leader_imbalance_check_interval_ms
        self._restore(loaded)
        turn = self._turn(now_ms)
        for name in loaded.deletions:
            if name in self.image.topics_by_name:
                self._begin_deletion(name)
            else:  # all but the mark is gone; whoever is created by this name later is not meant
                turn.also(Delete(path=paths.deletion(name)))
        self._left = {name: left for name, left in loaded.left.items() if name in self.deleting}
        self._create_missing(turn, loaded)
        for node in self.image.isr_members.nodes():
            if node not in self.image.brokers:
                turn.append(fencing.leaving(self.policy, node, eligible_no_more=False))
        self._notice_restarts(turn, loaded)
        for name, znode in sorted(loaded.topics.items()):
            if not znode.topic_id:
                turn.give_id(self.image.topics_by_name[name])
        turn.append(fencing.leaders_for_leaderless(self.policy))
        self._end_deletions(turn)
        effects = self._written(turn)
        for broker in self._alive():
            effects.append(OpenChannel(broker))
        for broker in self._alive():
            effects += self._everything_for(broker)
        return [*effects, *turn.effects_behind]

    def _restore(self, loaded: Loaded) -> None:
        records: list[r.MetadataRecord] = [
            r.registration_record(broker_of(registered)) for _, registered in sorted(loaded.registered.items())
        ]
        for name, znode in sorted(loaded.topics.items()):
            topic_id = znode.uuid if znode.topic_id else self._new_topic_id()
            records.append(r.TopicRecord(name=name, topic_id=topic_id))
            for index in sorted(map(int, znode.partitions)):
                found = loaded.states.get(TopicPartition(name, index))
                if found is not None:
                    records.append(_partition_record(topic_id, index, znode, found[0], found[1].version))
        for (kind, name), values in sorted(loaded.configs.items()):
            path = paths.topic_config(name) if kind == TOPIC_RESOURCE else paths.broker_config(name)
            self._znodes.configs[path] = None
            if kind == TOPIC_RESOURCE and name not in loaded.topics:
                continue  # left of a topic that is gone: nothing for the next of this name
            records += [
                r.ConfigRecord(resource_type=kind, resource_name=name, name=setting, value=value)
                for setting, value in sorted(values.items())
            ]
        if loaded.next_producer_id is not None:
            self._znodes.has_producer_ids = True
            records.append(r.ProducerIdsRecord(next_producer_id=loaded.next_producer_id))
        for record in records:
            self.image.replay(record, self.image.last_offset + 1)

    def _notice_restarts(self, turn: ZooKeeperTurn, loaded: Loaded) -> None:
        """Treat members as bounced that registered after their partition's state was written.

        No controller saw them go, and what they hold may be less than it was: in their old leader epoch they would give
        offsets away twice. (KIP-380 distinguishes registrations in one controller's memory only; zxids do it for good.)
        """
        for key, partition in list(self.image.partitions()):
            topic = self.image.topics[key.topic_id]
            written = loaded.states.get(TopicPartition(topic.name, key.partition))
            if written is None or topic.name in self.deleting:
                continue
            registered = {node: self.image.broker_epoch(node) for node in partition.isr}
            later = [node for node, epoch in registered.items() if epoch > written[1].mzxid]
            if later:
                steady = tuple(node for node in partition.isr if node not in later)
                # Where all have restarted, one of them has to be right; the others catch up with it.
                one = partition.leader if partition.leader in later else later[0]
                wish = Wish(target_isr=steady or (one,), election=self.policy.election(topic.name))
                self._restate(turn, key, wish)

    def _restate(self, turn: ZooKeeperTurn, key: TopicIdPartition, wish: Wish) -> None:
        """Change a partition, or at least begin a leader epoch."""
        records = fencing.changes(self.policy, [key], lambda *_: wish, self.image.is_active)
        partition = self.image.topics[key.topic_id].partitions[key.partition]
        same = r.PartitionChangeRecord(
            partition_id=key.partition, topic_id=key.topic_id, leader=partition.leader, isr=list(partition.isr)
        )
        turn.append(records or [same])
        turn.probe("restart_noticed_by_new_controller")

    def _create_missing(self, turn: ZooKeeperTurn, loaded: Loaded) -> None:
        """Give partitions a state that have none: whoever created the topic died in between."""
        for name, znode in sorted(loaded.topics.items()):
            topic = self.image.topics_by_name[name]
            if name in loaded.left and name not in self.deleting:
                turn.complete(name, loaded.left[name])
            for index in sorted(map(int, znode.partitions)):
                if index in topic.partitions or name in self.deleting:
                    continue
                replicas = [NodeId(node) for node in znode.partitions[str(index)]]
                alive = [node for node in replicas if self.image.is_active(node)] or replicas
                leader = alive[0] if self.image.is_active(alive[0]) else NO_NODE
                record = r.PartitionRecord(
                    partition_id=index,
                    topic_id=topic.topic_id,
                    replicas=list(replicas),
                    isr=list(alive),
                    leader=leader,
                    leader_epoch=0,
                    partition_epoch=0,
                )
                turn.append([record])

    # --- events ------------------------------------------------------------------------------

    def handle(self, event: Event, now_ms: int, version: int = 0) -> list[Effect]:
        """Advance by one event; `version` is that of a request."""
        match event:
            case Request():
                return self._on_request(event, now_ms, version)
            case BrokersChanged():
                return self._on_brokers(event.registered, now_ms)
            case ControlAnswered():
                return self._on_control_answer(event, now_ms)
            case Tick():
                return self._on_tick(now_ms)

    def _on_tick(self, now_ms: int) -> list[Effect]:
        turn = self._turn(now_ms)
        if now_ms >= self._next_balance_ms:
            self._next_balance_ms = now_ms + self.settings.leader_imbalance_check_interval_ms
            if self.settings.leader_rebalance:
                self._balance(turn)
        return self._finish(turn)

    def _balance(self, turn: ZooKeeperTurn) -> None:
        keys = [key for key in self.image.not_preferred() if self._can_go_back(key)][:ELECTIONS_PER_BALANCE_MAX]
        wish = Wish(election=Election.PREFERRED)
        turn.append(fencing.changes(self.policy, keys, lambda *_: wish, self.image.is_active))

    def _can_go_back(self, key: TopicIdPartition) -> bool:
        partition = self.image.topics[key.topic_id].partitions[key.partition]
        preferred = partition.preferred_leader
        return partition.leader != NO_NODE and preferred in partition.isr and self.image.is_active(preferred)

    @property
    def next_deadline_ms(self) -> int:
        """When the next `Tick` is due."""
        return self._next_balance_ms

    # --- brokers come and go -----------------------------------------------------------------

    def _on_brokers(self, registered: Mapping[NodeId, Registered], now_ms: int) -> list[Effect]:
        known = {node: broker.epoch for node, broker in self.image.brokers.items()}
        changes = broker_changes.diff_brokers(known, {node: each.epoch for node, each in registered.items()})
        if changes.is_empty:
            return []
        effects: list[Effect] = [Probe("broker_bounce_noticed") for _ in changes.bounced]
        # KIP-380, step 3: the live set is as it is before anything is decided, so that nobody who is gone is chosen.
        for node in (*changes.dead, *changes.bounced):
            self._fence(node)
            effects.append(CloseChannel(node))
        for step, node in broker_changes.steps(changes):
            if step is Step.FAILURE:
                effects += self._fail(node, now_ms)
            else:
                effects += self._start_up(registered[node], now_ms)
        return effects

    def _fence(self, node: NodeId) -> None:
        broker = self.image.brokers[node]
        self._replay(r.fencing_record(node, broker.epoch, r.FENCE))

    def _fail(self, node: NodeId, now_ms: int) -> list[Effect]:
        """Handle a broker's failure (onBrokerFailure): its partitions go on without it."""
        turn = self._turn(now_ms)
        turn.append(fencing.leaving(self.policy, node, eligible_no_more=False))
        self._replay(r.UnregisterBrokerRecord(broker_id=node, broker_epoch=self.image.brokers[node].epoch))
        return self._finish(turn, sends_brokers=True)

    def _start_up(self, registered: Registered, now_ms: int) -> list[Effect]:
        """Handle a broker's start (onBrokerStartup): it is sent everything, then may lead what nobody leads."""
        broker = broker_of(registered)
        self._replay(r.registration_record(broker))
        turn = self._turn(now_ms)
        turn.append(fencing.leaders_for_leaderless(self.policy, newly_active=broker.broker_id))
        effects = self._written(turn)
        effects.append(OpenChannel(broker))
        effects += self._everything_for(broker)
        effects += self._commands(turn, sends_brokers=True, without=broker.broker_id)
        return [*effects, *turn.effects_behind]

    def _everything_for(self, broker: Broker) -> list[Effect]:
        """Return what a registered broker is sent first: all metadata, and every partition it has a replica of."""
        alive = self._alive()
        states = self._named(key for key, _ in self.image.partitions())
        own = [named for named in states if broker.broker_id in named.partition.replicas]
        # An earlier controller may not have informed every broker of the deletion of topics.
        deleted = self._partitions_of(self.deleting)
        effects: list[Effect] = [
            Command(broker.broker_id, self.requests.update_metadata(broker.epoch, states, deleted, alive)),
            Command(broker.broker_id, self.requests.leader_and_isr(broker.epoch, own, alive, is_full=True)),
        ]
        deleted_here = [
            Stopped(topic, index, DELETED, delete=True)
            for topic, replicas in self.deleting.items()
            for index, node in replicas
            if node == broker.broker_id
        ]
        if deleted_here:
            effects += self._stop(broker, deleted_here)
        return effects

    # --- requests ----------------------------------------------------------------------------

    @staticmethod
    def decides(body: msgspec.Struct) -> AnyServedApi | None:
        """Return what is known of the API if requests like this one are for the controller."""
        found = _DECIDED.get(type(body))
        return None if found is None else found.served

    def _on_request(self, event: Request, now_ms: int, version: int) -> list[Effect]:
        turn = self._turn(now_ms)
        body = event.body
        if isinstance(body, controlled_shutdown.ControlledShutdownRequest):
            return self._on_controlled_shutdown(turn, event.token, body)
        if isinstance(body, alter_partition.AlterPartitionRequest):
            turn.by_leader = True
            body = current_alter_partition(body, version, self._topic_id)
        answer = _DECIDED[type(body)].decide(self, turn, body)
        return [*self._finish(turn), Reply(event.token, answer)]

    def _topic_id(self, name: str) -> UUID:
        topic = self.image.topics_by_name.get(name)
        return UUID(int=0) if topic is None or name in self.deleting else topic.topic_id

    def _on_controlled_shutdown(
        self, turn: ZooKeeperTurn, token: int, body: controlled_shutdown.ControlledShutdownRequest
    ) -> list[Effect]:
        """Take leaderships off a broker that wants to stop, and stop its replicas; refuse its earlier registration."""
        broker = self.image.brokers.get(NodeId(body.broker_id))
        if broker is None:
            return [Reply(token, _shutdown_answer(Error.BROKER_NOT_AVAILABLE))]
        if self._is_over(body.broker_epoch, broker.epoch):
            stale = _shutdown_answer(Error.STALE_BROKER_EPOCH)
            return [Probe("stale_controlled_shutdown_refused"), Reply(token, stale)]
        turn.append(fencing.enter_controlled_shutdown(self.policy, broker))
        effects = self._finish(turn)
        keys = [key for key, partition in self.image.partitions() if broker.broker_id in partition.replicas]
        followed = [
            Stopped(named.topic, named.key.partition, named.partition.leader_epoch, delete=False)
            for named in self._named(keys)
            if named.partition.leader != broker.broker_id
        ]
        if followed:
            effects += self._stop(broker, followed)
        left = [named for named in self._named(keys) if self._cannot_go(named, broker.broker_id)]
        effects.append(Reply(token, _shutdown_answer(Error.NONE, left)))
        return effects

    def _is_over(self, broker_epoch: int, registered: int) -> bool:
        """Return whether a request is of a registration that is known to be over (KIP-380)."""
        return acceptance.is_stale_incarnation(broker_epoch, registered)

    def _cannot_go(self, named: Named, node: NodeId) -> bool:
        return named.partition.leader == node and len(named.partition.replicas) > 1

    def _on_alter_partition(
        self, turn: ZooKeeperTurn, body: alter_partition.AlterPartitionRequest
    ) -> alter_partition.AlterPartitionResponse:
        """Decide on proposals; one that is in force already is granted again: its first answer was lost."""
        asked: list[alter_partition.AlterPartitionRequestTopicData] = []
        granted: dict[UUID, list[alter_partition.AlterPartitionResponsePartitionData]] = {}
        for topic in body.topics:
            known = self.image.topics.get(topic.topic_id)
            left = []
            for proposal in topic.partitions:
                partition = None if known is None else known.partitions.get(proposal.partition_index)
                if partition is not None and _is_in_force(partition, body.broker_id, proposal):
                    granted.setdefault(topic.topic_id, []).append(_granted(proposal.partition_index, partition))
                else:
                    left.append(proposal)
            asked.append(msgspec.structs.replace(topic, partitions=left))
        answer = broker_requests.on_alter_partition(turn, msgspec.structs.replace(body, topics=asked))
        topics = [
            msgspec.structs.replace(result, partitions=[*result.partitions, *granted.get(result.topic_id, [])])
            for result in answer.topics
        ]
        return msgspec.structs.replace(answer, topics=topics)

    # --- deletion of topics ------------------------------------------------------------------

    def _on_delete_topics(
        self, turn: "ControllerTurn", body: delete_topics.DeleteTopicsRequest
    ) -> delete_topics.DeleteTopicsResponse:
        if not self.settings.topic_deletion:
            return admin.refused_deletions(body, Error.TOPIC_DELETION_DISABLED)
        wanted = body.topics or [delete_topics.DeleteTopicState(name=name) for name in body.topic_names]
        return delete_topics.DeleteTopicsResponse(responses=[self._delete(turn, each) for each in wanted])

    def _delete(
        self, turn: "ControllerTurn", wanted: delete_topics.DeleteTopicState
    ) -> delete_topics.DeletableTopicResult:
        by_id = wanted.name is None
        topic = self.image.topics.get(wanted.topic_id) if by_id else self.image.topics_by_name.get(wanted.name or "")
        if topic is None or topic.name in self.deleting:
            error = Error.UNKNOWN_TOPIC_ID if by_id else Error.UNKNOWN_TOPIC_OR_PARTITION
            return delete_topics.DeletableTopicResult(name=wanted.name, topic_id=wanted.topic_id, error_code=error)
        turn.also(Create(path=paths.deletion(topic.name)))
        self._begin_deletion(topic.name)
        turn.deleted.append(topic.name)
        return delete_topics.DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_message=None)

    def _on_create_partitions(
        self, turn: "ControllerTurn", body: create_partitions.CreatePartitionsRequest
    ) -> create_partitions.CreatePartitionsResponse:
        """Grow topics, but none that is being deleted (as Kafka): no broker would be informed of the new partitions."""
        left = [topic for topic in body.topics if topic.name not in self.deleting]
        answer = admin.on_create_partitions(turn, msgspec.structs.replace(body, topics=left), self._random)
        refused = [
            create_partitions.CreatePartitionsTopicResult(
                name=topic.name,
                error_code=Error.INVALID_TOPIC_EXCEPTION,
                error_message="The topic is queued for deletion.",
            )
            for topic in body.topics
            if topic.name in self.deleting
        ]
        return create_partitions.CreatePartitionsResponse(results=[*answer.results, *refused])

    def _on_elect_leaders(
        self, turn: "ControllerTurn", body: elect_leaders.ElectLeadersRequest
    ) -> elect_leaders.ElectLeadersResponse:
        """Hold elections, but none of what is being deleted (as Kafka)."""
        named = body.topic_partitions
        if named is None:
            return admin.on_elect_leaders(turn, body)
        left = [topic for topic in named if topic.topic not in self.deleting]
        answer = admin.on_elect_leaders(turn, msgspec.structs.replace(body, topic_partitions=left))
        refused = [
            elect_leaders.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    elect_leaders.PartitionResult(
                        partition_id=index,
                        error_code=Error.INVALID_TOPIC_EXCEPTION,
                        error_message="The topic is being deleted.",
                    )
                    for index in topic.partitions
                ],
            )
            for topic in named
            if topic.topic in self.deleting
        ]
        return msgspec.structs.replace(answer, replica_election_results=[*answer.replica_election_results, *refused])

    def _on_reassignments(
        self, turn: "ControllerTurn", body: alter_partition_reassignments.AlterPartitionReassignmentsRequest
    ) -> alter_partition_reassignments.AlterPartitionReassignmentsResponse:
        """Reassign, but nothing that is being deleted (as Kafka: it does not exist any more)."""
        left = [topic for topic in body.topics if topic.name not in self.deleting]
        answer = admin.on_alter_partition_reassignments(turn, msgspec.structs.replace(body, topics=left))
        refused = [
            alter_partition_reassignments.ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    alter_partition_reassignments.ReassignablePartitionResponse(
                        partition_index=wanted.partition_index,
                        error_code=Error.UNKNOWN_TOPIC_OR_PARTITION,
                        error_message="The topic is being deleted.",
                    )
                    for wanted in topic.partitions
                ],
            )
            for topic in body.topics
            if topic.name in self.deleting
        ]
        return msgspec.structs.replace(answer, responses=[*answer.responses, *refused])

    def _begin_deletion(self, name: str) -> None:
        topic = self.image.topics_by_name[name]
        replicas = [(index, node) for index, one in sorted(topic.partitions.items()) for node in one.replicas]
        self.deleting[name] = dict.fromkeys(replicas)

    def _on_control_answer(self, event: ControlAnswered, now_ms: int) -> list[Effect]:
        """Note replicas that are gone for good; the last one takes the topic with it."""
        if not self.deleting or not isinstance(event.response, stop_replica.StopReplicaResponse):
            return []
        if event.response.error_code is not Error.NONE:
            return []
        turn = self._turn(now_ms)
        deleted = dict.fromkeys(deleted_by(event.request.body))
        for result in event.response.partition_errors:
            replicas = self.deleting.get(result.topic_name)
            if (result.topic_name, result.partition_index) not in deleted:
                continue  # merely stopped, because its broker leaves
            if replicas is not None and result.error_code is Error.NONE:
                replicas.pop((result.partition_index, event.node), None)
        self._end_deletions(turn)
        return self._finish(turn)

    def _end_deletions(self, turn: ZooKeeperTurn) -> None:
        for name in [name for name, replicas in self.deleting.items() if not replicas]:
            self._end_deletion(turn, name)

    def _end_deletion(self, turn: ZooKeeperTurn, name: str) -> None:
        topic = self.image.topics_by_name[name]
        left = self._left.pop(name, [])
        for index in sorted(topic.partitions):
            key = TopicPartition(name, index)
            turn.also(Delete(path=paths.state(key), version=ANY_VERSION))
            turn.also(Delete(path=paths.partition(key)))
        for index in left or []:
            if index not in topic.partitions:
                turn.also(Delete(path=paths.partition(TopicPartition(name, index))))
        if left is not None:
            turn.also(Delete(path=paths.partitions(name)))
        turn.also(Delete(path=paths.topic(name)))
        if self._znodes.configs.pop(paths.topic_config(name), "") is None:
            turn.also(Delete(path=paths.topic_config(name)))
        turn.also(Delete(path=paths.deletion(name)))
        self._replay(r.RemoveTopicRecord(topic_id=topic.topic_id))
        del self.deleting[name]

    # --- effects -----------------------------------------------------------------------------

    def _turn(self, now_ms: int) -> "ControllerTurn":
        return ControllerTurn(
            self.policy,
            now_ms=now_ms,
            controller_epoch=self.epoch,
            protocol=self.protocol,
            znodes=self._znodes,
            deleting=self.deleting,
        )

    def _replay(self, record: r.MetadataRecord) -> None:
        """Take note of what nobody has to write: registrations are the brokers' own znodes."""
        self.image.replay(record, self.image.last_offset + 1)

    def _written(self, turn: "ZooKeeperTurn") -> list[Effect]:
        operations = turn.operations
        return [Write(operations)] if operations else []

    def _finish(self, turn: "ZooKeeperTurn", *, sends_brokers: bool = False) -> list[Effect]:
        assert isinstance(turn, ControllerTurn)
        return [
            *self._written(turn),
            *self._commands(turn, sends_brokers=sends_brokers, without=NO_NODE),
            *turn.effects_behind,
        ]

    def _commands(self, turn: "ControllerTurn", *, sends_brokers: bool, without: NodeId) -> list[Effect]:
        """Return what brokers have to know of an event, LeaderAndIsr before UpdateMetadata before StopReplica."""
        changed = self._named(key for key in turn.before if self.image.partition(*key) is not None)
        deleted = self._partitions_of(turn.deleted)
        for_replicas = [named for named in changed if _replicas_must_know(turn, named)]
        effects: list[Effect] = []
        alive = self._alive()
        for broker in alive:
            own = [named for named in for_replicas if broker.broker_id in named.partition.replicas]
            if own and broker.broker_id != without:
                body = self.requests.leader_and_isr(broker.epoch, own, alive, is_full=False)
                effects.append(Command(broker.broker_id, body))
        for broker in alive:
            if (changed or deleted or sends_brokers) and broker.broker_id != without:
                body = self.requests.update_metadata(broker.epoch, changed, deleted, alive)
                effects.append(Command(broker.broker_id, body))
        for broker in alive:
            given_up = [*_left_by(turn, changed, broker.broker_id), *_stopped_for_deletion(deleted, broker.broker_id)]
            if given_up:
                effects += self._stop(broker, given_up)
        return effects

    def _stop(self, broker: Broker, stopped: Sequence[Stopped]) -> list[Effect]:
        return [Command(broker.broker_id, request) for request in self.requests.stop_replica(broker.epoch, stopped)]

    def _partitions_of(self, topics: Iterable[str]) -> list[Named]:
        return [
            Named(name, TopicIdPartition(topic.topic_id, index), partition)
            for name in topics
            if (topic := self.image.topics_by_name.get(name))
            for index, partition in sorted(topic.partitions.items())
        ]

    def _named(self, keys: Iterable[TopicIdPartition]) -> list[Named]:
        found = []
        for key in keys:
            topic = self.image.topics[key.topic_id]
            if topic.name not in self.deleting:
                found.append(Named(topic.name, key, topic.partitions[key.partition]))
        return found

    def _alive(self) -> list[Broker]:
        return [broker for _, broker in sorted(self.image.brokers.items()) if not broker.fenced]


class ControllerTurn(ZooKeeperTurn):
    """An event's work with the topics it began to delete.

    deleting:  topics whose deletion is under way: their partitions stay as they are, whoever comes or goes (as Kafka). Some
               replicas have no log any more, and no broker would be told of a new leader.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        now_ms: int,
        controller_epoch: int,
        protocol: ProtocolVersion,
        znodes: Znodes,
        deleting: Container[str],
    ) -> None:
        super().__init__(policy, now_ms=now_ms, controller_epoch=controller_epoch, protocol=protocol, znodes=znodes)
        self.deleted: list[str] = []
        self._deleting = deleting

    def append(self, records: r.Records) -> None:
        """Let records take effect, but those that change what is being deleted."""
        super().append([record for record in records if not self._changes_what_goes(record)])

    def _changes_what_goes(self, record: r.MetadataRecord) -> bool:
        if not isinstance(record, r.PartitionChangeRecord) or self.by_leader:
            return False
        return self.image.topics[record.topic_id].name in self._deleting

    @property
    def effects_behind(self) -> list[Effect]:
        """What is reported once everything is written."""
        return [effect for effect in self._after if isinstance(effect, Emit | Probe)]


def broker_of(registered: Registered) -> Broker:
    """Return a registered broker as the image knows brokers."""
    return Broker(
        broker_id=registered.node,
        epoch=registered.epoch,
        incarnation_id=_incarnation(registered),
        endpoints=_endpoints(registered),
        rack=registered.znode.rack,
        fenced=False,
    )


def _incarnation(registered: Registered) -> UUID:
    try:
        return UUID(registered.znode.incarnation)
    except ValueError:
        return UUID(int=registered.epoch)  # Kafka's own brokers name none


def _endpoints(registered: Registered) -> tuple[BrokerEndpoint, ...]:
    znode = registered.znode
    return (BrokerEndpoint(name="PLAINTEXT", host=znode.host, port=znode.port),)


def _partition_record(
    topic_id: UUID, index: int, topic: TopicZnode, state: PartitionStateZnode, version: int
) -> r.PartitionRecord:
    name = str(index)
    return r.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=topic.partitions[name],
        isr=state.isr,
        adding_replicas=topic.adding_replicas.get(name, []),
        removing_replicas=topic.removing_replicas.get(name, []),
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=version,
        leader_recovery_state=state.leader_recovery_state,
    )


def _replicas_must_know(turn: ZooKeeperTurn, named: Named) -> bool:
    """Return whether a change goes to replicas: a new leader epoch, or another recovery state (KIP-704)."""
    before = turn.before[named.key]
    if before is None:
        return True
    now = named.partition
    return (
        now.leader_epoch != before.leader_epoch
        or now.leader_recovery_state is not before.leader_recovery_state
        or now.replicas != before.replicas
    )


def _left_by(turn: ZooKeeperTurn, changed: Sequence[Named], node: NodeId) -> list[Stopped]:
    """Return the partitions that a finished reassignment took from a broker."""
    return [
        Stopped(named.topic, named.key.partition, named.partition.leader_epoch, delete=True)
        for named in changed
        if (before := turn.before[named.key]) is not None
        and node in before.replicas
        and node not in named.partition.replicas
    ]


def _stopped_for_deletion(deleted: Sequence[Named], node: NodeId) -> list[Stopped]:
    return [
        Stopped(named.topic, named.key.partition, DELETED, delete=True)
        for named in deleted
        if node in named.partition.replicas
    ]


def _is_in_force(
    partition: Partition, sender: int, proposal: alter_partition.AlterPartitionRequestPartitionData
) -> bool:
    return (
        partition.leader == sender
        and partition.leader_epoch == proposal.leader_epoch
        and partition.partition_epoch > proposal.partition_epoch
        and {member.broker_id for member in proposal.new_isr_with_epochs} == set(partition.isr)
        and partition.leader_recovery_state == proposal.leader_recovery_state
    )


def _granted(index: int, partition: Partition) -> alter_partition.AlterPartitionResponsePartitionData:
    return alter_partition.AlterPartitionResponsePartitionData(
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


def _shutdown_answer(error: Error, left: Sequence[Named] = ()) -> controlled_shutdown.ControlledShutdownResponse:
    return controlled_shutdown.ControlledShutdownResponse(
        error_code=error,
        remaining_partitions=[
            controlled_shutdown.RemainingPartition(topic_name=named.topic, partition_index=named.key.partition)
            for named in left
        ],
    )


_Handler = Callable[[ZooKeeperController, ControllerTurn, msgspec.Struct], msgspec.Struct]


class _Decided(NamedTuple):
    served: AnyServedApi
    decide: _Handler


def _decides(
    served: ServedApi[Q, R], decide: Callable[[ZooKeeperController, ControllerTurn, Q], R]
) -> dict[type[msgspec.Struct], _Decided]:
    return {served.exchange.request: _Decided(cast(AnyServedApi, served), cast(_Handler, decide))}


CONTROLLED_SHUTDOWN: Final = ServedApi(controlled_shutdown.EXCHANGE, questions=BY_NODES)
_DECIDED: Final[dict[type[msgspec.Struct], _Decided]] = {
    **_decides(CONTROLLED_SHUTDOWN, lambda _, __, ___: _shutdown_answer(Error.NONE)),  # decided by `_on_request` itself
    **_decides(broker_requests.ALTER_PARTITION.served, lambda self, turn, body: self._on_alter_partition(turn, body)),
    **_decides(admin.DELETE_TOPICS.served, lambda self, turn, body: self._on_delete_topics(turn, body)),
    **_decides(
        broker_requests.ALLOCATE_PRODUCER_IDS.served,
        lambda _, turn, body: broker_requests.on_allocate_producer_ids(turn, body),
    ),
    **_decides(
        admin.CREATE_TOPICS.served,
        lambda self, turn, body: admin.on_create_topics(turn, body, self._new_topic_id, self._random),
    ),
    **_decides(admin.CREATE_PARTITIONS.served, lambda self, turn, body: self._on_create_partitions(turn, body)),
    **_decides(admin.ELECT_LEADERS.served, lambda self, turn, body: self._on_elect_leaders(turn, body)),
    **_decides(
        admin.ALTER_PARTITION_REASSIGNMENTS.served,
        lambda self, turn, body: self._on_reassignments(turn, body),
    ),
    **_decides(
        admin.LIST_PARTITION_REASSIGNMENTS.served,
        lambda _, turn, body: admin.on_list_partition_reassignments(turn, body),
    ),
    **_decides(
        config_requests.ALTER_CONFIGS.served, lambda _, turn, body: config_requests.on_alter_configs(turn, body)
    ),
    **_decides(
        config_requests.INCREMENTAL_ALTER_CONFIGS.served,
        lambda _, turn, body: config_requests.on_incremental_alter_configs(turn, body),
    ),
}
