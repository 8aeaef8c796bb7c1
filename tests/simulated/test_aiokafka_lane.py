"""Foreign asyncio clients inside the simulator: aiokafka as it is, and what the loop refuses them."""

import asyncio
import socket

import pytest

from tribunal.clusters.simulated.determinism import difference
from tribunal.clusters.simulated.loop import Refused

HASH_SEED = 7  # aiokafka iterates over sets of strings


@pytest.mark.parametrize("seed", [1, 4])
def test_aiokafka_produces_and_consumes_across_a_leaders_death_the_same_in_every_run(seed):
    """All records acknowledged and received exactly once (the program asserts it), twice the same."""
    assert difference("tests.simulated.aiokafka_program:run", seed, hash_seed=HASH_SEED) is None


def test_the_loop_connects_by_name_and_says_what_a_name_leads_to(simulation, server, client):
    lines = []

    async def serve(world):
        await world.network.listen("10.0.0.1", 9092, asyncio.Protocol)
        await asyncio.get_running_loop().create_future()

    async def dial(world):
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(asyncio.Protocol, "server", 9092)
        lines.append(transport.get_extra_info("peername"))
        lines.extend(await loop.getaddrinfo("server", 9092))

    server.start(serve)
    client.start(dial)
    simulation.loop.run_for(50_000_000)

    assert lines == [
        ("10.0.0.1", 9092),
        (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("10.0.0.1", 9092)),
    ]


@pytest.mark.parametrize("option", ["ssl", "local_addr", "sock"])
def test_a_connection_that_would_be_real_is_refused_with_its_place(simulation, client, option):
    async def dial(world):
        await asyncio.get_running_loop().create_connection(asyncio.Protocol, "server", 9092, **{option: True})

    client.start(dial)

    with pytest.raises(Refused, match=rf"create_connection.*{option}.*test_aiokafka_lane.py:\d+ in .*dial"):
        simulation.loop.run_for(50_000_000)
