"""Unmodified clients against a cluster of ours: every codec, any offset, any time, and idempotence while connections break.

Five clients do the same: librdkafka, aiokafka, kafka-python, Java's, kcat. What they wrote is compared with what each reads
back, and with the batches as they lie in the log. The cluster's nodes stand behind relays, which reset all connections of
clients every quarter of a second while the idempotent producers work.
"""

import asyncio
import itertools
import shutil
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import aiokafka
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from replog.__main__ import ClientWorld
from replog.client.client import Client
from replog.config import Endpoint
from replog.log.batch import batches
from tests.e2e.kafka_command import QUICK_START, jars_or_skip
from tribunal.clusters.api import CLIENTS, Link
from tribunal.clusters.clock import RunClock
from tribunal.clusters.composed_cluster import ComposedCluster
from tribunal.clusters.kafka.side_by_side import java
from tribunal.clusters.kinds.processes import launch
from tribunal.clusters.spec import ClusterSpec

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas by a deprecated function
    import kafka

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]
T = TypeVar("T")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")  # in the order of their numbers in a batch
COUNT = 120
OFFSET = 37
BASE_MS = 1_750_000_000_000
SOUGHT = 61  # the record looked for by its time
CUT_COUNT = 3000
CUT_EVERY_S = 0.25
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"


class Read(NamedTuple):
    """A record as a consumer got it."""

    offset: int
    key: str
    value: str
    timestamp_ms: int
    header: str


class Kind(Protocol):
    """One client."""

    codecs: Sequence[str]
    stamps: bool  # whether its user can say what time a record has

    def __init__(self, bootstrap: str) -> None: ...

    def produce(self, topic: str, codecs: Sequence[str], count: int) -> None:
        """Produce records 0 to count idempotently, by each codec to a partition; raise unless all are acknowledged."""

    def consume(self, topic: str, partition: int, timestamp_ms: int) -> list[list[Read]]:
        """Return the records from 0, from `OFFSET`, and from a time."""


def key(index: int) -> str:
    return f"k{index}"


def value(index: int) -> str:
    return f"v{index:06d}"


def pause(index: int, count: int) -> float:
    """Return how long to rest after this record, s: a long production has to outlast many cuts."""
    return 0.05 if index % 100 == 99 and count > COUNT else 0.0


class Librdkafka:
    """By confluent-kafka."""

    codecs = CODECS
    stamps = True

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def produce(self, topic: str, codecs: Sequence[str], count: int) -> None:
        for partition, codec in enumerate(codecs):
            self._produce(topic, partition, codec, count)

    def _produce(self, topic: str, partition: int, codec: str, count: int) -> None:
        settings = {"enable.idempotence": True, "compression.type": codec, "linger.ms": 5, "batch.num.messages": 20}
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0} | settings)
        errors: list[Any] = []
        for index in range(count):
            producer.produce(
                topic,
                value(index),
                key(index),
                partition,
                timestamp=BASE_MS + index * 1000,
                headers={"h": str(index)},
                on_delivery=lambda error, _: errors.append(error),
            )
            producer.poll(0)
            time.sleep(pause(index, count))  # noqa: TID251 - a real client's; `poll` would come back with the first delivery
        assert producer.flush(60) == 0
        assert errors == [None] * count

    def consume(self, topic: str, partition: int, timestamp_ms: int) -> list[list[Read]]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "none", "enable.partition.eof": True})
        (found,) = consumer.offsets_for_times([TopicPartition(topic, partition, timestamp_ms)], timeout=20)
        reads = [self._read(consumer, TopicPartition(topic, partition, start)) for start in (0, OFFSET, found.offset)]
        consumer.close()
        return reads

    def _read(self, consumer: Consumer, position: TopicPartition) -> list[Read]:
        consumer.assign([position])
        reads: list[Read] = []
        while (message := consumer.poll(20)) is not None and message.error() is None:
            header = dict(message.headers() or [])["h"].decode()
            reads.append(
                Read(message.offset(), message.key().decode(), message.value().decode(), message.timestamp()[1], header)
            )
        return reads


