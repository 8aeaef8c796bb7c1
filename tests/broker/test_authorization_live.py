"""A running broker asks the one hook for every request of clients and brokers (SPEC D17), in both modes."""

import asyncio
from pathlib import Path
from typing import Any

from replog.client.connection import Connection
from replog.config import Endpoint
from replog.controller.authorization import CLUSTER, Operation, Resource, topic
from replog.errors import Error
from replog.log.batch import NewRecord, build
from replog.node.broker import Broker
from replog.node.net.broker_links import OwnRequest
from replog.types import DEBUGGING_CONSUMER
from replog.wire.apis import BROKER_APIS, FEATURE_OF, ZOOKEEPER_BROKER_APIS, Api, api_of, known_versions
from replog.wire.error_codes import errors_in
from replog.wire.exchange import exchange_of
from replog.wire.messages import create_topics as ct
from replog.wire.messages import fetch as fe
from replog.wire.messages import list_groups as ls
from replog.wire.messages import metadata as md
from replog.wire.messages import produce as pr
from tests.broker.loopback import running
from tests.controller.served_apis import ON_BROKERS
from tests.controller.test_authorization import OF_CLUSTER, OF_TOPIC, OTHERS, TABLE, THEIRS, nobody
from tests.quorum.quorum_nodes import until
from tests.simulated.cluster_program import Trial
from tribunal.clusters.spec import ClusterSpec

# Versions in which a request has what the table's body says; otherwise the newest is sent.
VERSIONS = {
    "produce": 12,
    "produce in a transaction": 11,
    "offset fetch of one group": 7,
    "find a group's coordinator": 3,
    "find the coordinator of the group without a name": 3,
    "delete topics": 5,
    "add partitions": 3,
}
UNASKED = {Api.API_VERSIONS} | {api for api, served in ON_BROKERS.items() if served.unasked}
BY_ID = "produce by topic id"  # of a topic that this cluster has not: nothing to protect
A_REPLICA = fe.ReplicaState(replica_id=2, replica_epoch=5)


def batch() -> bytes:
    return bytes(build([NewRecord(key=None, value=b"v")], timestamp_ms=1))


def produced(*names: str, acks: int = 1) -> pr.ProduceRequest:
    data = [pr.PartitionProduceData(index=0, records=batch())]
    topics = [pr.TopicProduceData(name=name, partition_data=data) for name in names]
    return pr.ProduceRequest(topic_data=topics, acks=acks, timeout_ms=5000)


