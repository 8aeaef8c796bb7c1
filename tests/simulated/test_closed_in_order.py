"""I20: a directory with a clean-shutdown file was closed: what its logs hold is on the disk, and a power failure takes nothing of it (KIP-966)."""

import asyncio

import pytest

from replog.log.clean_shutdown import CLEAN_SHUTDOWN_FILE
from tests.scenarios.three_brokers import NAME, produce, reaches, run
from tribunal.clusters.capabilities import Fate, FrameRule
from tribunal.nemesis.messages import APIS
from tribunal.results.violation import CleanShutdownFile, ClosedUnsynced, Invariant

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


@pytest.mark.parametrize(
    ("is_stopped", "found"),
    [
        pytest.param(True, [], id="it was stopped meanwhile, and wrote the file itself"),
        pytest.param(False, [CleanShutdownFile()], id="it runs on, and the file is of a former life"),
    ],
)
def test_a_clean_shutdown_file_of_a_broker_whose_registration_was_under_way(is_stopped, found):
    """Found by a search with M05, without it as well: a broker that was stopped 20 ms after its start was accused (I20)."""
    violated = []

    async def scenario(cluster):
        await cluster.kill(1)
        await reaches(cluster, "1 is missed", lambda: cluster.state.brokers[1].fenced)
        cluster.watch.on_violation = violated.append
        rule = FrameRule(fate=Fate.HELD, api=APIS["broker-registration"], direction="request", source=1)
        held = cluster.add_rule(rule)
        starting = asyncio.create_task(cluster.start(1))  # it serves once it is registered
        await reaches(cluster, "its registration waits", lambda: held.held_count > 0)
        if is_stopped:
            await cluster.stop(1)
        else:
            cluster.machine(1).disk.replace_file(f"data/{CLEAN_SHUTDOWN_FILE}", b"{}")
        former = cluster.state.brokers[1].broker_epoch
        cluster.remove_rule(held)
        await reaches(cluster, "it registers", lambda: cluster.state.brokers[1].broker_epoch > former)
        cluster.watch.catch_up()
        starting.cancel()

    run(4, scenario)

    assert [one.violation.facts for one in violated] == found
