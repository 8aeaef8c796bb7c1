"""Fetch: serve consumers up to the high watermark, replicas up to the log's end (SPEC 3.2, 3.9.1).

A fetch that finds too little waits for one of its partitions to move, or for its time to be over. A replica's
position is taken once, when the request comes in; a later look only reads. Answers never open a fetch session: session
id 0 tells every client that there is none (SPEC 3.2.7).
"""

from typing import Final

from replog.broker.partition import FetchAnswer
from replog.errors import Error
from replog.node.replicas import Replica, Replicas
from replog.node.server import ServerRequest
from replog.types import NO_BROKER_EPOCH, NO_NODE, BrokerEpoch, NodeId
from replog.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

FIRST_VERSION_WITH_REPLICA_STATE: Final = 15
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
FIRST_VERSION_WITH_RACK: Final = 11
NO_DIVERGENCE: Final = EpochEndOffset()
NO_LEADER: Final = LeaderIdAndEpoch()


class Outcome:
    """What one look at all partitions of a fetch brought."""

    __slots__ = ("is_urgent", "leaders", "size_bytes", "topics")

    def __init__(self) -> None:
        self.topics: list[FetchableTopicResponse] = []
        self.leaders: dict[NodeId, None] = {}
        self.size_bytes = 0
        self.is_urgent = False  # an error, a divergence or other news: waiting would not make it better


class Fetch:
    """A fetch request until it is answered."""

    __slots__ = (
        "_wanted",
        "api",
        "body",
        "broker_epoch",
        "deadline_ms",
        "heeds_appends",
        "heeds_watermarks",
        "leader_only",
        "max_bytes",
        "replica_id",
        "request",
    )

    def __init__(self, api: "FetchApi", request: ServerRequest, now_ms: int) -> None:
        body: FetchRequest = request.body
        self.api = api
        self.request = request
        self.body = body
        if request.version >= FIRST_VERSION_WITH_REPLICA_STATE:
            self.replica_id = NodeId(body.replica_state.replica_id)
            self.broker_epoch = BrokerEpoch(body.replica_state.replica_epoch)
        else:
            self.replica_id = NodeId(body.replica_id)
            self.broker_epoch = NO_BROKER_EPOCH
        # KIP-392: a follower serves those whom their rack sent here.
        self.leader_only = request.version < FIRST_VERSION_WITH_RACK or not body.rack_id or body.rack_id != api.rack
        # A consumer sees nothing new of a record before it is committed.
        self.heeds_appends = self.replica_id >= 0
        # KAFKA-9731: a follower hears of a raised high watermark with the next data, or when its wait is over; at
        # once only where it may serve readers itself. Else every record would cost each follower two round trips.
        self.heeds_watermarks = self.replica_id < 0 or bool(api.rack)
        limit = api.consumer_bytes_max if self.replica_id < 0 else api.replica_bytes_max
        self.max_bytes = min(body.max_bytes, limit)
        self.deadline_ms = now_ms + body.max_wait_ms
        self._wanted: list[tuple[FetchTopic, dict[int, Replica]]] = [
            (topic, api.hosted(topic, request.version)) for topic in body.topics
        ]

    def watched(self) -> list[Replica]:
        """Return the partitions whose moves concern this fetch."""
        return [
            hosted[partition.partition]
            for topic, hosted in self._wanted
            for partition in topic.partitions
            if partition.partition in hosted
        ]

    def look(self, *, takes_position: bool) -> Outcome:
        """Read from all partitions, as far as sizes allow."""
        outcome = Outcome()
        now_ms = self.api.clock.now_ms()
        for topic, hosted in self._wanted:
            partitions = [
                self._partition(topic, wanted, hosted.get(wanted.partition), outcome, takes_position, now_ms)
                for wanted in topic.partitions
            ]
            outcome.topics.append(
                FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions)
            )
        return outcome

    def look_again(self, *, is_final: bool) -> bool:
        """Answer if there is enough now, or anyhow when final."""
        if self.request.is_answered:
            return True  # the connection is gone
        outcome = self.look(takes_position=False)
        if not is_final and not self.is_satisfied(outcome):
            return False
        self.api.replicas.forget_fetch(self, self.watched())
        self.answer(outcome)
        return True

    def is_satisfied(self, outcome: Outcome) -> bool:
        """Tell whether there is no reason to wait longer."""
        return outcome.is_urgent or outcome.size_bytes >= self.body.min_bytes

    def answer(self, outcome: Outcome) -> None:
        """Reply with what was found."""
        endpoints = [endpoint for node in outcome.leaders for endpoint in self.api.endpoint(node)]
        self.request.reply(FetchResponse(responses=outcome.topics, node_endpoints=endpoints))

    def _partition(
        self,
        topic: FetchTopic,
        wanted: FetchPartition,
        replica: Replica | None,
        outcome: Outcome,
        takes_position: bool,  # noqa: FBT001 - by position in a hot loop
        now_ms: int,
    ) -> PartitionData:
        if replica is None:
            outcome.is_urgent = True
            error = self.api.replicas.missing_error(topic.topic, topic.topic_id, wanted.partition)
            return self._failure(topic, wanted.partition, error, outcome)
        budget = min(wanted.partition_max_bytes, self.max_bytes - outcome.size_bytes)
        # KIP-74: the first batch of an answer may exceed all limits, or a big one could never be read.
        first = outcome.size_bytes == 0
        answer = self._read(replica, wanted, max(budget, 0), first, takes_position, now_ms)
        if answer.error is not Error.NONE:
            outcome.is_urgent = True
            return self._failure(topic, wanted.partition, answer.error, outcome, answer)
        outcome.size_bytes += len(answer.records)
        if (answer.is_news and self.heeds_watermarks) or answer.diverging is not None:
            outcome.is_urgent = True
        return _success(wanted.partition, answer)

    def _read(
        self,
        replica: Replica,
        wanted: FetchPartition,
        max_bytes: int,
        first: bool,  # noqa: FBT001 - by position in a hot loop
        takes_position: bool,  # noqa: FBT001
        now_ms: int,
    ) -> FetchAnswer:
        partition = replica.partition
        if self.replica_id < 0:
            return partition.fetch_as_consumer(
                current_leader_epoch=wanted.current_leader_epoch,
                fetch_offset=wanted.fetch_offset,
                last_fetched_epoch=wanted.last_fetched_epoch,
                isolation=self.body.isolation_level,
                leader_only=self.leader_only,
                max_bytes=max_bytes,
                at_least_one=first,
            )
        answer, effects = partition.fetch_as_replica(
            replica=self.replica_id,
            broker_epoch=self.broker_epoch,
            current_leader_epoch=wanted.current_leader_epoch,
            fetch_offset=wanted.fetch_offset,
            last_fetched_epoch=wanted.last_fetched_epoch,
            log_start_offset=wanted.log_start_offset,
            known_high_watermark=wanted.high_watermark,
            max_bytes=max_bytes,
            at_least_one=first,
            takes_position=takes_position,
            now_ms=now_ms,
        )
        if effects:
            self.api.replicas.perform(replica, effects)
        return answer

    def _failure(
        self, topic: FetchTopic, index: int, error: Error, outcome: Outcome, answer: FetchAnswer | None = None
    ) -> PartitionData:
        leader = NO_LEADER
        if error in (Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH):
            leader_id, leader_epoch = self.api.replicas.other_leader(topic.topic, topic.topic_id, index)
            if leader_id != NO_NODE:
                outcome.leaders[leader_id] = None
                leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
        return PartitionData(
            partition_index=index,
            error_code=error,
            high_watermark=answer.high_watermark if answer else -1,
            log_start_offset=answer.log_start_offset if answer else -1,
            current_leader=leader,
            aborted_transactions=None,
            records=b"",
        )


