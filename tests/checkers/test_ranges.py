"""A partition cut into ranges is judged like the same partition whole, whatever was injected into it."""

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.checkers.random_runs import random_run
from tests.checkers.recorded import Run
from tribunal.checkers.judge import engine, files
from tribunal.checkers.judge import hot_partitions as ranges
from tribunal.checkers.judge.items import SieveRange, work_items
from tribunal.checkers.judge.judge import judge_item, second_look
from tribunal.checkers.judge.tables import SievedRange, Tables


@pytest.fixture(params=[1, 3, 7])
def cut_small(request: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    cut_everything(monkeypatch, request.param)
    return int(request.param)


def cut_everything(monkeypatch: pytest.MonkeyPatch, offsets: int) -> None:
    monkeypatch.setattr(ranges, "BIG_BYTES", 0)
    monkeypatch.setattr(ranges, "HOT_ROWS", 0)
    monkeypatch.setattr(ranges, "RANGE_OFFSETS", offsets)
    monkeypatch.setattr(ranges, "TOGETHER", 1000)
    monkeypatch.setattr(files, "DEALT_BYTES", 0)
    monkeypatch.setattr(files, "TOGETHER_BYTES", 1)
    monkeypatch.setattr(files, "TOGETHER_VALUES", offsets)


def judged(run_dir: Path) -> tuple[list[Any], ...]:
    tables = engine.judge_runs([run_dir], "inline")
    return tables.findings, tables.damages, tables.failures, [sorted(own) for own in tables.folded.values()]


def test_a_clean_partition_is_never_looked_at_twice(tmp_path: Path, cut_small: int) -> None:
    run = Run(tmp_path / "run")
    values = {offset: run.send(offset, 100 + offset, acks=(-1, 1)[offset % 2]) for offset in range(20)}
    run.final_read(dict(values))
    run.log(1, values)
    tables = Tables()
    tables.add(row for item in work_items(run.finish()) for row in judge_item(item))
    sieved = len(tables.sieved)

    again = second_look(tables)

    assert again == []
    assert sieved == -(-20 // cut_small)
    assert tables.counts["acknowledged, acks=1"] == 10


def test_a_range_is_sieved_from_its_own_row_groups_alone(tmp_path: Path, cut_small: int) -> None:
    """Whatever each range looked up for itself grew with the square of the recording."""
    run = Run(tmp_path / "run")
    values = {offset: run.send(offset, 100 + offset) for offset in range(20)}
    run.final_read(dict(values))
    run.log(1, values)
    items = [item for item in work_items(run.finish()) if isinstance(item, SieveRange)]
    own = {group.path for item in items for groups in item.groups.values() for group in groups}
    others = [path for path in (tmp_path / "run").rglob("*.parquet") if str(path) not in own]
    for path in [*others, tmp_path / "run" / "manifest.json"]:
        path.unlink()

    answers = [row for item in items for row in judge_item(item)]

    assert others
    assert [row.sieved.clean for row in answers if isinstance(row, SievedRange)] == [True] * len(items)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(-1, 20), st.integers(0, 2)), max_size=12),
    st.sampled_from([1, 8, 16]),
    st.integers(1, 70),
)
def test_every_range_gets_the_row_groups_that_may_hold_any_of_it(
    spans: list[tuple[int, int, int]], offsets: int, end: int
) -> None:
    groups = [
        ranges.Group(str(at), 0, first, first + more, unknown, 9) for at, (first, more, unknown) in enumerate(spans)
    ]
    cut = [ranges.Range(first, min(first + offsets, end)) for first in range(0, end, offsets)]

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(ranges, "RANGE_OFFSETS", offsets)
        beside = ranges._beside(groups, cut)

    assert beside == [[group for group in groups if ranges._is_beside(group, own)] for own in cut]


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False), st.sampled_from([1, 2, 5]))
def test_ranges_find_what_the_whole_shows(random: Random, offsets: int) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as monkeypatch:
        run_dir = random_run(Path(folder) / "run", random)
        whole = judged(run_dir)

        cut_everything(monkeypatch, offsets)

        assert judged(run_dir) == whole


