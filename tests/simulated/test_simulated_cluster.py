"""The unchanged nodes of replog in the simulated world: they serve, survive, and do it alike every time."""

import asyncio
from pathlib import Path

import pytest

from replog.wire.apis import Api
from tests.simulated.cluster_program import NOWHERE, Trial, chaos, leader
from tribunal.clusters.api import ClusterError, CutMode, Link
from tribunal.clusters.capabilities import Fate, FrameRule, Shape
from tribunal.clusters.clock import RunClock
from tribunal.clusters.kinds.simulated import launch
from tribunal.clusters.simulated.determinism import difference
from tribunal.clusters.simulated.running import run_simulated
from tribunal.clusters.spec import ClusterSpec
from tribunal.nemesis.faults.pause import FAULT as PAUSE


async def nothing(cluster):
    await asyncio.sleep(2)


def test_a_quiet_cluster_keeps_everything():
    trial = Trial(1).run(nothing)

    assert len(trial.acknowledged()) > 100
    assert trial.lost() == trial.lost(acks=1) == []
    assert trial.unread == []
    assert {row["outcome"] for row in trial.rows.of("sends")} == {"ok", "sent"}


def test_chaos_loses_nothing_that_acks_all_acknowledged():
    trial = Trial(2).run(chaos)

    assert len(trial.acknowledged()) > 100
    assert trial.lost() == []
    assert trial.unread == []


def test_a_killed_leader_is_replaced_after_its_session():
    async def scenario(cluster):
        victim = leader(cluster)
        proof = await cluster.kill(victim)
        assert proof.holds
        await asyncio.sleep(3)
        assert leader(cluster) not in (victim, -1)
        await cluster.start(victim)

    Trial(3).run(scenario)


def test_a_wiped_follower_is_filled_again():
    async def scenario(cluster):
        victim = next(node for node in cluster.spec.broker_ids if node != leader(cluster))
        await cluster.kill(victim)
        proof = await cluster.wipe(victim)
        assert proof.holds, proof.facts
        await cluster.start(victim)

    trial = Trial(4).run(scenario)

    assert trial.lost() == []


def test_a_paused_leader_comes_back_deposed():
    async def scenario(cluster):
        victim = leader(cluster)
        assert (await cluster.pause(victim)).holds
        await asyncio.sleep(4)
        assert leader(cluster) != victim
        assert (await cluster.resume(victim)).holds

    assert Trial(5).run(scenario).lost() == []


def test_a_link_that_two_faults_slow_is_quick_when_both_have_healed():
    """The first one to heal made it quick for the other, too."""
    delays_ns = []

    async def main():
        cluster = await launch(ClusterSpec(), NOWHERE, RunClock(), "slow")
        links = [Link(1, 2)]
        (pair,) = cluster.pairs(links)
        link = cluster.simulation.network.link(*pair)
        for shape in (Shape(), Shape(delay_ms=50), Shape(delay_ms=150), Shape(), Shape()):
            assert (await cluster.shape(links, shape)).holds
            delays_ns.append(link.latency_ns)
        await cluster.close()

    run_simulated(1, main)

    natural_ns = delays_ns[0]
    assert [each - natural_ns for each in delays_ns[1:]] == [50_000_000, 150_000_000, 150_000_000, 0]


def test_a_broker_stops_in_good_order_and_hands_over():
    async def scenario(cluster):
        victim = leader(cluster)
        await cluster.stop(victim)
        assert leader(cluster) not in (victim, -1)
        assert cluster.machine(victim).disk.exists("/data/.kafka_cleanshutdown")
        await cluster.start(victim)

    trial = Trial(6).run(scenario)

    assert trial.lost() == trial.lost(acks=1) == []


def test_power_loss_of_all_brokers_at_once_is_survived_with_flushes():
    async def scenario(cluster):
        for node in cluster.spec.broker_ids:
            await cluster.power_fail(node)
        await asyncio.sleep(1)
        for node in cluster.spec.broker_ids:
            await cluster.start(node)

    spec = ClusterSpec(settings={"log.flush.interval.messages": 1})

    assert Trial(7, spec).run(scenario).lost() == []


