"""Network namespaces for real: packets vanish and pass again, nothing needs root, nothing is left, and one can do without."""

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clusters.test_links import answer_kafka_frames, ask, both_ways
from tribunal.clusters.api import CLIENTS, ClusterError, ClusterSpec, CutMode, Link
from tribunal.clusters.capabilities import Shape
from tribunal.clusters.clock import RunClock
from tribunal.clusters.kinds import processes
from tribunal.clusters.links.relays import Links
from tribunal.clusters.namespaces import spaces as namespaces
from tribunal.clusters.namespaces.firewall import Firewall
from tribunal.clusters.namespaces.network import NamespaceAddresses, address, connected, device, lay_out
from tribunal.clusters.namespaces.spaces import Namespaces, way_in
from tribunal.clusters.nodes.leftovers import node_processes

ROOT = Path(__file__).parents[2]
IN_NAMESPACES = not isinstance(way_in(), str)
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(60),
    pytest.mark.skipif(not IN_NAMESPACES, reason=str(way_in()) if not IN_NAMESPACES else "there are namespaces"),
]
PORT = 11_000 + os.getpid() % 1000


class Hall:
    """Two nodes that answer, in namespaces."""

    def __init__(self, folder):
        self.spaces = Namespaces(folder)
        self.firewall = None
        self.links = None
        self.servers = []
        self.writers = []

    async def __aenter__(self):
        self.spaces.open()
        lay_out(self.spaces, [1, 2, CLIENTS])
        self.firewall = Firewall(self.spaces, address, device)
        self.firewall.open()
        ports = {1: PORT, 2: PORT}
        self.links = Links(ports, NamespaceAddresses(ports, self.spaces), self.firewall)
        await self.links.open()
        for node in (1, 2):
            sock = self.spaces.listener(str(node), address(node), PORT)
            self.servers.append(await asyncio.start_server(self._answer, sock=sock))
        return self

    async def _answer(self, reader, writer):
        self.writers.append(writer)
        await answer_kafka_frames(reader, writer)

    async def __aexit__(self, *error):
        await self.links.close()
        for server in self.servers:
            server.close()
        for writer in self.writers:  # whose other end may have been cut off when it went
            writer.transport.abort()
        await asyncio.sleep(0.01)
        self.spaces.close()

    async def connection(self, source, target):
        sock = await self.links.addresses.connect_as(source, self.links.advertised(target))
        return await asyncio.open_connection(sock=sock)


async def every_caller_is_known(hall):
    for source in (1, CLIENTS):
        connection = await hall.connection(source, 2)

        assert await ask(connection) == b"hello"
        assert hall.links.traffic(Link(source, 2)).connections == 1
        connection[1].close()


async def packets_vanish_and_come_late(hall):
    connection = await hall.connection(1, 2)
    await ask(connection)

    proof = await hall.links.cut(both_ways(1, 2), CutMode.HOLD)
    with pytest.raises(TimeoutError):
        await ask(connection, b"late", wait=0.3)
    healed = await hall.links.heal(both_ways(1, 2))

    assert proof.holds
    assert proof.facts["by"] == "nftables"
    assert proof.facts["stopped_packets"]["1->2"] > 0
    assert healed.holds
    length = int.from_bytes(await asyncio.wait_for(connection[0].readexactly(4), 20))  # when TCP tries again
    assert await connection[0].readexactly(length) == b"late"
    connection[1].close()


async def one_way_only_that_way(hall):
    proof = await hall.links.cut([Link(2, 1)], CutMode.HOLD)

    assert proof.holds
    assert proof.facts["stopped_packets"] == {"2->1": proof.facts["stopped_packets"]["2->1"]}
    assert hall.firewall.is_cut(Link(2, 1))
    assert not hall.firewall.is_cut(Link(1, 2))
    assert (await hall.links.heal([Link(2, 1)])).holds


async def clients_are_cut_apart_from_nodes(hall):
    proof = await hall.links.cut(both_ways(CLIENTS, 2), CutMode.HOLD)

    assert proof.holds
    assert (await hall.links.passing([Link(1, 2)], {})).holds
    assert (await hall.links.heal(both_ways(CLIENTS, 2))).holds


async def a_refused_connection_is_reset(hall):
    connection = await hall.connection(1, 2)
    await ask(connection)

    proof = await hall.links.cut(both_ways(1, 2), CutMode.RESET)

    assert proof.holds
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await ask(connection)
    with pytest.raises(ConnectionRefusedError):
        await connected(hall.spaces.outgoing("1"), (address(2), PORT), bound_to=None)
    assert (await hall.links.heal(both_ways(1, 2))).holds
    connection[1].close()


