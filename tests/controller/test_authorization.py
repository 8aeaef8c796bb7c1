"""One hook decides who may do what, for every request that administers the cluster (SPEC D17, KIP-966 "ACL")."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from replog.client.connection import Connection
from replog.config import NodeConfig
from replog.controller.authorization import ANONYMOUS, CLUSTER, PARTS, WHOLE, Operation, Resource, decide, topic
from replog.errors import Error
from replog.node.controller import ControllerNode
from replog.node.forwarding import errors_in
from replog.node.gate import refusal
from replog.node.world import RealWorld
from replog.wire.apis import BROKER_APIS, CONTROLLER_APIS, Api, request_type
from replog.wire.messages import alter_configs as ac
from replog.wire.messages import create_partitions as cp
from replog.wire.messages import create_topics as ct
from replog.wire.messages import delete_topics as dt
from replog.wire.messages import describe_configs as dc
from replog.wire.messages import elect_leaders as el
from replog.wire.messages import incremental_alter_configs as iac
from tests.quorum.quorum_nodes import CLUSTER as CLUSTER_ID
from tests.quorum.quorum_nodes import free_ports, until

THEIRS, OTHERS = "theirs", "others"
THEIRS_ID, OTHERS_ID = UUID(int=1001), UUID(int=1002)
NAMES = {THEIRS_ID: THEIRS, OTHERS_ID: OTHERS}

# What records and groups are read, written and kept by, what says who is there, and what the handlers ask the hook about.
NOT_HERE = {
    *(Api.PRODUCE, Api.LIST_OFFSETS, Api.OFFSET_COMMIT, Api.OFFSET_FETCH, Api.FIND_COORDINATOR, Api.JOIN_GROUP),
    *(Api.HEARTBEAT, Api.LEAVE_GROUP, Api.SYNC_GROUP, Api.DESCRIBE_GROUPS, Api.LIST_GROUPS, Api.DELETE_GROUPS),
    *(Api.DELETE_RECORDS, Api.INIT_PRODUCER_ID, Api.OFFSET_FOR_LEADER_EPOCH, Api.ADD_PARTITIONS_TO_TXN),
    *(Api.ADD_OFFSETS_TO_TXN, Api.END_TXN, Api.WRITE_TXN_MARKERS, Api.TXN_OFFSET_COMMIT, Api.OFFSET_DELETE),
    *(Api.DESCRIBE_PRODUCERS, Api.DESCRIBE_TRANSACTIONS, Api.LIST_TRANSACTIONS),
    *(Api.API_VERSIONS, Api.DESCRIBE_CLUSTER, Api.METADATA, Api.DESCRIBE_TOPIC_PARTITIONS, Api.FETCH),
}


def nobody(principal: str, operation: Operation, resource: Resource) -> bool:
    assert principal == ANONYMOUS
    return False


def only_theirs(_: str, operation: Operation, resource: Resource) -> bool:
    return resource == topic(THEIRS)


def decided(api: Api, body: msgspec.Struct, may: Any = only_theirs) -> tuple[Any, list[tuple[Any, Error]]]:
    return decide(may, ANONYMOUS, api, body, NAMES.get)


@pytest.mark.parametrize("api", [*BROKER_APIS, *CONTROLLER_APIS], ids=lambda api: api.name)
def test_no_request_that_administers_is_forgotten(api: Api) -> None:
    known = (api in WHOLE, api in PARTS, api in NOT_HERE)

    assert known.count(True) == 1


@pytest.mark.parametrize(
    ("api", "operation"),
    [
        (Api.ALTER_PARTITION, Operation.CLUSTER_ACTION),
        (Api.BROKER_REGISTRATION, Operation.CLUSTER_ACTION),
        (Api.VOTE, Operation.CLUSTER_ACTION),
        (Api.GET_REPLICA_LOG_INFO, Operation.CLUSTER_ACTION),
        (Api.ELECT_LEADERS, Operation.ALTER),
        (Api.ALTER_PARTITION_REASSIGNMENTS, Operation.ALTER),
        (Api.REMOVE_RAFT_VOTER, Operation.ALTER),
        (Api.UPDATE_FEATURES, Operation.ALTER),
        (Api.DESCRIBE_QUORUM, Operation.DESCRIBE),
        (Api.LIST_PARTITION_REASSIGNMENTS, Operation.DESCRIBE),
    ],
    ids=lambda value: value.name,
)
def test_the_hook_is_asked_in_kafkas_words(api: Api, operation: Operation) -> None:
    asked = []

    decided(api, request_type(api)(), lambda *question: asked.append(question) or True)

    assert asked == [(ANONYMOUS, operation, CLUSTER)]


def resources(of: Any, resource: Any) -> Any:
    return of(resources=[resource(resource_type=2, resource_name=name) for name in (THEIRS, OTHERS)])


@pytest.mark.parametrize(
    ("api", "body"),
    [
        (Api.CREATE_TOPICS, ct.CreateTopicsRequest(topics=[ct.CreatableTopic(name=n) for n in (THEIRS, OTHERS)])),
        (Api.DELETE_TOPICS, dt.DeleteTopicsRequest(topic_names=[THEIRS, OTHERS])),
        (
            Api.DELETE_TOPICS,
            dt.DeleteTopicsRequest(topics=[dt.DeleteTopicState(name=None, topic_id=i) for i in (THEIRS_ID, OTHERS_ID)]),
        ),
        (
            Api.CREATE_PARTITIONS,
            cp.CreatePartitionsRequest(topics=[cp.CreatePartitionsTopic(name=n) for n in (THEIRS, OTHERS)]),
        ),
        (Api.INCREMENTAL_ALTER_CONFIGS, resources(iac.IncrementalAlterConfigsRequest, iac.AlterConfigsResource)),
        (Api.ALTER_CONFIGS, resources(ac.AlterConfigsRequest, ac.AlterConfigsResource)),
        (Api.DESCRIBE_CONFIGS, resources(dc.DescribeConfigsRequest, dc.DescribeConfigsResource)),
    ],
    ids=["create", "delete", "delete by id", "grow", "incremental", "alter configs", "describe configs"],
)
def test_topics_are_decided_one_by_one(api: Api, body: msgspec.Struct) -> None:
    left, refused = decided(api, body)
    nothing, all_refused = decided(api, body, nobody)

    assert len(refused) == 1
    assert refused[0][1] is Error.TOPIC_AUTHORIZATION_FAILED
    for field in PARTS[api].asked:
        whole = getattr(body, field)
        assert [*getattr(left, field), *getattr(refused[0][0], field)] == whole
        assert getattr(left, field) == whole[:1]
    assert nothing is None
    assert all_refused == [(body, Error.TOPIC_AUTHORIZATION_FAILED)]


def test_who_may_create_in_the_cluster_may_create_every_topic() -> None:
    body = ct.CreateTopicsRequest(topics=[ct.CreatableTopic(name=OTHERS)])

    assert decided(Api.CREATE_TOPICS, body, lambda *asked: asked[2] == CLUSTER) == (body, [])


def test_a_brokers_configs_are_the_clusters_matter() -> None:
    broker = iac.AlterConfigsResource(resource_type=4, resource_name="1")
    mine = iac.AlterConfigsResource(resource_type=2, resource_name=THEIRS)

    left, refused = decided(Api.INCREMENTAL_ALTER_CONFIGS, iac.IncrementalAlterConfigsRequest(resources=[broker, mine]))

    assert left.resources == [mine]
    assert [(body.resources, error) for body, error in refused] == [([broker], Error.CLUSTER_AUTHORIZATION_FAILED)]


def test_a_topic_that_does_not_exist_needs_no_protection() -> None:
    gone = dt.DeleteTopicsRequest(topics=[dt.DeleteTopicState(name=None, topic_id=UUID(int=9))])

    assert decided(Api.DELETE_TOPICS, gone) == (gone, [])


@pytest.mark.parametrize("api", sorted(WHOLE), ids=lambda api: Api(api).name)
def test_a_refusal_says_so_in_the_words_of_its_api(api: Api) -> None:
    assert Error.CLUSTER_AUTHORIZATION_FAILED in errors_in(
        refusal(api, request_type(api)(), Error.CLUSTER_AUTHORIZATION_FAILED)
    )


# --- a whole controller ------------------------------------------------------------------------------------


def on_a_controller(folder: Path, may: Any, talk: Callable[[Connection], Awaitable[None]]) -> None:
    async def main() -> None:
        config = NodeConfig(
            {
                "process.roles": "controller",
                "node.id": 101,
                "cluster.id": CLUSTER_ID,
                "listeners": f"127.0.0.1:{free_ports(1)[0]}",
                "controller.quorum.voters": "101@127.0.0.1:9",
                "log.dirs": str(folder),
                "controller.quorum.election.timeout.ms": 50,
            }
        )
        world = RealWorld(config, level="error")
        node = ControllerNode(world, config, may=may)
        connection = Connection(world, config.listener, "test")
        try:
            await node.start()
            await connection.open()
            await until(lambda: node.controller.is_active and bool(node.controller.image.features))
            await talk(connection)
        finally:
            connection.close()
            await node.stop()
            world.close()
            await asyncio.sleep(0.01)  # transports close in the loop's next turns

    asyncio.run(main())


def test_a_controller_refuses_what_the_hook_forbids_and_decides_nothing(tmp_path: Path) -> None:
    answers: dict[Api, list[Error]] = {}

    async def talk(connection: Connection) -> None:
        for api in sorted(WHOLE.keys() & CONTROLLER_APIS.keys()):
            answers[api] = list(errors_in(await connection.send(api, request_type(api)(), timeout_ms=5000)))

    on_a_controller(tmp_path, nobody, talk)

    assert len(answers) > 15
    assert all(errors == [Error.CLUSTER_AUTHORIZATION_FAILED] for errors in answers.values()), answers


def test_a_controller_carries_out_what_is_left(tmp_path: Path) -> None:
    async def talk(connection: Connection) -> None:
        body = iac.IncrementalAlterConfigsRequest(
            resources=[iac.AlterConfigsResource(resource_type=2, resource_name=name) for name in (OTHERS, THEIRS)]
        )
        answer = await connection.send(Api.INCREMENTAL_ALTER_CONFIGS, body, timeout_ms=5000)
        election = await connection.send(Api.ELECT_LEADERS, el.ElectLeadersRequest(), timeout_ms=5000)

        assert {told.resource_name: told.error_code for told in answer.responses} == {
            THEIRS: Error.UNKNOWN_TOPIC_OR_PARTITION,
            OTHERS: Error.TOPIC_AUTHORIZATION_FAILED,
        }
        assert election.error_code is Error.CLUSTER_AUTHORIZATION_FAILED

    on_a_controller(tmp_path, only_theirs, talk)
