"""A cluster that is there already: what its file may say, what is refused by name, and a run on nodes that only a shell script knows."""

import asyncio
import contextlib
import datetime
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from tests.clusters.existing_nodes import SecuredKafka, cluster_toml, standing
from tribunal.clusters.api import ClusterError
from tribunal.clusters.clock import RunClock
from tribunal.clusters.existing import cluster as existing_cluster
from tribunal.clusters.existing import node as existing_node
from tribunal.clusters.existing.access import BadAccess, ExistingAccess, door
from tribunal.clusters.existing.acts import Act, Acts, left
from tribunal.clusters.existing.cluster import ExistingCluster
from tribunal.clusters.existing.commanded import CommandedNodes
from tribunal.clusters.existing.description import BadCluster, read_cluster
from tribunal.clusters.existing.node import ExistingNode, copied, ended
from tribunal.clusters.existing.topics import OwnTopics
from tribunal.clusters.kafka.jars import kafka_jars
from tribunal.clusters.kafka.side_by_side import ApacheKafka, SideBySide
from tribunal.clusters.kinds.existing import leftovers, sweep
from tribunal.clusters.run_context import RunContext
from tribunal.clusters.secured.authority import Authority, obstacle
from tribunal.clusters.spec import CI, JVM
from tribunal.harness.cli.main import exit_code
from tribunal.harness.fault_journal import FILE, Entry, NotHealed, heal
from tribunal.harness.plan import made
from tribunal.harness.scenario import BadScenario, scenario

NODES = """
name = "mine"
brokers = [{id = 1, address = "127.0.0.1:9092"}, {id = 7, address = "[::1]:9093"}]
controllers = [{id = 1, address = "127.0.0.1:9192"}, {id = 3000, address = "c:9193"}]
"""
NOW = datetime.datetime(2026, 11, 28, tzinfo=datetime.UTC)
KILL = '[commands]\nkill = ["k", "{node}"]\nstart = ["s", "{node}"]\n'


def written(folder: Path, content: str) -> Path:
    path = folder / "cluster.toml"
    path.write_text(content)
    return path


def plan_of(folder: Path, content: str, **more: object):
    given = {
        "scenario": "mine",
        "about": "a leader is killed",
        "cluster": {"file": str(written(folder, content)), "replication_factor": 2, "min_insync_replicas": 1},
        "workload": {"name": "produce-consume"},
        "time": "5s",
        "steps": [{"kill": "leader(p0)"}],
    }
    return made(scenario(given | more), seed=1, cluster="existing", time_ms=None, mutants=())


def test_nodes_have_the_ids_and_addresses_that_the_file_says(tmp_path: Path) -> None:
    cluster = read_cluster(written(tmp_path, NODES))

    assert cluster.broker_ids == (1, 7)
    assert cluster.controller_ids == (3000,)  # node 1 is a broker, too
    assert cluster.endpoints == {1: ("127.0.0.1", 9092), 7: ("::1", 9093), 3000: ("c", 9193)}


def test_a_plan_has_the_nodes_and_settings_of_the_file(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, NODES + '[settings]\n"broker.session.timeout.ms" = 4000\n' + KILL)

    assert plan.spec.broker_ids == (1, 7)
    assert plan.spec.controller_ids == (3000,)
    assert plan.spec.timeout_ms("broker.session.timeout.ms") == 4000
    assert plan.spec.timeout_ms("replica.lag.time.max.ms") == 30_000  # Kafka's own


def test_a_swarm_draws_the_load_of_a_cluster_that_is_there_and_not_what_it_is(tmp_path: Path) -> None:
    """It drew brokers, replicas and settings that the cluster did not have, and its runs would have been judged by them."""
    plain, drawn = (
        plan_of(tmp_path, NODES + KILL, swarm=swarm, steps=[{"kill": "leader(p*)"}]) for swarm in (False, True)
    )

    assert drawn.spec == plain.spec
    assert drawn.workload_plan != plain.workload_plan


