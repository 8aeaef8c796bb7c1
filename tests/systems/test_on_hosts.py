"""A described system whose nodes run on hosts over ssh: hurt, judged, and nothing stays there, also not of a harness that is killed."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clusters.ssh_town import ROOT, Town, why_not
from tribunal.clusters.api import CLIENTS
from tribunal.harness.new import made_system
from tribunal.harness.plan import made
from tribunal.harness.scenario import BadScenario, load

WITHIN_S = 60
RUN = [sys.executable, "-m", "tribunal"]
needs_hosts = [
    pytest.mark.e2e,
    pytest.mark.timeout(180),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "there are hosts"),
]


def on_hosts(folder: Path, hosts: str) -> Path:
    """Make the sample system, its nodes on the hosts of a file; return its folder."""
    made_system("keeper", folder)
    for file in (folder / "keeper").glob("*.toml"):
        file.write_text(file.read_text().replace("[nodes]\n", f'[nodes]\nhosts = "{hosts}"\n'))
    return folder / "keeper"


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """Hosts with an sshd each."""
    with Town(tmp_path_factory.mktemp("town")) as town:
        yield town


def begun(town: Town, folder: Path, *more: str) -> subprocess.Popen[bytes]:
    """Begin a run of the sample system from where the hosts are reached; what it says goes to a file of the folder."""
    command = [
        *RUN,
        "run",
        f"{folder}/scenario.yaml",
        "--cluster",
        "system",
        "--engine",
        "inline",
        "--out",
        f"{folder}/runs",
        *more,
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with (folder / "said").open("wb") as said:
        begun: subprocess.Popen[bytes] = town.start(
            str(CLIENTS), *command, env=environment, stdout=said, stderr=subprocess.STDOUT
        )
    return begun


def ended(town: Town, folder: Path, *more: str) -> tuple[int, str]:
    """Run it to its end; return the exit code, and what was said."""
    with begun(town, folder, *more) as running:
        code = running.wait(timeout=WITHIN_S)
    return code, (folder / "said").read_text()


def hurt(*steps: str) -> list[str]:
    """Say what happens, in a short run."""
    return ["--set", f"steps=[{', '.join(steps)}]", "--set", "time=2s"]


def waited_for(holds: Callable[[], bool]) -> bool:
    """Wait until something holds; return whether it did in time."""
    deadline = time.monotonic() + WITHIN_S
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.1)  # noqa: TID251
    return holds()


KILL = "{kill: node 1, for: 100ms, after: 300ms}"
PAUSE = "{pause: node 1, for: 300ms, after: 200ms}"
WIPE = "{wipe: node 1, for: 100ms, after: 300ms}"


class TestWithHosts:
    """What takes hosts."""

    pytestmark = needs_hosts

    @pytest.mark.parametrize(
        ("steps", "verdict"),
        [
            pytest.param((KILL, PAUSE), (0, "PASS"), id="what is written outlives kill -9"),
            pytest.param((WIPE,), (1, "VIOLATION"), id="nothing outlives its disk"),
        ],
    )
    def test_a_system_on_a_host_is_hurt_and_judged_and_nothing_stays(
        self, town: Town, tmp_path: Path, steps: tuple[str, ...], verdict: tuple[int, str]
    ) -> None:
        """Its log is here afterwards, and its folder there is gone."""
        folder = on_hosts(tmp_path, str(town.hosts))

        code, said = ended(town, folder, *hurt(*steps))

        assert (code, verdict[1] in said) == (verdict[0], True), said
        (log,) = (folder / "runs").glob("*/logs/1.log")
        assert log.is_file()
        assert not list((town.folder / "remote").rglob("*"))

    def test_nothing_stays_of_a_harness_that_is_killed(self, town: Town, tmp_path: Path) -> None:
        """The guard of the run ends the node on its host, and removes its folder."""
        folder = on_hosts(tmp_path, str(town.hosts))
        remote = town.folder / "remote"

        with begun(town, folder, "--set", "time=60s") as running:
            started = waited_for(lambda: any(remote.rglob("sessions")))
            running.kill()

        assert started
        assert waited_for(lambda: not any(remote.rglob("*")))
        assert waited_for(lambda: any("removed" in log.read_text() for log in (folder / "runs").glob("*/heal.log")))


@pytest.mark.parametrize(
    ("hosts", "more", "words"),
    [
        pytest.param("none.toml", {}, "none.toml: No such file", id="no file"),
        pytest.param("of-two.toml", {}, "no host for node 1", id="no host"),
        pytest.param(
            "hosts.toml", {"steps": "[{isolate: node 1}]"}, "nobody stops packets between its hosts", id="cut"
        ),
        pytest.param("hosts.toml", {"cluster.isolation": "namespaces"}, "runs on hosts: no isolation", id="namespaces"),
    ],
)
def test_what_hosts_cannot_give_is_refused_when_it_is_planned(
    tmp_path: Path, hosts: str, more: dict[str, str], words: str
) -> None:
    """By the name of what is missing, and before any host is asked."""
    folder = on_hosts(tmp_path, hosts)
    for name, node in (("hosts.toml", 1), ("of-two.toml", 2)):
        (folder / name).write_text(
            f'[[node]]\nid = {node}\naddress = "192.0.2.{node}"\nhost_key = "ssh-ed25519 AAAA"\n'
        )

    with pytest.raises(BadScenario, match=words):
        made(load(folder / "scenario.yaml", more), seed=1, cluster="system", time_ms=None, mutants=())
