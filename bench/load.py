"""A broker under bad company: memory stays bounded, other clients are served, nothing leaks.

    python bench/load.py                        # ten minutes
    python bench/load.py --seconds 20 --json    # {"holds": true, "rounds": [...], ...}

One node of ours serves, all at once:
    connections  clients that come, ask for metadata and go, 500 of them open at any time
    slow         readers that ask for much and take it a few bytes at a time
    half-open    connections that begin a request and say no more
    garbage      bytes that are no protocol at all, as fast as they go, up to 100 MiB/s
    client       one orderly producer, one record at a time with acks=all: what the others must not disturb

Every few seconds it is noted what the node holds. It holds if memory never exceeds `--memory-mib`, the orderly client's p99
stays below `--latency-ms`, and in the end, when all have left, no more descriptors are open than before.
"""

import argparse
import asyncio
import contextlib
import json
import os
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.orderly import OrderlyClient
from tribunal.clusters.kafka.side_by_side import Ours, SideBySide

TOPIC = "load"
RECORD_BYTES = 100_000
RECORDS = 300  # in the log, for the slow readers
GARBAGE_BYTES = 1 << 16
NOTE_S = 2.0
Row = dict[str, Any]


def request(api: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """Return a request with an old, inflexible header."""
    head = struct.pack(">hhih4s", api, version, correlation_id, 4, b"load")
    return struct.pack(">i", len(head) + len(body)) + head + body


def fetch(partition_bytes: int) -> bytes:
    """Return a Fetch (version 4) of everything in the topic."""
    body = struct.pack(">iiiibi", -1, 1000, 1, 0x7FFFFFFF, 0, 1)
    name = TOPIC.encode()
    body += struct.pack(">h", len(name)) + name + struct.pack(">iiqi", 1, 0, 0, partition_bytes)
    return request(1, 4, 7, body)


METADATA_REQUEST = request(3, 1, 1, struct.pack(">i", 0))
UNFINISHED = struct.pack(">i", 1 << 20) + request(0, 3, 1, b"")[4:]


class Company:
    """All bad clients on one event loop in a thread of its own."""

    def __init__(self, endpoint: tuple[str, int], options: argparse.Namespace) -> None:
        self.endpoint = endpoint
        self.options = options
        self.counts = dict.fromkeys(("asked", "slow_bytes", "half_open", "garbage_bytes", "refused"), 0)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> "Company":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(30)

    async def _run(self) -> None:
        options = self.options
        tasks = [
            *[self._forever(self._visit) for _ in range(options.connections)],
            *[self._forever(self._read_slowly) for _ in range(options.slow)],
            *[self._forever(self._begin_and_stop) for _ in range(options.half_open)],
            *[self._forever(self._talk_nonsense) for _ in range(options.garbage)],
        ]
        running = [asyncio.create_task(task) for task in tasks]
        await asyncio.to_thread(self._ended.wait)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _forever(self, what: Any) -> None:
        while True:
            writer = None
            try:
                reader, writer = await asyncio.open_connection(*self.endpoint)
                await what(reader, writer)
            except (OSError, asyncio.IncompleteReadError):
                self.counts["refused"] += 1
                await asyncio.sleep(0.05)
            finally:
                if writer is not None:
                    writer.transport.abort()

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(5):
            writer.write(METADATA_REQUEST)
            await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
            self.counts["asked"] += 1
            await asyncio.sleep(1)

    async def _read_slowly(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(50):
            writer.write(fetch(50 << 20))
        for _ in range(200):
            self.counts["slow_bytes"] += len(await reader.readexactly(1000))
            await asyncio.sleep(0.05)

    async def _begin_and_stop(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(UNFINISHED)
        self.counts["half_open"] += 1
        await asyncio.sleep(10)

    async def _talk_nonsense(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        junk = os.urandom(GARBAGE_BYTES)
        # A produce that names a length it will have, full of noise: it has to be taken in before it can be refused.
        writer.write(struct.pack(">i", 1 << 20) + request(0, 3, 1, b"")[4:])
        for _ in range(16):
            began = time.monotonic()
            writer.write(junk)
            self.counts["garbage_bytes"] += GARBAGE_BYTES
            await writer.drain()
            share_s = GARBAGE_BYTES * self.options.garbage / (self.options.garbage_mib << 20)
            await asyncio.sleep(max(0.0, share_s - (time.monotonic() - began)))


def descriptors(pid: int) -> int:
    """Return how many descriptors a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - names are enough


def fill(bootstrap: str) -> None:
    """Create the topic and fill its first partition for the slow readers."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for _ in range(RECORDS):
        producer.produce(TOPIC, os.urandom(RECORD_BYTES), partition=0)
        producer.poll(0)
        producer.flush(0.001)
    assert producer.flush(60) == 0


def run(cluster: SideBySide, options: argparse.Namespace) -> Row:
    """Let them all loose, then look what is left."""
    fill(cluster.bootstrap)
    pid = cluster.processes[1].pid
    rounds: list[Row] = []
    with OrderlyClient(cluster.bootstrap, TOPIC, 1, pause_s=0.02) as client:
        time.sleep(1)
        before = descriptors(pid)
        began = time.monotonic()
        with Company(cluster.places[1].endpoint, options) as company:
            while time.monotonic() - began < options.seconds:
                time.sleep(min(NOTE_S, options.seconds))
                rounds.append(
                    {
                        "second": round(time.monotonic() - began),
                        "memory_mib": round(cluster.memory_mib(1), 1),
                        "descriptors": descriptors(pid),
                        "served": len(client.times_ms),
                    }
                    | company.counts
                )
                print(f"    {rounds[-1]}", file=sys.stderr, flush=True)
        time.sleep(2)
        after = descriptors(pid)
    passed_s = time.monotonic() - began
    memory_mib = max(row["memory_mib"] for row in rounds)
    result = {
        "memory_mib_max": memory_mib,
        "latency_p50_ms": round(client.percentile(0.5), 2),
        "latency_p99_ms": round(client.percentile(0.99), 2),
        "descriptors_before": before,
        "descriptors_during": max(row["descriptors"] for row in rounds),
        "descriptors_after": after,
        "garbage_mib_per_s": round(company.counts["garbage_bytes"] / passed_s / (1 << 20), 1),
        "requests_per_s": round(company.counts["asked"] / passed_s),
    }
    holds = memory_mib <= options.memory_mib and after <= before + 2
    holds = holds and result["latency_p99_ms"] <= options.latency_ms and cluster.processes[1].poll() is None
    return {"holds": holds, **result, "rounds": rounds}


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="A broker under bad company.")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--connections", type=int, default=500)
    parser.add_argument("--slow", type=int, default=20)
    parser.add_argument("--half-open", type=int, default=50)
    parser.add_argument("--garbage", type=int, default=8, help="connections that send garbage")
    parser.add_argument("--garbage-mib", type=int, default=100, help="a second, all of them together")
    parser.add_argument("--memory-mib", type=float, default=256)
    parser.add_argument("--latency-ms", type=float, default=1000)
    parser.add_argument("--dir", help="where the logs go; default: the system's temporary folder")
    return parser.parse_args(arguments)


def measured(arguments: list[str] | None = None) -> Row:
    """Run it on a fresh node."""
    options = parsed(arguments)
    settings = {"offsets.topic.replication.factor": 1}
    with (
        tempfile.TemporaryDirectory(prefix="load-", dir=options.dir) as scratch,
        SideBySide(Ours(), Path(scratch), brokers=1, controllers=0, settings=settings) as cluster,
    ):
        result = run(cluster.up(), options)
        if not result["holds"]:
            with contextlib.suppress(OSError):
                print(cluster.places[1].log.read_text()[-2000:], file=sys.stderr)
        return result


def main() -> int:
    """Measure."""
    options = parsed(None)
    result = measured(sys.argv[1:])
    rounds = result.pop("rounds")
    print(json.dumps({**result, "rounds": rounds}, indent=1) if options.json else json.dumps(result, indent=1))
    return 0 if result["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
