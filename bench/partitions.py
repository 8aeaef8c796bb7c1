"""What partitions cost: memory, start-up, creation and idle CPU of a broker, from 10 to 2,000 partitions on it.

    python bench/partitions.py                 # a table; about three minutes
    python bench/partitions.py --json          # [{"partitions", "memory_mib", "start_s", "create_s", ...}, ...]
    python bench/partitions.py --counts 10 500 --idle-seconds 5

One controller and two brokers with replication factor 2, so that each broker hosts every partition, leads half of them and
follows the other half. Memory and CPU are those of the broker that has more. `start_s` is from the start of broker 1's
process until it is in the ISR of all its partitions again, after a stop in good order; `stall_ms` is the longest time that one
record, sent again and again with acks=all while partitions were created, took; `fenced` counts sessions lost meanwhile.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from bench.orderly import OrderlyClient
from tribunal.clusters.kafka.side_by_side import Ours, SideBySide

COUNTS = (10, 100, 500, 1000, 2000)
TOPIC = "many"
PROBE = "probe"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
Row = dict[str, Any]


class Bench:
    """One cluster that gets more and more partitions."""

    def __init__(self, cluster: SideBySide, options: argparse.Namespace) -> None:
        self.cluster = cluster
        self.options = options
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

    def run(self) -> list[Row]:
        """Measure at every count."""
        self.cluster.up()
        self.admin.create_topics([NewTopic(PROBE, 1, 2)])[PROBE].result(30)
        self._wait_in_sync(PROBE, 1)
        rows = []
        for count in self.options.counts:
            rows.append(self._row(count))
            print(f"    {rows[-1]}", file=sys.stderr, flush=True)
        return rows

    def _row(self, count: int) -> Row:
        fenced = self._fenced()
        with OrderlyClient(self.cluster.bootstrap, PROBE, 0) as probing:
            began = time.perf_counter()
            self._grow(count)
            self._wait_served(count)
            create_s = time.perf_counter() - began
        fenced = self._fenced() - fenced
        time.sleep(2)
        cpu = self._idle_cpu()
        memory = max(self.cluster.memory_mib(node) for node in self.cluster.broker_ids)
        return {
            "partitions": count,
            "memory_mib": round(memory, 1),
            "idle_cpu_percent": round(cpu, 2),
            "create_s": round(create_s, 2),
            "stall_ms": round(max(probing.times_ms), 1),
            "fenced": fenced,
            "start_s": round(self._restart(count), 2),
        }

    def _grow(self, count: int) -> None:
        if count == self.options.counts[0]:
            self.admin.create_topics([NewTopic(TOPIC, count, 2)])[TOPIC].result(60)
        else:
            self.admin.create_partitions([NewPartitions(TOPIC, count)])[TOPIC].result(60)

    def _wait_served(self, count: int) -> None:
        """Wait until leaders answer for all partitions and both brokers have all logs."""
        self._wait_in_sync(TOPIC, count)
        self.cluster.wait_until(lambda: self._logs() == count, f"{count} logs", 180)
        self.cluster.wait_until(lambda: self._led(count) == count, f"{count} led", 180)

    def _led(self, count: int) -> int:
        asked = {TopicPartition(TOPIC, index): OffsetSpec.latest() for index in range(count)}
        answers = self.admin.list_offsets(asked, request_timeout=60).values()
        return sum(answer.exception(60) is None for answer in answers)

    def _logs(self) -> int:
        folders = [list(self.cluster.places[node].data.glob(f"{TOPIC}-*")) for node in self.cluster.broker_ids]
        return min(map(len, folders))

    def _wait_in_sync(self, topic: str, count: int) -> None:
        self.cluster.wait_until(lambda: self._in_sync(topic) == count, f"{count} partitions in sync", 180)

    def _in_sync(self, topic: str) -> int:
        partitions = self.admin.list_topics(topic, timeout=20).topics[topic].partitions.values()
        return sum(len(partition.isrs) == 2 and partition.leader > 0 for partition in partitions)

    def _idle_cpu(self) -> float:
        """Return the percentage of a core that the busier broker takes while nobody asks for anything."""
        before = [self._cpu_s(node) for node in self.cluster.broker_ids]
        began = time.perf_counter()
        time.sleep(self.options.idle_seconds)
        passed = time.perf_counter() - began
        after = [self._cpu_s(node) for node in self.cluster.broker_ids]
        return 100 * max(b - a for a, b in zip(before, after, strict=True)) / passed

    def _cpu_s(self, node: int) -> float:
        fields = Path(f"/proc/{self.cluster.processes[node].pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def _restart(self, count: int) -> float:
        self.cluster.stop(1)
        began = time.perf_counter()
        self.cluster.start(1)
        self._wait_in_sync(TOPIC, count)
        self._wait_in_sync(PROBE, 1)
        return time.perf_counter() - began

    def _fenced(self) -> int:
        lines = [(self.cluster.places[node].folder / "events.jsonl").read_text() for node in self.cluster.places]
        return sum(text.count('"event":"fenced"') for text in lines)


def table(rows: list[Row]) -> str:
    """Write the rows for people."""
    names = list(rows[0])
    lines = ["  ".join(f"{name:>16}" for name in names)]
    lines += ["  ".join(f"{row[name]:>16}" for name in names) for row in rows]
    return "\n".join(lines)


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="What partitions cost a broker.")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS)
    parser.add_argument("--idle-seconds", type=float, default=10.0)
    parser.add_argument("--dir", help="where the logs go; default: the system's temporary folder")
    return parser.parse_args(arguments)


def measured(arguments: list[str] | None = None) -> list[Row]:
    """Measure on a fresh cluster."""
    options = parsed(arguments)
    settings = {"default.replication.factor": 2, "min.insync.replicas": 1, "offsets.topic.replication.factor": 2}
    with (
        tempfile.TemporaryDirectory(prefix="partitions-", dir=options.dir) as scratch,
        SideBySide(Ours(), Path(scratch), brokers=2, controllers=1, settings=settings) as cluster,
    ):
        return Bench(cluster, options).run()


def main() -> int:
    """Measure and print."""
    rows = measured(sys.argv[1:])
    print(json.dumps(rows, indent=1) if parsed(None).json else table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
