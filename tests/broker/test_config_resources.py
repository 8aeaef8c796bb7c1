"""What may have configs (ListConfigResources, KIP-1142), and directories with all that the newest version says of them."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from replog.client.connection import Connection
from replog.config import Endpoint
from replog.errors import Error
from replog.node.broker import Broker
from replog.wire.apis import Api
from replog.wire.exchange import exchange_of
from replog.wire.messages import consumer_group_heartbeat as cgh
from replog.wire.messages import create_topics as ct
from replog.wire.messages import describe_configs as dc
from replog.wire.messages import describe_log_dirs as dl
from replog.wire.messages import find_coordinator as fc
from replog.wire.messages import incremental_alter_configs as iac
from replog.wire.messages import list_config_resources as lcr
from tests.broker.loopback import running
from tests.quorum.quorum_nodes import until

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


def answered(folder: Path, *questions: tuple[Api, int, Any]) -> list[Any]:
    """Ask a broker that has the topics a and b."""

    async def main() -> list[Any]:
        async with running(folder, controllers=1, brokers=1, default__replication__factor=1) as cluster:
            connection = Connection(cluster.worlds[1], Endpoint("127.0.0.1", cluster.ports[1]), "test")
            await connection.open()
            topics = [ct.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in "ba"]
            await connection.send(ct.EXCHANGE, ct.CreateTopicsRequest(topics=topics), timeout_ms=10_000)
            broker = cluster.nodes[1]
            assert isinstance(broker, Broker)
            await until(lambda: len(list(broker.plane.replicas)) == len(topics))
            answers = [
                await connection.send(exchange_of(api), body, version=version, timeout_ms=10_000)
                for api, version, body in questions
            ]
            connection.close()
            return answers

    return asyncio.run(main())


def test_resources_are_listed_by_the_kinds_asked_for(tmp_path: Path) -> None:
    kinds: list[list[int]] = [[], [TOPIC], [BROKER, BROKER, BROKER_LOGGER], [CLIENT_METRICS, GROUP], [TOPIC, 3]]

    answers = answered(
        tmp_path,
        *((Api.LIST_CONFIG_RESOURCES, 1, lcr.ListConfigResourcesRequest(resource_types=wanted)) for wanted in kinds),
        (Api.LIST_CONFIG_RESOURCES, 0, lcr.ListConfigResourcesRequest()),
    )

    said = [[(one.resource_type, one.resource_name) for one in answer.config_resources] for answer in answers]
    topics, brokers = [(TOPIC, "a"), (TOPIC, "b")], [(BROKER, "1"), (BROKER_LOGGER, "1")]
    assert said == [[*topics, *brokers], topics, brokers, [], [], []]
    errors = [answer.error_code for answer in answers]
    assert errors == [*[Error.NONE] * 4, Error.UNSUPPORTED_VERSION, Error.NONE]


def test_a_group_is_given_settings_and_is_then_a_resource_whose_members_obey(tmp_path: Path) -> None:
    interval = iac.AlterableConfig(name="consumer.heartbeat.interval.ms", value="6000")
    own = iac.AlterConfigsResource(resource_type=GROUP, resource_name="g", configs=[interval])
    asked = dc.DescribeConfigsResource(
        resource_type=GROUP, resource_name="g", configuration_keys=["consumer.heartbeat.interval.ms"]
    )

    async def main() -> list[Any]:
        async with running(
            tmp_path, controllers=1, brokers=1, offsets__topic__replication__factor=1, offsets__topic__num__partitions=1
        ) as cluster:
            connection = Connection(cluster.worlds[1], Endpoint("127.0.0.1", cluster.ports[1]), "test")
            await connection.open()

            async def ask(api: Api, body: Any, version: int) -> Any:
                return await connection.send(exchange_of(api), body, version=version, timeout_ms=10_000)

            changed = await ask(Api.INCREMENTAL_ALTER_CONFIGS, iac.IncrementalAlterConfigsRequest(resources=[own]), 1)
            broker = cluster.nodes[1]
            assert isinstance(broker, Broker)
            await until(lambda: (GROUP, "g") in broker.plane.replicas.metadata.image.configs)
            listed = await ask(Api.LIST_CONFIG_RESOURCES, lcr.ListConfigResourcesRequest(resource_types=[GROUP]), 1)
            shown = await ask(Api.DESCRIBE_CONFIGS, dc.DescribeConfigsRequest(resources=[asked]), 4)
            joins = cgh.ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id=str(UUID(int=7)),
                member_epoch=0,
                rebalance_timeout_ms=10_000,
                subscribed_topic_names=["t"],
                topic_partitions=[],
            )
            beaten: list[Any] = []

            async def has_joined() -> bool:
                await ask(Api.FIND_COORDINATOR, fc.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
                beaten.append(await ask(Api.CONSUMER_GROUP_HEARTBEAT, joins, 1))
                return beaten[-1].error_code is Error.NONE

            joined = False
            while not joined:
                joined = await has_joined()
            connection.close()
            return [changed, listed, shown, beaten[-1]]

    changed, listed, shown, beaten = asyncio.run(asyncio.wait_for(main(), 60))

    assert changed.responses[0].error_code is Error.NONE
    assert [(one.resource_type, one.resource_name) for one in listed.config_resources] == [(GROUP, "g")]
    (config,) = shown.results[0].configs
    assert (config.name, config.value, config.config_source) == ("consumer.heartbeat.interval.ms", "6000", 8)
    assert beaten.heartbeat_interval_ms == 6000


@pytest.mark.parametrize("version", [4, 5])
def test_directories_are_described_in_the_newest_version_too(tmp_path: Path, version: int) -> None:
    (answer,) = answered(tmp_path, (Api.DESCRIBE_LOG_DIRS, version, dl.DescribeLogDirsRequest(topics=None)))

    (directory,) = answer.results
    assert {topic.name for topic in directory.topics} == {"a", "b"}
    assert (directory.total_bytes > 0, directory.is_cordoned) == (True, False)


def test_a_brokers_logger_is_listed_and_described(tmp_path: Path) -> None:
    asked = dc.DescribeConfigsResource(resource_type=BROKER_LOGGER, resource_name="1", configuration_keys=None)

    (answer,) = answered(tmp_path, (Api.DESCRIBE_CONFIGS, 4, dc.DescribeConfigsRequest(resources=[asked])))

    (found,) = answer.results[0].configs
    assert (found.name, found.value, found.read_only, found.config_source) == ("root", "WARN", True, 6)
