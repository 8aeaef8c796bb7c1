"""A small client of a whole cluster: finds leaders, keeps connections, asks.

It retries nothing: an answer with an error code is a value for the caller, who knows whether it may ask again. Two
exceptions say what is known when there is no answer: `Unreachable` (surely without effect) and `ConnectionLost`
(nobody knows). When an answer says that our metadata is stale it is forgotten, and the next call asks afresh.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

import msgspec

from replog.client.attempts import Attempts
from replog.client.connection import Connection, ConnectionLost, UnsupportedVersion
from replog.config import Endpoint
from replog.errors import Error
from replog.ports import Buffer, World
from replog.types import NO_NODE, ZERO_UUID, NodeId
from replog.wire.exchange import Exchange, Q, R
from replog.wire.messages import create_topics, fetch, list_offsets, metadata, produce
from replog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from replog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from replog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from replog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from replog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)

Item = TypeVar("Item")
LATEST: Final = -1
EARLIEST: Final = -2
STALE: Final = frozenset(
    {
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.LEADER_NOT_AVAILABLE,
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.FENCED_LEADER_EPOCH,
        Error.UNKNOWN_LEADER_EPOCH,
        Error.UNKNOWN_TOPIC_ID,
        Error.INCONSISTENT_TOPIC_ID,
        Error.KAFKA_STORAGE_ERROR,
    }
)


class Unreachable(Exception):
    """There was nobody to ask: the request was surely not sent."""


NO_ANSWER: Final = (Unreachable, ConnectionLost, UnsupportedVersion)


class Leader(msgspec.Struct, frozen=True, kw_only=True):
    """Who leads a partition, as the last metadata said."""

    node_id: NodeId
    leader_epoch: int
    topic_id: UUID


class Produced(NamedTuple):
    """A leader's answer to a batch, and the topic that it answered for; None where it named that by its name alone."""

    answer: PartitionProduceResponse
    topic_id: UUID | None


