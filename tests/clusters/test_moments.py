"""Moments by which answers are compared: what was asked later must never seem to have been asked before, whichever loop runs."""

import asyncio
import time
from collections.abc import Callable

import pytest
import uvloop

from tribunal.clusters.api import Offsets, TopicPartition
from tribunal.clusters.clock import RunClock, ago_ns, moment_s

LOOPS = [pytest.param(asyncio.new_event_loop, id="asyncio"), pytest.param(uvloop.new_event_loop, id="uvloop")]
CALLBACK_S = 0.004  # other callbacks of the same turn: the loop is busy


def busy() -> None:
    began = time.monotonic()
    while time.monotonic() - began < CALLBACK_S:
        pass


@pytest.mark.parametrize("new_loop", LOOPS)
def test_a_moment_within_a_turn_is_later_than_one_before(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def moments() -> tuple[float, float, int]:
        first = moment_s()
        busy()
        return first, moment_s(), ago_ns(first)

    first, second, ago = run(new_loop, moments())

    assert second - first >= CALLBACK_S
    assert ago >= CALLBACK_S * 1e9


@pytest.mark.parametrize("new_loop", LOOPS)
def test_an_answer_is_recorded_no_earlier_than_it_came_and_a_question_no_later_than_it_was_asked(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """A fetch that was asked behind an answer of ListOffsets seemed to have been asked before, or the other way round."""

    async def recorded() -> tuple[int, int, int, int]:
        clock = RunClock()
        await asyncio.sleep(0.01)
        busy()
        before_ns = clock.now_ns()
        asked_s = moment_s()
        busy()
        answered_s = moment_s()
        came_ns = clock.now_ns()
        busy()
        offsets = Offsets(TopicPartition("t", 0), 0, 1, 0, None, answered_s=answered_s, asked_s=asked_s)
        age_ns = offsets.age_ns()
        at_ns = clock.now_ns() - age_ns
        asked_ns = clock.now_ns() - ago_ns(asked_s)
        return before_ns, asked_ns, came_ns, at_ns

    before_ns, asked_ns, came_ns, at_ns = run(new_loop, recorded())

    slack_ns = CALLBACK_S * 1e9 / 4
    assert asked_ns <= before_ns + slack_ns
    assert at_ns >= came_ns - slack_ns


def run(new_loop: Callable[[], asyncio.AbstractEventLoop], main):  # type: ignore[no-untyped-def]
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)
