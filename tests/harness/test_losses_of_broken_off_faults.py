"""What a disk has provably lost stands in the recording also where its fault did not come to say so: else the system is accused of it."""

import asyncio

import pytest

from tribunal.clusters.simulated.guard import sealed
from tribunal.clusters.simulated.world import Simulation
from tribunal.harness.catalog import scenario_file
from tribunal.harness.plan import made
from tribunal.harness.progress import Silent
from tribunal.harness.run import Run
from tribunal.harness.scenario import load
from tribunal.results.rows import Fault, typed
from tribunal.results.store import Recording

LOOK_S = 0.02


async def broken_off(run: Run, simulation: Simulation) -> None:
    """Break a run off when a broker has lost power, and the fault that took it does not count as injected yet."""
    running = asyncio.ensure_future(run.execute())
    while not running.done():
        cluster = simulation.cluster
        if cluster is not None and run._lasting and not all(map(cluster.alive, cluster.spec.broker_ids)):
            running.cancel()
            break
        await asyncio.sleep(LOOK_S)
    assert (await running).interrupted


@pytest.mark.parametrize("scenario", ["part-kill", "pause-kill"])
def test_what_was_lost_before_the_run_was_broken_off_is_recorded(tmp_path, scenario):
    plan = made(load(scenario_file(scenario), {}), seed=1, cluster="simulated", time_ms=20_000, mutants=())

    with sealed(Simulation(plan.seed)) as simulation:
        simulation.run(broken_off(Run(plan, tmp_path, Silent()), simulation))

    (fault,) = typed(Recording.open(tmp_path).table("faults"), Fault)
    assert fault.injected_ns is None
    assert fault.losses
    assert all(lost.end_ns is not None for lost in fault.losses)