@pytest.mark.parametrize(("content", "problem"), [
    pytest.param("name = 3", "name", id="no name"),
    pytest.param('name = "x"\nbrokers = []\ncontrollers = []', "brokers", id="no broker"),
    pytest.param(NODES.replace("id = 7", "id = 1"), "broker 1 stands there twice", id="twice"),
    pytest.param(NODES.replace("id = 7", "id = 0"), "brokers", id="0 stands for clients"),
    pytest.param(NODES.replace("127.0.0.1:9092", "127.0.0.1"), "broker 1: '127.0.0.1' is no address", id="no port"),
    pytest.param(NODES + 'version = "4"', "no version of Apache Kafka", id="version"),
    pytest.param(NODES + '[commands]\nkill = ["k"]', "kill without start", id="nobody could mend it"),
    pytest.param(NODES + '[commands]\nisolate = ["k"]', "isolate without rejoin", id="nobody could mend that"),
    pytest.param(NODES + '[commands]\nstart = ["k", "{name}"]', "there is no {name}", id="placeholder"),
    pytest.param(NODES + '[commands]\ncopy_logs = ["k"]', "does not name {target}", id="copied to nowhere"),
    pytest.param(NODES + '[commands]\nwipe = ["k"]', "wipe", id="an act that there is not"),
    pytest.param(NODES + '[settings]\nfoo = 1', "'foo'", id="a setting that nobody knows"),
])  # fmt: skip
def test_a_file_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path, content: str, problem: str) -> None:
    with pytest.raises(BadCluster) as refused:
        read_cluster(written(tmp_path, content))

    assert problem in str(refused.value)
    assert "cluster.toml" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("step", "problem"), [
    pytest.param({"pause": "leader(p0)"}, "no command 'pause'", id="no command"),
    pytest.param({"wipe": "leader(p0)"}, "cannot wipe", id="never"),
    pytest.param({"halves": "leader(p0)"}, "no command 'isolate'", id="links without a command"),
])  # fmt: skip
def test_a_fault_without_a_command_is_refused_at_plan_time(tmp_path: Path, step: object, problem: str) -> None:
    with pytest.raises(BadScenario, match=problem):
        plan_of(tmp_path, NODES + KILL, steps=[step])


@pytest.mark.parametrize(("step", "problem"), [
    pytest.param({"halves": "leader(p0)"}, "cannot cut single links", id="halves"),
    pytest.param({"isolate": "leader(p0)", "from": "brokers"}, "from all, both ways", id="from some"),
    pytest.param({"isolate": "leader(p0)", "direction": "in"}, "from all, both ways", id="one way"),
])  # fmt: skip
def test_a_command_isolates_whole_nodes(tmp_path: Path, step: object, problem: str) -> None:
    content = NODES + '[commands]\nisolate = ["i", "{node}"]\nrejoin = ["r", "{node}"]\n'

    assert plan_of(tmp_path, content, steps=[{"isolate": "leader(p0)"}])
    with pytest.raises(BadScenario, match=problem):
        plan_of(tmp_path, content, steps=[step])


def test_a_scenario_that_needs_another_setting_is_refused(tmp_path: Path) -> None:
    content = NODES + '[settings]\n"unclean.leader.election.enable" = false\n' + KILL
    cluster = {"file": str(tmp_path / "cluster.toml"), "settings": {"unclean.leader.election.enable": True}}

    with pytest.raises(ValueError, match=r"needs unclean\.leader\.election\.enable = True, mine has False"):
        plan_of(tmp_path, content, cluster=cluster)


def test_another_kind_is_not_given_a_file(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, NODES + KILL)

    with pytest.raises(BadScenario, match="is for --cluster existing"):
        made(scenario({"scenario": "x", "about": "x", "cluster": {"file": plan.spec.file}, "workload": {"name": "produce-consume"},
                       "time": "5s", "steps": []}), seed=1, cluster="processes", time_ms=None, mutants=())  # fmt: skip


