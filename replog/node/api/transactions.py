"""Requests of transactional producers and of those who look after them, on their way to the coordinators."""

from collections.abc import Callable
from functools import partial
from itertools import takewhile
from typing import Final

import msgspec

from replog.controller.authorization import (
    CLUSTER,
    SOME_TOPIC,
    Asker,
    Operation,
    of_group,
    writes_as,
)
from replog.controller.authorization import (
    topic as topic_resource,
)
from replog.controller.authorization import (
    transactional_id as transaction,
)
from replog.controller.served_api import Parts, ServedApi
from replog.coordinators.group_coordinator import GroupCoordinator
from replog.coordinators.placement import OFFSETS_TOPIC
from replog.coordinators.topic_pattern import BadPattern, TopicPattern
from replog.coordinators.transaction import State
from replog.coordinators.transaction_coordinator import (
    FIRST_ADD_BY_BROKERS,
    FIRST_END_WITH_BUMP,
    TransactionCoordinator,
    added,
)
from replog.distinct import distinct
from replog.errors import Error
from replog.node.coordinators.producer_ids import ProducerIds
from replog.node.coordinators.runtime import CoordinatorRuntime
from replog.node.net.handlers import AnswersApi, HandledApi, contained
from replog.node.net.in_turns import in_turns, refused_later
from replog.node.net.server import AwaitedRequest, Caller, Q, R, ServerRequest
from replog.node.replication.replicas import Replicas
from replog.node.tasks import Tasks
from replog.types import ZERO_UUID, TopicPartition
from replog.wire.messages import add_offsets_to_txn as aot
from replog.wire.messages import add_partitions_to_txn as apt
from replog.wire.messages import describe_producers as dp
from replog.wire.messages import describe_transactions as dt
from replog.wire.messages import end_txn as et
from replog.wire.messages import init_producer_id as ip
from replog.wire.messages import list_transactions as lt

FIRST_VERSION_WITH_FENCED: Final = 2  # of AddPartitionsToTxn and AddOffsetsToTxn

AddRequest = AwaitedRequest[apt.AddPartitionsToTxnRequest, apt.AddPartitionsToTxnResponse]
Result = apt.AddPartitionsToTxnResult
Wanted = apt.AddPartitionsToTxnTransaction


