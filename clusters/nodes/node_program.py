"""What a node runs: its command, and how one sees that it serves. Where it runs is `host_environment.py`'s."""

import ssl
from pathlib import Path
from typing import Final, Protocol

from tribunal.clusters.nodes.serving import answers

SERVING_TIMEOUT_MS: Final = 40_000  # a busy machine takes its time


class NodeProgram(Protocol):
    """One node's program, the same at every start."""

    @property
    def title(self) -> str:
        """What it is, for messages: broker, controller, ..."""

    @property
    def serving_timeout_ms(self) -> int:
        """How long it may take from its start until it serves."""

    @property
    def answer_wait_ms(self) -> int:
        """How long one question whether it serves may take."""

    def command(self, config: Path, *, python: str, java: str) -> list[str]:
        """Return its command line; `ClusterError` when what it runs cannot be had. May block."""

    def needed_folders(self, command: list[str]) -> list[str]:
        """Return this machine's folders that the command needs beside the node's own."""

    async def answers(self, endpoint: tuple[str, int], *, wait_ms: int) -> bool:
        """Return whether it serves at its address."""


class ReplogProgram:
    """A broker or a controller of replog."""

    serving_timeout_ms = SERVING_TIMEOUT_MS
    answer_wait_ms = 500

    def __init__(self, role: str, tls: ssl.SSLContext | None = None) -> None:
        self.title = role
        self._tls = tls

    def command(self, config: Path, *, python: str, java: str) -> list[str]:
        """Return `python -m replog ROLE --config CONFIG`."""
        return [python, "-m", "replog", self.title, "--config", str(config)]

    def needed_folders(self, command: list[str]) -> list[str]:
        """Need none: whoever runs Python has its packages."""
        return []

    async def answers(self, endpoint: tuple[str, int], *, wait_ms: int) -> bool:
        """Ask for its API versions."""
        return await answers(endpoint, wait_ms=wait_ms, tls=self._tls)
