"""What a broker of ZooKeeper mode says of a ZooKeeper that it cannot use: one line, an exit code, nothing guessed."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl, make_digest_acl

from tests.contracts.test_zookeeper_contract import HOST, RealEnsemble, free_port
from tests.contracts.test_zookeeper_contract import server as server

CLUSTER = "unusable"
ADDRESS, REFUSED, DAMAGE = 4, 5, 7


def node(folder: Path, connect: str, *, node_id: int = 1) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{node_id}.toml"
    settings = {
        "node.id": node_id,
        "cluster.id": CLUSTER,
        "listeners": f"{HOST}:{free_port()}",
        "log.dirs": str(folder / f"data-{node_id}"),
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": 1000,
        "zookeeper.connection.timeout.ms": 2000,
        "controlled.shutdown.timeout.ms": 500,
    }
    path.write_text("".join(f'"{name}" = {_toml(value)}\n' for name, value in settings.items()))
    subprocess.run(command("format", path), check=True, capture_output=True)
    return path


def _toml(value: object) -> str:
    return str(value) if isinstance(value, int) else f'"{value}"'


def command(word: str, config: Path) -> list[str]:
    return [sys.executable, "-m", "replog", word, "--config", str(config)]


def refusal(config: Path) -> tuple[int, str]:
    done = subprocess.run(command("broker", config), capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr.strip().splitlines()[-1]


@pytest.fixture
def root(server: RealEnsemble, tmp_path: Path) -> "Iterator[Root]":
    made = Root(server, tmp_path)
    yield made
    made.client.stop()
    made.client.close()


class Root:
    """A chroot of its own for each test."""

    def __init__(self, server: RealEnsemble, tmp_path: Path) -> None:
        self.path = f"/{tmp_path.name}"
        self.connect = f"{HOST}:{server.port}{self.path}"
        self.folder = tmp_path
        self.client = KazooClient(f"{HOST}:{server.port}")

    def make(self, *, acl: object = None, **znodes: bytes) -> None:
        self._connect()
        self.client.create(self.path, acl=acl)
        for name, data in znodes.items():
            self.client.create(f"{self.path}/{name.replace('__', '/')}", data, makepath=True)

    def has(self, path: str) -> bool:
        self._connect()
        return self.client.exists(f"{self.path}{path}") is not None

    def shut(self, path: str, *, may_read: bool) -> None:
        self._connect()
        readers = [make_acl("world", "anyone", read=True)] if may_read else []
        self.client.set_acls(f"{self.path}{path}", [make_digest_acl("somebody", "else", all=True), *readers])

    def _connect(self) -> None:
        if not self.client.connected:
            self.client.start()


def test_nobody_there_within_the_time_allowed(tmp_path: Path) -> None:
    config = node(tmp_path, f"{HOST}:{free_port()}")
    began = time.monotonic()

    code, words = refusal(config)

    assert code == ADDRESS
    assert "no ZooKeeper server of" in words
    assert time.monotonic() - began < 30


def test_a_chroot_that_does_not_exist(root: Root) -> None:
    code, words = refusal(node(root.folder, root.connect))

    assert code == REFUSED
    assert f"the chroot {root.path}" in words


def test_an_acl_that_keeps_us_out(root: Root) -> None:
    root.make(acl=[make_digest_acl("somebody", "else", all=True)])

    code, words = refusal(node(root.folder, root.connect))

    assert code == REFUSED
    assert "does not let us in" in words


def test_a_foreign_cluster(root: Root) -> None:
    root.make(cluster__id=b'{"version":"1","id":"another"}')

    code, words = refusal(node(root.folder, root.connect))

    assert code == REFUSED
    assert "is of cluster another" in words


def test_a_damaged_znode_is_named(root: Root) -> None:
    root.make(config__topics__t=b"no json")

    code, words = refusal(node(root.folder, root.connect))

    assert code == DAMAGE
    assert "znode /config/topics/t is damaged or foreign" in words


@pytest.mark.parametrize(
    "path",
    [
        "/brokers/topics/t/partitions/0/state",
        pytest.param("/controller_epoch", marks=pytest.mark.nightly),
        pytest.param("/latest_producer_id_block", marks=pytest.mark.nightly),
        pytest.param("/brokers/ids/foreign", marks=pytest.mark.nightly),
    ],
)
def test_what_only_a_controller_reads_stops_it_and_is_named(root: Root, path: str) -> None:
    damage = {path.strip("/").replace("/", "__"): b'{"version":7}'}
    root.make(**{"brokers__topics__t": b'{"version":3,"topic_id":"","partitions":{"0":[1]}}'} | damage)

    code, words = refusal(node(root.folder, root.connect))

    assert code == DAMAGE
    assert f"znode {path} is damaged or foreign" in words


@pytest.mark.nightly
@pytest.mark.parametrize("may_read", [False, True])
def test_an_acl_that_shuts_a_running_controller_out_is_named(root: Root, may_read: bool) -> None:
    root.make()
    config = node(root.folder, root.connect)
    running = subprocess.Popen(command("broker", config), stdout=-3, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: root.has("/controller"))
        root.shut("/controller_epoch", may_read=may_read)
        root.client.delete(f"{root.path}/controller")

        words = running.communicate(timeout=60)[1]
    finally:
        running.kill()
        running.wait(20)

    assert running.returncode == REFUSED
    assert "ZooKeeper does not let us in any more: the ACL of /controller_epoch" in words.strip().splitlines()[-1]


@pytest.mark.nightly
def test_an_id_of_a_living_broker(root: Root) -> None:
    root.make()
    first = subprocess.Popen(command("broker", node(root.folder / "first", root.connect)), stdout=-3, stderr=-3)
    try:
        until(lambda: root.has("/brokers/ids/1"))

        code, words = refusal(node(root.folder / "second", root.connect))

        assert first.poll() is None
    finally:
        first.terminate()
        first.wait(20)

    assert code == REFUSED
    assert "broker id 1 is registered by another living broker" in words


def until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)  # noqa: TID251 - a real process
