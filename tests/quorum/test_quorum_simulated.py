"""The quorum's shell, unchanged, on simulated machines: power failures, lost unsynced writes, one seed one story."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from replog.config import NodeConfig
from replog.node.net.handlers import Handlers
from replog.node.net.server import Server, ServerLimits
from replog.node.quorum.member import APIS, NotLeading, QuorumNode
from replog.node.quorum.metadata_log import open_metadata_log
from replog.wire.apis import CONTROLLER_APIS
from tests.quorum.quorum_nodes import CLUSTER, StateMachine
from tribunal.clusters.simulated.guard import sealed
from tribunal.clusters.simulated.world import Machine, SimulatedWorld, Simulation

VOTERS = {101: "10.0.0.101", 102: "10.0.0.102", 103: "10.0.0.103"}


def config(node_id: int) -> NodeConfig:
    return NodeConfig(
        {
            "process.roles": "controller",
            "node.id": node_id,
            "cluster.id": CLUSTER,
            "listeners": f"{VOTERS[node_id]}:9093",
            "log.dirs": "data",
            "controller.quorum.voters": ",".join(f"{voter}@{host}:9093" for voter, host in VOTERS.items()),
        }
    )


class Cluster:
    """Three controllers on three machines."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.machines: dict[int, Machine] = {}
        self.nodes: dict[int, QuorumNode] = {}
        self.states: dict[int, StateMachine] = {}
        self.committed: dict[int, bytes] = {}
        for voter, host in VOTERS.items():
            self.machines[voter] = simulation.add_machine(f"controller-{voter}", host, voter)

    def start(self, voter: int) -> None:
        self.machines[voter].start(lambda world: self._main(voter, world))

    async def _main(self, voter: int, world: SimulatedWorld) -> None:
        own, state = config(voter), StateMachine()
        world.disk.make_directory("data")
        world.disk.sync_directory("")
        node = QuorumNode(world, own, open_metadata_log(world, own), state)
        server = Server(world, CONTROLLER_APIS, lambda request: self._handle(node, request), ServerLimits())
        await server.start(own.listener)
        self.nodes[voter], self.states[voter] = node, state
        node.start()
        await asyncio.get_running_loop().create_future()

    @staticmethod
    def _handle(node: QuorumNode, request: Any) -> None:
        handlers = Handlers()
        handlers.serve(APIS, node)
        handlers.by_api[request.api].handle(request)

    def fail(self, voter: int) -> None:
        self.machines[voter].power_fail()
        self.nodes.pop(voter, None)
        self.states.pop(voter, None)

    def restart(self, voter: int) -> None:
        self.machines[voter].power_on()
        self.start(voter)

    def leader(self) -> int | None:
        return next((voter for voter, node in self.nodes.items() if node.is_leading), None)

    async def led(self) -> int:
        for _ in range(3000):
            leader = self.leader()
            if leader is not None:
                return leader
            self.compare()
            await asyncio.sleep(0.01)
        raise AssertionError(f"no leader within 30 s: {[list(one.lines)[-1:] for one in self.machines.values()]}")

    async def append(self, value: bytes) -> None:
        """Append in the leader's own process: what it schedules must die with it."""
        leader = await self.led()
        process = self.machines[leader].process
        assert process is not None
        with_own_identity = process.context.copy()
        try:
            with_own_identity.run(self.nodes[leader].append, [value])
        except NotLeading:
            return

    def compare(self) -> None:
        """Whatever two members were notified of as committed must be the same, for ever."""
        for state in self.states.values():
            for offset, value in state.records:
                assert self.committed.setdefault(offset, value) == value


def play(seed: int, scenario: Callable[[Cluster], Coroutine[Any, Any, None]]) -> Simulation:
    with sealed(Simulation(seed)) as simulation:
        cluster = Cluster(simulation)

        async def main() -> None:
            for voter in VOTERS:
                cluster.start(voter)
            await scenario(cluster)
            cluster.compare()

        simulation.run(main())
        return simulation


async def power_failures(cluster: Cluster) -> None:
    for round_ in range(6):
        for index in range(10):
            await cluster.append(b"%d.%d" % (round_, index))
            await asyncio.sleep(0.003)
        victim = await cluster.led()
        cluster.fail(victim)
        await cluster.led()
        cluster.compare()
        cluster.restart(victim)
        await asyncio.sleep(1)
        cluster.compare()
    await asyncio.sleep(5)
    assert len({len(state.records) for state in cluster.states.values()}) == 1
    assert all(dict(state.records) == cluster.committed for state in cluster.states.values())


@pytest.mark.parametrize("seed", range(3))
def test_power_failures_of_the_leader_lose_nothing_committed(seed: int) -> None:
    play(seed, power_failures)


async def all_lose_power(cluster: Cluster) -> None:
    for index in range(20):
        await cluster.append(b"%d" % index)
        await asyncio.sleep(0.002)
    cluster.compare()
    for voter in VOTERS:
        cluster.fail(voter)
    for voter in VOTERS:
        cluster.restart(voter)
    await asyncio.sleep(10)
    assert cluster.committed
    assert all(
        cluster.committed.items() <= dict(state.records).items() and len(state.records) <= 20
        for state in cluster.states.values()
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_power_failure_of_everybody_loses_nothing_committed(seed: int) -> None:
    play(seed, all_lose_power)


def test_one_seed_gives_one_trace() -> None:
    first, second = (play(7, power_failures) for _ in range(2))

    assert [(event.at_ns, event.name, event.fields) for event in first.events] == [
        (event.at_ns, event.name, event.fields) for event in second.events
    ]
    assert first.loop.event_count == second.loop.event_count
