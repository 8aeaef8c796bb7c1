"""DescribeProducers is answered from any replica's log, as Kafka does: who seeks a hanging transaction asks each of them."""

import asyncio

import pytest

from replog.errors import Error
from replog.wire.apis import Api
from replog.wire.exchange import exchange_of
from replog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tests.simulated.cluster_program import Trial
from tribunal.clusters.api import ClusterSpec, TopicPartition

P0 = TopicPartition("produce-consume", 0)


def test_followers_say_what_their_logs_know_of_producers():
    answers = {}

    async def scenario(cluster):
        producer = cluster.clients.transactional_producer("t-1", 10_000, "open")
        assert await producer.begin(10_000)
        producer.send(P0, None, bytes(8), lambda _: None)
        await asyncio.sleep(1)
        client = cluster.clients._client("asker", 10_000)
        await client.refresh([])
        body = DescribeProducersRequest(topics=[TopicRequest(name=P0.topic, partition_indexes=[0, 99])])
        for node in cluster.state.partitions[P0].replicas:
            answer = await client.ask(exchange_of(Api.DESCRIBE_PRODUCERS), body, node=node)
            answers[node] = answer.topics[0].partitions
        assert (await producer.end(commit=True, timeout_ms=10_000)).outcome == "committed"
        await producer.close()
        await client.close()

    Trial(5).run(scenario)

    assert len(answers) == 3
    open_at = set()
    for known, missing in answers.values():
        assert known.error_code is Error.NONE
        open_at.add(
            next(one.current_txn_start_offset for one in known.active_producers if one.current_txn_start_offset >= 0)
        )
        assert missing.error_code is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert len(open_at) == 1


@pytest.mark.parametrize(("settings", "is_known"), [
    ({"producer.id.expiration.check.interval.ms": 500}, False),
    ({"producer.id.expiration.check.interval.ms": 60_000, "log.retention.check.interval.ms": 500}, True),
], ids=["looked for", "only segments are looked for"])  # fmt: skip
def test_silent_producers_are_forgotten_when_they_are_looked_for_whatever_else_is(
    settings: dict[str, int], is_known: bool
) -> None:
    found: list[tuple[list[int], list[int]]] = []  # of each replica: who has a transaction open, and who is known later

    async def scenario(cluster):
        client = cluster.clients._client("asker", 10_000)
        body = DescribeProducersRequest(topics=[TopicRequest(name=P0.topic, partition_indexes=[0])])

        async def producers(node):
            answer = await client.ask(exchange_of(Api.DESCRIBE_PRODUCERS), body, node=node)
            return answer.topics[0].partitions[0].active_producers

        replicas = cluster.state.partitions[P0].replicas
        producer = cluster.clients.transactional_producer("t-1", 10_000, "open")
        assert await producer.begin(10_000)
        producer.send(P0, None, bytes(8), lambda _: None)
        await asyncio.sleep(1)
        await client.refresh([])
        begun = [[one.producer_id for one in await producers(n) if one.current_txn_start_offset >= 0] for n in replicas]
        assert (await producer.end(commit=True, timeout_ms=10_000)).outcome == "committed"
        await asyncio.sleep(4)
        later = [[one.producer_id for one in await producers(node)] for node in replicas]
        found.extend(zip(begun, later, strict=True))
        await producer.close()
        await client.close()

    spec = ClusterSpec(settings={"producer.id.expiration.ms": 2000} | settings)
    Trial(5, spec).run(scenario)

    assert len(found) == 3
    for (silent,), later in found:
        assert (silent in later) == is_known
