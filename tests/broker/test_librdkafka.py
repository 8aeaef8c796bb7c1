"""An unmodified client against real brokers and controllers on loopback: librdkafka by confluent-kafka."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, ElectionType, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.broker.loopback import in_thread, running


def create(bootstrap: str, topic: str, partitions: int, factor: int, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    named = {name.replace("_", "."): value for name, value in configs.items()}
    for future in admin.create_topics([NewTopic(topic, partitions, factor, config=named)]).values():
        future.result(20)


def produce(bootstrap: str, topic: str, values: list[bytes], **settings: Any) -> list[str]:
    """Produce all values; return the errors of those that failed."""
    # One request at a time: a retry, as while a topic is new, must not change the order.
    quiet = {"linger.ms": 5, "message.timeout.ms": 30000, "max.in.flight": 1}
    producer = Producer({"bootstrap.servers": bootstrap} | quiet | settings)
    errors: list[str] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(str(error)) if error else None)
        producer.poll(0)
    assert producer.flush(40) == 0
    return errors


def consume(bootstrap: str, topic: str, partitions: int, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    values: list[bytes] = []
    for _ in range(200):
        values += [message.value() for message in consumer.consume(count, 0.2) if message.error() is None]
        if len(values) >= count:
            break
    consumer.close()
    return values


def watermarks(bootstrap: str, topic: str) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    found: tuple[int, int] = consumer.get_watermark_offsets(TopicPartition(topic, 0), 10)
    consumer.close()
    return found


def test_one_broker_serves_librdkafka_end_to_end(tmp_path: Path) -> None:
    values = [b"value-%d" % index for index in range(2000)]

    async def scenario() -> None:
        async with running(tmp_path, controllers=1, brokers=1) as cluster:
            for acks in (1, "all"):
                topic = f"topic-{acks}"  # created by asking for it
                assert (
                    await in_thread(lambda topic=topic, acks=acks: produce(cluster.bootstrap, topic, values, acks=acks))
                    == []
                )
                assert await in_thread(consume, cluster.bootstrap, topic, 1, len(values)) == values
            assert await in_thread(watermarks, cluster.bootstrap, "topic-all") == (0, len(values))

    asyncio.run(scenario())


def test_three_brokers_survive_the_leaders_stop_and_its_return(tmp_path: Path) -> None:
    first, second = ([b"%s-%d" % (name, index) for index in range(500)] for name in (b"first", b"second"))

    async def scenario() -> None:
        async with running(tmp_path, controllers=3, brokers=3) as cluster:
            bootstrap = cluster.bootstrap
            await in_thread(lambda: create(bootstrap, "t", 3, 3, min_insync_replicas="2"))
            assert await in_thread(lambda: produce(bootstrap, "t", first, **{"enable.idempotence": True})) == []
            await cluster.stop(1)
            assert await in_thread(lambda: produce(bootstrap, "t", second, acks="all")) == []
            await cluster.start(1)
            await cluster.serving()
            assert sorted(await in_thread(consume, bootstrap, "t", 3, 1000)) == sorted([*first, *second])

    asyncio.run(scenario())


def administer(bootstrap: str) -> dict[str, Any]:
    """Use every admin call of librdkafka that a broker answers or forwards; return what was seen."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = ConfigResource(ResourceType.TOPIC, "t")
    seen: dict[str, Any] = {}

    change = ConfigResource(ResourceType.TOPIC, "t")
    change.add_incremental_config(ConfigEntry("retention.ms", "12345", incremental_operation=AlterConfigOpType.SET))
    admin.incremental_alter_configs([change])[change].result(10)
    seen["retention.ms"] = _eventually(
        lambda: admin.describe_configs([topic])[topic].result(10)["retention.ms"].value, "12345"
    )
    admin.create_partitions([NewPartitions("t", 3)])["t"].result(10)
    seen["partitions"] = _eventually(lambda: len(admin.list_topics("t", 10).topics["t"].partitions), 3)
    deleted = admin.delete_records([TopicPartition("t", 0, 40)])
    seen["low watermark"] = next(iter(deleted.values())).result(10).low_watermark
    listed = admin.list_offsets(
        {TopicPartition("t", 0): OffsetSpec.earliest(), TopicPartition("t", 1): OffsetSpec.latest()}
    )
    seen["offsets"] = [future.result(10).offset for future in listed.values()]
    elected = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("t", 0)]).result(10)
    seen["election"] = [error.name() for error in elected.values()]
    admin.delete_topics(["t"])["t"].result(10)
    seen["topics"] = _eventually(lambda: sorted(admin.list_topics(timeout=10).topics), [])
    return seen


def _eventually(ask: Callable[[], Any], wanted: Any) -> Any:
    """Ask again for a while: a broker answers from its own image, a moment behind the controller."""
    for _ in range(50):
        found = ask()
        if found == wanted:
            break
        time.sleep(0.05)  # noqa: TID251 - a client's thread
    return found


def test_librdkafkas_admin_calls_are_answered(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, controllers=1, brokers=2) as cluster:
            await in_thread(lambda: create(cluster.bootstrap, "t", 1, 2))
            assert await in_thread(lambda: produce(cluster.bootstrap, "t", [b"v"] * 100, acks="all")) == []

            seen = await in_thread(administer, cluster.bootstrap)

            assert seen == {
                "retention.ms": "12345",
                "partitions": 3,
                "low watermark": 40,
                "offsets": [40, 0],
                "election": ["ELECTION_NOT_NEEDED"],
                "topics": [],
            }

    asyncio.run(scenario())
    assert list(tmp_path.glob("node-[12]/t-*")) == []
