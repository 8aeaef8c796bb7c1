"""What costs its sender only: attacks of anybody on real nodes, each in a few bytes; the nodes go on and serve everybody else."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from crc32c import crc32c

from replog.__main__ import ClientWorld
from replog.client.client import Client
from replog.client.connection import Connection, ConnectionLost
from replog.config import Endpoint
from replog.errors import Error
from replog.log.batch import NewRecord, build, sealed
from replog.log.compression import Codec, packed
from replog.log.log import Log
from replog.log.validation import Origin
from replog.metadata.features import KRAFT_VERSION
from replog.node.api import forwarding
from replog.node.boundary import ends_the_node
from replog.node.broker import Broker
from replog.node.controller import ControllerNode
from replog.node.metrics import exposition, node_metrics
from replog.node.quorum.metadata_log import directory_id_of
from replog.node.replication.replicas import Replica
from replog.quorum.quorum import Quorum
from replog.wire.apis import Api
from replog.wire.codec import decode_response, encode_request
from replog.wire.exchange import exchange_of
from replog.wire.messages import add_partitions_to_txn as apt
from replog.wire.messages import add_raft_voter, vote
from replog.wire.messages import begin_quorum_epoch as begin
from replog.wire.messages import broker_registration as reg
from replog.wire.messages import create_topics as ct
from replog.wire.messages import delete_records as dr
from replog.wire.messages import describe_configs as dconf
from replog.wire.messages import describe_producers as dp
from replog.wire.messages import find_coordinator as fc
from replog.wire.messages import list_offsets as lo
from replog.wire.messages import metadata as md
from replog.wire.messages import offset_fetch as of
from replog.wire.messages import produce as pr
from replog.wire.messages import write_txn_markers as wtm
from tests.broker.loopback import Loopback, running
from tests.quorum.quorum_nodes import until

CONTROLLER, BROKER = 101, 1
LONG_HOST = "a" * 64 + ".example"
QUORUM = "__cluster_metadata"


class Attack:
    """A cluster of one controller and one broker, and what its nodes could not foresee."""

    def __init__(self, cluster: Loopback) -> None:
        self.cluster = cluster
        self.unforeseen: list[dict[str, Any]] = []  # each of them would have ended the node

    @property
    def broker(self) -> Broker:
        node = self.cluster.nodes[BROKER]
        assert isinstance(node, Broker)
        return node

    @property
    def controller(self) -> ControllerNode:
        node = self.cluster.nodes[CONTROLLER]
        assert isinstance(node, ControllerNode)
        return node

    async def ask(self, node: int, api: Api, body: msgspec.Struct, version: int) -> Any:
        """Send one request over a connection of its own; None when the connection ends instead of an answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.cluster.ports[node])
        try:
            async with asyncio.timeout(10):
                writer.write(encode_request(api, version, 1, "x", body))
                length = int.from_bytes(await reader.readexactly(4), "big")
                return decode_response(exchange_of(api), version, await reader.readexactly(length))[1]
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        finally:
            writer.transport.abort()

    async def still_serves(self) -> None:
        answer = await self.ask(BROKER, Api.METADATA, md.MetadataRequest(topics=[]), 12)
        assert [broker.node_id for broker in answer.brokers] == [BROKER]
        assert self.unforeseen == []


