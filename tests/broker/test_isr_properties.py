"""The leader's promises under any order of events (SPEC 3.5, 3.6, I13)."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from replog.broker.isr import AlterPartitionAnswer, BrokerView, LeaderState, PartitionState, Propose
from replog.errors import Error
from replog.types import LeaderRecoveryState
from tests.identities import an_identity

REPLICAS = (1, 2, 3, 4)
FOLLOWERS = st.sampled_from(REPLICAS[1:])
EVENTS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 5)),
    st.tuples(st.just("fetch"), FOLLOWERS, st.integers(0, 60), st.sampled_from([-1, 0, 1])),
    st.tuples(st.just("tick"), st.sampled_from([1, 20_000, 31_000])),
    st.tuples(
        st.just("answer"),
        st.sampled_from([Error.NONE, Error.INELIGIBLE_REPLICA, Error.INVALID_UPDATE_VERSION, Error.NOT_CONTROLLER]),
    ),
    st.tuples(st.just("metadata"), st.sets(FOLLOWERS), st.integers(-1, 2)),
    st.tuples(st.just("fence"), FOLLOWERS, st.booleans()),
    st.tuples(st.just("min_isr"), st.integers(1, 4)),
)


class World:
    """A leader, the events it saw, and what is known from outside."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.brokers = {node: BrokerView(epoch=100 + node, fenced=False, shutting_down=False) for node in REPLICAS}
        self.positions = dict.fromkeys(REPLICAS[1:], -1)
        self.leader = LeaderState(
            state=PartitionState(
                leader=1,
                leader_epoch=5,
                partition_epoch=9,
                replicas=REPLICAS,
                isr=(1, 2, 3),
                recovery=LeaderRecoveryState.RECOVERED,
            ),
            identity=an_identity(101),
            brokers=self.brokers,
            min_insync_replicas=2,
            log_end_offset=10,
            high_watermark=4,
            epoch_start_offset=10,
            lag_ms_max=30_000,
            now_ms=self.now_ms,
        )

    def happen(self, event: tuple[Any, ...]) -> Any:
        leader = self.leader
        match event:
            case ("append", count):
                return leader.on_append(leader.log_end_offset + count, self.now_ms)
            case ("fetch", node, offset, age):
                offset = min(offset, leader.log_end_offset)
                effects = leader.on_fetch(
                    replica=node,
                    fetch_offset=offset,
                    log_start_offset=0,
                    broker_epoch=100 + node + age,
                    now_ms=self.now_ms,
                )
                if age >= 0:
                    self.positions[node] = offset
                return effects
            case ("tick", passed_ms):
                self.now_ms += passed_ms
                return leader.on_tick(self.now_ms)
            case ("answer", error):
                return self.answer(error)
            case ("metadata", followers, newer):
                state = PartitionState(
                    leader=1,
                    leader_epoch=5,
                    partition_epoch=leader.state.partition_epoch + newer,
                    replicas=REPLICAS,
                    isr=(1, *sorted(followers)) if newer > 0 else leader.isr,
                    recovery=LeaderRecoveryState.RECOVERED,
                )
                return leader.on_metadata(state, self.now_ms)
            case ("fence", node, fenced):
                self.brokers[node] = BrokerView(epoch=100 + node, fenced=fenced, shutting_down=False)
                return leader.on_brokers(self.now_ms)
            case ("min_isr", minimum):
                return leader.on_min_insync_replicas(minimum, self.now_ms)
        raise AssertionError(event)

    def answer(self, error: Error) -> Any:
        pending = self.leader.pending
        if pending is None:
            return []
        answer = AlterPartitionAnswer(
            error=error,
            leader=1,
            leader_epoch=5,
            partition_epoch=pending.partition_epoch + 1,
            isr=tuple(node for node, _ in pending.isr),
        )
        return self.leader.on_alter_partition_answer(pending, answer, self.now_ms)


@settings(max_examples=100, deadline=None)
@given(st.lists(EVENTS, max_size=40))
def test_the_watermark_never_falls_nor_passes_the_maximal_isr(events: list[tuple[Any, ...]]) -> None:
    world = World()
    for event in events:
        before = world.leader.high_watermark

        effects = world.happen(event)

        leader = world.leader
        assert leader.high_watermark >= before
        if leader.high_watermark > before:
            held = [world.positions[node] for node in leader.maximal_isr if node != 1]
            assert leader.high_watermark <= min([*held, leader.log_end_offset])
            assert len(leader.isr) >= leader.min_isr
        assert set(leader.isr) <= set(leader.maximal_isr)
        fresh = [effect for effect in effects if isinstance(effect, Propose) and effect.proposal is leader.pending]
        assert len(fresh) <= 1


@settings(max_examples=100, deadline=None)
@given(st.lists(EVENTS, max_size=40))
def test_a_proposal_names_no_replica_by_an_epoch_that_metadata_has_left_behind(
    events: list[tuple[Any, ...]],
) -> None:
    world = World()
    for event in events:
        before = world.leader.pending
        world.happen(event)
        pending = world.leader.pending
        if pending is not None and pending is not before:
            added = [member for member in pending.isr if member[0] not in world.leader.isr]
            assert all(epoch == world.brokers[node].epoch for node, epoch in added)
            assert all(not world.brokers[node].fenced for node, _ in added)
