"""A partition cut into ranges is judged like the same partition whole, whatever was injected into it."""

from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.checkers.planted_runs import planted_run
from tests.checkers.random_runs import random_run
from tests.checkers.recorded import MS, Run
from tests.checkers.tailed_runs import tailed_run
from tribunal.checkers.judge import engine, files, tails
from tribunal.checkers.judge import hot_partitions as ranges
from tribunal.checkers.judge.hot_partitions import Range
from tribunal.checkers.judge.items import FollowAgain, Rest, SieveRange, work_items
from tribunal.checkers.judge.judge import judge_item, second_look
from tribunal.checkers.judge.tables import Damage, SievedRange, Tables
from tribunal.results.store import Recording
from tribunal.results.values import value_of


@pytest.fixture(params=[1, 3, 7])
def cut_small(request: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    cut_everything(monkeypatch, request.param)
    return int(request.param)


def cut_everything(monkeypatch: pytest.MonkeyPatch, offsets: int) -> None:
    monkeypatch.setattr(ranges, "BIG_BYTES", 0)
    monkeypatch.setattr(ranges, "HOT_ROWS", 0)
    monkeypatch.setattr(ranges, "RANGE_OFFSETS", offsets)
    monkeypatch.setattr(ranges, "TOGETHER", 1)
    monkeypatch.setattr(files, "DEALT_BYTES", 0)
    monkeypatch.setattr(files, "TOGETHER_BYTES", 1)
    monkeypatch.setattr(files, "TOGETHER_VALUES", offsets)


def judged(run_dir: Path) -> tuple[list[Any], ...]:
    tables = engine.judge_runs([run_dir], "inline")
    folded = [sorted(own) for own in tables.folded.values()]
    return tables.findings, tables.damages, tables.failures, folded, tables.counts


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
        beside = ranges.beside(groups, cut)

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


@pytest.mark.parametrize("offsets", [1, 2])
def test_of_many_unclean_ranges_each_is_judged_with_what_it_depends_on(tmp_path: Path, offsets: int) -> None:
    """What is missing at offset 0 stands in the last range, behind more unclean ones than are held at once."""
    run = Run(tmp_path / "run")
    log = {offset: run.send(offset, 100, complete_ns=900 * MS) for offset in range(50)}
    run.send(0, 100, process=8, value=value_of(8, 0), log_offset=None, outcome="info")
    final = {offset: value for offset, value in log.items() if offset % 2 == 0}
    run.final_read({**final, 0: value_of(8, 0), 50: log[0]})

    found = found_whole_and_cut(run.finish(), offsets)

    assert [(kind, offset) for kind, _, offset in found if kind == "moved"] == [("moved", 0)]
    assert not [offset for kind, _, offset in found if kind == "lost" and offset == 0]
    assert len([kind for kind, _, _ in found if kind == "lost"]) == 20  # of 25 that are missing: as many as are shown


@pytest.mark.parametrize("offsets", [1, 2])
def test_epochs_go_back_where_they_do_and_not_between_ranges_that_are_judged_together(
    tmp_path: Path, offsets: int
) -> None:
    """What was acknowledged at offset 0 stands at the end: both are compared, and epochs go back between them, in ranges judged apart."""
    run = Run(tmp_path / "run")
    late = {"complete_ns": 900 * MS}
    run.send(0, 100, process=8, value=value_of(8, 0), log_offset=0, **late)
    run.send(0, 100, process=9, value=value_of(9, 0), log_offset=None, outcome="info")
    log = {0: value_of(9, 0)}
    log |= {offset: run.send(offset, 100, **late) for offset in range(1, 11)}
    log[11] = value_of(8, 0)
    run.final_read(dict(log))
    for node in (1, 2, 3):
        for offset, value in log.items():
            place = {"topic": "t", "partition": 0, "log_offset": offset, "value": value, "is_control": False}
            run.recorder.row("logs", node=node, leader_epoch=5 if offset < 6 else 3, **place)

    found = found_whole_and_cut(run.finish(), offsets)

    assert found == [("moved", "violation", 0)] + [("epoch_back", "violation", 6)] * 3


@pytest.mark.parametrize("offsets", [1, 2])
def test_what_is_unjudged_in_many_ranges_is_said_once(tmp_path: Path, offsets: int) -> None:
    run = Run(tmp_path / "run")
    for offset in range(8):
        run.send(offset, 100 + offset, acks=(-1, 1)[offset % 2])

    assert found_whole_and_cut(run.finish(), offsets) == [("unjudged", "unjudged", None)]


# Seeds that showed a fact of some ranges where one of the whole is meant, and with how many offsets a range.
PLANTED = [
    pytest.param(84, 2, id="a record that was sent elsewhere stands behind what another range holds"),
    pytest.param(252, 1, id="the final read holds nothing of these ranges"),
    pytest.param(1008, 2, id="the newest record of a key stands in another range"),
    pytest.param(1385, 3, id="a final read holds what replaced a record in another range"),
]


@pytest.mark.parametrize(("seed", "offsets"), PLANTED)
def test_an_excuse_asks_for_facts_of_the_whole(tmp_path: Path, seed: int, offsets: int) -> None:
    assert found_whole_and_cut(planted_run(tmp_path / "run", seed), offsets)


@pytest.mark.parametrize("in_transactions", [False, True])
def test_planted_excuses_are_the_same_in_ranges(tmp_path: Path, *, in_transactions: bool) -> None:
    for seed in range(3):
        run_dir = planted_run(tmp_path / f"run-{seed}", seed, in_transactions=in_transactions)
        found_whole_and_cut(run_dir, 2)


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(0, 400, 40))
@pytest.mark.parametrize("in_transactions", [False, True])
@pytest.mark.parametrize("producers", [(7, 7, 8), range(7, 20)])
def test_many_planted_excuses_are_the_same_in_ranges(
    tmp_path: Path, first: int, producers: Sequence[int], *, in_transactions: bool
) -> None:
    for seed in range(first, first + 40):
        run_dir = planted_run(tmp_path / f"run-{seed}", seed, in_transactions=in_transactions, producers=producers)
        for offsets in (1, 2, 3, 5):
            found_whole_and_cut(run_dir, offsets)


