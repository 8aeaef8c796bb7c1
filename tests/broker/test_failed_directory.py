"""A log directory fails: alone, with it goes its broker; of several, with it go its replicas. Nothing acknowledged does."""

import asyncio
import errno
from uuid import UUID

import pytest

from replog.errors import Error
from replog.node.directories.meta_properties import format_directories
from tests.simulated.cluster_program import Trial, leader, wait_until_in_sync
from tribunal.clusters.api import TopicPartition
from tribunal.clusters.spec import ClusterSpec


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
        await wait_until_in_sync(cluster)

    settings = {"log.flush.interval.messages": 1}
    trial = Trial(5, ClusterSpec(brokers=3, controllers=3, min_insync_replicas=2, settings=settings)).run(scenario)

    assert len(trial.acknowledged()) > 100
    assert trial.lost() == []


# --- one of several directories ---------------------------------------------------------------------------

TOPIC = "produce-consume"
SEVERAL = {"log.dirs": "/data/a,/data/b,/data/c"}


def directories(cluster, node):
    """The directory of each of a broker's replicas, by partition, as it says itself."""
    found = {}
    for name, stored in cluster.nodes[node].shell.plane.directories.logs.items():
        if name.topic == TOPIC:
            found[name.partition] = stored.directory
    return found


def lay_in(cluster, node, path):
    return [partition for partition, directory in directories(cluster, node).items() if directory == path]


@pytest.mark.parametrize(
    ("number", "path"), [(errno.EIO, "/data/b"), (errno.ENOSPC, "/data/c"), (errno.EROFS, "/data/c")]
)
def test_a_directory_that_fails_does_not_take_the_others(number, path):
    async def scenario(cluster):
        await asyncio.sleep(2)
        victim = next(n for n in (1, 2, 3) if any(leader(cluster, p) == n for p in lay_in(cluster, n, path)))
        before, lost = directories(cluster, victim), lay_in(cluster, victim, path)
        disk = cluster.machine(victim).disk
        disk.break_below(path, number)
        await asyncio.sleep(5)

        assert cluster.alive(victim)
        assert directories(cluster, victim) == {p: d for p, d in before.items() if d != path}
        for partition in before:
            state = cluster.state.partitions[TopicPartition(TOPIC, partition)]
            assert (victim in state.isr) == (partition not in lost)
            assert state.leader != -1
        assert [leader(cluster, p) for p in lost].count(victim) == 0
        replicas = cluster.nodes[victim].shell.plane.replicas
        topic_id = replicas.metadata.image.topics_by_name[TOPIC].topic_id
        assert {replicas.missing_error(TOPIC, topic_id, p) for p in lost} == {Error.KAFKA_STORAGE_ERROR}

        await cluster.kill(victim)
        await cluster.start(victim)
        await asyncio.sleep(6)
        assert directories(cluster, victim) == {p: d for p, d in before.items() if d != path}, "an empty log was made"
        assert all(victim not in cluster.state.partitions[TopicPartition(TOPIC, p)].isr for p in lost)
        assert all(victim in cluster.state.partitions[TopicPartition(TOPIC, p)].isr for p in before if p not in lost)

        await cluster.kill(victim)
        disk.mend(path)
        await cluster.start(victim)
        await wait_until_in_sync(cluster)
        assert directories(cluster, victim) == before

    trial = Trial(number, ClusterSpec(min_insync_replicas=2, settings=SEVERAL)).run(scenario)

    assert len(trial.acknowledged()) > 100
    assert trial.lost() == []


def test_topics_go_on_being_created_where_it_works_and_a_new_disk_is_filled():
    async def scenario(cluster):
        await asyncio.sleep(1)
        shell, disk = cluster.nodes[1].shell, cluster.machine(1).disk
        disk.break_below("/data/b", errno.EIO)
        await cluster.clients.admin("maker").create_topic("more", partitions=6, replication_factor=3, timeout_ms=20_000)
        await asyncio.sleep(3)
        assert "/data/b" in shell.plane.directories.offline
        more = {name: stored.directory for name, stored in shell.plane.directories.logs.items() if name.topic == "more"}
        assert len(more) == 6
        assert sorted(more.values()) == ["/data/a"] * 3 + ["/data/c"] * 3

        await cluster.kill(1)
        disk.mend("/data/b")
        disk.remove_tree("/data/b")
        cluster.watch.lost_data(1)
        format_directories(disk, cluster.nodes[1].config, lambda: UUID(int=77), ignore_formatted=True)
        await cluster.start(1)
        await wait_until_in_sync(cluster)
        assert cluster.nodes[1].shell.plane.directories.ids["/data/b"] == UUID(int=77)

    trial = Trial(11, ClusterSpec(min_insync_replicas=2, settings=SEVERAL)).run(scenario)

    assert trial.lost() == []


def test_the_directory_of_the_metadata_log_ends_the_broker():
    async def scenario(cluster):
        await asyncio.sleep(1)
        cluster.nodes[2].excuse = "its metadata log is gone"
        cluster.machine(2).disk.break_below("/data/a", errno.EIO)
        await asyncio.sleep(4)
        assert not cluster.alive(2)
        cluster.machine(2).disk.mend("/data/a")
        cluster.nodes[2].excuse = None
        await cluster.start(2)

    trial = Trial(3, ClusterSpec(min_insync_replicas=2, settings=SEVERAL)).run(scenario)

    assert trial.lost() == []
