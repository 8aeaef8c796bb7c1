"""Any sequence of events keeps the invariants of SPEC 2.5.9 and I2, I7, I10, I11, I12; undo and replay agree."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replog.controller.elr import effective_min_isr
from replog.metadata.image import Image
from replog.metadata.state import Partition
from replog.types import NO_NODE, LeaderRecoveryState, NodeId
from replog.wire.messages import alter_partition as ap
from replog.wire.messages import alter_partition_reassignments as apr
from replog.wire.messages import broker_heartbeat as hb
from replog.wire.messages import elect_leaders as el
from replog.wire.messages import unregister_broker as ub
from tests.cases.controllers import Box, incarnation, registration
from tests.cases.partitions import TOPIC, TOPIC_ID, partition
from tests.cases.test_controller_walk import set_topic_config

BROKERS = (1, 2, 3, 4)

brokers = st.sampled_from(BROKERS)
steps = st.one_of(
    st.tuples(st.just("silence"), brokers),
    st.tuples(st.just("beat"), brokers, st.booleans(), st.booleans()),
    st.tuples(st.just("register"), brokers, st.booleans()),
    st.tuples(st.just("propose"), st.lists(brokers, unique=True), st.booleans(), st.sampled_from([0, 0, 0, -1, 1])),
    st.tuples(st.just("elect"), st.sampled_from([0, 1])),
    st.tuples(st.just("reassign"), st.one_of(st.none(), st.lists(brokers, unique=True, min_size=1))),
    st.tuples(st.just("min_isr"), st.sampled_from([1, 2, 3])),
    st.tuples(st.just("unclean"), st.booleans()),
    st.tuples(st.just("unregister"), brokers),
    st.tuples(st.just("fail_over")),
)


class Walk:
    """A controller with one partition, driven by requests alone; `incarnations` counts those of its brokers."""

    def __init__(self, *, min_isr: int, elr: bool, manager: bool) -> None:
        self.box = Box(min_insync_replicas=min_isr, unclean_recovery_manager=manager).features(elr=elr)
        for broker_id in BROKERS:
            self.box.broker(broker_id)
        self.box.topic(partition({"replicas": [1, 2, 3]}))
        self.box.stand_at(1000)  # beyond the epochs of the brokers
        self.box.activate()
        self.incarnations = 0

    @property
    def state(self) -> Partition:
        return self.box.partition()

    def do(self, step: tuple[Any, ...]) -> None:
        getattr(self, step[0])(*step[1:])

    def silence(self, broker_id: int) -> None:
        broker = self.box.image.brokers.get(broker_id)
        if broker and not broker.fenced:
            self.box.controller.sessions.touch(broker.broker_id, broker.epoch, 0).last_contact_ms = 0
        self.box.tick()

    def beat(self, broker_id: int, want_fence: bool, want_shut_down: bool) -> None:
        self.box.send(
            hb.BrokerHeartbeatRequest(
                broker_id=broker_id,
                broker_epoch=self.box.image.broker_epoch(broker_id),
                current_metadata_offset=self.box.offset,
                want_fence=want_fence,
                want_shut_down=want_shut_down,
            )
        )

    def register(self, broker_id: int, clean: bool) -> None:
        self.box.controller.sessions.drop(NodeId(broker_id))
        self.incarnations += 1
        previous = self.box.image.broker_epoch(broker_id) if clean else -1
        self.box.send(
            registration(broker_id, incarnation_id=incarnation(5000 + self.incarnations), previous_epoch=previous)
        )

    def propose(self, others: list[int], recovering: bool, stale_by: int) -> None:
        state = self.state
        if state.leader == NO_NODE:
            return
        isr = [state.leader, *(node for node in others if node != state.leader)]
        proposal = ap.AlterPartitionRequestPartitionData(
            partition_index=0,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch + stale_by,
            leader_recovery_state=int(recovering),
            new_isr_with_epochs=[
                ap.BrokerState(broker_id=node, broker_epoch=self.box.image.broker_epoch(node)) for node in isr
            ],
        )
        self.box.send(
            ap.AlterPartitionRequest(
                broker_id=state.leader,
                broker_epoch=self.box.image.broker_epoch(state.leader),
                topics=[ap.AlterPartitionRequestTopicData(topic_id=TOPIC_ID, partitions=[proposal])],
            )
        )

    def elect(self, election_type: int) -> None:
        topics = [el.TopicPartitions(topic=TOPIC, partitions=[0])]
        self.box.send(el.ElectLeadersRequest(election_type=election_type, topic_partitions=topics))

    def reassign(self, target: list[int] | None) -> None:
        wanted = apr.ReassignablePartition(partition_index=0, replicas=target)
        topics = [apr.ReassignableTopic(name=TOPIC, partitions=[wanted])]
        self.box.send(apr.AlterPartitionReassignmentsRequest(topics=topics))

    def min_isr(self, value: int) -> None:
        set_topic_config(self.box, "min.insync.replicas", str(value))

    def unclean(self, enabled: bool) -> None:
        set_topic_config(self.box, "unclean.leader.election.enable", str(enabled).lower())

    def unregister(self, broker_id: int) -> None:
        self.box.send(ub.UnregisterBrokerRequest(broker_id=broker_id))

    def fail_over(self) -> None:
        self.box.controller.deactivate()
        self.box.activate()


def assert_invariants(walk: Walk, before: Partition, epochs_before: dict[int, int]) -> None:
    after, image = walk.state, walk.box.image
    replicas, isr, elr = set(after.replicas), set(after.isr), set(after.elr)
    assert isr <= replicas
    assert elr <= replicas
    assert set(after.last_known_elr) <= replicas
    assert not isr & elr
    min_isr = effective_min_isr(walk.box.controller.policy.min_insync_replicas(TOPIC), len(after.replicas))
    if after != before and after.elr:
        assert len(isr) < min_isr
    assert after.leader == NO_NODE or after.leader in isr
    if after.leader_recovery_state is LeaderRecoveryState.RECOVERING:
        assert len(isr) <= 1
    assert after.leader_epoch >= before.leader_epoch
    assert after.partition_epoch >= before.partition_epoch
    if after.leader != before.leader:
        assert after.leader_epoch > before.leader_epoch
    if after != before:
        assert after.partition_epoch > before.partition_epoch
    for broker_id, epoch in epochs_before.items():
        assert image.broker_epoch(broker_id) >= epoch or broker_id not in image.brokers
    # Nobody enters the ISR who is not a registered, unfenced, running broker (I11, M12).
    for node in isr - set(before.isr):
        assert image.is_active(node)


@settings(max_examples=150)
@given(
    st.lists(steps, max_size=40),
    st.sampled_from([1, 2, 3]),
    st.booleans(),
    st.booleans(),
)
def test_any_history_keeps_the_invariants(
    history: list[tuple[Any, ...]], min_isr: int, elr: bool, manager: bool
) -> None:
    walk = Walk(min_isr=min_isr, elr=elr, manager=manager)

    for step in history:
        before = walk.state
        epochs = {node: broker.epoch for node, broker in walk.box.image.brokers.items()}
        walk.do(step)
        assert_invariants(walk, before, epochs)

    assert_indexes_agree_with_the_image(walk.box.image)
    assert fingerprint(replayed(walk.box.image)) == fingerprint(walk.box.image)


@settings(max_examples=60)
@given(st.lists(steps, max_size=12), st.lists(steps, max_size=12), st.booleans())
def test_what_was_never_committed_is_taken_back(
    committed: list[tuple[Any, ...]], lost: list[tuple[Any, ...]], manager: bool
) -> None:
    """SPEC 1.8.7: in-memory state goes back to the last committed offset."""
    walk = Walk(min_isr=2, elr=True, manager=manager)
    for step in committed:
        walk.do(step)
    expected = fingerprint(walk.box.image)
    controller = walk.box.controller
    controller.committed = lambda offset: None  # type: ignore[method-assign]

    for step in lost:
        if step[0] != "fail_over":
            walk.do(step)
    controller.deactivate()

    assert fingerprint(controller.image) == expected
    assert_indexes_agree_with_the_image(controller.image)


def replayed(image: Image) -> Image:
    again = Image()
    for record in image.snapshot():
        again.replay(record, image.last_offset)
    return again


def fingerprint(image: Image) -> Any:
    return (
        dict(image.partitions()),
        dict(sorted(image.brokers.items())),
        {key: values for key, values in image.configs.items() if values},
        image.features,
        image.next_producer_id,
        image.leaderless(),
        image.not_preferred(),
        image.reassigning(),
    )


def assert_indexes_agree_with_the_image(image: Image) -> None:
    states = dict(image.partitions())
    for node in BROKERS:
        assert image.isr_members.of(NodeId(node)) == [key for key, state in states.items() if node in state.isr]
        assert image.elr_members.of(NodeId(node)) == [key for key, state in states.items() if node in state.elr]
        assert image.leaders.of(NodeId(node)) == [key for key, state in states.items() if node == state.leader]
    assert image.leaderless() == [key for key, state in states.items() if state.leader == NO_NODE]
    assert image.partition_count == len(states)


@pytest.mark.parametrize("seed_step", [("register", 3, True), ("register", 3, False)])
def test_a_stale_proposal_never_lets_a_restarted_broker_in(seed_step: tuple[Any, ...]) -> None:
    """KIP-903: SPEC 8.3."""
    walk = Walk(min_isr=2, elr=True, manager=False)
    walk.silence(3)
    old_epoch = walk.box.image.broker_epoch(NodeId(3))
    walk.do(seed_step)
    walk.beat(3, False, False)
    state = walk.state

    answer = walk.box.send(
        ap.AlterPartitionRequest(
            broker_id=state.leader,
            broker_epoch=walk.box.image.broker_epoch(state.leader),
            topics=[
                ap.AlterPartitionRequestTopicData(
                    topic_id=TOPIC_ID,
                    partitions=[
                        ap.AlterPartitionRequestPartitionData(
                            leader_epoch=state.leader_epoch,
                            partition_epoch=state.partition_epoch,
                            new_isr_with_epochs=[
                                ap.BrokerState(broker_id=1, broker_epoch=101),
                                ap.BrokerState(broker_id=2, broker_epoch=102),
                                ap.BrokerState(broker_id=3, broker_epoch=old_epoch),
                            ],
                        )
                    ],
                )
            ],
        )
    )

    assert answer.topics[0].partitions[0].error_code.name == "INELIGIBLE_REPLICA"
    assert walk.state == state
