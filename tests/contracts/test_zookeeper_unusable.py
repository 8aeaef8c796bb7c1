"""What a broker of ZooKeeper mode says of a ZooKeeper that it cannot use: one line, an exit code, nothing guessed."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from tests.contracts.test_zookeeper_contract import HOST, RealEnsemble, free_port
from tests.contracts.test_zookeeper_contract import server as server

CLUSTER = "unusable"
ADDRESS, REFUSED = 4, 5


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
def root(server: RealEnsemble, tmp_path: Path) -> "Root":
    return Root(server, tmp_path)


class Root:
    """A chroot of its own for each test."""

    def __init__(self, server: RealEnsemble, tmp_path: Path) -> None:
        self.path = f"/{tmp_path.name}"
        self.connect = f"{HOST}:{server.port}{self.path}"
        self.folder = tmp_path
        self.client = KazooClient(f"{HOST}:{server.port}")

    def make(self, *, acl: object = None, **znodes: bytes) -> None:
        self.client.start()
        self.client.create(self.path, acl=acl)
        for name, data in znodes.items():
            self.client.create(f"{self.path}/{name.replace('__', '/')}", data, makepath=True)
        self.client.stop()
        self.client.close()


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

    assert code == REFUSED
    assert "/config/topics/t" in words


@pytest.mark.nightly
def test_a_controller_that_finds_a_damaged_state_stops_and_names_it(root: Root) -> None:
    root.make(
        brokers__topics__t=b'{"version":3,"topic_id":"","partitions":{"0":[1]}}',
        brokers__topics__t__partitions__0__state=b'{"version":7}',
    )
    config = node(root.folder, root.connect)

    done = subprocess.run(command("broker", config), capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 1
    assert "/brokers/topics/t/partitions/0/state is damaged or foreign" in done.stdout + done.stderr


@pytest.mark.nightly
def test_an_id_of_a_living_broker(root: Root) -> None:
    root.make()
    first = subprocess.Popen(command("broker", node(root.folder / "first", root.connect)), stdout=-3, stderr=-3)
    try:
        time.sleep(3)  # noqa: TID251 - a real process

        code, words = refusal(node(root.folder / "second", root.connect))
    finally:
        first.terminate()
        first.wait(20)

    assert code == REFUSED
    assert "broker id 1 is registered by another living broker" in words
