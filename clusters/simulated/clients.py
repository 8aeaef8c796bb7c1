"""Makes the clients of simulated workloads, all of them on one machine called `clients`."""

import asyncio
from collections.abc import Sequence
from typing import Literal, NoReturn

from replog.client.client import EARLIEST, LATEST, NO_ANSWER, Client
from replog.config import Endpoint
from replog.errors import Error
from replog.ports import World
from replog.types import NodeId
from replog.wire.messages.fetch import EXCHANGE as FETCH
from replog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from replog.wire.messages.list_offsets import EXCHANGE
from tribunal.clusters.api import (
    ClusterError,
    ClusterState,
    GroupSettings,
    Offsets,
    ProducerSettings,
    TopicPartition,
    Unsupported,
)
from tribunal.clusters.clients.list_offsets import combined, failed, in_order, request_at
from tribunal.clusters.clients.operating import Operating
from tribunal.clusters.clock import moment_s
from tribunal.clusters.simulated.consumers import SimulatedConsumer, SimulatedMember
from tribunal.clusters.simulated.operator import SimulatedAsker, SimulatedOperator
from tribunal.clusters.simulated.producers import SimulatedProducer, SimulatedTransactions
from tribunal.clusters.simulated.writers import Writers

REQUEST_TIMEOUT_MS = 2_500
RETRY_MS = 100


class SimulatedClients:
    """Makes clients; implements `tribunal.clusters.api.ClientFactory`."""

    def __init__(
        self, world: World, bootstrap: Sequence[Endpoint], state: ClusterState, racks: Sequence[str] = ()
    ) -> None:
        """`racks`: of the brokers; then each consumer is in one of them."""
        self._racks = racks
        self._world = world
        self._bootstrap = list(bootstrap)
        self._state = state
        self.writers = Writers()

    def producer(self, settings: ProducerSettings, client_id: str) -> SimulatedProducer:
        """Make a producer."""
        client = self._client(client_id, settings.request_timeout_ms)
        return SimulatedProducer(client, self._world.clock, settings, self.writers.named(client_id, None))

    def consumer(
        self, client_id: str, isolation: Literal["read_uncommitted", "read_committed"], *, finds_end: bool = False
    ) -> SimulatedConsumer:
        """Make a consumer."""
        rack = self._world.entropy.random("racks").choice(self._racks) if self._racks else ""
        return SimulatedConsumer(self._client(client_id, REQUEST_TIMEOUT_MS), isolation, rack)

    def admin(self, client_id: str) -> "SimulatedAdmin":
        """Make an admin client."""
        return SimulatedAdmin(self._client(client_id, REQUEST_TIMEOUT_MS), self._state)

    def group_consumer(self, settings: GroupSettings, client_id: str) -> SimulatedMember:
        """Make a member of a group."""
        fetching = self.consumer(f"{client_id}-fetch", settings.isolation)
        return SimulatedMember(self._client(client_id, REQUEST_TIMEOUT_MS), fetching, settings)

    def transactional_producer(
        self, transactional_id: str, transaction_timeout_ms: int, client_id: str
    ) -> SimulatedTransactions:
        """Make a producer of transactions."""
        client = self._client(client_id, REQUEST_TIMEOUT_MS)
        writer = self.writers.named(client_id, transactional_id)
        return SimulatedTransactions(client, self._world.clock, transactional_id, transaction_timeout_ms, writer)

    def objects(self, client_id: str) -> NoReturn:
        """Refuse: a log has records."""
        raise Unsupported("a log has no operations on objects")

    def operator(self, client_id: str) -> Operating:
        """Make an operator."""
        return Operating(SimulatedAsker(self._client(client_id, REQUEST_TIMEOUT_MS)))

    async def is_served(self, partition: TopicPartition, node: int, rack: str) -> bool:
        """Ask a replica for records as a reader of its rack does; return whether it does not refuse."""
        client = self._client("rack-prober", REQUEST_TIMEOUT_MS)
        try:
            leader = await client.leader(*partition)
            wanted = FetchPartition(
                partition=partition.partition,
                current_leader_epoch=leader.leader_epoch,
                fetch_offset=0,
                partition_max_bytes=1,
            )
            topic = FetchTopic(topic=partition.topic, topic_id=leader.topic_id, partitions=[wanted])
            request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, rack_id=rack, topics=[topic])
            answer = await client.ask(FETCH, request, node=NodeId(node))
        except NO_ANSWER:
            return False
        finally:
            await client.close()
        errors = [data.error_code for topic in answer.responses for data in topic.partitions]
        return errors in ([Error.NONE], [Error.OFFSET_OUT_OF_RANGE])  # where its log begins is for it to say

    def fault_operator(self, client_id: str) -> SimulatedOperator:
        """Make the operator of faults that order something."""
        return SimulatedOperator(self._client(client_id, REQUEST_TIMEOUT_MS))

    def _client(self, client_id: str, timeout_ms: int) -> Client:
        # Every client begins with another broker, so that none is everybody's first choice.
        first = self._world.entropy.random("bootstrap").randrange(len(self._bootstrap))
        bootstrap = self._bootstrap[first:] + self._bootstrap[:first]
        return Client(self._world, bootstrap, client_id=client_id, timeout_ms=timeout_ms)


