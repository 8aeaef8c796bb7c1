"""What groups' and transactions' coordinators are asked wrongly: each its error, nothing changed, a line with who and what."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from replog.__main__ import ClientWorld
from replog.client.client import Client
from replog.client.connection import Connection
from replog.config import Endpoint
from replog.errors import Error
from replog.log.batch import TRANSACTIONAL, NewRecord, build
from replog.wire.apis import api_of
from replog.wire.error_codes import errors_in
from replog.wire.exchange import exchange_of
from replog.wire.messages import add_offsets_to_txn as aot
from replog.wire.messages import add_partitions_to_txn as apt
from replog.wire.messages import consumer_group_heartbeat as cgh
from replog.wire.messages import delete_groups as dg
from replog.wire.messages import describe_groups as desc
from replog.wire.messages import describe_transactions as dtx
from replog.wire.messages import end_txn as et
from replog.wire.messages import find_coordinator as fc
from replog.wire.messages import heartbeat as hb
from replog.wire.messages import init_producer_id as ip
from replog.wire.messages import join_group as jg
from replog.wire.messages import leave_group as lg
from replog.wire.messages import list_offsets as lo
from replog.wire.messages import list_transactions as lt
from replog.wire.messages import offset_commit as oc
from replog.wire.messages import offset_delete as od
from replog.wire.messages import offset_fetch as of
from replog.wire.messages import sync_group as sg
from replog.wire.messages import txn_offset_commit as toc
from replog.wire.messages import write_txn_markers as wtm
from replog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.loopback import running

SETTINGS = {
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
}
MARKER_EPOCH = 7
COMMITTED = 5


class Scene:
    """One broker: a group with one member in generation 1, a second producer of `x`, a group of the new protocol."""

    def __init__(self, connection: Connection, client: Client, lines: list[str]) -> None:
        self.connection = connection
        self.client = client
        self.lines = lines
        self.member = ""
        self.zombie = (-1, -1)  # producer id and epoch
        self.successor = (-1, -1)
        self.other = (-1, -1)  # of a transaction of `y`, of which the group's offsets are part
        self.modern = ("", 0)  # member id and epoch
        self.topic_id: Any = None

    async def ask(self, body: msgspec.Struct, version: int | None = None) -> Any:
        return await self.connection.send(exchange_of(api_of(body)), body, version=version, timeout_ms=10_000)

    async def ask_until_loaded(self, body: msgspec.Struct, version: int | None = None) -> Any:
        """Ask until no coordinator is still to be made or loaded."""
        passing = (Error.NOT_COORDINATOR, Error.COORDINATOR_LOAD_IN_PROGRESS, Error.COORDINATOR_NOT_AVAILABLE)
        while True:
            answer = await self.ask(body, version)
            if not any(error in passing for error in errors_in(answer)):
                return answer
            await asyncio.sleep(0.05)

    async def set_up(self) -> None:
        await self.client.create_topic("t", partitions=1, replication_factor=1)
        self.topic_id = (await self.client.leader("t", 0)).topic_id
        for key_type, key in ((0, "g"), (1, "x")):
            await self.ask_until_loaded(fc.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]))
        asked = await self.ask_until_loaded(join())
        joined = await self.ask(join(asked.member_id))
        self.member = joined.member_id
        share = [sg.SyncGroupRequestAssignment(member_id=self.member, assignment=b"all")]
        synced = await self.ask(
            sg.SyncGroupRequest(
                group_id="g",
                generation_id=1,
                member_id=self.member,
                protocol_type="consumer",
                protocol_name="range",
                assignments=share,
            )
        )
        assert (joined.generation_id, synced.error_code) == (1, Error.NONE)
        assert list(errors_in(await self.ask(commit(self, generation=1)))) in ([], [Error.NONE])
        first = await self.ask_until_loaded(
            ip.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
        )
        second = await self.ask(ip.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000))
        self.zombie = (first.producer_id, first.producer_epoch)
        self.successor = (second.producer_id, second.producer_epoch)
        assert self.successor == (self.zombie[0], self.zombie[1] + 1)
        third = await self.ask(ip.InitProducerIdRequest(transactional_id="y", transaction_timeout_ms=60_000))
        self.other = (third.producer_id, third.producer_epoch)
        offsets = aot.AddOffsetsToTxnRequest(
            transactional_id="y", producer_id=self.other[0], producer_epoch=self.other[1], group_id="g"
        )
        assert (await self.ask_until_loaded(offsets)).error_code is Error.NONE
        assert await self.ask_until_loaded(marker(self, MARKER_EPOCH)) is not None
        beat = await self.ask_until_loaded(
            cgh.ConsumerGroupHeartbeatRequest(
                group_id="modern",
                member_id="m",
                member_epoch=0,
                rebalance_timeout_ms=30_000,
                subscribed_topic_names=["t"],
                topic_partitions=[],
            )
        )
        assert beat.error_code is Error.NONE, beat
        self.modern = (beat.member_id, beat.member_epoch)

    async def state(self) -> Any:
        """Return all that may not change."""
        groups = await self.ask(desc.DescribeGroupsRequest(groups=["g"]))
        offsets = await self.ask(of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup(group_id="g", topics=None)]))
        transactions = await self.ask(dtx.DescribeTransactionsRequest(transactional_ids=["x", "y", "unused"]))
        end = lo.ListOffsetsTopic(name="t", partitions=[lo.ListOffsetsPartition(partition_index=0, timestamp=-1)])
        log = await self.ask(lo.ListOffsetsRequest(topics=[end]))
        return groups, offsets, transactions, log.topics[0].partitions[0].offset


def join(member_id: str = "") -> jg.JoinGroupRequest:
    return jg.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[jg.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def commit(scene: Scene, *, generation: int, member: str | None = None, metadata: str = "") -> oc.OffsetCommitRequest:
    part = oc.OffsetCommitRequestPartition(
        partition_index=0,
        committed_offset=COMMITTED if generation == 1 and not metadata else 99,
        committed_metadata=metadata,
    )
    return oc.OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id=scene.member if member is None else member,
        topics=[oc.OffsetCommitRequestTopic(name="t", topic_id=scene.topic_id, partitions=[part])],
    )


def sync(scene: Scene, generation: int, member: str) -> sg.SyncGroupRequest:
    return sg.SyncGroupRequest(
        group_id="g", generation_id=generation, member_id=member, protocol_type="consumer", protocol_name="range"
    )


def end(producer: tuple[int, int], *, committed: bool = True) -> et.EndTxnRequest:
    return et.EndTxnRequest(
        transactional_id="x", producer_id=producer[0], producer_epoch=producer[1], committed=committed
    )


def add(producer: tuple[int, int], transactional_id: str = "x") -> apt.AddPartitionsToTxnRequest:
    return apt.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[apt.AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )


def produce(scene: Scene, producer: tuple[int, int]) -> ProduceRequest:
    records = build(
        [NewRecord(None, b"late")],
        timestamp_ms=ClientWorld().clock.wall_ms(),
        producer=(*producer, 0),
        attributes=TRANSACTIONAL,
    )
    data = [PartitionProduceData(index=0, records=records)]
    topic = TopicProduceData(topic_id=scene.topic_id, partition_data=data)
    return ProduceRequest(acks=-1, timeout_ms=5000, transactional_id="x", topic_data=[topic])


def marker(scene: Scene, coordinator_epoch: int) -> wtm.WriteTxnMarkersRequest:
    one = wtm.WritableTxnMarker(
        producer_id=scene.successor[0],
        producer_epoch=scene.successor[1],
        transaction_result=False,
        topics=[wtm.WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
        coordinator_epoch=coordinator_epoch,
    )
    return wtm.WriteTxnMarkersRequest(markers=[one])


def commit_in_transaction(
    scene: Scene, producer: tuple[int, int], generation: int, transactional_id: str = "x"
) -> toc.TxnOffsetCommitRequest:
    part = toc.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=99)
    return toc.TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id="g",
        producer_id=producer[0],
        producer_epoch=producer[1],
        generation_id=generation,
        member_id=scene.member,
        topics=[toc.TxnOffsetCommitRequestTopic(name="t", partitions=[part])],
    )


def beat(scene: Scene, member: str, epoch: int) -> cgh.ConsumerGroupHeartbeatRequest:
    return cgh.ConsumerGroupHeartbeatRequest(group_id="modern", member_id=member, member_epoch=epoch)


Bad = tuple[Callable[[Scene], msgspec.Struct], int | None, Error, tuple[str, ...]]
# request, version, error, what the line names besides the error
BAD: dict[str, Bad] = {
    "heartbeat of an unknown member": (
        lambda s: hb.HeartbeatRequest(group_id="g", generation_id=1, member_id="stranger"),
        *(None, Error.UNKNOWN_MEMBER_ID, ("'g'", "stranger")),
    ),
    "heartbeat of a stale generation": (
        lambda s: hb.HeartbeatRequest(group_id="g", generation_id=0, member_id=s.member),
        *(None, Error.ILLEGAL_GENERATION, ("'g'", "'generation_id': 0")),
    ),
    "sync of an unknown member": (lambda s: sync(s, 1, "stranger"), None, Error.UNKNOWN_MEMBER_ID, ("stranger",)),
    "sync of a stale generation": (
        lambda s: sync(s, 0, s.member),
        *(None, Error.ILLEGAL_GENERATION, ("'generation_id': 0",)),
    ),
    "an unknown member leaves": (
        lambda s: lg.LeaveGroupRequest(group_id="g", members=[lg.MemberIdentity(member_id="stranger")]),
        *(None, Error.UNKNOWN_MEMBER_ID, ("'g'",)),
    ),
    "an unknown member joins": (lambda s: join("stranger"), None, Error.UNKNOWN_MEMBER_ID, ("'g'", "stranger")),
    "commit of an unknown member": (
        lambda s: commit(s, generation=1, member="stranger"),
        *(None, Error.UNKNOWN_MEMBER_ID, ("'g'", "stranger")),
    ),
    "commit of a stale generation": (
        lambda s: commit(s, generation=0),
        *(None, Error.ILLEGAL_GENERATION, ("'g'", "epoch': 0")),
    ),
    "oversized metadata": (
        lambda s: commit(s, generation=1, metadata="m" * 4097),
        *(None, Error.OFFSET_METADATA_TOO_LARGE, ("'g'",)),
    ),
    "a group with members is deleted": (
        lambda s: dg.DeleteGroupsRequest(groups_names=["g"]),
        *(None, Error.NON_EMPTY_GROUP, ("group 'g'",)),
    ),
    "offsets are deleted under a member's feet": (
        lambda s: od.OffsetDeleteRequest(
            group_id="g",
            topics=[od.OffsetDeleteRequestTopic(name="t", partitions=[od.OffsetDeleteRequestPartition()])],
        ),
        *(None, Error.GROUP_SUBSCRIBED_TO_TOPIC, ("'g'",)),
    ),
    "an unknown member of a new group": (
        lambda s: beat(s, "stranger", 3),
        *(None, Error.UNKNOWN_MEMBER_ID, ("modern", "stranger")),
    ),
    "a member epoch that was never given": (
        lambda s: beat(s, s.modern[0], s.modern[1] + 9),
        *(None, Error.FENCED_MEMBER_EPOCH, ("modern", "member_epoch")),
    ),
    "the fenced producer commits": (lambda s: end(s.zombie), 4, Error.PRODUCER_FENCED, ("'x'", "'producer_epoch': 0")),
    "the fenced producer ends by protocol 2": (lambda s: end(s.zombie), 5, Error.PRODUCER_FENCED, ("'x'",)),
    "the fenced producer adds a partition": (lambda s: add(s.zombie), 3, Error.PRODUCER_FENCED, ("'x'",)),
    "the fenced producer writes": (
        lambda s: produce(s, s.zombie),
        *(None, Error.INVALID_PRODUCER_EPOCH, ("t-0", "producer_epoch': 0")),
    ),
    "the fenced producer commits offsets": (
        lambda s: commit_in_transaction(s, s.zombie, 1),
        *(None, Error.INVALID_PRODUCER_EPOCH, ("'x'",)),
    ),
    "a stale generation in a transaction": (
        lambda s: commit_in_transaction(s, s.other, 0, "y"),
        *(None, Error.ILLEGAL_GENERATION, ("'y'", "'generation_id': 0")),
    ),
    "another's producer id": (lambda s: add((4711, 0)), 3, Error.INVALID_PRODUCER_ID_MAPPING, ("'x'", "4711")),
    "nothing was begun and is committed": (lambda s: end(s.successor), 4, Error.INVALID_TXN_STATE, ("'x'",)),
    "an unused id ends a transaction": (
        lambda s: et.EndTxnRequest(transactional_id="unused", producer_id=1, producer_epoch=0, committed=True),
        *(None, Error.INVALID_PRODUCER_ID_MAPPING, ("unused",)),
    ),
    "a time-out longer than the broker allows": (
        lambda s: ip.InitProducerIdRequest(transactional_id="unused", transaction_timeout_ms=1 << 30),
        *(None, Error.INVALID_TRANSACTION_TIMEOUT, ("unused",)),
    ),
    "a marker of an old coordinator": (
        lambda s: marker(s, MARKER_EPOCH - 1),
        *(None, Error.TRANSACTION_COORDINATOR_FENCED, ("t-0", f"coordinator {MARKER_EPOCH - 1}")),
    ),
}


def on_broker(folder: Path, story: Callable[[Scene], Awaitable[None]]) -> None:
    async def run() -> None:
        async with running(
            folder, controllers=1, brokers=1, **{k.replace(".", "__"): v for k, v in SETTINGS.items()}
        ) as c:
            journal, lines = c.worlds[1].journal, []
            journal.log = lambda level, message: lines.append(message)  # type: ignore[method-assign]
            host, port = c.bootstrap.split(":")
            client = Client(ClientWorld(), [Endpoint(host, int(port))])
            connection = Connection(ClientWorld(), Endpoint(host, int(port)), "somebody")
            await connection.open()
            scene = Scene(connection, client, lines)
            await scene.set_up()
            await story(scene)
            connection.close()
            await client.close()

    asyncio.run(run())


@pytest.mark.timeout(120)
def test_each_is_answered_with_its_error_and_changes_nothing_and_is_logged(tmp_path: Path) -> None:
    wrong: list[str] = []

    async def story(scene: Scene) -> None:
        before = await scene.state()
        for name, (request, version, error, words) in BAD.items():
            scene.lines.clear()
            body = request(scene)
            errors = [found for found in errors_in(await scene.ask(body, version)) if found is not Error.NONE]
            if errors != [error]:
                wrong.append(f"{name}: errors {errors}")
            if await scene.state() != before:
                wrong.append(f"{name}: changed something")
            line = next((line for line in scene.lines if error.name in line), f"no line in {scene.lines}")
            missing = [word for word in words if word not in line]
            if missing or ("somebody" not in line and "marker" not in line):
                wrong.append(f"{name}: {missing} not in: {line}")

    on_broker(tmp_path, story)

    assert not wrong, "\n".join(wrong)


@pytest.mark.timeout(120)
def test_a_pattern_of_transactional_ids_neither_ends_a_broker_nor_hangs_it(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        for pattern in ("(", "a{4294967295}", "(" * 400 + ")" * 400):
            refused = await scene.ask(lt.ListTransactionsRequest(transactional_id_pattern=pattern))
            assert refused.error_code is Error.INVALID_REGULAR_EXPRESSION, pattern[:10]

        long_id = "a" * 60 + "!"
        await scene.ask(ip.InitProducerIdRequest(transactional_id=long_id, transaction_timeout_ms=60_000))
        found = {}
        for pattern in (None, "x|y", "(a+)+"):
            listed = await scene.ask(lt.ListTransactionsRequest(transactional_id_pattern=pattern))
            found[pattern] = {state.transactional_id for state in listed.transaction_states}
        assert found == {None: {"x", "y", long_id}, "x|y": {"x", "y"}, "(a+)+": set()}

    on_broker(tmp_path, story)


@pytest.mark.timeout(120)
def test_nobody_but_a_coordinator_writes_to_its_topic(tmp_path: Path) -> None:
    """A transaction's record in `__transaction_state` would end every broker that reads it to coordinate."""

    async def story(scene: Scene) -> None:
        async def ends() -> list[int]:
            return [(await scene.client.list_offsets(topic, 0, -1)).offset for topic in internal]

        internal = ("__consumer_offsets", "__transaction_state")
        before = await ends()
        record, now_ms = [NewRecord(b"key", b"value")], ClientWorld().clock.wall_ms()
        of_nobody = build(record, timestamp_ms=now_ms)
        of_x = build(record, timestamp_ms=now_ms, producer=(*scene.successor, 0), attributes=TRANSACTIONAL)
        errors = []
        for topic in internal:
            errors.append(await scene.client.produce(topic, 0, of_nobody, acks=-1))
            errors.append(await scene.client.produce(topic, 0, of_x, acks=-1, transactional_id="x"))

        assert [None if answer is None else answer.error_code for answer in errors] == [
            Error.INVALID_TOPIC_EXCEPTION
        ] * 4
        assert await ends() == before

    on_broker(tmp_path, story)


