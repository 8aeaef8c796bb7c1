"""Requests that ask for thousands of things at once: whoever else waits for the event loop has a turn in between.

A few hundred kilobytes may ask for tens of thousands of markers or transactions: seconds of thinking, in which nobody else
would be answered. Requests for fewer are carried out in one go, as if this were not here, unless they take long.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from replog.controller.served_api import ServedApi
from replog.errors import Error
from replog.node.boundary import contain
from replog.node.net.server import AwaitedRequest
from replog.node.tasks import Failed, Tasks
from replog.ports import Clock, Journal
from replog.wire.exchange import Q, R

AT_ONCE_MAX: Final = 100
UNCOUNTED: Final = 1 << 30  # of what usually takes no time: only the clock ends a turn
TURN_NS: Final = 200_000_000  # one of a hundred may take longer than the others together

T = TypeVar("T")


def in_turns(
    tasks: Tasks,
    clock: Clock,
    wanted: Iterator[T],
    do: Callable[[T], None],
    *,
    done: Callable[[], None],
    failed: Failed,
    at_once: int = AT_ONCE_MAX,
) -> bool:
    """Do all that is wanted, and at last `done`: as much as may be at once now, the rest in tasks' time.

    failed:   takes an error of the rest; one of what is done now is raised.
    returns:  whether all of it is done.
    """
    if _some(clock, wanted, do, at_once):
        done()
        return True
    tasks.start(_rest(clock, wanted, do, done, at_once), failed=failed)
    return False


async def _rest(
    clock: Clock, wanted: Iterator[T], do: Callable[[T], None], done: Callable[[], None], at_once: int
) -> None:
    is_done = False
    while not is_done:
        await asyncio.sleep(0)
        is_done = _some(clock, wanted, do, at_once)
    done()


def _some(clock: Clock, wanted: Iterator[T], do: Callable[[T], None], at_once: int) -> bool:
    """Do the next ones; return whether these were the last."""
    until_ns = clock.now_ns() + TURN_NS
    for count, one in enumerate(wanted, 1):
        do(one)
        if count == at_once or clock.now_ns() > until_ns:
            return False
    return True


def refused_later(journal: Journal, request: AwaitedRequest[Q, R], served: ServedApi[Q, R]) -> Failed:
    """Return what answers UNKNOWN_SERVER_ERROR when the rest of a request's work fails unforeseen; it raises what ends the node."""
    body = request.body  # the request lets go of it should the connection end meanwhile

    def refuse(problem: Exception) -> None:
        contain(journal, served.exchange.api.name, problem)
        request.reply(served.refused(body, Error.UNKNOWN_SERVER_ERROR))

    return refuse
