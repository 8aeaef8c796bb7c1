"""Messages of transactions are dealt out by offsets: what the ranges say, and what goes from one to another, is what one look at all of them says."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.checkers.grouped_runs import in_row_groups
from tests.checkers.test_dealt_transactions import OF_MESSAGES, Log, deal_all, logged, looks, planted_in
from tests.checkers.test_ranges import judged
from tribunal.checkers.graphs.borders import Border, over_borders
from tribunal.checkers.graphs.circles import BEGINNING, END, packed
from tribunal.checkers.judge.hot_partitions import Group
from tribunal.checkers.judge.items import Beside, Circles, Lists, Offsets
from tribunal.checkers.judge.items import Transactions as AllTransactions
from tribunal.checkers.judge.offsets_in_groups import Extent, OffsetsIn, Spread, by_offsets, offsets_in
from tribunal.results.recording import OPERATION

COUNT = 40
AT_ONCE = 20  # steps of a range
Rows = list[dict[str, Any]]


def row(
    process: int, at: int, *steps: tuple[str, int, int | None, int | None], outcome: str = "ok", lasts: int = 4
) -> dict[str, Any]:
    return {
        "process": process, "epoch": 0, "outcome": outcome, "begin": 100 * at, "end": 100 * at + lasts, "steps": list(steps),
    }  # fmt: skip


def sent(offset: int) -> int:
    return 1000 + 10 * offset


def orderly(partitions: int = 2) -> Rows:
    """Each offset of each partition is sent, and polled by process 2 a little later."""
    rows = []
    for offset in range(COUNT):
        places = range(partitions)
        rows.append(row(1, 2 * offset, *(("send", place, offset, sent(offset) + place) for place in places)))
        rows.append(row(2, 2 * offset + 1, *(("poll", place, offset, sent(offset) + place) for place in places)))
    return rows


def lists_of(items: list[Any]) -> list[Lists]:
    return [one for one in items if isinstance(one, Lists)]


def are_judged_again(run_dir: Path) -> bool:
    """Whether messages are looked at by partitions, or at once, after they had been by offsets."""
    _, second, *others = looks(run_dir)
    assert lists_of(second), "they are not dealt out by offsets"
    assert all(one.part.extents for one in lists_of(second))
    return any(isinstance(one, AllTransactions) or lists_of([one]) for items in others for one in items)


@pytest.mark.parametrize("partitions", [1, 2, 5])
def test_each_task_reads_the_row_groups_alone_that_have_its_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    deal_all(monkeypatch, AT_ONCE * partitions)
    run_dir = in_row_groups(logged(tmp_path / "run", orderly(partitions)), 10)

    first, second, third, fourth = looks(run_dir)

    assert sum(isinstance(one, Offsets) for one in first) > 1
    assert not lists_of(first)
    parts = [one.part for one in lists_of(second)]
    assert len(parts) == len(second) == 4
    assert [len(part.groups) for part in parts] == [2, 2, 2, 2]
    assert {type(one) for one in third} == {Circles}
    assert [type(one) for one in fourth] == [Beside]


def test_a_task_reads_what_is_polled_later_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deal_all(monkeypatch, AT_ONCE)
    late = [row(3, 2 * COUNT + offset, ("poll", 0, offset, sent(offset))) for offset in range(COUNT)]
    run_dir = in_row_groups(logged(tmp_path / "run", orderly(1) + late), 10)

    _, second, *_ = looks(run_dir)

    assert max(len(one.part.groups) for one in lists_of(second)) < 6
    assert not are_judged_again(run_dir)


def lags(rows: Rows) -> None:
    rows += [row(3, 2 * COUNT + offset, ("poll", 0, offset, sent(offset))) for offset in range(COUNT)]


def stops_and_another_begins(rows: Rows) -> None:
    for one in rows[COUNT + 1 :: 2]:
        one["process"] = 3


def has_holes(rows: Rows) -> None:
    """Offsets of markers, and of what was aborted, hold nothing."""
    for one in rows[10::20]:
        one["outcome"] = "fail"
    for one in rows[11::20]:
        one["steps"] = [row for row in one["steps"] if row[0] != "poll"]


def polls_again_what_it_aborted(rows: Rows) -> None:
    again = [{**one, "begin": one["begin"] - 50, "end": one["end"] - 50, "outcome": "fail"} for one in rows[1::2]]
    rows += again
    rows.sort(key=lambda one: one["end"])


def is_sent_to_an_unknown_offset_and_read_soon(rows: Rows) -> None:
    for one in rows[::8]:
        one["steps"] = [("send", place, None, value) for _, place, _, value in one["steps"]]
        one["outcome"] = "info"


def polls_much_at_once(rows: Rows) -> None:
    """One transaction polls what is in all ranges."""
    every = [("poll", 0, offset, sent(offset)) for offset in range(COUNT)]
    rows.append(row(3, 2 * COUNT + 5, *every))


def skips_ranges(rows: Rows) -> None:
    """As a member of a group that others take a partition from for some time."""
    for one in rows[21:60:2]:
        one["process"] = 3


def skips_within_a_range(rows: Rows) -> None:
    rows[25]["process"] = 3


@pytest.mark.parametrize(
    ("change", "found"),
    [
        pytest.param(lags, set(), id="a reader that comes last"),
        pytest.param(stops_and_another_begins, set(), id="another reader goes on"),
        pytest.param(has_holes, set(), id="offsets that hold nothing"),
        pytest.param(polls_again_what_it_aborted, set(), id="polls of what is aborted first"),
        pytest.param(is_sent_to_an_unknown_offset_and_read_soon, set(), id="sends of unknown offsets"),
        pytest.param(polls_much_at_once, set(), id="a transaction over all ranges"),
        pytest.param(skips_ranges, {"poll-skip"}, id="a reader skips ranges"),
        pytest.param(skips_within_a_range, {"poll-skip"}, id="a reader skips something within a range"),
    ],
)  # fmt: skip
def test_ranges_say_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Rows], None], found: set[str]
) -> None:
    rows = orderly()
    change(rows)
    run_dir = in_row_groups(logged(tmp_path / "run", rows), 10)
    at_once = judged(run_dir)

    deal_all(monkeypatch, 2 * AT_ONCE)

    assert judged(run_dir) == at_once
    assert {one.finding.kind for one in at_once[0]} == found
    assert not are_judged_again(run_dir)


def stands_twice(rows: Rows) -> None:
    rows.append(row(3, 2 * COUNT, ("poll", 0, COUNT, sent(2))))


def is_sent_twice(rows: Rows) -> None:
    rows.append(row(1, 2 * COUNT, ("send", 0, COUNT, sent(2))))


def reads_another_range_of_what_was_aborted(rows: Rows) -> None:
    rows[4]["outcome"] = "fail"
    rows[5]["steps"] = []
    rows.append(row(3, 2 * COUNT, ("poll", 0, COUNT, sent(2))))


def reads_far_away_what_had_no_offset(rows: Rows) -> None:
    rows[4] |= {"outcome": "fail", "steps": [("send", 0, None, sent(2))]}
    rows[5]["steps"] = []
    rows.append(row(3, 2 * COUNT, ("poll", 0, COUNT, sent(2))))


def goes_back(rows: Rows) -> None:
    rows[-1]["steps"].append(("poll", 0, 2, sent(2)))


def goes_back_later(rows: Rows) -> None:
    rows.append(row(2, 2 * COUNT, ("poll", 0, 2, sent(2))))


def passes_over_whole_ranges(rows: Rows) -> None:
    for one in rows[1:COUNT:2]:
        one["steps"] = []


def passes_over_all_but_the_first(rows: Rows) -> None:
    for one in rows[3:60:2]:
        one["steps"] = []


def skips_within_a_transaction(rows: Rows) -> None:
    rows.append(row(3, 2 * COUNT + 5, ("poll", 0, 3, sent(3)), ("poll", 0, 30, sent(30))))


def goes_back_within_a_transaction(rows: Rows) -> None:
    later = [("poll", 0, offset, sent(offset)) for offset in (*range(20, COUNT), *range(20))]
    rows.append(row(3, 2 * COUNT + 5, *later))


def begins_anew_after_it_had_polled_nothing_for_sure(rows: Rows) -> None:
    rows.append(row(3, 2 * COUNT, ("poll", 0, 3, sent(3)), outcome="info"))
    rows.append(row(3, 2 * COUNT + 1, ("poll", 0, 30, sent(30)), outcome="info"))
    rows.append(row(3, 2 * COUNT + 2, ("poll", 0, 35, sent(35))))


def has_a_poll_of_no_offset(rows: Rows) -> None:
    rows[41]["steps"][0] = ("poll", 0, None, sent(2))


def has_a_list(rows: Rows) -> None:
    rows[-1]["steps"].append(("read", 0, None, sent(2)))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        pytest.param(stands_twice, {"duplicate"}, id="a message stands in two ranges"),
        pytest.param(is_sent_twice, {"duplicate"}, id="a value is sent to two ranges"),
        pytest.param(reads_another_range_of_what_was_aborted, {"G1a"}, id="what was aborted is read in another range"),
        pytest.param(reads_far_away_what_had_no_offset, {"G1a"}, id="what had no offset is read far away"),
        pytest.param(goes_back, {"int-nonmonotonic-poll"}, id="a transaction goes back to another range"),
        pytest.param(goes_back_later, {"nonmonotonic-poll"}, id="a reader goes back to another range"),
        pytest.param(passes_over_whole_ranges, {"lost-write"}, id="what stands in ranges that nobody read is lost"),
        pytest.param(passes_over_all_but_the_first, {"lost-write", "poll-skip"}, id="and what stands behind the last that was read there"),
        pytest.param(skips_within_a_transaction, {"int-poll-skip"}, id="a transaction skips ranges"),
        pytest.param(goes_back_within_a_transaction, {"int-nonmonotonic-poll"}, id="a transaction polls a later range first"),
        pytest.param(begins_anew_after_it_had_polled_nothing_for_sure, set(), id="what did not move a reader"),
        pytest.param(has_a_poll_of_no_offset, set(), id="a poll of no offset"),
        pytest.param(has_a_list, set(), id="a list among messages"),
    ],
)  # fmt: skip
def test_what_goes_over_the_end_of_a_range_is_looked_at_by_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Rows], None], found: set[str]
) -> None:
    rows = orderly()
    change(rows)
    run_dir = in_row_groups(logged(tmp_path / "run", rows), 10)
    at_once = judged(run_dir)

    deal_all(monkeypatch, 2 * AT_ONCE)

    assert judged(run_dir) == at_once
    assert {one.finding.kind for one in at_once[0]} >= found
    assert are_judged_again(run_dir)


READER = {
    "key": 0, "process": 7, "first_row": 1, "first_step": 0, "last_row": 5, "last_step": 3, "entries": 1, "enters": 1, "first_at": 0,
    "moved_row": 5, "last_at": 9,
}  # fmt: skip
BEFORE = READER
BEHIND = READER | {"first_row": 6, "last_row": 8, "moved_row": 8, "last_at": 4}


def border(
    *readers: dict[str, int],
    known: int = 10,
    has_read: int = 1,
    tail: int = 0,
    placed: list[int] | None = None,
    orphans: list[int] | None = None,
    unplaced: list[tuple[int, int]] | None = None,
    found: list[int] | None = None,
    name: str = "t-0",
    is_odd: bool = False,
) -> Border:
    """The border of a range of one partition."""

    def values(own: list[int] | None) -> bytes:
        numbers = np.array(own or [], np.int64)
        return packed(np.zeros_like(numbers), numbers)

    rows = np.array([list(one.values()) for one in readers], np.int64).tobytes()
    of_key = np.array([known, has_read, tail], np.int64).tobytes()
    without = np.array([(0, *own) for own in unplaced or []], np.int64).tobytes()
    return Border((name,), is_odd, of_key, rows, values(placed), values(orphans), without, values(found))


@pytest.mark.parametrize(
    ("borders", "words"),
    [
        pytest.param([border(BEFORE), border(BEHIND)], [], id="a reader goes on"),
        pytest.param([border(BEFORE), border(BEHIND | {"first_at": 2})], ["poll of t-0 moves by 3"], id="it skips what is there first"),
        pytest.param([border(BEFORE | {"last_at": 8}), border(BEHIND)], ["poll of t-0 moves by 2"], id="it skips what is there last"),
        pytest.param([border(BEFORE), border(), border(BEHIND)], ["poll of t-0 moves by 11"], id="it skips a range"),
        pytest.param([border(BEFORE), border(known=0), border(BEHIND)], [], id="a range that holds nothing"),
        pytest.param([border(BEFORE), border(BEHIND | {"process": 8, "first_at": 2})], [], id="another reader"),
        pytest.param([border(BEFORE), border(BEHIND | {"first_at": 2}, name="t-1")], [], id="another partition"),
        pytest.param([border(BEFORE), border(BEHIND | {"entries": 3})], [], id="it begins several times where it goes on"),
        pytest.param([border(BEFORE), border(BEHIND | {"first_row": 5, "first_step": 4})], [], id="within a transaction"),
        pytest.param([border(has_read=0, tail=2), border(has_read=0)], [], id="what nobody read, nor anything later"),
        pytest.param([border(), border(tail=2)], [], id="what nobody read in the end"),
        pytest.param([border(placed=[1, 2]), border(placed=[3], orphans=[4, 5])], [], id="each value in one range"),
        pytest.param([border(placed=[1]), border(placed=[1], name="t-1")], [], id="a value in two partitions"),
        pytest.param([border(unplaced=[(3, 8)], found=[3]), border(unplaced=[(3, 8)])], [], id="two know of one without an offset"),
    ],
)  # fmt: skip
def test_it_is_found_how_readers_go_from_one_range_to_another(borders: list[Border], words: list[str]) -> None:
    found = over_borders(borders)

    assert found is not None
    assert [one.words for own in found.witnesses.values() for one in own] == words
    assert set(found.counts) == ({"poll-skip"} if words else set())


@pytest.mark.parametrize(
    "borders",
    [
        pytest.param([border(), border(is_odd=True)], id="a step that is in no range"),
        pytest.param([border(BEFORE), border(BEHIND | {"first_row": 4})], id="a reader goes back"),
        pytest.param([border(BEFORE), border(BEHIND | {"first_row": 5, "first_step": 3})], id="it goes back within a transaction"),
        pytest.param([border(BEFORE), border(BEHIND | {"first_row": 5, "first_step": 4, "first_at": 1})], id="it skips something within a transaction"),
        pytest.param([border(BEFORE | {"moved_row": 4}), border(BEHIND | {"first_row": 5, "first_step": 4})], id="which did not move it"),
        pytest.param([border(BEFORE | {"moved_row": -1, "last_at": -1}), border(BEHIND)], id="nothing moved it before"),
        pytest.param([border(BEFORE), border(BEHIND | {"first_at": -1})], id="it comes in at another value than the one that stands there"),
        pytest.param([border(BEFORE), border(BEHIND | {"entries": 2, "first_at": 2, "enters": 0})], id="it skips something, and polls again"),
        pytest.param([border(BEFORE), border(BEHIND | {"entries": 2, "enters": 0})], id="it polls again from elsewhere"),
        pytest.param([border(tail=1), border()], id="what nobody read where later ones were"),
        pytest.param([border(placed=[1, 2]), border(placed=[2])], id="a value is sent to two ranges"),
        pytest.param([border(placed=[1, 2]), border(orphans=[2])], id="it is read in another range"),
        pytest.param([border(unplaced=[(3, 8)]), border(orphans=[3])], id="what has no offset is read where nobody knows it"),
        pytest.param([border(unplaced=[(3, 8)], found=[3]), border(unplaced=[(3, 8)], found=[3])], id="what has no offset is read in two ranges"),
        pytest.param([border(unplaced=[(3, 8)]), border(unplaced=[(3, 9)])], id="two transactions sent it"),
        pytest.param([border(unplaced=[(3, 8)]), border(placed=[3])], id="it was sent to an offset as well"),
    ],
)  # fmt: skip
def test_ranges_do_not_say_all_of_it(borders: list[Border]) -> None:
    assert over_borders(borders) is None


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(0, 400, 20))
def test_many_messages_are_judged_by_offsets_as_they_are_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """Most polls go on where the last one ended; so it is seldom that ranges do not say all of it."""
    for seed in range(first, first + 20):
        random = Random(f"offsets of {seed}")
        sizes = {"clients": random.choice([2, 4, 9]), "partitions": random.choice([1, 2, 6])}
        rows = Log(random, random.choice([80, 150]), steady=random.choice([12, 300]), **sizes).rows
        for kind in random.choices(["", *OF_MESSAGES], k=random.choice([0, 1, 2])):
            rows = planted_in(rows, kind, random)
        run_dir = in_row_groups(logged(tmp_path / f"run-{seed}", rows, 1 + seed % 3), random.choice([5, 10, 23]))
        at_once = judged(run_dir)
        with monkeypatch.context() as patched:
            deal_all(
                patched, random.choice([20, 40, 150]), stretch=random.choice([8, 30]), margin=random.choice([1, 4])
            )
            assert judged(run_dir) == at_once, seed


def steps(*own: tuple[str, str, int | None, int | None]) -> pa.StructArray:
    rows = [
        {"kind": kind, "topic": topic, "partition": partition, "log_offset": offset, "value": 1}
        for kind, topic, partition, offset in own
    ]
    return pa.array(rows, OPERATION)


def group(number: int) -> Group:
    return Group("a", number, 10 * number, 10 * number + 9, 0, 10)


def test_it_is_said_which_offsets_a_row_group_has() -> None:
    own = steps(
        ("send", "t", 0, 7), ("send", "t", 0, 5), ("poll", "t", 0, 9), ("poll", "u", 0, 3), ("send", "t", 1, None), ("send", "t", 0, None),
    )  # fmt: skip

    said = offsets_in(group(0), own)

    spreads = (Spread("t", 0, 5, 9, 7, 3, 3), Spread("u", 0, 3, 3, -1, 1, 0), Spread("t", 1, END, -1, -1, 0, 1))
    assert said == OffsetsIn(group(0), spreads, has_unplaced=True)
    assert offsets_in(group(1), steps()) == OffsetsIn(group(1), (), has_unplaced=False)


def test_offsets_are_cut_where_a_row_group_ends() -> None:
    groups = [
        OffsetsIn(group(n), (Spread("t", 0, 8 * n, 8 * n + 9, 8 * n + 7, 16, 8),), has_unplaced=False) for n in range(4)
    ]

    cut = by_offsets(groups, 32)

    assert cut == [
        ((Extent("t", 0, BEGINNING, 16, are_sent=True),), (group(0), group(1))),
        ((Extent("t", 0, 16, END, are_sent=True),), (group(1), group(2), group(3))),
    ]


def test_no_range_is_empty() -> None:
    """What has no range of its own would be taken for the number of a partition."""
    groups = [
        OffsetsIn(group(0), (Spread("t", 0, 0, 7, 7, 40, 8),), has_unplaced=False),
        OffsetsIn(group(1), (), has_unplaced=False),
        OffsetsIn(group(2), (Spread("t", 0, 8, 15, 15, 60, 8),), has_unplaced=False),
    ]

    cut = by_offsets(groups, 20)

    assert [[(own.first, own.end) for own in extents] for extents, _ in cut] == [[(BEGINNING, 8)], [(8, END)]]
    assert by_offsets(groups[1:2], 20) == []


def test_who_has_the_last_offsets_reads_row_groups_that_have_none() -> None:
    """A message of unknown offset may be the one that was read anywhere."""
    placed = [
        OffsetsIn(group(n), (Spread("t", 0, 8 * n, 8 * n + 7, 8 * n + 7, 16, 8),), has_unplaced=True) for n in (0, 2)
    ]
    lost = OffsetsIn(group(1), (Spread("t", 0, END, -1, -1, 0, 1),), has_unplaced=True)

    cut = by_offsets([placed[0], lost, placed[1]], 16)

    assert [own for _, own in cut] == [(group(0),), (group(1), group(2))]
