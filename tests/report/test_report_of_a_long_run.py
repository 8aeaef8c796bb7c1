"""The report of an hour with ten million sends: what grows with a run is reduced, and the file stays one that can be mailed.

The run has what runs of an hour have: faults and leader changes every other second, watermarks of leaders, polls, transactions, commits,
and a partition that lost five thousand acknowledged records.
"""

import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from msgspec import convert

from tribunal.results.recording import TABLES
from tribunal.results.store import Recorder, Recording
from tribunal.results.values import SEQUENCE_BITS
from tribunal.results.verdict import Conditions, Finding, InjectedFault, PhaseLoad, RunVerdict, Verdict, save

ROOT = Path(__file__).resolve().parents[2]
HOUR_NS = 3_600_000_000_000
TRIBUNAL = [sys.executable, "-m", "tribunal.harness.cli.main"]
MOST_BYTES = 5_000_000
MOST_CPU_SECONDS = 20


def rows(name: str, count: int, **columns: object) -> pa.Table:
    """Build rows of one table from arrays and constants; what is not named is unknown."""
    arrays = []
    for column, kind in TABLES[name].fields.items():
        given = columns.get(column)
        if given is None:
            arrays.append(pa.nulls(count, kind))
        elif isinstance(given, str):
            arrays.append(pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), [given]))
        else:
            arrays.append(pa.array(np.broadcast_to(np.asarray(given), count)).cast(kind))
    return pa.Table.from_arrays(arrays, names=list(TABLES[name].fields))


def spread(count: int) -> np.ndarray:
    """Return so many moments of the hour."""
    return np.linspace(0, HOUR_NS - 1_000_000_000, count).astype(np.int64)


