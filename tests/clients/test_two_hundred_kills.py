"""Two hundred times kill -9, under a load of an idempotent producer with acks=all: nothing acknowledged is lost, moved or doubled.

librdkafka writes. aiokafka reads in the end: it has none of librdkafka's code, and none of ours. Half of the killed nodes come back only when
others have taken over: who is back at once leads on with all that it had. That the check sees a loss is shown with acks=1.
"""

import asyncio
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.clients.three_brokers_one_dies import PARTITIONS, SETTINGS, create
from tribunal.clusters.kafka.side_by_side import Ours, SideBySide

pytestmark = [pytest.mark.e2e, pytest.mark.nightly, pytest.mark.timeout(3 * 3600)]
CYCLES: Final = 200
CONTROLLER: Final = 101
OF_THE_CONTROLLER: Final = 10  # one kill in so many is the controller's
AWAY_S: Final = 1.5 * float(SETTINGS["broker.session.timeout.ms"]) / 1000  # until others lead what it led
STANDSTILL_S: Final = 1.0  # followers keep their sessions and their places in the ISRs
LOSING_CYCLES: Final = 6
PAUSE_S_MAX: Final = 2.0  # between a return and the next kill: often before the ISRs are full again
PROGRESS_S: Final = 120
BETWEEN_RECORDS_S: Final = 0.003
TOPIC: Final = "kills"


class Load(threading.Thread):
    """One producer that writes numbers upwards, to each partition in turn, until it is told to stop."""

    def __init__(self, bootstrap: str, acks: str = "all") -> None:
        super().__init__(name="load")
        # By number: where a record is lost another is acknowledged at its place.
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self.failed: list[str] = []
        self._stop_now = threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": acks == "all", "acks": acks})

    def run(self) -> None:
        number = 0
        try:
            while not self._stop_now.wait(BETWEEN_RECORDS_S):
                self._producer.produce(
                    TOPIC, str(number).encode(), partition=number % PARTITIONS, on_delivery=self._delivered
                )
                self._producer.poll(0)
                number += 1
            if left := self._producer.flush(PROGRESS_S):
                self.failed.append(f"{left} records unanswered")
        except (KafkaException, BufferError) as error:  # an idempotent producer's fatal error, or nothing goes on
            self.failed.append(str(error))

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        if error is not None:
            self.failed.append(str(error))
        else:
            assert partition is not None
            assert offset is not None
            assert value is not None
            self.acknowledged[int(value)] = partition, offset

    def stop(self) -> None:
        self._stop_now.set()
        self.join()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SideBySide]:
    with SideBySide(Ours(), tmp_path, brokers=3, controllers=1, settings=SETTINGS) as cluster:
        yield cluster.up()


async def read(bootstrap: str) -> dict[tuple[int, int], int]:
    """Return all that aiokafka reads, by partition and offset."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest")
    await consumer.start()
    partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
    consumer.assign(partitions)
    ends = await consumer.end_offsets(partitions)
    found: dict[tuple[int, int], int] = {}
    async with asyncio.timeout(PROGRESS_S):
        while any([await consumer.position(partition) < ends[partition] for partition in partitions]):
            for partition, messages in (await consumer.getmany(timeout_ms=500)).items():
                found.update(((partition.partition, one.offset), int(one.value)) for one in messages)
    await consumer.stop()
    return found


def gone(load: Load, found: dict[tuple[int, int], int]) -> dict[int, tuple[int, int]]:
    """Return what was acknowledged and is not where it was."""
    return {number: place for number, place in load.acknowledged.items() if found.get(place) != number}


def test_the_same_check_sees_what_acks_1_loses(cluster: SideBySide) -> None:
    """A leader is killed while its followers stand still, and one of these leads then."""
    create(cluster, TOPIC)
    load = Load(cluster.bootstrap, acks="1")
    load.start()
    try:
        for cycle in range(LOSING_CYCLES):
            node = cluster.broker_ids[cycle % len(cluster.broker_ids)]
            others = [cluster.processes[other] for other in cluster.broker_ids if other != node]
            for process in others:
                process.send_signal(signal.SIGSTOP)
            threading.Event().wait(STANDSTILL_S)
            cluster.kill(node)
            for process in others:
                process.send_signal(signal.SIGCONT)
            threading.Event().wait(AWAY_S)
            cluster.start(node)
            cluster.wait_serving(cluster.broker_ids)
    finally:
        load.stop()

    assert gone(load, asyncio.run(read(cluster.bootstrap))) != {}


def test_two_hundred_kills_lose_move_and_double_nothing(cluster: SideBySide) -> None:
    create(cluster, TOPIC)
    choose = random.Random(22)
    load = Load(cluster.bootstrap)
    load.start()
    try:
        for cycle in range(CYCLES):
            node = (
                CONTROLLER if cycle % OF_THE_CONTROLLER == OF_THE_CONTROLLER - 1 else choose.choice(cluster.broker_ids)
            )
            threading.Event().wait(choose.uniform(0, PAUSE_S_MAX))
            cluster.kill(node)
            if choose.random() < 0.5:
                threading.Event().wait(AWAY_S)
            cluster.start(node)
            cluster.wait_serving(cluster.broker_ids)
            before = len(load.acknowledged)
            cluster.wait_until(
                lambda enough=before + PARTITIONS: len(load.acknowledged) >= enough or bool(load.failed),  # type: ignore[misc]
                f"records are acknowledged after kill {cycle + 1}, of node {node}",
                PROGRESS_S,
            )
            assert load.failed == []
    finally:
        load.stop()

    assert load.failed == []
    found = asyncio.run(read(cluster.bootstrap))
    assert gone(load, found) == {}
    for partition in range(PARTITIONS):
        numbers = [number for (where, _), number in sorted(found.items()) if where == partition]
        assert numbers == sorted(set(numbers)), f"partition {partition}: doubled, or in another order"
        assert len(numbers) == sum(where == partition for where, _ in load.acknowledged.values())
