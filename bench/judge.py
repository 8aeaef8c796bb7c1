"""How fast a recording is judged: produces, as many reads, three final logs, spread over partitions.

`python bench/judge.py --sizes 100000,1000000 --json` prints one row per size: produces, seconds (median),
cpu_seconds and peak_mib of the whole process tree, worker_mib of the largest of Spark's Python workers. With `--executors 1,2` a
standalone cluster of so many executors of one core judges, once for each number. `--parts` judges here, and prints for each kind of
work item how many there are, their CPU seconds, and the seconds of the longest. `--recordings FOLDER` keeps recordings, and takes those that are there.
With `--jitter` no two times are alike, as in a run: the files are as large as a run's, where even times take next to no room.
`--stored` judges each recording here in one process, puts it on a server that speaks S3, lets a cluster (of two executors, or the number
of `--executors`) judge it from there, and fails unless verdict and details are the same; in its recordings acknowledged records are lost.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.checkers.spark_clusters import standalone
from tests.results.s3_server import s3_server
from tribunal.checkers.judge import engine
from tribunal.checkers.judge.items import WorkItem, work_items
from tribunal.checkers.judge.judge import Histories, judge_item, second_look
from tribunal.checkers.judge.tables import Tables
from tribunal.checkers.spark.session import session
from tribunal.results.manifest import KRAFT, Made
from tribunal.results.recording import TABLES
from tribunal.results.storage import Storage
from tribunal.results.store import Recorder
from tribunal.results.values import SEQUENCE_BITS

PROCESSES = 16
STEP_NS = 20_000
SEND_NS = 5_000_000
PIECE = 4_000_000
LOSES = 8  # every so many-th partition
LOST = 20  # records of it
Row = dict[str, float | str]


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


def make(run_dir: Path, produces: int, partitions: int, *, jitter: bool = False, lost: int = 0) -> None:
    """Write a run without anomalies; with `lost` a finished one, of which every eighth partition has lost so many records."""
    recorder = Recorder(run_dir, run_dir.name)
    random = np.random.default_rng(1) if jitter else None
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
            offsets = np.arange(first, min(first + PIECE, count), dtype=np.int64)
            write_piece(recorder, place, offsets, sequences, random, kept=without(lost, offsets, count, partition))
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
    if lost:
        settings = {"min.insync.replicas": 2, "unclean.leader.election.enable": False}
        recorder.finish(Made(mode=KRAFT, settings=settings))
    else:
        recorder.close_segment()


def without(lost: int, offsets: np.ndarray, count: int, partition: int) -> np.ndarray:
    """Return the offsets that are kept of a partition that loses so many records, evenly."""
    if not lost or partition % LOSES:
        return offsets
    return offsets[~np.isin(offsets, np.linspace(0, count - 2, lost, dtype=np.int64))]


def write_piece(
    recorder: Recorder,
    place: dict[str, object],
    offsets: np.ndarray,
    sequences: np.ndarray,
    random: np.random.Generator | None,
    kept: np.ndarray,
) -> None:
    """Write the sends of some offsets of one partition, and the reads and the three logs of those that are kept."""
    process = offsets % PROCESSES
    values = (process << SEQUENCE_BITS) | (sequences[process] + offsets // PROCESSES)
    # Partitions are written one after the other, each with a start of its own.
    invoke = (int(sequences[0]) * PROCESSES + offsets) * STEP_NS
    known = {**place, "value": values, "log_offset": offsets}
    sent = {"worker_class": "idempotent", "acks": -1, "outcome": "ok", "process": process}
    took = np.full(offsets.size, SEND_NS)
    if random is not None:
        # A process sends one record after the other: none of its times goes back.
        invoke = invoke + random.integers(0, STEP_NS * PROCESSES, offsets.size)
        took = took + random.exponential(SEND_NS, offsets.size).astype(np.int64)
    times = {"invoke_ns": invoke, "complete_ns": invoke + took}
    recorder.write("sends", table("sends", offsets.size, **known, **sent, **times))
    read = {"process": 99, "poll_index": 0, "leader_epoch": 0, "phase": "final"}
    known = {**place, "value": values[kept - offsets[0]], "log_offset": kept}
    recorder.write("reads", table("reads", kept.size, **known, **read))
    for node in (1, 2, 3):
        log = {"node": node, "leader_epoch": 0, "is_control": False}
        recorder.write("logs", table("logs", kept.size, **known, **log))


def tree() -> tuple[float, float, float]:
    """Return CPU seconds and resident MiB of this process and all its descendants, and MiB of the largest Python worker of Spark's."""
    seconds = mebibytes = worker = 0.0
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
        own_mib = int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
        mebibytes += own_mib
        worker = max(worker, own_mib) if is_worker(process) else worker
        stack += children.get(process, [])
    return seconds, mebibytes, worker


def is_worker(process: int) -> bool:
    try:
        return b"daemon" in (Path("/proc") / str(process) / "cmdline").read_bytes()
    except OSError:  # it has ended meanwhile
        return False


