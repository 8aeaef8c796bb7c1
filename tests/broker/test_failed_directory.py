"""A broker whose only log directory fails ends; the others go on, and what was acknowledged is there."""

import asyncio

import pytest

from clusters.spec import ClusterSpec
from tests.simulated.cluster_program import Trial, leader, settled


def full(faults, disk):
    faults.capacity_bytes = disk.used_bytes


def unwritable(faults, disk):
    faults.write_error_share = 1.0


def unsyncable(faults, disk):
    faults.sync_error_share = 1.0


def healed(faults):
    faults.capacity_bytes = None
    faults.write_error_share = faults.sync_error_share = 0.0


@pytest.mark.parametrize("break_disk", [full, unwritable, unsyncable])
def test_a_broker_ends_with_its_disk_and_nothing_acknowledged_is_lost(break_disk):
    async def scenario(cluster):
        victim = leader(cluster)
        disk = cluster.machine(victim).disk
        cluster.nodes[victim].excuse = "its disk failed"
        break_disk(disk.faults, disk)
        await asyncio.sleep(6)
        assert not cluster.alive(victim)
        assert leader(cluster) not in (victim, -1)
        healed(disk.faults)
        cluster.nodes[victim].excuse = None
        await cluster.start(victim)
        await settled(cluster)

    settings = {"log.flush.interval.messages": 1}
    trial = Trial(5, ClusterSpec(brokers=3, controllers=3, min_insync_replicas=2, settings=settings)).run(scenario)

    assert len(trial.acknowledged()) > 100
    assert trial.lost() == []