@pytest.mark.parametrize(("settings", "tls", "mechanism"), [
    pytest.param({}, False, "", id="plain"),
    pytest.param({"security.protocol": "SSL"}, True, "", id="TLS"),
    pytest.param({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, False, "PLAIN", id="SASL"),
    pytest.param({"security.protocol": "sasl_ssl", "sasl.mechanisms": "SCRAM-SHA-512"}, True, "SCRAM-SHA-512", id="both"),
])  # fmt: skip
def test_the_harness_gets_in_as_the_clients_do(settings: dict[str, str], tls: bool, mechanism: str) -> None:
    found = door({**settings, "sasl.username": "u", "sasl.password": "p"})

    assert (found.context is not None, found.access.has_tls, found.access.mechanism) == (tls, tls, mechanism)
    assert (found.access.user, found.access.password) == (("u", "p") if mechanism else ("", ""))


@pytest.mark.parametrize(("settings", "problem"), [
    ({"security.protocol": "tls"}, "there is no security.protocol 'tls'"),
    ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "'GSSAPI'"),
    ({"security.protocol": "SSL", "ssl.ca.location": "/nowhere.pem"}, "/nowhere.pem|No such file"),
    ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u"}, "PLAIN without sasl.password"),
    ({"security.protocol": "SSL", "ssl.keystore.location": "k.p12"}, "give ssl.certificate.location"),
    ({"ssl.ca.locaton": "x"}, 'clients: No such configuration property: "ssl.ca.locaton"'),
])  # fmt: skip
def test_a_way_in_that_the_harness_does_not_know_is_refused(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(BadAccess, match=problem):
        ExistingAccess(settings)


def test_controllers_have_a_way_in_of_their_own_where_the_file_says_so() -> None:
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "p",
    }

    assert ExistingAccess(login).controllers.access.mechanism == "PLAIN"
    apart = ExistingAccess(login, {})
    assert (apart.administrator.access.mechanism, apart.controllers.access.mechanism) == ("PLAIN", "")
    with pytest.raises(BadAccess, match="controller_clients: there is no security"):
        ExistingAccess(login, {"security.protocol": "x"})


def test_a_way_in_that_there_is_not_is_refused_with_the_plan(tmp_path: Path) -> None:
    with pytest.raises(BadScenario, match=r"cluster.toml: clients: there is no security.protocol 'tls'"):
        plan_of(tmp_path, NODES + '[clients]\n"security.protocol" = "TLS"\n' + KILL)


@pytest.mark.parametrize("where", ["file", "folder", "text"])
def test_whom_to_trust_is_given_as_librdkafka_takes_it(tmp_path: Path, where: str) -> None:
    trust = Authority(tmp_path / "authority", NOW).trust
    given = {"file": str(trust), "folder": str(trust.parent), "text": trust.read_text()}[where]

    context = door({"security.protocol": "SSL", "ssl.ca.pem" if where == "text" else "ssl.ca.location": given}).context

    assert context is not None
    assert context.cert_store_stats()["x509_ca"] == (
        0 if where == "folder" else 1
    )  # a folder is looked into when asked


def test_heal_undoes_what_was_left_by_the_commands_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, NODES + '[commands]\nkill = ["k"]\nstart = ["touch", "{folder}/started-{node}"]\n')
    acts = Acts(tmp_path, path)
    acts.doing(7, "start")
    assert left(tmp_path) is not None
    assert leftovers(tmp_path) == [f"node 7 of {path}: start it"]

    said = sweep(tmp_path)

    assert (tmp_path / "started-7").exists()
    assert said[0].endswith("ended with 0")
    assert leftovers(tmp_path) == []


