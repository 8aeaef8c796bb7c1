"""What a group has read of a topic goes with the topic: another one of the same name is read from where it begins."""

import asyncio
from pathlib import Path
from typing import Any

from replog.__main__ import ClientWorld
from replog.client.client import Client
from replog.config import Endpoint
from replog.errors import Error
from replog.types import NodeId
from replog.wire.apis import api_of
from replog.wire.error_codes import errors_in
from replog.wire.exchange import exchange_of
from replog.wire.messages import delete_topics as dt
from replog.wire.messages import find_coordinator as fc
from replog.wire.messages import offset_commit as oc
from replog.wire.messages import offset_fetch as of
from tests.broker.loopback import running

SETTINGS: dict[str, Any] = {"offsets__topic__num__partitions": 1, "offsets__topic__replication__factor": 1}
PASSING = (Error.NOT_COORDINATOR, Error.COORDINATOR_LOAD_IN_PROGRESS, Error.COORDINATOR_NOT_AVAILABLE)


def test_a_topic_that_is_created_again_is_not_read_from_where_the_former_one_was(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, controllers=1, brokers=1, **SETTINGS) as cluster, asyncio.timeout(40):
            host, port = cluster.bootstrap.split(":")
            client = Client(ClientWorld(), [Endpoint(host, int(port))])
            await story(client)
            await client.close()

    async def ask_until_loaded(client: Client, body: Any) -> Any:
        while True:
            answer = await client.ask(exchange_of(api_of(body)), body, node=NodeId(1))
            if not any(error in PASSING for error in errors_in(answer)):
                return answer
            await asyncio.sleep(0.05)

    async def offsets(client: Client) -> list[tuple[str, int]]:
        group = of.OffsetFetchRequestGroup(group_id="g", topics=None)
        answer = await ask_until_loaded(client, of.OffsetFetchRequest(groups=[group]))
        return [
            (client_names.get(topic.topic_id, topic.name), one.committed_offset)
            for topic in answer.groups[0].topics
            for one in topic.partitions
        ]

    client_names: dict[Any, str] = {}

    async def commit(client: Client, topic: str, offset: int) -> None:
        topic_id = (await client.leader(topic, 0)).topic_id
        client_names[topic_id] = topic
        asked = oc.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topics = [oc.OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=[asked])]
        body = oc.OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=topics)
        assert set(errors_in(await ask_until_loaded(client, body))) <= {Error.NONE}

    async def story(client: Client) -> None:
        for topic in ("t", "other"):
            await client.create_topic(topic, partitions=1, replication_factor=1)
        await ask_until_loaded(client, fc.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
        await commit(client, "t", 5)
        await commit(client, "other", 7)
        assert sorted(await offsets(client)) == [("other", 7), ("t", 5)]

        await ask_until_loaded(
            client, dt.DeleteTopicsRequest(topics=[dt.DeleteTopicState(name="t")], timeout_ms=10_000)
        )
        assert (await client.create_topic("t", partitions=1, replication_factor=1)).error_code is Error.NONE
        client_names[(await client.leader("t", 0)).topic_id] = "t"
        while (found := await offsets(client)) != [("other", 7)]:
            assert len(found) == 2  # not notified of the deletion yet
            await asyncio.sleep(0.05)
        await commit(client, "t", 2)
        assert sorted(await offsets(client)) == [("other", 7), ("t", 2)]

    asyncio.run(run())
