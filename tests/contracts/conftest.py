"""The places where the contracts of `replog.ports` are held: every test here runs once in each."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol

import pytest
import uvloop

from replog.host.world import RealClock, RealDisk, RealEntropy, RealJournal, RealNetwork
from replog.ports import World
from tribunal.clusters.simulated.world import Simulation

Scenario = Callable[[World], Coroutine[Any, Any, None]]


class Place(Protocol):
    """Where a scenario can run: it has an address, and a directory that exists."""

    host: str
    directory: str

    def run(self, scenario: Scenario) -> None:
        """Run it as a process's main and raise what it raises."""


class RealPlace:
    """This machine."""

    host = "127.0.0.1"

    def __init__(self, directory: Path, loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self.directory = str(directory)
        self._loop_factory = loop_factory
        self.clock = RealClock()
        self.entropy = RealEntropy()
        self.disk = RealDisk()
        self.network = RealNetwork()
        self.journal = RealJournal(1, f"{directory}/events.jsonl")

    def run(self, scenario: Scenario) -> None:
        async def main() -> None:
            await scenario(self)
            for _ in range(3):  # closed transports take leave in later turns
                await asyncio.sleep(0)

        with asyncio.Runner(loop_factory=self._loop_factory) as runner:
            runner.run(main())
        self.disk.close()
        self.journal.close()


class SimulatedPlace:
    """A machine in the simulator."""

    host = "10.0.0.1"
    directory = "/data"

    def run(self, scenario: Scenario) -> None:
        simulation = Simulation("contract")
        machine = simulation.add_machine("node", self.host, 1)

        async def main(world: World) -> None:
            world.disk.make_directory(self.directory)
            await scenario(world)

        async def harness() -> None:
            problem = await machine.start(main)
            if problem is not None:
                raise problem

        simulation.run(harness())


@pytest.fixture(params=["asyncio", "uvloop", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "simulated":
        return SimulatedPlace()
    return RealPlace(tmp_path, asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop)
