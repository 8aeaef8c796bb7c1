"""A described system whose nodes run already: looked at and hurt by commands alone, left as it was."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.systems.judged import judged_in
from tests.systems.standing_keeper import COMMANDS, SYSTEM, Asked, nodes_toml, process_of, standing
from tribunal.clusters.api import ClusterError
from tribunal.clusters.clock import RunClock
from tribunal.clusters.existing.acts import Acts, left
from tribunal.clusters.kinds.system import KIND
from tribunal.clusters.nodes.leftovers import mark, note_started
from tribunal.clusters.objects import ObjectOperation, ObjectValue
from tribunal.clusters.systems.clients import SystemClients
from tribunal.clusters.systems.description import Addresses, BadSystem, Client, read_system
from tribunal.harness.fault_journal import FILE, FaultJournal, NotHealed, undone
from tribunal.harness.plan import Plan, made
from tribunal.harness.scenario import BadScenario, scenario
from tribunal.results.object_transactions import Step, StepKind
from tribunal.results.verdict import Verdict

SCENARIO = """
scenario: keeper
about: "Registers of a server that runs already, while it is killed, paused and cut off."
cluster: {system: system.toml}
workload: {name: register, keys: 5, rate: 60}
time: 6s
warm_up: 300ms
steps:
  - {kill: node 1, for: 1x restart}
  - {pause: node 1, for: 1x restart}
  - {isolate: node 1, for: 1x restart}
