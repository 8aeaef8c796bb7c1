"""What our transactional producer says of an end whose coordinator answered with an error: never more than that answer proves."""

import asyncio
from typing import Any

import pytest

from replog.client.outcomes import Outcome, TransactionOutcome
from replog.client.transactions import TransactionalProducer
from replog.errors import Error
from replog.host.world import RealClock
from replog.types import TopicPartition
from replog.wire.messages import end_txn as et
from replog.wire.messages import find_coordinator as fc
from replog.wire.messages import init_producer_id as ip
from replog.wire.messages import txn_offset_commit as toc

PARTITION = TopicPartition("t", 0)
SOON_MS = 5_000


class Answering:
    """A cluster that answers ends of transactions, and offsets of groups in them, with these errors, one after the other."""

    def __init__(self, *errors: Error) -> None:
        self.errors = list(errors)

    async def ask(self, exchange: object, body: object, *, node: int | None = None) -> Any:
        match body:
            case fc.FindCoordinatorRequest():
                found = fc.Coordinator(key=body.coordinator_keys[0], node_id=1, host="h", port=1)
                return fc.FindCoordinatorResponse(coordinators=[found])
            case ip.InitProducerIdRequest():
                return ip.InitProducerIdResponse(producer_id=7, producer_epoch=1)
            case et.EndTxnRequest():
                return et.EndTxnResponse(error_code=self.errors.pop(0))
            case toc.TxnOffsetCommitRequest():
                part = toc.TxnOffsetCommitResponsePartition(partition_index=0, error_code=self.errors.pop(0))
                topic = toc.TxnOffsetCommitResponseTopic(name="t", partitions=[part])
                return toc.TxnOffsetCommitResponse(topics=[topic])
        raise AssertionError(body)


class Member:
    """Whose offsets they are."""

    group, topic, member_id, generation = "g", "t", "m", 1


async def begun(*errors: Error) -> TransactionalProducer[object]:
    producer = TransactionalProducer[object](Answering(*errors), RealClock(), "x", SOON_MS, lambda *_: None)  # type: ignore[arg-type]
    assert await producer.begin(SOON_MS)
    return producer


@pytest.mark.parametrize(
    ("errors", "outcome"),
    [
        pytest.param([Error.NONE], TransactionOutcome.COMMITTED, id="committed"),
        pytest.param([Error.INVALID_TXN_STATE], TransactionOutcome.ABORTED, id="refused"),
        pytest.param([Error.NOT_COORDINATOR, Error.INVALID_TXN_STATE], TransactionOutcome.UNKNOWN, id="after silence"),
        pytest.param([Error.UNKNOWN_SERVER_ERROR], TransactionOutcome.UNKNOWN, id="failed in some way"),
    ],
)
def test_a_commit_is_aborted_only_where_the_answer_says_so(errors: list[Error], outcome: TransactionOutcome) -> None:
    async def run() -> None:
        end = await (await begun(*errors)).end(commit=True, timeout_ms=SOON_MS)

        assert end.outcome is outcome
        assert end.answered is (outcome is not TransactionOutcome.UNKNOWN)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        pytest.param(Error.NONE, Outcome.DONE, id="taken"),
        pytest.param(Error.ILLEGAL_GENERATION, Outcome.WITHOUT_EFFECT, id="refused"),
        pytest.param(Error.UNKNOWN_SERVER_ERROR, Outcome.UNKNOWN, id="failed in some way"),
    ],
)
def test_offsets_are_without_effect_only_where_the_answer_says_so(error: Error, outcome: Outcome) -> None:
    async def run() -> None:
        producer, member = await begun(error), Member()
        end = await producer.send_offsets(member, {PARTITION: 5}, SOON_MS)  # type: ignore[arg-type]

        assert end.outcome is outcome

    asyncio.run(run())
