"""Counters, judged from the table `operations`: each history beside its nearest neighbour that is wrong."""

from time import process_time

import pytest

from tests.checkers.test_queues import Called, judge
from tribunal.checkers.properties import counters


def judged(*called: Called, within_ms: int | None = None) -> list[tuple[str, bool]]:
    """Return what is found, and whether it is permitted."""
    return judge(counters.kernel, called, within_ms)


def more(amount: int, begin: int, outcome: str = "ok") -> Called:
    return "increment", str(amount), None, begin, outcome


def read(value: int | None, begin: int) -> Called:
    return "read-counter", None, None if value is None else str(value), begin, "ok"


@pytest.mark.parametrize(
    ("called", "found"),
    [
        pytest.param([read(None, 50), more(3, 100), more(4, 200), read(7, 300)], [], id="all of it"),
        pytest.param([more(3, 100), more(4, 200), read(3, 300)], ["too_low"], id="one is missing"),
        pytest.param([more(3, 100), more(4, 200), read(3, 204), read(7, 300)], [], id="one is under way"),
        pytest.param([more(3, 100), more(4, 200), read(7, 202)], ["unread"], id="nobody read to the end"),
        pytest.param([more(3, 100), more(4, 200, "info"), read(3, 300)], [], id="one of unknown end does not count"),
        pytest.param([more(3, 100), more(4, 200, "info"), read(7, 300)], [], id="or does"),
        pytest.param([more(3, 100), more(4, 200, "info"), read(5, 300)], [], id="between the two nobody looks"),
        pytest.param([more(3, 100), more(4, 200, "info"), read(8, 300)], ["too_high"], id="more than both"),
        pytest.param([more(3, 100), more(4, 200, "fail"), read(7, 300)], ["too_high"], id="a refused one counted"),
        pytest.param([more(3, 100), read(6, 200)], ["too_high"], id="one counted twice"),
        pytest.param([read(3, 90), more(3, 100), read(3, 200)], ["too_high"], id="before anybody asked"),
        pytest.param([more(3, 100), read(3, 102), read(3, 200)], [], id="while somebody asks"),
        pytest.param([more(4, 100, "info"), read(4, 200), read(0, 300)], ["went_back"], id="it was there, and is gone"),
        pytest.param([more(4, 100, "info"), read(4, 200), read(0, 204)], [], id="read at the same time"),
        pytest.param([more(4, 100, "info"), read(0, 200), read(4, 300)], [], id="it came later"),
        pytest.param(
            [more(4, 100, "info"), read(4, 200), read(0, 300), read(0, 400), read(4, 500), read(0, 600)],
            ["went_back", "went_back"],
            id="each step back once",
        ),
        pytest.param([more(3, 100), read(0, 200), read(0, 300), read(0, 400)], ["too_low"], id="the same loss once"),
        pytest.param(
            [more(3, 100), read(0, 200), more(4, 300), read(0, 400)], ["too_low", "too_low"], id="and a further one"
        ),
        pytest.param([more(3, 100), more(4, 300)], ["unread"], id="nobody read at all"),
        pytest.param([more(3, 100, "info")], [], id="nothing is owed"),
    ],
)
def test_a_counter(called: list[Called], found: list[str]) -> None:
    assert judged(*called) == [(kind, False) for kind in found]


@pytest.mark.parametrize(("within_ms", "is_permitted"), [(400, True), (100, False), (None, False)])
def test_a_kill_takes_what_the_file_permits(within_ms: int | None, is_permitted: bool) -> None:
    """An increment of so long before the kill (at 500 ms) and not of longer, acknowledged or seen."""
    assert judged(more(3, 200), read(0, 700), within_ms=within_ms) == [("too_low", is_permitted)]
    seen = [more(3, 150, "info"), read(3, 200), read(0, 700)]
    assert judged(*seen, within_ms=within_ms) == [("went_back", is_permitted)]


