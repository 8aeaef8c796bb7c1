"""KIP-704 and KIP-966 through the whole shell, in virtual time: the wrong broker comes back first."""

import asyncio

from replog.types import TopicPartition
from tribunal.clusters.api import Delivery, ProducerSettings, until
from tribunal.clusters.clock import RunClock
from tribunal.clusters.simulated.cluster import SimulatedCluster
from tribunal.clusters.simulated.running import run_simulated
from tribunal.clusters.spec import ClusterSpec

NAME = TopicPartition("t", 0)
CLUSTER_ID = "6f4e1e0e-0000-4000-8000-000000000001"


async def a_cluster(**settings: object) -> SimulatedCluster:
    simulation = asyncio.get_running_loop().owner  # type: ignore[attr-defined]
    cluster = SimulatedCluster(ClusterSpec(settings=settings), simulation, RunClock(), CLUSTER_ID)
    await cluster.open()
    admin = cluster.clients.admin("admin")
    await admin.create_topic("t", 1, 3, 10_000)
    await admin.close()
    return cluster


async def produced(cluster: SimulatedCluster, acks: int, count: int) -> list[Delivery]:
    settings = ProducerSettings(acks=acks, idempotent=False, delivery_timeout_ms=20_000, request_timeout_ms=3000)
    producer = cluster.clients.producer(settings, f"producer-{acks}")
    deliveries: list[Delivery] = []
    for number in range(count):
        producer.send(NAME, None, b"%d" % number, deliveries.append)
    assert await producer.flush(25_000) == 0
    await producer.close()
    return deliveries


async def partition_is(cluster: SimulatedCluster, what: str, isr: list[int]) -> None:
    await until(
        lambda: sorted(cluster.state.partitions[NAME].isr) == isr, timeout_ms=60_000, what=what, cluster=cluster
    )


async def the_last_to_fall_is_missing(cluster: SimulatedCluster) -> None:
    """1 falls behind, then 2 and 3 die; 1 comes back alone."""
    assert all(delivery.outcome == "ok" for delivery in await produced(cluster, -1, 20))
    await cluster.kill(1)
    await partition_is(cluster, "1 left the ISR", [2, 3])
    assert all(delivery.outcome == "ok" for delivery in await produced(cluster, -1, 20))
    await cluster.kill(2)
    await cluster.kill(3)
    await until(
        lambda: cluster.state.partitions[NAME].leader == -1, timeout_ms=60_000, what="no leader", cluster=cluster
    )
    await cluster.start(1)


def test_an_uncleanly_elected_leader_recovers_and_serves() -> None:
    async def scenario() -> None:
        cluster = await a_cluster(**{"unclean.leader.election.enable": True, "min.insync.replicas": 1})
        await the_last_to_fall_is_missing(cluster)

        await until(
            lambda: cluster.state.partitions[NAME].leader == 1, timeout_ms=60_000, what="1 leads", cluster=cluster
        )
        outcomes = [delivery.outcome for delivery in await produced(cluster, 1, 5)]
        await cluster.start(2)
        await cluster.start(3)
        await partition_is(cluster, "all are in sync again", [1, 2, 3])

        assert "ok" in outcomes
        await cluster.shut_down()
        logs = {log.node: list(log.entries) for log in cluster.final_logs()}
        ends = {node: max(entry.log_offset for entry in log) for node, log in logs.items()}
        assert len(set(ends.values())) == 1
        assert ends[1] < 39  # what 2 and 3 alone had is gone: that is the price
        assert cluster.failures() == []

    run_simulated(1, scenario)


def test_without_leave_nobody_leads_until_an_eligible_replica_returns() -> None:
    async def scenario() -> None:
        cluster = await a_cluster()
        await the_last_to_fall_is_missing(cluster)

        await asyncio.sleep(5)
        assert cluster.state.partitions[NAME].leader == -1
        await cluster.start(2)
        await cluster.start(3)
        await partition_is(cluster, "all are in sync again", [1, 2, 3])

        await cluster.shut_down()
        assert {log.node: len([*log.entries]) for log in cluster.final_logs()} == {1: 40, 2: 40, 3: 40}
        assert cluster.failures() == []

    run_simulated(2, scenario)