async def losses_are_counted_and_end(hall):
    await hall.links.set_shape(both_ways(1, 2), Shape(loss=0.3))
    connection = await hall.connection(1, 2)
    while not await hall.links.losses(both_ways(1, 2)):
        await ask(connection, wait=30)
    await hall.links.set_shape(both_ways(1, 2), Shape())
    assert await hall.links.losses(both_ways(1, 2)) == 0
    connection[1].close()


async def a_narrow_link_is_narrow(hall):
    connection = await hall.connection(1, 2)
    loop = asyncio.get_running_loop()
    await hall.links.set_shape([Link(1, 2)], Shape(bytes_per_s=50_000))
    began_s = loop.time()
    for _ in range(3):
        await ask(connection, b"w" * 10_000)
    narrow_s = loop.time() - began_s
    await hall.links.set_shape([Link(1, 2)], Shape())
    began_s = loop.time()
    await ask(connection, b"w" * 10_000)

    assert narrow_s > 0.25
    assert loop.time() - began_s < 0.1
    assert "htb" not in hall.spaces.run(["tc", "qdisc", "show"])
    connection[1].close()


async def a_partition_takes_less_than_50_ms(hall):
    cuts, heals = [], []
    for _ in range(5):
        cuts.append((await hall.links.cut(both_ways(1, 2), CutMode.HOLD)).facts["applied_ms"])
        heals.append((await hall.links.heal(both_ways(1, 2))).facts["applied_ms"])

    assert statistics.median(cuts) < 50
    assert statistics.median(heals) < 50


STORIES = [
    every_caller_is_known,
    packets_vanish_and_come_late,
    one_way_only_that_way,
    clients_are_cut_apart_from_nodes,
    a_refused_connection_is_reset,
    losses_are_counted_and_end,
    a_narrow_link_is_narrow,
    a_partition_takes_less_than_50_ms,
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_in_namespaces(story, tmp_path):
    async def scenario():
        async with Hall(tmp_path) as hall:
            await story(hall)

    asyncio.run(scenario())

    assert node_processes(tmp_path) == []


def test_the_choice_can_be_forced():
    assert (
        processes.host_environment_for(ClusterSpec(isolation="proxies")).place == "processes, link proxies on loopback"
    )
    assert processes.host_environment_for(ClusterSpec()).place == "processes in network namespaces"
    assert processes.places() == "processes in network namespaces"


def test_where_namespaces_are_forbidden_the_reason_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(namespaces, "way_in", lambda: "no network namespaces: forbidden")
    monkeypatch.setattr(processes, "way_in", lambda: "no network namespaces: forbidden")

    (obstacle,) = processes.obstacles()

    assert obstacle.reason == "no network namespaces: forbidden"
    assert not obstacle.blocks
    assert processes.places() == "processes, link proxies on loopback"
    with pytest.raises(ClusterError, match="forbidden"):
        asyncio.run(processes.launch(ClusterSpec(isolation="namespaces"), tmp_path, RunClock(), "A" * 22))


def test_a_command_reads_and_says_more_than_a_packet_holds(tmp_path):
    """Rules between all pairs of thirty nodes are longer."""
    spaces = Namespaces(tmp_path)
    spaces.open()
    try:
        rules = "rule\n" * (1 << 20)
        assert spaces.run(["cat"], stdin=rules) == rules
        with pytest.raises(ClusterError, match=r"sh -c .*: it is refused"):
            spaces.run(["sh", "-c", "echo it is refused >&2; exit 1"])
        with pytest.raises(OSError, match="No such file"):
            spaces.run(["nonexistent"])
        assert spaces.run(["echo", "goes on"]) == "goes on\n"
    finally:
        spaces.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="we are no root to begin with")
def test_no_root_is_needed(tmp_path):
    """(As nobody, who may read neither root's interpreter nor our folders: the bare commands.)"""
    found = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *namespaces.WITHOUT_ROOT, "sh", "-c",
         namespaces.PROBE],
        check=False, capture_output=True, text=True, env=namespaces.environment(),
    )  # fmt: skip

    assert shutil.which("setpriv")
    assert found.returncode == 0, found.stderr


def test_a_killed_harness_leaves_no_namespace(tmp_path):
    program = (
        "import sys, pathlib, time\n"
        "from tribunal.clusters.namespaces.spaces import Namespaces\n"
        "from tribunal.clusters.namespaces.network import lay_out\n"
        "spaces = Namespaces(pathlib.Path(sys.argv[1]))\n"
        "spaces.open()\n"
        "lay_out(spaces, [1, 2, 0])\n"
        "print(spaces.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    harness = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    with harness:
        keeper = int(harness.stdout.readline())
        assert keeper in node_processes(tmp_path)
        harness.kill()

    for _ in range(100):
        if not node_processes(tmp_path):
            break
        asyncio.run(asyncio.sleep(0.02))
    assert node_processes(tmp_path) == []
