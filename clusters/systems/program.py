"""A node of a described system as a program: its command, and how one sees that it serves."""

import asyncio
from pathlib import Path
from typing import Final

from tribunal.clusters.systems.commands import must_exist
from tribunal.clusters.systems.description import Addresses, Nodes, Ready
from tribunal.clusters.systems.places import Place

LOOK_MS: Final = 5_000  # a command starts programs of its own: on a busy machine that takes its time


class SystemProgram:
    """One node's program; implements `NodeProgram`."""

    def __init__(
        self, title: str, nodes: Nodes, node: int, addresses: Addresses, place: Place, before: tuple[str, ...] = ()
    ) -> None:
        """Take the words that are to stand before `start`, too."""
        self.title = title
        self.serving_timeout_ms = nodes.ready.within_ms
        self.answer_wait_ms = min(LOOK_MS, nodes.ready.within_ms)
        self._nodes = nodes
        self._node = node
        self._addresses = addresses
        self._place = place
        self._before = before

    def command(self, config: Path, *, python: str, java: str) -> list[str]:
        """Return `start` with this node's own words behind it."""
        words = self._addresses.command((*self._nodes.start, *self._nodes.more.get(self._node, ())), self._node)
        if self._node not in self._addresses.elsewhere:
            must_exist(words)
            self.can_be_asked()
        return [*self._before, *words]

    def can_be_asked(self) -> None:
        """Raise ClusterError where a program is not on this machine by which the node is asked: whoever looks would only see that it does not answer."""
        for asked in filter(None, (self._nodes.ready.command, self._nodes.stop, *self._nodes.roles.values())):
            must_exist(self._addresses.command(asked, self._node))

    def needed_folders(self, command: list[str]) -> list[str]:
        """Return the folder of its system.toml."""
        return [str(self._addresses.folder)]

    async def has_role(self, role: str) -> bool:
        """Look once whether it says that it has a role of the system's."""
        command = self._addresses.command(self._nodes.roles[role], self._node)
        try:
            async with asyncio.timeout(LOOK_MS / 1000):
                return await self._place.looks(self._node, command)
        except (OSError, TimeoutError):
            return False

    async def answers(self, endpoint: tuple[str, int], *, wait_ms: int) -> bool:
        """Look once whether it serves."""
        ready: Ready = self._nodes.ready
        try:
            async with asyncio.timeout(wait_ms / 1000):
                if ready.command is not None:
                    command = self._addresses.command(ready.command, self._node)
                    return await self._place.looks(self._node, command)
                reader, writer = await self._place.connect(self._node, endpoint)
                try:
                    return ready.http is None or await _answers_http(reader, writer, endpoint[0], ready.http)
                finally:
                    writer.transport.abort()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return False  # also who answers something else without end


async def _answers_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, path: str) -> bool:
    if writer.transport.is_closing():  # reset already; uvloop would call a write a RuntimeError
        return False
    writer.write(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
    status = (await reader.readuntil(b"\n")).split()
    return len(status) > 1 and status[1].startswith(b"2")
