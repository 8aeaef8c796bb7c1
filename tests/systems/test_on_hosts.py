"""A described system whose nodes run on hosts over ssh: hurt, judged, and nothing stays there, also not of a harness that is killed."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.clusters.ssh_town import ROOT, Town, why_not
from tribunal.clusters.api import CLIENTS
from tribunal.clusters.nodes.leftovers import command_lines
from tribunal.harness.new import made_system
from tribunal.harness.plan import made
from tribunal.harness.scenario import BadScenario, load
from tribunal.results.store import Recording
from tribunal.results.verdict import RunVerdict

WITHIN_S = 150
RUN = [sys.executable, "-m", "tribunal"]
needs_hosts = [
    pytest.mark.e2e,
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "there are hosts"),
]


def on_hosts(folder: Path, hosts: str) -> Path:
    """Make the sample system, its nodes on the hosts of a file; return its folder."""
    made_system("keeper", folder)
    for file in (folder / "keeper").glob("*.toml"):
        file.write_text(file.read_text().replace("[nodes]\n", f'[nodes]\nhosts = "{hosts}"\n'))
    return folder / "keeper"


def log_on_hosts(folder: Path, hosts: str) -> Path:
    """Have replog as anybody's log, its nodes on the hosts of a file; return its folder."""
    made = folder / "replog"
    shutil.copytree(ROOT / "systems" / "replog", made)
    file = made / "system.toml"
    file.write_text(file.read_text().replace("[nodes]\n", f'[nodes]\nhosts = "{hosts}"\n'))
    (made / "kill.yaml").rename(made / "scenario.yaml")
    return made


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


def on_cut_hosts(town: Town, folder: Path) -> Path:
    """Make the sample system with two nodes, on hosts whose links may be cut; return its folder."""
    hosts = folder / "cut-hosts.toml"
    hosts.write_text(f"cuts = true\n{town.hosts.read_text()}")
    made = on_hosts(folder, str(hosts))
    for file in made.glob("*.toml"):
        file.write_text(file.read_text().replace("count = 1", "count = 2"))
    return made


def tables(town: Town) -> dict[int, list[str]]:
    """Return which tables of rules the first two hosts have."""
    return {node: town.spaces.run(["nft", "list", "tables", "ip"], name=str(node)).splitlines() for node in (1, 2)}


def sessions(daemon: int) -> list[int]:
    """Return the processes that an sshd has for its connections."""
    return [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/stat")
        if path.read_text().rpartition(")")[2].split()[1] == str(daemon)
    ]