@pytest.mark.parametrize("offsets", [1, 2, 5])
def test_a_group_that_read_nothing_is_judged_where_a_partition_is_cut_too(tmp_path: Path, offsets: int) -> None:
    """It committed positions, and nobody but the final read received anything."""
    run = Run(tmp_path / "run")
    log = {offset: run.send(offset, 100 + 10 * offset) for offset in range(6)}
    run.final_read(dict(log))
    times = {"invoke_ns": 400 * MS, "complete_ns": 401 * MS}
    place = {"group": "g", "topic": "t", "partition": 0, "committed_offset": 2}
    run.recorder.row("commits", process=50, kind="commit", outcome="ok", **place, **times)

    assert found_whole_and_cut(run.finish(), offsets) == [
        ("unconsumed", "violation", 0),
        ("unconsumed", "violation", 1),
    ]


@pytest.mark.parametrize("offsets", [1, 2, 3])
@pytest.mark.parametrize("logged", [(1, 2, 3), ()])
def test_a_hole_behind_the_ends_of_logs_is_one_where_there_are_logs(
    tmp_path: Path, offsets: int, logged: tuple[int, ...]
) -> None:
    """Without any log it may be a transaction's marker."""
    run = Run(tmp_path / "run")
    log = {offset: run.send(offset, 100 + 10 * offset) for offset in range(12) if offset != 10}
    run.final_read(dict(log))
    for node in logged:
        run.log(node, {offset: value for offset, value in log.items() if offset < 5})

    found = found_whole_and_cut(run.finish(), offsets)

    assert found == ([("gap", "violation", 10)] if logged else [])


@pytest.mark.parametrize("offsets", [1, 2, 3])
def test_an_epoch_goes_back_behind_ranges_of_which_no_epoch_is_known(tmp_path: Path, offsets: int) -> None:
    run = Run(tmp_path / "run")
    log = {offset: run.send(offset, 100 + 10 * offset) for offset in range(12)}
    run.final_read(dict(log))
    for node in (1, 2, 3):
        for offset, value in log.items():
            place = {"topic": "t", "partition": 0, "log_offset": offset, "value": value, "is_control": False}
            epoch = 5 if offset < 2 else None if offset < 10 else 3
            run.recorder.row("logs", node=node, leader_epoch=epoch, **place)

    assert found_whole_and_cut(run.finish(), offsets) == [("epoch_back", "violation", 10)] * 3


