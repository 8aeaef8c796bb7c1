"""A topic that is asked for before everybody knows of all brokers: it is made when they do, as in ZooKeeper mode of Apache Kafka."""

import asyncio
from pathlib import Path

import pytest

from tribunal.clusters.api import ClusterError
from tribunal.clusters.clients.confluent import ConfluentAdmin
from tribunal.clusters.kafka.side_by_side import Ours, SideBySide

SETTINGS = {"min.insync.replicas": 1, "broker.heartbeat.interval.ms": 100}


@pytest.fixture
def cluster(tmp_path: Path):
    with SideBySide(Ours(), tmp_path, brokers=2, controllers=1, settings=SETTINGS) as cluster:
        cluster.format()
        for node in (101, 1):
            cluster.start(node)
        cluster.wait_serving([1])
        yield cluster


async def created(cluster: SideBySide, topic: str, timeout_ms: int) -> None:
    admin = ConfluentAdmin(cluster.bootstrap, "admin", lambda _: None, 7)
    try:
        await admin.create_topic(topic, 1, 2, timeout_ms)
    finally:
        await admin.close()


@pytest.mark.timeout(120)
def test_a_topic_waits_for_a_broker_that_is_on_its_way_and_not_for_ever(cluster: SideBySide) -> None:
    with pytest.raises(ClusterError, match=r"topic lonely cannot be created: INVALID_REPLICATION_FACTOR"):
        asyncio.run(created(cluster, "lonely", 600))

    async def meanwhile() -> None:
        waiting = asyncio.create_task(created(cluster, "late", 60_000))
        await asyncio.sleep(0.5)
        await asyncio.to_thread(cluster.start, 2)
        await waiting

    asyncio.run(meanwhile())