def rules(town: Town, node: int) -> str:
    """Return all rules of a host."""
    return town.spaces.run(["nft", "list", "ruleset"], name=str(node))


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
            pytest.param((WIPE,), (1, "VIOLATION"), id="nothing outlives its disk", marks=pytest.mark.nightly),
        ],
    )
    def test_a_system_on_a_host_is_hurt_and_judged_and_nothing_stays(
        self, town: Town, tmp_path: Path, steps: tuple[str, ...], verdict: tuple[int, str]
    ) -> None:
        """Its log is here afterwards, and its folder there is gone."""
        folder = on_hosts(tmp_path, str(town.hosts))

        code, said = ended(town, folder, *hurt(*steps))

        assert (code, verdict[1] in said) == (verdict[0], True), said
        (run_dir,) = (folder / "runs").iterdir()
        assert (run_dir / "logs" / "1.log").is_file()
        assert Recording.open(run_dir).manifest.described.version == "keeper 1.0"
        assert not list((town.folder / "remote").rglob("*"))

    @pytest.mark.nightly
    def test_a_node_on_a_host_that_is_silent_after_its_kill_is_not_accused(self, town: Town, tmp_path: Path) -> None:
        """Nobody knows there whether it had a processor: the run is an error that says so, whatever the file promises."""
        folder = on_hosts(tmp_path, str(town.hosts))
        once = '"sh", "-c", "test -e $1/was && exec sleep 300; touch $1/was; shift; exec \\"$@\\"", "sh", "{data}",'
        for file in folder.glob("*.toml"):
            text = file.read_text().replace("within_ms = 10000", "within_ms = 2000")
            assert 'start = ["{python}",' in text
            text = text.replace('start = ["{python}",', f'start = [{once} "{{python}}",')
            file.write_text(f"{text}\n[promises]\nstarts_after = {{ kill = true }}\n")

        code, said = ended(town, folder, *hurt(KILL))

        assert (code, "does not serve" in said) == (3, True), said

    @pytest.mark.parametrize(
        ("others", "mode"), [("nodes", "hold"), pytest.param("all", "reset", marks=pytest.mark.nightly)]
    )
    def test_links_between_hosts_are_cut_and_healed(self, town: Town, tmp_path: Path, others: str, mode: str) -> None:
        """Proven by connections from host to host; the rules are gone afterwards, and ssh never noticed."""
        folder = on_cut_hosts(town, tmp_path)
        isolate = f"{{isolate: node 1, from: {others}, mode: {mode}, for: 300ms, after: 300ms}}"

        code, said = ended(town, folder, *hurt(isolate))

        assert (code, "faults 1/1 effective, heals 1/1" in said) == (0, True), said
        assert tables(town) == {node: [] for node in (1, 2)}
        assert not list((town.folder / "remote").rglob("*"))

    @pytest.mark.nightly
    def test_a_log_on_hosts_is_cut_off_and_judged_with_replicas_that_are_fetched(
        self, town: Town, tmp_path: Path
    ) -> None:
        """The committed metadata are seen past the cut; what the nodes had written is here when their folders are gone."""
        hosts = tmp_path / "cut-hosts.toml"
        hosts.write_text(f"cuts = true\n{town.hosts.read_text()}")
        folder = log_on_hosts(tmp_path, str(hosts))
        steps = ("{isolate: leader(p0), from: all, for: 1.2x session}", "{kill: leader(p0), for: 1.2x session}")

        code, said = ended(town, folder, *hurt(*steps))

        assert (code, "faults 2/2 effective, heals 2/2" in said) == (0, True), said
        (run_dir,) = (folder / "runs").iterdir()
        verdict = msgspec.json.decode((run_dir / "verdict.json").read_bytes(), type=RunVerdict)
        assert verdict.judged["acknowledged, acks=all"] > 50
        assert verdict.judged["partitions with a final log"] == 3
        assert not list((town.folder / "remote").rglob("*"))

    @pytest.mark.nightly
    def test_cuts_of_a_harness_that_is_killed_are_undone(self, town: Town, tmp_path: Path) -> None:
        """The guard of the run removes the rules as well, and nobody else's."""
        folder = on_cut_hosts(town, tmp_path)
        town.spaces.run(["nft", "add", "table", "ip", "owner"], name="1")

        try:
            with begun(town, folder, *hurt("{isolate: node 1, from: nodes, for: 60s, after: 100ms}")) as running:
                cut = waited_for(lambda: any("elements" in rules(town, node) for node in (1, 2)))
                running.kill()
            gone = waited_for(lambda: tables(town) == {1: ["table ip owner"], 2: []})
        finally:
            town.spaces.run(["nft", "delete", "table", "ip", "owner"], name="1")

        assert cut
        assert gone, tables(town)
        healed = "table tribunal_"
        assert waited_for(lambda: any(healed in log.read_text() for log in (folder / "runs").glob("*/heal.log")))

    @pytest.mark.nightly
    def test_a_host_that_hangs_up_keeps_nothing_from_being_put_down(self, town: Town, tmp_path: Path) -> None:
        """The run is an error that names the host; its node is ended over a new connection, and so are all others."""
        folder = on_hosts(tmp_path, str(town.hosts))
        for file in folder.glob("*.toml"):
            file.write_text(file.read_text().replace("count = 1", "count = 2"))
        remote = town.folder / "remote"

        with begun(town, folder, "--set", "time=60s") as running:
            started = waited_for(lambda: any(remote.rglob("2/pid")) and "warm-up" in (folder / "said").read_text())
            for session in sessions(town.daemons[0].pid):
                os.kill(session, signal.SIGKILL)
            code = running.wait(timeout=WITHIN_S)

        said = (folder / "said").read_text()
        assert started
        assert (code, "has hung up" in said, "left behind" in said) == (3, True, False), said
        assert not list(remote.rglob("*"))

    @pytest.mark.nightly
    @pytest.mark.parametrize("made", [on_hosts, log_on_hosts], ids=["of objects", "a log"])
    def test_nothing_stays_of_a_harness_that_is_killed(
        self, town: Town, tmp_path: Path, made: Callable[[Path, str], Path]
    ) -> None:
        """The guard of the run ends the nodes on their hosts, and removes their folders."""
        folder = made(tmp_path, str(town.hosts))
        remote = town.folder / "remote"

        with begun(town, folder, "--set", "time=60s") as running:
            started = waited_for(lambda: "warm-up" in (folder / "said").read_text())
            running.kill()

        assert started
        assert waited_for(lambda: not any(remote.rglob("*")))
        assert [words for _, words in command_lines() if any(str(remote) in word for word in words)] == []
        assert waited_for(lambda: any("removed" in log.read_text() for log in (folder / "runs").glob("*/heal.log")))