@pytest.mark.parametrize("offsets", [1, 2, 3])
def test_what_was_lost_says_nothing_of_the_order_of_what_is_there(tmp_path: Path, offsets: int) -> None:
    """The record at offset 6 was acknowledged before all others and is lost: the one that was too early stands at offset 2 or behind."""
    run = Run(tmp_path / "run")

    def sent(process: int, sequence: int, at: int, **changes: Any) -> int:
        value = value_of(process, sequence)
        run.send(sequence, at, process=process, value=value, **changes)
        return value

    late = {"complete_ns": 900 * MS}
    log = {0: sent(7, 0, 500, log_offset=0)}
    log |= {offset: sent(11, offset, 110 + offset, log_offset=offset, **late) for offset in (1, 2, 3)}
    log[4] = sent(8, 0, 150, log_offset=4, complete_ns=400 * MS)
    log[5] = sent(11, 5, 160, log_offset=5, **late)
    sent(9, 0, 100, log_offset=6, complete_ns=200 * MS)
    log[6] = sent(10, 0, 170, log_offset=None, outcome="info")
    run.final_read(dict(log))

    assert found_whole_and_cut(run.finish(), offsets) == [
        ("real_time_order", "violation", 0),
        ("lost", "violation", 6),
    ]


@pytest.mark.parametrize("offsets", [1, 2, 4])
@pytest.mark.parametrize("late", [False, True])
def test_a_process_whose_time_goes_back_in_another_range_makes_the_recording_a_damaged_one(
    tmp_path: Path, offsets: int, *, late: bool
) -> None:
    run = Run(tmp_path / "run")
    times = {offset: 100 + 10 * offset for offset in range(8)} | ({4: 135} if late else {4: 125})
    log = {offset: run.send(offset, at, complete_ns=900 * MS) for offset, at in times.items()}
    run.final_read(dict(log))
    run_dir = run.finish()

    assert found_whole_and_cut(run_dir, offsets) == []
    assert [row.words for row in judged(run_dir)[1]] == (
        [] if late else ["table sends, row 4: time goes back: a process's later record has an earlier invoke (tp=t-0)"]
    )


@pytest.mark.parametrize("offsets", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("final", "logged", "gaps"),
    [
        pytest.param({0, 1, 10}, {0, 1, 2, 3, 4, 5}, [6], id="behind what only logs hold"),
        pytest.param({0, 1, 10}, {6, 7, 8, 9, 10}, [2], id="before what only logs hold"),
        pytest.param({0, 10}, {0, 3, 4, 5, 8, 10}, [1, 6, 9], id="between what only logs hold"),
        pytest.param({4, 5}, {0, 2, 3, 5, 7, 10}, [], id="beyond what was read"),
    ],
)
def test_a_hole_is_one_between_what_was_read_however_far_that_is(
    tmp_path: Path, offsets: int, final: Set[int], logged: Set[int], gaps: list[int]
) -> None:
    run = Run(tmp_path / "run")
    log = {place: run.send(place, 100 + 10 * place, log_offset=None, outcome="info") for place in range(11)}
    run.final_read({place: log[place] for place in sorted(final)})
    for node in (1, 2, 3):
        run.log(node, {place: log[place] for place in sorted(logged)})

    found = found_whole_and_cut(run.finish(), offsets)

    assert [offset for kind, _, offset in found if kind == "gap"] == gaps


