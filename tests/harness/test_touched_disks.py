"""Whose disks a fault may have changed: a node that does not start later may fail for that, though the fault was aimed at another one."""

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


@pytest.mark.parametrize("scenario", ["part-kill", "produce-consume"])
def test_a_fault_touches_the_disks_that_lose_something_by_it(tmp_path, scenario):
    plan = made(load(scenario_file(scenario), {}), seed=1, cluster="simulated", time_ms=5_000, mutants=())

    with sealed(Simulation(plan.seed)) as simulation:
        run = Run(plan, tmp_path, Silent())
        simulation.run(run.execute())

    faults = typed(Recording.open(tmp_path).table("faults"), Fault)
    lost = {(fault.index, loss.node) for fault in faults for loss in fault.losses}
    assert lost
    assert lost <= {*run._touched}
