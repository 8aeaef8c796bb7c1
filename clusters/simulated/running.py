"""Runs the harness' own coroutine inside a simulation, from a seed."""

from collections.abc import Callable, Coroutine
from typing import TypeVar

from tribunal.clusters.simulated.guard import sealed
from tribunal.clusters.simulated.world import Simulation

T = TypeVar("T")


def run_simulated(seed: int | str, main: Callable[[], Coroutine[object, object, T]]) -> tuple[T, Simulation]:
    """Run `main()` on a simulated loop in a sealed world; return its result and the simulation, for its traces.

    Clocks made in `main` show virtual time from 0 on.
    """
    with sealed(Simulation(seed)) as simulation:
        result = simulation.run(main())
        simulation.loop.trace_hash()
        return result, simulation