@pytest.mark.parametrize("offsets", [2, 5])
@pytest.mark.parametrize("logged", [True, False])
def test_a_record_that_only_the_logs_hold_is_unread_and_not_lost(tmp_path: Path, offsets: int, *, logged: bool) -> None:
    """It was acknowledged without an offset, and nothing else is wrong in its range."""
    run = Run(tmp_path / "run")
    log = {place: run.send(place, 100 + 10 * place, log_offset=None if place == 3 else place) for place in range(8)}
    run.final_read({place: value for place, value in log.items() if place != 3})
    for node in (1, 2, 3):
        run.log(node, {place: value for place, value in log.items() if logged or place != 3})

    found = found_whole_and_cut(run.finish(), offsets)

    kinds = {kind for kind, *_ in found}
    assert ("unread" in kinds, "lost" in kinds) == (logged, not logged)


@pytest.mark.parametrize("offsets", [1, 2, 5])
@pytest.mark.parametrize("number", [1, 7])
def test_of_two_that_were_acknowledged_with_one_offset_both_were_sent_to_its_range(
    tmp_path: Path, offsets: int, number: int
) -> None:
    """Record 1 stands at offset 1, another one where it was acknowledged: only its value says that it was sent."""
    run = Run(tmp_path / "run")
    log = {place: run.send(place, 100 + 10 * place, log_offset=6 if place == number else place) for place in range(8)}
    run.final_read(dict(log))

    found = found_whole_and_cut(run.finish(), offsets)

    assert found == [("moved", "violation", 6)]


@pytest.mark.parametrize("offsets", [1, 7, 8])
def test_records_without_a_place_belong_to_the_first_range(tmp_path: Path, offsets: int) -> None:
    """All was acknowledged without an offset, in row groups of which nothing has a place, and is lost."""
    run = Run(tmp_path / "run")
    for sequence in range(5):
        run.send(sequence, 100 + 10 * sequence, log_offset=None)
    run.recorder.close_segment()
    last = run.send(5, 200, log_offset=0)
    run.final_read({0: last})
    for node in (1, 2, 3):
        run.log(node, {0: last})

    assert found_whole_and_cut(run.finish(), offsets) == [("lost", "violation", None)] * 5


@pytest.mark.parametrize("offsets", [1, 2, 5])
def test_of_more_than_can_be_listed_the_whole_is_judged(
    tmp_path: Path, offsets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "LISTED", 1)
    run = Run(tmp_path / "run")
    log = {offset: run.send(offset, 100 + 10 * offset, log_offset=None) for offset in range(10)}
    run.final_read({offset: value for offset, value in log.items() if offset != 9})

    assert found_whole_and_cut(run.finish(), offsets) == [("lost", "violation", None)]


def without_statistics(run_dir: Path) -> Path:
    """Write the files of a recording anew, as somebody else's Parquet writer would."""
    for path in run_dir.rglob("*.parquet"):
        rows = pq.read_table(path)
        pq.write_table(rows, path, write_statistics=False)
    (run_dir / "manifest.json").unlink()
    return run_dir


@pytest.mark.parametrize("offsets", [1, 3, 8])
def test_files_without_statistics_are_cut_where_their_rows_are(
    tmp_path: Path, offsets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path / "run")
    log = {
        offset: run.send(offset, 100 + 10 * offset, log_offset=None if offset == 5 else offset) for offset in range(8)
    }
    run.final_read({offset: value for offset, value in log.items() if offset != 3})
    for node in (1, 2, 3):
        run.log(node, log)
    run_dir = without_statistics(run.finish())

    assert found_whole_and_cut(run_dir, offsets) == [("unread", "violation", 3)]
    cut_everything(monkeypatch, offsets)
    items = [item.range for item in work_items(run_dir) if isinstance(item, SieveRange)]
    assert items == [Range(first, min(first + offsets, 8)) for first in range(0, 8, offsets)]


