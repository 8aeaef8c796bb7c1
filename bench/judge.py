"""How fast a recording is judged: produces, as many reads, three final logs, spread over partitions.

`python bench/judge.py --sizes 100000,1000000 --json` prints one row per size: produces, seconds (median),
cpu_seconds and peak_mib of the whole process tree.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tribunal.checkers.judge import engine
from tribunal.checkers.judge.items import work_items
from tribunal.checkers.spark.session import session
from tribunal.results.recording import TABLES
from tribunal.results.store import Recorder
from tribunal.results.values import SEQUENCE_BITS

PROCESSES = 16
STEP_NS = 20_000
PIECE = 4_000_000


def table(name: str, count: int, **columns: object) -> pa.Table:
    """Build rows of one table from arrays and constants; what is not named is unknown."""
    arrays = []
    for column, kind in TABLES[name].fields.items():
        given = columns.get(column)
        if given is None:
            arrays.append(pa.nulls(count, kind))
        elif isinstance(given, np.ndarray):
            arrays.append(pa.array(given).cast(kind))
        elif isinstance(given, str):
            arrays.append(pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), [given]))
        else:
            arrays.append(pa.array(np.full(count, given)).cast(kind))
    return pa.Table.from_arrays(arrays, names=list(TABLES[name].fields))


def make(run_dir: Path, produces: int, partitions: int) -> None:
    """Write a sound run without anomalies."""
    recorder = Recorder(run_dir, run_dir.name)
    sequences = np.zeros(PROCESSES, np.int64)
    metadata = [
        {"record_type": "RegisterBrokerRecord", "body": {"broker_id": n, "broker_epoch": n, "fenced": False}}
        for n in (1, 2, 3)
    ]
    for partition in range(partitions):
        count = produces // partitions
        place = {"topic": "t", "partition": partition}
        # A piece at a time, as a run writes it: one hot partition of a hundred million would take tens of gigabytes.
        for first in range(0, count, PIECE):
            write_piece(recorder, place, np.arange(first, min(first + PIECE, count), dtype=np.int64), sequences)
        sequences += -(-count // PROCESSES)
        poll = {
            "process": 99,
            "isolation": "read_uncommitted",
            "phase": "final",
            "outcome": "ok",
            "high_watermark": count,
            "log_start_offset": 0,
        }
        recorder.row("polls", **place, **poll, poll_index=0, position=0, record_count=count, invoke_ns=0, complete_ns=1)
        recorder.row("polls", **place, **poll, poll_index=1, position=count, record_count=0, invoke_ns=2, complete_ns=3)
        body = {"partition_id": partition, "replicas": [1, 2, 3], "isr": [1, 2, 3], "leader": 1, "leader_epoch": 0}
        metadata.append({"record_type": "PartitionRecord", "body": body, **place})
    for offset, row in enumerate(metadata):
        recorder.row(
            "metadata", metadata_offset=offset, quorum_epoch=1, at_ns=0, **(row | {"body": json.dumps(row["body"])})
        )
    recorder.close_segment()


def write_piece(recorder: Recorder, place: dict[str, object], offsets: np.ndarray, sequences: np.ndarray) -> None:
    """Write the sends, the reads and the three logs of some offsets of one partition."""
    process = offsets % PROCESSES
    values = (process << SEQUENCE_BITS) | (sequences[process] + offsets // PROCESSES)
    # Partitions are written one after the other, each with a start of its own.
    invoke = (int(sequences[0]) * PROCESSES + offsets) * STEP_NS
    known = {**place, "value": values, "log_offset": offsets}
    sent = {"worker_class": "idempotent", "acks": -1, "outcome": "ok", "process": process}
    times = {"invoke_ns": invoke, "complete_ns": invoke + 5_000_000}
    recorder.write("sends", table("sends", offsets.size, **known, **sent, **times))
    read = {"process": 99, "poll_index": 0, "leader_epoch": 0, "phase": "final"}
    recorder.write("reads", table("reads", offsets.size, **known, **read))
    for node in (1, 2, 3):
        log = {"node": node, "leader_epoch": 0, "is_control": False}
        recorder.write("logs", table("logs", offsets.size, **known, **log))


def tree() -> tuple[float, float]:
    """Return CPU seconds and resident MiB of this process and all its descendants."""
    seconds = mebibytes = 0.0
    children: dict[int, list[tuple[int, list[str]]]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append((int(entry.name), fields))
    own = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()
    stack = [(os.getpid(), own)]
    while stack:
        process, fields = stack.pop()
        seconds += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
        mebibytes += int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
        stack += children.get(process, [])
    return seconds, mebibytes


class Peak:
    """Watches the tree's memory while something runs."""

    def __enter__(self) -> "Peak":
        self.mebibytes, self._over = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            self.mebibytes = max(self.mebibytes, tree()[1])

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="100000,1000000")
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--engine", choices=("spark", "inline"), default="spark")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tribunal-bench-"))
    try:
        sizes = [int(size) for size in chosen.sizes.split(",")]
        for size in sizes:
            # In a process of its own: what making it takes is not to be counted.
            maker = multiprocessing.get_context("spawn").Process(
                target=make, args=(folder / str(size), size, chosen.partitions)
            )
            maker.start()
            maker.join()
            assert maker.exitcode == 0
        if chosen.engine == "inline":
            rows = [
                measured(size, chosen.repeats, lambda d=folder / str(size): engine.judge_runs([d], "inline"))
                for size in sizes
            ]
        else:
            with session("local[2]") as spark:
                rows = [
                    measured(
                        size,
                        chosen.repeats,
                        lambda d=folder / str(size): engine.judge_with_spark(spark, "spark", work_items(d)),
                    )
                    for size in sizes
                ]
    finally:
        shutil.rmtree(folder)
    for row in rows:
        print(json.dumps(row) if chosen.json else "  ".join(f"{name} {value}" for name, value in row.items()))


def measured(size: int, repeats: int, judge) -> dict[str, float]:
    """Judge so many times; the first job of a session is reported as `first_seconds`."""
    seconds, cpu = [], []
    with Peak() as peak:
        for _ in range(repeats):
            before, start = tree()[0], time.perf_counter()
            found = judge()
            seconds.append(time.perf_counter() - start)
            cpu.append(tree()[0] - before)
            wrong = [*found.damages, *found.failures]
            wrong += [row for row in found.findings if row.finding.severity != "note"]
            assert not wrong, wrong[:3]
    return {
        "produces": size,
        "seconds": round(statistics.median(seconds), 2),
        "first_seconds": round(seconds[0], 2),
        "cpu_seconds": round(statistics.median(cpu), 2),
        "peak_mib": round(peak.mebibytes),
    }


if __name__ == "__main__":
    main()