def dead_run(folder: Path, commands: str) -> tuple[Path, Path]:
    """The folder of a run whose harness was killed after it had killed node 7, and its cluster.toml."""
    run_dir = folder / "runs" / "dead"
    run_dir.mkdir(parents=True)
    path = written(folder, NODES + commands)
    entry = Entry(run_dir=str(run_dir), cluster="existing", harness_pid=2**22 + 1, harness_started=None)
    (run_dir / FILE).write_bytes(msgspec.json.encode(entry))
    Acts(run_dir, path).doing(7, "start")
    return run_dir, path


def test_heal_runs_the_commands_of_a_file_that_the_user_names(tmp_path: Path) -> None:
    run_dir, path = dead_run(tmp_path, '[commands]\nkill = ["k"]\nstart = ["touch", "{folder}/started-{node}"]\n')

    done = heal(tmp_path / "runs", [path])

    assert (tmp_path / "started-7").exists()
    assert any("ended with 0" in line for line in done)
    assert not (run_dir / FILE).exists()


@pytest.mark.parametrize("trusted", [pytest.param([], id="none"), pytest.param(["other.toml"], id="another")])
def test_heal_runs_no_command_of_a_file_that_the_user_has_not_named(tmp_path: Path, trusted: list[str]) -> None:
    """Whoever sends a run's folder writes its lists himself."""
    run_dir, path = dead_run(tmp_path, '[commands]\nkill = ["k"]\nstart = ["touch", "{folder}/started-{node}"]\n')

    with pytest.raises(NotHealed, match=f"--cluster-file {path}"):
        heal(tmp_path / "runs", [tmp_path / name for name in trusted])

    assert not (tmp_path / "started-7").exists()
    assert (run_dir / FILE).exists()


def test_a_list_of_acts_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    run_dir, path = dead_run(tmp_path, '[commands]\nkill = ["k"]\nstart = ["true"]\n')
    (run_dir / "acts.json").write_bytes(b'{"cluster":')

    with pytest.raises(NotHealed, match=r"acts\.json: not a list of what was done"):
        heal(tmp_path / "runs", [path])


def test_what_cannot_be_undone_stays_on_the_list(tmp_path: Path) -> None:
    path = written(tmp_path, NODES + '[commands]\nkill = ["k"]\nstart = ["false"]\n')
    acts = Acts(tmp_path, path)
    acts.doing(7, "start")
    acts.doing(1, "start")
    acts.undone(1, "start")

    assert sweep(tmp_path)[0].endswith("ended with 1")
    assert left(tmp_path).acts == [Act(7, "start")]  # type: ignore[union-attr]


# `start` is for a node that is down: it ends with 1 where the node runs.
ONCE = """
[commands]
kill = ["k"]
start = ["mkdir", "{folder}/started-{node}"]
isolate = ["i"]
rejoin = ["test", "-e", "{folder}/mended"]
"""


def test_what_is_undone_is_not_undone_again_when_the_rest_is(tmp_path: Path) -> None:
    run_dir, path = dead_run(tmp_path, ONCE)
    Acts(run_dir, path, left(run_dir)).doing(1, "rejoin")
    with pytest.raises(NotHealed):
        heal(tmp_path / "runs", [path])
    still = left(run_dir)
    assert still is not None
    assert still.acts == [Act(1, "rejoin")]
    (tmp_path / "mended").touch()

    heal(tmp_path / "runs", [path])

    assert left(run_dir) is None
    assert not (run_dir / FILE).exists()


def test_who_could_not_undo_it_says_how_the_command_ended(tmp_path: Path) -> None:
    _, path = dead_run(tmp_path, '[commands]\nkill = ["k"]\nstart = ["sh", "-c", "exit 5"]\n')

    with pytest.raises(NotHealed, match=r"cannot undo node 7 of .*: start it .*sh -c exit 5 ended with 5"):
        heal(tmp_path / "runs", [path])