def test_offsets_that_lie_too_far_apart_are_judged_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row whose offset is wrong would make so many ranges that nobody could hold even their names."""
    run = Run(tmp_path / "run")
    places = [0, 1, 1 << 44]
    log = {place: run.send(number, 100 + number, log_offset=place) for number, place in enumerate(places)}
    run.final_read(dict(log))
    run_dir = run.finish()
    whole = judged(run_dir)

    cut_everything(monkeypatch, 1)

    assert not any(isinstance(item, SieveRange) for item in work_items(run_dir))
    assert judged(run_dir) == whole


def received(run_dir: Path) -> tuple[Any, ...]:
    tables = engine.judge_runs([run_dir], "inline")
    return *judged(run_dir), tables.counts.get("records received by assigned consumers")


@pytest.mark.parametrize("seed", [4, 9, 17])
@pytest.mark.parametrize("offsets", [1, 3])
@pytest.mark.parametrize("in_transactions", [False, True])
def test_tail_readers_went_through_ranges_what_they_went_through(
    tmp_path: Path, seed: int, offsets: int, *, in_transactions: bool
) -> None:
    compared_of_tails(tmp_path, seed, (offsets,), in_transactions=in_transactions)


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(0, 400, 50))
@pytest.mark.parametrize("in_transactions", [False, True])
def test_many_tail_readers_went_through_ranges_what_they_went_through(
    tmp_path: Path, first: int, *, in_transactions: bool
) -> None:
    for seed in range(first, first + 50):
        compared_of_tails(tmp_path, seed, (1, 2, 3, 7), in_transactions=in_transactions)


def compared_of_tails(folder: Path, seed: int, offsets: Sequence[int], *, in_transactions: bool) -> None:
    run_dir = tailed_run(folder / f"run-{seed}", seed, in_transactions=in_transactions)
    whole = received(run_dir)
    for each in offsets:
        with pytest.MonkeyPatch.context() as monkeypatch:
            cut_everything(monkeypatch, each)
            assert received(run_dir) == whole


@pytest.mark.parametrize("seed", [4, 9, 17, 23, 31])
@pytest.mark.parametrize("listed", [1, 3])
def test_of_many_turns_each_range_knows_those_that_may_concern_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, listed: int
) -> None:
    monkeypatch.setattr(tails, "LISTED", listed)
    for module in (tails, ranges):
        monkeypatch.setattr(module, "POLL_OFFSETS", 8)
    compared_of_tails(tmp_path, seed, (2, 7), in_transactions=bool(seed % 2))


def begins_anew(run_dir: Path, turns: int) -> Path:
    """A consumer reads two records, is out of range, and begins behind them, so many times; its third turn passes one over."""
    run = Run(run_dir)
    log = {offset: run.send(offset, 100 + offset) for offset in range(2 * turns)}
    for turn in range(turns):
        at = 400 + 10 * turn
        records = {2 * turn + place: log[2 * turn + place] for place in range(2) if (turn, place) != (2, 0)}
        run.poll(90, "tail", 2 * turn, len(records), at, high_watermark=len(log))
        _received(run, records)
        row = {"process": 90, "poll_index": run.polls, "topic": "t", "partition": 0, "phase": "tail"}
        times = {"invoke_ns": (at + 5) * MS, "complete_ns": (at + 6) * MS}
        answer = {"outcome": "fail", "error": "OFFSET_OUT_OF_RANGE", "isolation": "read_uncommitted"}
        run.recorder.row("polls", **row, **times, **answer)
        run.polls += 1
    run.final_read(dict(log), 20_000)
    run.log(1, log)
    return run.finish()


@pytest.mark.parametrize("far", [0, 20])
def test_who_begins_anew_many_times_is_followed_through_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, far: int
) -> None:
    """Of 20 turns at most 3 may concern a range; where all may, whoever judges the rest follows them."""
    run_dir = begins_anew(tmp_path / "run", 20)
    whole = received(run_dir)
    monkeypatch.setattr(tails, "LISTED", 3)
    for module in (tails, ranges):
        monkeypatch.setattr(module, "POLL_OFFSETS", far)
    cut_everything(monkeypatch, 4)

    assert received(run_dir) == whole
    assert {row.finding.log_offset for row in whole[0]} == {4}
    (rest,) = [item for item in work_items(run_dir) if isinstance(item, Rest)]
    assert rest.tails_apart == (not far)


def tail_run(run_dir: Path, *, passed_over: Sequence[int] = (), again_from: int | None = None) -> Run:
    """A run of 20 records that one consumer read, poll by poll of two, but for some that it passed over; at the end it may go back."""
    run = Run(run_dir)
    log = {offset: run.send(offset, 100 + offset) for offset in range(20)}
    for first in range(0, 20, 2):
        records = {offset: log[offset] for offset in (first, first + 1) if offset not in passed_over}
        run.poll(90, "tail", first, len(records), 200 + first, high_watermark=20)
        _received(run, records)
    if again_from is not None:
        run.poll(90, "tail", again_from, 1, 300, high_watermark=20)
        _received(run, {again_from: log[again_from]})
    run.final_read(dict(log))
    run.log(1, log)
    return run


def _received(run: Run, records: Mapping[int, int]) -> None:
    for offset, value in records.items():
        place = {"topic": "t", "partition": 0, "log_offset": offset, "value": value, "phase": "tail"}
        run.recorder.row("reads", process=90, poll_index=run.polls - 1, **place)


def followed_again(run_dir: Path) -> list[tuple[Range, ...]]:
    """Return which ranges tail readers are followed through again, in components."""
    tables = Tables()
    tables.add(row for item in work_items(run_dir) for row in judge_item(item))
    items = [item for item in second_look(tables) if isinstance(item, FollowAgain)]
    return [component.ranges for item in items for component in item.components]


def test_tail_readers_that_passed_nothing_over_are_never_followed_again(tmp_path: Path, cut_small: int) -> None:
    run_dir = tail_run(tmp_path / "run").finish()

    assert followed_again(run_dir) == []
    assert received(run_dir)[-1] == 20


@pytest.mark.parametrize(
    ("offsets", "passed_over", "ranges_again"),
    [
        pytest.param(4, [5], [(Range(4, 8),)], id="in one range"),
        pytest.param(4, [8], [(Range(4, 8), Range(8, 12))], id="at a border"),
        pytest.param(4, [3, 4, 5, 6, 7, 8], [(Range(0, 4), Range(4, 8), Range(8, 12))], id="a whole range"),
        pytest.param(4, [0], [(Range(0, 4),)], id="where the consumer began"),
        pytest.param(4, [1, 17], [(Range(0, 4),), (Range(16, 20),)], id="far from each other"),
    ],
)
def test_what_was_passed_over_is_looked_for_in_its_ranges_alone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    offsets: int,
    passed_over: list[int],
    ranges_again: list[tuple[Range, ...]],
) -> None:
    run_dir = tail_run(tmp_path / "run", passed_over=passed_over).finish()

    found = found_whole_and_cut(run_dir, offsets)

    assert [offset for kind, _, offset in found if kind == "unseen"] == passed_over
    cut_everything(monkeypatch, offsets)
    assert followed_again(run_dir) == ranges_again


def test_what_was_received_again_is_looked_for_wherever_the_consumer_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = tail_run(tmp_path / "run", again_from=3).finish()

    assert found_whole_and_cut(run_dir, 8) == [("rewound", "violation", 3)]
    cut_everything(monkeypatch, 8)
    assert followed_again(run_dir) == [(Range(0, 8), Range(8, 16), Range(16, 20))]


@pytest.mark.parametrize("in_group", [False, True])
def test_the_rest_of_a_partition_needs_no_reads_where_ranges_follow_its_tail_readers(
    tmp_path: Path, cut_small: int, *, in_group: bool
) -> None:
    """What a group committed is judged with all that its members received."""
    run = tail_run(tmp_path / "run")
    if in_group:
        times = {"invoke_ns": 400 * MS, "complete_ns": 401 * MS}
        place = {"group": "g", "topic": "t", "partition": 0, "committed_offset": 2}
        run.recorder.row("commits", process=90, kind="commit", outcome="ok", **place, **times)
    (rest,) = [item for item in work_items(run.finish()) if isinstance(item, Rest)]
    for path in (tmp_path / "run" / "recording" / "reads").rglob("*.parquet"):
        path.write_bytes(b"nobody reads it")

    damages = [row.table for row in judge_item(rest) if isinstance(row, Damage)]

    assert damages == (["reads"] if in_group else [])


READS_ALL = """
'''What is sent, counted.'''
from tribunal.checkers.api import Found, Kind, Meaning, Property, anomalies

