"""aiokafka and kafka-python, as programs like those of other languages beside this file.

python python_client.py KIND produce BOOTSTRAP TOPIC COUNT | consume BOOTSTRAP TOPIC COUNT GROUP | transact BOOTSTRAP TOPIC COUNT:
prints what was acknowledged or read, a JSON object a line; every other transaction is aborted.
"""

import asyncio
import json
import sys
import time
from contextlib import suppress
from typing import Any

import aiokafka
import kafka

TIMEOUT_S = 90
PAUSE_S = 0.02
POLL_RECORDS = 20
SESSION_MS = 6000


def report(partition: int, offset: int, value: str) -> None:
    print(json.dumps({"partition": partition, "offset": offset, "value": value}))


class Aiokafka:
    """Written for asyncio."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic

    def produce(self, count: int) -> None:
        asyncio.run(self._produce(count))

    async def _produce(self, count: int) -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=self.bootstrap, enable_idempotence=True)
        await producer.start()
        sent = []
        for index in range(count):
            sent.append(await producer.send(self.topic, f"aio-{index}".encode(), partition=index % 3))
            await asyncio.sleep(PAUSE_S)
        for index, delivered in enumerate(await asyncio.wait_for(asyncio.gather(*sent), TIMEOUT_S)):
            report(delivered.partition, delivered.offset, f"aio-{index}")
        await producer.stop()

    def consume(self, count: int, group: str) -> None:
        asyncio.run(self._consume(count, group))

    async def _consume(self, count: int, group: str) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
        )
        await consumer.start()
        found: dict[tuple[int, int], str] = {}
        async with asyncio.timeout(TIMEOUT_S):
            while len(found) < count:
                for records in (await consumer.getmany(timeout_ms=500, max_records=POLL_RECORDS)).values():
                    found |= {(one.partition, one.offset): one.value.decode() for one in records}
            while True:
                try:
                    await consumer.commit()
                    break
                except aiokafka.errors.KafkaError:
                    await asyncio.sleep(0.2)
        for (partition, offset), value in found.items():
            report(partition, offset, value)
        with suppress(asyncio.CancelledError):  # of its own fetcher, which rests before it asks the dead broker again
            await consumer.stop()

    def transact(self, count: int) -> None:
        asyncio.run(self._transact(count))

    async def _transact(self, count: int) -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, transactional_id=f"{self.topic}-writer", request_timeout_ms=10_000
        )
        await producer.start()
        async with asyncio.timeout(TIMEOUT_S):
            for number in range(count):
                await producer.begin_transaction()
                for partition in range(3):
                    await producer.send_and_wait(self.topic, f"aio-{number}-{partition}".encode(), partition=partition)
                await (producer.abort_transaction() if number % 2 else producer.commit_transaction())
        await producer.stop()


class KafkaPython:
    """Written with threads."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap.split(",")
        self.topic = topic

    def produce(self, count: int) -> None:
        producer = kafka.KafkaProducer(bootstrap_servers=self.bootstrap, enable_idempotence=True)
        sent = []
        for index in range(count):
            sent.append(producer.send(self.topic, f"kp-{index}".encode(), partition=index % 3))
            time.sleep(PAUSE_S)  # noqa: TID251 - a real client, real time
        for index, future in enumerate(sent):
            delivered = future.get(TIMEOUT_S)
            report(delivered.partition, delivered.offset, f"kp-{index}")
        producer.close()

    def consume(self, count: int, group: str) -> None:
        consumer = kafka.KafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=1000,
        )
        found: dict[tuple[int, int], str] = {}
        deadline = time.monotonic() + TIMEOUT_S
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} read"
            for records in consumer.poll(timeout_ms=500, max_records=POLL_RECORDS).values():
                found |= {(one.partition, one.offset): one.value.decode() for one in records}
        while True:
            try:
                consumer.commit()
                break
            except kafka.errors.KafkaError:
                assert time.monotonic() < deadline
        for (partition, offset), value in found.items():
            report(partition, offset, value)
        consumer.close()

    def _initialized(self) -> Any:
        """Return a producer that has its id.

        Where the coordinator that was found refuses connections, kafka-python (3.0.12) looks for it again but forgets its
        InitProducerId: with Apache Kafka, too, it then waits until its time is up, also when it is asked again. A second
        producer does it.
        """
        for is_last in (False, False, True):
            producer = kafka.KafkaProducer(
                bootstrap_servers=self.bootstrap, transactional_id=f"{self.topic}-writer", max_block_ms=20_000
            )
            try:
                producer.init_transactions()
            except kafka.errors.KafkaTimeoutError:
                producer.close(timeout=1)
                if is_last:
                    raise
            else:
                return producer
        raise AssertionError

    def transact(self, count: int) -> None:
        producer = self._initialized()
        for number in range(count):
            producer.begin_transaction()
            for partition in range(3):
                producer.send(self.topic, f"kp-{number}-{partition}".encode(), partition=partition)
            producer.flush(TIMEOUT_S)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        producer.close()


KINDS: dict[str, type[Any]] = {"aiokafka": Aiokafka, "kafka-python": KafkaPython}

if __name__ == "__main__":
    kind, what, bootstrap, topic, count, *more = sys.argv[1:]
    getattr(KINDS[kind](bootstrap, topic), what)(int(count), *more)
