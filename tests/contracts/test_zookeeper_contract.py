"""What `replog.ports.ZooKeeper` promises, held by the simulator's model and by a real server: one set of tests for both."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from replog.config import Endpoint, NodeConfig
from replog.host.kazoo_zookeeper import KazooZooKeeper
from replog.ports import World, ZooKeeper
from replog.zookeeper.operations import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionState,
    SetData,
    Stat,
    Unreachable,
    Watched,
)
from tribunal.clusters.api import ClusterError
from tribunal.clusters.simulated.world import Simulation
from tribunal.clusters.simulated.zookeeper import SimulatedZooKeeper, ZooKeeperServer
from tribunal.clusters.simulated.zookeeper_model import Model
from tribunal.clusters.zookeeper import ensemble as real
from tribunal.clusters.zookeeper.jars import cache

SESSION_MS = 1_000
PATIENCE_S = 15
HOST = "127.0.0.1"


class Heard:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.sessions: list[SessionState] = []
        self.watches: list[tuple[str, Watched]] = []

    def on_session(self, state: SessionState) -> None:
        self.sessions.append(state)

    def on_watch(self, path: str, what: Watched) -> None:
        self.watches.append((path, what))


class Ensemble(Protocol):
    """What a test may do."""

    async def client(self, *, chroot: str = "") -> tuple[ZooKeeper, Heard]:
        """Return a connected client."""

    def unreachable(self) -> ZooKeeper:
        """Return a client of a server that is not there."""

    async def hurt(self, *, for_ms: int) -> None:
        """Stop the server for a while."""


Program = Callable[[Ensemble], Coroutine[Any, Any, None]]


class ModelEnsemble:
    """The model on a simulated machine."""

    def run(self, program: Program) -> None:
        simulation = Simulation("zookeeper contract")
        self.server = simulation.add_machine("server", "10.0.0.101", 101)
        client = simulation.add_machine("client", "10.0.0.1", 1)
        model = Model()

        async def serve(world: World) -> None:
            await ZooKeeperServer(world, model, Endpoint("10.0.0.101", 2181)).start()
            await asyncio.Event().wait()

        async def main(world: World) -> None:
            self.world = world
            await program(self)

        async def harness() -> None:
            self.server.start(serve)
            await asyncio.sleep(0.1)
            problem = await client.start(main)
            if problem is not None:
                raise problem

        simulation.run(harness())

    async def client(self, *, chroot: str = "") -> tuple[ZooKeeper, Heard]:
        heard = Heard()
        opened = SimulatedZooKeeper(self.world, config(f"10.0.0.101:2181{chroot}"), heard)
        await opened.connect(PATIENCE_S * 1000)
        return opened, heard

    def unreachable(self) -> ZooKeeper:
        return SimulatedZooKeeper(self.world, config("10.0.0.101:2182"), Heard())

    async def hurt(self, *, for_ms: int) -> None:
        self.server.pause()
        await asyncio.sleep(for_ms / 1000)
        self.server.resume()


class RealEnsemble:
    """A server of this machine."""

    def __init__(self, port: int, process: "subprocess.Popen[bytes]") -> None:
        self.port = port
        self.process = process

    def run(self, program: Program) -> None:
        asyncio.run(program(self))

    async def client(self, *, chroot: str = "") -> tuple[ZooKeeper, Heard]:
        heard = Heard()
        opened = self._opened(f"{HOST}:{self.port}{chroot}", heard)
        await opened.connect(PATIENCE_S * 1000)
        return opened, heard

    def unreachable(self) -> ZooKeeper:
        return self._opened(f"{HOST}:{free_port()}", Heard())

    async def hurt(self, *, for_ms: int) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)
        await asyncio.sleep(for_ms / 1000)
        os.kill(self.process.pid, signal.SIGCONT)

    def _opened(self, connect: str, heard: Heard) -> KazooZooKeeper:
        return KazooZooKeeper(connect, session_timeout_ms=SESSION_MS, source_host=None, listener=heard)


def config(connect: str) -> NodeConfig:
    return NodeConfig(
        {
            "node.id": 1,
            "cluster.id": "contract",
            "listeners": "10.0.0.1:9092",
            "log.dirs": "/data",
            "zookeeper.connect": connect,
            "zookeeper.session.timeout.ms": SESSION_MS,
        }
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealEnsemble]:
    have_jars = any(cache().glob("*/VERSION")) or real.class_path is None
    if shutil.which("java") is None or not (have_jars or os.environ.get("CI") or shutil.which("mvn")):
        pytest.skip("no Java, or no jars of ZooKeeper: tools/get_zookeeper.py")
    folder, port = tmp_path_factory.mktemp("zookeeper"), free_port()
    try:
        words = real.command(real.configure(folder, 101, {101: (HOST, port)}))
    except ClusterError as problem:
        pytest.skip(str(problem))
    with Path(folder, "log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            asyncio.run(serving(port))
            yield RealEnsemble(port, process)
        finally:
            process.kill()
            process.wait()


async def serving(port: int) -> None:
    async with asyncio.timeout(60):
        while not await real.is_ok((HOST, port), wait_ms=500):  # noqa: ASYNC110 - a process tells nobody
            await asyncio.sleep(0.05)


@pytest.fixture(params=["model", "real"])
def ensemble(request: pytest.FixtureRequest) -> Any:
    return ModelEnsemble() if request.param == "model" else request.getfixturevalue("server")


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - of any kind
            await asyncio.sleep(0.02)


def test_a_registration_tells_its_czxid_in_one_transaction(ensemble: Any) -> None:
    """KIP-380: create and setData together give the Stat that a create alone does not."""

    async def program(ensemble: Ensemble) -> None:
        one, _ = await ensemble.client()
        results = await one.transaction(
            [
                Create(path="/registered", data=b"x", ephemeral=True),
                SetData(path="/registered", data=b"y", version=ANY_VERSION),
            ]
        )
        stat = await one.exists("/registered")
        assert results[0] == "/registered"
        assert isinstance(results[1], Stat)
        assert results[1] == stat
        assert stat.ephemeral_owner == one.session_id
        assert (await one.get("/registered"))[0] == b"y"
        await one.close()

    ensemble.run(program)


def test_later_registrations_have_larger_epochs(ensemble: Any) -> None:
    async def program(ensemble: Ensemble) -> None:
        epochs = []
        for _ in range(3):
            one, _ = await ensemble.client()
            await one.transaction([Create(path="/life", ephemeral=True)])
            stat = await one.exists("/life")
            assert stat is not None
            epochs.append(stat.czxid)
            await one.close()
        assert epochs == sorted(set(epochs))

    ensemble.run(program)


def test_a_transaction_happens_whole_or_not_at_all(ensemble: Any) -> None:
    async def program(ensemble: Ensemble) -> None:
        one, _ = await ensemble.client()
        await one.transaction([Create(path="/fence", data=b"1")])
        version = (await one.transaction([SetData(path="/fence", data=b"2", version=0)]))[0]
        assert isinstance(version, Stat)
        with pytest.raises(BadVersion):
            await one.transaction([Create(path="/whole"), Check(path="/fence", version=0)])
        assert await one.exists("/whole") is None
        with pytest.raises(NodeExists):
            await one.transaction([Check(path="/fence", version=version.version), Create(path="/fence")])
        with pytest.raises(NoNode):
            await one.transaction([Create(path="/no/parent")])
        await one.transaction([Create(path="/whole"), Create(path="/whole/child")])
        with pytest.raises(NotEmpty):
            await one.transaction([Delete(path="/whole")])
        await one.transaction([Delete(path="/whole/child"), Delete(path="/whole"), Delete(path="/fence")])
        assert await one.exists("/whole") is None
        await one.close()

    ensemble.run(program)


def test_sequential_names_grow(ensemble: Any) -> None:
    async def program(ensemble: Ensemble) -> None:
        one, _ = await ensemble.client()
        await one.transaction([Create(path="/changes")])
        made = [(await one.transaction([Create(path="/changes/change_", sequential=True)]))[0] for _ in range(3)]
        assert made == sorted(f"/changes/{name}" for name in await one.children("/changes"))
        for path in made:
            assert isinstance(path, str)
            await one.transaction([Delete(path=path)])
        await one.transaction([Delete(path="/changes")])
        await one.close()

    ensemble.run(program)


def test_sequential_names_count_what_was_ever_created(ensemble: Any) -> None:
    """Deletions lower nothing, and other children count too; nothing of a transaction that fails does."""

    async def program(ensemble: Ensemble) -> None:
        one, _ = await ensemble.client()
        await one.transaction([Create(path="/numbered")])
        first = await one.transaction([Create(path="/numbered/n_", sequential=True) for _ in range(2)])
        await one.transaction([Delete(path=str(path)) for path in first])
        await one.transaction([Create(path="/numbered/other")])
        with pytest.raises(NodeExists):
            await one.transaction([Create(path="/numbered/n_", sequential=True), Create(path="/numbered/other")])
        last = await one.transaction([Create(path="/numbered/n_", sequential=True)])
        assert [*first, *last] == [f"/numbered/n_000000000{number}" for number in (0, 1, 3)]
        assert await one.children("/numbered") == ["n_0000000003", "other"]
        await one.close()

    ensemble.run(program)


def test_a_watch_waits_for_a_znode_that_is_not_there_yet(ensemble: Any) -> None:
    """Only `exists` leaves one; `get` and `children` of what does not exist leave none (the port's words)."""

    async def program(ensemble: Ensemble) -> None:
        one, heard = await ensemble.client()
        other, _ = await ensemble.client()
        assert await one.exists("/awaited", watch=True) is None
        for path in ("/asked", "/listed"):
            with pytest.raises(NoNode):
                await (one.get(path, watch=True) if path == "/asked" else one.children(path, watch=True))
        await other.transaction([Create(path=path) for path in ("/asked", "/listed", "/listed/child", "/awaited")])
        await until(lambda: len(heard.watches) > 0)
        assert await one.exists("/listed/child") is not None
        assert heard.watches == [("/awaited", Watched.CREATED)]
        for client in (one, other):
            await client.close()

    ensemble.run(program)


def test_watches_fire_once(ensemble: Any) -> None:
    async def program(ensemble: Ensemble) -> None:
        watcher, heard = await ensemble.client()
        other, _ = await ensemble.client()
        assert await watcher.exists("/watched", watch=True) is None
        await other.transaction([Create(path="/watched")])
        await until(lambda: ("/watched", Watched.CREATED) in heard.watches)
        await watcher.children("/watched", watch=True)
        await watcher.get("/watched", watch=True)
        await other.transaction([SetData(path="/watched", data=b"1", version=ANY_VERSION)])
        await other.transaction([SetData(path="/watched", data=b"2", version=ANY_VERSION)])
        await other.transaction([Create(path="/watched/child")])
        await until(lambda: ("/watched", Watched.CHILDREN) in heard.watches)
        await other.transaction([Delete(path="/watched/child"), Delete(path="/watched")])
        assert await watcher.exists("/watched") is None
        assert heard.watches == [
            ("/watched", Watched.CREATED),
            ("/watched", Watched.DATA),
            ("/watched", Watched.CHILDREN),
        ]
        await watcher.close()
        await other.close()

    ensemble.run(program)


def test_what_is_ephemeral_goes_with_its_session(ensemble: Any) -> None:
    async def program(ensemble: Ensemble) -> None:
        watcher, heard = await ensemble.client()
        owner, _ = await ensemble.client()
        await owner.transaction([Create(path="/mine", ephemeral=True)])
        await watcher.exists("/mine", watch=True)
        await owner.close()
        await until(lambda: ("/mine", Watched.DELETED) in heard.watches)
        assert await watcher.exists("/mine") is None
        await watcher.close()

    ensemble.run(program)


def test_a_short_silence_keeps_the_session(ensemble: Any) -> None:
    async def program(ensemble: Ensemble) -> None:
        one, heard = await ensemble.client()
        session = one.session_id
        await one.transaction([Create(path="/kept", ephemeral=True)])
        await ensemble.hurt(for_ms=SESSION_MS * 8 // 10)
        await until(lambda: heard.sessions[-1] is SessionState.CONNECTED)
        assert one.session_id == session
        assert await one.exists("/kept") is not None
        await one.close()

    ensemble.run(program)


def test_a_chroot_that_is_not_there_is_named(ensemble: Any) -> None:
    async def program(ensemble: Ensemble) -> None:
        with pytest.raises(NoNode):
            await ensemble.client(chroot="/nowhere")
        one, _ = await ensemble.client()
        await one.transaction([Create(path="/somewhere")])
        below, _ = await ensemble.client(chroot="/somewhere")
        await below.transaction([Create(path="/thing")])
        assert await one.children("/somewhere") == ["thing"]
        await one.transaction([Delete(path="/somewhere/thing"), Delete(path="/somewhere")])
        await below.close()
        await one.close()

    ensemble.run(program)


def test_nobody_there_is_said_in_time(ensemble: Any) -> None:
    async def program(ensemble: Ensemble) -> None:
        one = ensemble.unreachable()
        began = asyncio.get_running_loop().time()
        with pytest.raises(Unreachable):
            await one.connect(1_000)
        assert asyncio.get_running_loop().time() - began < 5

    ensemble.run(program)
