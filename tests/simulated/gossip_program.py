"""Programs for the determinism check: machines that gossip, once in order, once in the order of a set."""

import asyncio

from tribunal.clusters.api import CutMode
from tribunal.clusters.simulated.determinism import Fingerprint
from tribunal.clusters.simulated.guard import sealed
from tribunal.clusters.simulated.process import NS_PER_MS, NS_PER_S
from tribunal.clusters.simulated.world import Simulation

NAMES = [f"node-{number}" for number in range(6)]


class Gossip(asyncio.Protocol):
    def __init__(self, node):
        self.node = node

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.node.receive(data)


class Node:
    """Sends what it receives to three random others; writes it to disk; keeps tasks in a set, as careless code does."""

    def __init__(self, world, name, leaking):
        self.world, self.name, self.leaking = world, name, leaking
        self.peers = {}
        self.received = 0
        self.tasks = set()

    async def main(self):
        self.file = self.world.disk.open("log", create=True)
        await self.world.network.listen(self.name, 1, lambda: Gossip(self))
        for peer in NAMES:
            self.tasks.add(asyncio.create_task(self.dial(peer)))
        while True:
            await asyncio.sleep(self.world.entropy.random("pace").uniform(0.01, 0.02))
            self.receive(b"tick")
            for task in list(self.tasks):
                if task.done():
                    self.tasks.discard(task)

    async def dial(self, peer):
        while True:
            try:
                self.peers[peer], _ = await self.world.network.connect(peer, 1, lambda: Gossip(self))
            except OSError:
                await asyncio.sleep(0.1)
            else:
                return

    def receive(self, data):
        self.received += 1
        self.file.append(data)
        if self.received % 50 == 0:
            self.file.sync()
        chance = self.world.entropy.random("whom")
        chosen = {NAMES[chance.randrange(len(NAMES))] for _ in range(3)}
        for peer in chosen if self.leaking else sorted(chosen):
            if peer in self.peers and len(data) < 6:
                self.peers[peer].write(data + b".")


def run(seed, sink, leaking):
    with sealed(Simulation(seed)) as simulation:
        simulation.loop.trace.sink = sink
        machines = [simulation.add_machine(name, f"10.0.0.{rank}", rank) for rank, name in enumerate(NAMES, 1)]

        def begin(machine):
            machine.start(lambda world: Node(world, machine.name, leaking).main())

        async def harness():
            for machine in machines:
                begin(machine)
            await asyncio.sleep(1)
            machines[0].kill()
            network = simulation.network
            network.cut([(machines[1].host, machines[2].host)], CutMode.HOLD)
            await asyncio.sleep(1)
            begin(machines[0])
            machines[3].power_fail()
            network.heal([(machines[1].host, machines[2].host)])
            await asyncio.sleep(1)
            machines[3].power_on()
            begin(machines[3])

        simulation.run(harness())
        simulation.loop.run_for(NS_PER_S + NS_PER_MS)
        return Fingerprint(simulation.loop.trace_hash(), simulation.loop.event_count)


def orderly(seed, sink):
    return run(seed, sink, leaking=False)


def leaking(seed, sink):
    return run(seed, sink, leaking=True)
