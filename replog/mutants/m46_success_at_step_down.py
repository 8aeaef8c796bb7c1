"""M46: produces that wait when the leader steps down are answered with success.

Evidence: acknowledged records are lost exactly at a change of leader.
"""

from replog.broker.purgatory import DelayedProduce, ProduceQueue
from replog.errors import Error

SCENARIO = "fast-failovers"


def install() -> None:
    """Take the end of the wait for its success."""
    fail = ProduceQueue.fail

    def succeed(self: ProduceQueue, error: Error) -> list[DelayedProduce]:
        return fail(self, Error.NONE if error is Error.NOT_LEADER_OR_FOLLOWER else error)

    ProduceQueue.fail = succeed  # type: ignore[method-assign]
