"""Nodes that commands of a user's file change: each act is written down before it is done, and crossed out when it is undone.

What commands cut are whole nodes.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from tribunal.clusters.api import CLIENTS, ClusterError, CutMode, Link, Proof, Unsupported
from tribunal.clusters.existing.acts import Act, Acts
from tribunal.clusters.existing.description import UNDONE_BY, Undoing
from tribunal.clusters.existing.node import ExistingNode

Doing = Callable[[], Awaitable[None]]


class CommandedNodes:
    """All nodes of one cluster."""

    def __init__(self, name: str, nodes: Mapping[int, ExistingNode], acts: Acts) -> None:
        self.acts = acts
        self._name = name
        self._nodes = nodes
        self._in_vain: set[int] = set()  # nodes whose command to end them did not end with 0, last

    async def begin(self, node: int) -> None:
        """Start a node that is down; return when it serves."""
        await self._nodes[node].begins()
        self.acts.undone(node, "start")

    async def end(self, node: int, name: str) -> Proof:
        """Run what ends it."""
        one = self._nodes[node]
        self.acts.doing(node, UNDONE_BY[name])
        one.is_expected = False
        self._in_vain.add(node)
        proof = await one.ends(name)
        self._in_vain.discard(node)
        if proof.holds:
            self.acts.undone(node, UNDONE_BY["pause"])  # a process that is gone is not stopped any more
        return proof

    async def silence(self, node: int, name: str) -> Proof:
        """Run what keeps it from answering."""
        one = self._nodes[node]
        self.acts.doing(node, UNDONE_BY[name])
        one.is_expected = False
        return await one.becomes_silent(name)

    async def let_answer(self, node: int, name: Undoing) -> Proof:
        """Run what lets it answer again."""
        proof = await self._nodes[node].answers_again(name)
        self.acts.undone(node, name)
        return proof

    async def cut(self, links: Sequence[Link], mode: CutMode) -> Proof:
        """Isolate a whole node; what becomes of the bytes is the user's command's doing. Raises Unsupported for other links."""
        return await self.silence(self._isolated_by(links), "isolate")

    async def heal(self, links: Sequence[Link]) -> Proof:
        """Let it rejoin."""
        return await self.let_answer(self._isolated_by(links), "rejoin")

    def _isolated_by(self, links: Sequence[Link]) -> int:
        """Return which whole node a cut of these links is. Raises Unsupported."""
        everybody = {*self._nodes, CLIENTS}
        for node in self._nodes:
            others = everybody - {node}
            if set(links) == {link for one in others for link in (Link(node, one), Link(one, node))}:
                return node
        raise Unsupported(f"{self._name}: a command isolates a whole node, both ways, from all; not single links")

    async def undo_all(self, *, before: Sequence[Doing] = (), after: Sequence[Doing] = ()) -> None:
        """Undo what is left, and do what else there is to do; what fails keeps nothing else from it, and the first of it is raised."""
        problems: list[ClusterError | OSError] = []
        for doing in (*before, *map(self._undoing, list(self.acts.done.acts)), *after):
            try:
                await doing()
            except (ClusterError, OSError) as problem:
                problems.append(problem)
        self.acts.close()
        if problems:
            raise problems[0]

    def _undoing(self, act: Act) -> Doing:
        async def undo() -> None:
            one = self._nodes[act.node]
            # A second process of a node that serves takes its place in what the commands know of it.
            was_in_vain = act.undone_by == "start" and act.node in self._in_vain
            if not (was_in_vain and await one.answers()):
                await one.run(act.undone_by)
            self.acts.undone(act.node, act.undone_by)

        return undo
