"""A coordinator that takes long to load its partition: whoever asks meanwhile is asked to come again, and nothing else comes of it."""

import asyncio

import pytest

from replog.client.coordinator import GROUP, CoordinatorLink
from replog.errors import Error
from replog.wire.messages.offset_fetch import EXCHANGE, OffsetFetchRequest, OffsetFetchRequestGroup
from tests.simulated.cluster_program import NOWHERE
from tribunal.clusters.clock import RunClock
from tribunal.clusters.kinds.simulated import launch
from tribunal.clusters.simulated.loop import SimulatedLoop
from tribunal.clusters.simulated.running import run_simulated
from tribunal.clusters.simulated.world import Points
from tribunal.clusters.spec import ClusterSpec

POINT = "coordinator is loaded late"
GROUPS = [f"group-{number}" for number in range(8)]


def first_seed(odds):
    return next(
        name for name in (f"loading {n}" for n in range(99)) if Points(SimulatedLoop.create(name)).odds(POINT) == odds
    )


def answers(seed):
    """Kill brokers by turns while groups' offsets are asked for; return which errors coordinators answered with."""

    async def main():
        cluster = await launch(ClusterSpec(settings={"tribunal.points": True}), NOWHERE, RunClock(), seed)
        client = cluster.clients._client("asker", 2_500)
        errors = set()
        for node in (1, 2, 3, 1):
            await cluster.kill(node)
            for _ in range(40):
                for name in GROUPS:
                    errors.add(await asked(client, name))
                await asyncio.sleep(0.05)
            await cluster.start(node)
            await asyncio.sleep(1)
        await client.close()
        await cluster.close()
        return errors, cluster.watch.violation

    return run_simulated(seed, main)[0]


async def asked(client, group):
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    try:
        answer = await asyncio.wait_for(CoordinatorLink(client, group, GROUP).ask(EXCHANGE, request), 0.3)
    except Exception:  # noqa: BLE001 - nobody answers while the broker is gone
        return None
    (found,) = answer.groups
    return found.error_code


@pytest.mark.parametrize(("odds", "is_met"), [(0.2, True), (0.0, False)])
def test_requests_meet_a_coordinator_that_loads(odds, is_met):
    errors, violation = answers(first_seed(odds))

    assert Error.NONE in errors
    assert (Error.COORDINATOR_LOAD_IN_PROGRESS in errors) is is_met
    assert violation is None
