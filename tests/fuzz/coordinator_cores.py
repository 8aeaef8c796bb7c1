"""Coordinators' cores under any sequence of requests, time-outs, refused writes, end markers and fail-overs.

Not a test module. A core stands on a real partition: what it writes has to fit a batch and a log, and a successor reads it from there.
"""

from itertools import count
from random import Random
from typing import Any, Final
from uuid import UUID

import msgspec

from replog.broker.isr import BrokerView, PartitionState
from replog.broker.partition import Partition
from replog.coordinators.classic_group import GroupSettings
from replog.coordinators.consumer_group_coordinator import ConsumerGroupSettings, TopicView
from replog.coordinators.events import (
    Effect,
    MarkersWritten,
    NotWritten,
    Now,
    Reply,
    Request,
    SendMarkers,
    Token,
    Write,
    Written,
)
from replog.coordinators.group_coordinator import GroupCoordinator
from replog.coordinators.transaction import EPOCH_MAX, NO_TIME, State, Transaction, transaction_entry
from replog.coordinators.transaction_coordinator import TransactionCoordinator, TransactionSettings
from replog.log.batch import (
    TRANSACTIONAL,
    ControlType,
    NewRecord,
    batches,
    build,
    end_transaction,
    end_transaction_marker,
    records,
)
from replog.log.log import Appended, Log
from replog.log.settings import LogSettings
from replog.log.validation import Origin
from replog.types import BrokerEpoch, LeaderEpoch, LeaderRecoveryState, NodeId, PartitionEpoch, TopicPartition
from replog.wire.apis import BROKER_APIS, Api
from replog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from replog.wire.messages.offset_fetch import OffsetFetchRequestGroup
from tests.coordinators.driving import new_ids
from tests.fuzz.drawing import TOPIC_IDS, WALL_MS, Asked, Drawing, Trail, Voice
from tests.identities import an_identity
from tribunal.clusters.simulated.disk import SimulatedDisk

GROUP_APIS: Final = (
    *(Api.JOIN_GROUP, Api.SYNC_GROUP, Api.HEARTBEAT, Api.LEAVE_GROUP, Api.CONSUMER_GROUP_HEARTBEAT),
    *(Api.OFFSET_COMMIT, Api.TXN_OFFSET_COMMIT, Api.OFFSET_DELETE, Api.OFFSET_FETCH, Api.DELETE_GROUPS),
    *(Api.LIST_GROUPS, Api.DESCRIBE_GROUPS, Api.CONSUMER_GROUP_DESCRIBE),
)
GROUP_STORIES: Final = (
    *((Api.JOIN_GROUP, Api.JOIN_GROUP, Api.SYNC_GROUP, Api.HEARTBEAT, Api.OFFSET_COMMIT, Api.SYNC_GROUP),) * 2,
    (Api.SYNC_GROUP, Api.HEARTBEAT, Api.JOIN_GROUP, Api.SYNC_GROUP, Api.TXN_OFFSET_COMMIT, Api.LEAVE_GROUP),
    (Api.CONSUMER_GROUP_HEARTBEAT,) * 4,
    (Api.CONSUMER_GROUP_HEARTBEAT, Api.OFFSET_COMMIT, Api.CONSUMER_GROUP_HEARTBEAT, Api.OFFSET_DELETE),
    (Api.DELETE_GROUPS, Api.JOIN_GROUP, Api.CONSUMER_GROUP_HEARTBEAT),
)
TRANSACTION_APIS: Final = (
    *(Api.INIT_PRODUCER_ID, Api.ADD_PARTITIONS_TO_TXN, Api.END_TXN),
    *(Api.LIST_TRANSACTIONS, Api.DESCRIBE_TRANSACTIONS),
)
TRANSACTION_STORIES: Final = (
    (Api.INIT_PRODUCER_ID, Api.ADD_PARTITIONS_TO_TXN, Api.ADD_PARTITIONS_TO_TXN, Api.END_TXN),
    (Api.ADD_PARTITIONS_TO_TXN, Api.END_TXN, Api.END_TXN, Api.INIT_PRODUCER_ID),
    (Api.END_TXN, Api.END_TXN),
)
STEPS_MS: Final = (*(0, 1, 100, 1000, 3000) * 4, 10_000, 400_000)
WALL_STEPS_MS: Final = (*STEPS_MS, 10**8, -1000, -(10**9))
INSTANCES: Final = (None, None, "i", "i", "j")  # two of them are the same static member, or want to be
LEADER: Final = NodeId(1)