def test_who_could_not_undo_it_says_what_is_wrong_about_the_file(tmp_path: Path) -> None:
    _, path = dead_run(tmp_path, '[commands]\nkill = ["k"]\nstart = ["s"]\n')
    path.write_text("brokers = 3")

    with pytest.raises(NotHealed, match=r"cannot undo node 7 .*brokers"):
        heal(tmp_path / "runs", [path])


def test_a_command_that_undoes_has_the_time_that_the_file_gives_it(tmp_path: Path) -> None:
    _, path = dead_run(tmp_path, 'command_within_ms = 300\n[commands]\nkill = ["k"]\nstart = ["sleep", "600"]\n')

    with pytest.raises(NotHealed, match=r"sleep 600 did not end within 300 ms"):
        heal(tmp_path / "runs", [path])


def test_a_list_undoes_nothing_by_what_hurts(tmp_path: Path) -> None:
    """Whoever sends a run's folder writes its lists himself, and may name the reader's own file."""
    run_dir, path = dead_run(tmp_path, '[commands]\nkill = ["touch", "{folder}/killed"]\nstart = ["true"]\n')
    (run_dir / "acts.json").write_text(json.dumps({"cluster": str(path), "acts": [{"node": 7, "undone_by": "kill"}]}))

    with pytest.raises(NotHealed, match=r"acts\.json: not a list of what was done"):
        heal(tmp_path / "runs", [path])

    assert not (tmp_path / "killed").exists()


def test_what_commands_say_is_no_part_of_what_heal_answers_as_json(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _, path = dead_run(tmp_path, '[commands]\nkill = ["k"]\nstart = ["echo", "mykv", "started"]\n')

    assert exit_code(["heal", "--json", "--out", str(tmp_path / "runs"), "--cluster-file", str(path)]) == 0

    said = capfd.readouterr()
    assert any("ended with 0" in line for line in json.loads(said.out))
    assert "mykv started" in said.err


@pytest.mark.parametrize(("end", "within_ms", "why"), [
    pytest.param("exit 24", 10_000, "ended with 24", id="it fails"),
    pytest.param("exec sleep 60", 300, "did not end within 300 ms", id="it goes on for ever"),
])  # fmt: skip
def test_a_log_that_was_copied_in_part_is_no_evidence(tmp_path: Path, end: str, within_ms: int, why: str) -> None:
    target = tmp_path / "data" / "2"
    words = ["sh", "-c", f"touch {target}/00000000000000000000.log; {end}"]

    with pytest.raises(ClusterError, match=f"node 2: copy_logs {why}"):
        asyncio.run(copied(2, words, target, within_ms))

    assert not target.exists()


SAYS_GONE = [
    pytest.param(["sh", "-c", "exit 1"], True, id="it is not there"),
    pytest.param(["sh", "-c", "exit 0"], False, id="it is there"),
    pytest.param(["sleep", "60"], False, id="nothing is said in time"),
    pytest.param(["/nonexistent/alive"], False, id="nobody can be asked"),
]


@pytest.mark.parametrize(("alive", "is_gone"), SAYS_GONE)
def test_a_node_is_killed_when_the_users_command_says_that_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alive: list[str], is_gone: bool
) -> None:
    """Who may go on is not noted as killed: how it ends later is no kill."""
    monkeypatch.setattr(existing_node, "GONE_WITHIN_MS", 500)
    commands = f'[commands]\nkill = ["true"]\nstart = ["true"]\nalive = {json.dumps(alive)}\n'
    spec = plan_of(tmp_path, f"{NODES}command_within_ms = 300\n{commands}").spec
    path, run_dir = tmp_path / "cluster.toml", tmp_path / "run"
    run_dir.mkdir()

    async def killed() -> tuple[bool, bool, list[str]]:
        cluster = ExistingCluster(RunContext(spec, run_dir, RunClock(), "mine"), read_cluster(path), path, frozenset())
        proof = await cluster.kill(7)
        return proof.holds, cluster.alive(7), [event.name for event in cluster.drain_events()]

    assert asyncio.run(killed()) == (is_gone, not is_gone, ["killed"] if is_gone else [])


