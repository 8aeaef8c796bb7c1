"""Nodes of a described system that run already, where their user has them: looked at by its `ready`, changed by commands of a file alone.

Nothing of them is ended when the run is: those that were hurt are begun again. What the clients write stays there, under keys of the run's own
(`own_keys.py`). Commands, also those of `ready` and roles, run on this machine.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

from tribunal.clusters.api import ClusterError, Proof
from tribunal.clusters.capabilities import Capability
from tribunal.clusters.existing.acts import Acts
from tribunal.clusters.existing.commanded import CommandedNodes
from tribunal.clusters.existing.description import NodesThere, put_in
from tribunal.clusters.existing.node import ExistingNode
from tribunal.clusters.nodes.node_program import NodeProgram
from tribunal.clusters.run_context import RunContext
from tribunal.clusters.systems.cluster import SystemCluster
from tribunal.clusters.systems.description import Addresses, System
from tribunal.clusters.systems.places import OnThisMachine, RunningNode
from tribunal.clusters.systems.views import View

EXISTS_S: Final = 1.0  # between two questions whether nodes exist that nothing was done to
NOT_OURS: Final = "nodes that run already are changed by commands of their file alone"


class NodeThere:
    """One node; implements `RunningNode`."""

    is_here = False
    pid: int | None = None  # nobody says

    def __init__(self, node: int, commanded: CommandedNodes, one: ExistingNode) -> None:
        self._node = node
        self._commanded = commanded
        self._one = one
        self._is_known = False

    @property
    def alive(self) -> bool:
        """Whether it exists, as far as our commands go."""
        return self._one.alive

    async def spawn(self) -> None:
        """Find it; where a command has ended it, start it again."""
        if self._is_known:
            await self._one.run("start")
        self._is_known = True

    async def serving(self) -> None:
        """Wait until it answers."""
        await self._one.serving()
        self._commanded.acts.undone(self._node, "start")

    async def kill(self) -> Proof:
        """End it at once, by its command."""
        return await self._commanded.end(self._node, "kill")

    async def terminate(self, timeout_ms: int) -> bool:
        """End it in good order, by its command."""
        return (await self._commanded.end(self._node, "stop")).holds

    async def ends_by(self, asking: object, timeout_ms: int) -> NoReturn:
        """Refuse: its file has no `stop` of another kind."""
        raise ClusterError(NOT_OURS)

    async def exit_code(self) -> int | None:
        """Return None: nobody says how it ended."""
        return None

    async def pause(self) -> Proof:
        """Stop its execution, by its command."""
        return await self._commanded.silence(self._node, "pause")

    async def resume(self) -> Proof:
        """Let it go on, by its command."""
        return await self._commanded.let_answer(self._node, "resume")


class There(OnThisMachine):
    """Where they run; implements `Place`."""

    words = "where it runs already"

    def __init__(self, file: Path, given: NodesThere) -> None:
        self._file = file
        self._given = given
        self._ones: dict[int, ExistingNode] = {}
        self._commanded: CommandedNodes | None = None

    @property
    def commanded(self) -> CommandedNodes:
        """All of them, once open."""
        assert self._commanded is not None
        return self._commanded

    @property
    def ones(self) -> Mapping[int, ExistingNode]:
        """Each of them, once its program is known."""
        return self._ones

    @property
    def links(self) -> CommandedNodes:
        """What its commands cut: whole nodes."""
        return self.commanded

    async def open(self, run: RunContext, system: System, folder: Path) -> Addresses:
        """Say where they are; the list of what is done to them is begun."""
        self.run_dir, endpoints = run.directory, self._given.endpoints
        self._commanded = CommandedNodes(system.name, self._ones, Acts(run.directory, self._file))
        (port,) = system.nodes.ports
        return Addresses(
            folder=folder,
            hosts={node: host for node, (host, _) in endpoints.items()},
            ports={node: {port: number} for node, (_, number) in endpoints.items()},
            data={},
        )

    def node(
        self, run: RunContext, node: int, program: NodeProgram, addresses: Addresses, on_exit: Callable[[str], None]
    ) -> RunningNode:
        """Make what stands for it here."""
        endpoint = addresses.endpoint(node)
        self._ones[node] = ExistingNode(
            node,
            endpoint,
            partial(program.answers, endpoint, wait_ms=program.answer_wait_ms),
            partial(self._words, node, endpoint),
            command_within_ms=self._given.command_within_ms,
            serving_within_ms=program.serving_timeout_ms,
        )
        return NodeThere(node, self.commanded, self._ones[node])

    def _words(self, node: int, endpoint: tuple[str, int], name: str) -> list[str] | None:
        words = self._given.commands.named().get(name)
        return None if words is None else put_in(words, node, endpoint, self._file.resolve().parent)

    async def emptied(self, node: int, data: Path) -> NoReturn:
        """Refuse."""
        raise ClusterError(NOT_OURS)

    async def close(self) -> None:
        """Undo what was done and is not undone yet."""
        if self._commanded is not None:
            await self._commanded.undo_all()


class ThereCluster(SystemCluster):
    """A cluster of such nodes: at its end they go on."""

    def __init__(
        self,
        run: RunContext,
        system: System,
        place: There,
        addresses: Addresses,
        capabilities: frozenset[Capability],
        view: View,
    ) -> None:
        super().__init__(run, system, place, addresses, capabilities, view)
        self._there = place
        self._existence: asyncio.Task[None] | None = None
        self._starts = dict.fromkeys(self.nodes, 0)

    def _incarnation(self, node: int) -> str:
        return f"start {self._starts[node]}"  # nobody says its process id

    async def _spawn(self, node: int) -> None:
        await super()._spawn(node)
        self._starts[node] += 1

    async def bring_up(self) -> None:
        """Look at the nodes; return when all are ready."""
        for program in self._programs.values():
            program.can_be_asked()
        await super().bring_up()
        self._existence = asyncio.create_task(self._see_ends(), name="nodes that run already")

    async def _see_ends(self) -> None:
        """Ask the user's command, where there is one, whether a node is gone that nothing was done to."""
        missed: set[int] = set()
        while True:
            await asyncio.sleep(EXISTS_S)
            for node, one in self._there.ones.items():
                if node not in missed and one.is_expected and await one.exists() is False and one.is_expected:
                    missed.add(node)
                    self._exits.note(node, f"node {node} of {self._system.name} is gone, and nothing was done to it")

    async def shut_down(self) -> None:
        """Stop looking, and end every client; the nodes go on."""
        looking = [task for task in (self._existence, self._watching) if task is not None]
        for task in looking:
            task.cancel()
        if looking:
            await asyncio.wait(looking)
        await self._view.close()

    async def stop(self, node: int) -> None:
        """End a node in good order, by its command."""
        if not await self._node(node).terminate(0):
            raise ClusterError(f"node {node} answers yet after its command 'stop'")
        self._events.stopped(node)

    async def kill(self, node: int) -> Proof:
        """End a node at once, by its command."""
        proof = await self._node(node).kill()
        if proof.holds:  # else it may go on, or end in good order later
            self._events.killed(node, None)
        return proof

    async def pause(self, node: int) -> Proof:
        """Stop a node's execution, by its command; proven by its silence."""
        return await self._node(node).pause()

    async def resume(self, node: int) -> Proof:
        """Let it go on; proven by its answer."""
        return await self._node(node).resume()
