"""Fetch: serve consumers up to the high watermark, replicas up to the log's end (SPEC 3.2, 3.9.1).

A fetch that finds too little waits for one of its partitions to move, or for its time to be over. A replica's
position is taken once, when the request comes in; a later look only reads.

Every fetch belongs to a session (`replog.broker.fetch_sessions`), if only for itself: one that was asked to be remembered
looks at nothing but the partitions that are due (SPEC 3.2.7, KIP-227).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final
from uuid import UUID

from replog.broker.fetch_sessions import NO_SESSION, NOT_REPORTED, FetchSession, FetchSessions, Key, SessionPartition
from replog.broker.partition import READ_COMMITTED, FetchAnswer
from replog.broker.read_replica import RACK_AWARE, Readable, preferred_read_replica
from replog.config import NodeConfig
from replog.controller.served_api import ServedApi, Unasked
from replog.errors import Error
from replog.node.api.authorizer import Authorizer
from replog.node.net.handlers import AnswersApi, HandledApi
from replog.node.net.server import ServerRequest
from replog.node.replication.replicas import Replica, Replicas
from replog.types import DEBUGGING_CONSUMER, NO_BROKER_EPOCH, NO_NODE, ZERO_UUID, BrokerEpoch, NodeId
from replog.wire.messages.fetch import (
    EXCHANGE,
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

FIRST_VERSION_WITH_REPLICA_STATE: Final = 15
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
FIRST_VERSION_WITH_RACK: Final = 11
UNSENT_BYTES_MAX: Final = 64 * 1024 * 1024  # of answers that slow readers leave in memory, all together
ANSWER_BYTES_MIN: Final = 64 * 1024
NO_DIVERGENCE: Final = EpochEndOffset()
NO_LEADER: Final = LeaderIdAndEpoch()


class Outcome:
    """What one look at the partitions of a fetch brought."""

    __slots__ = ("found", "is_urgent", "leaders", "size_bytes")

    def __init__(self) -> None:
        self.found: list[tuple[SessionPartition, PartitionData]] = []
        self.leaders: dict[NodeId, None] = {}
        self.size_bytes = 0
        self.is_urgent = False  # an error, a divergence or other news: waiting would not make it better


class Fetch:
    """A fetch request until it is answered."""

    __slots__ = (
        "api",
        "body",
        "broker_epoch",
        "deadline_ms",
        "is_full",
        "leader_only",
        "max_bytes",
        "may_be_redirected",
        "min_bytes",
        "rack",
        "replica_id",
        "request",
        "session",
        "uses_topic_ids",
        "waits_for_appends",
        "waits_for_watermarks",
    )

    def __init__(self, api: "FetchApi", request: ServerRequest[FetchRequest, FetchResponse], now_ms: int) -> None:
        body = request.body
        self.api = api
        self.request = request
        self.body = body
        if request.version >= FIRST_VERSION_WITH_REPLICA_STATE:
            self.replica_id = NodeId(body.replica_state.replica_id)
            self.broker_epoch = BrokerEpoch(body.replica_state.replica_epoch)
        else:
            self.replica_id = NodeId(body.replica_id)
            self.broker_epoch = NO_BROKER_EPOCH
        self.rack = body.rack_id if request.version >= FIRST_VERSION_WITH_RACK else ""
        # KIP-392: a follower serves those whom their rack sent here; and, as Kafka's, who compares replicas.
        self.leader_only = self.replica_id != DEBUGGING_CONSUMER and (not self.rack or self.rack != api.rack)
        self.may_be_redirected = (
            api.selects_by_rack and self.replica_id < 0 and bool(self.rack) and self.rack != api.rack
        )
        # A consumer sees nothing new of a record before it is committed.
        self.waits_for_appends = self.replica_id >= 0
        # KAFKA-9731: a follower learns of a raised high watermark with the next data, or when its wait is over; at
        # once only where it may serve readers itself. Else every record would cost each follower two round trips.
        self.waits_for_watermarks = self.replica_id < 0 or bool(api.rack)
        limit = api.consumer_bytes_max if self.replica_id < 0 else api.replica_bytes_max
        # Slow readers of large answers share what is left; each still gets its first batch.
        self.max_bytes = min(body.max_bytes, limit, max(ANSWER_BYTES_MIN, UNSENT_BYTES_MAX - api.unsent_bytes()))
        self.min_bytes = min(body.min_bytes, self.max_bytes)  # more will never come
        self.deadline_ms = now_ms + body.max_wait_ms
        self.uses_topic_ids = request.version >= FIRST_VERSION_WITH_TOPIC_IDS
        self.session: FetchSession
        self.is_full = True

    def wanted(self) -> Iterator[tuple[Key, FetchPartition]]:
        """Yield what the request names."""
        by_id = self.uses_topic_ids
        for topic in self.body.topics:
            name = topic.topic_id if by_id else topic.topic
            for partition in topic.partitions:
                yield (name, partition.partition), partition

    def forgotten(self) -> Iterator[Key]:
        """Yield what the request wants no more of."""
        by_id = self.uses_topic_ids
        for topic in self.body.forgotten_topics_data:
            for index in topic.partitions:
                yield (topic.topic_id if by_id else topic.topic), index

    def look(self, *, takes_position: bool) -> Outcome:
        """Read from all partitions that matter, as far as sizes allow."""
        outcome = Outcome()
        now_ms = self.api.clock.now_ms()
        session = self.session
        for partition in list(session.partitions.values() if self.is_full else session.due):
            data = self._partition(partition, outcome, takes_position, now_ms)
            if data is not None:
                outcome.found.append((partition, data))
        return outcome

    def look_again(self, *, is_final: bool) -> bool:
        """Answer if there is enough now, or anyhow when final."""
        if self.request.is_answered:
            self.api.forget(self)
            return True  # the connection is gone
        outcome = self.look(takes_position=False)
        if not is_final and not self.is_satisfied(outcome):
            return False
        self.answer(outcome)
        return True

    def is_satisfied(self, outcome: Outcome) -> bool:
        """Return whether there is no reason to wait longer."""
        if outcome.is_urgent or outcome.size_bytes >= self.min_bytes:
            return True
        return outcome.size_bytes > 0 and self._is_kept_back(outcome)

    def _is_kept_back(self, outcome: Outcome) -> bool:
        """Return whether there is enough although it does not all come: waiting would not bring it (as Kafka counts).

        Batches stay whole, so an answer ends before its limits; and a read ends with its segment.
        """
        total_bytes = 0
        for asked, data in outcome.found:
            if data.records:
                assert asked.hosted is not None, "its records were read"
                partition, wanted = asked.hosted.partition, asked.wanted
                end_offset = partition.log.log_end_offset
                if self.replica_id < 0:
                    is_committed = self.body.isolation_level == READ_COMMITTED
                    end_offset = data.last_stable_offset if is_committed else data.high_watermark
                size_bytes = partition.bytes_kept_back(wanted.fetch_offset, end_offset)
                if size_bytes is None:
                    return True
                total_bytes += max(len(data.records), min(size_bytes, wanted.partition_max_bytes))
        return total_bytes >= self.min_bytes

    def answer(self, outcome: Outcome) -> None:
        """Reply with what was found, and remember what was said."""
        self.api.forget(self)
        topics: dict[object, list[PartitionData]] = {}
        for partition, data in outcome.found:
            _remember(partition, data)
            topics.setdefault(partition.key[0], []).append(data)
        by_id = self.uses_topic_ids
        responses = [
            FetchableTopicResponse(topic_id=name, partitions=found)  # type: ignore[arg-type]
            if by_id
            else FetchableTopicResponse(topic=name, partitions=found)  # type: ignore[arg-type]
            for name, found in topics.items()
        ]
        endpoints = [
            endpoint for node in outcome.leaders for endpoint in self.api.endpoint(node, self.request.listener)
        ]
        session_id = self.session.session_id
        self.request.reply(FetchResponse(session_id=session_id, responses=responses, node_endpoints=endpoints))

    def refuse(self, error: Error) -> None:
        """Answer that the session is not what the asker thinks."""
        self.request.reply(FetchResponse(error_code=error))

    def _partition(
        self,
        partition: SessionPartition,
        outcome: Outcome,
        takes_position: bool,  # noqa: FBT001 - by position in a hot loop
        now_ms: int,
    ) -> PartitionData | None:
        """Return what there is to say of one partition; None when nothing is."""
        wanted = partition.wanted
        if not self.api.authorizer.is_open and not self.api.may_fetch(self, partition.key):
            outcome.is_urgent = True
            return self._failure(partition, Error.TOPIC_AUTHORIZATION_FAILED, outcome)
        replica: Replica | None = partition.hosted
        if replica is None or not replica.is_hosted:
            replica = self.api.find_hosted(partition)
        if replica is None:
            outcome.is_urgent = True
            return self._failure(partition, self.api.missing_error(partition.key), outcome)
        if self.may_be_redirected:
            preferred = self.api.preferred_replica(self, replica, wanted)
            if preferred is not None:
                outcome.is_urgent = True
                return _redirection(wanted.partition, replica, preferred)
        budget = min(wanted.partition_max_bytes, self.max_bytes - outcome.size_bytes)
        # KIP-74: the first batch of an answer may exceed all limits, or a big one could never be read.
        first = outcome.size_bytes == 0
        answer = self._read(replica, partition, max(budget, 0), first, takes_position, now_ms)
        if answer.error is not Error.NONE:
            outcome.is_urgent = True
            return self._failure(partition, answer.error, outcome, answer)
        outcome.size_bytes += len(answer.records)
        if (answer.is_news and self.waits_for_watermarks) or answer.diverging is not None:
            outcome.is_urgent = True
        says = answer.records or answer.diverging is not None
        if not says and not partition.is_news(answer.high_watermark, answer.log_start_offset):
            if answer.is_up_to_date:
                partition.unmark()
                self.api.watch(partition)
            if not self.is_full:
                return None
        return _success(wanted.partition, answer)

    def _read(
        self,
        replica: Replica,
        asked: SessionPartition,
        max_bytes: int,
        first: bool,  # noqa: FBT001 - by position in a hot loop
        takes_position: bool,  # noqa: FBT001
        now_ms: int,
    ) -> FetchAnswer:
        partition = replica.partition
        wanted = asked.wanted
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
            known_high_watermark=asked.known_high_watermark,
            max_bytes=max_bytes,
            at_least_one=first,
            takes_position=takes_position,
            now_ms=now_ms,
            contact=self.session.contact,
        )
        if effects:
            self.api.replicas.perform(replica, effects)
        return answer

    def _failure(
        self, partition: SessionPartition, error: Error, outcome: Outcome, answer: FetchAnswer | None = None
    ) -> PartitionData:
        leader = NO_LEADER
        if error in (Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH):
            leader_id, leader_epoch = self.api.other_leader(partition.key)
            if leader_id != NO_NODE:
                outcome.leaders[leader_id] = None
                leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
        return PartitionData(
            partition_index=partition.wanted.partition,
            error_code=error,
            high_watermark=answer.high_watermark if answer else -1,
            log_start_offset=answer.log_start_offset if answer else -1,
            current_leader=leader,
            aborted_transactions=None,
            records=b"",
        )


class FetchApi:
    """Reads for consumers and replicas."""

    def __init__(
        self, replicas: Replicas, config: NodeConfig, unsent_bytes: Callable[[], int], authorizer: Authorizer
    ) -> None:
        """`unsent_bytes`: what of earlier answers is still in memory, because its readers are slow."""
        self.replicas = replicas
        self.unsent_bytes = unsent_bytes
        self.authorizer = authorizer
        self.clock = replicas.world.clock
        self.rack = config.identity.broker_rack
        self.selects_by_rack = config.network.replica_selector_class == RACK_AWARE
        self.consumer_bytes_max = config.network.fetch_bytes_max
        self.replica_bytes_max = config.replication.fetch_bytes_max
        slots = config.network.fetch_session_count_max
        self.sessions = FetchSessions(slots, replicas.world.entropy.random("fetch sessions"))

    def handle(self, request: ServerRequest[FetchRequest, FetchResponse]) -> None:
        """Answer now or let the fetch wait."""
        now_ms = self.clock.now_ms()
        fetch = Fetch(self, request, now_ms)
        error = self._open_session(fetch, now_ms)
        if error is not Error.NONE:
            fetch.refuse(error)
            return
        outcome = fetch.look(takes_position=True)
        if fetch.is_satisfied(outcome) or fetch.body.max_wait_ms <= 0 or not fetch.session.partitions:
            fetch.answer(outcome)
        else:
            fetch.session.waiting = fetch
            for partition in fetch.session.due:
                self.watch(partition)
            self.replicas.delay_fetch(fetch)

    def _open_session(self, fetch: Fetch, now_ms: int) -> Error:
        body = fetch.body
        opened = self.sessions.open(
            session_id=body.session_id,
            epoch=body.session_epoch,
            wanted=fetch.wanted(),
            forgotten=fetch.forgotten(),
            replica=fetch.replica_id,
            uses_topic_ids=fetch.uses_topic_ids,
            now_ms=now_ms,
        )
        if isinstance(opened, Error):
            return opened
        for ended in opened.ended:
            if ended.waiting is not None:
                self._interrupt(ended.waiting, Error.FETCH_SESSION_ID_NOT_FOUND)
        fetch.session, fetch.is_full = opened.session, opened.is_full
        if fetch.session.waiting is not None:
            self._interrupt(fetch.session.waiting, Error.INVALID_FETCH_SESSION_EPOCH)
        self._unwatch(opened.dropped)
        if fetch.replica_id >= 0:
            known = self.replicas.metadata.brokers.get(fetch.replica_id)
            is_stale_incarnation = known is not None and known.epoch > fetch.broker_epoch != NO_BROKER_EPOCH  # KIP-903
            if is_stale_incarnation or not (
                self.authorizer.is_open or self.authorizer.may_fetch(fetch.request.peer, "", is_replica=True)
            ):
                fetch.session.mark_all()  # every partition refuses it
            else:
                fetch.session.fetched(fetch.broker_epoch, now_ms)
        return Error.NONE

    def _interrupt(self, fetch: Fetch, error: Error) -> None:
        """Answer a fetch whose session went on, or ended, without it."""
        self.forget(fetch)
        fetch.refuse(error)

    def _unwatch(self, dropped: Iterable[SessionPartition]) -> None:
        for partition in dropped:
            replica: Replica | None = partition.hosted
            if replica is not None:
                replica.watchers.pop(partition, None)
                session = partition.session
                if session.contact is not None:
                    replica.partition.on_forgotten(session.replica, session.contact)

    def forget(self, fetch: Fetch) -> None:
        """Let a fetch wait no more."""
        if fetch.session.waiting is fetch:
            fetch.session.waiting = None
            self.replicas.forget_fetch(fetch)
            if fetch.session.session_id == NO_SESSION:
                self._unwatch(fetch.session.partitions.values())

    def find_hosted(self, partition: SessionPartition) -> Replica | None:
        """Return the hosted partition that a session's partition stands for, and remember it."""
        name, index = partition.key
        outer = self.replicas.by_topic_id if partition.session.uses_topic_ids else self.replicas.by_topic
        replica: Replica | None = outer.get(name, {}).get(index)  # type: ignore[call-overload]
        partition.hosted = replica
        return replica

    def watch(self, partition: SessionPartition) -> None:
        """Have a partition's session notified of the next change: one that is up to date, or of a fetch that waits."""
        if partition.hosted is not None:
            partition.hosted.watchers[partition] = None

    def preferred_replica(self, fetch: Fetch, replica: Replica, wanted: FetchPartition) -> NodeId | None:
        """Return which follower the reader should ask instead of us, its leader (KIP-392)."""
        image = self.replicas.metadata.image
        readable = [
            Readable(node, image.brokers[node].rack or "", follower.log_end_offset, follower.last_caught_up_ms)
            for node, follower in replica.partition.readable_followers(
                current_leader_epoch=wanted.current_leader_epoch, fetch_offset=wanted.fetch_offset
            )
            if node in image.brokers
        ]
        return preferred_read_replica(fetch.rack, leader_rack=self.rack, readable=readable)

    def may_fetch(self, fetch: Fetch, key: Key) -> bool:
        """Ask the authorizer; each time, for a session outlives its decisions."""
        name, topic_id, _ = _named(key)
        if topic_id != ZERO_UUID:
            topic = self.replicas.metadata.image.topics.get(topic_id)
            if topic is None:
                return True  # there is nothing to protect
            name = topic.name
        may_fetch, peer = self.authorizer.may_fetch, fetch.request.peer
        if fetch.replica_id == DEBUGGING_CONSUMER and may_fetch(peer, name, is_replica=True):
            return True  # a broker that looks for what its disk lost
        return may_fetch(peer, name, is_replica=fetch.replica_id >= 0)

    def missing_error(self, key: Key) -> Error:
        """Return what to say of a partition that is not hosted here."""
        return self.replicas.missing_error(*_named(key))

    def other_leader(self, key: Key) -> tuple[NodeId, int]:
        """Return who leads instead, and since which epoch (KIP-951)."""
        return self.replicas.other_leader(*_named(key))

    def endpoint(self, node: NodeId, listener: str) -> list[NodeEndpoint]:
        """Return where a leader is to be found (KIP-951)."""
        known = self.replicas.metadata.endpoint_of(node, listener)
        return [] if known is None else [NodeEndpoint(node_id=node, host=known.host, port=known.port, rack=None)]


def _named(key: Key) -> tuple[str, UUID, int]:
    name, index = key
    return ("", name, index) if isinstance(name, UUID) else (str(name), ZERO_UUID, index)


def _remember(partition: SessionPartition, data: PartitionData) -> None:
    """Note what an answer says of a partition; what has records goes behind the others."""
    if data.error_code is not Error.NONE:
        partition.report(NOT_REPORTED, NOT_REPORTED)
        return
    partition.report(data.high_watermark, data.log_start_offset)
    if data.records:
        partition.rotate()


def _redirection(index: int, replica: Replica, preferred: NodeId) -> PartitionData:
    partition = replica.partition
    return PartitionData(
        partition_index=index,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log.log_start_offset,
        aborted_transactions=None,
        preferred_read_replica=preferred,
        records=b"",
    )


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


FETCH: Final = HandledApi(ServedApi(EXCHANGE, unasked=Unasked.WHERE_ANSWERED), FetchApi.handle)
APIS: Final[tuple[AnswersApi[FetchApi], ...]] = (FETCH,)
