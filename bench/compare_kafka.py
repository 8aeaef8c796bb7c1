"""Ours and Apache Kafka in one run: same client (librdkafka), same settings, same machine, medians.

    python bench/compare_kafka.py                # a table; about four minutes
    python bench/compare_kafka.py --json         # [{"name", "unit", "better", "ours", "kafka", "ratio"}, ...]
    python bench/compare_kafka.py --nodes 1 --seconds 1 --repeats 1 --no-failover
    python bench/compare_kafka.py --tls          # the same, with TLS among brokers, and between them and the client
    python bench/compare_kafka.py --kinds        # codecs, partitions, producers, reads, groups, transactions, the Java client; ten minutes

Every node is broker and controller in one process, for both. Throughput: one producer, one partition, records of 100 B and
1 KiB; all of them have to be in the log afterwards. Latency: one record at a time, acks=all. Start: from the first
process until every broker says that all serve, directories formatted before. Memory: resident, the largest node. Failover: kill -9 of the
leader until a record is acknowledged again by acks=all, with Kafka's default time-outs: of a leader alone, and of one whose process is the
active controller, too (then its successor gives every broker a whole session again, in both). Kinds of load: `kinds_of_load.py`; with
them everything is in the table. `ratio` is ours divided by Kafka's; `better`
says which direction is good. Compare ratios, not numbers, between machines.
"""

import argparse
import datetime
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from bench import kinds_of_load as kinds
from replog.types import METADATA_TOPIC
from replog.wire.apis import Api
from replog.wire.codec import decode_response, encode_request
from replog.wire.messages import describe_quorum as dq
from tribunal.clusters.kafka.jars import kafka_jars
from tribunal.clusters.kafka.side_by_side import ApacheKafka, Ours, SideBySide, Software, asked
from tribunal.clusters.maven_jars import NoJars
from tribunal.clusters.secured.authority import Authority

SIZES = {"100 B": 100, "1 KiB": 1024}
ACKS = ("1", "all")
LATENCY_RECORDS = 300
JAVA_RECORDS = 500_000
FAILOVER_TIMEOUT_S = 60
Row = dict[str, Any]
Reach = dict[str, Any]  # how a client reaches the brokers, in librdkafka's names
Measured = dict[str, float]  # by name of the row
HIGHER, LOWER = "higher", "lower"


def settings(nodes: int) -> dict[str, Any]:
    """Return what both get beside their defaults."""
    return {
        "default.replication.factor": nodes,
        "offsets.topic.replication.factor": nodes,
        "transaction.state.log.replication.factor": nodes,
        "transaction.state.log.min.isr": min(2, nodes),
        "min.insync.replicas": min(2, nodes),
        "auto.create.topics.enable": False,
    }


def active_controller(cluster: SideBySide) -> int:
    """Return the node that leads the quorum, as the first broker says."""
    partition = dq.DescribeQuorumRequestPartitionData(partition_index=0)
    topic = dq.DescribeQuorumRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    request = encode_request(Api.DESCRIBE_QUORUM, 0, 7, "t", dq.DescribeQuorumRequest(topics=[topic]))
    answer = asked(cluster.places[cluster.broker_ids[0]].endpoint, request)
    return int(decode_response(dq.EXCHANGE, 0, answer)[1].topics[0].partitions[0].leader_id)