def test_held_alter_partition_requests_do_no_harm():
    async def scenario(cluster):
        rule = cluster.add_rule(FrameRule(fate=Fate.HELD, api=Api.ALTER_PARTITION))
        victim = next(node for node in cluster.spec.broker_ids if node != leader(cluster))
        await cluster.kill(victim)
        await asyncio.sleep(3)
        await cluster.wipe(victim)
        await cluster.start(victim)
        await asyncio.sleep(3)
        assert rule.hit_count > 0
        cluster.remove_rule(rule)

    assert Trial(8).run(scenario).lost() == []


@pytest.mark.parametrize("ends", [True, False])
def test_what_another_fault_has_ended_is_stopped_no_more(ends):
    """It counted as not healed, by a proof that said that it ran (7 of 19 inconclusive runs of a search)."""

    async def scenario(cluster):
        victim = next(node for node in cluster.spec.controller_ids if node != cluster.state.quorum_leader)
        async with PAUSE.inject(cluster, victim, PAUSE.options()) as effect:
            if ends:
                await cluster.kill(victim)
                asyncio.get_running_loop().call_later(1, lambda: asyncio.ensure_future(cluster.start(victim)))

        service = {"serves": True}
        assert effect.heal.holds
        assert effect.heal.facts == {"state": "ended" if ends else "running", "service": {"holds": True} | service}

    Trial(9).run(scenario)


def test_a_cut_controller_is_replaced():
    async def scenario(cluster):
        active = cluster.state.quorum_leader
        links = [Link(active, other) for other in cluster.spec.node_ids if other != active]
        assert (await cluster.cut(links, CutMode.DROP)).holds
        await asyncio.sleep(4)
        assert cluster.state.quorum_leader != active
        assert (await cluster.heal(links)).holds

    Trial(9).run(scenario)


def test_a_link_that_two_faults_cut_passes_when_both_have_healed():
    async def scenario(cluster):
        around, single = [Link(1, 2), Link(1, 3)], [Link(1, 2)]
        await cluster.cut(around, CutMode.HOLD)
        await cluster.cut(single, CutMode.HOLD)
        assert (await cluster.heal(around)).holds
        is_cut = {link: cluster.simulation.network.link(*cluster.pairs([link])[0]).cut is not None for link in around}
        assert is_cut == {Link(1, 2): True, Link(1, 3): False}
        assert (await cluster.heal(single)).holds
        assert cluster.simulation.network.link(*cluster.pairs(single)[0]).cut is None

    Trial(9).run(scenario)


def test_clients_are_cut_together():
    async def scenario(cluster):
        victim = leader(cluster)
        await cluster.cut([Link(0, victim)], CutMode.RESET)
        await asyncio.sleep(1)
        await cluster.heal([Link(0, victim)])

    assert Trial(10).run(scenario).lost() == []


def test_clocks_may_drift_and_jump():
    async def scenario(cluster):
        for node in cluster.spec.node_ids:
            machine = cluster.machine(node)
            machine.clock.set_drift((node % 3 - 1) * 50_000_000, cluster.simulation.loop.now_ns)
            machine.wall_offset_ms = (node % 5 - 2) * 3_600_000
        await asyncio.sleep(5)

    assert Trial(11).run(scenario).lost() == []


@pytest.mark.parametrize("seed", [1, 2])
def test_a_cluster_under_chaos_repeats_itself(seed):
    assert difference("tests.simulated.cluster_program:under_chaos", seed) is None


def test_outside_of_a_simulation_there_is_no_simulated_cluster():
    from tribunal.clusters.clock import RunClock
    from tribunal.clusters.kinds.simulated import launch

    with pytest.raises(ClusterError, match="inside a simulation"):
        asyncio.run(launch(ClusterSpec(), Path(), RunClock(), "x"))
