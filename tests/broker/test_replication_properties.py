"""Replicas exchange bytes through their cores, are killed and re-elected; nothing committed may be lost (I4, I6, I14).

The controller is a few lines here: it accepts every proposal at once and elects any living member of the ISR.
"""

from random import Random
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from replog.broker.isr import AlterPartitionAnswer, BrokerView, PartitionState, Propose
from replog.broker.partition import Partition
from replog.errors import Error
from replog.log.batch import NewRecord, batches, build, records
from replog.log.log import Appended, Log
from replog.log.settings import LogSettings
from replog.types import LeaderRecoveryState, TopicPartition
from tests.identities import an_identity
from tribunal.clusters.simulated.disk import SimulatedDisk

NODES = (1, 2, 3)
WALL_MS = 1_700_000_000_000
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("produce"), st.integers(1, 3)),
        *[st.tuples(st.just("fetch"), st.sampled_from(NODES))] * 3,
        st.tuples(st.just("kill"), st.sampled_from(NODES)),
        st.tuples(st.just("revive"), st.sampled_from(NODES)),
        st.tuples(st.just("elect"), st.sampled_from(NODES)),
        st.tuples(st.just("lag"), st.just(0)),
    ),
    min_size=20,
    max_size=80,
)


class Replicas:
    """Three replicas of one partition, the committed state, and what was ever committed."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.disks = {node: SimulatedDisk(Random(node)) for node in NODES}
        self.brokers = {node: BrokerView(epoch=100 + node, fenced=False, shutting_down=False) for node in NODES}
        self.alive: dict[int, Partition] = {}
        self.value = 0
        self.committed: dict[int, bytes] = {}
        self.state = PartitionState(
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            replicas=NODES,
            isr=NODES,
            recovery=LeaderRecoveryState.RECOVERED,
        )
        for node in NODES:
            self.revive(node)

    def revive(self, node: int) -> None:
        if node in self.alive:
            return
        log = Log.open(
            self.disks[node],
            "data/t-0",
            LogSettings(),
            recover=True,
            recovery_point=0,
            log_start_offset=0,
            now_ms=WALL_MS,
        )
        # A kill leaves no checkpoint: the high watermark is learnt again from zero.
        self.alive[node] = Partition(
            name=TopicPartition("t", 0),
            topic_id=UUID(int=7),
            node_id=node,
            log=log,
            high_watermark=0,
            brokers=self.brokers,
            lag_ms_max=30_000,
            refuses_while_recovering=True,
        )
        self.alive[node].min_insync_replicas = 2
        self.apply_metadata(node)

    def kill(self, node: int) -> None:
        if len(self.alive) < 2 or node not in self.alive:
            return
        del self.alive[node]
        if self.state.leader == node:
            self.commit(leader=-1, leader_epoch=self.state.leader_epoch + 1)

    def elect(self, node: int) -> None:
        """Move leadership to a living member of the ISR."""
        if node in self.alive and node in self.state.isr and node != self.state.leader:
            self.commit(leader=node, leader_epoch=self.state.leader_epoch + 1)

    def commit(self, **changes: Any) -> None:
        fields = {name: getattr(self.state, name) for name in self.state.__struct_fields__}
        self.state = PartitionState(**(fields | changes | {"partition_epoch": self.state.partition_epoch + 1}))
        for node in list(self.alive):
            self.apply_metadata(node)

    def apply_metadata(self, node: int) -> None:
        self.act(
            node,
            self.alive[node].on_metadata(
                self.state, identity=an_identity(100 + node, node_id=node), now_ms=self.now_ms, wall_ms=WALL_MS
            ),
        )

    def act(self, node: int, effects: Any) -> None:
        for effect in effects:
            if isinstance(effect, Propose):
                self.accept(node, effect)
        self.note()

    def accept(self, node: int, effect: Propose) -> None:
        proposal, leadership = effect.proposal, self.alive[node].leadership
        if leadership is None or node != self.state.leader or proposal.partition_epoch != self.state.partition_epoch:
            return
        self.commit(isr=tuple(member for member, _ in proposal.isr))
        answer = AlterPartitionAnswer(
            error=Error.NONE,
            leader=node,
            leader_epoch=self.state.leader_epoch,
            partition_epoch=self.state.partition_epoch,
            isr=self.state.isr,
        )
        leadership.on_alter_partition_answer(proposal, answer, self.now_ms)

    def note(self) -> None:
        """Remember what a leader has shown as committed; whatever was, must still be there."""
        leader = self.alive.get(self.state.leader)
        if leader is None or leader.leadership is None:
            return
        content = self.content(leader, leader.log.log_end_offset)
        for offset, value in self.committed.items():
            assert content.get(offset) == value, f"offset {offset} was committed as {value!r}"
        self.committed.update({offset: content[offset] for offset in range(leader.high_watermark)})

    def content(self, replica: Partition, end: int) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        while len(found) < end:
            chunk = replica.log.read(len(found), max_bytes=1 << 20, end_offset=end, at_least_one=True)
            for header in batches(chunk):
                found |= {record.offset: record.value or b"" for record in records(chunk, header)}
        return found

    def produce(self, count: int) -> None:
        leader = self.alive.get(self.state.leader)
        if leader is None:
            return
        entries = [NewRecord(None, b"%d" % (self.value + i)) for i in range(count)]
        self.value += count
        appended, effects = leader.append(
            build(entries, timestamp_ms=WALL_MS), acks=1, now_ms=self.now_ms, wall_ms=WALL_MS
        )
        assert isinstance(appended, Appended)
        self.act(self.state.leader, effects)

    def fetch(self, node: int) -> None:
        """One round trip of a follower, if there is somebody to follow."""
        self.now_ms += 10
        leader, follower = self.alive.get(self.state.leader), self.alive.get(node)
        if leader is None or follower is None or leader is follower or follower.leadership is not None:
            return
        answer, effects = leader.fetch_as_replica(
            replica=node,
            broker_epoch=100 + node,
            current_leader_epoch=follower.leader_epoch,
            fetch_offset=follower.log.log_end_offset,
            last_fetched_epoch=follower.log.last_epoch,
            log_start_offset=0,
            known_high_watermark=follower.high_watermark,
            max_bytes=200,
            at_least_one=True,
            takes_position=True,
            now_ms=self.now_ms,
        )
        self.act(self.state.leader, effects)
        if follower.leader_epoch != self.state.leader_epoch:
            return
        if answer.error is Error.OFFSET_OUT_OF_RANGE:
            follower.on_leader_range(log_start_offset=0, log_end_offset=leader.log.log_end_offset)
        elif answer.diverging is not None:
            follower.on_divergence(*answer.diverging, leader_log_start_offset=0)
        elif answer.error is Error.NONE:
            follower.on_fetched(
                answer.records, high_watermark=answer.high_watermark, log_start_offset=0, wall_ms=WALL_MS
            )

    def lag(self, _: int) -> None:
        """Let time pass until the leader drops whoever does not fetch."""
        self.now_ms += 31_000
        leader = self.alive.get(self.state.leader)
        if leader is not None and leader.leadership is not None:
            self.act(self.state.leader, leader.leadership.on_tick(self.now_ms))


@settings(max_examples=100, deadline=None)
@given(EVENTS)
def test_what_was_committed_survives_any_kills_and_clean_elections(events: list[tuple[str, int]]) -> None:
    replicas = Replicas()
    for name, argument in events:
        getattr(replicas, name)(argument)

    converge(replicas)

    leader = replicas.alive[replicas.state.leader]
    end = leader.log.log_end_offset
    contents = [replicas.content(replica, end) for replica in replicas.alive.values()]
    assert all(replica.log.log_end_offset == end for replica in replicas.alive.values())
    assert all(content == contents[0] for content in contents)
    assert leader.high_watermark == end
    assert sorted(replicas.state.isr) == list(NODES)


def converge(replicas: Replicas) -> None:
    """Heal everything and let all followers catch up."""
    for node in NODES:
        replicas.revive(node)
    if replicas.state.leader == -1:
        replicas.elect(replicas.state.isr[0])
    replicas.produce(1)
    for _ in range(replicas.value + 20):
        for node in NODES:
            replicas.fetch(node)
