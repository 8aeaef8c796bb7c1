"""The event files of nodes: JSON lines that grow while nodes live, read as far as they are whole."""

from pathlib import Path
from typing import Any, Final

import msgspec

from tribunal.clusters.api import NodeEvent
from tribunal.clusters.clock import RunClock

NOT_FIELDS: Final = ("event", "node", "node_ns")


class EventFile:
    """Reads one node's event file from where it stopped the last time."""

    def __init__(self, node: int, path: Path, clock: RunClock) -> None:
        self.node = node
        self.path = path
        self._clock = clock
        self._position = 0

    def drain(self) -> list[NodeEvent]:
        """Return the events that were added since the last call; a half-written last line waits."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._position)
                content = file.read()
        except FileNotFoundError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        self._position += len(whole)
        events = (self._event(line) for line in whole.splitlines())
        return [event for event in events if event is not None]

    def _event(self, line: bytes) -> NodeEvent | None:
        try:
            fields: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.DecodeError, msgspec.ValidationError):
            return None  # torn by a kill -9, which a line of a dying node may be
        name, node_ns = fields.get("event"), fields.get("node_ns")
        if not isinstance(name, str) or not isinstance(node_ns, int):
            return None
        about = fields.get("node")  # a controller tells of brokers: registered, fenced, unfenced
        return NodeEvent(
            node=about if isinstance(about, int) else self.node,
            name=name,
            node_ns=node_ns,
            at_ns=self._clock.at_ns(node_ns),
            fields={key: value for key, value in fields.items() if key not in NOT_FIELDS},
        )
