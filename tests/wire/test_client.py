"""The client against two small servers that know one topic: leaders, stale metadata, unreachable nodes."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from replog.client.client import LATEST, Client, Unreachable
from replog.client.connection import ConnectionLost
from replog.client.coordinator import GROUP, CoordinatorLink
from replog.config import Endpoint
from replog.errors import Error
from replog.host.world import RealClock, RealDisk, RealEntropy, RealJournal, RealNetwork
from replog.node.net.server import Server, ServerLimits, ServerRequest
from replog.types import NodeId
from replog.wire.apis import BROKER_APIS, Api
from replog.wire.exchange import exchange_of
from replog.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from replog.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from replog.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from replog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from replog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from replog.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from replog.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

HOST = "127.0.0.1"
TOPIC_ID = UUID(int=7)


class SmallWorld:
    def __init__(self) -> None:
        self.clock = RealClock()
        self.entropy = RealEntropy()
        self.disk = RealDisk()
        self.network = RealNetwork()
        self.journal = RealJournal(1, level="error")


class Cluster:
    """Brokers 1 and 2; `leader` leads t-0 and says NOT_LEADER to nobody else's records."""

    def __init__(self) -> None:
        self.ports: dict[int, int] = {}
        self.leader = 2
        self.coordinator = 1  # of all groups
        self.silent: int | None = None  # takes requests and never answers
        self.asked: list[tuple[int, Api]] = []

    def answer(self, node: int, request: ServerRequest) -> None:
        self.asked.append((node, request.api))
        if node == self.silent:
            return
        error = Error.NONE if node == self.leader else Error.NOT_LEADER_OR_FOLLOWER
        match request.api:
            case Api.METADATA:
                request.reply(self.metadata())
            case Api.PRODUCE if request.body.acks == 0:
                request.reply_nothing()
            case Api.PRODUCE:
                produced = PartitionProduceResponse(error_code=error, base_offset=40)
                topic = TopicProduceResponse(name="t", topic_id=TOPIC_ID, partition_responses=[produced])
                request.reply(ProduceResponse(responses=[topic]))
            case Api.FETCH:
                read = PartitionData(error_code=error, records=b"batch", high_watermark=41)
                request.reply(FetchResponse(responses=[FetchableTopicResponse(partitions=[read])]))
            case Api.LIST_OFFSETS:
                offset = ListOffsetsPartitionResponse(error_code=error, offset=41)
                request.reply(ListOffsetsResponse(topics=[ListOffsetsTopicResponse(partitions=[offset])]))
            case Api.CREATE_TOPICS:
                made = CreatableTopicResult(name=request.body.topics[0].name)
                request.reply(CreateTopicsResponse(topics=[made]))
            case Api.FIND_COORDINATOR:
                found = [Coordinator(key=key, node_id=self.coordinator) for key in request.body.coordinator_keys]
                request.reply(FindCoordinatorResponse(coordinators=found))
            case Api.HEARTBEAT:
                request.reply(HeartbeatResponse())
            case _:
                request.close("not asked here")

    def metadata(self) -> MetadataResponse:
        partitions = [MetadataResponsePartition(partition_index=0, leader_id=self.leader, leader_epoch=3)]
        if self.leader < 0:
            partitions = [MetadataResponsePartition(partition_index=0, leader_id=-1)]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=n, host=HOST, port=port) for n, port in self.ports.items()],
            topics=[MetadataResponseTopic(name="t", topic_id=TOPIC_ID, partitions=partitions)],
        )


def on_cluster(scenario: Callable[[Cluster, Client], Awaitable[None]]) -> None:
    world = SmallWorld()

    async def main() -> None:
        cluster = Cluster()
        servers = []
        for node in (1, 2):
            server = Server(world, BROKER_APIS, lambda request, n=node: cluster.answer(n, request), ServerLimits())
            cluster.ports[node] = await server.start(Endpoint(HOST, 0))
            servers.append(server)
        client = Client(world, [Endpoint(HOST, 1), Endpoint(HOST, cluster.ports[1])], timeout_ms=3000)
        try:
            await scenario(cluster, client)
        finally:
            await client.close()
            for server in servers:
                server.stop()
            await asyncio.sleep(0)

    asyncio.run(main())
    world.disk.close()


def test_records_go_to_the_leader_and_come_from_it():
    async def scenario(cluster: Cluster, client: Client) -> None:
        produced = await client.produce("t", 0, b"batch", acks=-1)
        read = await client.fetch("t", 0, 40)
        offset = await client.list_offsets("t", 0, LATEST)

        assert produced is not None
        assert (produced.base_offset, bytes(read.records or b""), offset.offset) == (40, b"batch", 41)
        assert {node for node, api in cluster.asked if api is not Api.METADATA} == {2}
        assert (await client.leader("t", 0)).topic_id == TOPIC_ID

    on_cluster(scenario)


def test_nobody_answers_a_produce_without_acks():
    async def scenario(cluster: Cluster, client: Client) -> None:
        assert await client.produce("t", 0, b"batch", acks=0) is None

    on_cluster(scenario)