class SimulatedAdmin:
    """Asks for topics and offsets; implements `tribunal.clusters.api.Admin`."""

    def __init__(self, client: Client, state: ClusterState) -> None:
        self._client = client
        self._state = state

    async def create_topic(self, topic: str, partitions: int, replication_factor: int, timeout_ms: int) -> None:
        """Create a topic; an existing one of this name is fine."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        reason = "no answer"
        while loop.time() < deadline:
            try:
                answer = await self._client.create_topic(
                    topic, partitions=partitions, replication_factor=replication_factor
                )
            except NO_ANSWER as problem:
                reason = str(problem)
            else:
                if answer.error_code in (Error.NONE, Error.TOPIC_ALREADY_EXISTS):
                    return
                reason = f"{answer.error_code.name}: {answer.error_message}"
            await asyncio.sleep(RETRY_MS / 1000)
        raise ClusterError(f"topic {topic} cannot be created: {reason}")

    async def delete_topic(self, topic: str, timeout_ms: int) -> None:
        """Ask for a topic to be deleted."""
        await Operating(SimulatedAsker(self._client)).delete_topic(topic)

    async def offsets(
        self, partitions: Sequence[TopicPartition], timeout_ms: int, *, stable: bool = False
    ) -> list[Offsets]:
        """Ask each committed leader, in its committed epoch (see `clusters/clients/list_offsets.py` for the reason)."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            state = self._state.partitions.get(partition)
            if state is not None and state.leader >= 0:
                by_leader.setdefault(state.leader, []).append(partition)
        answers = await asyncio.gather(
            *(self._offsets_of(NodeId(leader), asked, timeout_ms, stable=stable) for leader, asked in by_leader.items())
        )
        return in_order(partitions, answers)

    async def close(self) -> None:
        """Release everything."""
        await self._client.close()

    async def _offsets_of(
        self, leader: NodeId, asked: list[TopicPartition], timeout_ms: int, *, stable: bool
    ) -> list[Offsets]:
        epochs = {partition: self._state.partitions[partition].leader_epoch for partition in asked}
        asked_s = moment_s()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                # Earliest first: between the two answers an offset may only grow.
                earliest, latest = [
                    await self._client.ask(EXCHANGE, request_at(timestamp, epochs, stable=stable), node=leader)
                    for timestamp in (EARLIEST, LATEST)
                ]
        except (*NO_ANSWER, TimeoutError) as problem:
            return [failed(partition, type(problem).__name__) for partition in asked]
        return combined(leader, epochs, earliest, latest, asked_s=asked_s)
