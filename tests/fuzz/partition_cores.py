"""A partition's replica, leader or follower, under any batches, positions, end markers and changes of the metadata.

Not a test module. Its log is a real one on the simulated disk, with segments so small that they roll, and is opened again now and then.
"""

from random import Random
from typing import Final
from uuid import UUID

from replog.broker.isr import AlterPartitionAnswer, BrokerView, Contact, PartitionState, Propose
from replog.broker.partition import Effect, Partition
from replog.broker.verification import Guard
from replog.errors import Error
from replog.log.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    CorruptBatch,
    NewRecord,
    build,
    end_transaction_marker,
    sealed,
)
from replog.log.log import Log
from replog.log.settings import LogSettings
from replog.log.validation import Origin
from replog.types import BrokerEpoch, LeaderEpoch, LeaderRecoveryState, NodeId, PartitionEpoch, TopicPartition
from tests.fuzz.drawing import EDGES, WALL_MS, Trail
from tests.identities import an_identity
from tribunal.clusters.simulated.disk import SimulatedDisk

NODES: Final = (NodeId(1), NodeId(2), NodeId(3))
MINE: Final = NODES[0]
PRODUCERS: Final = (0, 1, 2)
STEPS_MS: Final = (0, 1, 100, 5000, 40_000)
NAME: Final = TopicPartition("t", 0)