def kernel(rows, context):
    values = rows.columns("sends")["value"]
    return Found(anomalies("seen", value=values[-1:]), {"sends that the user counted": int(values.size)})

PROPERTY = Property(tables=("sends",), kinds={"seen": Kind(Meaning.VIOLATION, "it was sent")}, kernel=kernel)
"""


def test_a_users_own_property_is_asked_where_a_partition_is_cut_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks at sends, and nothing else in the partition has to be judged as a whole."""
    folder = tmp_path / "user" / "tribunal_plugins" / "checkers"
    folder.mkdir(parents=True)
    (folder / "counted.py").write_text(READS_ALL)
    monkeypatch.chdir(tmp_path / "user")
    run = Run(tmp_path / "run")
    log = {offset: run.send(offset, 100 + 10 * offset) for offset in range(5)}
    run.final_read(dict(log))
    for node in (1, 2, 3):
        run.log(node, log)

    assert found_whole_and_cut(run.finish(), 2) == [("seen", "violation", None)]


@pytest.mark.parametrize("logged", [(1, 2, 3), ()])
def test_a_partition_without_a_final_log_is_not_counted_as_one(tmp_path: Path, logged: tuple[int, ...]) -> None:
    run = Run(tmp_path / "run")
    log = {offset: run.send(offset, 100 + 10 * offset) for offset in range(5)}
    for node in logged:
        run.log(node, log)
    run_dir = run.finish()

    found_whole_and_cut(run_dir, 2)
    assert judged(run_dir)[-1]["partitions with a final log"] == len(logged) // 3


