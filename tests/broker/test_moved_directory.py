"""Replicas move between log directories of a broker that goes on serving them (AlterReplicaLogDirs, KIP-113)."""

import asyncio

import pytest

from replog.config import Endpoint
from replog.errors import Error
from replog.types import TopicPartition as Name
from replog.wire.messages import alter_replica_log_dirs as alter
from replog.wire.messages import describe_log_dirs as dl
from tests.simulated.cluster_program import Trial, leader, wait_until_in_sync
from tribunal.clusters.api import TopicPartition, until
from tribunal.clusters.simulated.clients import REQUEST_TIMEOUT_MS
from tribunal.clusters.simulated.cluster import PORT
from tribunal.clusters.spec import ClusterSpec

TOPIC = "produce-consume"
PATHS = ("/data/a", "/data/b", "/data/c")
SPEC = ClusterSpec(min_insync_replicas=2, settings={"log.dirs": ",".join(PATHS), "log.segment.bytes": 4096})
ALL = range(6)


async def ask(cluster, node, exchange, body):
    """Send a request to a broker."""
    client = cluster.clients._client("hand", REQUEST_TIMEOUT_MS)
    answer = await client.ask_at(Endpoint(cluster.machine(node).host.address, PORT), exchange, body)
    await client.close()
    return answer


async def move(cluster, node, path, *partitions, topic=TOPIC):
    """Ask a broker to move replicas; return what it says of each."""
    topics = [alter.AlterReplicaLogDirTopic(name=topic, partitions=list(partitions))]
    body = alter.AlterReplicaLogDirsRequest(dirs=[alter.AlterReplicaLogDir(path=path, topics=topics)])
    (result,) = (await ask(cluster, node, alter.EXCHANGE, body)).results
    return [partition.error_code for partition in result.partitions]


def copies(cluster, node):
    """Return where a broker has the topic's logs: (directory, partition), sorted."""
    logs = cluster.nodes[node].shell.plane.directories.logs
    return sorted((stored.directory, name.partition) for name, stored in logs.items() if name.topic == TOPIC)


async def described(cluster, node):
    """Return what DescribeLogDirs says of the topic: (directory, partition), sorted; copies under way left out."""
    answer = await ask(cluster, node, dl.EXCHANGE, dl.DescribeLogDirsRequest(topics=None))
    return sorted(
        (result.log_dir, partition.partition_index)
        for result in answer.results
        for topic in result.topics
        if topic.name == TOPIC
        for partition in topic.partitions
        if not partition.is_future_key
    )


def in_directory(path):
    return [(path, partition) for partition in ALL]


def folders(cluster, node, path):
    return [name for name in cluster.machine(node).disk.list_directory(path) if name.startswith(TOPIC)]


async def moved(cluster, node, path):
    await until(
        lambda: copies(cluster, node) == in_directory(path),
        timeout_ms=20_000,
        what=f"all in {path}",
        cluster=cluster,
    )


@pytest.mark.nightly
def test_replicas_move_while_they_lead_and_follow_and_it_is_reported_to_the_controller():
    async def scenario(cluster):
        assert len({leader(cluster, partition) for partition in ALL}) > 1
        for node, path in ((1, "/data/c"), (2, "/data/a"), (1, "/data/b")):
            epochs = {p: cluster.state.partitions[TopicPartition(TOPIC, p)].leader_epoch for p in ALL}
            assert await move(cluster, node, path, *ALL) == [Error.NONE] * 6
            await moved(cluster, node, path)
            assert {p: cluster.state.partitions[TopicPartition(TOPIC, p)].leader_epoch for p in ALL} == epochs
        shell = cluster.nodes[1].shell
        image = shell.plane.metadata.image
        topic = image.topics_by_name[TOPIC]
        home = shell.plane.directories.ids["/data/b"]
        await until(
            lambda: all(partition.directory_of(1) == home for partition in topic.partitions.values()),
            timeout_ms=10_000,
            what="the controller knows",
            cluster=cluster,
        )
        await asyncio.sleep(70)
        assert folders(cluster, 1, "/data/b") == [f"{TOPIC}-{partition}" for partition in ALL]
        assert folders(cluster, 1, "/data/a") == folders(cluster, 1, "/data/c") == []
        await cluster.kill(1)  # what was moved is found again
        await cluster.start(1)
        await wait_until_in_sync(cluster)
        assert await described(cluster, 1) == in_directory("/data/b")

    trial = Trial(7, SPEC).run(scenario)

    assert len(trial.acknowledged()) > 500
    assert trial.lost() == []