class TransactionApi:
    """What transactional producers ask."""

    def __init__(
        self,
        transactions: CoordinatorRuntime[TransactionCoordinator],
        groups: CoordinatorRuntime[GroupCoordinator],
        producer_ids: ProducerIds,
        tasks: Tasks,
    ) -> None:
        self.runtime = transactions
        self.groups = groups
        self.producer_ids = producer_ids
        self.tasks = tasks
        self.replicas: Replicas = transactions.replicas

    def init(self, request: ServerRequest[ip.InitProducerIdRequest, ip.InitProducerIdResponse]) -> None:
        """InitProducerId: idempotent producers are served by any broker."""
        key = request.body.transactional_id
        if key is None:
            self.producer_ids.init(request)
        elif self.producer_ids.is_empty:
            self._once_there_are_ids(request, INIT_PRODUCER_ID.served, partial(self._init, key, request))
        else:
            self._init(key, request)

    def _init(self, key: str, request: ServerRequest[ip.InitProducerIdRequest, ip.InitProducerIdResponse]) -> None:
        self.runtime.ask(key, request, INIT_PRODUCER_ID.served.refused)

    def end(self, request: ServerRequest[et.EndTxnRequest, et.EndTxnResponse]) -> None:
        """EndTxn: at the end of a producer's epochs its next transaction has another producer id, which is given out with this answer."""
        raises_epoch = request.version >= FIRST_END_WITH_BUMP
        if raises_epoch and self.producer_ids.is_empty and self._has_used_up_epochs(request.body.transactional_id):
            self._once_there_are_ids(request, END_TXN.served, partial(self._end, request))
        else:
            self._end(request)

    def _end(self, request: ServerRequest[et.EndTxnRequest, et.EndTxnResponse]) -> None:
        self.runtime.ask(request.body.transactional_id, request, END_TXN.served.refused)

    def _has_used_up_epochs(self, transactional_id: str) -> bool:
        found = self.runtime.find(transactional_id)
        return not isinstance(found, Error) and found.core.has_used_up_epochs(transactional_id)

    def _once_there_are_ids(
        self, request: ServerRequest[Q, R], served: ServedApi[Q, R], go_on: Callable[[], None]
    ) -> None:
        """Ask the controller for producer ids, and go on with a request that takes one."""

        async def later() -> None:
            await self.producer_ids.stock_up()
            if not request.is_answered:  # else the connection is gone
                go_on()

        self.tasks.start(later(), failed=contained(self.replicas.world.journal, request, served, request.body))

    def add_partitions(self, request: AddRequest) -> None:
        """AddPartitionsToTxn: one transaction of a client before version 4, any number of a broker since."""
        body = request.body
        if request.version >= FIRST_ADD_BY_BROKERS:
            self._add_many(request, body.transactions)
            return
        wanted = Wanted(
            transactional_id=body.v3_and_below_transactional_id,
            producer_id=body.v3_and_below_producer_id,
            producer_epoch=body.v3_and_below_producer_epoch,
            topics=body.v3_and_below_topics,
        )
        unknown = self._unknown(wanted)
        if unknown is not None:
            request.reply(apt.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=unknown.topic_results))
            return

        def answer(result: Result) -> None:
            topics = _for_version(result, request.version).topic_results
            request.reply(apt.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics))

        self._add(request, request.version, wanted, answer)

    def _unknown(self, wanted: Wanted) -> Result | None:
        """Return the refusal of a request that names partitions which do not exist; nothing of it is done then."""
        image = self.replicas.metadata.image
        is_unknown = {
            TopicPartition(topic.name, index): None
            for topic in wanted.topics
            for index in topic.partitions
            if topic.name not in image.topics_by_name or index not in image.topics_by_name[topic.name].partitions
        }
        if not is_unknown:
            return None
        topics = [
            apt.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    apt.AddPartitionsToTxnPartitionResult(
                        partition_index=index,
                        partition_error_code=Error.UNKNOWN_TOPIC_OR_PARTITION
                        if TopicPartition(topic.name, index) in is_unknown
                        else Error.OPERATION_NOT_ATTEMPTED,
                    )
                    for index in topic.partitions
                ],
            )
            for topic in wanted.topics
        ]
        return Result(transactional_id=wanted.transactional_id, topic_results=topics)

    def _add_many(self, request: AddRequest, transactions: list[Wanted]) -> None:
        if not transactions:
            request.reply(apt.AddPartitionsToTxnResponse())
            return
        results: dict[int, Result] = {}

        def done(index: int, result: Result) -> None:
            results[index] = result
            if len(results) == len(transactions):
                ordered = [results[one] for one in range(len(transactions))]
                request.reply(apt.AddPartitionsToTxnResponse(results_by_transaction=ordered))

        def add(wanted_at: tuple[int, Wanted]) -> None:
            index, wanted = wanted_at
            # What this broker's metadata does not have yet would be taken for deleted when its marker is due.
            unknown = None if wanted.verify_only else self._unknown(wanted)
            if unknown is not None:
                done(index, unknown)
            else:
                self._add(request, request.version, wanted, partial(done, index))

        # (Once it is answered before its time the connection is gone.)
        left = takewhile(lambda _: not request.is_answered, enumerate(transactions))
        failed = refused_later(self.replicas.world.journal, request, ADD_PARTITIONS_TO_TXN.served)
        in_turns(self.tasks, self.replicas.world.clock, left, add, done=lambda: None, failed=failed)

    def _add(self, caller: Caller, version: int, wanted: Wanted, answer: Callable[[Result], None]) -> None:
        found = self.runtime.find(wanted.transactional_id)
        if isinstance(found, Error):
            answer(added(wanted, found))
        else:
            found.ask_as(wanted, version=version, caller=caller, respond=answer, failed=added)

    def add_offsets(self, request: ServerRequest[aot.AddOffsetsToTxnRequest, aot.AddOffsetsToTxnResponse]) -> None:
        """AddOffsetsToTxn: the offsets partition of a group is a partition like any other (SPEC 4.2.12)."""
        body = request.body
        partition = self.groups.partition_of(body.group_id)
        if partition is None:
            request.reply(aot.AddOffsetsToTxnResponse(error_code=Error.COORDINATOR_NOT_AVAILABLE))
            return
        wanted = Wanted(
            transactional_id=body.transactional_id,
            producer_id=body.producer_id,
            producer_epoch=body.producer_epoch,
            topics=[apt.AddPartitionsToTxnTopic(name=OFFSETS_TOPIC, partitions=[partition])],
        )

        def answer(result: Result) -> None:
            error = _for_version(result, request.version).topic_results[0].results_by_partition[0].partition_error_code
            request.reply(aot.AddOffsetsToTxnResponse(error_code=error))

        # Its versions are others than those of AddPartitionsToTxn, and it only ever comes from clients.
        found = self.runtime.find(wanted.transactional_id)
        if isinstance(found, Error):
            answer(added(wanted, found))
        else:
            found.ask_as(wanted, version=0, caller=request, respond=answer, failed=added)

    # --- looking -----------------------------------------------------------------------------

    def list_transactions(
        self, request: ServerRequest[lt.ListTransactionsRequest, lt.ListTransactionsResponse]
    ) -> None:
        """ListTransactions: those that are coordinated here."""
        body = request.body
        if self.runtime.partitions.is_loading:
            request.reply(lt.ListTransactionsResponse(error_code=Error.COORDINATOR_LOAD_IN_PROGRESS))
            return
        try:
            answer = self._listed(body)
        except BadPattern:
            answer = lt.ListTransactionsResponse(error_code=Error.INVALID_REGULAR_EXPRESSION)
        request.reply(answer)

    def _listed(self, body: lt.ListTransactionsRequest) -> lt.ListTransactionsResponse:
        pattern = TopicPattern(body.transactional_id_pattern) if body.transactional_id_pattern else None
        known = {state.words: None for state in State}
        wanted = [state for state in body.state_filters if state in known]
        states: list[lt.TransactionState] = []
        for coordinated in self.runtime.partitions.loaded() if wanted or not body.state_filters else []:
            coordinator = coordinated.core
            states += coordinator.core.listed(
                wanted,
                body.producer_id_filters,
                coordinator.now(),
                duration_ms=body.duration_filter,
                wanted=lambda name: pattern is None or pattern.matches(name),
            )
        unknown = [state for state in body.state_filters if state not in known]
        return lt.ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=states)

    def describe_transactions(
        self, request: ServerRequest[dt.DescribeTransactionsRequest, dt.DescribeTransactionsResponse]
    ) -> None:
        """DescribeTransactions."""
        body = request.body
        states: list[dt.TransactionState] = []
        for transactional_id in dict.fromkeys(body.transactional_ids):
            found = self.runtime.find(transactional_id)
            if isinstance(found, Error):
                states.append(dt.TransactionState(error_code=found, transactional_id=transactional_id))
            else:
                states.append(found.core.describe(transactional_id))
        request.reply(dt.DescribeTransactionsResponse(transaction_states=states))

    def describe_producers(
        self, request: ServerRequest[dp.DescribeProducersRequest, dp.DescribeProducersResponse]
    ) -> None:
        """DescribeProducers: what the logs here know of their producers, those of followers too (a hanging transaction is sought in each)."""
        body = request.body
        topics = [
            dp.TopicResponse(
                name=topic.name,
                partitions=[
                    self._producers(TopicPartition(topic.name, index))
                    for index in dict.fromkeys(topic.partition_indexes)
                ],
            )
            for topic in distinct(body.topics, lambda topic: topic.name)
        ]
        request.reply(dp.DescribeProducersResponse(topics=topics))

    def _producers(self, name: TopicPartition) -> dp.PartitionResponse:
        replica = self.replicas.find(name)
        if replica is None:
            error = self.replicas.missing_error(name.topic, ZERO_UUID, name.partition)
            return dp.PartitionResponse(partition_index=name.partition, error_code=error)
        if replica.partition.is_offline:
            return dp.PartitionResponse(partition_index=name.partition, error_code=Error.KAFKA_STORAGE_ERROR)
        producers = [
            dp.ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp_ms,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.transaction_first_offset,
            )
            for producer in replica.partition.log.producers
        ]
        return dp.PartitionResponse(partition_index=name.partition, active_producers=producers)


