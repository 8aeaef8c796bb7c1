"""What a transaction's coordinator is asked in the name of a producer whose writes add partitions (KIP-890, protocol version 2)."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from replog.broker.partition import Partition
from replog.errors import Error
from replog.log.log import Appended
from replog.log.validation import Origin
from replog.node.api.groups import GroupApi
from replog.node.coordinators.verifier import Unverified, Verifier, produce_error
from replog.node.tasks import Tasks
from replog.types import NodeId, TopicPartition
from replog.wire.messages import add_partitions_to_txn as apt
from replog.wire.messages import txn_offset_commit as toc
from tests.cases.replicas import NOW_MS, PRODUCER_ID
from tests.coordinators.test_coordinator_mutants import a_verifying_leader, append, end_marker, first_batch


class Asked:
    """A coordinator that has every partition in its transactions, of one producer."""

    def __init__(self, producer_id: int = PRODUCER_ID) -> None:
        self.producer_id = producer_id
        self.transactions: list[apt.AddPartitionsToTxnTransaction] = []
        topics: Any = SimpleNamespace(coordinator_of=lambda _topic, _key: NodeId(1))
        links: Any = SimpleNamespace(send=self._send)
        self.verifier = Verifier(links, topics, Tasks(), retry_ms=20, timeout_ms=100)

    async def _send(
        self, _node: NodeId, _api: Any, body: apt.AddPartitionsToTxnRequest
    ) -> apt.AddPartitionsToTxnResponse:
        self.transactions += body.transactions
        (asked,) = body.transactions
        error = Error.NONE if asked.producer_id == self.producer_id else Error.INVALID_PRODUCER_ID_MAPPING
        one = apt.AddPartitionsToTxnPartitionResult
        topics = [
            apt.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    one(partition_index=index, partition_error_code=error) for index in topic.partitions
                ],
            )
            for topic in asked.topics
        ]
        result = apt.AddPartitionsToTxnResult(transactional_id="x", topic_results=topics)
        return apt.AddPartitionsToTxnResponse(results_by_transaction=[result])


def a_trusting_leader(folder: Path) -> Partition:
    """A leader with `transaction.partition.verification.enable=false`."""
    replica = a_verifying_leader(folder)
    replica.verifies_transactions = False
    return replica


def test_a_write_adds_its_partition_also_where_nothing_is_verified(tmp_path: Path) -> None:
    """Nobody would end a transaction of which its coordinator knows nothing."""
    replica = a_trusting_leader(tmp_path)

    assert replica.unverified(first_batch(), now_ms=NOW_MS, is_of_protocol_2=False) is None
    wanted = replica.unverified(first_batch(), now_ms=NOW_MS, is_of_protocol_2=True)
    assert wanted is not None
    assert isinstance(append(replica, first_batch(), wanted[1]), Appended)
    assert replica.unverified(first_batch(1), now_ms=NOW_MS, is_of_protocol_2=True) is None  # it is in by now
    assert isinstance(append(replica, end_marker(), None, Origin.COORDINATOR), Appended)
    assert replica.unverified(first_batch(1), now_ms=NOW_MS, is_of_protocol_2=True) is not None
    assert isinstance(append(replica, first_batch(1), None), Appended)  # nothing is verified, as it was asked for


@pytest.mark.parametrize(("version", "asks"), [(4, False), (5, True)])
def test_offsets_add_their_partition_also_where_nothing_is_verified(tmp_path: Path, version: int, asks: bool) -> None:
    partition = a_trusting_leader(tmp_path)
    coordinator = SimpleNamespace(replica=SimpleNamespace(partition=partition), is_ended=False)
    answered = toc.TxnOffsetCommitResponse()
    asked = Asked()

    async def main() -> toc.TxnOffsetCommitResponse:
        answer: asyncio.Future[toc.TxnOffsetCommitResponse] = asyncio.get_running_loop().create_future()
        world = SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: NOW_MS), journal=None)
        runtime: Any = SimpleNamespace(
            find=lambda _: coordinator,
            replicas=SimpleNamespace(world=world),
            ask=lambda _key, request, _failed: request.reply(answered),
        )
        body = toc.TxnOffsetCommitRequest(
            transactional_id="x", group_id="g", producer_id=PRODUCER_ID, producer_epoch=0, topics=[]
        )
        request: Any = SimpleNamespace(body=body, version=version, is_answered=False, reply=answer.set_result)
        GroupApi(runtime, asked.verifier, lambda: False).commit_in_transaction(request)
        return await answer

    assert asyncio.run(main()) is answered
    assert [(one.verify_only, one.topics[0].name) for one in asked.transactions] == [(False, "t")] * asks


@pytest.mark.parametrize("adds", [False, True], ids=["asks", "adds"])
def test_nobody_vouches_for_another_producer_in_the_same_request(adds: bool) -> None:
    """The coordinator is asked about one: another's batch would open a transaction that its own producer never began."""
    mine, others = TopicPartition("t", 0), TopicPartition("t", 1)
    unverified = [Unverified(mine, PRODUCER_ID, 0, 1), Unverified(others, PRODUCER_ID + 1, 0, 2)]
    asked = Asked()

    outcomes = asyncio.run(asked.verifier.ask("x", unverified, adds=adds))

    assert {name: produce_error(error, 12) for name, error in outcomes.items()} == {
        mine: Error.NONE,
        others: Error.INVALID_PRODUCER_ID_MAPPING,
    }
    assert [one.topics[0].partitions for one in asked.transactions] == [[0]]


def test_a_partition_that_two_producers_want_in_one_request_is_neithers() -> None:
    name = TopicPartition("t", 0)
    unverified = [Unverified(name, PRODUCER_ID, 0, 1), Unverified(name, PRODUCER_ID, 1, 1)]

    outcomes = asyncio.run(Asked().verifier.ask("x", unverified, adds=True))

    assert outcomes == {name: Error.INVALID_PRODUCER_ID_MAPPING}
