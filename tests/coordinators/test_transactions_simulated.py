"""Transactions while brokers die and links are cut, in virtual time: all or nothing, and nobody hangs."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from replog.types import TopicPartition
from tests.coordinators.transactional_producers import PARTITIONS, TOPIC, LedgerProducer, contradictions, read_committed
from tests.simulated.cluster_program import wait_until_in_sync
from tribunal.clusters.api import CutMode, Link
from tribunal.clusters.clock import RunClock
from tribunal.clusters.kinds.simulated import launch
from tribunal.clusters.simulated.guard import sealed
from tribunal.clusters.simulated.world import Simulation
from tribunal.clusters.spec import ClusterSpec

SPEC = ClusterSpec(
    settings={
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
        "offsets.topic.num.partitions": 2,
        "transaction.state.log.num.partitions": 2,
    }
)


def leader_of(cluster: Any, topic: str, partition: int) -> int:
    return int(cluster.state.partitions[TopicPartition(topic, partition)].leader)


async def nothing(cluster: Any, random: Any) -> None:
    await asyncio.sleep(3)


async def trouble(cluster: Any, random: Any) -> None:
    """Kill, power off or cut off one broker after the other, coordinators most of all."""
    for _ in range(4):
        topic = random.choice([TOPIC, "__transaction_state"])
        victim = leader_of(cluster, topic, random.randrange(2))
        fault = random.choice(["kill", "power_fail", "cut"])
        if fault == "cut":
            links = [Link(victim, other) for other in cluster.spec.node_ids if other != victim]
            links += [Link(other, victim) for other in cluster.spec.node_ids if other != victim]
            await cluster.cut(links, CutMode.HOLD)
            await asyncio.sleep(3)
            await cluster.heal(links)
        else:
            await getattr(cluster, fault)(victim)
            await asyncio.sleep(random.uniform(0.1, 4))
            await cluster.start(victim)
        await wait_until_in_sync(cluster)


class Audit:
    """A simulated run of two ids, one of them with two competing producers, and what was left behind."""

    def __init__(self, seed: int, faults: Any) -> None:
        self.values: Counter[str] = Counter()
        self.hanging: list[str] = []
        self.producers: list[LedgerProducer] = []
        with sealed(Simulation(seed)) as simulation:
            self.simulation = simulation
            simulation.run(self._main(faults))
            self.trace_hash = simulation.loop.trace_hash()

    async def _main(self, faults: Any) -> None:
        cluster = await launch(SPEC, Path("/nonexistent"), RunClock(), "audit")
        admin = cluster.clients.admin("admin")
        await admin.create_topic(TOPIC, PARTITIONS, 3, 20_000)
        self.producers = [
            LedgerProducer(cluster.clients._client(name, 2500), name, transactional_id)
            for name, transactional_id in (("a", "one"), ("b", "two"), ("c", "two"))
        ]
        running = [asyncio.create_task(producer.run()) for producer in self.producers]
        await asyncio.sleep(2)
        await faults(cluster, self.simulation.loop.random("trouble"))
        for producer in self.producers:
            producer.is_stopping = True
        await asyncio.wait_for(asyncio.gather(*running), 60)
        await asyncio.sleep(8)  # what was left open times out
        self.values, self.hanging = await read_committed(cluster.clients)
        for producer in self.producers:
            await producer.client.close()
        await admin.close()
        await cluster.close()
        if cluster.watch.violation is not None:
            raise cluster.watch.violation


@pytest.mark.parametrize(("seed", "faults"), [(1, nothing), *((seed, trouble) for seed in (2, 3, 4, 18))])
def test_transactions_are_all_or_nothing(seed: int, faults: Any) -> None:
    audit = Audit(seed, faults)

    outcomes = Counter(outcome for producer in audit.producers for outcome in producer.outcomes.values())
    assert outcomes["committed"] > 10
    assert contradictions(audit.producers, audit.values) == []
    assert audit.hanging == []


@pytest.mark.nightly
def test_a_seed_repeats_itself() -> None:
    assert Audit(7, nothing).trace_hash == Audit(7, nothing).trace_hash