@pytest.mark.parametrize(
    ("kill", "answers", "is_started"),
    [
        pytest.param(["false"], True, False, id="its kill failed, and it serves"),
        pytest.param(["false"], False, True, id="its kill failed, and it does not"),
        pytest.param(["true"], True, True, id="it was ended, perhaps not at once"),
    ],
)
def test_a_node_that_no_command_has_ended_is_not_started_beside_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill: list[str], answers: bool, is_started: bool
) -> None:
    """A start script notes the new process, which ends at once: later kills strike nobody. One that refuses left the run's list behind."""
    monkeypatch.setattr(existing_node, "GONE_WITHIN_MS", 100)
    commands = {"kill": kill, "start": ["touch", str(tmp_path / "started")]}

    async def looks() -> bool:
        return answers

    async def hurt_and_left() -> None:
        one = ExistingNode(7, ("127.0.0.1", 9), looks, commands.get, command_within_ms=10_000, serving_within_ms=10_000)
        nodes = CommandedNodes("mine", {7: one}, Acts(tmp_path, tmp_path / "cluster.toml"))
        with contextlib.suppress(ClusterError):
            await nodes.end(7, "kill")
        assert [(act.node, act.undone_by) for act in nodes.acts.done.acts] == [(7, "start")]
        await nodes.undo_all()

    asyncio.run(hurt_and_left())

    assert (tmp_path / "started").exists() is is_started
    assert left(tmp_path) is None


def test_ctrl_c_reaches_none_of_the_users_nodes() -> None:
    """A terminal sends it to the group of processes in its foreground, and a broker stays in that of the command that began it."""
    script = "import os; print(os.getpgrp(), os.getsid(0))"

    code, said = asyncio.run(ended([sys.executable, "-c", script], 10_000))

    group, session = map(int, said.removeprefix(": ").split())
    assert code == 0
    assert group != os.getpgrp()
    assert session == os.getsid(0)


def test_of_a_command_that_says_a_lot_only_the_end_is_read() -> None:
    """All of it held up the run for as long as it took to read, and took fifty times the room."""
    lines = ["sh", "-c", "yes word | head -c 20000000; echo the end; exit 3"]
    tracemalloc.start()
    try:
        code, said = asyncio.run(ended(lines, 60_000))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert code == 3
    assert said.endswith("word the end")
    assert len(said) <= 302
    assert most < 2_000_000


@pytest.mark.parametrize("command", ["rm -r {target}; exit 1", "ln -s . {target}/theirs-0"], ids=["it fails", "links"])
def test_logs_that_cannot_be_copied_keep_no_node_from_being_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """What was done to the user's nodes is mended, whatever becomes of the evidence."""
    monkeypatch.setattr(existing_cluster, "ASK_S", 0.2)
    copy_logs = f'copy_logs = ["sh", "-c", "{command}"]\n'
    content = NODES + f'[commands]\nkill = ["k"]\nstart = ["touch", "{{folder}}/started-{{node}}"]\n{copy_logs}'
    spec, path, run_dir = plan_of(tmp_path, content).spec, tmp_path / "cluster.toml", tmp_path / "run"
    run_dir.mkdir()

    async def closed() -> None:
        run = RunContext(spec, run_dir, RunClock(), "mine")
        cluster = ExistingCluster(run, read_cluster(path), path, frozenset())
        cluster._own.foreign = frozenset({"theirs"})
        cluster._acts.doing(7, "start")
        cluster._acts.making("ours")
        await cluster.close()

    with pytest.raises(ClusterError, match="copy_logs"):
        asyncio.run(closed())

    assert (tmp_path / "started-7").exists()


def test_a_log_that_was_copied_whole_stays(tmp_path: Path) -> None:
    target = tmp_path / "data" / "2"

    asyncio.run(copied(2, ["touch", f"{target}/00000000000000000000.log"], target, 10_000))

    assert len(list(target.iterdir())) == 1


