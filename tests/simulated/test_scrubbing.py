"""Bits turn over in segments of brokers that run: they are found and put back from the ISR, or reported; never served."""

import asyncio

import pytest

from replog.log.batch import CorruptBatch
from replog.node.broker import Broker
from replog.node.metrics import exposition, scrub_metrics
from tests.scenarios.three_brokers import NAME, produce, reaches, run
from tests.simulated.cluster_program import Trial
from tribunal.clusters.spec import ClusterSpec

SETTINGS = {"log.segment.bytes": 500, "log.scrub.bytes.per.second": 1_000_000}


def broker(cluster, node):
    shell = cluster.nodes[node].shell
    assert isinstance(shell, Broker)
    return shell


def log_of(cluster, node):
    return broker(cluster, node).plane.replicas.find(NAME).partition.log


def leader(cluster):
    return cluster.state.partitions[NAME].leader


async def filled(cluster):
    """Write some closed segments; return where the one lies that will be damaged."""
    for _ in range(40):
        await produce(cluster, -1, 1)
    await reaches(
        cluster, "all replicas", lambda: all(log_of(cluster, node).log_end_offset == 40 for node in (1, 2, 3))
    )
    segment = log_of(cluster, leader(cluster)).segments[2]
    assert len(log_of(cluster, 1).segments) > 4
    return segment.base_offset, segment.size


def flip(cluster, node, base_offset, byte):
    log = log_of(cluster, node)
    (segment,) = [one for one in log.segments if one.base_offset == base_offset]
    cluster.watch.rotten(node)
    cluster.machine(node).disk.flip_bit(segment.file.path, 8 * byte)
    with pytest.raises(CorruptBatch, match="checksum"):
        log.read(base_offset, max_bytes=1, end_offset=40, at_least_one=True)


def copies(cluster):
    return {
        node: b"".join(segment.file.read_at(0, segment.size) for segment in log_of(cluster, node).segments)
        for node in (1, 2, 3)
    }


def warnings_of(cluster, node):
    lines = []
    cluster.nodes[node].shell.world.journal.log = lambda level, line: lines.append((level, line))
    return lines


@pytest.mark.parametrize("who", ["the leader", "a follower", "both"])
def test_a_damaged_batch_is_put_back_from_another_member_of_the_isr(who):
    async def scenario(cluster):
        base_offset, _ = await filled(cluster)
        before = copies(cluster)
        follower = next(node for node in (1, 2, 3) if node != leader(cluster))
        hit = {"the leader": [leader(cluster)], "a follower": [follower], "both": [leader(cluster), follower]}[who]
        lines = {node: warnings_of(cluster, node) for node in hit}
        for node in hit:
            flip(cluster, node, base_offset, 65)

        await reaches(
            cluster, "all repaired", lambda: all(broker(cluster, n).plane.scrubbing.repaired_count for n in hit)
        )

        assert copies(cluster) == before
        assert leader(cluster) not in hit or cluster.state.partitions[NAME].leader_epoch == 0
        assert sorted(cluster.state.partitions[NAME].isr) == [1, 2, 3]
        for node in hit:
            scrubbing = broker(cluster, node).plane.scrubbing
            assert (scrubbing.damaged_count, scrubbing.repaired_count, scrubbing.unrepaired_count) == (1, 1, 0)
            ((level, line),) = [line for line in lines[node] if "put back from broker" in line[1]]
            assert level == "warning"
            assert f"{base_offset:020d}.log at 0, offset {base_offset}: checksum" in line
        await asyncio.sleep(5)
        assert all(broker(cluster, node).plane.scrubbing.damaged_count == 1 for node in hit)

    run(1, scenario, **SETTINGS)