class Bench:
    """Everything that is measured on one cluster."""

    def __init__(
        self, cluster: SideBySide, nodes: int, options: argparse.Namespace, authority: Authority | None
    ) -> None:
        self.cluster = cluster
        self.options = options
        self.prefix = "1 node" if nodes == 1 else f"{nodes} nodes, RF {nodes}"
        self.nodes = nodes
        self.rows: Measured = {}
        self.reach: Reach = {"bootstrap.servers": cluster.bootstrap}
        if authority is not None:
            self.prefix += ", TLS"
            self.reach = {
                "bootstrap.servers": cluster.bootstrap_tls,
                "security.protocol": "ssl",
                "ssl.ca.location": str(authority.trust),
            }

    def run(self) -> Measured:
        """Measure all rows."""
        self.cluster.format()
        began = time.perf_counter()
        self.cluster.launch()
        self._note("start, s", time.perf_counter() - began)
        self._note("memory after start, MiB", self._memory())
        self._throughput()
        self._note("memory under load, MiB", self._memory())
        self._latency()
        if self.options.kinds:
            self._kinds()
        if self.nodes > 1 and self.options.failover:
            self._failover()
        return self.rows

    def _note(self, name: str, value: float) -> None:
        self.rows[f"{self.prefix}: {name}"] = value
        print(f"    {self.cluster.software.name:6} {self.prefix}: {name}: {value:,.2f}", file=sys.stderr, flush=True)

    def _memory(self) -> float:
        return max(self.cluster.memory_mib(node) for node in self.cluster.broker_ids)

    def _throughput(self) -> None:
        for size_name, size in SIZES.items():
            for acks in ACKS:
                topic = self.topic(f"t{size}-{acks}")
                produce(self.reach, topic, acks, bytes(size), 0.3)  # connections, JIT
                rates = [
                    produce(self.reach, topic, acks, bytes(size), self.options.seconds)
                    for _ in range(self.options.repeats)
                ]
                self._note(f"{size_name}, acks={acks}, records/s", statistics.median(rates))

    def _latency(self) -> None:
        times = one_at_a_time(self.reach, self.topic("latency"), LATENCY_RECORDS)
        self._note("one record at a time, acks=all, p50 ms", statistics.median(times))
        self._note("one record at a time, acks=all, p99 ms", times[int(len(times) * 0.99)])

    def _kinds(self) -> None:
        seconds, repeats = self.options.seconds, self.options.repeats
        lines = kinds.text_values(1000, 100)
        for codec in kinds.CODECS:
            topic = self.topic(f"codec-{codec}")
            rates = [
                kinds.produced(self.reach, topic, lines, seconds, **{"compression.codec": codec})
                for _ in range(repeats)
            ]
            self._note(f"100 B of text, {codec}, acks=all, records/s", statistics.median(rates))
        count = kinds.PARTITIONS
        topic = self.topic("partitions", NewTopic("partitions", count, self.nodes))
        rates = [kinds.produced(self.reach, topic, lines, seconds, partitions=count) for _ in range(repeats)]
        self._note(f"{count} partitions by turns, acks=all, records/s", statistics.median(rates))
        topic = self.topic("producers", NewTopic("producers", kinds.PRODUCERS, self.nodes))
        rates = [kinds.many_producers(self.reach, topic, seconds) for _ in range(repeats)]
        self._note(f"{kinds.PRODUCERS} producers at once, acks=all, records/s", statistics.median(rates))
        self._reads("t100-all", "100 B")
        self._reads("t1024-all", "1 KiB")
        self._groups()
        topic = self.topic("ends", NewTopic("ends", kinds.ENDS_PRODUCERS, self.nodes))
        kinds.transactions(self.reach, topic, 0.5)
        rates = [kinds.transactions(self.reach, topic, seconds) for _ in range(repeats)]
        self._note(
            f"one-record transactions of {kinds.ENDS_PRODUCERS} producers, transactions/s", statistics.median(rates)
        )
        if not self.options.tls and self.options.jars is not None:
            topic = self.topic("java")
            rates = [
                kinds.java_producer(self.options.jars, self.cluster.bootstrap, topic, JAVA_RECORDS)
                for _ in range(repeats)
            ]
            self._note("100 B, Java client, acks=all, records/s", statistics.median(rates))

    def _reads(self, topic: str, size: str) -> None:
        end_offset = log_end_offset(self.reach, topic)
        rates = [kinds.read_all(self.reach, topic, end_offset) for _ in range(self.options.repeats)]
        self._note(f"{size}, read from memory, records/s", statistics.median(rates))
        rates = []
        for _ in range(self.options.repeats):
            kinds.forget_pages(place.data for place in self.cluster.places.values())
            rates.append(kinds.read_all(self.reach, topic, end_offset))
        self._note(f"{size}, read from the disk, records/s", statistics.median(rates))

    def _groups(self) -> None:
        topic = self.topic("group", NewTopic("group", kinds.MEMBERS, self.nodes))
        kinds.produced(self.reach, topic, [bytes(100)], 0.2, partitions=kinds.MEMBERS)
        for protocol in ("classic", "consumer"):
            kinds.group_joins(
                self.reach, topic, protocol, f"warm-{protocol}"
            )  # the topic of groups is made by the first one
            times = [
                kinds.group_joins(self.reach, topic, protocol, f"{protocol}-{number}")
                for number in range(self.options.repeats)
            ]
            self._note(f"{protocol} group of {kinds.MEMBERS}, first record of each, ms", statistics.median(times))

    def _failover(self) -> None:
        active = active_controller(self.cluster)
        others = [node for node in self.cluster.broker_ids if node != active]
        self._note("failover after kill -9, s", self._failover_of(others[0]))
        self.cluster.start(others[0])
        self.cluster.wait_serving(self.cluster.broker_ids)
        self._note("failover after kill -9 of the active controller, s", self._failover_of(active))

    def _failover_of(self, leader: int) -> float:
        """Return for how many seconds the death of a partition's leader is felt."""
        replicas = sorted(self.cluster.broker_ids, key=lambda node: node != leader)
        topic = self.topic(f"failover-{leader}", NewTopic(f"failover-{leader}", 1, replica_assignment=[replicas]))
        producer = a_producer(self.reach, "all", {"message.timeout.ms": FAILOVER_TIMEOUT_S * 1000})
        acknowledge(producer, topic)
        assert leader_of(self.reach, topic) == leader
        began = time.perf_counter()
        self.cluster.kill(leader)
        acknowledge(producer, topic)
        return time.perf_counter() - began

    def topic(self, name: str, wanted: NewTopic | None = None) -> str:
        """Create a topic, with one partition on all nodes if nothing else is wanted; return its name when it has a leader."""
        admin = an_admin(self.reach)
        admin.create_topics([wanted or NewTopic(name, 1, self.nodes)])[name].result(30)
        self.cluster.wait_until(lambda: leader_of(self.reach, name) > 0, f"{name} has a leader", 30)
        return name


