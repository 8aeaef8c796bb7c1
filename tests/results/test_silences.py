"""Silences: a second or longer in which nothing was acknowledged although clients kept asking, each beside its nearest neighbour that is none."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checkers.recorded import MS, Run
from tests.checkers.test_sql import agree
from tribunal.checkers.judge.verdict import check
from tribunal.results.report.promises import account
from tribunal.results.silences import Attempts, bounding, joined, silences
from tribunal.results.store import Recording

OK, FAIL, OPEN = "ok", "info", "open"
Asked = list[tuple[int, int, str]]  # from, to (ms), and how it ended


def recorded(run_dir: Path, asked: Asked, deleted: int | None = None, acks: int = -1) -> Path:
    run = Run(run_dir)
    for sequence, (start, end, outcome) in enumerate(sorted(asked)):
        done = {} if outcome == OK else {"outcome": "info", "log_offset": None}
        run.send(sequence, start, acks=acks, complete_ns=None if outcome == OPEN else end * MS, **done)
    if deleted is not None:
        admin = {"process": 80, "api": "delete_topic", "topic": "t", "outcome": "ok"}
        run.recorder.row("admin", **admin, invoke_ns=deleted * MS, complete_ns=(deleted + 1) * MS)
    return run.finish()


@pytest.mark.parametrize(("asked", "expected"), [
    pytest.param([(0, 5, OK), (10, 1_500, OK)], [(10, 1_500)], id="a slow answer, from its call on"),
    pytest.param([(0, 5, OK), (1_490, 1_500, OK)], [], id="an idle client"),
    pytest.param([(0, 5, OK), (10, 120, FAIL), (900, 910, FAIL), (1_500, 1_510, OK)], [(10, 1_510)], id="asked again and again"),
    pytest.param([(0, 5, OK), (10, 120, FAIL), (1_500, 1_510, OK)], [], id="one that failed, and a rest"),
    pytest.param([(0, 5, OK), (2, 2_000, FAIL), (10, 12, OK), (1_990, 1_995, OK)], [(12, 1_995)], id="one under way all the while"),
    pytest.param([(0, 5, OK), (2, 20, FAIL), (500, 600, OK), (1_590, 1_595, OK)], [], id="one that failed at once"),
    pytest.param([(0, 2_000, FAIL), (2_100, 4_000, FAIL)], [(0, 4_000)], id="never answered"),
    pytest.param([(0, 400, FAIL), (450, 900, FAIL)], [], id="never answered, asked for less than a second"),
    pytest.param([(0, 1_000, FAIL), (1_100, 1_200, OK)], [(0, 1_200)], id="not answered at first"),
    pytest.param([(0, 500, FAIL), (600, 700, OK)], [], id="answered soon"),
    pytest.param([(0, 5, OK), (10, 2_000, FAIL)], [(10, 2_000)], id="not answered any more"),
    pytest.param([(0, 5, OK), (10, 800, FAIL)], [], id="given up at the end"),
    pytest.param([(0, 5, OK), (10, 0, OPEN), (2_000, 2_010, FAIL)], [(10, 2_010)], id="never given up"),
    pytest.param([(0, 5, OK), (2_000, 0, OPEN)], [], id="cut off as it asked"),
])  # fmt: skip
def test_what_was_asked_for_and_not_acknowledged_is_silence(
    tmp_path: Path, asked: Asked, expected: list[tuple[int, int]]
) -> None:
    run_dir = recorded(tmp_path / "run", asked)

    found = account(Recording.open(run_dir), ["t-0"]).silences
    (verdict,) = check([run_dir], "inline")

    assert [(start // MS, end // MS) for one in found for start, end in one.gaps] == expected
    figures = verdict.figures["availability"]
    assert [one["total_ns"] for one in figures["unavailable"]] == [one.total_ns for one in found if one.gaps]
    assert [one["asked_ns"] for one in figures["asked"]] == [one.asked_ns for one in found]
    assert agree(run_dir, "availability").total() == len(expected)


@pytest.mark.parametrize(("deleted", "expected"), [
    pytest.param(None, [(10, 4_000)], id="nobody deleted it"),
    pytest.param(50, [], id="deleted"),
    pytest.param(2_000, [(10, 2_000)], id="silent before"),
])  # fmt: skip
def test_nothing_is_promised_of_a_topic_that_was_to_be_deleted(
    tmp_path: Path, deleted: int | None, expected: list[tuple[int, int]]
) -> None:
    run_dir = recorded(tmp_path / "run", [(0, 5, OK), (10, 2_500, FAIL), (2_600, 4_000, FAIL)], deleted)

    (found,) = account(Recording.open(run_dir), ["t-0"]).silences

    assert [(start // MS, end // MS) for start, end in found.gaps] == expected
    assert agree(run_dir, "availability").total() == len(expected)


def test_each_acks_level_has_its_own(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.send(0, 0, complete_ns=2_000 * MS, outcome="info", log_offset=None)
    run.send(1, 500, acks=1)
    run.send(2, 1_000, acks=0)

    found = account(Recording.open(run.finish()), ["t-0"]).silences

    assert [(one.acks, len(one.gaps)) for one in found] == [(-1, 1), (1, 0)]


MOMENTS = st.integers(0, 60).map(lambda step: step * 90)
ANY_ATTEMPT = st.tuples(MOMENTS, st.integers(0, 30).map(lambda step: step * 70), st.sampled_from([OK, OK, FAIL, OPEN]))
ATTEMPTS = st.lists(ANY_ATTEMPT.map(lambda one: (one[0], one[0] + one[1], one[2])), max_size=30)


def attempts_of(asked: Asked) -> Attempts:
    ended = [-1 if outcome == OPEN else end * MS for _, end, outcome in asked]
    done = np.array([outcome == OK for *_, outcome in asked], np.bool_)
    return Attempts(np.array([start * MS for start, *_ in asked], np.int64), np.array(ended, np.int64), done)


@settings(deadline=None, max_examples=300)
@given(ATTEMPTS, st.integers(1, 4), st.one_of(st.none(), MOMENTS))
def test_the_bounding_attempts_of_pieces_have_the_same_silences(asked: Asked, size: int, deleted: int | None) -> None:
    until_ns = None if deleted is None else deleted * MS
    whole = attempts_of(asked).until(until_ns)
    pieces = [attempts_of(asked[at : at + size]).until(until_ns) for at in range(0, len(asked), size)]

    again = silences(joined([piece.taken(bounding(piece)) for piece in pieces]))

    expected = silences(whole)
    assert (again.start_ns.tolist(), again.end_ns.tolist()) == (expected.start_ns.tolist(), expected.end_ns.tolist())
    assert again.asked_ns == expected.asked_ns


def test_few_of_many_attempts_bound_silences() -> None:
    asked = [(at // 10, at // 10 + 3, OK) for at in range(100_000)]

    assert bounding(attempts_of(asked)).size < 1_000


@settings(deadline=None, max_examples=15)
@given(ATTEMPTS, st.one_of(st.none(), MOMENTS))
def test_the_query_finds_the_same(asked: Asked, deleted: int | None) -> None:
    with TemporaryDirectory() as folder:
        agree(recorded(Path(folder) / "run", asked, deleted), "availability")
