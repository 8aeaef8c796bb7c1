"""More kinds of load for `compare_kafka.py`: codecs, many partitions, many producers, reads, a group, transactions, the Java client.

Each function loads one cluster and returns one figure; both kinds of cluster get the same. The client is librdkafka, driven from Python, but for
`java_producer`, which is Kafka's own `ProducerPerformance`.
"""

import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from tribunal.clusters.kafka.side_by_side import java

Reach = dict[str, Any]  # how a client reaches the brokers, in librdkafka's names
CODECS = ("gzip", "snappy", "lz4", "zstd")
PARTITIONS = 100
PRODUCERS = 8
MEMBERS = 4
ENDS_PRODUCERS = 4
QUEUE = {"queue.buffering.max.messages": 200_000, "queue.buffering.max.kbytes": 131_072, "linger.ms": 5}
JOIN_TIMEOUT_S = 60
READ_TIMEOUT_S = 120
PERF = "org.apache.kafka.tools.ProducerPerformance"


def text_values(count: int, size: int) -> list[bytes]:
    """Return values that compress about as log lines do."""
    chosen = random.Random(7)
    words = [bytes(chosen.choices(b"abcdefghijklmnopqrstuvwxyz", k=chosen.randint(3, 9))) for _ in range(200)]
    return [b" ".join(chosen.choices(words, k=size // 3))[:size] for _ in range(count)]


def produced(
    reach: Reach,
    topic: str,
    values: list[bytes],
    seconds: float,
    *,
    first: int = 0,
    partitions: int = 1,
    **settings: Any,
) -> float:
    """Produce for some seconds with acks=all, to so many partitions from the first on by turns; return acknowledged records a second."""
    errors: list[Any] = []
    producer = Producer({**reach, "acks": "all", "log_level": 0, "delivery.report.only.error": True} | QUEUE | settings)
    offered = 0
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        try:
            for _ in range(1000):
                producer.produce(
                    topic,
                    values[offered % len(values)],
                    None,
                    first + offered % partitions,
                    on_delivery=lambda error, _: errors.append(error),
                )
                offered += 1
        except BufferError:
            producer.poll(0.001)
        producer.poll(0)
    assert producer.flush(60) == 0, "records are left after a minute"
    assert not errors, errors[0]
    return offered / (time.perf_counter() - began)


def side_by_side(count: int, work: Callable[[int], float]) -> float:
    """Return the sum of what so many threads measured at once; who failed fails all."""
    found: list[float] = []
    failed: list[BaseException] = []

    def run(number: int) -> None:
        try:
            found.append(work(number))
        except BaseException as problem:  # noqa: BLE001 - said by the thread that waits
            failed.append(problem)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return sum(found)


def many_producers(reach: Reach, topic: str, seconds: float) -> float:
    """Produce by several clients at once, each to a partition of its own; return records a second of all."""
    return side_by_side(PRODUCERS, lambda number: produced(reach, topic, [b"x" * 100], seconds, first=number))


def read_all(reach: Reach, topic: str, end_offset: int) -> float:
    """Read a partition from its beginning to an offset; return records a second."""
    consumer = Consumer({**reach, "group.id": "bench", "enable.auto.commit": False, "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    began = time.perf_counter()
    count = 0
    while count < end_offset:
        assert time.perf_counter() - began < READ_TIMEOUT_S, f"{topic}: {count} of {end_offset} records read"
        count += sum(message.error() is None for message in consumer.consume(10_000, 0.2))
    rate = count / (time.perf_counter() - began)
    consumer.close()
    return rate


def forget_pages(directories: Iterable[Path]) -> None:
    """Have the kernel drop what it keeps of these files in memory, so that they are read from the disk."""
    os.sync()
    for directory in directories:
        for path in directory.rglob("*.log"):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def group_joins(reach: Reach, topic: str, protocol: str, group: str) -> float:
    """Return after how many ms the last member of a new group had its first record; every partition has some."""
    received: dict[int, float] = {}
    began = time.perf_counter()
    classic = {} if protocol == "consumer" else {"session.timeout.ms": 10_000}
    consumers = [
        Consumer(
            {**reach, "group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest", "log_level": 0}
            | classic
        )
        for _ in range(MEMBERS)
    ]
    for consumer in consumers:
        consumer.subscribe([topic])
    while len(received) < MEMBERS:
        assert time.perf_counter() - began < JOIN_TIMEOUT_S, f"{len(received)} of {MEMBERS} members received a record"
        for number, consumer in enumerate(consumers):
            message = consumer.poll(0.005)
            if message is not None and message.error() is None:
                received.setdefault(number, time.perf_counter() - began)
    for consumer in consumers:
        consumer.close()
    return max(received.values()) * 1000


def transactions(reach: Reach, topic: str, seconds: float) -> float:
    """Run transactions of one record, one after the other, by several producers at once; return ends a second of all."""

    def one(number: int) -> float:
        producer = Producer({**reach, "transactional.id": f"bench-{topic}-{number}", "linger.ms": 0, "log_level": 0})
        producer.init_transactions(30)
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            producer.begin_transaction()
            producer.produce(topic, b"x" * 100, None, number)
            producer.commit_transaction(30)
            count += 1
        return count / (time.perf_counter() - began)

    return side_by_side(ENDS_PRODUCERS, one)


def java_producer(jars: Path, bootstrap: str, topic: str, count: int) -> float:
    """Produce by Kafka's own tool with acks=all; return records a second, as it says in its last line."""
    command = java(
        jars,
        PERF,
        *("--topic", topic, "--num-records", str(count), "--record-size", "100", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={bootstrap}", "acks=all"),
        heap="512m",
        options=(),
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    last = [line for line in done.stdout.splitlines() if " records/sec" in line][-1]
    return float(last.partition("sent, ")[2].partition(" records/sec")[0])
