"""A controller that says hundreds of things at once to a broker of ZooKeeper mode: whoever else asks it is answered meanwhile."""

import asyncio
from pathlib import Path
from uuid import UUID

from replog.__main__ import ClientWorld
from replog.client.connection import Connection
from replog.errors import Error
from replog.node.zookeeper.broker import ZooKeeperBroker
from replog.types import BrokerEpoch
from replog.wire.messages import leader_and_isr as li
from replog.wire.messages import metadata as md
from tests.broker.loopback import started
from tests.broker.test_fetching_live import endpoint_of
from tests.fuzz.targets import BROKER, ZooKeeperLoopback

PARTITIONS = 200


def assignment(controller_epoch: int, broker_epoch: int) -> li.LeaderAndIsrRequest:
    states = [
        li.LeaderAndIsrPartitionState(
            partition_index=number, leader=BROKER, leader_epoch=0, isr=[BROKER], replicas=[BROKER], partition_epoch=0
        )
        for number in range(PARTITIONS)
    ]
    topic = li.LeaderAndIsrTopicState(topic_name="wide", topic_id=UUID(int=7), partition_states=states)
    return li.LeaderAndIsrRequest(
        controller_id=BROKER, controller_epoch=controller_epoch, broker_epoch=broker_epoch, topic_states=[topic]
    )


def test_hundreds_of_new_logs_keep_nobody_waiting(tmp_path: Path) -> None:
    """A thousand in one go took 40 s of a busy disk, in which the broker's session ended (found by tests/fuzz/test_conversations.py)."""

    async def scenario() -> None:
        cluster = ZooKeeperLoopback(tmp_path, 1, {})
        async with started(cluster):
            broker = cluster.nodes[BROKER]
            assert isinstance(broker, ZooKeeperBroker)
            body = assignment(broker.control.controller_epoch, broker.control.identity.broker_epoch)
            controller, other = (
                Connection(ClientWorld(), endpoint_of(cluster), name) for name in ("controller-1", "c")
            )
            await controller.open()
            await other.open()

            assigned = controller.send(li.EXCHANGE, body, version=7, timeout_ms=60_000)
            answered = 0
            while not assigned.done():
                await other.send(md.EXCHANGE, md.MetadataRequest(topics=[]), timeout_ms=60_000)
                answered += 1

            controller.close()
            other.close()
            answer = assigned.result()
            assert answer.error_code is Error.NONE
            assert sum(len(topic.partition_errors) for topic in answer.topics) == PARTITIONS
            assert answered > 3  # in one go: one before it, and one behind it

    asyncio.run(scenario())


def test_what_was_ordered_of_an_earlier_registration_ends_with_it(tmp_path: Path) -> None:
    """KIP-380: it is stale, also where the broker has begun to carry it out; the rest of it was carried out in the name of the next one."""

    async def scenario() -> None:
        cluster = ZooKeeperLoopback(tmp_path, 1, {})
        async with started(cluster):
            broker = cluster.nodes[BROKER]
            assert isinstance(broker, ZooKeeperBroker)
            epoch = broker.control.identity.broker_epoch
            controller = Connection(ClientWorld(), endpoint_of(cluster), "controller-1")
            await controller.open()
            body = assignment(broker.control.controller_epoch, epoch)
            assigned = controller.send(li.EXCHANGE, body, version=7, timeout_ms=60_000)
            while not len([*broker.plane.replicas]):  # noqa: ASYNC110
                await asyncio.sleep(0)
            assert len([*broker.plane.replicas]) < PARTITIONS

            broker._registered_as(BrokerEpoch(epoch + 1), broker.zookeeper.session_id)

            answer = await assigned
            controller.close()
            assert answer.error_code is Error.STALE_BROKER_EPOCH
            assert len([*broker.plane.replicas]) < PARTITIONS

    asyncio.run(scenario())