class CoordinatorCore:
    """A core with its log, as `replog/node/coordinators/runtime.py` drives it."""

    def __init__(
        self, seed: str, apis: tuple[Api, ...], stories: tuple[tuple[Api, ...], ...], *, gathers: bool
    ) -> None:
        voices = [
            Voice(f"m{number}", {"group_instance_id": instance_id, "instance_id": instance_id})
            for number, instance_id in enumerate(INSTANCES)
        ]
        self.drawing = Drawing(seed, {api: BROKER_APIS[api] for api in apis}, voices, stories)
        self.random: Random = self.drawing.random
        self.trail = Trail()
        self.now = Now(1_000_000, WALL_MS)
        self.gathers = gathers
        self.disk = SimulatedDisk(Random(0))
        self.leader_epoch = 0
        self.partition = self._led()
        self.refuses = False  # the partition is short of replicas
        self.core = self.new_core()
        self.waiting: dict[Token, Asked] = {}
        self.gathered: list[Write] = []
        self.pending: list[tuple[int, list[Write]]] = []  # in the log, not committed
        self.markers: list[SendMarkers] = []
        self.ended: list[tuple[int, bool]] = []  # transactions whose end markers are written, not committed
        self._tokens = count(1)
        self.perform(self.core.on_loaded(self.now))

    def new_core(self) -> Any:
        """Return an empty core."""
        raise NotImplementedError

    # --- steps -------------------------------------------------------------------------------

    def step(self) -> None:
        """Let something happen."""
        match self.random.choices(
            ("ask", "tick", "commit", "replicas", "marker", "load", "other"), (60, 10, 18, 4, 3, 1, 6)
        )[0]:
            case "ask":
                asked = self.drawing.asked()
                if asked is not None:
                    self.trail.note(asked)
                    self.ask(asked)
            case "tick":
                self.tick()
            case "commit":
                for _ in range(self.random.randint(1, 3)):
                    self.commit_one()
            case "replicas":
                self.refuses = self.random.random() < 0.4
                self.trail.note("refuses", self.refuses)
            case "marker":
                self.end_transaction()
            case "load":
                self.load()
            case _:
                self.other()
        if self.gathered and self.random.random() < 0.7:
            gathered, self.gathered = self.gathered, []
            self.append(gathered)

    def ask(self, asked: Asked) -> None:
        """Hand a request in as the listener's handler does."""
        raise NotImplementedError

    def other(self) -> None:
        """Let something happen that concerns this core only."""

    def send(self, asked: Asked, body: msgspec.Struct) -> None:
        """Let the core answer this in a request's name."""
        request = Request(
            token=self.expect(asked), version=asked.version, client_id=asked.client_id, client_host="/h", body=body
        )
        self.perform(self.core.handle(request, self.now))

    def expect(self, asked: Asked) -> Token:
        """Return a token for an answer to come."""
        token = next(self._tokens)
        self.waiting[token] = asked
        return token

    def reply(self, asked: Asked, body: msgspec.Struct) -> None:
        """Take the core's answer for one id."""
        self.drawing.learn(asked, body)

    def tick(self) -> None:
        """Let time go by; clocks on walls go back as well."""
        self.now = Now(
            self.now.now_ms + self.random.choice(STEPS_MS), self.now.wall_ms + self.random.choice(WALL_STEPS_MS)
        )
        self.trail.note("tick", self.now)
        self.perform(self.core.on_tick(self.now))

    # --- the log -----------------------------------------------------------------------------

    def perform(self, effects: list[Effect]) -> None:
        """Carry out what the core said, in order."""
        for effect in effects:
            match effect:
                case Reply():
                    self.reply(self.waiting.pop(effect.token), effect.body)  # KeyError: it was answered before
                case Write() if self.gathers:
                    self.gathered.append(effect)
                case Write():
                    self.append([effect])
                case SendMarkers():
                    self.markers.append(effect)

    def append(self, writes: list[Write]) -> None:
        """Append writes as one batch, or refuse them all."""
        producer = writes[0].producer
        batch = build(
            [NewRecord(entry.key, entry.value) for write in writes for entry in write.entries],
            timestamp_ms=self.now.wall_ms,
            producer=(-1, -1, -1) if producer is None else (*producer, -1),
            attributes=0 if producer is None else TRANSACTIONAL,
        )
        self.partition.min_insync_replicas = 1
        if self.refuses and self.partition.leadership is not None:
            self.partition.on_min_insync_replicas(2, self.now.now_ms)
        elif self.partition.leadership is not None:
            self.partition.on_min_insync_replicas(1, self.now.now_ms)
        appended, _ = self.partition.append(
            batch, acks=-1, now_ms=self.now.now_ms, wall_ms=self.now.wall_ms, origin=Origin.COORDINATOR
        )
        if isinstance(appended, Appended):
            self.pending.append((appended.base_offset, writes))
            return
        self.trail.note("refused", appended.name, [write.ticket for write in writes])
        for write in writes:
            self.perform(self.core.on_not_written(NotWritten(write.ticket, appended), self.now))

    def commit_one(self) -> None:
        """Let the high watermark pass what was appended first."""
        if not self.pending:
            return
        offset, writes = self.pending.pop(0)
        self.trail.note("committed", [write.ticket for write in writes])
        for write in writes:
            self.perform(self.core.on_written(Written(write.ticket, offset), self.now))
            offset += len(write.entries)

    def end_transaction(self) -> None:
        """Write an end marker to the partition, and let the core know of it once it is committed."""
        random = self.random
        while self.pending:
            self.commit_one()
        known = random.choice(self.drawing.voices).remembered.get("producer_id") or [0]
        producer_id = random.choice((*known, 0, 1, self.drawing.edge("int64")))
        committed = random.random() < 0.5
        marker = end_transaction_marker(
            producer_id=producer_id,
            producer_epoch=random.choice((0, 1, self.drawing.edge("int16"))),
            committed=committed,
            coordinator_epoch=self.drawing.edge("int32"),
            timestamp_ms=self.now.wall_ms,
            leader_epoch=self.leader_epoch,
        )
        appended, _ = self.partition.append(
            marker, acks=1, now_ms=self.now.now_ms, wall_ms=self.now.wall_ms, origin=Origin.COORDINATOR
        )
        self.trail.note("marker", producer_id, committed, appended)
        if isinstance(appended, Appended):
            self.core.on_marker(producer_id, committed=committed)

    def load(self) -> None:
        """Let a successor read the log; what was not committed may be gone."""
        self.waiting.clear()
        self.gathered.clear()
        self.markers.clear()
        if self.pending and self.random.random() < 0.5:
            self.partition.log.truncate_to(self.pending[0][0])
        self.pending.clear()
        self.leader_epoch += 1
        self.partition = self._led()
        self.core = self.new_core()
        self.trail.note("load")
        self._replay()
        self.perform(self.core.on_loaded(self.now))

    def _replay(self) -> None:
        log = self.partition.log
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            content = log.read(offset, max_bytes=1 << 20, end_offset=log.log_end_offset, at_least_one=True)
            for header in batches(content):
                offset = header.next_offset
                marker = end_transaction(content, header) if header.is_control else None
                if marker is not None:
                    self.core.on_marker(header.producer_id, committed=marker.control_type == ControlType.COMMIT)
                producer_id = header.producer_id if header.is_transactional else None
                for record in () if header.is_control else records(content, header):
                    self.core.replay(record.key or b"", record.value, record.offset, producer_id)

    def _led(self) -> Partition:
        brokers = {node: BrokerView(epoch=BrokerEpoch(1), fenced=False, shutting_down=False) for node in (LEADER,)}
        log = (
            Log.open(
                self.disk,
                "data/c-0",
                LogSettings(),
                recover=False,
                recovery_point=0,
                log_start_offset=0,
                now_ms=WALL_MS,
            )
            if self.leader_epoch == 0
            else self.partition.log
        )
        partition = Partition(
            name=TopicPartition("c", 0),
            topic_id=UUID(int=9),
            node_id=LEADER,
            log=log,
            high_watermark=0,
            brokers=brokers,
            lag_ms_max=30_000,
            refuses_while_recovering=True,
        )
        state = PartitionState(
            leader=LEADER,
            leader_epoch=LeaderEpoch(self.leader_epoch),
            partition_epoch=PartitionEpoch(self.leader_epoch),
            replicas=(LEADER, NodeId(2)),
            isr=(LEADER,),
            recovery=LeaderRecoveryState.RECOVERED,
        )
        partition.on_metadata(state, identity=an_identity(1), now_ms=self.now.now_ms, wall_ms=self.now.wall_ms)
        return partition