@pytest.mark.parametrize("seed", [12, 20, 1041])
def test_what_was_shown_is_compared_with_the_ends_of_logs_in_ranges_too(tmp_path: Path, seed: int) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        run_dir = random_run(tmp_path / "run", seed)
        whole = judged(run_dir)

        cut_everything(monkeypatch, 2)

        assert judged(run_dir) == whole
        assert "shown_end_lost" in {row.finding.kind for row in whole[0]}


@pytest.mark.parametrize("seed", [10, 59])
def test_a_refused_record_that_only_a_log_has_is_found_in_ranges_too(tmp_path: Path, seed: int) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        run_dir = random_run(tmp_path / "run", seed)
        whole = judged(run_dir)

        cut_everything(monkeypatch, 1)

        assert judged(run_dir) == whole
        assert "refused_yet_written" in {row.finding.kind for row in whole[0]}


def found_whole_and_cut(run_dir: Path, offsets: int) -> list[tuple[str, str, int | None]]:
    """Return what a partition shows as a whole: the same must come out of its ranges."""
    whole = judged(run_dir)
    with pytest.MonkeyPatch.context() as monkeypatch:
        cut_everything(monkeypatch, offsets)
        assert judged(run_dir) == whole
    return [(row.finding.kind, row.finding.severity, row.finding.log_offset) for row in whole[0]]


@pytest.mark.parametrize("offsets", [1, 2, 3])
def test_a_producer_that_is_behind_itself_in_another_range_is_found(tmp_path: Path, offsets: int) -> None:
    """All that the range before has of the producer is later: nothing overlaps. Time says nothing: all were sent together."""
    run = Run(tmp_path / "run")
    log = {
        offset: run.send(sequence, 100, log_offset=offset, complete_ns=900_000_000)
        for offset, sequence in enumerate([0, 1, 5, 4, 6, 7])
    }
    run.final_read(dict(log))
    for node in (1, 2, 3):
        run.log(node, log)

    assert found_whole_and_cut(run.finish(), offsets) == [("reordered", "violation", 3)]


@pytest.mark.parametrize("offsets", [1, 2, 3])
def test_a_replica_that_holds_nothing_of_the_last_range_lacks_it(tmp_path: Path, offsets: int) -> None:
    run = Run(tmp_path / "run")
    log = {offset: run.send(offset, 100 + 10 * offset) for offset in range(6)}
    run.final_read(dict(log))
    for node in (1, 2, 3):
        run.log(node, {offset: value for offset, value in log.items() if node != 3 or offset < 5})

    assert found_whole_and_cut(run.finish(), offsets) == [("replica_lacks", "violation", 5)]


@pytest.mark.parametrize("offsets", [1, 2])
@pytest.mark.parametrize("missing", [(2,), (0, 1)])
def test_a_replica_begins_where_it_begins_and_not_where_a_range_does(
    tmp_path: Path, offsets: int, missing: tuple[int, ...]
) -> None:
    """Retention excuses what stands before a replica's beginning: a hole behind it stays a violation."""
    run = Run(tmp_path / "run")
    order = {"api": "set_config", "topic": "t", "setting": "retention.ms", "value": "10"}
    run.recorder.row("admin", **order, invoke_ns=300_000_000, complete_ns=310_000_000, outcome="ok")
    log = {offset: run.send(offset, 100 + offset) for offset in range(5)}
    run.final_read(dict(log))
    for node in (1, 2, 3):
        run.log(node, {offset: value for offset, value in log.items() if node != 3 or offset not in missing})
    severity = "permitted" if missing[0] == 0 else "violation"

    assert found_whole_and_cut(run.finish(), offsets) == [("replica_lacks", severity, missing[0])]
