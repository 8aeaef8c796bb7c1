"""Transactions on topics that are deleted, created again or not known yet, and markers that come late."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from replog.__main__ import ClientWorld
from replog.client.client import Client
from replog.client.connection import Connection
from replog.config import Endpoint
from replog.errors import Error
from replog.log.batch import TRANSACTIONAL, NewRecord, build
from replog.wire.apis import api_of
from replog.wire.error_codes import errors_in
from replog.wire.exchange import exchange_of
from replog.wire.messages import add_partitions_to_txn as apt
from replog.wire.messages import delete_topics as dt
from replog.wire.messages import describe_transactions as dtx
from replog.wire.messages import end_txn as et
from replog.wire.messages import find_coordinator as fc
from replog.wire.messages import init_producer_id as ip
from replog.wire.messages import write_txn_markers as wtm
from tests.broker.loopback import running

SETTINGS: dict[str, Any] = {
    "transaction__state__log__num__partitions": 1,
    "transaction__state__log__replication__factor": 1,
    "transaction__state__log__min__isr": 1,
}


class Scene:
    """One broker and a producer of `x`."""

    def __init__(self, connection: Connection, client: Client) -> None:
        self.connection = connection
        self.client = client
        self.producer = (-1, -1)

    async def ask(self, body: msgspec.Struct, version: int | None = None) -> Any:
        """Ask until no coordinator is still to be made or loaded, and nobody still ends a transaction."""
        passing = (
            *(Error.NOT_COORDINATOR, Error.COORDINATOR_LOAD_IN_PROGRESS, Error.COORDINATOR_NOT_AVAILABLE),
            Error.CONCURRENT_TRANSACTIONS,
        )
        while True:
            answer = await self.connection.send(exchange_of(api_of(body)), body, version=version, timeout_ms=10_000)
            if not any(error in passing for error in errors_in(answer)):
                return answer
            await asyncio.sleep(0.05)

    async def set_up(self) -> None:
        await self.ask(fc.FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]))
        given = await self.ask(ip.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000))
        self.producer = (given.producer_id, given.producer_epoch)

    async def end(self, version: int) -> Error:
        producer_id, epoch = self.producer
        body = et.EndTxnRequest(transactional_id="x", producer_id=producer_id, producer_epoch=epoch, committed=True)
        answer = await self.ask(body, version)
        if answer.producer_id >= 0:
            self.producer = (answer.producer_id, answer.producer_epoch)
        return Error(answer.error_code)

    async def reaches(self, state: str) -> None:
        while True:
            answer = await self.ask(dtx.DescribeTransactionsRequest(transactional_ids=["x"]))
            if answer.transaction_states[0].transaction_state == state:
                return
            await asyncio.sleep(0.05)

    async def write(self, topic: str, value: bytes) -> None:
        producer = (*self.producer, 0)
        batch = build([NewRecord(None, value)], timestamp_ms=1, producer=producer, attributes=TRANSACTIONAL)
        while True:
            result = await self.client.produce(topic, 0, batch, acks=-1, transactional_id="x")
            assert result is not None
            if result.error_code is Error.NONE:
                return
            assert result.error_code is Error.NOT_LEADER_OR_FOLLOWER  # its log is yet to be made
            await asyncio.sleep(0.05)

    async def seen(self, topic: str) -> int:
        return int((await self.client.list_offsets(topic, 0, -1, isolation_level=1)).offset)

    async def marker(self, epoch: int) -> Error:
        """Send a marker of protocol version 2, as the coordinator would."""
        marker = wtm.WritableTxnMarker(
            producer_id=self.producer[0],
            producer_epoch=epoch,
            transaction_result=True,
            topics=[wtm.WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
            coordinator_epoch=100,
            transaction_version=2,
        )
        answer = await self.ask(wtm.WriteTxnMarkersRequest(markers=[marker]), 2)
        return Error(answer.markers[0].topics[0].partitions[0].error_code)


def on_broker(folder: Path, story: Callable[[Scene], Awaitable[None]]) -> None:
    async def run() -> None:
        async with running(folder, controllers=1, brokers=1, **SETTINGS) as cluster:
            host, port = cluster.bootstrap.split(":")
            client = Client(ClientWorld(), [Endpoint(host, int(port))])
            connection = Connection(ClientWorld(), Endpoint(host, int(port)), "somebody")
            await connection.open()
            scene = Scene(connection, client)
            try:
                async with asyncio.timeout(40):
                    await scene.set_up()
                    await story(scene)
            finally:
                connection.close()
                await client.close()

    asyncio.run(run())


def wanted(scene: Scene, topic: str, partitions: list[int]) -> apt.AddPartitionsToTxnTransaction:
    return apt.AddPartitionsToTxnTransaction(
        transactional_id="x",
        producer_id=scene.producer[0],
        producer_epoch=scene.producer[1],
        topics=[apt.AddPartitionsToTxnTopic(name=topic, partitions=partitions)],
    )


def test_a_transaction_ends_whose_partition_did_not_come_back_with_its_topic(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await scene.client.create_topic("t", partitions=2, replication_factor=1)
        await scene.client.leader("t", 1)
        added = await scene.ask(apt.AddPartitionsToTxnRequest(transactions=[wanted(scene, "t", [0, 1])]), 5)
        assert set(errors_in(added)) <= {Error.NONE}
        await scene.ask(dt.DeleteTopicsRequest(topics=[dt.DeleteTopicState(name="t")], timeout_ms=10_000))
        assert (await scene.client.create_topic("t", partitions=1, replication_factor=1)).error_code is Error.NONE

        assert await scene.end(version=4) is Error.NONE

        await scene.reaches("CompleteCommit")

    on_broker(tmp_path, story)


def test_a_partition_that_the_coordinator_does_not_know_is_in_no_transaction(tmp_path: Path) -> None:
    """Its marker would never be sent: it would be taken for deleted."""

    async def story(scene: Scene) -> None:
        answer = await scene.ask(apt.AddPartitionsToTxnRequest(transactions=[wanted(scene, "unheard-of", [0])]), 5)

        result = answer.results_by_transaction[0].topic_results[0].results_by_partition[0].partition_error_code
        assert result is Error.UNKNOWN_TOPIC_OR_PARTITION
        await scene.reaches("Empty")

    on_broker(tmp_path, story)


def test_a_late_marker_does_not_end_the_next_transaction(tmp_path: Path) -> None:
    """KIP-1228: a marker is of a later epoch than what it ends, so one of the same epoch is of the transaction before."""

    async def story(scene: Scene) -> None:
        await scene.client.create_topic("t", partitions=1, replication_factor=1)
        await scene.write("t", b"first")
        assert await scene.end(version=5) is Error.NONE
        await scene.reaches("CompleteCommit")
        assert await scene.marker(scene.producer[1]) is Error.NONE  # nothing is open: a repetition does no harm
        end = await scene.seen("t")
        await scene.write("t", b"second")

        assert await scene.marker(scene.producer[1]) is Error.INVALID_PRODUCER_EPOCH

        assert await scene.seen("t") == end
        assert await scene.marker(scene.producer[1] + 1) is Error.NONE
        assert await scene.seen("t") == end + 2

    on_broker(tmp_path, story)
