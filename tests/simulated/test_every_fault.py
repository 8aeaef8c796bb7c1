"""Every fault bites and heals in the simulated world, and what acks=all acknowledged outlives it."""

import asyncio

import pytest

from tests.simulated.cluster_program import Trial, leader
from tribunal.clusters.api import ClusterError
from tribunal.clusters.capabilities import FOREIGN, RELEASED, SECURED, Fate
from tribunal.clusters.simulated.cluster import SimulatedCluster
from tribunal.clusters.spec import ZOOKEEPER, ClusterSpec
from tribunal.harness.catalog import faults
from tribunal.nemesis.messages import Meant, rule

LASTS_S = 2.5
# A killed broker cannot come back within its session: its registration is refused until that has expired (SPEC 2.2).
OPTIONS = {"fast-bounce": {"how": "stop"}}


def voter(cluster):
    """A controller that does not lead."""
    return next(node for node in cluster.spec.controller_ids if node != cluster.state.quorum_leader)


AIM = {"remove-voter": voter}
SPECS = {
    "bit-rot": ClusterSpec(settings={"log.segment.bytes": 2048}),  # only closed segments rot
    "failing-directory": ClusterSpec(log_directories=2),
}
POSSIBLE = {name: fault for name, fault in faults().items() if SimulatedCluster.capabilities >= fault.needs}


def test_the_simulator_can_do_every_fault_of_our_own_software_that_anybody_may_enter():
    assert sorted(POSSIBLE) == sorted(
        name for name, fault in faults().items() if not fault.needs & (SECURED | RELEASED | FOREIGN)
    )


@pytest.mark.parametrize(
    ("name", "victim"), [*((name, AIM.get(name, leader)) for name in sorted(POSSIBLE)), ("wipe", voter)]
)
def test_it_bites_and_heals(name, victim):
    fault, effects = POSSIBLE[name], []

    async def scenario(cluster):
        async with fault.aimed(victim(cluster), fault.options(**OPTIONS.get(name, {})))(cluster) as effect:
            effects.append(effect)
            await asyncio.sleep(LASTS_S)

    spec = ClusterSpec(mode="zookeeper", controllers=1) if fault.modes == (ZOOKEEPER,) else SPECS.get(name)
    trial = Trial(f"fault/{name}", spec).run(scenario)

    assert effects[0].proof.holds, effects[0].proof
    assert effects[0].heal.holds, effects[0].heal
    assert trial.lost() == []
    assert trial.unread == []


def test_the_disk_of_a_controller_is_not_put_back():
    """A voter that has forgotten its vote breaks any quorum: what came of it would be no fault of the system."""
    fault = POSSIBLE["restored-disk"]

    async def scenario(cluster):
        with pytest.raises(ClusterError, match=r"the disk of node 10\d is not put back: a voter"):
            async with fault.aimed(voter(cluster), fault.options())(cluster):
                pass

    assert Trial("fault/restored-disk-of-a-controller").run(scenario).lost() == []


def test_a_vote_is_given_back_once_the_next_leader_knows_the_observer():
    fault, effects = POSSIBLE["remove-voter"], []

    async def scenario(cluster):
        node = cluster.state.quorum_leader
        late = cluster.add_rule(rule(node, Meant(), Fate.DELAYED, delay_ms=900))
        asyncio.get_running_loop().call_later(LASTS_S, cluster.remove_rule, late)
        async with fault.aimed(node, fault.options())(cluster) as effect:
            effects.append(effect)

    Trial("fault/remove-voter-leader").run(scenario)

    assert effects[0].proof.holds, effects[0].proof
    assert effects[0].heal.holds, effects[0].heal


def test_who_has_ended_in_good_order_before_it_is_killed_comes_back_all_the_same():
    """A controller ends within milliseconds where others can take over (wide-swarm 1225626272: the run ended with an error)."""
    fault, effects = POSSIBLE["kill-in-shutdown"], []

    async def scenario(cluster):
        node = cluster.state.quorum_leader
        async with fault.aimed(node, fault.options(after_ms=1500))(cluster) as effect:
            effects.append(effect)

    Trial("fault/ended-in-shutdown").run(scenario)

    assert not effects[0].proof.holds
    assert effects[0].proof.facts["process"] == "ended"
    assert effects[0].heal.holds, effects[0].heal


@pytest.mark.parametrize(("late", "arrives"), [("broker-heartbeat", True), ("fetch", True), ("vote", False)])
def test_a_bounce_knows_whether_a_message_of_the_former_process_arrived(late, arrives):
    """Brokers do not vote: nothing is held, and the proof says so."""
    fault, effects = POSSIBLE["fast-bounce"], []

    async def scenario(cluster):
        async with fault.aimed(leader(cluster), fault.options(how="kill", times=1, late=late))(cluster) as effect:
            effects.append(effect)

    trial = Trial(f"fault/late/{late}").run(scenario)

    assert effects[0].proof.holds is arrives
    assert effects[0].heal.holds
    assert trial.lost() == []


@pytest.mark.parametrize(
    ("api", "over", "is_crossed"),
    [
        ("broker-heartbeat", "stop", True),
        ("broker-heartbeat", "isolate", True),
        ("fetch", "power-loss", True),
        ("vote", "stop", False),
    ],
)
def test_a_message_waits_over_an_event_or_the_proof_does_not_hold(api, over, is_crossed):
    """Brokers do not vote: nothing is held, and the proof says so."""
    fault, effects = POSSIBLE["hold-over"], []

    async def scenario(cluster):
        async with fault.aimed(leader(cluster), fault.options(api=api, over=over))(cluster) as effect:
            effects.append(effect)

    trial = Trial(f"fault/over/{api}/{over}").run(scenario)

    assert effects[0].crossed is effects[0].proof.holds is is_crossed
    assert effects[0].proof.facts["crossing"]["waiting"] == effects[0].proof.facts["crossing"]["released"] == is_crossed
    assert effects[0].heal.holds
    assert trial.lost() == []