class Aiokafka:
    """Written in Python, for asyncio."""

    codecs = CODECS
    stamps = True

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def produce(self, topic: str, codecs: Sequence[str], count: int) -> None:
        for partition, codec in enumerate(codecs):
            asyncio.run(self._produce(topic, partition, codec, count))

    async def _produce(self, topic: str, partition: int, codec: str, count: int) -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            enable_idempotence=True,
            compression_type=None if codec == "none" else codec,
            max_batch_size=2000,
            linger_ms=5,
        )
        await producer.start()
        try:
            sent = []
            for index in range(count):
                sent.append(
                    await producer.send(
                        topic,
                        value(index).encode(),
                        key(index).encode(),
                        partition,
                        BASE_MS + index * 1000,
                        [("h", str(index).encode())],
                    )
                )
                await asyncio.sleep(pause(index, count))
            await asyncio.wait_for(asyncio.gather(*sent), 60)
        finally:
            await producer.stop()

    def consume(self, topic: str, partition: int, timestamp_ms: int) -> list[list[Read]]:
        return asyncio.run(self._consume(topic, partition, timestamp_ms))

    async def _consume(self, topic: str, partition: int, timestamp_ms: int) -> list[list[Read]]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=self.bootstrap)
        await consumer.start()
        try:
            position = aiokafka.TopicPartition(topic, partition)
            consumer.assign([position])
            end = (await consumer.end_offsets([position]))[position]
            found = (await consumer.offsets_for_times({position: timestamp_ms}))[position].offset
            reads = []
            for start in (0, OFFSET, found):
                consumer.seek(position, start)
                records = [await asyncio.wait_for(consumer.getone(position), 20) for _ in range(end - start)]
                reads.append([_as_read(record) for record in records])
            return reads
        finally:
            await consumer.stop()


class KafkaPython:
    """Written in Python, with threads. snappy and lz4 need packages that this project does not have."""

    codecs = ("none", "gzip", "zstd")
    stamps = True

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap.split(",")

    def produce(self, topic: str, codecs: Sequence[str], count: int) -> None:
        for partition, codec in enumerate(codecs):
            self._produce(topic, partition, codec, count)

    def _produce(self, topic: str, partition: int, codec: str, count: int) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self.bootstrap,
            enable_idempotence=True,
            compression_type=None if codec == "none" else codec,
            batch_size=2000,
            linger_ms=5,
        )
        sent = []
        for index in range(count):
            headers = [("h", str(index).encode())]
            stamp = BASE_MS + index * 1000
            sent.append(
                producer.send(topic, value(index).encode(), key(index).encode(), headers, partition, timestamp_ms=stamp)
            )
            time.sleep(pause(index, count))  # noqa: TID251 - a real client, real time
        for future in sent:
            future.get(60)
        producer.close()

    def consume(self, topic: str, partition: int, timestamp_ms: int) -> list[list[Read]]:
        consumer = kafka.KafkaConsumer(bootstrap_servers=self.bootstrap)
        position = kafka.TopicPartition(topic, partition)
        consumer.assign([position])
        end = consumer.end_offsets([position])[position]
        found = consumer.offsets_for_times({position: timestamp_ms})[position].offset
        reads = []
        for start in (0, OFFSET, found):
            consumer.seek(position, start)
            reads.append([_as_read(record) for record in itertools.islice(consumer, end - start)])
        consumer.close()
        return reads


def _as_read(record: Any) -> Read:
    header = dict(record.headers)["h"].decode()
    return Read(record.offset, record.key.decode(), record.value.decode(), record.timestamp, header)


class Java:
    """The reference: `ProduceConsume.java` beside this file."""

    codecs = CODECS
    stamps = True

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.jars = jars_or_skip()

    def produce(self, topic: str, codecs: Sequence[str], count: int) -> None:
        self._run("produce", topic, 0, ",".join(codecs), count, BASE_MS)

    def consume(self, topic: str, partition: int, timestamp_ms: int) -> list[list[Read]]:
        lines = self._run("consume", topic, partition, OFFSET, timestamp_ms)
        reads: dict[int, list[Read]] = {}
        for line in lines:
            if line.startswith("READ "):
                start, offset, name, content, stamp, header = line.split()[1:]
                reads.setdefault(int(start), []).append(Read(int(offset), name, content, int(stamp), header))
        return list(reads.values())

    def _run(self, *arguments: object) -> list[str]:
        what, *rest = arguments
        program = str(Path(__file__).with_name("ProduceConsume.java"))
        command = java(self.jars, program, str(what), self.bootstrap, *map(str, rest), heap="128m", options=QUICK_START)
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()


class Kcat:
    """librdkafka's command line, a package of Debian; it gives records the time of their sending."""

    codecs = CODECS
    stamps = False
    format = "%o %k %s %T %h\n"

    def __init__(self, bootstrap: str) -> None:
        if shutil.which("kcat") is None:
            pytest.skip("kcat is not installed (Debian: apt-get install kcat)")
        self.bootstrap = bootstrap

    def produce(self, topic: str, codecs: Sequence[str], count: int) -> None:
        for partition, codec in enumerate(codecs):
            self._produce(topic, partition, codec, count)

    def _produce(self, topic: str, partition: int, codec: str, count: int) -> None:
        settings = ["-X", "enable.idempotence=true", "-X", "linger.ms=5", "-z", codec, "-H", "h=0"]
        command = ["kcat", "-P", "-b", self.bootstrap, "-t", topic, "-p", str(partition), "-E", "-K", " ", *settings]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stderr is not None
            for index in range(count):
                process.stdin.write(f"{key(index)} {value(index)}\n")
                process.stdin.flush()
                time.sleep(pause(index, count))  # noqa: TID251 - a real client, real time
            process.stdin.close()
            said = process.stderr.read()
            assert process.wait(60) == 0, said

    def consume(self, topic: str, partition: int, timestamp_ms: int) -> list[list[Read]]:
        return [self._read(topic, partition, start) for start in ("0", str(OFFSET), f"s@{timestamp_ms}")]

    def _read(self, topic: str, partition: int, start: str) -> list[Read]:
        command = ["kcat", "-C", "-b", self.bootstrap, "-t", topic, "-p", str(partition), "-o", start, "-e", "-q"]
        done = subprocess.run([*command, "-f", self.format], capture_output=True, text=True, timeout=60, check=True)
        return [self._parsed(*line.split()) for line in done.stdout.splitlines()]

    @staticmethod
    def _parsed(offset: str, name: str, content: str, stamp: str, headers: str) -> Read:
        return Read(int(offset), name, content, int(stamp), headers.removeprefix("h="))