def under_attack(folder: Path, story: Callable[[Attack], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        async with running(folder, controllers=1, brokers=1, **settings) as cluster:
            attack = Attack(cluster)
            asyncio.get_running_loop().set_exception_handler(lambda _, context: attack.unforeseen.append(context))
            await story(attack)

    asyncio.run(run())


def test_an_error_that_nobody_foresaw_costs_its_sender_the_answer_is_logged_once_and_counted(tmp_path: Path) -> None:
    async def story(attack: Attack) -> None:
        world, handlers = attack.cluster.worlds[BROKER], attack.broker.plane.handlers
        lines: list[str] = []
        world.journal.log = lambda level, message: lines.append(message)  # type: ignore[method-assign]
        metadata = handlers.by_api[Api.METADATA]

        def fails(_: object) -> None:
            raise RecursionError("a pattern")

        handlers.on(metadata.served, fails)
        handlers.on(handlers.by_api[Api.FIND_COORDINATOR].served, fails)
        for _ in range(3):
            assert await attack.ask(BROKER, Api.METADATA, md.MetadataRequest(topics=[]), 9) is None
        wanted = fc.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        refused = await attack.ask(BROKER, Api.FIND_COORDINATOR, wanted, 4)
        handlers.on(metadata.served, metadata.handle)

        assert [one.error_code for one in refused.coordinators] == [Error.UNKNOWN_SERVER_ERROR]
        assert world.journal.unforeseen_count == 4
        assert "tribunal_unforeseen_errors_total 4" in exposition(node_metrics(world.journal))
        assert len([line for line in lines if "RecursionError" in line and "in fails" in line]) == 2
        await attack.still_serves()

    under_attack(tmp_path, story)


def test_thousands_of_markers_in_one_request_hold_up_nobody_else(tmp_path: Path) -> None:
    """20,000 took the broker six seconds of thinking in one go, in which nobody was answered; the fuzzer's."""
    count = 1000

    async def story(attack: Attack) -> None:
        client = Client(ClientWorld(), [Endpoint("127.0.0.1", attack.cluster.ports[BROKER])])
        await client.create_topic("t", partitions=1, replication_factor=1)
        while (await client.list_offsets("t", 0, -1)).error_code is not Error.NONE:
            pass
        many = wtm.WriteTxnMarkersRequest(
            markers=[
                wtm.WritableTxnMarker(
                    producer_id=number,
                    transaction_result=True,
                    topics=[wtm.WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
                )
                for number in range(count)
            ]
        )
        written = asyncio.create_task(attack.ask(BROKER, Api.WRITE_TXN_MARKERS, many, 1))
        while (await client.list_offsets("t", 0, -1)).offset == 0:
            pass

        assert (await client.list_offsets("t", 0, -1)).offset < count  # it is asked between two of them
        answer = await written
        assert (await client.list_offsets("t", 0, -1)).offset == count
        assert [one.producer_id for one in answer.markers] == list(range(count))
        assert {part.error_code for one in answer.markers for part in one.topics[0].partitions} == {Error.NONE}
        await client.close()
        await attack.still_serves()

    under_attack(tmp_path, story)


@pytest.mark.parametrize(("count", "has_a_turn"), [(100, False), (101, True)])
def test_thousands_of_transactions_in_one_request_hold_up_nobody_else(
    tmp_path: Path, count: int, *, has_a_turn: bool
) -> None:
    """Thousands took the broker seconds of thinking in one go, in which nobody was answered; the fuzzer's."""

    async def story(attack: Attack) -> None:
        handlers = attack.broker.plane.handlers
        handled = handlers.by_api[Api.ADD_PARTITIONS_TO_TXN]
        was_answered: list[bool] = []

        def watched(request: Any) -> None:
            handled.handle(request)
            was_answered.append(request.is_answered)

        handlers.on(handled.served, watched)
        wanted = [
            apt.AddPartitionsToTxnTransaction(
                transactional_id=f"x{number}",
                producer_id=number,
                verify_only=True,
                topics=[apt.AddPartitionsToTxnTopic(name="t", partitions=[0])],
            )
            for number in range(count)
        ]
        request = apt.AddPartitionsToTxnRequest(transactions=wanted)
        answer = await attack.ask(BROKER, Api.ADD_PARTITIONS_TO_TXN, request, 5)
        handlers.on(handled.served, handled.handle)

        assert was_answered == [not has_a_turn]  # the others' turn comes before the rest is looked at
        assert [one.transactional_id for one in answer.results_by_transaction] == [f"x{n}" for n in range(count)]
        await attack.still_serves()

    under_attack(tmp_path, story)


def test_what_came_through_a_state_machine_ends_the_node_and_what_only_reads_does_not() -> None:
    def problem_of(call: Callable[[], object]) -> Exception:
        try:
            call()
        except (AttributeError, KeyError) as problem:
            return problem
        raise AssertionError("it did not fail")

    quorum = Quorum.__new__(Quorum)  # one that was never put together: it fails within
    through = problem_of(lambda: quorum.handle(None))  # type: ignore[arg-type]
    outside = problem_of(lambda: {}["missing"])

    assert ends_the_node(through, Api.PRODUCE)
    assert not ends_the_node(through, Api.LIST_TRANSACTIONS)
    assert not ends_the_node(outside, Api.PRODUCE)
    assert ends_the_node(AssertionError("it may not be"), Api.LIST_TRANSACTIONS)
    assert ends_the_node(OSError("the disk"), Api.LIST_TRANSACTIONS)


def claim(attack: Attack, leader: int, epoch: int, host: str, port: int) -> begin.BeginQuorumEpochRequest:
    partition = begin.BeginQuorumEpochRequestPartitionData(leader_id=leader, leader_epoch=epoch)
    return begin.BeginQuorumEpochRequest(
        cluster_id=attack.cluster.cluster_id,
        voter_id=CONTROLLER,
        topics=[begin.BeginQuorumEpochRequestTopicData(topic_name=QUORUM, partitions=[partition])],
        leader_endpoints=[begin.LeaderEndpoint(name="CONTROLLER", host=host, port=port)],
    )


def ballot(attack: Attack, epoch: int) -> vote.VoteRequest:
    partition = vote.VoteRequestPartitionData(
        replica_epoch=epoch, replica_id=7, last_offset_epoch=0, last_offset=1 << 40, pre_vote=False
    )
    topic = vote.VoteRequestTopicData(topic_name=QUORUM, partitions=[partition])
    return vote.VoteRequest(cluster_id=attack.cluster.cluster_id, voter_id=-1, topics=[topic])


def errors(answer: Any) -> list[Error]:
    partitions = [partition for topic in answer.topics for partition in topic.partitions]
    return [answer.error_code, *(partition.error_code for partition in partitions)]


def test_nobody_takes_the_quorum_away_with_one_request(tmp_path: Path) -> None:
    async def story(attack: Attack) -> None:
        quorum = attack.controller.quorum
        assert quorum is not None
        leader, epoch, _ = quorum.leader
        claims = {
            "another leader of this epoch": (claim(attack, 7, epoch, "127.0.0.1", 9), Error.INCONSISTENT_VOTER_SET),
            "a host that cannot be": (claim(attack, 7, epoch + 1, LONG_HOST, 9), Error.INVALID_REQUEST),
            "no port": (claim(attack, 7, epoch + 1, "127.0.0.1", 0), Error.INVALID_REQUEST),
            "who does not vote": (claim(attack, 7, epoch + 1, "127.0.0.1", 9), Error.INCONSISTENT_VOTER_SET),
        }
        for name, (body, error) in claims.items():
            answer = await attack.ask(CONTROLLER, Api.BEGIN_QUORUM_EPOCH, body, 1)
            assert errors(answer) == [Error.NONE, error], name
        answer = await attack.ask(CONTROLLER, Api.VOTE, ballot(attack, (1 << 31) - 1), 2)

        assert errors(answer) == [Error.NONE, Error.UNKNOWN_LEADER_EPOCH]
        assert quorum.leader[:2] == (leader, epoch)
        await attack.still_serves()

    under_attack(tmp_path, story)


def test_a_broker_gets_no_vote(tmp_path: Path) -> None:
    """It follows the metadata as a controller without a vote does, and answers no candidate: of two voters one would be no majority."""

    async def story(attack: Attack) -> None:
        controller = attack.controller.quorum
        assert controller is not None
        directory = directory_id_of(attack.broker.world.disk, attack.broker.config.metadata_log_dir)
        await until(lambda: attack.controller.controller.image.features.get(KRAFT_VERSION) == 1)
        await until(lambda: CONTROLLER in attack.controller.controller.image.controllers)
        errors_of = {}
        for node in (BROKER, 77, CONTROLLER):
            body = add_raft_voter.AddRaftVoterRequest(
                cluster_id=attack.cluster.cluster_id,
                timeout_ms=3000,
                voter_id=node,
                voter_directory_id=directory,
                listeners=[
                    add_raft_voter.Listener(name="CONTROLLER", host="127.0.0.1", port=attack.cluster.ports[BROKER])
                ],
            )
            answer = await attack.ask(CONTROLLER, Api.ADD_RAFT_VOTER, body, 0)
            errors_of[node] = (answer.error_code, answer.error_message)

        assert errors_of[BROKER] == (Error.INVALID_REQUEST, "Node 1 is a broker: only controllers vote.")
        assert errors_of[77] == (Error.INVALID_REQUEST, "Node 77 has not registered as a controller.")
        assert errors_of[CONTROLLER][0] is Error.DUPLICATE_VOTER  # who is registered is left to the quorum
        assert [voter.node_id for voter in controller.voters] == [CONTROLLER]
        await attack.still_serves()

    under_attack(tmp_path, story)


@pytest.mark.parametrize(
    ("host", "port"),
    [(LONG_HOST, 9092), ("..", 9092), ("", 9092), ("a b", 9092), ("é", 9092), ("h" * 254, 9092), ("h", 0)],
)
def test_no_broker_is_registered_where_nobody_can_connect_to(tmp_path: Path, host: str, port: int) -> None:
    async def story(attack: Attack) -> None:
        body = reg.BrokerRegistrationRequest(
            broker_id=9,
            cluster_id=attack.cluster.cluster_id,
            incarnation_id=UUID(int=9),
            listeners=[reg.Listener(name="PLAINTEXT", host=host, port=port)],
            features=[reg.Feature(name="metadata.version", min_supported_version=1, max_supported_version=99)],
            log_dirs=[UUID(int=99)],
        )
        answer = await attack.ask(CONTROLLER, Api.BROKER_REGISTRATION, body, 3)

        assert answer.error_code is Error.INVALID_REGISTRATION
        assert 9 not in attack.controller.controller.image.brokers
        await attack.still_serves()

    under_attack(tmp_path, story)


@pytest.mark.parametrize(
    "address", [Endpoint(LONG_HOST, 9092), Endpoint("127.0.0.1", 70_000), Endpoint("", -1)], ids=str
)
def test_a_connection_to_no_address_is_a_lost_one(address: Endpoint) -> None:
    async def scenario() -> None:
        with pytest.raises(ConnectionLost):
            await Connection(ClientWorld(), address, "x").open(timeout_ms=2000)

    asyncio.run(scenario())


def test_a_coordinators_partition_that_cannot_be_replayed_is_offline_and_the_broker_goes_on(tmp_path: Path) -> None:
    """Its records are whole batches whose content is none: of an earlier version, or of a damaged disk."""

    async def story(attack: Attack) -> None:
        wanted = fc.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        plane = attack.broker.plane
        async with asyncio.timeout(60):
            while isinstance(plane.coordinators.groups.find("g"), Error):
                await attack.ask(BROKER, Api.FIND_COORDINATOR, wanted, 4)  # the first one has the topic created
                await asyncio.sleep(0.05)
        (replica,) = plane.replicas.by_topic["__consumer_offsets"].values()
        clock = plane.world.clock
        torn = bytearray(build([NewRecord(b"k" * 20, b"v" * 20)], timestamp_ms=clock.wall_ms()))
        torn[61] = 0x7E  # the record's length
        appended, _ = replica.partition.append(
            resealed(torn), acks=-1, now_ms=clock.now_ms(), wall_ms=clock.wall_ms(), origin=Origin.COORDINATOR
        )
        assert not isinstance(appended, Error)

        await attack.cluster.stop(BROKER)
        await attack.cluster.start(BROKER)
        await attack.cluster.serving()
        async with asyncio.timeout(60):
            while not attack.cluster.worlds[BROKER].journal.unforeseen_count:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

        assert attack.broker.plane.coordinators.groups.find("g") is Error.COORDINATOR_NOT_AVAILABLE
        await attack.still_serves()

    one_partition = {"offsets__topic__num__partitions": 1, "offsets__topic__replication__factor": 1}
    under_attack(tmp_path, story, **one_partition)


def resealed(batch: bytearray) -> bytes:
    """Return the batch with the checksum of what it holds now."""
    batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
    return bytes(batch)


def test_a_replica_without_its_oldest_segments_fetches_them_again_and_takes_nothing_from_others(tmp_path: Path) -> None:
    """It would join the ISR, be elected, serve the rest, and its log start would delete the good copies."""
    small = {"log__segment__bytes": 2000, "offsets__topic__replication__factor": 1}

    async def run() -> None:
        async with running(tmp_path, controllers=1, brokers=2, **small) as cluster:
            host, port = cluster.bootstrap.split(",")[0].split(":")
            client = Client(ClientWorld(), [Endpoint(host, int(port))])
            await client.create_topic("t", partitions=1, replication_factor=2)
            for number in range(60):
                records = build([NewRecord(b"%d" % number, bytes(300))], timestamp_ms=ClientWorld().clock.wall_ms())
                answer = await client.produce("t", 0, records, acks=-1)
                while answer is None or answer.error_code is not Error.NONE:  # its logs are being laid down
                    await asyncio.sleep(0.05)
                    answer = await client.produce("t", 0, records, acks=-1)
            await client.close()

            def held(node: int) -> tuple[int, int]:
                broker = cluster.nodes[node]
                assert isinstance(broker, Broker)
                replica = broker.plane.replicas.by_topic.get("t", {}).get(0)
                return (
                    (-1, -1) if replica is None else (log_of(replica).log_start_offset, log_of(replica).log_end_offset)
                )

            await cluster.stop(2)
            oldest = sorted((tmp_path / "node-2" / "t-0").glob("*.log"))[:3]
            for segment in oldest:
                for file in segment.parent.glob(f"{segment.stem}.*"):
                    file.unlink()
            await cluster.start(2)
            await cluster.serving()
            async with asyncio.timeout(60):
                while held(2) != (0, 60):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

            assert len(oldest) == 3
            assert held(1) == (0, 60)  # no record was sent twice: each produce was refused or answered

    asyncio.run(run())


def log_of(replica: Replica) -> Log:
    return replica.partition.log


def test_what_a_request_names_again_and_again_is_looked_up_once(tmp_path: Path) -> None:
    """110 KB of request took 1.8 GiB of answer."""

    async def story(attack: Attack) -> None:
        topics = [md.MetadataRequestTopic(name=name) for name in ("a", "b", "a") * 500]
        answer = await attack.ask(BROKER, Api.METADATA, md.MetadataRequest(topics=topics), 12)
        assert [topic.name for topic in answer.topics] == ["a", "b"]

        groups = fc.FindCoordinatorRequest(key_type=0, coordinator_keys=["g", "h", "g"] * 500)
        answer = await attack.ask(BROKER, Api.FIND_COORDINATOR, groups, 4)
        assert [one.key for one in answer.coordinators] == ["g", "h"]

        resources = [dconf.DescribeConfigsResource(resource_type=4, resource_name="1")] * 500
        for node in (BROKER, CONTROLLER):
            configs = dconf.DescribeConfigsRequest(resources=resources)
            answer = await attack.ask(node, Api.DESCRIBE_CONFIGS, configs, 4)
            assert [one.resource_name for one in answer.results] == ["1"]

        producers = dp.DescribeProducersRequest(topics=[dp.TopicRequest(name="a", partition_indexes=[0, 1, 0])] * 500)
        answer = await attack.ask(BROKER, Api.DESCRIBE_PRODUCERS, producers, 0)
        assert [[one.partition_index for one in topic.partitions] for topic in answer.topics] == [[0, 1]]

        named = of.OffsetFetchRequestTopics(name="a", partition_indexes=[0, 1, 0])
        offsets = of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup(group_id="g", topics=[named] * 2)] * 500)
        group = None
        while group is None or group.error_code is not Error.NONE:  # until its coordinator has loaded
            (group,) = (await attack.ask(BROKER, Api.OFFSET_FETCH, offsets, 8)).groups
        assert [[one.partition_index for one in topic.partitions] for topic in group.topics] == [[0, 1]]

        times = [lo.ListOffsetsPartition(partition_index=index, timestamp=0) for index in (0, 1, 0)]
        starts = lo.ListOffsetsRequest(topics=[lo.ListOffsetsTopic(name="a", partitions=times)])
        answer = await attack.ask(BROKER, Api.LIST_OFFSETS, starts, 7)
        found = [(one.partition_index, one.error_code) for one in answer.topics[0].partitions]
        unknown, twice = Error.UNKNOWN_TOPIC_OR_PARTITION, Error.INVALID_REQUEST
        assert found == [(0, twice), (1, unknown), (0, twice)]

        deletions = [dr.DeleteRecordsPartition(partition_index=index, offset=0) for index in (0, 1, 0)]
        body = dr.DeleteRecordsRequest(topics=[dr.DeleteRecordsTopic(name="a", partitions=deletions)], timeout_ms=1)
        answer = await attack.ask(BROKER, Api.DELETE_RECORDS, body, 2)
        assert [one.partition_index for one in answer.topics[0].partitions] == [0, 1]

    under_attack(tmp_path, story, offsets__topic__replication__factor=1, offsets__topic__num__partitions=1)


def test_batches_that_unfold_to_megabytes_hold_up_nobody_else_and_nothing_overtakes_them(tmp_path: Path) -> None:
    """Each has a kilobyte; 300 in one request of 315 kB were 16 s without a turn for others."""
    count = 60
    bomb = sealed(
        packed(bytes(30 << 20), Codec.ZSTD),
        count=1,
        last_offset_delta=0,
        timestamps_ms=(0, 0),
        base_offset=0,
        leader_epoch=-1,
        producer=(-1, -1, -1),
        attributes=Codec.ZSTD,
    )

    async def story(attack: Attack) -> None:
        client = Client(ClientWorld(), [Endpoint("127.0.0.1", attack.cluster.ports[BROKER])])
        await client.create_topic("t", partitions=1, replication_factor=1)
        while (await client.list_offsets("t", 0, -1)).error_code is not Error.NONE:
            pass
        now_ms = attack.broker.plane.replicas.world.clock.wall_ms()
        good = build([NewRecord(key=None, value=b"v")], timestamp_ms=now_ms)
        handlers = attack.broker.plane.handlers
        handled = handlers.by_api[Api.PRODUCE]
        was_answered: list[bool] = []

        def watched(request: Any) -> None:
            handled.handle(request)
            was_answered.append(request.is_answered)

        handlers.on(handled.served, watched)
        reader, writer = await asyncio.open_connection("127.0.0.1", attack.cluster.ports[BROKER])
        for number, batches in enumerate(([bomb] * count + [good], [good])):
            data = [pr.PartitionProduceData(index=0, records=batch) for batch in batches]
            body = pr.ProduceRequest(
                acks=1, timeout_ms=1000, topic_data=[pr.TopicProduceData(name="t", partition_data=data)]
            )
            writer.write(encode_request(Api.PRODUCE, 9, number, "x", body))
        answers = []
        async with asyncio.timeout(60):
            for _ in range(2):
                length = int.from_bytes(await reader.readexactly(4), "big")
                _, answer = decode_response(exchange_of(Api.PRODUCE), 9, await reader.readexactly(length))
                answers.append([(one.error_code, one.base_offset) for one in answer.responses[0].partition_responses])
        handlers.on(handled.served, handled.handle)
        writer.transport.abort()

        assert was_answered == [False, True]  # the others' turn comes before the rest is looked at
        assert answers == [[(Error.INVALID_RECORD, -1)] * count + [(Error.NONE, 0)], [(Error.NONE, 1)]]
        await client.close()
        await attack.still_serves()

    under_attack(tmp_path, story)


def test_look_ups_that_take_long_hold_up_nobody_else(tmp_path: Path) -> None:
    """Each by a time that only the last of very many records has: all partitions in one go were seconds without a turn for others."""
    count = 10

    async def story(attack: Attack) -> None:
        client = Client(ClientWorld(), [Endpoint("127.0.0.1", attack.cluster.ports[BROKER])])
        await client.create_topic("slow", partitions=count, replication_factor=1)
        now_ms = attack.broker.plane.replicas.world.clock.wall_ms()
        entries = [NewRecord(key=None, value=b"", timestamp_ms=now_ms + (place == 59_999)) for place in range(60_000)]
        batch = build(entries, timestamp_ms=now_ms, attributes=Codec.ZSTD)
        for index in range(count):
            answer = None
            while answer is None or answer.error_code is not Error.NONE:
                answer = await client.produce("slow", index, batch, acks=1)
        handlers = attack.broker.plane.handlers
        handled = handlers.by_api[Api.LIST_OFFSETS]
        was_answered: list[bool] = []

        def watched(request: Any) -> None:
            handled.handle(request)
            was_answered.append(request.is_answered)

        handlers.on(handled.served, watched)
        wanted = [lo.ListOffsetsPartition(partition_index=index, timestamp=now_ms + 1) for index in range(count)]
        body = lo.ListOffsetsRequest(topics=[lo.ListOffsetsTopic(name="slow", partitions=wanted)])
        answer = await attack.ask(BROKER, Api.LIST_OFFSETS, body, 7)
        handlers.on(handled.served, handled.handle)

        assert was_answered == [False]  # the others' turn comes before the rest is looked at
        assert [(one.partition_index, one.offset) for one in answer.topics[0].partitions] == [
            (index, 59_999) for index in range(count)
        ]
        await client.close()
        await attack.still_serves()

    under_attack(tmp_path, story)


def creation() -> ct.CreateTopicsRequest:
    """A request for the controller, of somebody who has all the time of the world."""
    return ct.CreateTopicsRequest(topics=[ct.CreatableTopic(name="t")], timeout_ms=2**31 - 1)


def forwarded() -> int:
    """Return how many requests wait for a controller."""
    return sum("Forwarding" in repr(task.get_coro()) for task in asyncio.all_tasks())


def test_who_goes_away_leaves_no_request_for_a_controller_that_is_not_there(tmp_path: Path) -> None:
    """It was sent again ten times a second until his time was over: for 24 days."""

    async def attack(attack: Attack) -> None:
        await attack.cluster.stop(CONTROLLER)
        writers = []
        for _ in range(20):
            _, writer = await asyncio.open_connection("127.0.0.1", attack.cluster.ports[BROKER])
            writer.write(encode_request(Api.CREATE_TOPICS, 7, 1, "x", creation()))
            writers.append(writer)
        await until(lambda: forwarded() == 20)
        await asyncio.sleep(0.5)
        assert forwarded() == 20  # whoever waits is not given up

        for writer in writers:
            writer.transport.abort()

        await until(lambda: forwarded() == 0)
        await attack.cluster.start(CONTROLLER)  # whom the broker asks to be let go

    under_attack(tmp_path, attack)


def test_nobody_waits_for_ever_for_a_controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "RETRIED_MS_MAX", 1000)

    async def attack(attack: Attack) -> None:
        await attack.cluster.stop(CONTROLLER)

        answer = await attack.ask(BROKER, Api.CREATE_TOPICS, creation(), 7)

        assert [topic.error_code for topic in answer.topics] == [Error.REQUEST_TIMED_OUT]
        await attack.cluster.start(CONTROLLER)

    under_attack(tmp_path, attack)
