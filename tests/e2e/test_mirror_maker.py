"""Kafka's MirrorMaker 2 between two secured clusters of ours: records, positions of groups and ACLs of topics come over."""

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic, ResourceType

from tests.broker.loopback import Loopback, in_thread, running
from tests.e2e.test_kafka_tools_secured import login_settings
from tests.security.certificates import Authority
from tests.security.test_acls_live import ANY_ACL, binding, make, with_acls
from tests.security.test_sasl_live import login
from tribunal.clusters.kafka.jars import LOG4J, LOG4J_2_FILE, LOGGING, VERSION, cache
from tribunal.clusters.kafka.side_by_side import java
from tribunal.clusters.maven_jars import Artifact, NoJars, Program, fetch, is_complete
from tribunal.clusters.nodes.node_process import with_parent

pytestmark = [pytest.mark.e2e, pytest.mark.nightly, pytest.mark.timeout(600)]
ADMIN = ("PLAIN", "admin", "admins-own")
COUNT = 30
PARTITIONS = 2
WAIT_S = 150  # a JVM on a busy machine
MIRROR_MAKER = Program(
    name=f"MirrorMaker of Apache Kafka {VERSION}",
    version=VERSION,
    artifacts=(
        Artifact("org.apache.kafka", "connect-mirror", VERSION),
        Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J),
        Artifact("org.apache.logging.log4j", "log4j-core", LOG4J),
    ),
    logging=(LOG4J_2_FILE, LOGGING),
    remedy="no `mvn` on the path to fetch MirrorMaker with",
)


def jars_or_skip() -> Path:
    folder = cache().parent / "mirror-maker" / VERSION
    try:
        if not is_complete(folder):
            fetch(folder, MIRROR_MAKER)
    except NoJars as problem:
        pytest.skip(str(problem))
    return folder


def settings_file(folder: Path, authority: Authority, clusters: dict[str, Loopback]) -> Path:
    own = {
        "clusters": "near,far",
        "near->far.enabled": "true",
        "near->far.topics": "orders",
        "near->far.groups": "readers",
        "far->near.enabled": "false",
        "replication.factor": "1",
        "near->far.offset.lag.max": "0",
        "sync.topic.acls.enabled": "true",
        "sync.topic.acls.interval.seconds": "2",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "2",
        "emit.checkpoints.interval.seconds": "2",
        "refresh.topics.interval.seconds": "5",
        "refresh.groups.interval.seconds": "5",
        "tasks.max": "1",
        **{
            f"{name}.replication.factor": "1"
            for name in ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic", "offset.storage", "status.storage", "config.storage")
        },
    }  # fmt: skip
    for name, cluster in clusters.items():
        words = {"bootstrap.servers": cluster.bootstrap, **login_settings(authority, *ADMIN)}
        own |= {f"{name}.{word}": value for word, value in words.items()}
    path = folder / "mirror.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in own.items()))
    return path