class Peak:
    """Watches the tree's memory while something runs."""

    def __enter__(self) -> "Peak":
        self.mebibytes, self.worker, self._over = 0.0, 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            _, mebibytes, worker = tree()
            self.mebibytes, self.worker = max(self.mebibytes, mebibytes), max(self.worker, worker)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="100000,1000000")
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--engine", choices=("spark", "inline"), default="spark")
    parser.add_argument("--executors", default="")
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--jitter", action="store_true")
    parser.add_argument("--stored", action="store_true")
    parser.add_argument("--recordings", type=Path)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="tribunal-bench-"))
    folder = chosen.recordings or scratch
    try:
        name = str(chosen.partitions) + "-jitter" * chosen.jitter + "-lost" * chosen.stored
        runs = {int(size): folder / f"{size}-{name}" for size in chosen.sizes.split(",")}
        for size, run_dir in runs.items():
            if run_dir.exists():
                continue
            # In a process of its own: what making it takes is not to be counted.
            maker = multiprocessing.get_context("spawn").Process(
                target=make, args=(run_dir, size, chosen.partitions),
                kwargs={"jitter": chosen.jitter, "lost": LOST if chosen.stored else 0},
            )  # fmt: skip
            maker.start()
            maker.join()
            assert maker.exitcode == 0
        for row in rows_of(chosen, runs, scratch):
            print(json.dumps(row) if chosen.json else "  ".join(f"{name} {value}" for name, value in row.items()))
    finally:
        shutil.rmtree(scratch)


def rows_of(chosen: argparse.Namespace, runs: dict[int, Path], scratch: Path) -> list[Row]:
    """Judge each recording in the ways that were asked for."""
    if chosen.stored:
        executors = int(chosen.executors or 2)
        return [row for size, run_dir in runs.items() for row in from_storage(size, run_dir, executors, scratch)]
    if chosen.parts:
        return [row for size, run_dir in runs.items() for row in parts(size, run_dir)]
    if chosen.engine == "inline":
        return [
            measured(size, chosen.repeats, lambda d=run_dir: engine.judge_runs([d], "inline"))
            for size, run_dir in runs.items()
        ]
    rows = []
    for executors in [int(count) for count in chosen.executors.split(",") if count] or [None]:
        with ExitStack() as stack:
            master = "local[2]"
            if executors is not None:
                cluster = scratch / f"cluster-{executors}"
                cluster.mkdir()
                master = stack.enter_context(standalone(cluster, workers=executors)).url
            spark = stack.enter_context(session(master))
            for size, run_dir in runs.items():
                row = measured(
                    size, chosen.repeats, lambda d=run_dir, s=spark: engine.judge_with_spark(s, "spark", work_items(d))
                )
                rows.append({"executors": executors, **row} if executors else row)
    return rows


def from_storage(size: int, run_dir: Path, executors: int, scratch: Path) -> list[Row]:
    """Judge a recording here and, from storage, by a cluster; both have to come to the same."""
    cluster_dir = scratch / f"cluster-{size}"
    cluster_dir.mkdir()
    here = checked(size, "here", str(run_dir), "--engine", "inline")
    with s3_server() as address:
        url = Storage(address).put(run_dir, f"nights/{run_dir.name}")
        with standalone(cluster_dir, workers=executors) as cluster:
            there = checked(size, f"{executors} executors", url, "--master", cluster.url)
    mine, other = here.pop("verdict"), there.pop("verdict")
    differ = [name for name in {*mine, *other} - {"engine"} if mine.get(name) != other.get(name)]
    assert not differ, differ
    assert mine["findings"], "nothing was lost, and nothing was compared"
    return [row | {"verdict": mine["verdict"], "findings": len(mine["findings"])} for row in (here, there)]


def checked(size: int, where: str, *words: str) -> dict[str, Any]:
    """Run `tribunal check` in a process of its own; return its verdict and what it took, this machine's server of S3 included."""
    before, start = tree()[0], time.perf_counter()
    command = [sys.executable, "-W", "ignore", "-m", "tribunal", "check", "--json", *words]
    with Peak() as peak:
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 1, f"exit code {ended.returncode}: {ended.stdout[-500:]}"
    return {
        "produces": size,
        "where": where,
        "seconds": round(time.perf_counter() - start, 1),
        "cpu_seconds": round(tree()[0] - before, 1),
        "peak_mib": round(peak.mebibytes),
        "worker_mib": round(peak.worker),
        "verdict": json.loads(ended.stdout.splitlines()[-1]),
    }


def parts(size: int, run_dir: Path) -> list[Row]:
    """Judge a recording here, one work item after the other, and say what each kind of them takes."""
    took: dict[str, list[float]] = defaultdict(list)

    def timed(name: str, work: Callable[[], list[WorkItem]]) -> list[WorkItem]:
        before = time.process_time()
        done = work()
        took[name].append(time.process_time() - before)
        return done

    tables, histories = Tables(), Histories()
    items = timed("items", lambda: work_items(run_dir))
    while items:
        for item in items:
            timed(type(item).__name__, lambda i=item: tables.add(judge_item(i, histories=histories)) or [])
        items = timed("items again", lambda: second_look(tables))
    return [
        {"produces": size, "part": name, "count": len(own), "cpu_seconds": round(sum(own), 2), "longest": round(max(own), 2)}
        for name, own in took.items()
    ]  # fmt: skip


def measured(size: int, repeats: int, judge: Callable[[], Tables]) -> Row:
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
        "cpu_seconds_per_million": round(statistics.median(cpu) / size * 1e6, 3),
        "peak_mib": round(peak.mebibytes),
        "worker_mib": round(peak.worker),
    }


if __name__ == "__main__":
    main()
