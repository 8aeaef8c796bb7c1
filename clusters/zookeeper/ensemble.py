"""A real ZooKeeper beside the brokers: its servers are nodes like any other, started, cut, paused and killed by the same faults.

A server is a Java process on the address of its node (101, 102, ...); brokers reach it through its relay. What its znodes say is
followed by an observer that reaches the servers themselves, so that no cut blinds it. Jars: `jars.py`.
"""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from replog.host.kazoo_zookeeper import KazooZooKeeper
from replog.zookeeper import paths
from replog.zookeeper.operations import (
    ConnectionLoss,
    NoNode,
    SessionExpired,
    SessionState,
    Stat,
    Unreachable,
    Watched,
    ZooKeeperError,
)
from tribunal.clusters.api import ClusterError
from tribunal.clusters.endings import put_down
from tribunal.clusters.maven_jars import NoJars
from tribunal.clusters.nodes.node_program import SERVING_TIMEOUT_MS
from tribunal.clusters.zookeeper.jars import class_path
from tribunal.clusters.zookeeper.znode_view import ZnodeView

TICK_MS: Final = 200
LONGEST_SESSION_MS: Final = 20 * TICK_MS  # as ZooKeeper itself has it; the shortest is 2 ticks
HEAP: Final = "96m"
MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
PEER_PORT_OFFSET: Final = 10_000
ELECTION_PORT_OFFSET: Final = 11_000
JAVA_OPTIONS: Final = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    f"-Xmx{HEAP}",
    "-Dzookeeper.admin.enableServer=false",
)
OBSERVER_SESSION_MS: Final = 4_000
OBSERVER_CONNECT_TIMEOUT_MS: Final = 15_000
LATE_MS: Final = 50


def configure(
    folder: Path, node: int, endpoints: Mapping[int, tuple[str, int]], *, longest_session_ms: int = LONGEST_SESSION_MS
) -> Path:
    """Write a server's zoo.cfg and its id; return the file. More than one endpoint make a quorum."""
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    (data / "myid").write_text(f"{node}\n")
    host, port = endpoints[node]
    lines = [
        f"tickTime={TICK_MS}",
        f"maxSessionTimeout={max(LONGEST_SESSION_MS, longest_session_ms)}",
        "initLimit=50",
        "syncLimit=15",
        f"dataDir={data.resolve()}",
        f"clientPort={port}",
        f"clientPortAddress={host}",
        "admin.enableServer=false",
        "maxClientCnxns=0",
        "4lw.commands.whitelist=ruok,srvr",
    ]
    if len(endpoints) > 1:
        lines += [
            f"server.{peer}={peer_host}:{peer_port + PEER_PORT_OFFSET}:{peer_port + ELECTION_PORT_OFFSET}"
            for peer, (peer_host, peer_port) in endpoints.items()
        ]
    path = folder / "zoo.cfg"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def command(config: Path, *, java: str = "java") -> list[str]:
    """Return the command that is a server; `ClusterError` when no ZooKeeper can be had."""
    try:
        return [java, *JAVA_OPTIONS, "-cp", class_path(), MAIN, str(config)]
    except NoJars as problem:
        raise ClusterError(str(problem)) from None


def folders_of_java(words: list[str]) -> list[str]:
    """Return this machine's folders that a server's command needs elsewhere: Java, its libraries, the jars."""
    jars = words[words.index("-cp") + 1].split(":")[0]
    wanted = ["/usr", "/etc/alternatives", *sorted(map(str, Path("/etc").glob("java-*"))), jars]
    wanted += [folder for folder in ("/lib64", "/lib") if not Path(folder).is_symlink()]
    return [folder for folder in wanted if Path(folder).is_dir()]


async def is_ok(endpoint: tuple[str, int], *, wait_ms: int) -> bool:
    """Return whether a server serves: a member without a quorum does not."""
    answer = await _four_letters(endpoint, b"srvr", wait_ms)
    return answer.startswith(b"Zookeeper version")


async def _four_letters(endpoint: tuple[str, int], word: bytes, wait_ms: int) -> bytes:
    writer = None
    try:
        async with asyncio.timeout(wait_ms / 1000):
            reader, writer = await asyncio.open_connection(*endpoint)
            writer.write(word)
            return await reader.read(4096)
    except (OSError, TimeoutError):
        return b""
    finally:
        if writer is not None:
            writer.transport.abort()