@contextmanager
def mirroring(jars: Path, settings: Path, log: Path) -> "Iterator[subprocess.Popen[bytes]]":
    words = java(jars, "org.apache.kafka.connect.mirror.MirrorMaker", str(settings), heap="512m")
    with log.open("wb") as out:
        process = subprocess.Popen(with_parent(["/usr/bin/env", *words]), stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def last_said(log: Path) -> str:
    return log.read_text(errors="replace")[-3000:]


async def until(holds: Callable[[], bool], what: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = monotonic() + WAIT_S
    while not await in_thread(holds):
        said = await in_thread(last_said, log)
        assert process.poll() is None, f"MirrorMaker ended with {process.returncode}: {said}"
        assert monotonic() < deadline, f"{what}: not within {WAIT_S} s; MirrorMaker said {said}"
        await asyncio.sleep(0.5)


class Story:
    """The near cluster has a topic, a group and an ACL; the far one gets them."""

    def __init__(self, authority: Authority, near: Loopback, far: Loopback) -> None:
        self._near = login(authority, near.bootstrap, *ADMIN)
        self._far = login(authority, far.bootstrap, *ADMIN)
        self._admin = AdminClient(self._far)  # it has to outlive its questions

    def prepare(self) -> None:
        admin = AdminClient(self._near)
        admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(20)
        make(admin, binding(ResourceType.TOPIC, "orders", AclOperation.READ))
        make(admin, binding(ResourceType.TOPIC, "orders", AclOperation.WRITE))
        self.write(range(COUNT))
        self.read_as_group()

    def write(self, values: range) -> None:
        producer = Producer(self._near | {"enable.idempotence": True})
        for value in values:
            producer.produce("orders", f"{value}", partition=value % PARTITIONS)
        assert producer.flush(60) == 0

    def read_as_group(self) -> None:
        consumer = Consumer(self._near | {"group.id": "readers", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        seen = 0
        deadline = monotonic() + WAIT_S
        while seen < COUNT and monotonic() < deadline:
            message = consumer.poll(1)
            seen += message is not None and message.error() is None
        consumer.commit(asynchronous=False)
        consumer.close()

    def mirrored(self) -> list[str]:
        """Return the values of the far topic, in the order of their numbers."""
        consumer = Consumer(
            self._far | {"group.id": "looker", "enable.auto.commit": False, "enable.partition.eof": True}
        )
        consumer.assign([TopicPartition("near.orders", partition, 0) for partition in range(PARTITIONS)])
        found: list[str] = []
        ended = 0
        while ended < PARTITIONS and (message := consumer.poll(20)) is not None:
            if message.error() is None:
                found.append(message.value().decode())
            else:
                ended += message.error().code() == KafkaError._PARTITION_EOF
        consumer.close()
        return sorted(found, key=int)

    def has_topic(self) -> bool:
        return "near.orders" in self._admin.list_topics(timeout=20).topics

    def acls(self) -> list[tuple[str, str, str]]:
        found = self._admin.describe_acls(ANY_ACL).result(20)
        return sorted((one.principal, one.name, one.operation.name) for one in found)

    def positions(self) -> int:
        """Return the far positions of the group, added up: MirrorMaker translates them downwards, as far as it has noted pairs of offsets."""
        wanted = [ConsumerGroupTopicPartitions("readers")]
        (future,) = self._admin.list_consumer_group_offsets(wanted).values()
        return sum(max(0, one.offset) for one in future.result(20).topic_partitions)


def test_records_positions_and_acls_come_over(tmp_path: Path) -> None:
    jars = jars_or_skip()
    authority = Authority(tmp_path / "pki")
    settings = with_acls(
        authority,
        offsets__topic__replication__factor=1,
        transaction__state__log__replication__factor=1,
        transaction__state__log__min__isr=1,
    )
    log = tmp_path / "mirror.log"

    async def main() -> None:
        async with (
            running(tmp_path / "near", controllers=1, brokers=1, **settings) as near,
            running(tmp_path / "far", controllers=1, brokers=1, **settings) as far,
        ):
            story = Story(authority, near, far)
            await in_thread(story.prepare)
            path = settings_file(tmp_path, authority, {"near": near, "far": far})
            with mirroring(jars, path, log) as process:
                await until(story.has_topic, "the topic", process, log)
                await in_thread(story.write, range(COUNT, 2 * COUNT))
                values = [f"{value}" for value in range(2 * COUNT)]
                await until(lambda: story.mirrored() == values, "all records, once", process, log)
                await until(lambda: bool(story.acls()), "an ACL", process, log)
                await until(lambda: 0 < story.positions() <= COUNT, "the group's positions", process, log)
                acls = await in_thread(story.acls)

            assert acls == [("User:alice", "near.orders", "READ")], "MirrorMaker itself writes there, nobody else"

    asyncio.run(main())