"""


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    with standing(tmp_path_factory.mktemp("there")) as asked:
        (asked.folder / "scenario.yaml").write_text(SCENARIO)
        yield asked


def described(folder: Path, nodes: str, system: str = SYSTEM) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "nodes.toml").write_text(nodes)
    (folder / "client.py").write_text("")
    (folder / "system.toml").write_text(system)
    return folder / "system.toml"


def planned(system: Path, step: dict[str, object]) -> Plan:
    given: dict[str, object] = {
        "scenario": "keeper",
        "about": "a node is hurt",
        "cluster": {"system": str(system)},
        "workload": {"name": "register"},
        "time": "5s",
        "steps": [step],
    }
    return made(scenario(given), seed=1, cluster="system", time_ms=None, mutants=())


# --- what its files may say ----------------------------------------------------------------


@pytest.mark.parametrize(("old", "new", "problem"), [
    pytest.param('existing = "nodes.toml"', "", "start is missing", id="neither"),
    pytest.param("count = 1", 'count = 1\nstart = ["x"]', "have no start", id="both"),
    pytest.param("count = 1", 'count = 1\nstop = ["x"]', "have no stop", id="stop"),
    pytest.param("count = 1", 'count = 1\nimage = "x"', "have no image", id="image"),
    pytest.param("count = 1", 'count = 1\ndisk = "forgetful"', "have no disk", id="disk"),
    pytest.param("count = 1", 'count = 1\nclock = "shim"', "have no clock", id="clock"),
    pytest.param("count = 1", 'count = 1\nports = ["main", "peer"]', "a second one of ports", id="ports"),
])  # fmt: skip
def test_nodes_that_run_already_have_nothing_that_starts_them(tmp_path: Path, old: str, new: str, problem: str) -> None:
    path = described(tmp_path, nodes_toml(7001), SYSTEM.replace(old, new))

    with pytest.raises(BadSystem, match=problem):
        read_system(path)


@pytest.mark.parametrize(("nodes", "problem"), [
    pytest.param('nodes = []', "nodes", id="none"),
    pytest.param(nodes_toml(7001).replace("id = 1", "id = 2"), "ids have to be 1 to 1", id="another id"),
    pytest.param(nodes_toml(7001).replace(":7001", ""), "is no address", id="no port"),
    pytest.param(nodes_toml(7001, ("kill",)), "kill without start", id="nobody could mend it"),
    pytest.param(nodes_toml(7001) + 'copy_logs = ["cp", "{target}"]', "copy_logs is for logs", id="logs"),
    pytest.param(nodes_toml(7001) + 'wipe = ["w"]', "wipe", id="an act that there is not"),
    pytest.param(nodes_toml(7001).replace('"{node}"', '"{host@2}"', 1), r"there is no \{host@2\}", id="another node's host"),
    pytest.param(nodes_toml(7001).replace('"{node}"', '"{port:main}"', 1), r"there is no \{port:main\}", id="a port by its name"),
])  # fmt: skip
def test_a_file_of_nodes_that_cannot_be_used_is_refused_by_name(tmp_path: Path, nodes: str, problem: str) -> None:
    path = described(tmp_path, nodes)

    with pytest.raises(BadScenario, match=problem) as refused:
        planned(path, {"kill": "node 1"})
    assert "nodes.toml" in str(refused.value)


@pytest.mark.parametrize(("given", "step", "problem"), [
    pytest.param(("kill", "start"), {"pause": "node 1"}, r"nodes\.toml has no command 'pause'", id="no command"),
    pytest.param(COMMANDS, {"wipe": "node 1"}, "cannot wipe", id="its data are nobody's affair"),
    pytest.param(COMMANDS, {"halves": "node 1"}, "cannot cut single links", id="links"),
    pytest.param(COMMANDS, {"isolate": "node 1", "from": "nodes"}, "from all, both ways", id="from some"),
])  # fmt: skip
def test_a_fault_without_a_command_is_refused_by_name(
    tmp_path: Path, given: tuple[str, ...], step: dict[str, object], problem: str
) -> None:
    path = described(tmp_path, nodes_toml(7001, given))

    with pytest.raises(BadScenario, match=problem):
        planned(path, step)


def test_a_pause_needs_a_look_that_a_stopped_process_does_not_pass(tmp_path: Path) -> None:
    line = next(line for line in SYSTEM.splitlines() if line.startswith("ready"))
    path = described(tmp_path, nodes_toml(7001), SYSTEM.replace(line, ""))

    assert planned(path, {"kill": "node 1"})
    with pytest.raises(BadScenario, match="ready has no http and no command"):
        planned(path, {"pause": "node 1"})


# --- on a server that a shell has started --------------------------------------------------


@pytest.mark.e2e
def test_runs_hurt_it_by_its_commands_and_leave_it_as_it_was(keeper: Asked, tmp_path: Path) -> None:
    first = judged_in(keeper.folder, "scenario.yaml", {}, tmp_path)
    second = judged_in(keeper.folder, "scenario.yaml", {}, tmp_path, seed=2)

    # The same keys again: what the first run wrote stands under other ones, which systems can take for names.
    begun = {
        key.rpartition("-")[0] for key in re.findall(r"tribunal-[^\"]*", (keeper.folder / "data" / "log").read_text())
    }
    assert len(begun) == 2
    assert all(re.fullmatch(r"tribunal-\d{16}", one) for one in begun)
    assert (first.verdict, second.verdict) == (Verdict.PASS, Verdict.PASS)
    assert keeper.acts()[:7] == ["start", "kill", "start", "pause", "resume", "isolate", "rejoin"]
    assert {one.took_effect for one in (*first.test.faults, *second.test.faults)} == {True}
    assert process_of(keeper.folder / "pid")
    (one, *_) = sorted(tmp_path.iterdir())
    assert not (one / "system" / "nodes.toml").exists()  # where somebody's nodes are is nobody else's affair
    assert (one / "system" / "client.py").exists()


@pytest.mark.e2e
def test_a_killed_harness_leaves_a_list_by_which_the_users_commands_undo_it(keeper: Asked, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    path = keeper.folder / "hold.yaml"
    path.write_text(SCENARIO.replace("{kill: node 1, for: 1x restart}", "{kill: node 1, for: 60s}"))
    words = ["run", str(path), "--cluster", "system", "--out", str(out), "--engine", "inline"]
    harness = subprocess.Popen(
        [sys.executable, "-m", "tribunal", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        run_dir = until_killed(out)
    finally:
        harness.send_signal(signal.SIGKILL)
        harness.wait()
    done = left(run_dir)
    assert done is not None
    assert [(act.node, act.undone_by) for act in done.acts] == [(1, "start")]

    heal = [sys.executable, "-m", "tribunal", "heal", "--out", str(out)]
    refused = subprocess.run(heal, capture_output=True, text=True, check=False)
    healed = subprocess.run(
        [*heal, "--cluster-file", str(keeper.folder / "nodes.toml")], capture_output=True, text=True, check=False
    )

    assert refused.returncode != 0
    assert "--cluster-file" in refused.stdout + refused.stderr
    assert healed.returncode == 0, healed.stdout + healed.stderr
    assert keeper.acts()[-1] == "start"
    assert process_of(keeper.folder / "pid")
    assert not (run_dir / FILE).exists()


def test_what_a_killed_harness_began_itself_is_ended_though_the_users_commands_are_not_run(tmp_path: Path) -> None:
    """A client's child, as one of a shell, outlives the harness; the node's commands wait for who trusts their file."""
    run_dir = tmp_path / "runs" / "dead"
    run_dir.mkdir(parents=True)
    nodes = described(tmp_path / "keeper", nodes_toml(7001)).with_name("nodes.toml")
    FaultJournal(run_dir, "system").__enter__()
    Acts(run_dir, nodes).doing(1, "start")
    client = subprocess.Popen(["/bin/sleep", "600"], env={**os.environ, **mark(run_dir)}, start_new_session=True)
    note_started(run_dir, client.pid)

    with pytest.raises(NotHealed, match=r"left node 1 of .*: start it\. .* --cluster-file"):
        undone(run_dir)

    assert client.wait(10) == -signal.SIGKILL
    done = left(run_dir)
    assert done is not None
    assert [(act.node, act.undone_by) for act in done.acts] == [(1, "start")]


@pytest.mark.parametrize("place", ["ready", "roles"])
def test_a_program_that_is_not_there_is_named_before_anybody_waits_for_a_node(tmp_path: Path, place: str) -> None:
    odd = 'command = ["nosuch", "{host}"]' if place == "ready" else 'http = "/"'
    system = SYSTEM.replace('command = ["{python}", "{folder}/ready.py", "{host}", "{port}"]', odd)
    system = system.replace("[client]", '[nodes.roles]\nleader = ["nosuch"]\n[client]') if place == "roles" else system
    path = described(tmp_path / "keeper", nodes_toml(7001), system)
    spec, run_dir = planned(path, {"kill": "node 1"}).spec, tmp_path / "run"
    run_dir.mkdir()

    with pytest.raises(ClusterError, match="there is no program nosuch"):
        asyncio.run(KIND.launch(spec, run_dir, RunClock(), "c" * 22))


def until_killed(out: Path) -> Path:
    """Wait until a run of the folder has put its node down; return it."""
    for _ in range(600):
        for acts in out.glob("*/acts.json"):
            done = left(acts.parent)
            if done is not None and done.acts and not exists(acts.parent):
                return acts.parent
        time.sleep(0.1)  # noqa: TID251 - the harness is another process
    raise AssertionError("no node was killed")


def exists(run_dir: Path) -> bool:
    """Whether the node's process is there yet."""
    place = Path(msgspec.json.decode((run_dir / "acts.json").read_bytes())["cluster"]).parent
    try:
        os.kill(int((place / "pid").read_text()), 0)
    except ProcessLookupError:
        return False
    return True


