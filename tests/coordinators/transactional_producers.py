"""Transactional clients for simulated clusters, on protocol version 2, and what must be true of what they wrote."""

import asyncio
from collections import Counter
from typing import Any

from replog.client.client import NO_ANSWER, Client
from replog.errors import Error
from replog.log.batch import TRANSACTIONAL, NewRecord, build
from replog.types import NodeId
from replog.wire.apis import Api, api_of
from replog.wire.exchange import exchange_of
from replog.wire.messages.end_txn import EndTxnRequest
from replog.wire.messages.find_coordinator import FindCoordinatorRequest
from replog.wire.messages.init_producer_id import InitProducerIdRequest
from tribunal.clusters.api import TopicPartition

TOPIC = "ledger"
PARTITIONS = 3
TIMEOUT_MS = 4000
TRY_AGAIN = {
    *(Error.NOT_LEADER_OR_FOLLOWER, Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID, Error.REQUEST_TIMED_OUT),
    *(Error.NOT_ENOUGH_REPLICAS, Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Error.CONCURRENT_TRANSACTIONS),
    *(Error.NOT_COORDINATOR, Error.COORDINATOR_LOAD_IN_PROGRESS, Error.COORDINATOR_NOT_AVAILABLE),
    *(Error.LEADER_NOT_AVAILABLE, Error.KAFKA_STORAGE_ERROR),
}


class Lost(Exception):
    """The transaction's outcome is not known to its producer, or it is over."""


class LedgerProducer:
    """One producer of one transactional id."""

    def __init__(self, client: Client, name: str, transactional_id: str) -> None:
        self.client = client
        self.name = name
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.epoch = -1
        self.outcomes: dict[str, str] = {}
        self.is_stopping = False

    async def run(self) -> None:
        number = 0
        while not self.is_stopping:
            number += 1
            transaction = f"{self.name}.{number}"
            try:
                if self.epoch < 0:
                    await self.init()
                self.outcomes[transaction] = "aborted"  # unless somebody says commit
                for partition in range(PARTITIONS):
                    await self.write(partition, f"{transaction}.{partition}")
                committed = number % 3 != 0
                self.outcomes[transaction] = "info" if committed else "aborted"
                await self.end(committed=committed)
                self.outcomes[transaction] = "committed" if committed else "aborted"
            except Lost:
                self.epoch = -1

    async def init(self) -> None:
        body = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=TIMEOUT_MS)
        answer = await self._ask_coordinator(body)
        if answer.error_code is not Error.NONE:
            raise Lost(answer.error_code.name)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    async def write(self, partition: int, value: str) -> None:
        batch = build(
            [NewRecord(None, value.encode())],
            timestamp_ms=self.client._world.clock.wall_ms(),
            producer=(self.producer_id, self.epoch, 0),
            attributes=TRANSACTIONAL,
        )
        while True:
            try:
                result = await self.client.produce(
                    TOPIC, partition, batch, acks=-1, timeout_ms=1000, transactional_id=self.transactional_id
                )
            except NO_ANSWER:
                await self._rest()
                continue
            if result.error_code is Error.NONE:
                return
            if result.error_code not in TRY_AGAIN:
                await self._give_up()
                raise Lost(result.error_code.name)
            await self._rest()

    async def _give_up(self) -> None:
        """Abort; whatever the answer, a new producer epoch follows."""
        body = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=False,
        )
        await self._ask_coordinator(body)

    async def end(self, *, committed: bool) -> None:
        body = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        answer = await self._ask_coordinator(body)
        if answer.error_code is not Error.NONE:
            raise Lost(answer.error_code.name)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    async def _ask_coordinator(self, body: Any) -> Any:
        while True:
            try:
                answer = await self.client.ask(exchange_of(api_of(body)), body, node=await self._coordinator())
            except NO_ANSWER:
                await self._rest()
                continue
            if answer.error_code not in TRY_AGAIN:
                return answer
            await self._rest()

    async def _coordinator(self) -> NodeId:
        body = FindCoordinatorRequest(key_type=1, coordinator_keys=[self.transactional_id])
        while True:
            answer = await self.client.ask(exchange_of(Api.FIND_COORDINATOR), body)
            place = answer.coordinators[0]
            if place.error_code is Error.NONE:
                return NodeId(place.node_id)
            await self._rest()

    async def _rest(self) -> None:
        await asyncio.sleep(0.1)
        await self._refresh()

    async def _refresh(self) -> None:
        try:
            await self.client.refresh([TOPIC])
        except NO_ANSWER:
            return


async def read_committed(clients: Any, seconds: int = 20) -> tuple[Counter[str], list[str]]:
    """Return what is committed, and the partitions whose last stable offset hangs behind the high watermark."""
    consumer = clients.consumer("auditor", "read_committed")
    ends: dict[TopicPartition, tuple[int, int]] = {}
    values: Counter[str] = Counter()
    consumer.assign({TopicPartition(TOPIC, partition): 0 for partition in range(PARTITIONS)})
    for _ in range(seconds * 2):
        for poll in await consumer.poll(1000, 500):
            values.update(record.value.decode() for record in poll.records)
            if poll.high_watermark is not None and poll.last_stable_offset is not None:
                ends[poll.partition] = (poll.last_stable_offset, poll.high_watermark)
    await consumer.close()
    hanging = [str(partition) for partition, (stable, high) in ends.items() if stable < high]
    return values, hanging


def contradictions(producers: list[LedgerProducer], values: Counter[str]) -> list[str]:
    """Return every transaction that is not all or nothing, or not what its producer was answered."""
    wrong: list[str] = []
    for producer in producers:
        for transaction, outcome in producer.outcomes.items():
            seen = [values[f"{transaction}.{partition}"] for partition in range(PARTITIONS)]
            allowed = {"committed": [[1] * PARTITIONS], "aborted": [[0] * PARTITIONS]}
            if seen not in allowed.get(outcome, [[0] * PARTITIONS, [1] * PARTITIONS]):
                wrong.append(f"{transaction} {outcome}: {seen}")
    return wrong
