"""A process of a workload that fails: none of the others goes on behind the back of whoever puts everything down."""

import asyncio
from random import Random

import pytest

from tribunal.clusters.api import ClusterError
from tribunal.clusters.endings import side_by_side
from tribunal.workloads.kinds.register import Options
from tribunal.workloads.objects import drawn_plan, of_each_process

WORKERS = 3


async def ended_with(problem: BaseException) -> list[str]:
    """Let the second of several processes fail; return what was said until that was raised."""
    said: list[str] = []

    async def work(process: int, random: Random) -> None:
        try:
            await asyncio.sleep(0)
            if process == 2:
                raise problem
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # to close its client takes a moment
            said.append(f"{process} ended")

    with pytest.raises(type(problem)):
        await of_each_process(drawn_plan(Options(processes=WORKERS), Random(1)), work)
    return [*said]  # what the loop ends when it is left comes too late


@pytest.mark.parametrize("problem", [ClusterError("a line that is no answer"), ZeroDivisionError("a bug")])
def test_the_others_have_ended_when_it_is_raised(problem):
    assert sorted(asyncio.run(ended_with(problem))) == ["1 ended", "2 ended", "3 ended"]


def test_who_waits_and_is_cancelled_has_ended_all():
    said: list[int] = []

    async def work(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            said.append(number)

    async def story() -> None:
        task = asyncio.create_task(side_by_side(map(work, range(WORKERS))))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(story())

    assert said == [0, 1, 2]


def test_what_all_of_them_return_is_returned_in_their_order():
    async def work(number: int) -> int:
        await asyncio.sleep(0.001 * (WORKERS - number))
        return number

    assert asyncio.run(side_by_side(map(work, range(WORKERS)))) == [0, 1, 2]