def _for_version(result: Result, version: int) -> Result:
    """Return the result in words that this version knows."""
    if version >= FIRST_VERSION_WITH_FENCED:
        return result
    replace = msgspec.structs.replace
    topics = [
        replace(
            topic,
            results_by_partition=[
                replace(one, partition_error_code=_older(one.partition_error_code))
                for one in topic.results_by_partition
            ],
        )
        for topic in result.topic_results
    ]
    return replace(result, topic_results=topics)


def _older(error: Error) -> Error:
    return Error.INVALID_PRODUCER_EPOCH if error is Error.PRODUCER_FENCED else error


# --- who may ask, and how all of it is refused -----------------------------------------------------------


def _gets_producer_id(ask: Asker, body: ip.InitProducerIdRequest) -> Error:
    """Ask for the transactional id; without one, whoever may write anywhere may be idempotent (KIP-679)."""
    if body.transactional_id is not None:
        return ask.error(Operation.WRITE, transaction(body.transactional_id))
    allowed = ask.may(Operation.IDEMPOTENT_WRITE, CLUSTER) or ask.may(Operation.WRITE, SOME_TOPIC)
    return Error.NONE if allowed else Error.CLUSTER_AUTHORIZATION_FAILED


def _adds_partitions(ask: Asker, body: apt.AddPartitionsToTxnRequest) -> Error:
    if body.transactions:  # from version 4 on only brokers ask
        return ask.error(Operation.CLUSTER_ACTION, CLUSTER)
    return ask.error(Operation.WRITE, transaction(body.v3_and_below_transactional_id))