@pytest.mark.parametrize(
    ("hosts", "more", "words"),
    [
        pytest.param("none.toml", {}, "none.toml: No such file", id="no file"),
        pytest.param("of-two.toml", {}, "no host for node 1", id="no host"),
        pytest.param("hosts.toml", {"steps": "[{isolate: node 1}]"}, "their file does not say cuts = true", id="cut"),
        pytest.param(
            "user.toml",
            {"steps": "[{isolate: node 1}]"},
            "takes root, and tribunal is asked on 192.0.2.1",
            id="no root",
        ),
        pytest.param(
            "named.toml", {"steps": "[{isolate: node 1}]"}, "IPv4 addresses, and node-1.example is none", id="a name"
        ),
        pytest.param("hosts.toml", {"cluster.isolation": "namespaces"}, "runs on hosts: no isolation", id="namespaces"),
    ],
)
def test_what_hosts_cannot_give_is_refused_when_it_is_planned(
    tmp_path: Path, hosts: str, more: dict[str, str], words: str
) -> None:
    """By the name of what is missing, and before any host is asked."""
    folder = on_hosts(tmp_path, hosts)
    key = 'host_key = "ssh-ed25519 AAAA"'
    for name, node in (("hosts.toml", 1), ("of-two.toml", 2)):
        (folder / name).write_text(f'[[node]]\nid = {node}\naddress = "192.0.2.{node}"\n{key}\n')
    cuts = "cuts = true\n[[node]]\nid = 1\n"
    (folder / "user.toml").write_text(f'{cuts}address = "192.0.2.1"\nuser = "tribunal"\n{key}\n')
    (folder / "named.toml").write_text(f'{cuts}address = "node-1.example"\n{key}\n')

    with pytest.raises(BadScenario, match=words):
        made(load(folder / "scenario.yaml", more), seed=1, cluster="system", time_ms=None, mutants=())


@pytest.mark.e2e
@pytest.mark.skipif(bool(why_not()), reason=why_not() or "there are hosts")
@pytest.mark.parametrize("code", [0, 5])
def test_what_a_system_needs_is_installed_on_each_host_when_asked(town: Town, tmp_path: Path, code: int) -> None:
    """What lies beside its file is there meanwhile, nothing of it stays, and the first host on which it fails is named."""
    folder = on_hosts(tmp_path, str(town.hosts))
    (folder / "install.sh").write_text(f'echo "$1 has $(ls)"; pwd >>{tmp_path}/places; exit {code}\n')
    file = folder / "system.toml"
    file.write_text(file.read_text().replace("count = 1", 'count = 2\ninstall = ["sh", "{folder}/install.sh", "it"]'))
    command = [*RUN, "install", str(file), "--json"]

    with (tmp_path / "said").open("wb") as said, (tmp_path / "json").open("wb") as out:
        begun = town.start(str(CLIENTS), *command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=out, stderr=said)
        ended = begun.wait(timeout=WITHIN_S)

    text, places = (tmp_path / "said").read_text(), (tmp_path / "places").read_text().splitlines()
    assert ended == (3 if code else 0), text
    assert len(set(places)) == (1 if code else 2)
    assert not [place for place in places if Path(place).exists()]
    assert text.count("it has client.py") == len(places)
    named = [] if code else [one["node"] for one in msgspec.json.decode((tmp_path / "json").read_bytes())]
    assert named == ([] if code else [1, 2])
    assert ("install: node 1 (" in text and "exit code 5" in text) is bool(code)
