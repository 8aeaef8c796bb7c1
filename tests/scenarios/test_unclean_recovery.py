"""KIP-966 part 2 on whole clusters in virtual time: who is asked, who wins, and what fails over meanwhile."""

import asyncio
from typing import Any

import pytest

from replog.client.admin import AdminFailed
from replog.types import NodeId
from replog.wire.apis import Api
from tests.scenarios.three_brokers import (
    NAME,
    NOBODY,
    active,
    all_fall,
    all_return,
    isr_is,
    leads,
    operator,
    partition_of,
    reaches,
    run,
)
from tribunal.clusters.capabilities import Fate, FrameRule
from tribunal.clusters.simulated.cluster import SimulatedCluster

MANAGER: dict[str, Any] = {"unclean.recovery.manager.enabled": True, "unclean.recovery.timeout.ms": 5000}
BALANCED = MANAGER | {"unclean.recovery.strategy": "Balanced"}
AGGRESSIVE = MANAGER | {"unclean.recovery.strategy": "Aggressive"}
NONE = MANAGER | {"unclean.recovery.strategy": "None"}


def log_info(fate: Fate, **rule: Any) -> FrameRule:
    return FrameRule(fate=fate, api=Api.GET_REPLICA_LOG_INFO, **rule)


def test_balanced_waits_for_all_who_may_have_all_and_loses_nothing() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await all_fall(cluster)
        assert set(partition_of(cluster).elr) == {2, 3}

        await all_return(cluster, 1, 2)
        await asyncio.sleep(10)
        still_waiting = cluster.state.partitions[NAME].leader
        await all_return(cluster, 3)
        took_ms = await leads(cluster, 3)
        await isr_is(cluster, [1, 2, 3])

        assert still_waiting == NOBODY
        assert took_ms < 5000  # all have answered: nobody waits for the time-out
        assert active(cluster).recovery_counts.unclean_recovery_finished == 1

    records = run(1, scenario, **BALANCED)

    assert [records[node] for node in (1, 2, 3)] == [45, 45, 45]


def test_aggressive_takes_who_is_there_when_time_is_up() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await all_fall(cluster)

        await all_return(cluster, 1, 2)
        took_ms = await leads(cluster, 2)
        await all_return(cluster, 3)
        await isr_is(cluster, [1, 2, 3])

        assert 3000 < took_ms < 7000

    records = run(2, scenario, **AGGRESSIVE)

    assert [records[node] for node in (1, 2, 3)] == [40, 40, 40]  # the price: what 3 alone had


def test_none_waits_for_an_operator_who_names_a_replica() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await all_fall(cluster)
        await all_return(cluster)
        await asyncio.sleep(20)
        assert cluster.state.partitions[NAME].leader == NOBODY
        assert active(cluster).recovery_counts == (0, 1, 0)

        admin = await operator(cluster)
        await admin.elect(NAME.topic, 0, leader=NodeId(2), longest_log=None)
        admin.close()

        await leads(cluster, 2)
        await isr_is(cluster, [1, 2, 3])

    records = run(3, scenario, **NONE)

    assert [records[node] for node in (1, 2, 3)] == [40, 40, 40]


@pytest.mark.parametrize("mode", ["aggressive", "balanced"])
def test_an_operator_has_the_longest_log_found(mode: str) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await all_fall(cluster)
        await all_return(cluster)

        await search(cluster, mode)

        await leads(cluster, 3)

    run(4, scenario, **NONE)


@pytest.mark.parametrize(("mode", "winner"), [("aggressive", 2), ("balanced", NOBODY)])
def test_an_operator_may_search_without_the_manager(mode: str, winner: int) -> None:
    """Balanced goes on waiting for 3, the last known leader; Aggressive takes the longest log of those there."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await all_fall(cluster)
        await all_return(cluster, 1, 2)

        await search(cluster, mode)
        await asyncio.sleep(10)

        assert cluster.state.partitions[NAME].leader == winner

    run(13, scenario, **{"unclean.recovery.timeout.ms": 5000})


async def search(cluster: SimulatedCluster, mode: str) -> None:
    admin = await operator(cluster)
    await admin.elect(NAME.topic, 0, leader=None, longest_log=mode)
    admin.close()


def test_what_an_operator_may_not_ask() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        leader = cluster.state.partitions[NAME].leader
        admin = await operator(cluster, leader)
        for topic, partition, node, word in [
            ("t", 0, leader, "ELECTION_NOT_NEEDED"),
            ("t", 0, 9, "INVALID_REQUEST"),
            ("t", 7, leader, "UNKNOWN_TOPIC_OR_PARTITION"),
            ("no", 0, leader, "UNKNOWN_TOPIC_OR_PARTITION"),
        ]:
            with pytest.raises(AdminFailed, match=word):
                await admin.elect(topic, partition, leader=NodeId(node), longest_log=None)
        with pytest.raises(AdminFailed, match="ELECTION_NOT_NEEDED"):
            await admin.elect("t", 0, leader=None, longest_log="aggressive")
        admin.close()

    run(5, scenario)


def test_a_broker_that_falls_after_its_answer_is_asked_again() -> None:
    """KIP-966, "Broker failover": what it said does not count once it is fenced, what it says later does."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await all_fall(cluster)
        silent = cluster.add_rule(log_info(Fate.DROPPED, direction="response", source=2))
        await all_return(cluster)
        await reaches(cluster, "2 was asked in vain", lambda: silent.hit_count > 0)
        await cluster.kill(3)
        await reaches(cluster, "3 is fenced", lambda: cluster.state.brokers[3].fenced)

        cluster.remove_rule(silent)
        await asyncio.sleep(10)
        without_it = cluster.state.partitions[NAME].leader
        await all_return(cluster, 3)
        await leads(cluster, 3)

        assert without_it == NOBODY

    records = run(6, scenario, **BALANCED)

    assert records[3] == 45