def test_a_run_makes_no_topic_that_was_there_before(tmp_path: Path) -> None:
    acts = Acts(tmp_path, written(tmp_path, NODES))
    own = OwnTopics(frozenset({"theirs"}), acts)
    own.making("ours")

    with pytest.raises(ClusterError, match="a topic 'theirs' already"):
        own.making("theirs")
    assert left(tmp_path).topics == ["ours"]  # type: ignore[union-attr]


# --- on nodes that were started by a shell -------------------------------------------------

STATED = (
    "broker.session.timeout.ms", "replica.lag.time.max.ms", "offsets.topic.num.partitions", "transaction.state.log.num.partitions",
)  # fmt: skip
SCENARIO = """
scenario: mine
about: the leader is killed, then paused, on a cluster that is there already
cluster: {file: cluster.toml}
workload: {name: produce-consume, partitions: 2, rate: 60, readers: 1}
time: 3s
steps:
  - {kill: leader(p0), for: 1.2x session}
  - {pause: leader(p0), for: 1.2x session}
"""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SideBySide]:
    folder = tmp_path_factory.mktemp("existing")
    with standing(folder, CI) as cluster:
        yield cluster


def folder_of(nodes: SideBySide) -> Path:
    return nodes.places[1].folder.parent


def ran(folder: Path, out: Path) -> tuple[int, str]:
    """Run the scenario as a user does; return the exit code, and what was said."""
    words = ["run", str(folder / "mine.yaml"), "--cluster", "existing", "--seed", "3", "--engine", "inline"]
    done = subprocess.run(
        [sys.executable, "-m", "tribunal", *words, "--out", str(out)], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def topics(nodes: SideBySide) -> set[str]:
    seen = AdminClient({"bootstrap.servers": nodes.bootstrap}).list_topics(timeout=10).topics
    return {name for name in seen if not name.startswith("__")}


@pytest.mark.e2e
def test_a_run_hurts_it_by_its_commands_judges_all_and_leaves_it_as_it_was(nodes: SideBySide, tmp_path: Path) -> None:
    folder = folder_of(nodes)
    cluster_toml(nodes, folder, {name: CI[name] for name in STATED})
    (folder / "mine.yaml").write_text(SCENARIO)
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
    admin.create_topics([NewTopic("the-users-own", 1, 1)])["the-users-own"].result(10)

    code, said = ran(folder, tmp_path)

    run_dir = next(one for one in tmp_path.iterdir() if one.is_dir())
    verdict = json.loads((run_dir / "verdict.json").read_text())
    assert (code, verdict["verdict"]) in ((0, "PASS"), (0, "PERMITTED")), said
    assert [fault["took_effect"] for fault in verdict["test"]["faults"]] == [True, True]
    assert topics(nodes) == {"the-users-own"}
    assert not any(b"the-users-own" in path.read_bytes() for path in (run_dir / "recording").rglob("*.parquet"))
    assert leftovers(run_dir) == []
    assert not (run_dir / "acts.json").exists()
    nodes.wait_serving(nodes.broker_ids)


@pytest.mark.e2e
def test_a_file_that_does_not_say_how_the_cluster_is_set_is_refused_with_what_belongs_there(
    nodes: SideBySide, tmp_path: Path
) -> None:
    folder = folder_of(nodes)
    cluster_toml(nodes, folder, {})
    (folder / "mine.yaml").write_text(SCENARIO)

    code, said = ran(folder, tmp_path)

    assert code == 3
    assert '"broker.session.timeout.ms" = 1800' in said


@pytest.mark.e2e
def test_brokers_that_are_not_set_alike_are_refused_by_the_name_of_the_setting(
    nodes: SideBySide, tmp_path: Path
) -> None:
    """What one broker of several was given would be judged as if nobody had it."""
    folder, name = folder_of(nodes), "unclean.leader.election.enable"
    cluster_toml(nodes, folder, {name: CI[name] for name in STATED})
    (folder / "mine.yaml").write_text(SCENARIO)
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})

    def given(kind: AlterConfigOpType) -> None:
        entry = ConfigEntry(name, "true", incremental_operation=kind)
        resource = ConfigResource(ConfigResource.Type.BROKER, "2", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(10)

    given(AlterConfigOpType.SET)
    try:
        code, said = ran(folder, tmp_path)
    finally:
        given(AlterConfigOpType.DELETE)

    assert code == 3
    assert f"{name} is 'false' of broker 1 and 'true' of broker 2" in said


@pytest.mark.e2e
@pytest.mark.nightly
def test_a_topic_that_was_there_before_is_not_touched(nodes: SideBySide, tmp_path: Path) -> None:
    folder = folder_of(nodes)
    cluster_toml(nodes, folder, {name: CI[name] for name in STATED})
    (folder / "mine.yaml").write_text(SCENARIO)
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
    admin.create_topics([NewTopic("produce-consume", 1, 1)])["produce-consume"].result(10)

    code, said = ran(folder, tmp_path)

    assert code == 3
    assert "a topic 'produce-consume' already" in said
    assert "produce-consume" in topics(nodes)


@pytest.mark.e2e
@pytest.mark.nightly
def test_released_kafka_that_stands_already_is_judged_as_a_whole(tmp_path: Path) -> None:
    folder = tmp_path / "nodes"
    folder.mkdir()
    with standing(
        folder, {**JVM, "offsets.topic.replication.factor": 3}, ApacheKafka(kafka_jars("4.3.1"), "400m")
    ) as nodes:
        path = cluster_toml(nodes, folder, {name: JVM[name] for name in STATED})
        path.write_text('version = "4.3.1"\n' + path.read_text())
        (folder / "mine.yaml").write_text(SCENARIO)

        code, said = ran(folder, tmp_path / "runs")

        verdict = json.loads(next((tmp_path / "runs").glob("*/verdict.json")).read_text())
        assert code == 0, said
        assert verdict["coverage"]["judged"] == verdict["coverage"]["cells"] > 0
        assert topics(nodes) == set()


@pytest.mark.e2e
@pytest.mark.nightly
@pytest.mark.parametrize(("controllers", "tables"), [
    pytest.param("SASL_SSL", {}, id="controllers as brokers"),
    pytest.param("PLAINTEXT", {"controller_clients": {"security.protocol": "PLAINTEXT"}}, id="controllers in the clear"),
])  # fmt: skip
def test_released_kafka_behind_tls_and_logins_is_judged_as_a_whole(
    tmp_path: Path, controllers: str, tables: dict[str, dict[str, str]]
) -> None:
    if reason := obstacle():
        pytest.skip(reason)
    folder = tmp_path / "nodes"
    folder.mkdir()
    software = SecuredKafka(kafka_jars("4.3.1"), tmp_path, controllers=controllers)
    with standing(folder, {**JVM, "offsets.topic.replication.factor": 1}, software, brokers=1) as nodes:
        path = cluster_toml(nodes, folder, {name: JVM[name] for name in STATED}, clients=software.login, **tables)
        path.write_text('version = "4.3.1"\n' + path.read_text())
        alone = "cluster: {file: cluster.toml, replication_factor: 1, min_insync_replicas: 1}"
        (folder / "mine.yaml").write_text(SCENARIO.replace("cluster: {file: cluster.toml}", alone))

        code, said = ran(folder, tmp_path / "runs")

        verdict = json.loads(next((tmp_path / "runs").glob("*/verdict.json")).read_text())
        assert code == 0, said
        assert [fault["took_effect"] for fault in verdict["test"]["faults"]] == [True, True]
        assert verdict["coverage"]["judged"] == verdict["coverage"]["cells"] > 0