class DrawnTopics:
    """Metadata of a few topics that come, grow and go."""

    def __init__(self) -> None:
        self.views = {name: TopicView(topic_id, 2) for name, topic_id in TOPIC_IDS.items()}

    def has_partition(self, partition: TopicPartition) -> bool:
        """Return whether there is such a partition."""
        view = self.views.get(partition.topic)
        return view is not None and 0 <= partition.partition < view.partition_count

    def name_of(self, topic_id: UUID) -> str | None:
        """Return a topic's name."""
        return next((name for name, view in self.views.items() if view.topic_id == topic_id), None)

    def view_of(self, name: str) -> TopicView | None:
        """Return a topic."""
        return self.views.get(name)

    def names(self) -> list[str]:
        """Return the names of all topics, in order."""
        return sorted(self.views)


class GroupCore(CoordinatorCore):
    """Groups of both protocols."""

    def __init__(self, seed: str) -> None:
        self.topics = DrawnTopics()
        self.ids = new_ids()
        self.own: dict[str, str] = {}
        settings = Random(seed)
        self.settings = GroupSettings(
            initial_rebalance_delay_ms=settings.choice((0, 0, 3000)),
            member_count_max=settings.choice((2, 1000)),
            offsets_retention_ms=settings.choice((1000, 10**6, 10**9)),
        )
        super().__init__(seed, GROUP_APIS, GROUP_STORIES, gathers=False)

    def new_core(self) -> GroupCoordinator:
        return GroupCoordinator(
            self.settings,
            self.topics,
            self.ids,
            expiry_interval_ms=10_000,
            consumer_settings=ConsumerGroupSettings(),
            own_settings=lambda _: self.own,
        )

    def other(self) -> None:
        """Let a topic come, grow or go."""
        name = self.random.choice(("t", "u", "new"))
        view = self.topics.views.pop(name, None)
        if view is None:
            self.topics.views[name] = TopicView(TOPIC_IDS.get(name, self.ids()), 2)
        elif self.random.random() < 0.5:
            self.topics.views[name] = TopicView(view.topic_id, view.partition_count + 1)
        else:
            self.trail.note("deleted", name)
            self.perform(self.core.on_topics_deleted({name: None}))

    def ask(self, asked: Asked) -> None:
        core, body = self.core, asked.body
        match asked.api:
            case Api.DELETE_GROUPS:
                for name in body.groups_names:
                    self.perform(core.delete(name, self.expect(asked)))
            case Api.OFFSET_FETCH:
                for group in body.groups or [OffsetFetchRequestGroup(group_id=body.group_id, topics=None)]:
                    core.fetch_error(group.group_id, group.member_id, group.member_epoch)
                    wanted = [
                        TopicPartition(topic.name, index)
                        for topic in group.topics or ()
                        for index in topic.partition_indexes
                    ]
                    core.fetch(group.group_id, wanted or None, require_stable=body.require_stable)
            case Api.LIST_GROUPS:
                core.listed(body.states_filter, body.types_filter)
            case Api.DESCRIBE_GROUPS:
                for name in body.groups:
                    core.describe(name, asked.version)
            case Api.CONSUMER_GROUP_DESCRIBE:
                for name in body.group_ids:
                    core.consumer.describe(name)
            case _:
                self.send(asked, body)

    def reply(self, asked: Asked, body: msgspec.Struct) -> None:
        if asked.api is not Api.DELETE_GROUPS:  # of several groups each has its own
            self.drawing.learn(asked, body)


