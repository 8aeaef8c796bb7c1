"""Targets: whom an expression means, at the moment it is asked."""

import asyncio
from random import Random
from types import SimpleNamespace

import pytest

from tribunal.clusters.api import ClusterError, ClusterSpec, ClusterState, Link, PartitionState, Proof, TopicPartition
from tribunal.nemesis.faults import single_link
from tribunal.nemesis.targets import BadTarget, NoTarget, draw, parse, resolve


def a_cluster(leader=2, isr=(1, 2, 3), elr=(), quorum_leader=102, down=(), sent=None):
    partition = PartitionState(leader=leader, leader_epoch=1, partition_epoch=1, replicas=(1, 2, 3), isr=isr, elr=elr)
    state = ClusterState(quorum_leader=quorum_leader, partitions={TopicPartition("t", 0): partition})
    return SimpleNamespace(
        spec=ClusterSpec(),
        state=state,
        alive=lambda node: node not in down,
        last_message=lambda *kind: (sent or {}).get(kind, ()),
    )


def meant(text, cluster, pick=0.0):
    return resolve(draw(parse(text, ClusterSpec(), 6), 6, 0.0, pick), cluster, "t")


@pytest.mark.parametrize(
    ("text", "pick", "node"),
    [
        pytest.param("leader(p0)", 0.9, 2, id="leader"),
        pytest.param("follower(p0)", 0.0, 1, id="first follower"),
        pytest.param("follower(p*)", 0.9, 3, id="last follower of the drawn partition"),
        pytest.param("isr_member(p0)", 0.5, 2, id="ISR member"),
        pytest.param("random broker", 0.99, 3, id="broker"),
        pytest.param("random  controller", 0.0, 101, id="controller"),
        pytest.param("active controller", 0.0, 102, id="active controller"),
        pytest.param("standby controller", 0.0, 101, id="first standby controller"),
        pytest.param("standby controller", 0.9, 103, id="last standby controller"),
        pytest.param("broker 1", 0.7, 1, id="by id"),
    ],
)
def test_a_target_is_found(text, pick, node):
    assert meant(text, a_cluster(), pick) == node


def test_a_leader_that_is_missing_is_no_target():
    with pytest.raises(ClusterError, match="fits no node"):
        meant("leader(p0)", a_cluster(leader=-1))


@pytest.mark.parametrize(
    ("text", "cluster", "node"),
    [
        pytest.param("last_isr_member(p0)", {"isr": (2,), "elr": (3,)}, 2, id="the last ISR member"),
        pytest.param("last_isr_member(p0)", {"isr": (2, 3)}, None, id="one of two is not the last"),
        pytest.param("elr_member(p0)", {"isr": (2,), "elr": (3,)}, 3, id="ELR member"),
        pytest.param("elr_member(p0)", {}, None, id="the ELR is empty"),
        pytest.param("outsider(p0)", {"isr": (2,), "elr": (3,)}, 1, id="in neither"),
        pytest.param("leader(p0)", {"down": (2,)}, None, id="the leader's process is gone"),
        pytest.param("random broker", {"down": (1, 2)}, 3, id="a broker that runs"),
        pytest.param(
            "standby controller", {"quorum_leader": 101, "down": (102,)}, 103, id="one that runs and does not lead"
        ),
        pytest.param("standby controller", {"quorum_leader": 101, "down": (102, 103)}, None, id="who leads is alone"),
        pytest.param("sender(vote answer)", {"sent": {(52, "response"): (103, 101)}}, 103, id="who answered"),
        pytest.param("receiver(vote answer)", {"sent": {(52, "response"): (103, 101)}}, 101, id="who was answered"),
        pytest.param("sender(vote request)", {"sent": {(52, "response"): (103, 101)}}, None, id="nobody asked"),
        pytest.param("sender(end-txn request)", {"sent": {(26, "request"): (-1, 2)}}, None, id="a client is no node"),
        pytest.param("receiver(end-txn request)", {"sent": {(26, "request"): (-1, 2)}}, 2, id="whom a client asked"),
        pytest.param(
            "sender(vote answer)", {"sent": {(52, "response"): (103, 101)}, "down": (103,)}, None, id="it is gone"
        ),
    ],
)
def test_a_target_by_state(text, cluster, node):
    if node is None:
        with pytest.raises(NoTarget, match="fits no node that runs"):
            meant(text, a_cluster(**cluster))
    else:
        assert meant(text, a_cluster(**cluster)) == node


def test_messages_that_flow_all_the_time_have_no_last_one_worth_aiming_at():
    with pytest.raises(
        BadTarget, match=r"'sender\(fetch request\)': fetch is no API of which messages are counted; these are: .*vote"
    ):
        parse("sender(fetch request)", ClusterSpec(), 6)


def test_the_plan_draws_the_partition():
    drawn = {draw("leader(p*)", 6, Random(seed).random(), 0.0).partition for seed in range(40)}

    assert drawn == set(range(6))


@pytest.mark.parametrize(
    ("node", "leader", "other"),
    [
        pytest.param(101, 102, 103, id="the other standby controller"),
        pytest.param(103, 102, 101, id="and the other way round"),
        pytest.param(102, 102, 101, id="the active controller and a standby one"),
        pytest.param(101, -1, 102, id="nobody leads: the next one"),
    ],
)
def test_a_link_to_a_standby_controller(node, leader, other):
    cluster = a_cluster(quorum_leader=leader)
    cut = []
    cluster.cut = lambda links, mode: cut.append(links) or asyncio.sleep(0, Proof(holds=True, facts={}))

    async def injected():
        effect = single_link.inject(cluster, node, single_link.Options(to="standby", direction="out"))
        await anext(effect.gen)

    asyncio.run(injected())
    assert cut == [[Link(node, other)]]


def test_a_link_to_a_standby_controller_that_there_is_not():
    cluster = a_cluster(quorum_leader=101)
    cluster.spec = ClusterSpec(controllers=1)
    with pytest.raises(ClusterError, match="there is no standby controller besides 101"):
        single_link.inject(cluster, 101, single_link.Options(to="standby"))
