"""Brokers compact, delete and checkpoint by themselves, while clients go on."""

import asyncio

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.loopback import in_thread, running

OFTEN = {
    "offsets__topic__replication__factor": 1,
    "log__segment__bytes": 20_000,
    "log__cleaner__backoff__ms": 200,
    "log__retention__check__interval__ms": 200,
    "log__flush__offset__checkpoint__interval__ms": 200,
    "replica__high__watermark__checkpoint__interval__ms": 200,
}


def create(bootstrap, topic, **configs):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = NewTopic(topic, 1, 2, config={name.replace("_", "."): value for name, value in configs.items()})
    admin.create_topics([wanted])[topic].result(20)


def produce(bootstrap, topic, entries):
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 20, "enable.idempotence": True})
    errors = []
    for key, value in entries:
        producer.produce(topic, value, key, on_delivery=lambda error, _: errors.append(error) if error else None)
        producer.poll(0)
    assert producer.flush(40) == 0
    assert errors == []


def read(bootstrap, topic):
    """All records, from the first to the high watermark."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    entries = []
    while (message := consumer.poll(20)) is not None and message.error() is None:
        entries.append((message.key(), message.value()))
    consumer.close()
    return entries


def replicas(cluster, topic):
    return [cluster.nodes[node].replicas.by_topic[topic][0] for node in (1, 2)]


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def test_a_compacted_topic_keeps_the_last_value_of_each_key_on_all_replicas(tmp_path):
    entries = [(b"k%d" % (index % 7), b"v%d" % index + bytes(50)) for index in range(3000)]

    async def scenario():
        async with running(tmp_path, controllers=1, brokers=2, **OFTEN) as cluster:
            await in_thread(lambda: create(cluster.bootstrap, "t", cleanup_policy="compact"))
            await in_thread(lambda: produce(cluster.bootstrap, "t", entries))
            logs = [replica.partition.log for replica in replicas(cluster, "t")]
            await until(lambda: all(log.size < 100_000 for log in logs))
            found = await in_thread(lambda: read(cluster.bootstrap, "t"))
            assert dict(found) == dict(entries)
            assert len(found) < len(entries) / 2

    asyncio.run(scenario())


def test_old_segments_go_and_checkpoints_say_so(tmp_path):
    async def scenario():
        async with running(tmp_path, controllers=1, brokers=2, **OFTEN) as cluster:
            await in_thread(lambda: create(cluster.bootstrap, "t", retention_bytes="50000"))
            await in_thread(lambda: produce(cluster.bootstrap, "t", [(None, bytes(100))] * 3000))
            logs = [replica.partition.log for replica in replicas(cluster, "t")]
            await until(lambda: all(log.size < 90_000 and log.log_start_offset > 0 for log in logs))
            await until(lambda: all(entry(tmp_path, node, "log-start-offset-checkpoint") > 0 for node in (1, 2)))
            await until(
                lambda: all(entry(tmp_path, node, "recovery-point-offset-checkpoint") == 3000 for node in (1, 2))
            )
            await until(lambda: all(entry(tmp_path, node, "replication-offset-checkpoint") == 3000 for node in (1, 2)))

    asyncio.run(scenario())


def entry(folder, node, name):
    path = folder / f"node-{node}" / name
    lines = path.read_text().splitlines() if path.exists() else []
    return next((int(line.split()[2]) for line in lines if line.startswith("t 0 ")), -1)
