"""Links that are slow, lossy, narrow, reset, half-open; single messages delayed, dropped, doubled, held: on real sockets."""

import asyncio
import itertools
import os
import struct
from contextlib import asynccontextmanager, suppress

import pytest

from tribunal.clusters.api import Link
from tribunal.clusters.capabilities import Fate, FrameRule, Shape
from tribunal.clusters.links.link_faults import LinkFaults
from tribunal.clusters.links.relays import Links, node_host

PORTS = itertools.count(17500 + os.getpid() % 2000)
BOTH = [Link(1, 2), Link(2, 1)]
FETCH, PRODUCE = 1, 0


class Node:
    """Answers every request with its correlation id, and remembers which came."""

    def __init__(self):
        self.asked = []

    async def serve(self, reader, writer):
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                (length,) = struct.unpack(">i", await reader.readexactly(4))
                body = await reader.readexactly(length)
                api, _, correlation_id = struct.unpack(">hhi", body[:8])
                self.asked.append((api, correlation_id))
                writer.write(struct.pack(">ii", 4, correlation_id))
                await writer.drain()
        writer.close()


@asynccontextmanager
async def two_nodes():
    port = next(PORTS)
    faults = LinkFaults(Links({1: port, 2: port}))
    await faults.links.open()
    nodes = {node: Node() for node in (1, 2)}
    servers = [await asyncio.start_server(nodes[node].serve, node_host(node), port) for node in nodes]
    sock = await faults.links.addresses.connect_as(1, faults.links.advertised(2))
    caller = Caller(*await asyncio.open_connection(sock=sock))
    await caller.ask(PRODUCE, 0)
    nodes[2].asked.clear()
    try:
        yield faults, nodes, caller
    finally:
        caller.writer.transport.abort()
        await faults.links.close()
        for server in servers:
            server.close()
        await asyncio.sleep(0.01)


class Caller:
    """Node 1, calling node 2."""

    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer

    def say(self, api, correlation_id):
        self.writer.write(struct.pack(">ihhi", 8, api, 1, correlation_id))

    async def receive(self, wait=1.0):
        async with asyncio.timeout(wait):
            return struct.unpack(">ii", await self.reader.readexactly(8))[1]

    async def ask(self, api, correlation_id):
        self.say(api, correlation_id)
        return await self.receive()


async def slow():
    async with two_nodes() as (faults, _, caller):
        proof = await faults.shape(BOTH, Shape(delay_ms=30, jitter_ms=5))

        assert proof.holds
        began = asyncio.get_running_loop().time()
        await caller.ask(FETCH, 1)
        assert asyncio.get_running_loop().time() - began >= 0.050
        assert (await faults.shape(BOTH, Shape())).holds
        assert proof.facts["round_trips_before"][0]["most_ms"] < 25


async def lossy():
    async with two_nodes() as (faults, _, caller):
        proof = await faults.shape(BOTH, Shape(loss=0.3))

        assert proof.holds
        assert proof.facts["lost"] > 0
        assert await caller.ask(FETCH, 1) == 1
        assert (await faults.shape(BOTH, Shape())).holds


async def lossy_without_a_loss_after_one_with():
    async with two_nodes() as (faults, _, _caller):
        assert (await faults.shape(BOTH, Shape(loss=0.3))).holds
        await faults.shape(BOTH, Shape())

        again = await faults.shape(BOTH, Shape(loss=1e-12))

        assert not again.holds
        assert again.facts["lost"] == 0


async def slow_for_two_faults():
    async with two_nodes() as (faults, _, caller):
        await faults.shape(BOTH, Shape(delay_ms=50))
        await faults.shape([Link(1, 2)], Shape(delay_ms=150))
        assert (await faults.shape(BOTH, Shape())).holds

        began = asyncio.get_running_loop().time()
        await caller.ask(FETCH, 1)
        assert asyncio.get_running_loop().time() - began >= 0.140
        assert not faults.links.is_shaped(Link(2, 1))

        assert (await faults.shape([Link(1, 2)], Shape())).holds
        began = asyncio.get_running_loop().time()
        await caller.ask(FETCH, 2)
        assert asyncio.get_running_loop().time() - began < 0.1


async def narrow():
    async with two_nodes() as (faults, _, _caller):
        proof = await faults.shape([Link(1, 2)], Shape(bytes_per_s=50_000))

        assert proof.holds
        assert proof.facts["round_trips_after"][0]["least_ms"] >= 0.8 * 1000 * proof.facts["probe_bytes"] / 50_000
        assert (await faults.shape([Link(1, 2)], Shape())).holds


async def a_slow_link_that_is_cut_delivers_after_the_heal():
    async with two_nodes() as (faults, nodes, caller):
        await faults.links.set_shape(BOTH, Shape(delay_ms=400))
        caller.say(FETCH, 1)
        await asyncio.sleep(0.01)
        faults.links.cuts |= dict.fromkeys(BOTH, "hold")
        faults.links.apply_hindrances()
        await asyncio.sleep(0.5)
        assert nodes[2].asked == []

        faults.links.cuts.clear()
        faults.links.apply_hindrances()

        assert await caller.receive() == 1


