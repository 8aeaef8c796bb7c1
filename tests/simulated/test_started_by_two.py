"""Two faults may have one node down: one stops it, the other kills it before it has ended. Each starts it again, and it runs once."""

import asyncio

from tests.scenarios.three_brokers import reaches, run


def test_a_node_that_was_killed_while_it_was_being_stopped_is_started_once():
    """M49 by search, 1 December 2026: two of 124 runs ended as ERROR, by an assertion of the simulator."""
    incarnations = []

    async def scenario(cluster):
        machine = cluster.machine(1)
        incarnations.append(machine.incarnations)
        stopping = asyncio.create_task(cluster.stop(1))
        await asyncio.sleep(0.001)
        assert machine.running
        await cluster.kill(1)
        await stopping
        await cluster.start(1)
        incarnations.append(machine.incarnations)
        await cluster.start(1)
        incarnations.append(machine.incarnations)
        await reaches(cluster, "1 is back", lambda: not cluster.state.brokers[1].fenced)

    run(1, scenario)

    assert [one - incarnations[0] for one in incarnations] == [0, 1, 1]
