"""Thousands of partitions with three replicas on three brokers: what it takes until each has acknowledged a record.

    python bench/many_partitions.py                        # 5,000 partitions; a few minutes
    python bench/many_partitions.py --count 10000 --json

One controller, three brokers, replication factor 3, so each broker hosts every partition and leads a third. Times are in seconds:
`created_s` until CreateTopics was answered, `acknowledged_s` from its start until a record was acknowledged (acks=all) in every
partition, `cpu_ms_per_replica` of the busiest broker until then. Then broker 1 is killed (kill -9) with a producer that has sent to
every partition: `again_s` until each partition that it led has acknowledged the next record, `takeover_s` of it between the first
and the last of them (finding out that the broker is dead is not in it), `seen_led_s` until the client then saw a leader of each. `unclean_s` and `clean_s`: from the start of broker 1's process until it is in all ISRs, after that kill and after a stop in good order.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tribunal.clusters.kafka.side_by_side import Ours, SideBySide

TOPIC = "many"
BROKERS = 3
VICTIM = 1
WAIT_S = 300.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Acknowledged(NamedTuple):
    """Seconds until a record was acknowledged in the first of some partitions, and in all of them."""

    first_s: float
    all_s: float


class Sender:
    """A producer that sends one record to each of many partitions, and knows which have acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        patient = {"message.timeout.ms": int(WAIT_S * 1000), "topic.metadata.refresh.interval.ms": 1000}
        eager = {"acks": "all", "linger.ms": 5, "retry.backoff.ms": 50, "log_level": 0}
        self._producer = Producer({"bootstrap.servers": bootstrap, **patient, **eager})

    def send(self, partitions: list[int]) -> "Acknowledged":
        """Return how long it takes until a record is acknowledged in the first, and in each."""
        left = set(partitions)
        began = time.perf_counter()
        first_s: float | None = None

        def acknowledged(partition: int) -> Callable[[object, object], None]:
            def note(error: object, _: object) -> None:
                nonlocal first_s
                assert error is None, error
                first_s = time.perf_counter() - began if first_s is None else first_s
                left.discard(partition)

            return note

        for partition in partitions:
            self._producer.produce(TOPIC, b"x", partition=partition, on_delivery=acknowledged(partition))
        while left and time.perf_counter() - began < WAIT_S:
            self._producer.poll(0.05)
        assert not left, f"{len(left)} partitions acknowledged nothing"
        all_s = time.perf_counter() - began
        return Acknowledged(all_s if first_s is None else first_s, all_s)


class Bench:
    """One cluster with many partitions."""

    def __init__(self, cluster: SideBySide, count: int) -> None:
        self.cluster = cluster
        self.count = count
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

    def run(self) -> dict[str, float]:
        """Create, kill, and start again."""
        sender = Sender(self.cluster.bootstrap)
        found = self._create(sender)
        self._wait(self._is_whole, "all in sync")
        found |= self._kill(sender)
        found["unclean_s"] = self._restart()
        self.cluster.stop(VICTIM)
        found["clean_s"] = self._restart()
        return {name: round(value, 2) for name, value in found.items()}

    def _create(self, sender: Sender) -> dict[str, float]:
        before = self._cpu_s()
        began = time.perf_counter()
        self.admin.create_topics([NewTopic(TOPIC, self.count, BROKERS)], request_timeout=WAIT_S)[TOPIC].result(WAIT_S)
        created_s = time.perf_counter() - began
        sender.send(list(range(self.count)))
        acknowledged_s = time.perf_counter() - began
        used_s = max(after - self_before for after, self_before in zip(self._cpu_s(), before, strict=True))
        per_replica = {"cpu_ms_per_replica": 1000 * used_s / self.count}
        return {"partitions": self.count, "created_s": created_s, "acknowledged_s": acknowledged_s} | per_replica

    def _kill(self, sender: Sender) -> dict[str, float]:
        led = [index for index, (leader, _) in self._state().items() if leader == VICTIM]
        sender.send(led)
        began = time.perf_counter()
        self.cluster.kill(VICTIM)
        again = sender.send(led)
        self._wait(self._is_led, "a leader of each")
        figures = {
            "again_s": again.all_s,
            "takeover_s": again.all_s - again.first_s,
            "seen_led_s": time.perf_counter() - began,
        }
        return {"led_by_victim": len(led)} | figures

    def _restart(self) -> float:
        began = time.perf_counter()
        self.cluster.start(VICTIM)
        self._wait(self._is_whole, "all in sync again")
        return time.perf_counter() - began

    def _is_whole(self) -> bool:
        return sum(isr == BROKERS and leader > 0 for leader, isr in self._state().values()) == self.count

    def _is_led(self) -> bool:
        return all(leader not in (VICTIM, -1) for leader, _ in self._state().values())

    def _state(self) -> dict[int, tuple[int, int]]:
        partitions = self.admin.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions
        return {index: (one.leader, len(one.isrs)) for index, one in partitions.items()}

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        self.cluster.wait_until(condition, what, WAIT_S)

    def _cpu_s(self) -> list[float]:
        used = []
        for node in self.cluster.broker_ids:
            fields = Path(f"/proc/{self.cluster.processes[node].pid}/stat").read_text().rpartition(")")[2].split()
            used.append((int(fields[11]) + int(fields[12])) / TICKS_PER_S)
        return used


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="What thousands of partitions take.")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--dir", help="where the logs go; default: the system's temporary folder")
    return parser.parse_args(arguments)


def measured(arguments: list[str] | None = None) -> dict[str, float]:
    """Measure on a fresh cluster."""
    options = parsed(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="partitions-", dir=options.dir) as scratch,
        SideBySide(Ours(), Path(scratch), brokers=BROKERS, controllers=1, settings={}) as cluster,
    ):
        return Bench(cluster.up(), options.count).run()


def main() -> int:
    """Measure and print."""
    found = measured()
    print(json.dumps(found) if parsed().json else "\n".join(f"{name:>20} {value}" for name, value in found.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
