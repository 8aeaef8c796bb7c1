"""What nodes report in their event files, JSON lines that grow while they run; and what the harness saw of their starts and ends."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final, Protocol

import msgspec

from tribunal.clusters.api import NodeEvent
from tribunal.results.unreadable import UNREADABLE

NOT_FIELDS: Final = ("event", "node", "node_ns")


class EventHead(msgspec.Struct):
    """What every line has. A controller names the broker that it registered, fenced or unfenced."""

    event: str
    node_ns: int
    node: int | None = None


class EventFile:
    """Reads one node's event file from where it stopped the last time."""

    def __init__(self, node: int, path: Path, at_ns: Callable[[int], int]) -> None:
        self.node = node
        self.path = path
        self._at_ns = at_ns  # the run's time of a reading of the node's monotonic clock
        self._position = 0

    def drain(self) -> list[NodeEvent]:
        """Return the events that were added since the last call; a half-written last line waits."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._position)
                content = file.read()
        except FileNotFoundError:
            return []
        complete = content[: content.rfind(b"\n") + 1]
        self._position += len(complete)
        events = (self._event(line) for line in complete.splitlines())
        return [event for event in events if event is not None]

    def _event(self, line: bytes) -> NodeEvent | None:
        try:
            fields = msgspec.json.decode(line, type=dict[str, object])
            head = msgspec.convert(fields, EventHead)
        except UNREADABLE:
            return None  # torn by a kill -9, which a line of a dying node may be
        return NodeEvent(
            node=self.node if head.node is None else head.node,
            name=head.event,
            node_ns=head.node_ns,
            at_ns=self._at_ns(head.node_ns),
            fields={key: value for key, value in fields.items() if key not in NOT_FIELDS},
        )


class NodeEvents(Protocol):
    """Gathers what nodes reported, and what the harness did to them, until somebody takes it."""

    def starting(self, node: int) -> None:
        """Take note that a node is about to be started."""

    def stopped(self, node: int) -> None:
        """Take note that a node ended in good order, as it was asked to."""

    def killed(self, node: int, pid: int | None) -> None:
        """Take note that a node was killed."""

    def exited(self, node: int, reason: str) -> None:
        """Take note that a node ended without being asked to."""

    def drain(self) -> list[NodeEvent]:
        """Return what came since the last call, by time."""


class FileEvents:
    """Events of nodes that write into their files when they start and stop.

    silent:  nodes that write none: what the harness sees of their starts and ends is all there is. Looked up anew each time.
    """

    def __init__(self, files: Mapping[int, EventFile], now_ns: Callable[[], int], silent: Collection[int] = ()) -> None:
        self._files = files
        self._silent = silent
        self._now_ns = now_ns
        self._seen: list[NodeEvent] = []

    def starting(self, node: int) -> None:
        """Leave it to the node, unless it writes nothing."""
        if node in self._silent:
            self._seen.append(seen_by_harness(node, "start", self._now_ns()))

    def stopped(self, node: int) -> None:
        """Leave it to the node, unless it writes nothing."""
        if node in self._silent:
            self._seen.append(seen_by_harness(node, "stop", self._now_ns()))

    def killed(self, node: int, pid: int | None) -> None:
        """Take note that a node was killed."""
        self._seen.append(seen_by_harness(node, "killed", self._now_ns(), pid=pid))

    def exited(self, node: int, reason: str) -> None:
        """Take note that a node ended without being asked to."""
        self._seen.append(seen_by_harness(node, "exit", self._now_ns(), reason=reason))

    def drain(self) -> list[NodeEvent]:
        """Return what nodes reported, and what was seen of their starts and ends, since the last call."""
        seen, self._seen = self._seen, []
        reported = [event for file in self._files.values() for event in file.drain()]
        return sorted(seen + reported, key=lambda event: event.at_ns)


def seen_by_harness(node: int, name: str, at_ns: int, **fields: object) -> NodeEvent:
    """Return an event that no node has reported."""
    return NodeEvent(node=node, name=name, node_ns=None, at_ns=at_ns, fields=fields)
