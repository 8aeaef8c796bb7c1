"""I15 and I16 as figures: what an isolated voter does to its epoch, how long an isolated leader leads, needless elections."""

import asyncio

from replog.quorum.quorum_state import QuorumState
from replog.quorum.roles import Prospective
from tribunal.clusters.api import CutMode, Link
from tribunal.clusters.clock import RunClock
from tribunal.clusters.simulated.cluster import SimulatedCluster
from tribunal.clusters.simulated.running import run_simulated
from tribunal.clusters.spec import ClusterSpec

SPEC = ClusterSpec(brokers=1, controllers=3, replication_factor=1, min_insync_replicas=1)


async def isolated(cluster, node, duration_s):
    others = [other for other in cluster.spec.controller_ids if other != node]
    links = [Link(node, other) for other in others] + [Link(other, node) for other in others]
    await cluster.cut(links, CutMode.HOLD)
    await asyncio.sleep(duration_s)
    await cluster.heal(links)
    await asyncio.sleep(3)


def figures(whom):
    async def main():
        simulation = asyncio.get_running_loop().owner
        cluster = SimulatedCluster(SPEC, simulation, RunClock(), "6f4e1e0e-0000-4000-8000-000000000001")
        await cluster.open()
        leader = cluster.state.quorum_leader
        follower = next(node for node in SPEC.controller_ids if node != leader)
        await isolated(cluster, leader if whom == "leader" else follower, 4)
        await cluster.shut_down()
        return cluster.watch.stability

    return run_simulated(3, main)[0]


def test_an_isolated_follower_keeps_its_epoch():
    stability = figures("follower")

    assert stability.isolated_epoch_growth == 0
    assert stability.needless_elections == 0


def test_an_isolated_leader_resigns_in_time():
    stability = figures("leader")

    fetch_timeout_ms = SPEC.timeout_ms("controller.quorum.fetch.timeout.ms")
    assert fetch_timeout_ms <= stability.isolated_leader_ms <= 1.5 * fetch_timeout_ms + 300
    assert stability.needless_elections == 0


def test_without_prevotes_the_epoch_grows_and_the_return_forces_an_election(monkeypatch):
    strict = QuorumState.become_prospective

    def become_prospective(self, now_ms):
        strict(self, now_ms)
        if isinstance(self.role, Prospective):
            self.role.ballot.waive()

    monkeypatch.setattr(QuorumState, "become_prospective", become_prospective)
    stability = figures("follower")

    assert stability.isolated_epoch_growth > 2
    assert stability.needless_elections > 0
