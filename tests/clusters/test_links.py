"""The link relay on real sockets: it passes, cuts, proves, heals."""

import asyncio
import itertools
import os
import socket
import struct
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial

import pytest
import uvloop

from tribunal.clusters.api import CLIENTS, CutMode, Link
from tribunal.clusters.links.relays import CLIENT_HOST, Links, caller_of, link_host, node_host

PORTS = itertools.count(12000 + os.getpid() % 5000)
API_VERSIONS = struct.pack(">h", 18)


async def answer_kafka_frames(reader, writer, after_s=0.0):
    """Answer every frame with its own bytes, as a node answers requests."""
    with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
        while True:
            (length,) = struct.unpack(">i", await reader.readexactly(4))
            body = await reader.readexactly(length)
            if body[:2] == API_VERSIONS:
                body = body[4:]  # an answer begins with the correlation id
            await asyncio.sleep(after_s)
            writer.write(struct.pack(">i", len(body)) + body)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def two_nodes(after_s=0.0):
    """Two nodes behind their relays, which answer so many seconds after they were asked."""
    port = next(PORTS)
    links = Links({1: port, 2: port})
    await links.open()
    answer = partial(answer_kafka_frames, after_s=after_s)
    servers = [await asyncio.start_server(answer, node_host(node), port) for node in (1, 2)]
    try:
        yield links
    finally:
        await links.close()
        for server in servers:
            server.close()
        await asyncio.sleep(0.01)


async def connect(links, source, target):
    host = CLIENT_HOST if source == CLIENTS else node_host(source)
    return await asyncio.open_connection(*links.advertised(target), local_addr=(host, 0))


async def ask(connection, word=b"hello", wait=1.0):
    reader, writer = connection
    writer.write(struct.pack(">i", len(word)) + word)
    return await answer(reader, wait)


async def answer(reader, wait=1.0):
    async with asyncio.timeout(wait):
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        return await reader.readexactly(length)


def both_ways(a, b):
    return [Link(a, b), Link(b, a)]