def _transactions_shown(
    ask: Asker, _: lt.ListTransactionsRequest, answer: lt.ListTransactionsResponse
) -> lt.ListTransactionsResponse:
    states = answer.transaction_states
    shown = [one for one in states if ask.may(Operation.DESCRIBE, transaction(one.transactional_id))]
    return msgspec.structs.replace(answer, transaction_states=shown)


def _partitions_shown(
    ask: Asker, _: dt.DescribeTransactionsRequest, answer: dt.DescribeTransactionsResponse
) -> dt.DescribeTransactionsResponse:
    """Show of a transaction's partitions only those whose topics may be seen."""
    replace = msgspec.structs.replace
    shown = [
        replace(state, topics=[one for one in state.topics if ask.may(Operation.DESCRIBE, topic_resource(one.topic))])
        for state in answer.transaction_states
    ]
    return replace(answer, transaction_states=shown)


def _refused_addition(body: apt.AddPartitionsToTxnRequest, error: Error) -> apt.AddPartitionsToTxnResponse:
    if body.transactions:
        return apt.AddPartitionsToTxnResponse(error_code=error)
    answer = apt.AddPartitionsToTxnPartitionResult
    topics = [
        apt.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                answer(partition_index=index, partition_error_code=error) for index in topic.partitions
            ],
        )
        for topic in body.v3_and_below_topics
    ]
    return apt.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)


def _refused_description(body: dp.DescribeProducersRequest, error: Error) -> dp.DescribeProducersResponse:
    topics = [
        dp.TopicResponse(
            name=topic.name,
            partitions=[
                dp.PartitionResponse(partition_index=index, error_code=error) for index in topic.partition_indexes
            ],
        )
        for topic in body.topics
    ]
    return dp.DescribeProducersResponse(topics=topics)


INIT_PRODUCER_ID: Final = HandledApi(ServedApi(ip.EXCHANGE, questions=(_gets_producer_id,)), TransactionApi.init)
END_TXN: Final = HandledApi(ServedApi(et.EXCHANGE, questions=(writes_as,)), TransactionApi.end)
ADD_PARTITIONS_TO_TXN: Final = HandledApi(
    ServedApi(
        apt.EXCHANGE,
        questions=(_adds_partitions,),
        parts=Parts(("v3_and_below_topics",), "results_by_topic_v3_and_below", Operation.WRITE, together=True),
        refuse=_refused_addition,
    ),
    TransactionApi.add_partitions,
)
ADD_OFFSETS_TO_TXN: Final = HandledApi(
    ServedApi(aot.EXCHANGE, questions=(writes_as, of_group(Operation.READ))), TransactionApi.add_offsets
)
LIST_TRANSACTIONS: Final = HandledApi(
    ServedApi(lt.EXCHANGE, shown=_transactions_shown), TransactionApi.list_transactions
)
DESCRIBE_TRANSACTIONS: Final = HandledApi(
    ServedApi(
        dt.EXCHANGE,
        parts=Parts(
            ("transactional_ids",),
            "transaction_states",
            Operation.DESCRIBE,
            lambda _, name, __: transaction(str(name)),
        ),
        shown=_partitions_shown,
        refuse=lambda body, error: dt.DescribeTransactionsResponse(
            transaction_states=[
                dt.TransactionState(error_code=error, transactional_id=name) for name in body.transactional_ids
            ]
        ),
    ),
    TransactionApi.describe_transactions,
)
DESCRIBE_PRODUCERS: Final = HandledApi(
    ServedApi(dp.EXCHANGE, parts=Parts(("topics",), "topics", Operation.READ), refuse=_refused_description),
    TransactionApi.describe_producers,
)
APIS: Final[tuple[AnswersApi[TransactionApi], ...]] = (
    INIT_PRODUCER_ID,
    END_TXN,
    ADD_PARTITIONS_TO_TXN,
    ADD_OFFSETS_TO_TXN,
    LIST_TRANSACTIONS,
    DESCRIBE_TRANSACTIONS,
    DESCRIBE_PRODUCERS,
)
