"""Requests that wait: produces for the high watermark, fetches for data (SPEC 3.7.2, 3.7.3).

Nothing here is periodic: a request is looked at again when its partition moves or its time is over. Deadlines are
kept in coarse buckets, so that a completed request leaves without searching a heap, and everything comes out in the
order it went in: replays depend on it. Ops are completed by the caller; this module only says which.
"""

import heapq
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from replog.errors import Error
from replog.wire.messages.produce import TopicProduceData

BUCKET_MS: Final = 8


class Waiting(Protocol):
    """What can wait for a time: anything that remembers until when."""

    deadline_ms: int


Op = TypeVar("Op", bound=Waiting)


class Deadlines(Generic[Op]):
    """Ops by the time they give up. Never early, at most one bucket late."""

    def __init__(self) -> None:
        self.buckets: dict[int, dict[Op, None]] = {}
        self.order: list[int] = []

    def add(self, op: Op) -> None:
        """Keep the op until its deadline or `discard`."""
        bucket = -(-op.deadline_ms // BUCKET_MS)
        members = self.buckets.get(bucket)
        if members is None:
            members = self.buckets[bucket] = {}
            heapq.heappush(self.order, bucket)
        members[op] = None

    def discard(self, op: Op) -> None:
        """Forget the op; one that is not here is fine."""
        members = self.buckets.get(-(-op.deadline_ms // BUCKET_MS))
        if members is not None:
            members.pop(op, None)

    def expire(self, now_ms: int) -> list[Op]:
        """Take out all ops whose deadline has passed, oldest bucket first."""
        expired: list[Op] = []
        while self.order and self.order[0] * BUCKET_MS <= now_ms:
            expired.extend(self.buckets.pop(heapq.heappop(self.order)))
        return expired

    @property
    def next_ms(self) -> int | None:
        """When `expire` is worth calling next, or None when nothing waits."""
        while self.order and not self.buckets[self.order[0]]:
            del self.buckets[heapq.heappop(self.order)]
        return self.order[0] * BUCKET_MS if self.order else None


class ProduceResult:
    """One partition's share of a produce request; `error` is None while it waits."""

    __slots__ = ("base_offset", "error", "index", "log_append_time_ms", "log_start_offset", "required_offset", "topic")

    def __init__(
        self,
        topic: TopicProduceData,
        index: int,
        error: Error | None,
        *,
        base_offset: int = -1,
        last_offset: int = -1,
        log_append_time_ms: int = -1,
        log_start_offset: int = -1,
    ) -> None:
        self.topic = topic
        self.index = index
        self.error = error
        self.base_offset = base_offset
        self.required_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset


class DelayedProduce:
    """A produce request with acks=all: complete when each of its partitions has an outcome."""

    __slots__ = ("deadline_ms", "respond", "results", "waiting")

    def __init__(
        self, results: list[ProduceResult], deadline_ms: int, respond: Callable[[list[ProduceResult]], None]
    ) -> None:
        self.results = results
        self.deadline_ms = deadline_ms
        self.respond = respond
        self.waiting = sum(result.error is None for result in results)

    def complete_partition(self, result: ProduceResult, error: Error) -> bool:
        """Give one partition its outcome; return whether that completed the request."""
        if result.error is not None:
            return False
        result.error = error
        self.waiting -= 1
        return self.waiting == 0

    def time_out(self) -> None:
        """Give up: the records stay in the log and may still become visible (SPEC 3.7.3)."""
        for result in self.results:
            if result.error is None:
                self.complete_partition(result, Error.REQUEST_TIMED_OUT)


class ProduceQueue:
    """Produces waiting on one partition, by the offset each waits for."""

    def __init__(self) -> None:
        self.heap: list[tuple[int, int, DelayedProduce, ProduceResult]] = []
        self.arrivals = 0

    def add(self, op: DelayedProduce, result: ProduceResult) -> None:
        """Wait for the result's offset. Retries of old batches may wait for lower ones than their elders."""
        self.arrivals += 1
        heapq.heappush(self.heap, (result.required_offset, self.arrivals, op, result))

    def complete_ready(self, outcome: Callable[[int], Error | None]) -> list[DelayedProduce]:
        """Give an outcome to all that have one now; return requests this completed, in order."""
        complete: list[DelayedProduce] = []
        while self.heap:
            error = outcome(self.heap[0][0])
            if error is None:
                break
            _, _, op, result = heapq.heappop(self.heap)
            if op.complete_partition(result, error):
                complete.append(op)
        return complete

    def fail(self, error: Error) -> list[DelayedProduce]:
        """End all waits alike; leadership is gone."""
        return self.complete_ready(lambda _: error)