def test_who_was_silent_is_asked_last_until_it_answers_again():
    """A broker that is cut off costs a time-out once, not with every question that anybody can answer."""

    async def scenario(cluster: Cluster, client: Client) -> None:
        await client.refresh(["t"])
        cluster.silent = 1
        client.timeout_ms = 200
        with pytest.raises(ConnectionLost):
            await client.refresh(["t"])
        client.timeout_ms = 3000
        cluster.asked.clear()

        await client.refresh(["t"])
        await client.refresh(["t"])

        assert cluster.asked == [(2, Api.METADATA)] * 2

    on_cluster(scenario)


def test_who_was_silent_until_nobody_waited_any_more_is_asked_last() -> None:
    """Whoever asks may give up before the client does: the next one does not begin with the same broker."""

    async def scenario(cluster: Cluster, client: Client) -> None:
        await client.refresh(["t"])
        cluster.silent = 1
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.refresh(["t"]), 0.2)
        cluster.asked.clear()

        await client.refresh(["t"])

        assert cluster.asked == [(2, Api.METADATA)]

    on_cluster(scenario)


def test_who_could_not_be_reached_until_nobody_waited_any_more_is_asked_last() -> None:
    async def scenario(cluster: Cluster, client: Client) -> None:
        with socket.create_server((HOST, 0)) as mute:  # takes the connection, and says nothing
            first = Endpoint(HOST, mute.getsockname()[1])
            impatient = Client(SmallWorld(), [first, Endpoint(HOST, cluster.ports[2])], timeout_ms=3000)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(impatient.refresh(["t"]), 0.2)

            await impatient.refresh(["t"])
            await impatient.close()

        assert cluster.asked == [(2, Api.METADATA)]

    on_cluster(scenario)


def test_ten_who_want_a_broker_that_is_silent_wait_for_one_time_out() -> None:
    """They tried one after the other, the last for ten time-outs."""

    async def main() -> list[type]:
        accepted: list[asyncio.StreamWriter] = []
        silent = await asyncio.start_server(lambda _, writer: accepted.append(writer), HOST, 0)
        client = Client(SmallWorld(), [Endpoint(HOST, silent.sockets[0].getsockname()[1])], timeout_ms=100)
        async with asyncio.timeout(0.5):
            answers = await asyncio.gather(*(client.refresh() for _ in range(10)), return_exceptions=True)
        await client.close()
        silent.close()
        for writer in accepted:
            writer.close()
        return [type(answer) for answer in answers]

    assert asyncio.run(main()) == [Unreachable] * 10


def test_stale_metadata_is_forgotten_and_asked_for_afresh():
    async def scenario(cluster: Cluster, client: Client) -> None:
        await client.leader("t", 0)
        cluster.leader = 1

        first = await client.produce("t", 0, b"batch", acks=1)
        second = await client.produce("t", 0, b"batch", acks=1)

        assert first is not None
        assert second is not None
        assert (first.error_code, second.error_code) == (Error.NOT_LEADER_OR_FOLLOWER, Error.NONE)

    on_cluster(scenario)


def test_without_a_leader_nothing_was_sent():
    async def scenario(cluster: Cluster, client: Client) -> None:
        cluster.leader = -1

        with pytest.raises(Unreachable, match="t-0 has no leader"):
            await client.produce("t", 0, b"batch", acks=1)
        with pytest.raises(Unreachable, match="broker 9"):
            await client.ask(exchange_of(Api.METADATA), cluster.metadata(), node=NodeId(9))

    on_cluster(scenario)


def test_topics_are_created_by_anybody():
    async def scenario(cluster: Cluster, client: Client) -> None:
        made = await client.create_topic("new", assignments=[[1, 2]], configs={"min.insync.replicas": "2"})

        assert (made.name, made.error_code) == ("new", Error.NONE)

    on_cluster(scenario)


def test_a_closed_connection_is_opened_again_by_the_next_question():
    async def scenario(cluster: Cluster, client: Client) -> None:
        with pytest.raises(ConnectionLost):
            await client.ask(exchange_of(Api.DESCRIBE_CLUSTER), _describe(), node=NodeId(1))
        assert await client.refresh(["t"]) is not None

    on_cluster(scenario)


def _describe():
    from replog.wire.messages.describe_cluster import DescribeClusterRequest

    return DescribeClusterRequest()


@pytest.mark.parametrize("node", [0, 1])
def test_a_coordinator_is_looked_for_once(node: int):
    async def scenario(cluster: Cluster, client: Client) -> None:
        cluster.ports[node] = cluster.ports[1]
        cluster.coordinator = node
        link = CoordinatorLink(client, "g", GROUP)
        for _ in range(3):
            await link.ask(exchange_of(Api.HEARTBEAT), HeartbeatRequest(group_id="g"))

        apis = [api for _, api in cluster.asked]
        assert (apis.count(Api.FIND_COORDINATOR), apis.count(Api.HEARTBEAT)) == (1, 3)

    on_cluster(scenario)
