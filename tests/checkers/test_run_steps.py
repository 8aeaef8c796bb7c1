"""What partitions ask of a run's transactions: of few they are sorted once for all partitions, of many each partition reads its own."""

from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.checkers.grouped_runs import grouped_run, in_row_groups
from tests.checkers.recorded import MS, Run
from tests.checkers.test_ranges import cut_everything, judged
from tribunal.checkers.api import STEPS
from tribunal.checkers.judge import run_steps
from tribunal.checkers.judge.items import WholePartition
from tribunal.checkers.judge.judge import Histories, judge_item
from tribunal.checkers.judge.run_steps import RunSteps
from tribunal.checkers.judge.steps import COMMITTED, WRITES, flat
from tribunal.results.store import Recording


def each_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_steps, "AT_ONCE_BYTES", -1)


@pytest.mark.parametrize("limit", ["AT_ONCE_BYTES", "AT_ONCE_TRANSACTIONS", "AT_ONCE_STEPS"])
def test_many_steps_are_not_sorted_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    run = Run(tmp_path / "run")
    step = {"kind": "send", "topic": "t", "partition": 0, "log_offset": 0, "value": 1}
    for begin in (0, 5):
        ends = {"begin_ns": begin, "end_ns": begin + 4, "outcome": "committed"}
        run.recorder.row("txns", process=1, txn_id="x", operations=[step] * 3, **ends)
    recording = Recording.open(run.finish())
    counts = {"AT_ONCE_TRANSACTIONS": 2, "AT_ONCE_STEPS": 6}
    size = sum(path.stat().st_size for own in recording.files["txns"].values() for path in own)

    monkeypatch.setattr(run_steps, limit, counts.get(limit, size))
    assert RunSteps(recording)._few is not None
    monkeypatch.setattr(run_steps, limit, counts.get(limit, size) - 1)
    assert RunSteps(recording)._few is None


def of_transactions(folder: Path, random: Random, count: int) -> Path:
    """Transactions with steps in partitions of two topics, of which some have none, or an outcome that nobody knows; a value may be sent twice."""
    run = Run(folder)
    for number in range(count):
        steps = [
            {
                "kind": random.choice(["send", "poll", "append", "read"]),
                "topic": random.choice("tu"),
                "partition": random.randrange(3),
                "log_offset": random.choice([None, number]),
                "value": random.choice([None, *range(12)]),
            }
            for _ in range(random.randrange(5))
        ]
        ends = {"begin_ns": number, "end_ns": number + 9, "outcome": random.choice(["committed", "aborted", "info"])}
        operations = random.choice([steps, steps, steps, None])
        run.recorder.row("txns", process=random.randrange(3), txn_id="x", operations=operations, **ends)
    return in_row_groups(run.finish(), random.choice([3, 100]))


@pytest.mark.parametrize("seed", range(12))
def test_a_partition_gets_its_own_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    random = Random(seed)
    recording = Recording.open(of_transactions(tmp_path / "run", random, random.choice([0, 5, 40])))
    steps = flat(recording.table("txns"))
    writes = steps.filter(pc.is_in(steps["kind"], value_set=pa.array(WRITES)))
    is_committed = pc.equal(writes["outcome"], COMMITTED)
    values = np.array([3, 9, 1, 3, 99])

    few = RunSteps(recording)
    assert few._few is not None
    each_for_itself(monkeypatch)
    many = RunSteps(recording)
    assert many._few is None

    for own in (few, many):
        for topic, partition in (("t", 0), ("t", 2), ("u", 1), ("u", 7), ("other", 0)):
            here = pc.and_(pc.equal(steps["topic"], topic), pc.equal(steps["partition"], partition))
            expected = steps.filter(here).select(STEPS.names)
            assert own.in_partition(topic, partition)._rows.to_pylist() == expected.to_pylist()
        committed = {*writes.filter(is_committed)["value"].to_pylist()}
        assert own.committed(values).tolist() == sorted({*values.tolist()} & committed)
        assert own.sent().tolist() == sorted({*writes["value"].to_pylist()} - {None})
        assert own.made.to_pylist() == recording.table("txns").select(run_steps.MADE).to_pylist()


def test_partitions_that_follow_each_other_read_the_transactions_once(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    for partition in (0, 1):
        value = run.send(partition, 100, offset=0, partition=partition, txn_id="x")
        step = {"kind": "send", "topic": "t", "partition": partition, "log_offset": 0, "value": value}
        ends = {"begin_ns": 90 * MS, "end_ns": 110 * MS, "outcome": "committed"}
        run.recorder.row("txns", process=7, txn_id="x", operations=[step], **ends)
    items = [WholePartition(str(run.finish()), f"t-{partition}") for partition in (0, 1)]
    alone = judge_item(items[1])
    histories = Histories()
    judge_item(items[0], histories=histories)
    for path in (tmp_path / "run" / "recording" / "txns").rglob("*.parquet"):
        if path.stem != "part-00000":
            path.unlink()

    assert judge_item(items[1], histories=histories) == alone
    assert judge_item(items[1]) != alone


@pytest.mark.parametrize("seed", range(3))
def test_a_partition_that_reads_its_own_steps_is_judged_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    run_dir = grouped_run(tmp_path / "run", seed)
    at_once = judged(run_dir)

    each_for_itself(monkeypatch)

    assert judged(run_dir) == at_once
    cut_everything(monkeypatch, 3)
    assert judged(run_dir) == at_once
