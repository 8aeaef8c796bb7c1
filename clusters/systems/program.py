"""A node of a described system as a program: its command, and how one sees that it serves."""

import asyncio
from pathlib import Path

from tribunal.clusters.api import ClusterError
from tribunal.clusters.nodes.node_process import put_to_end
from tribunal.clusters.systems.description import Addresses, Nodes, Ready
from tribunal.clusters.systems.places import Place


class SystemProgram:
    """One node's program; implements `NodeProgram`."""

    def __init__(self, title: str, nodes: Nodes, node: int, addresses: Addresses, place: Place) -> None:
        self.title = title
        self.serving_timeout_ms = nodes.ready.within_ms
        self.answer_wait_ms = 1_000
        self._nodes = nodes
        self._node = node
        self._addresses = addresses
        self._place = place

    def command(self, config: Path, *, python: str, java: str) -> list[str]:
        """Return `start` with this node's own words behind it."""
        words = self._addresses.command((*self._nodes.start, *self._nodes.more.get(self._node, ())), self._node)
        if not Path(words[0]).is_file():
            raise ClusterError(f"{self.title}: there is no program {words[0]}")
        return words

    def needed_folders(self, command: list[str]) -> list[str]:
        """Return the folder of its system.toml."""
        return [str(self._addresses.folder)]

    async def answers(self, endpoint: tuple[str, int], *, wait_ms: int) -> bool:
        """Look once whether it serves."""
        ready: Ready = self._nodes.ready
        try:
            async with asyncio.timeout(wait_ms / 1000):
                if ready.command is not None:
                    command = self._addresses.command(ready.command, self._node)
                    return await ended_well([*self._place.prefix(self._node), *command])
                reader, writer = await self._place.connect(self._node, endpoint)
                try:
                    return ready.http is None or await _answers_http(reader, writer, endpoint[0], ready.http)
                finally:
                    writer.transport.abort()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return False  # also who answers something else without end


async def ended_well(command: list[str]) -> bool:
    """Run a command; return whether it ended with 0. Who gives up waiting has ended it."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        return await process.wait() == 0
    finally:
        await put_to_end(process)


async def _answers_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, path: str) -> bool:
    writer.write(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
    status = (await reader.readuntil(b"\n")).split()
    return len(status) > 1 and status[1].startswith(b"2")
