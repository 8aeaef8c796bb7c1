"""A TxnOffsetCommit whose group is given to another coordinator while a transaction's coordinator is being asked."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from replog.errors import Error
from replog.node.api.groups import GroupApi
from replog.node.coordinators.verifier import Verifier
from replog.node.tasks import Tasks
from replog.types import NodeId
from replog.wire.messages import add_partitions_to_txn as apt
from replog.wire.messages import txn_offset_commit as toc
from tests.coordinators.test_coordinator_mutants import a_verifying_leader


def test_the_producer_is_sent_to_the_next_coordinator(tmp_path: Path) -> None:
    """The answer is INVALID_TXN_STATE, because the end of the leadership voids the guard as an end marker does."""
    partition = a_verifying_leader(tmp_path)
    lines: list[str] = []
    clock = SimpleNamespace(now_ms=lambda: 0)
    world = SimpleNamespace(clock=clock, journal=SimpleNamespace(log=lambda _, line: lines.append(line)))
    coordinator = SimpleNamespace(replica=SimpleNamespace(partition=partition), is_ended=False)
    shards: Any = SimpleNamespace(find=lambda _: coordinator, replicas=SimpleNamespace(world=world))

    async def send(_node: NodeId, _api: Any, body: apt.AddPartitionsToTxnRequest) -> apt.AddPartitionsToTxnResponse:
        partition.resign()
        coordinator.is_ended = True
        topic = body.transactions[0].topics[0]
        results = [apt.AddPartitionsToTxnPartitionResult(partition_index=index) for index in topic.partitions]
        result = apt.AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=results)
        result = apt.AddPartitionsToTxnResult(transactional_id="x", topic_results=[result])
        return apt.AddPartitionsToTxnResponse(results_by_transaction=[result])

    links: Any = SimpleNamespace(send=send)
    topics: Any = SimpleNamespace(coordinator_of=lambda _topic, _key: NodeId(1))
    asked = toc.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=3)
    body = toc.TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=7,
        producer_epoch=0,
        topics=[toc.TxnOffsetCommitRequestTopic(name="t", partitions=[asked])],
    )

    async def main() -> toc.TxnOffsetCommitResponse:
        answer: asyncio.Future[toc.TxnOffsetCommitResponse] = asyncio.get_running_loop().create_future()
        request: Any = SimpleNamespace(
            body=body,
            version=5,
            client_id="c",
            peer_host="h",
            is_answered=False,
            reply=answer.set_result,
        )
        verifier = Verifier(links, topics, Tasks(), retry_ms=20, timeout_ms=100)
        GroupApi(shards, verifier, lambda: False).commit_in_transaction(request)
        return await answer

    result = asyncio.run(main())

    assert result.topics[0].partitions[0].error_code is Error.NOT_COORDINATOR
