"""Log directories that take no new replicas, in a whole cluster (`cordoned.log.dirs`, KIP-1066)."""

import asyncio

from replog.config import Endpoint
from replog.errors import Error
from replog.types import NodeId
from replog.types import TopicPartition as Name
from replog.wire.messages import alter_replica_log_dirs as alter
from replog.wire.messages import describe_log_dirs as dl
from replog.wire.messages import incremental_alter_configs as iac
from replog.wire.messages import update_features as uf
from tests.simulated.cluster_program import Trial
from tribunal.clusters.api import until
from tribunal.clusters.simulated.clients import REQUEST_TIMEOUT_MS
from tribunal.clusters.simulated.cluster import PORT
from tribunal.clusters.spec import ClusterSpec

PATHS = ("/data/a", "/data/b")
LOG_DIRS = {"log.dirs": ",".join(PATHS)}


async def ask(cluster, node, exchange, body):
    client = cluster.clients._client("hand", REQUEST_TIMEOUT_MS)
    answer = await client.ask_at(Endpoint(cluster.machine(node).host.address, PORT), exchange, body)
    await client.close()
    return answer


async def raise_level(cluster):
    key = uf.FeatureUpdateKey(feature="metadata.version", max_version_level=30, upgrade_type=1)
    answer = await ask(cluster, 1, uf.EXCHANGE, uf.UpdateFeaturesRequest(feature_updates=[key], timeout_ms=5000))
    assert answer.error_code is Error.NONE


async def cordon(cluster, node, value):
    config = iac.AlterableConfig(name="cordoned.log.dirs", config_operation=0, value=value)
    resource = iac.AlterConfigsResource(resource_type=4, resource_name=str(node), configs=[config])
    answer = await ask(cluster, node, iac.EXCHANGE, iac.IncrementalAlterConfigsRequest(resources=[resource]))
    assert answer.responses[0].error_code is Error.NONE


async def described(cluster, node):
    answer = await ask(cluster, node, dl.EXCHANGE, dl.DescribeLogDirsRequest(topics=None))
    return [result.log_dir for result in answer.results if result.is_cordoned]


async def are_cordoned(cluster, node, paths):
    """Wait until the broker and the controllers know of it."""
    shell = cluster.nodes[node].shell

    def known():
        ids = {shell.plane.directories.ids[path] for path in paths}
        return set(shell.plane.metadata.image.brokers[NodeId(node)].cordoned_log_dirs) == ids

    await until(known, timeout_ms=10_000, what=f"{paths} cordoned", cluster=cluster)
    assert await described(cluster, node) == list(paths)


async def created(cluster, topic, factor):
    await cluster.clients.admin("maker").create_topic(topic, partitions=4, replication_factor=factor, timeout_ms=20_000)


def home(cluster, node, topic):
    logs = cluster.nodes[node].shell.plane.directories.logs
    return {stored.directory for name, stored in logs.items() if name.topic == topic}


def test_a_cordoned_directory_takes_no_new_replica_until_it_is_free_again():
    async def scenario(cluster):
        await raise_level(cluster)
        before = home(cluster, 1, "produce-consume")
        await cordon(cluster, 1, "/data/a")
        await are_cordoned(cluster, 1, ["/data/a"])

        await created(cluster, "later", 3)
        await until(
            lambda: len(home(cluster, 1, "later")) > 0, timeout_ms=10_000, what="later is here", cluster=cluster
        )
        await asyncio.sleep(2)
        assert home(cluster, 1, "later") == {"/data/b"}
        assert home(cluster, 1, "produce-consume") == before  # what it holds stays

        topics = [alter.AlterReplicaLogDirTopic(name="later", partitions=[0])]
        body = alter.AlterReplicaLogDirsRequest(dirs=[alter.AlterReplicaLogDir(path="/data/a", topics=topics)])
        (result,) = (await ask(cluster, 1, alter.EXCHANGE, body)).results
        assert result.partitions[0].error_code is Error.INVALID_REPLICA_ASSIGNMENT

        await cordon(cluster, 1, "")
        await are_cordoned(cluster, 1, [])
        (result,) = (await ask(cluster, 1, alter.EXCHANGE, body)).results
        assert result.partitions[0].error_code is Error.NONE

    assert Trial(3, ClusterSpec(min_insync_replicas=2, settings=LOG_DIRS)).run(scenario).lost() == []


def test_a_broker_whose_directories_are_all_cordoned_gets_nothing_also_after_a_restart():
    async def scenario(cluster):
        await raise_level(cluster)
        await cordon(cluster, 1, "*")
        await are_cordoned(cluster, 1, list(PATHS))
        await created(cluster, "without", 2)
        await cluster.kill(1)
        await cluster.start(1)
        await are_cordoned(cluster, 1, list(PATHS))
        await created(cluster, "still-without", 2)
        await asyncio.sleep(2)

        assert home(cluster, 1, "without") == home(cluster, 1, "still-without") == set()
        assert cluster.nodes[1].shell.plane.directories.find(Name("without", 0)) is None

    assert Trial(4, ClusterSpec(min_insync_replicas=2, settings=LOG_DIRS)).run(scenario).lost() == []


def test_the_file_cordons_from_level_30_on_and_what_the_broker_is_given_of_its_own_wins():
    settings = LOG_DIRS | {"cordoned.log.dirs": "/data/b"}

    async def scenario(cluster):
        assert await described(cluster, 2) == []
        await raise_level(cluster)
        await are_cordoned(cluster, 2, ["/data/b"])
        await cordon(cluster, 2, "/nowhere")  # nobody could obey it: what was cordoned still is
        await asyncio.sleep(5)
        await are_cordoned(cluster, 2, ["/data/b"])
        await cordon(cluster, 2, "/data/a")
        await are_cordoned(cluster, 2, ["/data/a"])

    assert Trial(5, ClusterSpec(min_insync_replicas=2, settings=settings)).run(scenario).lost() == []
