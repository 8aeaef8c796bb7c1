"""Readers that are sent to the replica of their rack (KIP-392): they read there, and from the leader where that one fails them."""

import asyncio
from contextlib import nullcontext
from random import Random

import pytest

from tests.simulated.cluster_program import NOWHERE, Trial
from tribunal.clusters.api import CLIENTS, CutMode, Link, TopicPartition
from tribunal.clusters.clock import RunClock
from tribunal.clusters.kinds.simulated import launch
from tribunal.clusters.simulated.running import run_simulated
from tribunal.clusters.spec import RACK_AWARE, SELECTOR, ClusterSpec
from tribunal.harness.liveness import Liveness
from tribunal.results.signature import Signature, of_violation

RACKS = ClusterSpec(settings={SELECTOR: RACK_AWARE})


def read_from_followers(spec, happens):
    """Return what readers were shown by others than the leader, by broker, and the trial."""
    leaders = {}

    async def scenario(cluster):
        leaders.update({one: state.leader for one, state in cluster.state.partitions.items()})
        await happens(cluster)

    trial = Trial("rack reads", spec).run(scenario)
    shown = [
        poll
        for poll in trial.rows.of("polls")
        if poll["leader_epoch"] == 0
        for one, leader in leaders.items()
        if (one.topic, one.partition) == (poll["topic"], poll["partition"])
        and poll["answered_by"] not in (None, leader)
    ]
    return shown, trial


async def nothing(cluster):
    await asyncio.sleep(2)


async def one_follower_dies(cluster):
    await asyncio.sleep(1)
    await cluster.kill(3)
    await asyncio.sleep(3)
    await cluster.start(3)


@pytest.mark.parametrize("happens", [nothing, one_follower_dies])
def test_readers_read_from_the_replica_of_their_rack_and_miss_nothing(happens):
    shown, trial = read_from_followers(RACKS, happens)

    assert sum(poll["record_count"] for poll in shown) > 50
    assert trial.unread == []
    assert trial.lost() == []


def test_without_racks_they_read_from_leaders_alone():
    shown, trial = read_from_followers(ClusterSpec(), nothing)

    assert shown == []
    assert trial.unread == []


@pytest.mark.parametrize(("cut", "expected"), [([], None), ([Link(CLIENTS, 2), Link(2, CLIENTS)], 2)])
def test_a_member_of_an_isr_that_serves_no_reader_is_accused(cut, expected):
    partition = TopicPartition("t", 0)

    async def main():
        cluster = await launch(RACKS, NOWHERE, RunClock(), "unserved")
        admin = cluster.clients.admin("maker")
        await admin.create_topic("t", 1, 3, 10_000)
        await cluster.cut(cut, CutMode.HOLD)
        await Liveness(cluster, Random(0), nullcontext).readers_are_served([partition])
        await admin.close()
        await cluster.close()
        return cluster.watch.violation, cluster.state.partitions[partition].isr

    (violated, isr), _ = run_simulated("unserved", main)

    assert sorted(isr) == [1, 2, 3]
    assert (violated and violated.violation.node) == expected
    if violated:
        assert of_violation(violated.violation) == Signature("invariant", "no_served_readers", "liveness")
