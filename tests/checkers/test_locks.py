"""Locks, judged from the table `operations`: each history beside its nearest neighbour that is wrong."""

import pytest

from tests.checkers.test_queues import Called, judge
from tribunal.checkers.properties import locks
from tribunal.results.manifest import LEASE_MS


def judged(*called: Called, within_ms: int | None = None, lease_ms: int | None = None) -> list[tuple[str, bool]]:
    """Return what is found, and whether it is permitted."""
    return judge(locks.kernel, called, within_ms, {} if lease_ms is None else {LEASE_MS: lease_ms})


def take(holder: int, begin: int, outcome: str = "ok", token: int | None = None) -> Called:
    return "acquire", str(holder), None if token is None else str(token), begin, outcome


def free(holder: int, begin: int, outcome: str = "ok") -> Called:
    return "release", str(holder), None, begin, outcome


@pytest.mark.parametrize(
    ("called", "found"),
    [
        pytest.param([take(1, 100), free(1, 200), take(2, 300), free(2, 400)], [], id="one after the other"),
        pytest.param([take(1, 100), take(2, 150), free(1, 200), free(2, 400)], ["held_twice"], id="two at once"),
        pytest.param([take(1, 100), take(2, 194), free(1, 200)], ["held_twice"], id="answered before the release"),
        pytest.param([take(1, 100), take(2, 196), free(1, 200)], [], id="answered beside the release"),
        pytest.param([take(1, 100), free(1, 200, "info"), take(2, 300)], [], id="a release in doubt"),
        pytest.param([take(1, 100), take(2, 150, "fail"), free(1, 200), take(2, 300)], [], id="refused"),
        pytest.param([take(1, 100), take(2, 150, "info"), free(1, 200), take(3, 300)], [], id="in doubt"),
        pytest.param([take(1, 100, "info"), take(2, 150), free(1, 200)], [], id="the first in doubt"),
        pytest.param([take(1, 100), take(2, 102), free(1, 300), free(2, 400)], ["held_twice"], id="asked at once"),
        pytest.param(
            [take(1, 100), take(2, 150), take(3, 160), free(3, 170), free(2, 180)],
            ["held_twice", "held_twice"],
            id="two beside the first",
        ),
        pytest.param([take(1, 100), free(1, 150), take(1, 200), take(2, 250)], ["held_twice"], id="acquired again"),
        pytest.param([take(1, 100), free(1, 200), take(2, 300, "fail")], ["not_acquired"], id="refused at the end"),
        pytest.param([take(1, 100), free(1, 200), take(2, 300, "info")], ["not_acquired"], id="in doubt at the end"),
    ],
)
def test_a_lock(called: list[Called], found: list[str]) -> None:
    assert judged(*called) == [(kind, False) for kind in found]


@pytest.mark.parametrize(
    ("begin", "found"),
    [pytest.param(290, ["held_twice"], id="before its end"), pytest.param(296, [], id="at its end")],
)
def test_a_lease_ends(begin: int, found: list[str]) -> None:
    """It runs from the asking: whoever grants it cannot have begun to count before."""
    assert judged(take(1, 100), take(2, begin), lease_ms=200) == [(kind, False) for kind in found]


def test_a_lease_that_was_over_when_the_answer_came_is_held_by_nobody() -> None:
    assert judged(take(1, 100), take(2, 101), lease_ms=4) == []


@pytest.mark.parametrize(
    ("called", "found"),
    [
        pytest.param([take(1, 100, token=7), free(1, 200), take(2, 300, token=8)], [], id="greater"),
        pytest.param([take(1, 100, token=7), free(1, 200), take(2, 300, token=7)], ["token_back"], id="the same"),
        pytest.param([take(1, 100, token=7), free(1, 200), take(2, 300, token=6)], ["token_back"], id="less"),
        pytest.param([take(1, 100, token=7), free(1, 102), take(2, 103, token=6)], [], id="asked at the same time"),
        pytest.param([take(1, 100), free(1, 200), take(2, 300, token=1)], [], id="one without"),
    ],
)
def test_tokens_grow(called: list[Called], found: list[str]) -> None:
    assert judged(*called) == [(kind, False) for kind in found]


@pytest.mark.parametrize(("within_ms", "is_permitted"), [(400, True), (100, False), (None, False)])
def test_a_kill_takes_what_the_file_permits(within_ms: int | None, is_permitted: bool) -> None:
    """An acquisition of so long before the kill (at 500 ms) and not of longer."""
    assert judged(take(1, 200), take(2, 700), within_ms=within_ms) == [("held_twice", is_permitted)]
    tokens = [take(1, 200, token=7), free(1, 250), take(2, 700, token=7)]
    assert judged(*tokens, within_ms=within_ms) == [("token_back", is_permitted)]


@pytest.mark.parametrize(
    "called",
    [
        pytest.param([take(1, 200), take(2, 300)], id="both before the kill"),
        pytest.param([take(1, 600), take(2, 700)], id="both after it"),
    ],
)
def test_a_kill_that_did_not_come_between_excuses_nothing(called: list[Called]) -> None:
    assert judged(*called, within_ms=400) == [("held_twice", False)]


def test_a_lost_acquisition_hides_no_two_that_were_made_after_the_kill() -> None:
    """The kill took the first one, whose holder asks for the release last: of the two behind it none was lost."""
    first, second, third = take(1, 300), take(2, 600), take(3, 700)

    assert judged(first, second, free(2, 650), third, free(1, 900), within_ms=400) == [
        ("held_twice", True),
        ("held_twice", True),
    ]
    assert judged(first, second, third, free(2, 800), free(1, 900), within_ms=400) == [
        ("held_twice", False),
        ("held_twice", True),
    ]


def test_a_token_goes_back_no_further_than_the_kill_takes() -> None:
    early, late = take(1, 50, token=7), take(2, 200, token=8)

    assert judged(early, free(1, 60), late, free(2, 210), take(3, 700, token=8), within_ms=400) == [
        ("token_back", True)
    ]
    assert judged(early, free(1, 60), late, free(2, 210), take(3, 700, token=7), within_ms=400) == [
        ("token_back", False)
    ]