class PartitionCore:
    """One replica; what its leader or its followers say is drawn."""

    def __init__(self, seed: str) -> None:
        self.random = Random(seed)
        self.trail = Trail()
        self.now_ms, self.wall_ms = 1_000_000, WALL_MS
        self.disk = SimulatedDisk(Random(0))
        self.settings = LogSettings(
            segment_bytes=self.random.choice((300, 1500, 1 << 20)),
            retention_ms=self.random.choice((-1, 1000, 10**9)),
            log_append_time=self.random.random() < 0.3,
            compacts=self.random.random() < 0.2,
            deletes=self.random.random() < 0.7,
            flush_messages=self.random.choice((1, 10, 2**63 - 1)),
        )
        self.brokers = {node: BrokerView(epoch=BrokerEpoch(node), fenced=False, shutting_down=False) for node in NODES}
        self.state = PartitionState(
            leader=MINE,
            leader_epoch=LeaderEpoch(0),
            partition_epoch=PartitionEpoch(0),
            replicas=NODES,
            isr=NODES,
            recovery=LeaderRecoveryState.RECOVERED,
        )
        self.proposed: list[Propose] = []
        self.guards: list[Guard] = []
        self.sequences: dict[int, tuple[int, int]] = {}  # of each producer: epoch and next sequence
        self.partition = self._opened(recover=False)
        self._apply_metadata()

    def _opened(self, *, recover: bool) -> Partition:
        log = Log.open(
            self.disk,
            "data/t-0",
            self.settings,
            recover=recover,
            recovery_point=0,
            log_start_offset=0,
            now_ms=self.wall_ms,
        )
        partition = Partition(
            name=NAME,
            topic_id=UUID(int=1),
            node_id=MINE,
            log=log,
            high_watermark=0,
            brokers=self.brokers,
            lag_ms_max=30_000,
            refuses_while_recovering=True,
        )
        partition.verifies_transactions = self.random.random() < 0.5
        return partition

    # --- steps -------------------------------------------------------------------------------

    def step(self) -> None:
        """Let something happen."""
        choices = {
            self._produce: 30,
            self._end_transaction: 6,
            self._fetch: 20,
            self._read: 15,
            self._ask: 10,
            self._follow: 15,
            self._metadata: 5,
            self._answer: 5,
            self._tick: 8,
            self._open_again: 1,
        }
        self.random.choices([*choices], [*choices.values()])[0]()

    def edge(self, kind: str = "int64") -> int:
        """Draw a number from the edges of a type."""
        return self.random.choice(EDGES[kind])

    def offset(self) -> int:
        """Draw an offset that may be one of the log's."""
        log, partition = self.partition.log, self.partition
        near = (log.log_start_offset, log.log_end_offset, partition.high_watermark, partition.last_stable_offset)
        if self.random.random() < 0.2:
            return self.edge()
        return self.random.choice(near) + self.random.choice((0, 0, 0, -1, 1))

    def epoch(self) -> int:
        """Draw a leader epoch."""
        if self.random.random() < 0.15:
            return self.edge("int32")
        return self.partition.leader_epoch + self.random.choice((0, 0, 0, -1, 1))

    def _perform(self, effects: list[Effect]) -> None:
        self.proposed += [effect for effect in effects if isinstance(effect, Propose)]

    # --- writing -----------------------------------------------------------------------------

    def _batch(self) -> bytes:
        random = self.random
        producer_id = random.choice((*PRODUCERS, -1, self.edge()) if random.random() < 0.3 else PRODUCERS)
        epoch, sequence = self.sequences.get(producer_id, (0, 0))
        is_edge = random.random() < 0.2
        if is_edge:
            epoch, sequence = self.edge("int16"), self.edge("int32")
        count = random.randint(1, 3)
        attributes = random.choice((0, TRANSACTIONAL, TRANSACTIONAL))
        timestamp_ms = random.choice((self.wall_ms, -1, self.edge())) if is_edge else self.wall_ms
        entries = [NewRecord(random.choice((None, b"k")), random.randbytes(20)) for _ in range(count)]
        batch = build(
            entries, timestamp_ms=timestamp_ms, producer=(producer_id, epoch, sequence), attributes=attributes
        )
        self.sequences[producer_id] = (max(0, epoch), (sequence + count) % 2**31)
        if random.random() > 0.1:
            return batch
        return sealed(  # what no client makes, with a checksum that is right
            batch[HEADER_BYTES:],
            count=random.choice((count, self.edge("int32"))),
            last_offset_delta=random.choice((count - 1, self.edge("int32"))),
            timestamps_ms=(random.choice((timestamp_ms, self.edge())), random.choice((timestamp_ms, self.edge()))),
            base_offset=self.edge(),
            leader_epoch=self.edge("int32"),
            producer=(producer_id, epoch, sequence),
            attributes=attributes | random.choice((0, CONTROL, LOG_APPEND_TIME, CODEC_MASK, -32768)),
        )

    def _produce(self) -> None:
        partition, random = self.partition, self.random
        batch = self._batch()
        if random.random() < 0.1:
            batch += self._batch()
        if random.random() < 0.05:
            batch = batch[: random.randrange(len(batch) + 1)]
        records = memoryview(batch)
        acks = random.choice((-1, 0, 1, self.edge("int16")))
        is_of_protocol_2 = random.random() < 0.5
        unverified = partition.unverified(records, now_ms=self.now_ms, is_of_protocol_2=is_of_protocol_2)
        if unverified is not None:
            self.guards = [*self.guards[-3:], unverified[1]]
        guard = random.choice((*self.guards, None)) if random.random() < 0.3 or unverified is None else unverified[1]
        checked = partition.log.checked(records, now_ms=self.wall_ms) if random.random() < 0.3 else None
        self.trail.note("produce", acks, guard, bytes(batch[:80]).hex())
        appended, effects = partition.append(
            records, acks=acks, now_ms=self.now_ms, wall_ms=self.wall_ms, guard=guard, checked=checked
        )
        self.trail.note(appended)
        self._perform(effects)

    def _end_transaction(self) -> None:
        random = self.random
        producer_id = random.choice((*PRODUCERS, self.edge()))
        epoch = self.sequences.get(producer_id, (0, 0))[0]
        marker = end_transaction_marker(
            producer_id=producer_id,
            producer_epoch=random.choice((epoch, epoch, self.edge("int16"))),
            committed=random.random() < 0.5,
            coordinator_epoch=random.choice((0, 0, self.edge("int32"))),
            timestamp_ms=random.choice((self.wall_ms, self.wall_ms, self.edge())),
        )
        appended, effects = self.partition.append(
            marker, acks=1, now_ms=self.now_ms, wall_ms=self.wall_ms, origin=Origin.COORDINATOR
        )
        self.trail.note("marker", producer_id, appended)
        self._perform(effects)

    # --- reading -----------------------------------------------------------------------------

    def _fetch(self) -> None:
        random = self.random
        replica = random.choice((*NODES, NodeId(self.edge("int32"))))
        asked = {
            "replica": replica,
            "broker_epoch": BrokerEpoch(random.choice((replica, replica, -1, self.edge()))),
            "current_leader_epoch": self.epoch(),
            "fetch_offset": self.offset(),
            "last_fetched_epoch": random.choice((-1, self.epoch())),
            "log_start_offset": random.choice((0, self.offset())),
            "known_high_watermark": random.choice((self.partition.high_watermark, self.edge())),
            "max_bytes": random.choice((1000, self.edge("int32"))),
            "at_least_one": random.random() < 0.5,
            "takes_position": random.random() < 0.9,
        }
        self.trail.note("fetch", asked)
        contact = Contact(self.now_ms)
        _, effects = self.partition.fetch_as_replica(**asked, now_ms=self.now_ms, contact=contact)
        self._perform(effects)
        if random.random() < 0.1:
            self.partition.on_forgotten(replica, contact)

    def _read(self) -> None:
        random, partition = self.random, self.partition
        asked = {
            "current_leader_epoch": self.epoch(),
            "fetch_offset": self.offset(),
            "last_fetched_epoch": random.choice((-1, self.epoch())),
            "isolation": random.choice((0, 1, self.edge("int8"))),
            "leader_only": random.random() < 0.5,
            "max_bytes": random.choice((1000, self.edge("int32"))),
            "at_least_one": random.random() < 0.5,
        }
        self.trail.note("read", asked)
        answer = partition.fetch_as_consumer(**asked)
        partition.readable_followers(
            current_leader_epoch=asked["current_leader_epoch"], fetch_offset=asked["fetch_offset"]
        )
        if answer.error is Error.NONE and answer.diverging is None:
            partition.bytes_kept_back(asked["fetch_offset"], answer.high_watermark)

    def _ask(self) -> None:
        random, partition = self.random, self.partition
        match random.choice(("offset", "epoch", "delete", "verify", "producers")):
            case "offset":
                timestamp = random.choice((self.wall_ms, -1, -2, -3, -4, -5, -6, self.edge()))
                self.trail.note("list", timestamp)
                partition.list_offset(
                    current_leader_epoch=self.epoch(),
                    timestamp=timestamp,
                    isolation=random.choice((0, 1, self.edge("int8"))),
                    is_replica=random.random() < 0.2,
                    leader_only=random.random() < 0.5,
                )
            case "epoch":
                partition.end_of_epoch(current_leader_epoch=self.epoch(), leader_epoch=self.epoch())
            case "delete":
                offset = self.offset()
                self.trail.note("delete", offset, partition.delete_records(offset))
                if partition.leadership is not None:
                    partition.low_watermark()
            case "verify":
                partition.needs_verification(
                    random.choice((*PRODUCERS, self.edge())), self.edge("int16"), adds=random.random() < 0.5
                )
            case _:
                partition.log.producers.to_snapshot()

    # --- following ---------------------------------------------------------------------------

    def _follow(self) -> None:
        """Let a leader answer, whatever it says; damaged batches are refused."""
        partition, random = self.partition, self.random
        if partition.leadership is not None or partition.is_offline:
            return
        log = partition.log
        try:
            match random.choice(("records", "records", "records", "diverging", "range")):
                case "records":
                    batch = build(
                        [NewRecord(b"k", random.randbytes(20))],
                        timestamp_ms=random.choice((self.wall_ms, self.edge())),
                        base_offset=min(random.choice((log.log_end_offset,) * 4 + (self.offset(),)), 10**6),
                        leader_epoch=random.choice((partition.leader_epoch,) * 4 + (self.edge("int32"),)),
                        producer=(random.choice(PRODUCERS), self.edge("int16"), self.edge("int32")),
                        attributes=random.choice((0, TRANSACTIONAL)),
                    )
                    said = (random.choice((b"", batch, batch)), self.offset(), random.choice((0, self.offset())))
                    self.trail.note("fetched", said)
                    effects = partition.on_fetched(
                        said[0],
                        high_watermark=said[1],
                        log_start_offset=min(said[2], log.log_end_offset),
                        wall_ms=self.wall_ms,
                    )
                case "diverging":
                    divergence = (self.epoch(), max(0, self.offset()), max(0, min(self.offset(), 10**6)))
                    self.trail.note("diverging", divergence)
                    effects = partition.on_divergence(*divergence[:2], leader_log_start_offset=divergence[2])
                case _:
                    start = max(0, min(self.offset(), 10**6))
                    self.trail.note("range", start)
                    effects = partition.on_leader_range(
                        log_start_offset=start, log_end_offset=start + random.choice((0, 3))
                    )
            self._perform(effects)
        except CorruptBatch:
            pass  # as documented: the leader is asked again

    # --- the controller and time -------------------------------------------------------------

    def _metadata(self) -> None:
        """Let the controller say something: newer, the same, or out of date."""
        random, before = self.random, self.state
        age = random.choice((1, 1, 1, 1, 0, -1))
        if age != 1:
            self._apply_metadata(before if age == 0 else self._with_age(before))
            return
        leader = random.choice((MINE, MINE, NODES[1], NodeId(-1), before.leader))
        isr = (*dict.fromkeys((leader, *random.sample(NODES, random.randint(0, 3)))),) if leader > 0 else ()
        is_new = leader != before.leader or random.random() < 0.3
        self.state = PartitionState(
            leader=leader,
            leader_epoch=LeaderEpoch(before.leader_epoch + is_new),
            partition_epoch=PartitionEpoch(before.partition_epoch + 1),
            replicas=(*dict.fromkeys((MINE, *isr, *random.sample(NODES, 2))),),
            isr=isr,
            recovery=random.choice((LeaderRecoveryState.RECOVERED, LeaderRecoveryState.RECOVERED, before.recovery))
            if not is_new
            else random.choice((*LeaderRecoveryState,)),
        )
        for node in NODES:
            self.brokers[node] = BrokerView(
                epoch=BrokerEpoch(node), fenced=random.random() < 0.2, shutting_down=random.random() < 0.1
            )
        self._apply_metadata()

    def _with_age(self, state: PartitionState) -> PartitionState:
        return PartitionState(
            leader=MINE,
            leader_epoch=LeaderEpoch(max(0, state.leader_epoch - 1)),
            partition_epoch=PartitionEpoch(state.partition_epoch - 1),
            replicas=NODES,
            isr=NODES,
            recovery=LeaderRecoveryState.RECOVERED,
        )

    def _apply_metadata(self, state: PartitionState | None = None) -> None:
        said = state or self.state
        self.trail.note(said)
        self._perform(
            self.partition.on_metadata(said, identity=an_identity(1), now_ms=self.now_ms, wall_ms=self.wall_ms)
        )

    def _answer(self) -> None:
        """Let the controller answer a proposal, perhaps not for the first time."""
        random, leadership = self.random, self.partition.leadership
        if leadership is None or not self.proposed:
            return
        proposal = random.choice(self.proposed).proposal
        newest = self.state.partition_epoch + random.choice((0, 1, 1))
        error = random.choice((Error.NONE, Error.NONE, Error.INELIGIBLE_REPLICA, *Error))
        answer = AlterPartitionAnswer(
            error=error,
            top_level=random.random() < 0.1,
            leader=MINE,
            leader_epoch=LeaderEpoch(random.choice((leadership.state.leader_epoch, self.edge("int32")))),
            partition_epoch=PartitionEpoch(random.choice((newest, self.edge("int32")))),
            isr=tuple(NodeId(node) for node, _ in proposal.isr),
            recovery=proposal.recovery,
        )
        self.trail.note(answer)
        self._perform(list(leadership.on_alter_partition_answer(proposal, answer, self.now_ms)))

    def _tick(self) -> None:
        partition, random = self.partition, self.random
        self.now_ms += random.choice(STEPS_MS)
        self.wall_ms += random.choice((*STEPS_MS, -1000, 10**9))
        self.trail.note("tick", self.now_ms, self.wall_ms)
        if partition.leadership is not None:
            self._perform(list(partition.leadership.on_tick(self.now_ms)))
            self._perform(list(partition.leadership.on_brokers(self.now_ms)))
        self._perform(partition.on_min_insync_replicas(random.choice((1, 2, 3, 2**31 - 1)), self.now_ms))
        partition.expire_producers(now_ms=self.now_ms, wall_ms=self.wall_ms)
        partition.log.delete_old_segments(self.wall_ms, partition.high_watermark)
        partition.log.count_as_cold()
        flush = partition.log.begin_flush()
        for file in flush.files:
            file.sync()
        partition.log.complete_flush(flush)
        self._perform(partition.on_flushed(self.now_ms))

    def _open_again(self) -> None:
        """Let the broker be killed, and come back."""
        self.trail.note("killed")
        self.partition.resign()
        self.proposed.clear()
        self.guards.clear()
        self.partition = self._opened(recover=True)
        self._apply_metadata()
