"""A broker whose log has lost its first segments fetches all of it again: nothing of that is durable before it is synced."""

import pytest

from replog.log.checkpoints import RECOVERY_POINTS, read_offsets
from tests.scenarios.three_brokers import NAME, isr_is, partition_of, produce, reaches, run

SETTINGS = {"log.segment.bytes": 500, "log.flush.offset.checkpoint.interval.ms": 60_000}
COUNT = 40
LATE_NS = 1 << 62


@pytest.mark.parametrize("seed", range(2))
def test_a_log_that_is_fetched_again_is_durable_when_a_flush_says_so(seed):
    volatile: list[str] = []

    async def scenario(cluster):
        for _ in range(COUNT):
            await produce(cluster, -1, 1)
        follower = next(node for node in (1, 2, 3) if node != partition_of(cluster).leader)
        disk = cluster.machine(follower).disk
        (path,) = {one.rpartition("/")[0] for one in disk.files_below() if f"/{NAME}/" in f"/{one}"}
        points = f"{path.rpartition('/')[0]}/{RECOVERY_POINTS}"
        await reaches(cluster, "a checkpoint", lambda: read_offsets(disk, points).get(NAME) == COUNT)
        await cluster.kill(follower)
        for one in disk.files_below(path):
            if one.rpartition("/")[2].startswith(f"{0:020d}"):
                disk.remove(one)
        await fetches_all(cluster, follower)
        await cluster.kill(follower)

        await fetches_all(cluster, follower)
        log = log_of(cluster, follower)
        log.flush()

        assert log.flushed_offset == COUNT
        for segment in log.segments:
            inode = disk.inode(segment.file.path)
            inode.finish_syncs(LATE_NS)
            if inode.image != inode.content:
                volatile.append(segment.file.path)
        await isr_is(cluster, [1, 2, 3])

    run(seed, scenario, **SETTINGS)

    assert not volatile


async def fetches_all(cluster, node):
    await cluster.start(node)
    await reaches(cluster, "all is there", lambda: log_of(cluster, node).log_end_offset == COUNT)


def log_of(cluster, node):
    return cluster.nodes[node].shell.plane.replicas.find(NAME).partition.log