@pytest.mark.timeout(120)
def test_the_group_without_a_name_has_a_coordinator_and_a_transactional_id_has_a_name(tmp_path: Path) -> None:
    """As Apache Kafka's: old clients commit offsets there; no transaction is of nobody."""

    async def story(scene: Scene) -> None:
        found = [await scene.ask(fc.FindCoordinatorRequest(key_type=kind, coordinator_keys=[""])) for kind in (0, 1)]
        asked = oc.OffsetCommitRequestPartition(partition_index=0, committed_offset=COMMITTED)
        topics = [oc.OffsetCommitRequestTopic(name="t", partitions=[asked])]
        committed = await scene.ask(oc.OffsetCommitRequest(group_id="", topics=topics), 8)

        assert [answer.coordinators[0].error_code for answer in found] == [Error.NONE, Error.INVALID_REQUEST]
        assert list(errors_in(committed)) == [Error.NONE]

    on_broker(tmp_path, story)


@pytest.mark.timeout(120)
def test_a_producer_names_itself_by_id_and_epoch_or_not_at_all(tmp_path: Path) -> None:
    """As Apache Kafka's: INVALID_REQUEST, whether or not there is a transactional id (KIP-360)."""

    async def story(scene: Scene) -> None:
        producer_id, epoch = scene.successor
        named = [(producer_id, -1), (-1, epoch), (-1, -1)]
        errors = {
            name: [
                (
                    await scene.ask_until_loaded(
                        ip.InitProducerIdRequest(
                            transactional_id=name,
                            transaction_timeout_ms=60_000,
                            producer_id=one[0],
                            producer_epoch=one[1],
                        )
                    )
                ).error_code
                for one in named
            ]
            for name in ("x", None)
        }

        expected = [Error.INVALID_REQUEST, Error.INVALID_REQUEST, Error.NONE]
        assert errors == {"x": expected, None: expected}

    on_broker(tmp_path, story)