async def connect_from(port, links, target):
    """Connect from a port that another connection may have, as the system lets clients do."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setblocking(False)
    sock.bind((CLIENT_HOST, port))
    await asyncio.get_running_loop().sock_connect(sock, links.advertised(target))
    return await asyncio.open_connection(sock=sock), sock.getsockname()[1]


@pytest.mark.parametrize("closed", [1, 2])
def test_one_port_may_lead_to_two_nodes(closed):
    """Once a client had the same port on its way to another node, a connection was neither reset nor closed in the end."""

    async def scenario():
        async with two_nodes() as links:
            first, port = await connect_from(0, links, 1)
            second, _ = await connect_from(port, links, 2)
            assert await ask(first) == await ask(second) == b"hello"
            gone, left = (first, second) if closed == 1 else (second, first)
            gone[1].close()
            await asyncio.sleep(0.05)
            assert len(links.relays) == 1
            await links.sever([Link(CLIENTS, 3 - closed)], CutMode.RESET)
            await asyncio.sleep(0.05)
            with pytest.raises(ConnectionResetError):
                await ask(left)
            left[1].close()

    asyncio.run(scenario())


def test_callers_are_known_by_their_address():
    assert caller_of("127.0.1.103") == 103
    assert caller_of("127.0.0.1") == CLIENTS
    assert link_host(7) == "127.0.2.7"


async def passes_and_counts():
    async with two_nodes() as links:
        connection = await connect(links, 1, 2)

        assert await ask(connection) == b"hello"
        assert links.traffic(Link(1, 2)).delivered_bytes == 9
        assert links.traffic(Link(2, 1)).delivered_bytes == 9
        assert links.traffic(Link(1, 2)).connections == 1
        connection[1].close()


async def holds_and_delivers_late():
    async with two_nodes() as links:
        connection = await connect(links, 1, 2)
        await ask(connection)

        proof = await links.cut(both_ways(1, 2), CutMode.HOLD)

        assert proof.holds
        assert [probe["answered"] for probe in proof.facts["probes_before"]] == [3, 3]
        assert [probe["delivered"] for probe in proof.facts["probes_after"]] == [0, 0]
        with pytest.raises(TimeoutError):
            await ask(connection, b"late", wait=0.1)
        assert links.traffic(Link(1, 2)).stopped_bytes >= 8

        healed = await links.heal(both_ways(1, 2))

        assert healed.holds
        assert await answer(connection[0]) == b"late"
        connection[1].close()


async def what_answers_late_is_waited_for_and_answers_nothing_else():
    """On a busy machine the probes from before the cut are answered after it."""
    async with two_nodes(after_s=0.55) as links:
        proof = await links.cut(both_ways(1, 2), CutMode.HOLD)

        assert proof.holds
        assert [probe["answered"] for probe in proof.facts["probes_before"]] == [3, 3]
        assert [probe["answered"] for probe in proof.facts["probes_after"]] == [0, 0]


async def other_links_stay_whole():
    async with two_nodes() as links:
        await links.cut(both_ways(1, 2), CutMode.HOLD)

        client = await connect(links, CLIENTS, 2)

        assert await ask(client) == b"hello"
        client[1].close()


async def one_way():
    async with two_nodes() as links:
        connection = await connect(links, 1, 2)
        await ask(connection)

        proof = await links.cut([Link(2, 1)], CutMode.HOLD)

        assert proof.holds
        with pytest.raises(TimeoutError):
            await ask(connection, b"there", wait=0.1)
        assert links.traffic(Link(1, 2)).delivered_bytes >= 9 + 9  # the request arrived, its answer did not
        assert (await links.heal([Link(2, 1)])).holds
        assert await answer(connection[0]) == b"there"
        connection[1].close()


async def drops_and_resets_what_lost_bytes():
    async with two_nodes() as links:
        torn, idle = await connect(links, 1, 2), await connect(links, 1, 2)
        await ask(torn)
        await ask(idle)
        await links.cut(both_ways(1, 2), CutMode.DROP)
        with pytest.raises(TimeoutError):
            await ask(torn, b"lost", wait=0.1)

        await links.heal(both_ways(1, 2))

        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await answer(torn[0])
        assert await ask(idle) == b"hello"
        idle[1].close()


async def resets_at_once():
    async with two_nodes() as links:
        connection = await connect(links, 1, 2)
        await ask(connection)

        proof = await links.cut(both_ways(1, 2), CutMode.RESET)

        assert proof.holds
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await answer(connection[0])
        fresh = await connect(links, 1, 2)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await ask(fresh)
        assert (await links.heal(both_ways(1, 2))).holds


async def end_of_stream_waits_behind_a_cut():
    async with two_nodes() as links:
        connection = await connect(links, 1, 2)
        await ask(connection)
        await links.cut(both_ways(1, 2), CutMode.HOLD)
        connection[1].write(struct.pack(">i", 4) + b"last")
        connection[1].close()
        await asyncio.sleep(0.05)
        delivered = links.traffic(Link(1, 2)).delivered_bytes

        await links.heal(both_ways(1, 2))

        assert links.traffic(Link(1, 2)).delivered_bytes >= delivered + 8


async def a_cut_around_a_dead_node_is_no_proof():
    port = next(PORTS)
    links = Links({1: port, 2: port})
    await links.open()

    proof = await links.cut(both_ways(1, 2), CutMode.HOLD)

    assert not proof.holds
    await links.close()


async def a_taken_port_leaves_nothing_open():
    port = next(PORTS)
    taken = await asyncio.start_server(answer_kafka_frames, link_host(2), port)
    links = Links({1: port, 2: port})

    with pytest.raises(OSError, match="address already in use"):
        await links.open()

    again = await asyncio.start_server(answer_kafka_frames, link_host(1), port)
    again.close()
    taken.close()


async def clients_are_cut_together():
    async with two_nodes() as links:
        proof = await links.cut(both_ways(CLIENTS, 1), CutMode.HOLD)

        assert proof.holds
        assert (await links.heal(both_ways(CLIENTS, 1))).holds


async def a_link_that_two_faults_cut_passes_when_both_have_healed():
    async with two_nodes() as links:
        connection = await connect(links, 1, 2)
        assert (await links.cut(both_ways(1, 2), CutMode.HOLD)).holds
        await links.cut([Link(1, 2)], CutMode.HOLD)

        first = await links.heal(both_ways(1, 2))

        assert first.holds
        assert first.facts["cut_by_others"] == ["1->2", "2->1"]
        with pytest.raises(TimeoutError):
            await ask(connection, wait=0.1)
        assert (await links.heal([Link(1, 2)])).holds
        assert await answer(connection[0]) == b"hello"
        connection[1].close()


async def closing_hangs_up_on_who_is_being_accepted(turns):
    port = next(PORTS)
    links = Links({1: port})
    await links.open()
    with ExitStack() as stack:
        callers = [stack.enter_context(socket.create_connection(links.advertised(1))) for _ in range(3)]
        for _ in range(turns):
            await asyncio.sleep(0)

        await links.close()

        for caller in callers:
            caller.settimeout(1)
            with suppress(ConnectionResetError):
                assert caller.recv(1) == b""


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_closing_hangs_up_on_who_is_being_accepted(loop, turns):
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(closing_hangs_up_on_who_is_being_accepted(turns))


@pytest.mark.parametrize(
    "story",
    [
        passes_and_counts,
        holds_and_delivers_late,
        what_answers_late_is_waited_for_and_answers_nothing_else,
        other_links_stay_whole,
        one_way,
        drops_and_resets_what_lost_bytes,
        resets_at_once,
        end_of_stream_waits_behind_a_cut,
        a_cut_around_a_dead_node_is_no_proof,
        a_taken_port_leaves_nothing_open,
        clients_are_cut_together,
        a_link_that_two_faults_cut_passes_when_both_have_healed,
    ],
    ids=lambda story: story.__name__,
)
def test_a_link(story):
    asyncio.run(asyncio.wait_for(story(), 10))
