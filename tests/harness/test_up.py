"""`tribunal up`: a cluster that stands until it is asked to stop, and goes on with its data."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tribunal.clusters.api import ClusterError
from tribunal.harness.cli.up import until_stopped
from tribunal.harness.standing import BadCluster, StandingCluster

PORT = 12_480  # its controllers are 10,000 above, below the ports that the system gives to clients


def a_cluster(folder: Path, port: int = PORT, **settings: str) -> StandingCluster:
    return StandingCluster(folder, nodes=2, port=port, settings=settings, on_exit=lambda reason: None)


def write(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 1)])["t"].result(30)
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    producer.produce("t", b"kept", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert errors == [None]


def read(bootstrap: str) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition("t", 0, 0)])
    try:
        message = consumer.poll(30)
        return None if message is None else message.value()
    finally:
        consumer.close()


@pytest.mark.e2e
def test_a_cluster_keeps_its_data_from_one_start_to_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"

    async def once(work: Callable[[str], object]) -> object:
        cluster = a_cluster(folder)
        await cluster.start()
        try:
            with pytest.raises(ClusterError, match=r"node 1: .*data is in use by another process"):
                await a_cluster(folder, PORT + 20).start()
            return await asyncio.to_thread(work, cluster.bootstrap)
        finally:
            assert await cluster.stop() == []

    asyncio.run(once(write))
    assert asyncio.run(once(read)) == b"kept"


def test_another_number_of_nodes_than_lie_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "node-1").mkdir()
    (tmp_path / "node-1/node.toml").touch()
    with pytest.raises(BadCluster, match=r"a cluster of 1 nodes lies there \(--nodes 1\)"):
        asyncio.run(a_cluster(tmp_path).start())


def test_an_id_of_the_cluster_that_is_no_text_is_refused_by_the_name_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "cluster.id").write_bytes(b"\xff\xfe")
    with pytest.raises(
        ClusterError, match=r"cluster\.id: not a cluster's id, but bytes; .*node-1/data/meta\.properties"
    ):
        asyncio.run(a_cluster(tmp_path).start())
    assert not (tmp_path / "node-1").exists()


def test_a_setting_that_replog_does_not_know_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(BadCluster, match=r"unknown setting 'min\.insync'; did you mean"):
        asyncio.run(a_cluster(tmp_path / "cluster", **{"min.insync": "2"}).start())
    assert not (tmp_path / "cluster/node-1/data").exists()


def test_a_start_that_was_refused_leaves_no_cluster_that_the_next_one_would_have_to_match(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"

    with pytest.raises(BadCluster, match="unknown setting"):
        asyncio.run(a_cluster(folder, **{"min.insync": "2"}).start())

    with pytest.raises(BadCluster, match="unknown setting"):  # not: a cluster of 1 nodes lies there
        asyncio.run(a_cluster(folder, **{"min.insync": "2"}).start())


class SlowToStop:
    """Stands until it is asked to stop, and has to kill a node then."""

    async def start(self) -> None:
        """Begin at once."""

    async def ended(self) -> None:
        await asyncio.Event().wait()

    async def stop(self) -> list[int]:
        os.kill(os.getpid(), signal.SIGINT)  # somebody is impatient
        await asyncio.sleep(0.1)
        return [2]


def test_nodes_that_had_to_be_killed_are_reported_also_to_who_asks_twice() -> None:
    late = asyncio.run(
        until_stopped(cast("StandingCluster", SlowToStop()), lambda: os.kill(os.getpid(), signal.SIGINT))
    )

    assert late == [2]
