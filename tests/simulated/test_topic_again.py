"""A topic that is deleted and created again has its name in common with the former one, and nothing else."""

import asyncio

import pytest

from replog.errors import Error
from replog.log import batch
from replog.wire.apis import Api
from replog.wire.exchange import exchange_of
from replog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.simulated.cluster_program import Trial
from tribunal.clusters.api import CutMode, Link, TopicPartition, until

AGAIN = TopicPartition("again", 0)
CONFIGS = {"min.insync.replicas": "1"}


async def create(cluster, client, replicas, values):
    """Create the topic on these brokers, and write some values one by one."""
    created = await client.create_topic("again", assignments=[replicas], configs=CONFIGS)
    assert created.error_code is Error.NONE
    await until(lambda: AGAIN in cluster.state.partitions, timeout_ms=30_000, what="it is known", cluster=cluster)
    for value in values:
        await write(client, value)


async def write(client, value):
    records = batch.build([batch.NewRecord(None, value)], timestamp_ms=0)
    for _ in range(300):
        if (await client.produce("again", 0, records, acks=-1)).error_code is Error.NONE:
            return
        await asyncio.sleep(0.1)
    raise AssertionError("nobody took it")


@pytest.mark.parametrize("apart", [False, True])
def test_the_watch_reports_no_violation_for_what_the_earlier_topic_of_the_name_was(apart):
    """Other leaders, other batches; the former leader is notified late, and is known by whose log it has."""
    exposed = []

    async def again(cluster):
        client = cluster.clients._client("creator", 10_000)
        await create(cluster, client, [1, 2, 3], [b"a", b"b", b"c"])
        others = [node for node in cluster.spec.node_ids if node != 1]
        links = [Link(1, node) for node in others] + [Link(node, 1) for node in others]
        if apart:
            await cluster.cut(links, CutMode.HOLD)
        deleted = DeleteTopicsRequest(topics=[DeleteTopicState(name="again")], timeout_ms=5000)
        assert (await client.ask(exchange_of(Api.DELETE_TOPICS), deleted, node=2)).responses[0].error_code is Error.NONE
        await client.close()
        client = cluster.clients._client("second", 10_000)
        await client.refresh([])
        client.brokers.pop(1, None)
        await create(cluster, client, [2, 3] if apart else [2, 3, 1], [b"d", b"e", b"f", b"g"])
        if apart:
            await asyncio.sleep(1)
            await cluster.heal(links)
        await asyncio.sleep(2)
        await client.close()
        exposed.append(cluster.watch.committed_end(AGAIN))

    Trial(5).run(again)

    assert exposed == [4]
