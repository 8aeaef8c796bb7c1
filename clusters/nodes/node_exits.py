"""Which nodes ended without being asked to: a failure of the run, unless a fault has announced it."""

from tribunal.clusters.nodes.node_events import NodeEvents


class NodeExits:
    """The unasked ends of one cluster's nodes."""

    def __init__(self, events: NodeEvents) -> None:
        self.failures: list[str] = []
        self._events = events
        self._excused: dict[int, str] = {}
        self._starting: set[int] = set()

    def excuse(self, node: int, why: str | None) -> None:
        """Expect (or no longer expect) the node to end by itself."""
        if why is None:
            self._excused.pop(node, None)
        else:
            self._excused[node] = why

    def starting(self, node: int) -> None:
        """Leave it to whoever starts the node now to say that it ended before it served."""
        self._starting.add(node)

    def started(self, node: int) -> None:
        """Take its end for a failure again: it serves."""
        self._starting.discard(node)

    def note(self, node: int, reason: str) -> None:
        """Take note of a node's end."""
        if node not in self._excused and node not in self._starting:
            self.failures.append(reason)
        self._events.exited(node, reason)
