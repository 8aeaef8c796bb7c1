"""A broker that has much to do for its metadata says how far it has come, not how far it has read."""

import asyncio

from replog.errors import Error
from replog.node.broker import Broker
from tests.simulated.cluster_program import Trial
from tribunal.clusters.api import TopicPartition, until
from tribunal.clusters.spec import ClusterSpec

COUNT = 60  # of which a broker takes 16 together
MANY = [TopicPartition("many", index) for index in range(COUNT)]
STALL_NS = 40_000_000  # for each log: much longer for a slice than it is from one heartbeat to the next
PATIENT = {"broker.session.timeout.ms": 20_000, "controlled.shutdown.timeout.ms": 60_000}


async def create(cluster, replicas):
    client = cluster.clients._client("creator", 10_000)
    created = await client.create_topic("many", assignments=[replicas] * COUNT)
    assert created.error_code is Error.NONE
    await client.close()


def led_by(cluster, node):
    """Return which of the partitions a broker leads by its own knowledge."""
    shell = cluster.nodes[node].shell
    assert isinstance(shell, Broker)
    replicas = [shell.plane.replicas.find(partition) for partition in MANY]
    return [one.name for one in replicas if one is not None and one.partition.leadership is not None]


def hosted_by(cluster, node):
    return [one for one in MANY if cluster.nodes[node].shell.plane.replicas.find(one) is not None]


def test_who_leaves_in_good_order_waits_until_the_others_lead_what_it_led():
    """SPEC 2.3.4: its shutdown offset is known to all active brokers. Knowing it is leading, not having read of it."""
    led = []

    async def leave(cluster):
        await create(cluster, [1, 2])
        await until(lambda: led_by(cluster, 1) == MANY, timeout_ms=30_000, what="1 leads", cluster=cluster)
        faults = cluster.machine(2).disk.faults
        faults.sync_delay_ns = STALL_NS
        await cluster.stop(1)
        led.append(led_by(cluster, 2))
        faults.sync_delay_ns = 0
        await asyncio.sleep(5)
        await cluster.start(1)

    Trial(31, ClusterSpec(min_insync_replicas=1, replication_factor=2, settings=PATIENT)).run(leave)

    assert led == [MANY]


def test_who_comes_back_is_unfenced_once_it_has_its_logs_and_roles():
    """SPEC 2.3.2: it has replayed its own registration, and everything that stands before it."""
    hosted = []

    async def come_back(cluster):
        await create(cluster, [1, 2])
        await until(lambda: hosted_by(cluster, 2) == MANY, timeout_ms=30_000, what="2 follows", cluster=cluster)
        await cluster.kill(2)
        await cluster.wipe(2)
        await until(lambda: cluster.state.brokers[2].fenced, timeout_ms=60_000, what="2 is fenced", cluster=cluster)
        faults = cluster.machine(2).disk.faults
        faults.sync_delay_ns = STALL_NS
        begun = asyncio.create_task(cluster.start(2))
        await until(lambda: not cluster.state.brokers[2].fenced, timeout_ms=60_000, what="2 is back", cluster=cluster)
        hosted.append(hosted_by(cluster, 2))
        faults.sync_delay_ns = 0
        await begun

    Trial(32, ClusterSpec(min_insync_replicas=1, replication_factor=2, settings=PATIENT)).run(come_back)

    assert hosted == [MANY]
