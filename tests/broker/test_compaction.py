"""Brokers compact, delete and checkpoint by themselves, while clients go on."""

import asyncio
from hashlib import sha512

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from replog.log.batch import records
from replog.log.cleaner import cleaned_to
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


def read(bootstrap, topic, count):
    """All records up to the one that was produced as the last of `count`: compaction never takes that one away.

    A new leader may not know yet how far the high watermark was: an end before that is none.
    """
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
    last = -1
    while last < count - 1:
        message = consumer.poll(20)
        assert message is not None, f"nothing behind offset {last}"
        if message.error() is None:
            entries.append((message.key(), message.value()))
            last = message.offset()
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
    consumer.close()
    return entries


def replicas(cluster, topic):
    return [cluster.nodes[node].plane.replicas.by_topic[topic][0] for node in (1, 2)]


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
            found = await in_thread(lambda: read(cluster.bootstrap, "t", len(entries)))
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


CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
STARTED_MS = 1_700_000_000_000
TIMES_MS = [STARTED_MS - 5, *(STARTED_MS + index * 10 - index % 3 for index in range(0, 800, 97)), STARTED_MS + 7_985]


def produce_packed(bootstrap, codec, entries):
    """Let librdkafka produce batches of a codec; timestamps are the entries' indexes."""
    settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "batch.num.messages": 50, "linger.ms": 20}
    settings |= {"enable.idempotence": True}  # a batch sent again keeps its place
    producer = Producer(settings)
    for index, (key, value) in enumerate(entries):
        producer.produce(codec, value, key, timestamp=STARTED_MS + index * 10)
    assert producer.flush(40) == 0


def test_batches_of_every_codec_are_compacted_and_found_by_time(tmp_path):
    """Of real librdkafka batches: the last value of each key stays, and a time look-up names the very record."""
    entries = [(b"k%d" % (index % 7), sha512(b"%d" % index).hexdigest().encode()) for index in range(800)]

    async def scenario():
        async with running(tmp_path, controllers=1, brokers=2, **OFTEN) as cluster:
            for codec in CODECS:
                await in_thread(
                    lambda codec=codec: create(
                        cluster.bootstrap, codec, cleanup_policy="compact", segment_bytes="12000"
                    )
                )
                await in_thread(lambda codec=codec: produce_packed(cluster.bootstrap, codec, entries))
            logs = {codec: [replica.partition.log for replica in replicas(cluster, codec)] for codec in CODECS}
            for number, codec in enumerate(CODECS):
                for log in logs[codec]:
                    # (How far a log is cleaned is written down before it is cleaned.)
                    await until(lambda log=log: cleaned_to(log) > 500 and sum(h.count for h in kept(log)) < 500)
                    assert {header.codec for header in kept(log)} == {number}
                found = await in_thread(lambda codec=codec: read(cluster.bootstrap, codec, len(entries)))
                assert dict(found) == dict(entries)
                leader = next(r.partition for r in replicas(cluster, codec) if r.partition.leadership is not None)
                known, asked = None, []
                while known != expected(leader.log):  # the log may be compacted once more meanwhile
                    known = expected(leader.log)
                    asked = await in_thread(lambda codec=codec: offsets_at(cluster.bootstrap, codec))
                assert asked == known

    asyncio.run(scenario())


def kept(log):
    """The batches that still have records."""
    return [header for segment in log.segments for header in segment.headers() if header.count]


def offsets_at(bootstrap, topic):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    asked = [consumer.offsets_for_times([TopicPartition(topic, 0, time_ms)], 20)[0].offset for time_ms in TIMES_MS]
    consumer.close()
    return asked


def expected(log):
    """The first record that is not older, as a scan finds it."""
    return [next(r.offset for r in scanned(log) if r.timestamp_ms >= time_ms) for time_ms in TIMES_MS]


def scanned(log):
    for segment in log.segments:
        for header in segment.headers():
            yield from records(segment.batch_bytes(header))
