"""I24: whom a leader proposes for the ISR has its log up to the beginning of the leader epoch (KAFKA-7128)."""

import asyncio
from contextlib import nullcontext
from uuid import UUID

import pytest

from tests.scenarios.three_brokers import NAME, isr_is, produce, run
from tests.simulated.test_watch import P, log, mark, violates
from tribunal.clusters.api import BrokerState, PartitionState
from tribunal.clusters.simulated.committed import CommittedMetadata
from tribunal.clusters.simulated.proposals import Proposal
from tribunal.clusters.simulated.watch import Watch
from tribunal.clusters.simulated.world import Simulation

TOPIC_ID = UUID(int=7)
BEFORE, OWN = mark(0, 9, 1), mark(10, 14, 2)
REACHES, SHORT = log(BEFORE), log(mark(0, 8, 1))


def proposal(**changes):
    values = {
        "leader": 1,
        "topic_id": TOPIC_ID,
        "partition": 0,
        "leader_epoch": 2,
        "partition_epoch": 5,
        "members": ((1, 11), (2, 12)),
    }
    return Proposal(**values | changes)


@pytest.fixture
def watch():
    simulation = Simulation(1)
    machines = {node: simulation.add_machine(f"broker-{node}", f"10.0.0.{node}", node) for node in (1, 2)}
    committed = CommittedMetadata({}, now_ns=lambda: 0, wall_start_ms=0)
    committed.topic_ids = {"t": TOPIC_ID}
    committed.state.partitions[P] = PartitionState(
        leader=1, leader_epoch=2, partition_epoch=5, replicas=(1, 2), isr=(1,)
    )
    for node in (1, 2):
        committed.state.brokers[node] = BrokerState(broker_epoch=10 + node, incarnation="a", fenced=False)
    return Watch(simulation, machines, "/data", committed, dict, elr_enabled=True, producer_expiration_ms=86_400_000)


@pytest.mark.parametrize(("leaders", "followers", "proposed", "breaks"), [
    pytest.param(log(BEFORE, OWN), SHORT, proposal(), True, id="its log ends before the leader epoch"),
    pytest.param(log(BEFORE, OWN), REACHES, proposal(), False, id="its log ends where that begins"),
    pytest.param(log(BEFORE), SHORT, proposal(), True, id="nothing is written in it yet, and its log is shorter than the leader's"),
    pytest.param(log(BEFORE), REACHES, proposal(), False, id="nothing is written in it yet"),
    pytest.param(log(BEFORE, OWN), SHORT, proposal(members=((1, 11),)), False, id="it is not proposed"),
    pytest.param(log(BEFORE, OWN), SHORT, proposal(members=((1, 11), (2, 9))), False, id="a former process of it is"),
    pytest.param(log(BEFORE, OWN), SHORT, proposal(partition_epoch=4), False, id="the leader does not know the last change"),
    pytest.param(log(BEFORE, OWN), SHORT, proposal(leader_epoch=1), False, id="another leads since"),
    pytest.param(log(BEFORE, OWN), SHORT, proposal(topic_id=UUID(int=8)), False, id="of a topic that is gone"),
])  # fmt: skip
def test_who_joins_has_the_log_before_the_leader_epoch(watch, leaders, followers, proposed, breaks):
    watch.replicas[1].logs[P], watch.replicas[2].logs[P] = leaders, followers
    watch.proposed([proposed])

    with violates("I24") if breaks else nullcontext():
        watch._proposed_by_right()


@pytest.mark.parametrize("why", ["it is a member", "its machine lost its power", "the leader's log is compacted"])
def test_of_whom_nothing_is_said(watch, why):
    leaders = log(BEFORE, OWN)
    watch.replicas[1].logs[P], watch.replicas[2].logs[P] = leaders, SHORT
    match why:
        case "it is a member":
            known = watch.committed.state.partitions
            known[P] = PartitionState(leader=1, leader_epoch=2, partition_epoch=5, replicas=(1, 2), isr=(1, 2))
        case "its machine lost its power":
            watch._prefix(P)
            watch.lost_data(2)
        case _:
            leaders.is_compacted = True
    watch.proposed([proposal()])

    watch._proposed_by_right()


def test_a_follower_that_comes_back_is_proposed_and_nobody_is_accused(monkeypatch):
    found, seen = [], []

    async def scenario(cluster):
        cluster.watch.on_violation = found.append
        proposed = cluster.watch.proposed
        monkeypatch.setattr(cluster.watch, "proposed", lambda these: (seen.extend(these), proposed(these)))
        leader = cluster.state.partitions[NAME].leader
        follower = next(node for node in cluster.state.partitions[NAME].isr if node != leader)
        await cluster.kill(follower)
        await isr_is(cluster, [node for node in cluster.spec.broker_ids if node != follower])
        await produce(cluster, 1, 30)
        await cluster.start(follower)
        await isr_is(cluster, list(cluster.spec.broker_ids))
        await asyncio.sleep(1)

    run(1, scenario)

    assert any(len(one.members) == 3 for one in seen)
    assert not found
