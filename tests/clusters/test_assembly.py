"""How a cluster is put together, and what is left of it when one of its nodes cannot be started."""

import asyncio

import pytest

from tribunal.clusters.api import ClusterError, ClusterSpec, Proof
from tribunal.clusters.assembly import launched, replog_cluster
from tribunal.clusters.clock import RunClock
from tribunal.clusters.kinds.processes import CAPABILITIES
from tribunal.clusters.loopback import Loopback
from tribunal.clusters.run_context import RunContext

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
TURNS = 5  # of the event loop that a start takes


class Life:
    """A node that takes its time to start; the first one cannot be started."""

    pid = None

    def __init__(self, node):
        self.node = node
        self.alive = False

    async def spawn(self):
        if self.node == 101:
            raise ClusterError("no process for node 101")
        for _ in range(TURNS):
            await asyncio.sleep(0)
        self.alive = True

    async def kill(self):
        self.alive = False
        return Proof(holds=True, facts={"pid": None})


class SlowStarts(Loopback):
    """Loopback addresses, and no processes."""

    def __init__(self):
        super().__init__()
        self.lives = []

    def node(self, node, program, config, log, on_exit):
        self.lives.append(Life(node))
        return self.lives[-1]


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
    assert [life.node for life in environment.lives if life.alive] == []


def test_nodes_that_start_while_another_cannot_are_not_left_behind(tmp_path):
    asyncio.run(one_cannot_start(tmp_path))