def an_admin(reach: Reach) -> AdminClient:
    """Make an admin client; it has to outlive its questions."""
    return AdminClient({**reach, "log_level": 0})


def a_producer(reach: Reach, acks: str, extra: dict[str, Any]) -> Producer:
    """Make a producer; both clusters get the same."""
    return Producer({**reach, "acks": acks, "log_level": 0} | extra)


def produce(reach: Reach, topic: str, acks: str, value: bytes, seconds: float) -> float:
    """Produce for some seconds as fast as the cluster takes it; return acknowledged records per second.

    Returns when every replica has them: with acks=1 the followers may still be copying, and would slow what is measured next.
    """
    errors: list[Any] = []
    producer = a_producer(reach, acks, kinds.QUEUE | {"delivery.report.only.error": True})
    before = log_end_offset(reach, topic)
    offered = 0
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        try:
            for _ in range(1000):
                producer.produce(topic, value, None, 0, on_delivery=lambda error, _: errors.append(error))
                offered += 1
        except BufferError:
            producer.poll(0.001)
        producer.poll(0)
    assert producer.flush(60) == 0, "records are left after a minute"
    rate = offered / (time.perf_counter() - began)
    assert not errors, errors[0]
    replicated(reach, topic, before + offered)
    return rate


def replicated(reach: Reach, topic: str, end_offset: int) -> None:
    """Wait until the whole ISR has everything; what was acknowledged and is not there fails the benchmark."""
    deadline = time.monotonic() + 60
    while (now := log_end_offset(reach, topic)) < end_offset:
        assert time.monotonic() < deadline, f"{topic}: {now} of {end_offset} after a minute"
        time.sleep(0.05)
    assert now == end_offset, f"{topic}: {now}, not {end_offset}"