@pytest.mark.parametrize(
    ("called", "found"),
    [
        pytest.param([more(3, 50), more(4, 200), read(3, 700)], ("too_low", True), id="the late one"),
        pytest.param([more(3, 50), more(4, 200), read(0, 700)], ("too_low", False), id="the early one with it"),
        pytest.param([more(3, 50), more(4, 200), read(2, 700)], ("too_low", False), id="more than the late one"),
        pytest.param([more(4, 200), read(0, 300), read(4, 700)], ("too_low", False), id="missing before the kill"),
        pytest.param([more(4, 600), read(0, 700)], ("too_low", False), id="added after the kill"),
        pytest.param([more(4, 200), read(4, 600), read(0, 700)], ("too_low", False), id="there after the kill"),
        pytest.param([more(4, 200), read(4, 300), read(0, 700)], ("too_low", True), id="there before the kill"),
        pytest.param(
            [more(4, 200), read(4, 600), more(4, 620), read(4, 700)],
            ("too_low", False),
            id="another one behind what was there",
        ),
        pytest.param(
            [more(3, 100, "info"), more(4, 200), read(4, 600), more(3, 620), read(4, 700)],
            ("too_low", False),
            id="what was acknowledged behind a read behind the kill",
        ),
        pytest.param(
            [more(3, 100, "info"), more(4, 200), read(3, 600), more(3, 620), read(6, 700)],
            ("too_low", True),
            id="there behind the kill was the one in doubt",
        ),
    ],
)
def test_no_more_is_permitted_than_the_kill_may_have_taken(called: list[Called], found: tuple[str, bool]) -> None:
    assert judged(*called, within_ms=400) == [found]


def test_a_second_loss_does_not_take_the_excuse_of_the_first() -> None:
    """What the kill took is read after it; what is missing later beyond that has none."""
    called = [more(3, 200), more(4, 550), read(4, 600), read(0, 700)]

    assert judged(*called, within_ms=400) == [("too_low", False), ("too_low", True)]


@pytest.mark.parametrize(
    ("called", "found"),
    [
        pytest.param([more(3, 100, "info"), read(3, 200), more(2, 300), read(3, 400)], ["too_low"], id="lost"),
        pytest.param([more(3, 100, "info"), read(3, 200), more(4, 300), read(5, 400)], ["too_low"], id="a part of it"),
        pytest.param([more(3, 100, "info"), read(3, 200), more(4, 300), read(7, 400)], [], id="there"),
        pytest.param([more(4, 100, "info"), read(0, 200), more(3, 300), read(3, 400)], [], id="nobody had seen it"),
        pytest.param([more(3, 100, "info"), more(3, 198), read(3, 200), read(3, 400)], [], id="either was seen"),
        pytest.param([more(3, 100, "info"), read(3, 200), more(4, 398), read(3, 400)], ["unread"], id="under way"),
        pytest.param(
            [more(9, 100, "info"), read(9, 200), more(4, 300), read(9, 400), read(9, 500), more(2, 600), read(9, 700)],
            ["too_low", "too_low"],
            id="each loss once",
        ),
    ],
)
def test_an_increment_of_unknown_end_hides_no_acknowledged_one(called: list[Called], found: list[str]) -> None:
    """Once a read has shown the one in doubt, it does not stand in for what is acknowledged behind that read."""
    assert judged(*called) == [(kind, False) for kind in found]


@pytest.mark.parametrize(
    ("called", "is_permitted"),
    [
        pytest.param([more(3, 50, "info"), read(3, 60), more(3, 450), read(3, 700)], True, id="acknowledged before it"),
        pytest.param([more(3, 50, "info"), read(3, 60), more(3, 600), read(3, 700)], False, id="and behind it"),
        pytest.param([more(3, 50, "info"), read(3, 60), more(3, 80), read(3, 700)], False, id="and long before it"),
        pytest.param([more(3, 200, "info"), read(3, 300), more(3, 600), read(3, 700)], True, id="what was seen"),
        pytest.param([more(3, 200, "info"), read(3, 550), more(3, 600), read(3, 700)], False, id="seen behind it"),
    ],
)
def test_a_kill_takes_what_was_shown_and_acknowledged_since(called: list[Called], is_permitted: bool) -> None:
    assert judged(*called, within_ms=400) == [("too_low", is_permitted)]


def test_what_was_lost_by_right_hides_no_later_step_back() -> None:
    """The kill took 4 of 7. What is missing of them stays missing; what a later read lacks besides was there after it."""
    called = [more(3, 50), more(4, 200), read(3, 600), more(5, 620, "info"), read(7, 650), read(4, 700)]

    assert judged(*called, within_ms=400) == [("too_low", True), ("went_back", False)]
    assert judged(*called[:-1], read(7, 700), within_ms=400) == [("too_low", True)]


def test_a_counter_that_stays_too_low_is_judged_in_linear_time() -> None:
    """Each of these reads was compared with all before it."""
    called = [more(9, 10), read(9, 100), *(read(0, 200 + 10 * number) for number in range(30_000))]
    began = process_time()

    assert judged(*called) == [("too_low", False)]
    assert process_time() - began < 10
