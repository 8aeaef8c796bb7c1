"""When each node's processes ran: who was down cannot have answered, and a new process does not lead in an epoch of its previous incarnation."""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from tribunal.results.rows import NodeEvent

DOWN: Final = frozenset({"stop", "killed", "exit"})
NEVER: Final = 1 << 62


class Incarnations:
    """The starts and ends of processes, as `nodes` has them."""

    def __init__(self, nodes: Iterable[NodeEvent] = ()) -> None:
        self._times: dict[int, list[int]] = {}
        self._is_end: dict[int, list[bool]] = {}
        epochs: dict[int, int | None] = {}
        for row in nodes:
            if row.role != "broker" or not self._counts(row, epochs):
                continue
            self._times.setdefault(row.node, []).append(row.at_ns)
            self._is_end.setdefault(row.node, []).append(row.event in DOWN)

    @staticmethod
    def _counts(row: NodeEvent, epochs: dict[int, int | None]) -> bool:
        """Whether an event begins or ends an incarnation: of registrations one with another broker epoch than before."""
        if row.event == "registered":
            former, epoch = epochs.get(row.node), row.broker_epoch
            epochs[row.node] = epoch
            return former is not None and former != epoch
        return row.event == "start" or row.event in DOWN

    def ended_ns(self, node: int, at_ns: int) -> int:
        """Return when the incarnation ended that the node had at that moment, or had had last: NEVER where nothing recorded ended it."""
        times, is_end = self._times.get(node, []), self._is_end.get(node, [])
        end = bisect_right(times, at_ns)
        if end == 0 or not is_end[end - 1]:
            end += 1
        while end < len(times) and is_end[end - 1] and is_end[end]:  # it was asked to stop, and later it was gone
            end += 1
        return times[end - 1] if end <= len(times) else NEVER
