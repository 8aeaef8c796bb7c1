"""I20: a directory with a clean-shutdown file was closed: what its logs hold is on the disk, and a power failure takes nothing of it (KIP-966)."""

import pytest

from tests.scenarios.three_brokers import NAME, produce, run
from tribunal.results.violation import ClosedUnsynced, Invariant

SETTINGS = {"log.flush.offset.checkpoint.interval.ms": 60_000}


def log_file(cluster, node):
    return next(
        path for path in cluster.machine(node).disk.files_below() if f"/{NAME}/" in path and path.endswith(".log")
    )


@pytest.mark.parametrize("seed", range(2))
def test_what_a_broker_wrote_is_on_the_disk_once_it_has_ended_in_order_and_not_once_it_was_killed(seed):
    durable = {}

    async def scenario(cluster):
        await produce(cluster, -1, 20)
        await cluster.stop(1)
        await cluster.kill(2)
        durable.update({node: cluster.machine(node).disk.is_durable(log_file(cluster, node)) for node in (1, 2)})
        cluster.watch.ended_in_order(1)
        cluster.watch.ended_in_order(2)  # it says so nowhere

    run(seed, scenario, **SETTINGS)

    assert durable == {1: True, 2: False}


def test_a_directory_that_says_so_and_has_what_is_not_on_the_disk_is_a_violation():
    found = []

    async def scenario(cluster):
        await produce(cluster, -1, 20)
        await cluster.stop(1)
        path = log_file(cluster, 1)
        cluster.machine(1).disk.open(path).append(b"half a batch")
        cluster.watch.on_violation = found.append
        cluster.watch.ended_in_order(1)
        assert found[0].violation.facts == ClosedUnsynced(file=f"/{path}")

    run(3, scenario, **SETTINGS)

    assert [one.violation.invariant for one in found] == [Invariant.I20]