def test_a_new_controller_begins_the_recovery_anew() -> None:
    """KIP-966, "Controller failover": "every controller failover will result in a new unclean recovery"."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await all_fall(cluster)
        silent = cluster.add_rule(log_info(Fate.DROPPED, direction="response", source=3))
        await all_return(cluster)
        await reaches(cluster, "3 was asked in vain", lambda: silent.hit_count > 0)
        first = cluster.state.quorum_leader

        await cluster.kill(first)
        cluster.remove_rule(silent)
        await leads(cluster, 3)

        assert cluster.state.quorum_leader != first
        assert active(cluster).recovery_counts.unclean_recovery_finished == 1

    records = run(7, scenario, **BALANCED)

    assert records[3] == 45


def test_who_need_not_answer_is_waited_for_only_a_while() -> None:
    """Balanced: "plus the replicas replied within the timeout"."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await all_fall(cluster)
        cluster.add_rule(log_info(Fate.DROPPED, direction="response", source=1))
        await all_return(cluster)

        took_ms = await leads(cluster, 3)

        assert took_ms < 7000

    records = run(8, scenario, **BALANCED)

    assert records[3] == 45


def test_lost_questions_are_asked_again() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await all_fall(cluster)
        lost = cluster.add_rule(log_info(Fate.DROPPED, limit=4))
        await all_return(cluster)

        await leads(cluster, 3)

        assert lost.hit_count == 4

    records = run(9, scenario, **BALANCED)

    assert records[3] == 45


def test_a_clean_choice_ends_the_search() -> None:
    """SPEC 2.12.7: 3 stopped in good order, so its log is whole; nobody else's will do."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await all_fall(cluster)
        await all_return(cluster)
        await leads(cluster, 3)
        await isr_is(cluster, [1, 2, 3])
        await cluster.kill(1)
        await isr_is(cluster, [2, 3])
        await cluster.kill(2)
        await isr_is(cluster, [3])
        await cluster.stop(3)
        await leads(cluster, NOBODY)

        await all_return(cluster, 1)
        await asyncio.sleep(2)
        searching = active(cluster).recovery_counts.unclean_recovery_partitions
        await all_return(cluster, 3)
        await leads(cluster, 3)

        assert searching == 1
        assert not cluster.state.partitions[NAME].recovering
        assert active(cluster).recovery_counts.unclean_recovery_finished == 1

    records = run(10, scenario, **(AGGRESSIVE | {"unclean.recovery.timeout.ms": 8000}))

    assert records[3] == 45


def test_wiped_logs_lose_against_the_one_that_is_left() -> None:
    """KIP-966, "Motivation": the last replica standing may be the one that lost everything."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await all_fall(cluster)
        await cluster.wipe(3)
        await all_return(cluster)

        await leads(cluster, 2)
        await isr_is(cluster, [1, 2, 3])

    records = run(11, scenario, **BALANCED)

    assert [records[node] for node in (1, 2, 3)] == [40, 40, 40]


def test_pages_of_topics_are_followed_to_the_end() -> None:
    """KIP-966, DescribeTopicPartitions: "The caller can include this cursor in the next request." """

    async def scenario(cluster: SimulatedCluster) -> None:
        creator = cluster.clients.admin("creator")
        await creator.create_topic("u", 5, 3, 10_000)
        await creator.close()
        await reaches(cluster, "u is known", lambda: sum(name.topic == "u" for name in cluster.state.partitions) == 5)
        await asyncio.sleep(1)
        await cluster.kill(1)
        await cluster.kill(2)
        await isr_is(cluster, [3])

        admin = await operator(cluster, 3)
        pages = [topic async for topic in admin.describe_topics([], 2)]
        one = [topic async for topic in admin.describe_topics(["t"], 2000)]
        admin.close()

        named = [(topic.name, [each.partition_index for each in topic.partitions]) for topic in pages]
        assert named == [("t", [0]), ("u", [0]), ("u", [1, 2]), ("u", [3, 4])]
        assert [(each.isr_nodes, each.eligible_leader_replicas) for each in one[0].partitions] in (
            [([3], [2])],
            [([3], [1])],
        )

    run(12, scenario)
