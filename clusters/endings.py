"""Work that must not be left half-way.

`asyncio.shield` alone is not enough: who shields goes on at once, its loop is closed, and what a loop has left then is cancelled.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Protocol, TypeVar

from tribunal.clusters.api import ClusterError, NotServing

T = TypeVar("T")


class BroughtUp(Protocol):
    """A cluster that is started and let go of."""

    async def bring_up(self) -> None:
        """Start it; return when it serves."""

    async def close(self) -> None:
        """Leave nothing of it behind."""


C = TypeVar("C", bound=BroughtUp)


async def to_its_end(work: Coroutine[object, None, T]) -> T:
    """Do work that must not be left half-way: who is cancelled meanwhile, however often, is so only when it is done."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # the cancellation is what is raised
        raise


async def completed(work: Coroutine[object, None, T]) -> T:
    """Do work whose result must not be lost, as what a disk has lost by it; who is cancelled meanwhile is so at his next wait behind it."""
    task, waiting = asyncio.ensure_future(work), asyncio.current_task()
    assert waiting is not None
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if task.cancelled():
            raise
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        waiting.uncancel()
        waiting.cancel()
        return task.result()


async def all_done(works: Iterable[Awaitable[T]]) -> list[T]:
    """Do several works at once, each to its end, whatever becomes of the others; then raise what `failure_of` makes of what went wrong."""
    done = await asyncio.gather(*works, return_exceptions=True)
    if (problem := failure_of(done)) is not None:
        raise problem
    return [one for one in done if not isinstance(one, BaseException)]


async def side_by_side(works: Iterable[Coroutine[object, None, T]]) -> list[T]:
    """Do several works at once; where one fails the others are ended before that is raised: nobody waits for what they would do yet.

    (`asyncio.gather` alone leaves them going, behind the back of whoever puts everything down.)
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        if left := [task for task in tasks if not task.done()]:
            for task in left:
                task.cancel()
            await asyncio.wait(left)
        raise


def failure_of(ended: Iterable[object]) -> BaseException | None:
    """Return what to raise where several works have ended like this, results and exceptions; None: nothing.

    A bug as it is. Of several failures a `ClusterError` that names each once, those of nodes that do not start again too; these alone
    keep no run from going on, and the first of them is raised.
    """
    problems = [one for one in ended if isinstance(one, BaseException)]
    if problem := next((one for one in problems if not isinstance(one, ClusterError)), None):
        return problem
    named: dict[str, BaseException] = {}
    for one in problems:
        named.setdefault(str(one), one)
    if len(named) > 1 and not all(isinstance(one, NotServing) for one in problems):
        return ClusterError("; ".join(named))
    return next(iter(named.values()), None)


async def put_down(task: asyncio.Task[None]) -> None:
    """Cancel a task that looks again and again, and wait until it has ended; what it failed of is raised."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def brought_up(cluster: C) -> C:
    """Bring a cluster up; whatever goes wrong, nothing of it stays."""
    try:
        await cluster.bring_up()
    except BaseException:
        await to_its_end(cluster.close())
        raise
    return cluster
