"""The simulated producers: a batch that is too large is halved, several may be under way, and each record stands once and in order."""

import asyncio

import pytest

from tests.simulated.cluster_program import NOWHERE, leader, wait_until_in_sync
from tribunal.clusters.api import ProducerSettings, TopicPartition
from tribunal.clusters.clock import RunClock
from tribunal.clusters.kinds.simulated import launch
from tribunal.clusters.simulated.running import run_simulated
from tribunal.clusters.spec import ClusterSpec

TOPIC = "t"
PARTITION = TopicPartition(TOPIC, 0)
COUNT = 400
SMALL_SEGMENTS = ClusterSpec(controllers=1, settings={"log.segment.bytes": 4096})


async def nothing_else(cluster):
    """Leave the cluster alone."""


async def the_leader_dies(cluster):
    await asyncio.sleep(0.12)
    node = leader(cluster, topic=TOPIC)
    await cluster.kill(node)
    await asyncio.sleep(1)
    await cluster.start(node)


async def answers_are_lost(cluster):
    """Lose some of the leader's answers: what it has written is sent again."""
    from tribunal.clusters.capabilities import Fate, FrameRule

    node = leader(cluster, topic=TOPIC)
    rule = FrameRule(fate=Fate.DROPPED, api=0, direction="response", source=node, limit=6)
    in_force = cluster.add_rule(rule)
    await asyncio.sleep(3)
    cluster.remove_rule(in_force)


async def stood_in_the_end(cluster, producer, admin):
    """Close everything; return what one replica's log holds then, in its order."""
    await wait_until_in_sync(cluster)
    await producer.close()
    await admin.close()
    await cluster.close()
    assert cluster.watch.violation is None
    stood = [one for log in cluster.final_logs() if log.node == 1 for one in log.entries if not one.is_control]
    return [int(one.foreign_value) for one in sorted(stood, key=lambda one: one.log_offset)]


def produced(seed, spec, *, idempotent, batches_in_flight=1, meanwhile=nothing_else, pause_s=0.0):
    """Produce many records, ten at once; return how each ended, and the log's offsets by value."""

    async def main():
        cluster = await launch(spec, NOWHERE, RunClock(), "producers")
        admin = cluster.clients.admin("maker")
        await admin.create_topic(TOPIC, 1, 3, 10_000)
        await wait_until_in_sync(cluster)
        settings = ProducerSettings(
            acks=-1, idempotent=idempotent, delivery_timeout_ms=20_000, request_timeout_ms=1_000,
            batches_in_flight=batches_in_flight,
        )  # fmt: skip
        producer = cluster.clients.producer(settings, "producer")
        ends = {}
        hurting = asyncio.create_task(meanwhile(cluster))
        for number in range(COUNT):
            producer.send(
                PARTITION, None, str(number).encode(), lambda end, number=number: ends.update({number: end.outcome})
            )
            if number % 10 == 9 and pause_s:
                await asyncio.sleep(pause_s)
        left = await producer.flush(30_000)
        await hurting
        return left, ends, await stood_in_the_end(cluster, producer, admin)

    return run_simulated(seed, main)[0]


@pytest.mark.parametrize(("idempotent", "batches_in_flight"), [(True, 1), (True, 5), (False, 1)])
def test_a_batch_that_fits_no_segment_is_halved_until_it_does(idempotent, batches_in_flight):
    """After an outage there were always more records waiting than fit, and none was written any more."""
    left, ends, values = produced(
        f"too large/{idempotent}/{batches_in_flight}", SMALL_SEGMENTS, idempotent=idempotent,
        batches_in_flight=batches_in_flight,
    )  # fmt: skip

    assert left == 0
    assert set(ends.values()) == {"ok"}
    assert values == list(range(COUNT))


@pytest.mark.parametrize("meanwhile", [the_leader_dies, answers_are_lost])
def test_several_batches_under_way_stand_once_and_in_order(meanwhile):
    left, ends, values = produced(
        f"in flight/{meanwhile.__name__}", ClusterSpec(controllers=1), idempotent=True, batches_in_flight=5,
        meanwhile=meanwhile, pause_s=0.01,
    )  # fmt: skip

    assert left == 0
    assert set(ends.values()) == {"ok"}
    assert values == list(range(COUNT))


def test_a_transaction_of_more_records_than_a_segment_holds_is_written_in_several_batches():
    """After an outage a processor had always more to write than fits; it aborted each transaction, for ever (wide-swarm-exactly-once 207050799)."""

    async def main():
        cluster = await launch(SMALL_SEGMENTS, NOWHERE, RunClock(), "producers")
        admin = cluster.clients.admin("maker")
        await admin.create_topic(TOPIC, 1, 3, 10_000)
        await wait_until_in_sync(cluster)
        producer = cluster.clients.transactional_producer("processor", 20_000, "producer")
        ends = {}
        assert await producer.begin(10_000)
        for number in range(COUNT):
            producer.send(
                PARTITION, None, str(number).encode(), lambda end, number=number: ends.update({number: end.outcome})
            )
        end = await producer.end(commit=True, timeout_ms=10_000)
        return end.outcome, ends, await stood_in_the_end(cluster, producer, admin)

    outcome, ends, values = run_simulated("too large/transaction", main)[0]

    assert outcome == "committed"
    assert set(ends.values()) == {"ok"}
    assert values == list(range(COUNT))
