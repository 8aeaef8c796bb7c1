"""How a cluster is put together: what has to be there before its nodes are, and what is left of it when one cannot be started."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from tribunal.clusters.api import ClusterError, ClusterSpec, Proof
from tribunal.clusters.assembly import launched, replog_cluster
from tribunal.clusters.clock import RunClock
from tribunal.clusters.composed_cluster import CAPABILITIES
from tribunal.clusters.kinds.containers import ContainerAddresses, Containers
from tribunal.clusters.links.relays import Links
from tribunal.clusters.loopback import Loopback
from tribunal.clusters.nodes.node_program import ReplogProgram
from tribunal.clusters.run_context import RunContext

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
TURNS = 50  # of the event loop that a start takes: more than closing has before it kills


class NoProcess:
    """A node that takes its time to start; the first one cannot be started."""

    pid = None

    def __init__(self, node, killing):
        self.node = node
        self.alive = False
        self._killing = killing

    async def spawn(self):
        if self.node == 101:
            raise ClusterError("no process for node 101")
        for _ in range(TURNS):
            await asyncio.sleep(0)
        self.alive = True

    async def kill(self):
        self._killing.set()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        self.alive = False
        return Proof(holds=True, facts={"pid": None})


class SlowStarts(Loopback):
    """Loopback addresses, and no processes."""

    def __init__(self):
        super().__init__()
        self.processes = []
        self.killing = asyncio.Event()

    def node(self, node, program, config, log, on_exit):
        self.processes.append(NoProcess(node, self.killing))
        return self.processes[-1]


async def one_cannot_start(folder):
    run, environment = RunContext(ClusterSpec(), folder, RunClock(), CLUSTER_ID), SlowStarts()

    with pytest.raises(ClusterError, match="no process for node 101"):
        await launched(
            run,
            environment,
            lambda links: replog_cluster(run, environment, links, kind="processes", capabilities=CAPABILITIES),
        )

    for _ in range(2 * TURNS):
        await asyncio.sleep(0)
    assert [process.node for process in environment.processes if process.alive] == []


def test_nodes_that_start_while_another_cannot_are_not_left_behind(tmp_path):
    asyncio.run(one_cannot_start(tmp_path))


async def broken_off_while_nothing_is_to_stay(folder):
    run, environment = RunContext(ClusterSpec(), folder, RunClock(), CLUSTER_ID), SlowStarts()
    starting = asyncio.create_task(
        launched(
            run,
            environment,
            lambda links: replog_cluster(run, environment, links, kind="processes", capabilities=CAPABILITIES),
        )
    )
    await environment.killing.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting

    assert [process.node for process in environment.processes if process.alive] == []


def test_who_breaks_off_while_a_failed_start_is_cleared_away_waits_for_it(tmp_path):
    """Ctrl-C: what the loop has left when it is closed is cancelled, and nodes outlived it."""
    asyncio.run(broken_off_while_nothing_is_to_stay(tmp_path))


class Engine:
    """A container engine that only looks which folders are there when it makes a container."""

    api = SimpleNamespace(api_version="1.44")

    def __init__(self):
        self.containers = self
        self.there = {}

    def create(self, image, words, *, volumes, **_):
        self.there |= {path: Path(path).is_dir() for path in volumes}


def test_the_folders_of_a_container_are_there_before_it_is(tmp_path):
    """An engine that finds none makes one, as root, in which the harness of another user cannot write."""
    pytest.importorskip("docker")
    engine, environment = Engine(), Containers()
    environment._client, environment._network = engine, "n"
    environment._links = Links({1: 30_001}, ContainerAddresses("10.213.1", lambda _: None))
    run = RunContext(ClusterSpec(), tmp_path, RunClock(), CLUSTER_ID)

    environment.node(1, ReplogProgram("broker"), run.folder(1) / "node.toml", run.log_file(1), lambda _: None)

    assert engine.there == {str(run.folder(1)): True, str(run.log_file(1).parent): True}