@pytest.mark.parametrize("seed", range(3))
def test_a_broker_that_loses_its_power_in_the_middle_loses_nothing(seed):
    async def scenario(cluster):
        await asyncio.sleep(2)
        assert await move(cluster, 1, "/data/c", *ALL) == [Error.NONE] * 6
        await asyncio.sleep(seed * 0.001)
        await cluster.power_fail(1)
        await cluster.start(1)
        await wait_until_in_sync(cluster)
        assert sorted(partition for _, partition in copies(cluster, 1)) == list(ALL)
        await cluster.kill(1)
        await cluster.start(1)
        await wait_until_in_sync(cluster)

    trial = Trial(seed, SPEC).run(scenario)

    assert trial.lost() == []


def test_what_cannot_be_moved_is_reported_and_nothing_changes():
    async def scenario(cluster):
        before = copies(cluster, 1)
        disk, shell = cluster.machine(1).disk, cluster.nodes[1].shell
        disk.break_below("/data/c", 5)
        shell.plane.directories.fail("/data/c", OSError(5, "EIO"))

        assert await move(cluster, 1, "/elsewhere", 0) == [Error.LOG_DIR_NOT_FOUND]
        assert await move(cluster, 1, "/data/c", 0) == [Error.KAFKA_STORAGE_ERROR]
        assert await move(cluster, 1, "/data/b", 0, topic="nobody's") == [Error.UNKNOWN_TOPIC_OR_PARTITION]
        assert await move(cluster, 1, "/data/b", 77) == [Error.UNKNOWN_TOPIC_OR_PARTITION]
        here, partition = next(one for one in before if one[0] != "/data/c")
        assert await move(cluster, 1, here, partition) == [Error.NONE]
        assert shell.plane.moves.copies == {}
        answer = await ask(cluster, 1, dl.EXCHANGE, dl.DescribeLogDirsRequest(topics=None))
        result = {
            result.log_dir: (result.error_code, result.total_bytes, result.usable_bytes) for result in answer.results
        }
        assert result["/data/c"] == (Error.KAFKA_STORAGE_ERROR, -1, -1)
        assert result["/data/a"][0] is Error.NONE
        assert 0 < result["/data/a"][2] < result["/data/a"][1]
        disk.mend("/data/c")
        await cluster.kill(1)
        await cluster.start(1)

    assert Trial(5, SPEC).run(scenario).lost() == []


def test_a_new_replica_is_created_where_somebody_asked_for_it():
    async def scenario(cluster):
        shell = cluster.nodes[1].shell
        shell.plane.directories.preferred[Name("later", 0)] = "/data/c"
        await cluster.clients.admin("maker").create_topic(
            "later", partitions=1, replication_factor=3, timeout_ms=20_000
        )
        await until(
            lambda: shell.plane.directories.find(Name("later", 0)) is not None,
            timeout_ms=9_000,
            what="made",
            cluster=cluster,
        )
        assert shell.plane.directories.find(Name("later", 0)).directory == "/data/c"

    Trial(4, SPEC).run(scenario)


def test_a_replica_does_not_go_on_moving_to_a_directory_that_failed_meanwhile():
    async def scenario(cluster):
        await asyncio.sleep(2)
        plane = cluster.nodes[1].shell.plane
        (name, stored), *_ = [one for one in plane.directories.logs.items() if one[0].topic == TOPIC]
        before = stored.directory
        target = next(path for path in PATHS if path != before)
        assert plane.moves.move(name, target) == Error.NONE
        await asyncio.sleep(0)
        assert name in plane.moves.copies
        assert stored.directory == before
        plane.directories.fail(target, OSError(5, "a sync of another log said no"))
        await asyncio.sleep(2)

        assert plane.directories.logs[name].directory == before
        assert plane.moves.copies == {}
        await cluster.kill(1)  # the directory is whole again for the next process
        await cluster.start(1)

    trial = Trial(7, SPEC).run(scenario)

    assert trial.lost() == []


def test_a_copy_that_cannot_be_removed_costs_its_directory_and_moves_go_on():
    """What was given up for a damaged batch is removed; where that fails it is the copy's directory that fails, not the broker."""

    async def scenario(cluster):
        await asyncio.sleep(2)
        plane, disk = cluster.nodes[1].shell.plane, cluster.machine(1).disk
        (name, stored), *_ = [one for one in plane.directories.logs.items() if one[0].topic == TOPIC]
        before = stored.directory
        target, other = [path for path in PATHS if path != before]
        assert plane.moves.move(name, target) == Error.NONE
        await asyncio.sleep(0)
        assert name in plane.moves.copies
        disk.break_below(target, 5)

        plane.moves._give_up(name, "a damaged batch")

        assert list(plane.directories.offline) == [target]
        await asyncio.sleep(1)
        assert plane.moves.move(name, other) == Error.NONE
        await asyncio.sleep(5)
        assert plane.directories.logs[name].directory == other
        disk.mend(target)
        await cluster.kill(1)
        await cluster.start(1)

    trial = Trial(7, SPEC).run(scenario)

    assert trial.lost() == []