def test_a_damaged_batch_of_the_active_segment_is_put_back_and_what_is_appended_stays():
    async def scenario(cluster):
        await produce(cluster, -1, 1)
        await reaches(cluster, "all", lambda: all(log_of(cluster, n).log_end_offset == 1 for n in (1, 2, 3)))
        follower = next(node for node in (1, 2, 3) if node != leader(cluster))
        for node in (leader(cluster), follower):
            (segment,) = log_of(cluster, node).segments
            cluster.watch.rotten(node)
            cluster.machine(node).disk.flip_bit(segment.file.path, 8 * 65)
        await produce(cluster, -1, 1)

        await reaches(
            cluster,
            "both repaired",
            lambda: all(broker(cluster, n).plane.scrubbing.repaired_count for n in (leader(cluster), follower)),
        )
        await reaches(cluster, "all", lambda: all(log_of(cluster, n).log_end_offset == 2 for n in (1, 2, 3)))

        assert len({*copies(cluster).values()}) == 1
        assert sorted(cluster.state.partitions[NAME].isr) == [1, 2, 3]

    run(4, scenario, **{"log.scrub.bytes.per.second": 1_000_000})


def test_what_nobody_else_has_is_reported_once_and_never_served_and_put_back_when_somebody_has_it():
    async def scenario(cluster):
        base_offset, _ = await filled(cluster)
        before = copies(cluster)
        lines = warnings_of(cluster, 1)
        for node in (1, 2, 3):
            flip(cluster, node, base_offset, 65)

        await asyncio.sleep(8)

        scrubbing = broker(cluster, 1).plane.scrubbing
        assert (scrubbing.damaged_count, scrubbing.repaired_count, scrubbing.unrepaired_count) == (1, 0, 1)
        text = exposition(scrub_metrics(scrubbing))
        assert "tribunal_scrub_damages_total 1\n" in text
        assert "tribunal_scrub_unrepaired 1\n" in text
        ((level, line),) = [line for line in lines if "not repaired" in line[1]]
        assert level == "error"
        assert line.count("CORRUPT_MESSAGE") == 2
        for node in (1, 2, 3):
            with pytest.raises(CorruptBatch, match="checksum"):
                log_of(cluster, node).read(base_offset, max_bytes=1, end_offset=40, at_least_one=True)

        for node in (2, 3):  # they find it as they left it
            path = next(s.file.path for s in log_of(cluster, node).segments if s.base_offset == base_offset)
            cluster.machine(node).disk.flip_bit(path, 8 * 65)
        await reaches(cluster, "repaired", lambda: scrubbing.repaired_count == 1)
        assert copies(cluster) == before
        assert scrubbing.unrepaired_count == 0

    run(2, scenario, **SETTINGS)


def test_it_reads_no_faster_than_it_may():
    async def scenario(cluster):
        await filled(cluster)
        scrubbing = broker(cluster, 1).plane.scrubbing
        before = scrubbing.checked_bytes
        await asyncio.sleep(20)
        assert 4_000 < scrubbing.checked_bytes - before <= 21 * 500

    run(3, scenario, **(SETTINGS | {"log.scrub.bytes.per.second": 500}))


@pytest.mark.nightly
def test_with_flips_under_load_nothing_is_lost_and_the_same_seed_runs_the_same():
    async def scenario(cluster):
        await asyncio.sleep(4)
        for node in (1, 2):
            disk = cluster.machine(node).disk
            cluster.watch.rotten(node)
            for partition, log in sorted(cluster.watch.replicas[node].logs.items()):
                closed = list(dict.fromkeys(path for path, _ in log.ends))[:-1]
                if closed and partition.topic == "produce-consume" and partition.partition % 2 == node - 1:
                    disk.flip_bit(closed[0], 8 * 70)
        await asyncio.sleep(10)
        found.append([cluster.nodes[node].shell.plane.scrubbing.repaired_count for node in (1, 2, 3)])

    found, hashes = [], []
    for _ in range(2):
        trial = Trial(5, ClusterSpec(settings=SETTINGS | {"log.segment.bytes": 4096})).run(scenario)
        assert trial.lost() == []
        hashes.append(trial.trace_hash)

    assert found[0][0] > 0
    assert found[0] == found[1]
    assert hashes[0] == hashes[1]