class ZooKeeperProgram:
    """A server of the ensemble."""

    title = "zookeeper"
    serving_timeout_ms = SERVING_TIMEOUT_MS
    answer_wait_ms = 500

    def command(self, config: Path, *, python: str, java: str) -> list[str]:
        """Return the command that is a server."""
        return command(config, java=java)

    def needed_folders(self, command: list[str]) -> list[str]:
        """Return where Java, its libraries and the jars are."""
        return folders_of_java(command)

    async def answers(self, endpoint: tuple[str, int], *, wait_ms: int) -> bool:
        """Return whether it serves."""
        return await is_ok(endpoint, wait_ms=wait_ms)


class ZnodeObserver:
    """Follows the znodes of a cluster; implements `replog.ports.ZooKeeperListener`."""

    def __init__(self, view: ZnodeView, connect: str) -> None:
        self._view = view
        self._zookeeper = KazooZooKeeper(
            connect, session_timeout_ms=OBSERVER_SESSION_MS, source_host=None, listener=self
        )
        self._due: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._known: dict[str, Stat] = {}
        self._parents: dict[str, list[str]] = {}
        self._task: asyncio.Task[None] | None = None
        self.overtaken = ""  # never: znodes hold the state itself, not its history

    def start(self) -> None:
        """Follow from now on."""
        self._task = asyncio.create_task(self._follow(), name="znode observer")

    async def stop(self) -> None:
        """Stop following; what was seen stays."""
        task, self._task = self._task, None
        if task is not None:
            await put_down(task)
        await self._zookeeper.close()

    def on_session(self, state: SessionState) -> None:
        """Look at everything again: watches are gone."""
        if state is SessionState.CONNECTED:
            self._look_at(*ROOTS)

    def on_watch(self, path: str, what: Watched) -> None:
        """Look at what changed."""
        self._look_at(path)

    def _look_at(self, *wanted: str) -> None:
        self._due.update(dict.fromkeys(wanted))
        self._wake.set()

    async def _follow(self) -> None:
        try:
            await self._zookeeper.connect(OBSERVER_CONNECT_TIMEOUT_MS)
        except Unreachable:
            return  # the cluster does not come up either, and says so
        self._look_at(*ROOTS)
        while True:
            self._wake.clear()
            while self._due:
                path = next(iter(sorted(self._due, key=lambda one: (one.count("/"), one))))
                del self._due[path]
                try:
                    await self._look(path)
                except (ConnectionLoss, SessionExpired):
                    self._due[path] = None
                    await asyncio.sleep(LATE_MS / 1000)
                except ZooKeeperError:
                    continue
            await self._wake.wait()

    async def _look(self, path: str) -> None:
        if _has_children(path):
            try:
                names = await self._zookeeper.children(path, watch=True)
            except NoNode:
                names = []
                if await self._zookeeper.exists(path, watch=True) is not None:  # else nobody says when it comes
                    self._due[path] = None
            before, self._parents[path] = self._parents.get(path, []), names
            for name in [name for name in before if name not in names]:
                self._gone(f"{path}/{name}")
            self._due.update(dict.fromkeys(below for name in names for below in _below(path, name)))
        if _has_data(path):
            await self._read(path)

    async def _read(self, path: str) -> None:
        stat = await self._zookeeper.exists(path, watch=True)
        if stat is None:
            self._gone(path)
            return
        data, stat = await self._zookeeper.get(path)
        if self._known.get(path) != stat:
            self._known[path] = stat
            self._view.take(path, data, stat)

    def _gone(self, path: str) -> None:
        for known in [known for known in self._known if known == path or known.startswith(f"{path}/")]:
            del self._known[known]
            self._view.take(known, b"", None)


ROOTS: Final = (
    paths.CONTROLLER_EPOCH,
    paths.CONTROLLER,
    paths.BROKER_IDS,
    paths.TOPICS,
    paths.TOPIC_CONFIGS,
    paths.BROKER_CONFIGS,
)


def _has_children(path: str) -> bool:
    return path in (paths.BROKER_IDS, paths.TOPICS, paths.TOPIC_CONFIGS, paths.BROKER_CONFIGS) or path.endswith(
        "/partitions"
    )


def _has_data(path: str) -> bool:
    return not _has_children(path)


def _below(path: str, name: str) -> Iterator[str]:
    """Yield what is to be looked at for a child."""
    if path.endswith("/partitions"):
        yield f"{path}/{name}/state"
    elif path == paths.TOPICS:
        yield paths.topic(name)
        yield paths.partitions(name)
    else:
        yield f"{path}/{name}"
