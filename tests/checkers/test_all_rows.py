"""Whoever holds some ranges of a partition says of all of it what whoever holds everything does."""

from pathlib import Path

import numpy as np
import pytest

from tests.checkers.planted_runs import planted_run
from tests.checkers.recorded import Run
from tribunal.checkers.api import UNKNOWN, PartitionRows
from tribunal.checkers.judge import hot_partitions as ranges
from tribunal.checkers.judge.all_rows import AllRows, RowsOfRanges
from tribunal.checkers.judge.hot_partitions import Range
from tribunal.checkers.properties.lost_writes import final_reads
from tribunal.results.recording import TABLES
from tribunal.results.store import Recording

CAN_LEAD = (1, 2, 3)
LOADED = ("sends", "reads", "logs")


def held_whole(run_dir: Path) -> tuple[PartitionRows, AllRows]:
    recording = Recording.open(run_dir, compare=False)
    rows = PartitionRows({name: recording.table(name, "t-0") for name in (*LOADED, "polls")})
    return rows, AllRows(rows, CAN_LEAD)


def held_in_part(run_dir: Path, held: list[Range]) -> RowsOfRanges:
    recording = Recording.open(run_dir, compare=False)
    tables = {
        name: ranges.rows_of(recording, "t-0", name, held, list(TABLES[name].fields), np.zeros(0, np.int64))
        for name in LOADED
    }
    rows = PartitionRows(tables | {"polls": recording.table("polls", "t-0")})
    return RowsOfRanges(rows, CAN_LEAD, recording, "t-0", held)


@pytest.mark.parametrize("held", [[Range(3, 4)], [Range(0, 2), Range(4, 6)]])
@pytest.mark.parametrize("in_transactions", [False, True])
def test_facts_of_the_whole_are_the_same_from_some_ranges(
    tmp_path: Path, held: list[Range], *, in_transactions: bool
) -> None:
    said = []
    for seed in range(6):
        run_dir = planted_run(tmp_path / str(seed), seed, in_transactions=in_transactions)
        rows, whole = held_whole(run_dir)
        part = held_in_part(run_dir, held)
        keys = frozenset(rows.words("sends", "key"))
        facts = [
            (all_.end, all_.longest_key, all_.in_transactions, all_.is_read, all_.newest_of(keys))
            for all_ in (whole, part)
        ]
        assert facts[0] == facts[1]
        said.append(facts[0])
        for offset in range(-1, whole.end + 2):
            assert part.final_epoch_from(offset) == final_epoch_from(rows, offset, is_read=whole.is_read)
            assert part.sent_before_ns(offset) == sent_before_ns(rows, offset)
    assert {True, False} >= {fact[2] for fact in said} >= {in_transactions}
    assert len({fact[0] for fact in said}) > 3
    assert any(fact[4] for fact in said)


def final_epoch_from(rows: PartitionRows, offset: int, *, is_read: bool) -> int | None:
    name = "reads" if is_read else "logs"
    own = rows.columns(name)
    chosen = final_reads(rows) if is_read else np.arange(own["log_offset"].size)
    places = chosen[own["log_offset"][chosen] >= offset]
    if places.size == 0:
        return None
    epoch = int(own["leader_epoch"][places[np.argmin(own["log_offset"][places])]])
    return None if epoch == UNKNOWN else epoch


def sent_before_ns(rows: PartitionRows, offset: int) -> int:
    logs, sends = rows.columns("logs"), rows.columns("sends")
    before = np.flatnonzero((logs["log_offset"] < offset) & (logs["value"] != UNKNOWN))
    last = before[logs["log_offset"][before] == logs["log_offset"][before].max(initial=0)]
    times = [int(sends["invoke_ns"][sends["value"] == value].min(initial=1 << 62)) for value in logs["value"][last]]
    return min(times, default=0)


@pytest.mark.parametrize(("offset", "first", "end"), [(3, 2, 6), (0, 0, 0), (6, 6, 6), (9, 8, 10)])
def test_ranges_that_follow_each_other_are_one_stretch(tmp_path: Path, offset: int, first: int, end: int) -> None:
    run = Run(tmp_path / "run")
    run.send(0, 100)

    part = held_in_part(run.finish(), [Range(4, 6), Range(2, 4), Range(8, 10)])

    assert part.held(offset) == Range(first, end)


def test_the_next_record_is_looked_for_in_every_row_group_that_may_hold_it(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    for offsets in ((7, 9), (1, 8), (3, 20)):
        for offset in offsets:
            place = {"topic": "t", "partition": 0, "log_offset": offset, "value": None, "leader_epoch": offset}
            run.recorder.row("reads", process=99, poll_index=0, phase="final", **place)
        run.recorder.close_segment()
    run.final_read({})

    part = held_in_part(run.finish(), [Range(0, 1)])

    assert [part.final_epoch_from(offset) for offset in (1, 2, 4, 8, 9, 10, 21)] == [1, 3, 7, 8, 9, 20, None]