@pytest.mark.parametrize("offset", [2, None])
def test_what_was_sent_in_an_aborted_transaction_is_not_counted_as_acknowledged(
    tmp_path: Path, offset: int | None
) -> None:
    run = Run(tmp_path / "run")
    log = {
        place: run.send(place, 100 + 10 * place, txn_id="x", log_offset=(place, offset)[place == 2])
        for place in range(4)
    }
    for value, outcome in ((log[0], "committed"), (log[1], "info"), (log[2], "aborted")):
        step = {"kind": "send", "topic": "t", "partition": 0, "log_offset": None, "value": value}
        span = {"begin_ns": 90 * MS, "end_ns": None if outcome == "info" else 200 * MS}
        run.recorder.row("txns", process=7, txn_id="x", **span, outcome=outcome, operations=[step])
    run.final_read(dict(log))
    run_dir = run.finish()

    found_whole_and_cut(run_dir, 2)
    assert judged(run_dir)[-1]["acknowledged, acks=all"] == 1


@pytest.mark.parametrize("in_transactions", [False, True])
def test_the_rest_of_a_partition_in_transactions_holds_no_table_as_a_whole(
    tmp_path: Path, cut_small: int, monkeypatch: pytest.MonkeyPatch, *, in_transactions: bool
) -> None:
    """What aborted transactions wrote, and which ones are visible in part, is looked for row group by row group."""
    run = Run(tmp_path / "run")
    more = {"txn_id": "x"} if in_transactions else {}
    log = {offset: run.send(offset, 100 + offset, **more) for offset in range(8)}
    run.final_read(dict(log), isolation="read_committed")
    (rest,) = [item for item in work_items(run.finish()) if isinstance(item, Rest)]
    read: list[str] = []
    whole = Recording.table
    monkeypatch.setattr(
        Recording, "table", lambda self, name, *more, **named: read.append(name) or whole(self, name, *more, **named)
    )

    judge_item(rest)

    assert not {"sends", "reads", "logs"} & {*read}
    assert ("txns" in read) == in_transactions


@pytest.mark.parametrize("in_transactions", [False, True])
def test_a_bank_is_added_up_where_its_partition_is_cut_too(
    tmp_path: Path, cut_small: int, *, in_transactions: bool
) -> None:
    """Its transfers are told by their class: whoever did not begin a transaction is part of it."""
    run = Run(tmp_path / "run")
    more = {"worker_class": "transactional-bank"} | ({"txn_id": "x"} if in_transactions else {})
    log = {offset: run.send(offset, 100 + offset, key="a1:5", **more) for offset in range(8)}
    run.final_read(dict(log), isolation="read_committed")
    run_dir = run.finish()

    (amounts,) = judged(run_dir)[3]

    assert amounts == ["availability", "bank"]