def partition_of_the_run(recorder: Recorder, partition: int, sends: int, lost: int) -> None:
    place = {"topic": "t", "partition": partition}
    offsets = np.arange(sends, dtype=np.int64)
    process = 1 + partition % 16
    values = (process << SEQUENCE_BITS) | (offsets + (partition // 16) * 1_000_000)
    invoke = spread(sends)
    took = 2_000_000 + (offsets * 7_919 % 50_000_000)
    recorder.write(
        "sends",
        rows("sends", sends, **place, value=values, log_offset=offsets, worker_class="idempotent", acks=-1, outcome="ok",
             process=process, invoke_ns=invoke, complete_ns=invoke + took),
    )  # fmt: skip
    kept = np.concatenate([offsets[: sends // 2], offsets[sends // 2 + lost :]])
    known = {**place, "value": values[kept], "log_offset": kept, "leader_epoch": 0}
    recorder.write("reads", rows("reads", kept.size, **known, process=99, poll_index=0, phase="final"))
    for node in (1, 2, 3):
        recorder.write("logs", rows("logs", kept.size, **known, node=node, is_control=False))
    polls = 10_000
    recorder.write(
        "polls",
        rows("polls", polls, **place, process=90, poll_index=1 + np.arange(polls), isolation="read_uncommitted", phase="tail",
             outcome="ok", position=np.linspace(0, sends, polls).astype(np.int64), record_count=10, high_watermark=sends,
             invoke_ns=spread(polls), complete_ns=spread(polls) + 1_000_000),
    )  # fmt: skip
    final = {"isolation": "read_uncommitted", "phase": "final", "outcome": "ok", "high_watermark": sends}
    for index, (position, count) in enumerate(((0, kept.size), (sends, 0))):
        times = {"invoke_ns": HOUR_NS + index, "complete_ns": HOUR_NS + index}
        recorder.row(
            "polls", **place, **final, **times, process=99, poll_index=index, position=position, record_count=count, log_start_offset=0
        )  # fmt: skip
    marks = 30_000
    for node in (1, 2, 3):
        ends = np.linspace(0, sends, marks).astype(np.int64)
        recorder.write(
            "watermarks",
            rows("watermarks", marks, **place, observer=f"node-{node}", source="node", leader_epoch=0, high_watermark=ends,
                 log_end_offset=ends + offsets[:marks] % 7, at_ns=spread(marks)),
        )  # fmt: skip


def record(run_dir: Path, *, sends: int, partitions: int, changes: int) -> None:
    recorder = Recorder(run_dir, run_dir.name)
    metadata = []
    for node in (1, 2, 3):
        recorder.row(
            "nodes", node=node, role="broker", event="registered", broker_epoch=node, previous_broker_epoch=-1, at_ns=0
        )
        metadata.append((0, "RegisterBrokerRecord", None, {"broker_id": node, "broker_epoch": node, "fenced": False}))
    for partition in range(partitions):
        partition_of_the_run(recorder, partition, sends // partitions, 5_000 if partition == 3 else 0)
        body = {"partition_id": partition, "replicas": [1, 2, 3], "isr": [1, 2, 3], "leader": 1, "leader_epoch": 0}
        metadata.append((0, "PartitionRecord", partition, body))
    for number, at_ns in enumerate(spread(changes).tolist()):
        leader = 1 + number % 3
        for partition in range(partitions):
            change = {"partition_id": partition, "leader": leader, "isr": [leader, 1 + (number + 1) % 3]}
            metadata.append((at_ns, "PartitionChangeRecord", partition, change))
        recorder.row(
            "faults", index=number, kind="kill", planned_target="leader(p*)", resolved_target=f"broker {leader}", planned_ns=at_ns,
            injected_ns=at_ns, healed_ns=at_ns + 1_000_000_000, proof="gone " * 50, took_effect=True, heal_proof="back " * 50, healed=True,
        )  # fmt: skip
    for offset, (at_ns, kind, partition, body) in enumerate(metadata):
        named = {} if partition is None else {"topic": "t", "partition": partition}
        recorder.row(
            "metadata", metadata_offset=offset, quorum_epoch=1, at_ns=at_ns, record_type=kind, body=json.dumps(body), **named
        )  # fmt: skip
    for number, at_ns in enumerate(spread(20_000).tolist()):
        times = {"begin_ns": at_ns, "end_ns": at_ns + 50_000_000}
        recorder.row("txns", process=200 + number % 8, txn_id=f"txn-{number % 8}", outcome="committed", **times)
        recorder.row(
            "commits", process=300 + number % 4, group="g", generation=1 + number // 1_000, member=f"m-{number % 4}", topic="t",
            partition=number % partitions, kind="commit", committed_offset=number, invoke_ns=at_ns, complete_ns=at_ns + 1_000_000, outcome="ok",
        )  # fmt: skip
    for index, name in enumerate(("warm-up", "faults", "final-read")):
        recorder.row("phases", name=name, start_ns=index * HOUR_NS // 3, end_ns=(index + 1) * HOUR_NS // 3)
    recorder.close_segment()


def judge(run_dir: Path) -> None:
    """Write what a judge says of such a run; how soon one says it is measured by bench/judge.py."""
    recording = Recording.open(run_dir, compare=False)
    lost = 10_000_000 // 64 // 2
    value = (4 << SEQUENCE_BITS) | lost
    sends = recording.table("sends", "t-3", ["value", "complete_ns"]).slice(lost, 5_000).to_pylist()
    assert sends[0]["value"] == value
    findings = [
        Finding(
            property_name="lost_writes", kind="lost", severity="violation", explanation="an acknowledged record is gone", topic="t", partition=3,
            log_offset=lost + number, value=row["value"], acks=-1, acknowledged_ns=row["complete_ns"],
        )
        for number, row in enumerate(sends)
    ]  # fmt: skip
    faults = [convert(row, InjectedFault) for row in recording.table("faults").to_pylist()]
    load = [PhaseLoad(phase="faults", acks=-1, ok=10_000_000, fail=0, info=0, sent=0)]
    save(
        RunVerdict(
            run_id=run_dir.name, verdict=Verdict.VIOLATION, claim="5,000 x lost", findings=findings,
            judged={"acknowledged, acks=all": 10_000_000}, test=Conditions(faults=tuple(faults), load=tuple(load)),
        ),
        run_dir / "verdict.json",
    )  # fmt: skip


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_the_report_of_ten_million_sends_is_small_and_soon_made(tmp_path: Path) -> None:
    run_dir = tmp_path / "long"
    record(run_dir, sends=10_000_000, partitions=64, changes=1_800)
    judge(run_dir)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)

    made = subprocess.run([*TRIBUNAL, "report", str(run_dir)], cwd=ROOT, check=False, capture_output=True, text=True)

    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert made.returncode == 0, made.stderr
    page = run_dir / "report.html"
    print(f"{page.stat().st_size:,} bytes, {cpu_seconds:.1f} s of CPU")
    assert "5,000" in page.read_text()
    assert "A grey bar among coloured ones stands for several" in page.read_text()
    assert page.stat().st_size < MOST_BYTES
    assert cpu_seconds < MOST_CPU_SECONDS