KINDS: list[type[Kind]] = [Librdkafka, Aiokafka, KafkaPython, Java, Kcat]


class Stage:
    """The cluster and its loop."""

    def __init__(self, folder: Path) -> None:
        self.runner = asyncio.Runner()
        spec = ClusterSpec(controllers=1, settings={"replica.fetch.wait.max.ms": 100})
        self.cluster: ComposedCluster = self.runner.run(launch(spec, folder, RunClock(), CLUSTER_ID))
        self.bootstrap: str = self.cluster.clients.bootstrap
        self.cuts = 0

    def close(self) -> None:
        self.runner.run(self.cluster.close())
        self.runner.close()

    def run(self, work: Callable[..., T], *arguments: Any, cut: bool = False) -> T:
        """Let a client work in a thread, whose connections break now and then."""
        return self.runner.run(self._work(work, arguments, cut=cut))

    async def _work(self, work: Callable[..., T], arguments: tuple[Any, ...], *, cut: bool) -> T:
        working = asyncio.create_task(asyncio.to_thread(work, *arguments))
        links = [Link(CLIENTS, node) for node in self.cluster.spec.broker_ids]
        while cut and not working.done():
            await asyncio.wait([working], timeout=CUT_EVERY_S)
            self.cuts += (await self.cluster.reset(links)).holds
        return await working

    def stored_codecs(self, topic: str, partition: int) -> set[str]:
        """Return the codecs of the batches as the leader has them."""
        return self.runner.run(self._stored_codecs(topic, partition))

    async def _stored_codecs(self, topic: str, partition: int) -> set[str]:
        host, port = self.bootstrap.split(",")[0].split(":")
        client = Client(ClientWorld(), [Endpoint(host, int(port))])
        answer = await client.fetch(topic, partition, 0, max_bytes=1 << 20)
        await client.close()
        return {CODECS[header.attributes & 7] for header in batches(answer.records)}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage(tmp_path_factory.mktemp("clients"))
    try:
        yield stage
    finally:
        stage.close()


def create(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 3)])[topic].result(20)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__.lower())
def test_every_codec_from_any_offset_and_time(stage: Stage, kind: type[Kind]) -> None:
    client, topic = kind(stage.bootstrap), f"codecs-{kind.__name__.lower()}"
    stage.run(create, stage.bootstrap, topic, len(client.codecs))
    stage.run(client.produce, topic, client.codecs, COUNT)

    for partition, codec in enumerate(client.codecs):
        # kafka-python leaves a batch alone that compression would make larger, as one with a single record.
        assert codec in stage.stored_codecs(topic, partition) <= {codec, "none"}
    partition = len(client.codecs) - 1
    sent = [
        Read(index, key(index), value(index), BASE_MS + index * 1000, str(index) if client.stamps else "0")
        for index in range(COUNT)
    ]
    sought_ms = BASE_MS + SOUGHT * 1000 - 500
    if not client.stamps:  # the times are the client's own
        stamps = [read.timestamp_ms for read in stage.run(client.consume, topic, partition, 0)[0]]
        sent = [read._replace(timestamp_ms=stamp) for read, stamp in zip(sent, stamps, strict=True)]
        sought_ms = stamps[SOUGHT]
    first = next(index for index, read in enumerate(sent) if read.timestamp_ms >= sought_ms)

    assert stage.run(client.consume, topic, partition, sought_ms) == [sent, sent[OFFSET:], sent[first:]]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__.lower())
def test_nothing_is_lost_doubled_or_reordered_while_connections_break(stage: Stage, kind: type[Kind]) -> None:
    client, topic = kind(stage.bootstrap), f"cuts-{kind.__name__.lower()}"
    stage.run(create, stage.bootstrap, topic, 1)
    cuts = stage.cuts

    stage.run(client.produce, topic, ["none"], CUT_COUNT, cut=True)

    reads = stage.run(Librdkafka(stage.bootstrap).consume, topic, 0, 0)[0]
    assert [read.value for read in reads] == [value(index) for index in range(CUT_COUNT)]
    assert stage.cuts - cuts >= 3
