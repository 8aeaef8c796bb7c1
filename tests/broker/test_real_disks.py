"""Small, full and read-only file systems under real brokers; mounted here, so only where the user may mount."""

import asyncio
import os
import subprocess
import sys
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from replog.client.client import Client
from replog.config import Endpoint
from replog.errors import Error
from replog.wire.apis import Api
from replog.wire.exchange import exchange_of
from replog.wire.messages import describe_log_dirs as dl
from replog.wire.messages import list_offsets as lo
from tests.broker.loopback import free_ports, in_thread, running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system")


@contextmanager
def mounted(folder, *options):
    """A file system of its own on a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", folder], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"mount: {done.stderr.decode()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(bootstrap, until_offline):
    """Produce to all partitions until the disk is full and long enough after; return what was acknowledged."""
    acknowledged = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 30_000, "linger.ms": 5})

    def delivered(error, message):
        if error is None:
            acknowledged.append((message.partition(), message.offset(), message.value()))

    count = 0
    while count < 30_000 and not (until_offline() and count % 1000 == 0 and count > 12_000):
        producer.produce("t", b"%d " % count + bytes(500), partition=count % 4, on_delivery=delivered)
        producer.poll(0)
        count += 1
        if count % 1000 == 0:
            producer.flush(30)
    assert producer.flush(60) == 0
    return acknowledged


def read_all(bootstrap):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    found = {}
    for partition in range(4):
        low, high = consumer.get_watermark_offsets(TopicPartition("t", partition), 20)
        assert low == 0
        consumer.assign([TopicPartition("t", partition, 0)])
        offset = 0
        while offset < high:
            message = consumer.poll(20)
            assert message is not None
            assert message.error() is None
            found[partition, message.offset()] = message.value()
            offset = message.offset() + 1
    consumer.close()
    return found


def test_a_full_file_system_costs_leaderships_and_nothing_else(tmp_path):
    async def scenario():
        with mounted(tmp_path / "node-1" / "small", "-o", "size=4m"):
            async with running(tmp_path, controllers=1, brokers=3, min__insync__replicas=2) as cluster:
                await cluster.restart_with(1, f"{tmp_path}/node-1,{tmp_path}/node-1/small")
                admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
                await in_thread(lambda: admin.create_topics([NewTopic("t", 4, 3)])["t"].result(20))
                offline = cluster.nodes[1].plane.directories.offline

                acknowledged = await in_thread(lambda: fill(cluster.bootstrap, lambda: bool(offline)))

                assert list(offline) == [f"{tmp_path}/node-1/small"]
                assert "No space left" in offline[f"{tmp_path}/node-1/small"]
                assert len(acknowledged) > 12_000
                found = await in_thread(lambda: read_all(cluster.bootstrap))
                assert [entry for entry in acknowledged if found.get(entry[:2]) != entry[2]] == []
                said = await in_thread(lambda: described(admin))
                assert said == {1: 2, 2: 4, 3: 4}
                lost = [key.partition for key in cluster.nodes[1].plane.replicas.offline]
                directories, errors = await asked_of(cluster, 1)
                assert directories == {
                    f"{tmp_path}/node-1": Error.NONE,
                    f"{tmp_path}/node-1/small": Error.KAFKA_STORAGE_ERROR,
                }
                assert sorted(p for p, error in errors.items() if error is Error.KAFKA_STORAGE_ERROR) == sorted(lost)
                assert len(lost) == 2

    asyncio.run(scenario())


async def asked_of(cluster, node):
    """What a broker says over the wire of its directories, and of its partitions."""
    endpoint = Endpoint("127.0.0.1", cluster.ports[node])
    client = Client(cluster.worlds[node], [endpoint])
    answer = await client.ask_at(endpoint, exchange_of(Api.DESCRIBE_LOG_DIRS), dl.DescribeLogDirsRequest(topics=None))
    partitions = [lo.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(4)]
    body = lo.ListOffsetsRequest(replica_id=-1, topics=[lo.ListOffsetsTopic(name="t", partitions=partitions)])
    offsets = await client.ask_at(endpoint, exchange_of(Api.LIST_OFFSETS), body)
    await client.close()
    return (
        {result.log_dir: result.error_code for result in answer.results},
        {partition.partition_index: partition.error_code for partition in offsets.topics[0].partitions},
    )


def described(admin):
    """How many in-sync copies each broker holds."""
    topic = admin.list_topics("t", 20).topics["t"]
    counts = {1: 0, 2: 0, 3: 0}
    for partition in topic.partitions.values():
        assert partition.leader > 0
        for node in partition.isrs:
            counts[node] += 1
    return counts


@pytest.mark.parametrize("role", ["broker", "controller"])
def test_a_read_only_directory_at_start_is_reported_in_one_line(tmp_path, role):
    config = tmp_path / "node.toml"
    node = 1 if role == "broker" else 101
    (port, voter) = free_ports(2)
    own = port if role == "broker" else voter
    config.write_text(
        f'process.roles = "{role}"\nnode.id = {node}\ncluster.id = "c"\nlisteners = "127.0.0.1:{own}"\n'
        f'log.dirs = "{tmp_path}/data"\ncontroller.quorum.voters = "101@127.0.0.1:{voter}"\n'
    )
    with mounted(tmp_path / "data") as folder:
        assert replog("format", config).returncode == 0
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)

        done = replog(role, config)

    assert done.returncode == 6
    (line,) = done.stderr.splitlines()[-1:]
    assert line.startswith(f"replog {role}: ")
    assert "Read-only file system" in line
    assert "Traceback" not in done.stderr


def replog(command, config):
    return subprocess.run(
        [sys.executable, "-m", "replog", command, "--config", config],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
