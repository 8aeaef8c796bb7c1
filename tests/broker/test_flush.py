"""`flush.messages` and `flush.ms`: what was acknowledged is on disk, and the event loop does not wait for the disk."""

import asyncio
from random import Random

import pytest

from replog.broker.isr import LeaderState, PartitionState
from replog.errors import Error
from replog.log.batch import NewRecord, build
from replog.log.log import Log
from replog.log.settings import LogSettings
from replog.types import LeaderRecoveryState
from tests.identities import an_identity
from tests.simulated.cluster_program import Trial, wait_until_in_sync
from tribunal.clusters.simulated.disk import SimulatedDisk
from tribunal.clusters.spec import ClusterSpec

SYNCED = {"log.flush.interval.messages": 1}


def opened(**settings):
    disk = SimulatedDisk(Random(1))
    log = Log.open(
        disk, "/logs/a-0", LogSettings(**settings), recover=False, recovery_point=0, log_start_offset=0, now_ms=0
    )
    log.begin_epoch(0)
    return log


def append(log, count=1):
    batch = build([NewRecord(None, b"v")] * count, timestamp_ms=0)
    assert log.append_as_leader(batch, leader_epoch=0, now_ms=0).last_offset == log.log_end_offset - 1


def test_without_a_setting_nothing_waits_for_the_disk():
    log = opened()
    append(log, 5)

    assert not log.must_flush
    assert log.acknowledgeable_end_offset == 5


def test_so_many_records_may_be_volatile():
    log = opened(flush_messages=3)
    append(log, 2)
    assert (log.must_flush, log.acknowledgeable_end_offset) == (False, 2)

    append(log, 1)
    assert (log.must_flush, log.acknowledgeable_end_offset) == (True, 0)

    log.flush()
    assert (log.must_flush, log.acknowledgeable_end_offset) == (False, 3)


def test_the_leaders_own_copy_counts_once_it_is_durable():
    state = PartitionState(
        leader=1, leader_epoch=0, partition_epoch=0, replicas=(1,), isr=(1,), recovery=LeaderRecoveryState.RECOVERED
    )
    leader = LeaderState(
        state=state,
        identity=an_identity(1),
        brokers={},
        min_insync_replicas=1,
        log_end_offset=0,
        high_watermark=0,
        epoch_start_offset=0,
        lag_ms_max=1000,
        now_ms=0,
    )

    assert leader.on_append(2, 0, 0) == []
    assert leader.flush_outcome(1) is leader.produce_outcome(1) is None
    assert [effect.high_watermark for effect in leader.on_flush(2, 0)] == [2]
    assert leader.flush_outcome(1) is leader.produce_outcome(1) is Error.NONE


async def lights_out(cluster):
    """The power of all machines fails, twice, in the midst of the load."""
    for _ in range(2):
        await asyncio.sleep(1)
        for node in cluster.spec.node_ids:
            await cluster.power_fail(node)
        for node in cluster.spec.node_ids:
            cluster.machine(node).power_on()
        await asyncio.gather(*(cluster.start(node) for node in cluster.spec.node_ids))
        await wait_until_in_sync(cluster)


def synced_spec(**settings):
    return ClusterSpec(brokers=3, controllers=3, min_insync_replicas=2, settings=settings)


@pytest.mark.parametrize("seed", [1, 2])
def test_what_was_acknowledged_survives_the_loss_of_all_power(seed):
    trial = Trial(seed, synced_spec(**SYNCED)).run(lights_out)

    assert len(trial.acknowledged()) > 100
    assert trial.lost() == []


def test_flush_ms_makes_durable_without_anyone_waiting():
    async def scenario(cluster):
        await asyncio.sleep(2)
        cluster.volatile = [
            replica.partition.log.log_end_offset - replica.partition.log.flushed_offset
            for node in cluster.spec.broker_ids
            for replica in cluster.nodes[node].shell.plane.replicas
        ]

    trial = Trial(3, synced_spec(**{"log.flush.interval.ms": 50})).run(scenario)

    assert trial.lost() == []
    assert max(trial.cluster.volatile) < 50


def test_a_shorter_flush_ms_is_obeyed_for_records_that_wait_already():
    async def scenario(cluster):
        operator = cluster.clients.fault_operator("operator")
        await operator.set_topic_config("produce-consume", "flush.ms", "50")
        await operator.close()
        await asyncio.sleep(5)
        cluster.volatile = [
            replica.partition.log.log_end_offset - replica.partition.log.flushed_offset
            for node in cluster.spec.broker_ids
            for replica in cluster.nodes[node].shell.plane.replicas
        ]

    trial = Trial(4, synced_spec(**{"log.flush.interval.ms": 600_000})).run(scenario)

    assert trial.lost() == []
    assert max(trial.cluster.volatile) < 20
