"""Nodes whose process is a shell around the program that serves, and nodes that do not come to their end."""

import asyncio
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clusters.test_remote_node import Here
from tribunal.clusters.api import ClusterError
from tribunal.clusters.nodes import own_end
from tribunal.clusters.nodes.hosts_of_run import HostsOfRun
from tribunal.clusters.nodes.leftovers import end_processes, own_processes
from tribunal.clusters.nodes.node_process import NodeProcess, states_of
from tribunal.clusters.nodes.node_program import ReplogProgram
from tribunal.clusters.nodes.remote_node import RemoteNode
from tribunal.clusters.nodes.ssh_hosts import HostEntry, Hosts

NOBODY = ("127.0.0.1", 1)  # where nothing listens


class Behind(ReplogProgram):
    """A node whose command is a shell: one program in its session, another one in a session of its own."""

    def command(self, config: Path, *, python: str, java: str) -> list[str]:
        """Return its command."""
        return ["/bin/sh", "-c", "sleep 300 & setsid sleep 300 & wait"]


class Hung(NodeProcess):
    """A node that waits in the kernel for ever: no signal ends it."""

    async def _ended(self) -> None:
        await asyncio.Event().wait()


class Watched(Here):
    """A host that is this machine, where somebody waits for a process."""

    def watched(self, command: str, said: Callable[[bytes], object] = lambda _: None) -> bool:
        """Run a command however long it takes."""
        subprocess.run(["/bin/sh", "-c", command], check=False)
        return False


async def begun(node: NodeProcess, count: int) -> None:
    await node.spawn()
    await all_there(node.pid, count)


async def all_there(pid: int | None, count: int) -> None:
    async with asyncio.timeout(10):
        while len(states_of(pid)) < count:  # noqa: ASYNC110 - the kernel's
            await asyncio.sleep(0.01)


def test_a_node_behind_a_shell_is_paused_with_all_that_it_began(tmp_path: Path) -> None:
    async def paused() -> None:
        node = NodeProcess(1, Behind("broker"), tmp_path, tmp_path / "log", NOBODY, lambda reason: None, tmp_path)
        await begun(node, 3)
        try:
            assert (await node.pause()).holds
            assert set(states_of(node.pid).values()) == {"T"}

            assert (await node.resume()).facts["running"] is True
            assert not set(states_of(node.pid).values()) & {"T"}
        finally:
            left = states_of(node.pid)
            await node.kill()
            end_processes([*left])

    asyncio.run(paused())


def test_a_process_that_no_signal_ends_ends_the_run_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is a server far away keeps its processes for as long as it does not answer."""
    monkeypatch.setattr(own_end, "KILLED_WITHIN_MS", 200)

    async def killed() -> None:
        node = Hung(1, Behind("broker"), tmp_path, tmp_path / "log", NOBODY, lambda reason: None, tmp_path)
        await begun(node, 3)
        try:
            with pytest.raises(ClusterError, match=rf"node 1: its process {node.pid} does not die within 200 ms"):
                await node.kill()
        finally:
            end_processes(own_processes(tmp_path))

    asyncio.run(killed())


def test_a_daemon_behind_a_shell_is_paused_with_its_session(tmp_path: Path) -> None:
    entry = HostEntry(id=1, address="127.0.0.1", host_key="none", directory=f"{tmp_path}")

    hosts = HostsOfRun()
    hosts.hosts, hosts.shells = Hosts(node=(entry,)), {1: Watched(entry)}
    Path(hosts.folder(1)).mkdir(parents=True)

    async def paused() -> None:
        node = RemoteNode(1, Behind("broker"), hosts, NOBODY, lambda reason: None, {})
        await node.spawn()
        assert node.pid is not None
        try:
            await all_there(node.pid, 3)
            assert (await node.pause()).holds
            of_session = {pid: state for pid, state in states_of(node.pid).items() if os.getsid(pid) == node.pid}
            assert len(of_session) == 2
            assert set(of_session.values()) == {"T"}

            assert (await node.resume()).facts["running"] is True
        finally:
            end_processes([*states_of(node.pid)])

    asyncio.run(paused())
