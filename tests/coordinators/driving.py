"""Drives a coordinator's core as the shell does: writes are committed at once, unless they are held."""

from itertools import count
from typing import Any
from uuid import UUID

import msgspec

from replog.coordinators.consumer_group_coordinator import TopicView
from replog.coordinators.events import Effect, NotWritten, Now, Reply, Request, SendMarkers, Write, Written
from replog.errors import Error
from replog.types import TopicPartition

NOW = Now(1_000_000, 1_700_000_000_000)


class AllTopics:
    """Metadata in which every partition exists."""

    def has_partition(self, partition: TopicPartition) -> bool:
        return partition.partition < 100

    def name_of(self, topic_id: UUID) -> str | None:
        return None

    def view_of(self, name: str) -> TopicView | None:
        return None

    def names(self) -> list[str]:
        return []


def new_ids() -> Any:
    """A source of ids that count."""
    numbers = count(1)
    return lambda: UUID(int=next(numbers))


class Driver:
    """A core, the log it writes to, and the replies it gave."""

    def __init__(self, core: Any, now: Now = NOW) -> None:
        self.core = core
        self.now = now
        self.log: list[Write] = []
        self.held: list[Write] | None = None
        self.replies: dict[int, Any] = {}
        self.markers: list[SendMarkers] = []
        self._tokens = count(1)

    def send(self, body: msgspec.Struct, *, version: int = 5, client: str = "c") -> int:
        """Hand a request in; its reply, if any yet, is in `replies` under the token returned."""
        token = next(self._tokens)
        request = Request(token=token, version=version, client_id=client, client_host="/h", body=body)
        self.perform(self.core.handle(request, self.now))
        return token

    def ask(self, body: msgspec.Struct, *, version: int = 5) -> Any:
        """Hand a request in and return its reply."""
        return self.replies[self.send(body, version=version)]

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Reply():
                    assert effect.token not in self.replies, "answered twice"
                    self.replies[effect.token] = effect.body
                case SendMarkers():
                    self.markers.append(effect)
                case Write():
                    self.log.append(effect)
                    if self.held is not None:
                        self.held.append(effect)
                    else:
                        self._commit(effect)

    def hold(self) -> None:
        """Let nothing be committed from now on."""
        self.held = []

    def release(self) -> None:
        """Commit what was held, in order."""
        held, self.held = self.held or [], None
        for write in held:
            self._commit(write)

    def refuse(self, error: Error = Error.NOT_ENOUGH_REPLICAS) -> None:
        """Let the log take nothing of what was held, in order, as it does at once while a partition is short of replicas."""
        held, self.held = self.held or [], None
        for write in held:
            self.log.remove(write)
            self.perform(self.core.on_not_written(NotWritten(write.ticket, error), self.now))

    def _commit(self, write: Write) -> None:
        offset = 10 * self.log.index(write)
        self.perform(self.core.on_written(Written(write.ticket, offset), self.now))

    def pass_time(self, ms: int) -> None:
        """Let time go by, stopping wherever something is due."""
        end = Now(self.now.now_ms + ms, self.now.wall_ms + ms)
        while self.core.next_ms is not None and self.core.next_ms <= end.now_ms:
            step = max(0, self.core.next_ms - self.now.now_ms)
            self.now = Now(self.now.now_ms + step, self.now.wall_ms + step)
            self.perform(self.core.on_tick(self.now))
        self.now = end