ECHO = """
import json, sys
sys.stdin.readline()
print(json.dumps({"type": "init_ok"}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    with open(sys.argv[1], "a") as said:
        said.write(asked["key"] + chr(10))
    value = asked["value"] if asked["f"].startswith("txn") else 5
    print(json.dumps({"id": asked["id"], "type": "ok", "value": value}), flush=True)
"""


def test_clients_get_keys_of_the_runs_own_and_the_workload_those_that_it_gave(tmp_path: Path) -> None:
    (tmp_path / "echo.py").write_text(ECHO)
    client = Client(
        command=("{python}", str(tmp_path / "echo.py"), str(tmp_path / "said")),
        operations=(ObjectOperation.READ, ObjectOperation.TXN_LISTS),
    )
    where = Addresses(folder=tmp_path, hosts={1: "127.0.0.1"}, ports={1: {"main": 1}}, data={})
    steps = (Step(StepKind.APPEND, "l0", 5), Step(StepKind.READ, "l1", None))

    async def called() -> list[ObjectValue]:
        clients = SystemClients("echo", client, where, tmp_path, keys="tribunal-7-")
        one = clients.objects("1")
        try:
            answers = [
                await one.call(ObjectOperation.READ, "r0", None),
                await one.call(ObjectOperation.TXN_LISTS, "l0 l1", steps),
            ]
        finally:
            await clients.close()
        return [answer.value for answer in answers]

    assert asyncio.run(called()) == [5, steps]
    assert (tmp_path / "said").read_text().split() == ["tribunal-7-r0", "tribunal-7-l0", "tribunal-7-l1"]
