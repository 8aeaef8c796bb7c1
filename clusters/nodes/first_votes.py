"""Which directories have a vote from the beginning, in a quorum whose voters can be changed (KIP-853)."""

from collections.abc import Callable, Iterable, Mapping
from uuid import UUID


class FirstVotes:
    """A vote for the first directory of each controller; one that is formatted later has none.

    ids:  of these directories, by node.
    """

    def __init__(self, nodes: Iterable[int], new_id: Callable[[], UUID]) -> None:
        self.ids: Mapping[int, UUID] = {node: new_id() for node in nodes}
        self._left = set(self.ids)

    def taken(self, node: int) -> UUID | None:
        """Return the id for a node's first directory, which has it from now on; None: it had one, or is none of the first voters."""
        if node not in self._left:
            return None
        self._left.discard(node)
        return self.ids[node]