class TransactionCore(CoordinatorCore):
    """Transactional ids; one of them has come near the end of its epochs before."""

    def __init__(self, seed: str) -> None:
        self.producer_ids = count(1000)
        self.is_out_of_ids = False
        super().__init__(seed, TRANSACTION_APIS, TRANSACTION_STORIES, gathers=True)
        self._begin_late()

    def new_core(self) -> TransactionCoordinator:
        return TransactionCoordinator(
            TransactionSettings(expiration_ms=10**6, scan_interval_ms=1000), self._new_producer_id
        )

    def _new_producer_id(self) -> int | None:
        return None if self.is_out_of_ids else next(self.producer_ids)

    def _begin_late(self) -> None:
        """Let the log say that an id is in one of its last epochs."""
        random = self.random
        epoch = random.choice((0, EPOCH_MAX - 3, EPOCH_MAX - 2, EPOCH_MAX - 1, EPOCH_MAX))
        known = Transaction(
            transactional_id="x",
            producer_id=7,
            producer_epoch=epoch,
            timeout_ms=random.choice((1, 60_000)),
            state=random.choice(
                (State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
            ),
            last_update_ms=WALL_MS,
            previous_producer_id=random.choice((-1, 6)),
            start_ms=random.choice((NO_TIME, WALL_MS)),
            protocol=random.choice((0, 2)),
            partitions=random.choice(((), (TopicPartition("t", 0),))),
        )
        entry = transaction_entry(known)
        batch = build([NewRecord(entry.key, entry.value)], timestamp_ms=WALL_MS)
        self.partition.append(batch, acks=1, now_ms=self.now.now_ms, wall_ms=WALL_MS, origin=Origin.COORDINATOR)
        for voice in self.drawing.voices[:2]:
            voice.remembered |= {"producer_id": [7], "producer_epoch": [epoch]}
        self.load()

    def other(self) -> None:
        """Let ids run out, or markers be written: those that were sent, sent again, or never."""
        if self.random.random() < 0.2:
            self.is_out_of_ids = not self.is_out_of_ids
            return
        if self.markers and self.random.random() < 0.9:
            sent = self.random.choice(self.markers)
            done = MarkersWritten(sent.transactional_id, sent.producer_id, sent.producer_epoch)
        else:
            name = self.random.choice(("x", "y", ""))
            done = MarkersWritten(name, self.drawing.edge("int64"), self.drawing.edge("int16"))
        self.trail.note(done)
        self.perform(self.core.on_markers_written(done, self.now))

    def ask(self, asked: Asked) -> None:
        core, body = self.core, asked.body
        match asked.api:
            case Api.ADD_PARTITIONS_TO_TXN:
                for wanted in body.transactions:
                    self.send(asked, wanted)
                if not body.transactions:
                    self.send(
                        asked,
                        AddPartitionsToTxnTransaction(
                            transactional_id=body.v3_and_below_transactional_id,
                            producer_id=body.v3_and_below_producer_id,
                            producer_epoch=body.v3_and_below_producer_epoch,
                            topics=body.v3_and_below_topics or [AddPartitionsToTxnTopic(name="t", partitions=[0])],
                        ),
                    )
            case Api.LIST_TRANSACTIONS:
                core.listed(
                    [], body.producer_id_filters, self.now, duration_ms=body.duration_filter, wanted=lambda _: True
                )
            case Api.DESCRIBE_TRANSACTIONS:
                for name in body.transactional_ids:
                    core.describe(name)
            case Api.INIT_PRODUCER_ID if body.transactional_id is None:
                pass  # any broker answers that
            case Api.END_TXN:
                core.has_used_up_epochs(body.transactional_id)
                self.send(asked, body)
            case _:
                self.send(asked, body)

    def reply(self, asked: Asked, body: msgspec.Struct) -> None:
        if asked.api is not Api.ADD_PARTITIONS_TO_TXN:  # of several transactions each has its own
            self.drawing.learn(asked, body)