async def reset_once():
    async with two_nodes() as (faults, _, caller):
        proof = await faults.reset(BOTH)

        assert proof.holds
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await caller.receive()
        assert (await faults.links.passing(BOTH, {})).holds


async def half_open():
    async with two_nodes() as (faults, nodes, caller):
        proof = await faults.half_open([Link(1, 2)])

        assert proof.facts == {"forgotten": 1, "believed_in": 1}
        caller.say(FETCH, 1)
        with pytest.raises(TimeoutError):
            await caller.receive(0.1)
        assert nodes[2].asked == []
        assert (await faults.close_half_open([Link(1, 2)])).holds
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await caller.receive()


async def what_another_fault_has_left_half_open_is_no_proof():
    async with two_nodes() as (faults, _, _caller):
        assert (await faults.half_open([Link(1, 2)])).holds

        again = await faults.half_open([Link(1, 2)])

        assert again.facts == {"forgotten": 0, "believed_in": 0}
        assert not again.holds


async def half_open_without_connections_is_no_proof():
    async with two_nodes() as (faults, _, _caller):
        assert not (await faults.half_open([Link(0, 1)])).holds


async def dropped_by_api():
    async with two_nodes() as (faults, nodes, caller):
        rule = faults.add_rule(FrameRule(fate=Fate.DROPPED, api=FETCH))
        caller.say(FETCH, 1)

        assert await caller.ask(PRODUCE, 2) == 2
        assert nodes[2].asked == [(PRODUCE, 2)]
        assert rule.hit_count == 1
        faults.remove_rule(rule)
        assert await caller.ask(FETCH, 3) == 3


async def an_answer_is_dropped():
    async with two_nodes() as (faults, nodes, caller):
        faults.add_rule(FrameRule(fate=Fate.DROPPED, api=FETCH, direction="response", source=2))
        caller.say(FETCH, 1)

        assert await caller.ask(PRODUCE, 2) == 2
        assert nodes[2].asked == [(FETCH, 1), (PRODUCE, 2)]


async def doubled():
    async with two_nodes() as (faults, nodes, caller):
        faults.add_rule(FrameRule(fate=Fate.DUPLICATED, api=FETCH, limit=1))
        caller.say(FETCH, 1)
        caller.say(PRODUCE, 2)

        assert [await caller.receive(), await caller.receive()] == [1, 2]
        assert nodes[2].asked == [(FETCH, 1), (FETCH, 1), (PRODUCE, 2)]


async def held_and_overtaken():
    async with two_nodes() as (faults, nodes, caller):
        rule = faults.add_rule(FrameRule(fate=Fate.HELD, api=FETCH, overtaking=True))
        caller.say(FETCH, 1)

        assert await caller.ask(PRODUCE, 2) == 2
        assert (rule.held_count, nodes[2].asked) == (1, [(PRODUCE, 2)])
        assert faults.release(rule) == 1
        assert await caller.receive() == 1


async def held_arrives_after_its_sender_died():
    async with two_nodes() as (faults, nodes, caller):
        rule = faults.add_rule(FrameRule(fate=Fate.HELD, api=FETCH))
        caller.say(FETCH, 1)
        await caller.writer.drain()
        await asyncio.sleep(0.05)
        caller.writer.close()
        await asyncio.sleep(0.05)
        assert nodes[2].asked == []

        faults.remove_rule(rule)
        await asyncio.sleep(0.05)

        assert nodes[2].asked == [(FETCH, 1)]


async def delayed_by_api():
    async with two_nodes() as (faults, _, caller):
        faults.add_rule(FrameRule(fate=Fate.DELAYED, api=FETCH, delay_ms=80))
        loop = asyncio.get_running_loop()
        began = loop.time()
        await caller.ask(PRODUCE, 1)
        assert loop.time() - began < 0.07
        await caller.ask(FETCH, 2)
        assert loop.time() - began >= 0.08


@pytest.mark.parametrize(
    "story",
    [
        slow,
        lossy,
        lossy_without_a_loss_after_one_with,
        slow_for_two_faults,
        narrow,
        a_slow_link_that_is_cut_delivers_after_the_heal,
        reset_once,
        half_open,
        half_open_without_connections_is_no_proof,
        what_another_fault_has_left_half_open_is_no_proof,
        dropped_by_api,
        an_answer_is_dropped,
        doubled,
        held_and_overtaken,
        held_arrives_after_its_sender_died,
        delayed_by_api,
    ],
    ids=lambda story: story.__name__,
)
def test_a_hindered_link(story):
    asyncio.run(asyncio.wait_for(story(), 15))
