"""Produce: validate, append, answer at once or when the high watermark has passed (SPEC 3.7).

The way of a batch: from the socket's buffer through validation, which walks through its records, into the log as it came, in one callback. With acks
of 0 or 1 the answer is written before the callback returns.
"""

import asyncio
from collections.abc import Callable
from itertools import takewhile
from typing import Final

from replog.broker.purgatory import DelayedProduce, ProduceResult
from replog.broker.verification import Guard
from replog.controller.authorization import Asker, Operation, transactional_id
from replog.controller.describe import INTERNAL_TOPICS
from replog.controller.served_api import Parts, ServedApi
from replog.errors import Error
from replog.log.batch import TRANSACTIONAL, header_at
from replog.log.log import Appended
from replog.log.validation import Checked
from replog.node.coordinators.verifier import Unverified, Verifier, produce_error
from replog.node.net.handlers import AnswersApi, HandledApi, contained
from replog.node.net.in_turns import UNCOUNTED, in_turns
from replog.node.net.server import ServerRequest
from replog.node.replication.replicas import Replica, Replicas
from replog.types import NO_NODE, NodeId, TopicPartition
from replog.wire.messages.produce import (
    EXCHANGE,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
FIRST_VERSION_WITH_IMPLICIT_ADD: Final = 12  # KIP-890: producing adds the partition to the transaction
AT_ONCE_BYTES_MAX: Final = 4096  # of a request that is carried out in one go
CheckedData = dict[int, Checked]  # by the identity of a partition's data in the request
ATTRIBUTES_POSITION: Final = 22  # the low byte of a batch's attributes
NO_LEADER: Final = LeaderIdAndEpoch()
# Answers to a producer that is fenced, out of sequence or in no transaction; the other errors are common or explain themselves.
OF_PRODUCERS: Final = (
    *(Error.INVALID_PRODUCER_EPOCH, Error.PRODUCER_FENCED, Error.INVALID_PRODUCER_ID_MAPPING),
    *(
        Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
        Error.UNKNOWN_PRODUCER_ID,
        Error.INVALID_TXN_STATE,
        Error.TRANSACTION_ABORTABLE,
    ),
)
# As Apache Kafka: with other errors an answer says where the log begins; a producer may learn from it that retention took what it wrote.
WITHOUT_LOG_START: Final = (
    *(Error.UNKNOWN_TOPIC_OR_PARTITION, Error.NOT_LEADER_OR_FOLLOWER, Error.KAFKA_STORAGE_ERROR),
    *(Error.MESSAGE_TOO_LARGE, Error.RECORD_LIST_TOO_LARGE, Error.CORRUPT_MESSAGE, Error.INVALID_REQUIRED_ACKS),
)


class ProduceApi:
    """Appends for clients."""

    def __init__(self, replicas: Replicas, verifier: Verifier) -> None:
        self.replicas = replicas
        self.verifier = verifier
        self.clock = replicas.world.clock

    def handle(self, request: ServerRequest[ProduceRequest, ProduceResponse]) -> None:
        """Append all batches of a request; partitions succeed and fail independently.

        Batches are looked at before, in turns with whoever else waits: a kilobyte may unfold to megabytes, and a request have thousands of them.
        """
        checked: CheckedData = {}
        if request.size_bytes <= AT_ONCE_BYTES_MAX:
            self._append_or_verify(request, checked)
            return
        body, version, wall_ms = request.body, request.version, self.clock.wall_ms()

        def look(named: tuple[TopicProduceData, PartitionProduceData]) -> None:
            topic, data = named
            replica = self._hosted(topic, version).get(data.index)
            if replica is not None and data.records and replica.partition.append_error(body.acks) is Error.NONE:
                checked[id(data)] = replica.partition.log.checked(data.records, now_ms=wall_ms)

        def done() -> None:
            if not request.is_answered:  # else the connection is gone
                self._append_or_verify(request, checked)
            request.release()

        def failed(problem: Exception) -> None:
            contained(self.replicas.world.journal, request, PRODUCE.served, body)(problem)
            request.release()

        named = ((topic, data) for topic in body.topic_data for data in topic.partition_data)
        wanted = takewhile(lambda _: not request.is_answered, named)
        tasks, at_once = self.verifier.tasks, UNCOUNTED
        if not in_turns(tasks, self.clock, wanted, look, done=done, failed=failed, at_once=at_once):
            request.hold()

    def _append_or_verify(self, request: ServerRequest[ProduceRequest, ProduceResponse], checked: CheckedData) -> None:
        transactional_id = request.body.transactional_id
        if transactional_id is not None and (
            self.verifier.is_asking(transactional_id) or self._unverified(request.body, request.version)
        ):
            failed = contained(self.replicas.world.journal, request, PRODUCE.served, request.body)
            self.verifier.start(self._verify(request, transactional_id, checked), failed=failed)
        else:
            self._append_all(request, {}, checked)

    def _unverified(self, body: ProduceRequest, version: int) -> list[Unverified]:
        """Return the batches whose coordinator has to be asked first (KIP-890)."""
        found: list[Unverified] = []
        is_of_protocol_2, now_ms = version >= FIRST_VERSION_WITH_IMPLICIT_ADD, self.replicas.world.clock.now_ms()
        for topic in body.topic_data:
            hosted = self._hosted(topic, version)
            for data in topic.partition_data:
                replica = hosted.get(data.index)
                if replica is None or replica.name.topic in INTERNAL_TOPICS:
                    continue
                if data.records is not None and replica.partition.leadership is not None:
                    wanted = replica.partition.unverified(
                        data.records, now_ms=now_ms, is_of_protocol_2=is_of_protocol_2
                    )
                    if wanted is not None:
                        found.append(
                            Unverified(replica.name, wanted[0].producer_id, wanted[0].producer_epoch, wanted[1])
                        )
        return found

    async def _verify(
        self,
        request: ServerRequest[ProduceRequest, ProduceResponse],
        transactional_id: str,
        checked: CheckedData,
    ) -> None:
        """Ask, then append; requests of one transactional id keep their order meanwhile."""
        adds = request.version >= FIRST_VERSION_WITH_IMPLICIT_ADD
        async with self.verifier.turn(transactional_id):
            left_ms = self.verifier.timeout_ms if adds else 0
            while not request.is_answered:  # else the connection is gone
                unverified = self._unverified(request.body, request.version)
                outcomes = await self.verifier.ask(transactional_id, unverified, adds=adds)
                if left_ms <= 0 or Error.CONCURRENT_TRANSACTIONS not in outcomes.values():
                    self._append_verified(request, unverified, outcomes, checked)
                    return
                # The last transaction is still ending: EndTxn is answered before its markers are written. As Apache Kafka
                # does, ask again for a while instead of sending the producer away; with new guards, for the marker voids these.
                await asyncio.sleep(self.verifier.retry_ms / 1000)
                left_ms -= self.verifier.retry_ms

    def _append_verified(
        self,
        request: ServerRequest[ProduceRequest, ProduceResponse],
        unverified: list[Unverified],
        outcomes: dict[TopicPartition, Error],
        checked: CheckedData,
    ) -> None:
        if not request.is_answered:
            verified = {wanted.name: (wanted, outcomes[wanted.name]) for wanted in unverified}
            self._append_all(request, verified, checked)

    def _append_all(
        self,
        request: ServerRequest[ProduceRequest, ProduceResponse],
        verified: dict[TopicPartition, tuple[Unverified, Error]],
        checked: CheckedData,
    ) -> None:
        body = request.body
        now_ms, wall_ms = self.clock.now_ms(), self.clock.wall_ms()
        results: list[ProduceResult] = []
        waits: list[tuple[Replica, int]] = []
        for topic in body.topic_data:
            hosted = self._hosted(topic, request.version)
            for data in topic.partition_data:
                replica = hosted.get(data.index)
                if replica is None:
                    error = self.replicas.missing_error(topic.name, topic.topic_id, data.index)
                    results.append(ProduceResult(topic, data.index, error))
                    continue
                wanted, error = verified.get(replica.name, (None, Error.NONE))
                if error is not Error.NONE:
                    error = produce_error(error, request.version)
                    results.append(ProduceResult(topic, data.index, error))
                    self._log_refusal(request, replica.name, data, error)
                    continue
                guard = wanted.guard if wanted is not None else None
                known = checked.get(id(data))
                result = self._append(replica, topic, data, body.acks, now_ms, wall_ms, guard, known)
                self._log_refusal(request, replica.name, data, result.error)
                if result.error is None:
                    waits.append((replica, len(results)))
                results.append(result)
        if body.acks == 0:
            self._answer_nothing(request, results)
        elif waits:
            op = DelayedProduce(results, now_ms + body.timeout_ms, self._responder(request))
            self.replicas.delay_produce(op, waits, is_replicated=body.acks == -1)
        else:
            request.reply(self._response(request.listener, results))

    def _append(
        self,
        replica: Replica,
        topic: TopicProduceData,
        data: PartitionProduceData,
        acks: int,
        now_ms: int,
        wall_ms: int,
        guard: Guard | None,
        checked: Checked | None,
    ) -> ProduceResult:
        """Append to one partition; the result has no error yet when it has to wait for the high watermark."""
        if replica.name.topic in INTERNAL_TOPICS:
            # As Kafka: whoever coordinates reads all that is there as its predecessors' writes.
            return ProduceResult(topic, data.index, Error.INVALID_TOPIC_EXCEPTION)
        if data.records is None or not len(data.records):
            return ProduceResult(topic, data.index, Error.INVALID_RECORD)
        partition = replica.partition
        appended, effects = partition.append(
            data.records, acks=acks, now_ms=now_ms, wall_ms=wall_ms, guard=guard, checked=checked
        )
        if not isinstance(appended, Appended):
            known = -1 if appended in WITHOUT_LOG_START else partition.log.log_start_offset
            return ProduceResult(topic, data.index, appended, log_start_offset=known)
        if not appended.duplicate:
            self.replicas.grew(replica)
            self.replicas.perform(replica, effects)
        error: Error | None = Error.NONE
        if acks == -1:
            assert partition.leadership is not None
            # A duplicate waits for its first copy as that one did: it may not be replicated yet (M75).
            error = partition.leadership.produce_outcome(appended.last_offset)
        elif acks == 1 and partition.leadership is not None:
            error = partition.leadership.flush_outcome(appended.last_offset)
        return ProduceResult(
            topic,
            data.index,
            error,
            base_offset=appended.base_offset,
            last_offset=appended.last_offset,
            log_append_time_ms=appended.log_append_time_ms,
            log_start_offset=partition.log.log_start_offset,
        )

    def _log_refusal(
        self,
        request: ServerRequest[ProduceRequest, ProduceResponse],
        name: TopicPartition,
        data: PartitionProduceData,
        error: Error | None,
    ) -> None:
        """Say which producer was refused, and why."""
        if error in OF_PRODUCERS and data.records is not None:
            header = header_at(data.records, 0)
            found = {"producer_id": header.producer_id, "producer_epoch": header.producer_epoch}
            found["base_sequence"] = header.base_sequence
            who = f"{request.client_id} at {request.peer_host}"
            transaction = request.body.transactional_id
            of = "" if transaction is None else f" of {transaction!r}"
            self.replicas.world.journal.log("info", f"{name}: {who}: ProduceRequest{of} {found}: {error.name}")

    def _hosted(self, topic: TopicProduceData, version: int) -> dict[int, Replica]:
        if version >= FIRST_VERSION_WITH_TOPIC_IDS:
            return self.replicas.by_topic_id.get(topic.topic_id, {})
        return self.replicas.by_topic.get(topic.name, {})

    def _answer_nothing(
        self, request: ServerRequest[ProduceRequest, ProduceResponse], results: list[ProduceResult]
    ) -> None:
        failed = next((result for result in results if result.error is not Error.NONE), None)
        if failed is None or failed.error is None:
            request.reply_nothing()
        else:
            # SPEC 3.7.2: nobody listens for an error; a lost connection makes the client look for the new leader.
            request.close(f"acks=0 produce failed with {failed.error.name}")

    def _responder(
        self, request: ServerRequest[ProduceRequest, ProduceResponse]
    ) -> "Callable[[list[ProduceResult]], None]":
        return lambda results: request.reply(self._response(request.listener, results))

    def _response(self, listener: str, results: list[ProduceResult]) -> ProduceResponse:
        responses: list[TopicProduceResponse] = []
        topic: TopicProduceData | None = None
        partitions: list[PartitionProduceResponse] = []
        leaders: dict[NodeId, None] = {}
        for result in results:
            if result.topic is not topic:
                topic = result.topic
                partitions = []
                responses.append(
                    TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=partitions)
                )
            partitions.append(self._partition_response(result, leaders))
        endpoints = [endpoint for node in leaders for endpoint in self._endpoint(node, listener)] if leaders else []
        return ProduceResponse(responses=responses, node_endpoints=endpoints)

    def _partition_response(self, result: ProduceResult, leaders: dict[NodeId, None]) -> PartitionProduceResponse:
        error = result.error
        assert error is not None
        if error is Error.NONE:
            return PartitionProduceResponse(
                index=result.index,
                base_offset=result.base_offset,
                log_append_time_ms=result.log_append_time_ms,
                log_start_offset=result.log_start_offset,
            )
        leader = NO_LEADER
        if error is Error.NOT_LEADER_OR_FOLLOWER:
            leader_id, leader_epoch = self.replicas.other_leader(result.topic.name, result.topic.topic_id, result.index)
            if leader_id != NO_NODE:
                leaders[leader_id] = None
                leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
        return PartitionProduceResponse(
            index=result.index,
            error_code=error,
            base_offset=-1,
            log_start_offset=result.log_start_offset,
            current_leader=leader,
        )

    def _endpoint(self, node: NodeId, listener: str) -> list[NodeEndpoint]:
        known = self.replicas.metadata.endpoint_of(node, listener)
        return [] if known is None else [NodeEndpoint(node_id=node, host=known.host, port=known.port, rack=None)]


def _asks_in_transaction(ask: Asker, body: ProduceRequest) -> Error:
    """Ask for the transactional id where batches are transactional: by their attributes, not by what the request says."""
    batches = (data.records for topic_data in body.topic_data for data in topic_data.partition_data)
    if not any(
        batch and len(batch) > ATTRIBUTES_POSITION and batch[ATTRIBUTES_POSITION] & TRANSACTIONAL for batch in batches
    ):
        return Error.NONE
    if body.transactional_id is None:
        return Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ask.error(Operation.WRITE, transactional_id(body.transactional_id))


def _refused(body: ProduceRequest, error: Error) -> ProduceResponse:
    responses = [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                PartitionProduceResponse(index=data.index, error_code=error, base_offset=-1)
                for data in topic.partition_data
            ],
        )
        for topic in body.topic_data
    ]
    return ProduceResponse(responses=responses)


PRODUCE: Final = HandledApi(
    ServedApi(
        EXCHANGE,
        questions=(_asks_in_transaction,),
        parts=Parts(("topic_data",), "responses", Operation.WRITE),
        refuse=_refused,
    ),
    ProduceApi.handle,
)
APIS: Final[tuple[AnswersApi[ProduceApi], ...]] = (PRODUCE,)
