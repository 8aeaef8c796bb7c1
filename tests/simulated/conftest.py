"""Two machines that can talk, in a sealed simulation."""

import asyncio
from collections.abc import Iterator

import pytest

from tribunal.clusters.simulated.guard import sealed
from tribunal.clusters.simulated.process import NS_PER_MS
from tribunal.clusters.simulated.world import Machine, Simulation


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    with sealed(Simulation(1)) as one:
        yield one


@pytest.fixture
def server(simulation: Simulation) -> Machine:
    return simulation.add_machine("server", "10.0.0.1", 1)


@pytest.fixture
def client(simulation: Simulation) -> Machine:
    return simulation.add_machine("client", "10.0.0.2", 2)


class Recorder(asyncio.Protocol):
    """Notes what a connection brings; answers each piece if it has an answer."""

    def __init__(self, answer=None):
        self.received = b""
        self.pieces = []
        self.ended = []
        self.answer = answer
        self.paused = 0

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.received += data
        self.pieces.append(data)
        if self.answer is not None:
            self.transport.write(self.answer(data))

    def eof_received(self):
        self.ended.append("eof")

    def pause_writing(self):
        self.paused += 1

    def resume_writing(self):
        self.paused -= 1

    def connection_lost(self, problem):
        self.ended.append(problem)


class Pair:
    """A listening server and a client connected to it; `serve` again after the server's death."""

    def __init__(self, simulation, server, client, answer=None):
        self.simulation, self.server, self.client = simulation, server, client
        self.answer = answer
        self.accepted = []
        self.near = None
        self.problem = None
        self.serve()
        self.dial()

    def serve(self):
        def accept():
            self.accepted.append(Recorder(self.answer))
            return self.accepted[-1]

        async def main(world):
            await world.network.listen("10.0.0.1", 9092, accept)
            await asyncio.get_running_loop().create_future()

        self.server.start(main)

    def dial(self):
        async def main(world):
            try:
                self.transport, self.near = await world.network.connect("10.0.0.1", 9092, Recorder)
            except OSError as problem:
                self.problem = problem
            await asyncio.get_running_loop().create_future()

        if self.client.running:
            self.client.kill()
        self.near = self.problem = None
        self.client.start(main)
        self.run(10)

    @property
    def far(self):
        return self.accepted[-1]

    def run(self, duration_ms):
        self.simulation.loop.run_for(duration_ms * NS_PER_MS)

    def say(self, data):
        self.client.process.context.copy().run(self.transport.write, data)

    def call(self, function, *arguments):
        return self.client.process.context.copy().run(function, *arguments)


@pytest.fixture
def pair(simulation, server, client) -> Pair:
    return Pair(simulation, server, client)