def wanted(*names: str, **fields: Any) -> fe.FetchRequest:
    return fe.FetchRequest(
        topics=[
            fe.FetchTopic(
                topic=name, partitions=[fe.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
            )
            for name in names
        ],
        max_bytes=1 << 20,
        **fields,
    )


def visible(answer: fe.FetchResponse) -> dict[str, tuple[Error, bool]]:
    return {one.topic: (one.partitions[0].error_code, bool(one.partitions[0].records)) for one in answer.responses}


class Stage:
    """A broker with two topics, and a connection to it."""

    def __init__(self, broker: Broker, connection: Connection) -> None:
        self.broker = broker
        self.connection = connection

    async def ask(self, body: Any, version: int | None = None) -> Any:
        return await self.connection.send(exchange_of(api_of(body)), body, version=version, timeout_ms=10_000)


def staged(folder: Path, play: Any) -> None:
    async def main() -> None:
        async with running(folder, controllers=1, brokers=1, default__replication__factor=1) as cluster:
            broker = cluster.nodes[1]
            assert isinstance(broker, Broker)
            connection = Connection(cluster.worlds[1], Endpoint("127.0.0.1", cluster.ports[1]), "test")
            await connection.open()
            stage = Stage(broker, connection)
            topics = [ct.CreatableTopic(name=n, num_partitions=1, replication_factor=1) for n in (THEIRS, OTHERS)]
            await stage.ask(ct.CreateTopicsRequest(topics=topics, timeout_ms=10_000))
            await until(lambda: len(list(broker.plane.replicas)) == len(topics))
            try:
                await play(stage)
            finally:
                connection.close()

    asyncio.run(main())


def test_a_broker_refuses_everything_that_the_hook_refuses(tmp_path: Path) -> None:
    offered = BROKER_APIS.keys() - FEATURE_OF.keys() - UNASKED
    asked = {name: row for name, row in TABLE.items() if api_of(row.body) in offered and name != BY_ID}
    errors: dict[str, list[Error]] = {}

    async def play(stage: Stage) -> None:
        stage.broker.plane.authorizer.use(nobody)
        for name, row in asked.items():
            answer = await stage.ask(row.body, VERSIONS.get(name))
            errors[name] = [error for error in errors_in(answer) if error]

    staged(tmp_path, play)

    assert errors == {name: row.errors[:1] for name, row in asked.items()}
    silent = offered - {api_of(row.body) for row in asked.values()}
    assert silent == {Api.LIST_GROUPS, Api.LIST_TRANSACTIONS}  # they list less


def test_what_is_allowed_is_done_and_the_rest_refused(tmp_path: Path) -> None:
    async def play(stage: Stage) -> None:
        await stage.ask(produced(THEIRS, OTHERS), 9)
        stage.broker.plane.authorizer.use(lambda _, operation, resource: resource == topic(THEIRS))

        written = await stage.ask(produced(THEIRS, OTHERS), 9)
        fetched = await stage.ask(wanted(THEIRS, OTHERS), 12)
        replica = await stage.ask(wanted(THEIRS, replica_state=A_REPLICA, replica_id=2), 12)
        metadata = await stage.ask(md.MetadataRequest(topics=None))
        groups = await stage.ask(ls.ListGroupsRequest())

        offsets = {one.name: one.partition_responses[0] for one in written.responses}
        assert (offsets[THEIRS].base_offset, offsets[OTHERS].error_code) == (1, OF_TOPIC)
        assert visible(fetched) == {THEIRS: (Error.NONE, True), OTHERS: (OF_TOPIC, False)}
        assert visible(replica) == {THEIRS: (OF_TOPIC, False)}
        assert [one.name for one in metadata.topics] == [THEIRS]
        assert groups.groups == []

    staged(tmp_path, play)


def test_a_debugging_consumer_reads_what_it_may_or_acts_for_the_cluster(tmp_path: Path) -> None:
    """Kafka's asks as any reader; a broker that looks for what its disk lost has no other permission than a replica's."""
    seen: dict[str, dict[str, tuple[Error, bool]]] = {}

    async def play(stage: Stage) -> None:
        await stage.ask(produced(THEIRS), 9)
        permitted = {"reader": topic(THEIRS), "broker": CLUSTER, "stranger": topic(OTHERS)}
        for who, permission in permitted.items():
            stage.broker.plane.authorizer.use(lambda _, operation, resource, may=permission: resource == may)
            seen[who] = visible(await stage.ask(wanted(THEIRS, replica_id=DEBUGGING_CONSUMER), 12))

    staged(tmp_path, play)

    assert seen["reader"] == seen["broker"] == {THEIRS: (Error.NONE, True)}
    assert seen["stranger"] == {THEIRS: (OF_TOPIC, False)}


def test_a_fetch_session_does_not_outlive_what_is_allowed(tmp_path: Path) -> None:
    async def play(stage: Stage) -> None:
        await stage.ask(produced(THEIRS, OTHERS), 9)
        first = await stage.ask(wanted(THEIRS, OTHERS, session_epoch=0), 12)
        stage.broker.plane.authorizer.use(lambda _, operation, resource: resource == topic(THEIRS))
        await stage.ask(produced(THEIRS), 9)

        session = {"session_id": first.session_id, "session_epoch": 1, "max_wait_ms": 5000, "min_bytes": 1}
        again = await stage.ask(wanted(**session), 12)

        assert visible(again)[OTHERS] == (OF_TOPIC, False)
        assert visible(again)[THEIRS][0] is Error.NONE

    staged(tmp_path, play)


def test_a_refusal_that_has_no_answer_ends_the_connection(tmp_path: Path) -> None:
    """acks=0 has no answer: what is allowed is appended, then the connection goes."""

    async def play(stage: Stage) -> None:
        stage.broker.plane.authorizer.use(lambda _, operation, resource: resource == topic(THEIRS))

        stage.connection.send_unanswered(produced(THEIRS, OTHERS, acks=0), version=9)
        await until(lambda: not stage.connection.is_open)

        ends = {replica.name.topic: replica.partition.log.log_end_offset for replica in stage.broker.plane.replicas}
        assert ends == {THEIRS: 1, OTHERS: 0}

    staged(tmp_path, play)


def test_in_zookeeper_mode_too() -> None:
    """Control requests and those for the controller are asked for like any other."""
    errors: dict[str, list[Error]] = {}
    asked: list[tuple[Operation, Resource]] = []

    def refuse(_: str, operation: Operation, resource: Resource) -> bool:
        asked.append((operation, resource))
        return False

    def question(name: str) -> OwnRequest:
        body = TABLE[name].body
        api = api_of(body)
        version = VERSIONS.get(name, known_versions(api).last)
        return OwnRequest(api, version, body, "somebody")

    async def scenario(cluster: Any) -> None:
        for node in (1, 2):  # one of them at least is not the controller
            shell = cluster.nodes[node].shell
            shell.plane.authorizer.use(refuse)
            for name, row in TABLE.items():
                if name == BY_ID or api_of(row.body) not in ZOOKEEPER_BROKER_APIS.keys() - UNASKED:
                    continue
                request = question(name)
                shell.plane.server.handler(request)
                async with asyncio.timeout(5):
                    answer = await request.answer
                errors[name] = [error for error in errors_in(answer) if error]
            shell.plane.authorizer.use(lambda *_: True)

    Trial("authorization", ClusterSpec(mode="zookeeper", controllers=1)).run(scenario)

    assert errors == {name: TABLE[name].errors[:1] for name in errors}
    assert {
        "leader_and_isr",
        "stop_replica",
        "update_metadata",
        "controlled_shutdown",
        "alter_partition",
    } <= errors.keys()
    assert errors["leader_and_isr"] == [OF_CLUSTER]
    assert (Operation.CLUSTER_ACTION, CLUSTER) in asked
