"""A simulated cluster of real nodes with one partition on three brokers, and how it comes to have lost all of them.

min.insync.replicas is 2. `all_fall` leaves the logs unequal: broker 1 holds 20 records, 2 holds 40, 3 holds 45, of
which the last five were acknowledged with acks=1 by 3 alone. Every kill is an unclean shutdown (no file is left).
"""

import asyncio
import gc
import warnings
from collections.abc import Callable, Coroutine
from typing import Any, Final

from replog.client.admin import Admin
from replog.config import Endpoint
from replog.controller.controller import Controller
from replog.metadata.state import Partition
from replog.node.controller import ControllerNode
from replog.types import TopicPartition
from replog.wire.apis import Api
from replog.wire.exchange import exchange_of
from tribunal.clusters.api import ProducerSettings, until
from tribunal.clusters.clock import RunClock
from tribunal.clusters.simulated.cluster import PORT, SimulatedCluster
from tribunal.clusters.simulated.running import run_simulated
from tribunal.clusters.spec import ClusterSpec

NAME: Final = TopicPartition("t", 0)
CLUSTER_ID: Final = "6f4e1e0e-0000-4000-8000-000000000001"
NOBODY: Final = -1

Scenario = Callable[[SimulatedCluster], Coroutine[Any, Any, None]]


def run(seed: int, scenario: Scenario, **settings: object) -> dict[int, int]:
    """Run a scenario in virtual time on a cluster with these settings; no node may have ended by itself.

    returns:  how many records each broker's final log holds.
    """

    async def main() -> dict[int, int]:
        simulation = asyncio.get_running_loop().owner  # type: ignore[attr-defined]
        cluster = SimulatedCluster(ClusterSpec(settings=dict(settings)), simulation, RunClock(), CLUSTER_ID)
        await cluster.open()
        creator = cluster.clients.admin("creator")
        await creator.create_topic(NAME.topic, 1, 3, 10_000)
        await creator.close()
        await scenario(cluster)
        await cluster.shut_down()
        assert cluster.failures() == []
        held = [log.node for log in cluster.final_logs() for entry in log.entries if not entry.is_control]
        return {node: held.count(node) for node in cluster.spec.broker_ids}

    with warnings.catch_warnings():
        # What a killed node had begun and never run is dropped here, not in the middle of another test.
        warnings.simplefilter("ignore", RuntimeWarning)
        records = run_simulated(seed, main)[0]
        gc.collect()
    return records


async def produce(cluster: SimulatedCluster, acks: Any, count: int) -> None:
    settings = ProducerSettings(acks=acks, idempotent=False, delivery_timeout_ms=20_000, request_timeout_ms=3000)
    producer = cluster.clients.producer(settings, f"producer-{acks}")
    outcomes: list[str] = []
    for number in range(count):
        producer.send(NAME, None, b"%d" % number, lambda delivery: outcomes.append(delivery.outcome))
    assert await producer.flush(25_000) == 0
    await producer.close()
    assert outcomes == ["ok"] * count


async def reaches(cluster: SimulatedCluster, what: str, holds: Callable[[], bool]) -> int:
    """Wait for a state; return the ms it took."""
    return await until(holds, timeout_ms=60_000, what=what, cluster=cluster)


async def isr_is(cluster: SimulatedCluster, isr: list[int]) -> None:
    await reaches(cluster, f"ISR {isr}", lambda: sorted(cluster.state.partitions[NAME].isr) == isr)


async def leads(cluster: SimulatedCluster, node: int) -> int:
    """Wait for a leader (-1: for none); return the ms it took."""
    return await reaches(cluster, f"{node} leads", lambda: cluster.state.partitions[NAME].leader == node)


async def all_fall(cluster: SimulatedCluster) -> None:
    """Lose 1, then 2, then 3, each with more in its log than the one before."""
    await produce(cluster, -1, 20)
    await cluster.kill(1)
    await isr_is(cluster, [2, 3])
    await produce(cluster, -1, 20)
    await cluster.kill(2)
    await isr_is(cluster, [3])
    await produce(cluster, 1, 5)
    await asyncio.sleep(3)  # the producer's records are flushed and the leader is stable
    await cluster.kill(3)
    await leads(cluster, NOBODY)


async def all_return(cluster: SimulatedCluster, *nodes: int) -> None:
    for node in nodes or (1, 2, 3):
        await cluster.start(node)
    await reaches(
        cluster,
        f"{nodes or 'all'} are unfenced",
        lambda: all(not cluster.state.brokers[node].fenced for node in nodes or (1, 2, 3)),
    )


def active(cluster: SimulatedCluster) -> Controller:
    """The controller core that decides now."""
    shells = [cluster.nodes[node].shell for node in cluster.spec.controller_ids if cluster.alive(node)]
    (acting,) = [shell for shell in shells if isinstance(shell, ControllerNode) and shell.controller.is_active]
    return acting.controller


def partition_of(cluster: SimulatedCluster) -> Partition:
    """The partition as the active controller has it."""
    return active(cluster).image.topics_by_name[NAME.topic].partitions[NAME.partition]


async def operator(cluster: SimulatedCluster, broker: int = 1) -> Admin:
    """`python -m replog admin` in the simulated world, through one broker."""
    admin = Admin(cluster.clients._world, Endpoint(cluster.machine(broker).host.address, PORT))
    await admin.open()
    return admin


async def ask(cluster: SimulatedCluster, api: Api, body: Any) -> Any:
    """Ask any broker."""
    client = cluster.clients._client("scenario", 10_000)
    answer = await client.ask(exchange_of(api), body)
    await client.close()
    return answer
