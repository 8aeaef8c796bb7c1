"""A daemon on a host, by what its shell says of it; hosts of their own are in `test_ssh.py`."""

import asyncio
import io
import subprocess
import tarfile
import threading
from pathlib import Path

import pytest

from tribunal.clusters.api import ClusterError
from tribunal.clusters.nodes import hosts_of_run, remote_node
from tribunal.clusters.nodes.hosts_of_run import HostsOfRun
from tribunal.clusters.nodes.node_program import ReplogProgram
from tribunal.clusters.nodes.remote_files import clock_offset_ns, unpack
from tribunal.clusters.nodes.remote_node import RemoteNode
from tribunal.clusters.nodes.ssh_hosts import HostEntry, Hosts, Shell


class Said(Shell):
    """A host on which a process is in this state; nothing is said of one that has ended."""

    def __init__(self, entry: HostEntry, state: str) -> None:
        super().__init__(entry)
        self._state = state

    def run(self, command: str, stdin: bytes = b"") -> bytes:
        """Say it."""
        return f"{self._state}\n".encode() if "/stat" in command else b""


class Silent(ReplogProgram):
    """A node that does not answer."""

    async def answers(self, endpoint: tuple[str, int], *, wait_ms: int) -> bool:
        """Say nothing."""
        return False


def test_each_of_many_hosts_is_asked_while_all_are_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Watches keep a thread each as long as a node lives: with as many of them as there are threads nobody was asked any more."""
    monkeypatch.setattr(hosts_of_run, "THREADS", 4)
    monkeypatch.setattr(Shell, "open", lambda shell: None)
    entries = tuple(HostEntry(id=node, address=f"192.0.2.{node}", host_key="none") for node in range(1, 9))
    over = threading.Event()

    async def asked() -> int:
        hosts = HostsOfRun()
        await hosts.open(tmp_path, Hosts(node=entries), [entry.id for entry in entries])
        watching = [hosts.begun(over.wait) for _ in range(2 * len(entries))]  # a node and its port for probes
        try:
            async with asyncio.timeout(5):
                return await hosts.in_thread(len, watching)
        finally:
            over.set()
            await hosts.close()

    assert asyncio.run(asked()) == 16


class Here(Shell):
    """A host that is this machine."""

    def run(self, command: str, stdin: bytes = b"") -> bytes:
        """Run a command."""
        done = subprocess.run(["/bin/sh", "-c", command], input=stdin, capture_output=True, check=False)
        if done.returncode != 0:
            raise ClusterError(done.stderr.decode())
        return done.stdout


class Touches(Silent):
    """A node that leaves a file."""

    def command(self, config: Path, *, python: str, java: str) -> list[str]:
        """Return its command."""
        return ["touch", "has begun"]


@pytest.mark.parametrize("full", [("sessions",), ("sessions", "log")], ids=["sessions", "all"])
def test_a_daemon_that_cannot_be_noted_on_its_host_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: tuple[str, ...]
) -> None:
    """On a full disk nobody would find it again; and who waits for its number gives up in words."""
    monkeypatch.setattr(remote_node, "TRIES", 20)
    entry = HostEntry(id=1, address="192.0.2.1", host_key="none", directory=f"{tmp_path}")
    hosts = HostsOfRun()
    hosts.hosts, hosts.shells = Hosts(node=(entry,)), {1: Here(entry)}
    folder = Path(hosts.folder(1))
    folder.mkdir(parents=True)
    for name in full:
        (folder / name).symlink_to("/dev/full")
    node = RemoteNode(1, Touches("broker"), hosts, ("192.0.2.1", 1), lambda reason: None, {})

    with pytest.raises(ClusterError, match=r"node 1 .* cannot be started"):
        asyncio.run(node.spawn())

    assert not (folder / "has begun").exists()


class Channel:
    """A channel of ssh to a program that says this; None: nothing, for as long as one waits."""

    def __init__(self, says: str | None) -> None:
        self._says = says
        self._waits_for_ever = True

    def settimeout(self, timeout_s: float) -> None:
        """Wait no longer than that."""
        self._waits_for_ever = False

    def exec_command(self, command: str) -> None:
        """Run a program."""

    def makefile(self, mode: str) -> "Channel":
        """Return what it says as a file."""
        return self

    def sendall(self, data: bytes) -> None:
        """Ask it."""

    def readline(self) -> str:
        """Return what it says."""
        if self._says is None:
            assert not self._waits_for_ever
            raise TimeoutError
        return self._says

    def close(self) -> None:
        """End it."""


@pytest.mark.parametrize("says", [None, ""], ids=["it hangs", "it has ended"])
def test_a_host_that_does_not_say_what_its_clock_reads_ends_the_run_in_words(
    monkeypatch: pytest.MonkeyPatch, says: str | None
) -> None:
    monkeypatch.setattr(Shell, "channel", lambda shell: Channel(says))

    with pytest.raises(ClusterError, match=r"host 192.0.2.1 of node 1 does not say what its clock reads"):
        clock_offset_ns(Shell(HostEntry(id=1, address="192.0.2.1", host_key="none")))


@pytest.mark.parametrize("target", ["/etc/passwd", "../../elsewhere"])
def test_a_link_out_of_a_folder_that_a_host_sends_is_refused_in_words(tmp_path: Path, target: str) -> None:
    """What it leads to is not here, and may be something else here."""
    sent = io.BytesIO()
    with tarfile.open(fileobj=sent, mode="w") as archive:
        link = tarfile.TarInfo("data/link")
        link.type, link.linkname = tarfile.SYMTYPE, target
        archive.addfile(link)

    with pytest.raises(ClusterError, match="what a host has sent cannot be unpacked"):
        unpack(sent.getvalue(), tmp_path / "copy")


@pytest.mark.parametrize(
    ("state", "is_paused"),
    [pytest.param("T", True, id="stopped"), pytest.param("S", False, id="waits"), pytest.param("", False, id="ended")],
)
def test_only_a_process_that_is_there_is_paused(monkeypatch: pytest.MonkeyPatch, state: str, is_paused: bool) -> None:
    """One that ended in that moment answers nobody either, and would have passed for a fault that bit."""
    monkeypatch.setattr(remote_node, "SIGNAL_WAIT_MS", 100)
    entry = HostEntry(id=1, address="192.0.2.1", host_key="none")

    async def paused() -> bool:
        hosts = HostsOfRun()
        hosts.hosts, hosts.shells = Hosts(node=(entry,)), {1: Said(entry, state)}
        node = RemoteNode(1, Silent("broker"), hosts, ("192.0.2.1", 1), lambda reason: None, {})
        node._is_alive = True
        return (await node.pause()).holds

    assert asyncio.run(paused()) is is_paused