class FetchApi:
    """Reads for consumers and replicas."""

    def __init__(self, replicas: Replicas, *, rack: str, consumer_bytes_max: int, replica_bytes_max: int) -> None:
        self.replicas = replicas
        self.clock = replicas.world.clock
        self.rack = rack
        self.consumer_bytes_max = consumer_bytes_max
        self.replica_bytes_max = replica_bytes_max

    def handle(self, request: ServerRequest) -> None:
        """Answer now or let the fetch wait."""
        fetch = Fetch(self, request, self.clock.now_ms())
        outcome = fetch.look(takes_position=True)
        watched = fetch.watched()
        if fetch.is_satisfied(outcome) or fetch.body.max_wait_ms <= 0 or not watched:
            fetch.answer(outcome)
        else:
            self.replicas.delay_fetch(fetch, watched)

    def hosted(self, topic: FetchTopic, version: int) -> dict[int, Replica]:
        """Return the hosted partitions of a topic by the way this version names it."""
        if version >= FIRST_VERSION_WITH_TOPIC_IDS:
            return self.replicas.by_topic_id.get(topic.topic_id, {})
        return self.replicas.by_topic.get(topic.topic, {})

    def endpoint(self, node: NodeId) -> list[NodeEndpoint]:
        """Return where a leader is to be found (KIP-951)."""
        known = self.replicas.metadata.endpoint_of(node)
        return [] if known is None else [NodeEndpoint(node_id=node, host=known.host, port=known.port, rack=None)]


def _success(index: int, answer: FetchAnswer) -> PartitionData:
    diverging = answer.diverging
    return PartitionData(
        partition_index=index,
        high_watermark=answer.high_watermark,
        last_stable_offset=answer.last_stable_offset,
        log_start_offset=answer.log_start_offset,
        aborted_transactions=None
        if answer.aborted is None
        else [
            AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
            for aborted in answer.aborted
        ],
        records=answer.records,
        diverging_epoch=NO_DIVERGENCE
        if diverging is None
        else EpochEndOffset(epoch=diverging[0], end_offset=diverging[1]),
    )