def one_at_a_time(reach: Reach, topic: str, count: int) -> list[float]:
    """Return how many ms each of `count` records took, ascending; the next is sent when the last is acknowledged."""
    producer = a_producer(reach, "all", {"linger.ms": 0})
    for _ in range(20):
        acknowledge(producer, topic)
    times = []
    for _ in range(count):
        began = time.perf_counter()
        acknowledge(producer, topic)
        times.append((time.perf_counter() - began) * 1000)
    return sorted(times)


def acknowledge(producer: Producer, topic: str) -> None:
    """Send one record and wait until it is acknowledged."""
    outcomes: list[Any] = []
    producer.produce(topic, b"x" * 100, partition=0, on_delivery=lambda error, _: outcomes.append(error))
    while not outcomes:
        producer.poll(0.05)
    assert outcomes == [None], outcomes


def log_end_offset(reach: Reach, topic: str) -> int:
    """Ask the leader for its high watermark; a consumer would have the groups' topic created meanwhile."""
    partition = TopicPartition(topic, 0)
    admin = an_admin(reach)
    return int(admin.list_offsets({partition: OffsetSpec.latest()})[partition].result(20).offset)


def leader_of(reach: Reach, topic: str) -> int:
    """Ask who leads partition 0; -1 when nobody does yet."""
    known = an_admin(reach).list_topics(topic, timeout=20).topics[topic].partitions
    return int(known[0].leader) if known else -1


def measure(software: Software, nodes: int, options: argparse.Namespace) -> Measured:
    """Measure one software on a fresh cluster."""
    with tempfile.TemporaryDirectory(prefix="compare-", dir=options.dir) as scratch:
        now = datetime.datetime.now(datetime.UTC)
        authority = Authority(Path(scratch, "authority"), now) if options.tls else None
        cluster = SideBySide(
            software, Path(scratch), brokers=nodes, controllers=0, settings=settings(nodes), authority=authority
        )
        with cluster:
            return Bench(cluster, nodes, options, authority).run()


def compared(ours: Measured, kafka: Measured) -> list[Row]:
    """Join what both did."""
    return [
        {
            "name": name,
            "unit": name.rpartition(" ")[2],
            "better": HIGHER if name.endswith("/s") else LOWER,
            "ours": round(ours[name], 3),
            "kafka": round(kafka[name], 3),
            "ratio": round(ours[name] / kafka[name], 3),
        }
        for name in ours
    ]


def table(rows: list[Row]) -> str:
    """Write the rows for people."""
    lines = [f"{'':58} {'ours':>12} {'kafka':>12} {'ratio':>7}  better"]
    lines += [
        f"{row['name']:58} {row['ours']:12,.2f} {row['kafka']:12,.2f} {row['ratio']:7.2f}  {row['better']}"
        for row in rows
    ]
    return "\n".join(lines)


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Ours and Apache Kafka, side by side.")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--seconds", type=float, default=2.0, help="of each throughput measurement")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--failover", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--tls", action="store_true", help="among brokers, and between them and the client")
    parser.add_argument("--kinds", action="store_true", help="more kinds of load")
    parser.add_argument("--dir", help="where the logs go; default: the system's temporary folder")
    parser.add_argument("--ours-only", action="store_true", help="measure ours alone, for work on it")
    return parser.parse_args()


def main() -> int:
    """Compare."""
    options = parsed()
    both: list[Callable[[], Software]] = [Ours]
    try:
        options.jars = None
        if not options.ours_only:
            options.jars = jars = kafka_jars()
            both.append(lambda: ApacheKafka(jars))
    except NoJars as problem:
        print(problem, file=sys.stderr)
        return 1
    rows: list[Row] = []
    for nodes in options.nodes:
        measured = [measure(software(), nodes, options) for software in both]
        rows += compared(measured[0], measured[-1])
    print(json.dumps(rows, indent=1) if options.json else table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
