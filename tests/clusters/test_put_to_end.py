"""A program of a described system that does not die of SIGKILL."""

import asyncio

import pytest

from tribunal.clusters.api import ClusterError
from tribunal.clusters.nodes import node_process, own_end


class Hanging:
    """A process that waits in the kernel."""

    pid = 1 << 30  # nobody's
    returncode = None
    stdout = None

    def kill(self) -> None:
        """Do nothing yet."""

    async def wait(self) -> int:
        await asyncio.Event().wait()
        return 0


def test_who_does_not_die_is_not_waited_for_without_end(monkeypatch):
    """The run waited for ever, with everything that it had started."""
    monkeypatch.setattr(node_process, "PIPE_TIMEOUT_MS", 1)
    monkeypatch.setattr(own_end, "KILLED_WITHIN_MS", 1)

    with pytest.raises(ClusterError, match="does not die within 1 ms of SIGKILL"):
        asyncio.run(node_process.put_to_end(Hanging()))