class Client:
    """Connections to a cluster and what it said about itself."""

    def __init__(
        self, world: World, bootstrap: Sequence[Endpoint], *, client_id: str = "tribunal", timeout_ms: int = 30000
    ) -> None:
        self.client_id = client_id
        self.timeout_ms = timeout_ms
        self.brokers: dict[NodeId, Endpoint] = {}
        self.controller_id = NO_NODE
        self._world = world
        self._bootstrap = list(bootstrap)
        self._leaders: dict[tuple[str, int], Leader] = {}
        self._connections: dict[Endpoint, Connection] = {}
        self._attempts: dict[Endpoint, Attempts] = {}
        self._silent: dict[Endpoint, None] = {}  # did not answer, or could not be reached, when last asked

    async def close(self) -> None:
        """Close all connections and let the loop take notice."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        await asyncio.sleep(0)

    # asking anybody for anything

    async def ask(self, exchange: Exchange[Q, R], body: Q, *, node: NodeId | None = None) -> R:
        """Ask a broker, or any that can be reached, and return the answer."""
        connection = await self._connection_to(node)
        try:
            return await connection.send(exchange, body, timeout_ms=self.timeout_ms)
        except (ConnectionLost, asyncio.CancelledError):  # who asked may have given up first
            self._silent[connection.endpoint] = None
            raise

    async def ask_at(self, endpoint: Endpoint, exchange: Exchange[Q, R], body: Q) -> R:
        """Ask whoever listens at an address (controllers, for example)."""
        connection = await self._open(endpoint)
        return await connection.send(exchange, body, timeout_ms=self.timeout_ms)

    async def _connection_to(self, node: NodeId | None) -> Connection:
        if node is not None:
            if node not in self.brokers:
                await self.refresh([])
            if node not in self.brokers:
                raise Unreachable(f"broker {node} is not known to the cluster")
            return await self._open(self.brokers[node])
        reasons = []
        everybody = dict.fromkeys([*self._bootstrap, *self.brokers.values()])
        # Who was silent last time comes last: a broker that is cut off costs the whole time-out, each time.
        for endpoint in sorted(everybody, key=self._silent.__contains__):
            try:
                return await self._open(endpoint)
            except Unreachable as problem:
                reasons.append(str(problem))
        raise Unreachable("; ".join(reasons) or "no address to ask")

    async def _open(self, endpoint: Endpoint) -> Connection:
        async with self._attempts.setdefault(endpoint, Attempts()).turn() as turn:
            known = self._connections.get(endpoint)
            if known is not None and known.is_open:
                return known
            connection = Connection(self._world, endpoint, self.client_id)
            try:
                await turn.open(connection, timeout_ms=self.timeout_ms)
            except (ConnectionLost, UnsupportedVersion) as problem:
                self._silent[endpoint] = None
                raise Unreachable(str(problem)) from None
            except asyncio.CancelledError:
                self._silent[endpoint] = None
                raise
            self._silent.pop(endpoint, None)
            self._connections[endpoint] = connection
            return connection

    # metadata

    async def refresh(self, topics: Sequence[str] | None = None, *, create: bool = False) -> MetadataResponse:
        """Ask for brokers and topics (None: all topics) and remember who leads what."""
        wanted = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
        answer = await self.ask(metadata.EXCHANGE, MetadataRequest(topics=wanted, allow_auto_topic_creation=create))
        self.brokers = {NodeId(broker.node_id): Endpoint(broker.host, broker.port) for broker in answer.brokers}
        self.controller_id = NodeId(answer.controller_id)
        for topic in answer.topics:
            self._forget(topic.name or "")
            for partition in topic.partitions:
                if partition.leader_id >= 0:
                    self._leaders[topic.name or "", partition.partition_index] = Leader(
                        node_id=NodeId(partition.leader_id),
                        leader_epoch=partition.leader_epoch,
                        topic_id=topic.topic_id,
                    )
        return answer

    async def leader(self, topic: str, partition: int) -> Leader:
        """Return who leads a partition; asks when it is not known. `Unreachable` when nobody does."""
        if (topic, partition) not in self._leaders:
            await self.refresh([topic])
        found = self._leaders.get((topic, partition))
        if found is None:
            raise Unreachable(f"{topic}-{partition} has no leader")
        return found

    def forget(self, topic: str) -> None:
        """Ask afresh, the next time, who leads this topic's partitions."""
        self._forget(topic)

    def _forget(self, topic: str) -> None:
        for key in [key for key in self._leaders if key[0] == topic]:
            del self._leaders[key]

    async def _ask_leader(self, exchange: Exchange[Q, R], topic: str, leader: Leader, body: Q) -> R:
        try:
            return await self.ask(exchange, body, node=leader.node_id)
        except (Unreachable, ConnectionLost):
            self._forget(topic)
            raise

    async def _send_leader(self, topic: str, leader: Leader, body: ProduceRequest) -> None:
        try:
            connection = await self._connection_to(leader.node_id)
            try:
                connection.send_unanswered(body)
            except ConnectionLost:
                self._silent[connection.endpoint] = None
                raise
        except (Unreachable, ConnectionLost):
            self._forget(topic)
            raise

    def _note(self, topic: str, error: Error) -> None:
        if error in STALE:
            self._forget(topic)

    # records

    async def produce(
        self,
        topic: str,
        partition: int,
        batch: Buffer,
        *,
        acks: int,
        timeout_ms: int | None = None,
        transactional_id: str | None = None,
    ) -> PartitionProduceResponse | None:
        """Send one record batch to the leader; None when acks is 0, because then nobody answers."""
        leader = await self.leader(topic, partition)
        produced = await self.produce_to(
            leader, topic, partition, batch, acks=acks, timeout_ms=timeout_ms, transactional_id=transactional_id
        )
        return None if produced is None else produced.answer

    async def produce_to(
        self,
        leader: Leader,
        topic: str,
        partition: int,
        batch: Buffer,
        *,
        acks: int,
        timeout_ms: int | None,
        transactional_id: str | None,
    ) -> Produced | None:
        """Send one record batch to a partition's leader as it is known to be; None when acks is 0."""
        data = PartitionProduceData(index=partition, records=batch if isinstance(batch, bytes) else memoryview(batch))
        body = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=self.timeout_ms if timeout_ms is None else timeout_ms,
            topic_data=[TopicProduceData(name=topic, topic_id=leader.topic_id, partition_data=[data])],
        )
        if acks == 0:
            await self._send_leader(topic, leader, body)
            return None
        answer = await self._ask_leader(produce.EXCHANGE, topic, leader, body)
        written = _only(answer.responses)
        result = _only(written.partition_responses)
        self._note(topic, result.error_code)
        return Produced(result, None if written.topic_id == ZERO_UUID else written.topic_id)

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 1048576,
        isolation_level: int = 0,
    ) -> PartitionData:
        """Read from an offset on; `records` are whole batches as the log has them."""
        leader = await self.leader(topic, partition)
        wanted = FetchPartition(
            partition=partition,
            current_leader_epoch=leader.leader_epoch,
            fetch_offset=offset,
            partition_max_bytes=max_bytes,
        )
        answer = await self._ask_leader(
            fetch.EXCHANGE,
            topic,
            leader,
            FetchRequest(
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                isolation_level=isolation_level,
                topics=[FetchTopic(topic=topic, topic_id=leader.topic_id, partitions=[wanted])],
            ),
        )
        if answer.error_code is not Error.NONE or not answer.responses:
            self._note(topic, answer.error_code)
            return PartitionData(partition_index=partition, error_code=answer.error_code, high_watermark=-1)
        result = _only(_only(answer.responses).partitions)
        self._note(topic, result.error_code)
        return result

    async def list_offsets(
        self, topic: str, partition: int, timestamp: int, *, isolation_level: int = 0
    ) -> ListOffsetsPartitionResponse:
        """Ask for an offset by timestamp, `LATEST` or `EARLIEST`."""
        leader = await self.leader(topic, partition)
        wanted = ListOffsetsPartition(
            partition_index=partition, current_leader_epoch=leader.leader_epoch, timestamp=timestamp
        )
        answer = await self._ask_leader(
            list_offsets.EXCHANGE,
            topic,
            leader,
            ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation_level,
                topics=[ListOffsetsTopic(name=topic, partitions=[wanted])],
                timeout_ms=self.timeout_ms,
            ),
        )
        result = _only(_only(answer.topics).partitions)
        self._note(topic, result.error_code)
        return result

    # topics

    async def create_topic(
        self,
        topic: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        assignments: Sequence[Sequence[int]] = (),
        configs: dict[str, str] | None = None,
    ) -> CreatableTopicResult:
        """Create one topic, by numbers or by the replicas of each partition."""
        wanted = CreatableTopic(
            name=topic,
            num_partitions=-1 if assignments else partitions,
            replication_factor=-1 if assignments else replication_factor,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
                for index, replicas in enumerate(assignments)
            ],
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in (configs or {}).items()],
        )
        answer = await self.ask(
            create_topics.EXCHANGE, CreateTopicsRequest(topics=[wanted], timeout_ms=self.timeout_ms)
        )
        self._forget(topic)
        return _only(answer.topics)


def _only(items: Sequence[Item]) -> Item:
    """Return the one item that was asked for; another count is no answer to our question."""
    if len(items) != 1:
        raise ConnectionLost(f"asked for one thing and got {len(items)}")
    return items[0]
