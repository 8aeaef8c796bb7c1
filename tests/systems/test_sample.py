"""The system that `tribunal new system` writes runs at once: it passes, and with its weakness it is convicted."""

import asyncio
from pathlib import Path

import pytest

from tests.harness.forger import without_calls
from tribunal.checkers.judge.verdict import check
from tribunal.clusters.kinds import system as kind
from tribunal.harness.campaign.confirm import confirmed
from tribunal.harness.cli.main import exit_code
from tribunal.harness.cli.session import write_report
from tribunal.harness.evidence.bundle import unpacked
from tribunal.harness.evidence.claims import claims_of
from tribunal.harness.new import made_system
from tribunal.harness.plan import Plan, encoded, in_simulator, made
from tribunal.harness.progress import Silent
from tribunal.harness.run import Run, new_run_dir
from tribunal.harness.scenario import BadScenario, load
from tribunal.results.recording import WORDS
from tribunal.results.store import Recording
from tribunal.results.verdict import RunVerdict, Verdict, save
from tribunal.results.verdict import load as load_verdict

ONE_KILL = {"steps": "[{kill: node 1, for: 100ms, after: 200ms}]", "time": "300ms", "warm_up": "300ms"}


def planned(folder: Path, overrides: dict[str, str], *, seed: int = 1) -> Plan:
    """Return a plan for the sample system."""
    if not (folder / "keeper").exists():
        made_system("keeper", folder)
    scenario = load(folder / "keeper" / "scenario.yaml", ONE_KILL | overrides)
    return made(scenario, seed=seed, cluster="system", time_ms=None, mutants=())


def judged(plan: Plan, out: Path) -> tuple[RunVerdict, Path]:
    """Run a plan and judge it."""
    run_dir = new_run_dir(plan, out)
    ending = asyncio.run(Run(plan, run_dir, Silent()).execute())
    assert ending.failure is None
    (verdict,) = check([run_dir], "inline")
    return verdict, run_dir


def test_registers_that_are_written_before_they_are_acknowledged_pass(tmp_path: Path) -> None:
    """A kill -9 takes nothing from a system that writes first; every call stands in the recording, and nothing stays running."""
    verdict, run_dir = judged(planned(tmp_path, {}), tmp_path)

    assert (verdict.verdict, verdict.reasons) == (Verdict.PASS, [])
    assert verdict.judged["calls on registers"] > 20
    (killed,) = Recording.open(run_dir).table("faults").to_pylist()
    assert "ready again, as a new process" in killed["heal_proof"]  # nobody fences its nodes, and it has no ISR
    rows = Recording.open(run_dir).table("operations")
    assert set(rows["outcome"].to_pylist()) <= set(WORDS["operations", "outcome"])
    assert kind.leftovers(run_dir) == []


def test_a_run_of_a_described_system_can_be_bundled_verified_published_and_calibrated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its archive was refused (no sends where calls had been counted), its page claimed every kind of object, calibrate broke."""
    verdict, run_dir = judged(planned(tmp_path, {}), tmp_path / "runs")
    save(verdict, run_dir / "verdict.json")
    write_report(run_dir)
    statement = tmp_path / "campaign.yaml"
    statement.write_text("campaign: A keeper\nsystem: keeper\nversion: '0'\nnot_covered: [clocks]\n")

    assert (
        exit_code(["publish", str(tmp_path / "runs"), "--statement", str(statement), "-o", str(tmp_path / "site")]) == 0
    )
    (archive,) = (tmp_path / "site" / "evidence").iterdir()
    assert exit_code(["verify", str(archive), "--engine", "inline"]) == 0
    assert exit_code(["calibrate", str(run_dir), "--engine", "inline", "--classes", "quorum-epoch-back"]) == 0

    calls = verdict.judged["calls on registers"]
    assert [one.name for one in claims_of([run_dir]) if one.runs] == ["registers"]
    page = (tmp_path / "site" / "index.html").read_text()
    assert f"{calls:,} calls on registers were judged." in page
    assert "records were acknowledged" not in page
    assert "of replog" not in page
    assert "no anomaly had a place in these runs" in capsys.readouterr().out


def test_an_archive_has_what_another_needs_to_repeat_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It had system.toml alone: neither the client nor the server, nor under which name; and no version of the system."""
    verdict, run_dir = judged(planned(tmp_path, {"cluster.system": str(tmp_path / "keeper" / "lossy.toml")}), tmp_path)
    save(verdict, run_dir / "verdict.json")
    report = write_report(run_dir).read_text()
    assert exit_code(["bundle", str(run_dir), "-o", str(tmp_path / "one.zip")]) == 0
    assert exit_code(["verify", str(tmp_path / "one.zip"), "--engine", "inline"]) == 0
    said = capsys.readouterr().out
    again = tmp_path / "elsewhere"
    unpacked(tmp_path / "one.zip", again)
    (tmp_path / "keeper").rename(tmp_path / "gone")

    described = Recording.open(run_dir).manifest.described
    assert (described.file, described.version) == ("lossy.toml", "keeper 1.0")
    assert {one.name: one.is_kept for one in described.files} == dict.fromkeys(
        ("client.py", "lossy.toml", "scenario.yaml", "server.py", "system.toml"), True
    )
    assert "keeper 1.0" in report
    assert ">mode<" not in report
    assert "of replog" not in report
    assert "note: system" not in said
    named = [file for file in again.rglob("*") if file.is_file() and str(tmp_path).encode() in file.read_bytes()]
    assert not named
    command = ["run", "--plan", str(again / "plan.json"), "--out", str(tmp_path / "again"), "-q"]
    assert exit_code(command) in (0, 1)
    (repeated,) = (tmp_path / "again").iterdir()
    assert Recording.open(repeated).manifest.described == described
    assert load_verdict(repeated / "verdict.json").engine == "inline"  # nobody asked for Spark, which starts longer
    assert "judged in this process" in capsys.readouterr().err
    seen: list[Plan] = []
    confirmed(again, "system", 1, seen.append)  # and so can the others that run a plan
    assert [one.spec.system for one in seen] == [str(again / "system" / "lossy.toml")]


def test_a_file_of_the_system_that_is_not_the_one_that_was_run_is_missed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verdict, run_dir = judged(planned(tmp_path, {}), tmp_path / "runs")
    save(verdict, run_dir / "verdict.json")
    (run_dir / "system" / "client.py").write_text("pass\n")
    (run_dir / "system" / "server.py").unlink()

    assert exit_code(["bundle", str(run_dir), "-o", str(tmp_path / "forged.zip")]) == 0
    assert exit_code(["verify", str(tmp_path / "forged.zip"), "--engine", "inline"]) == 3
    said = capsys.readouterr().out
    assert "system/client.py: not the file that manifest.json names" in said
    assert "system/server.py: is missing, manifest.json names it" in said


def test_a_swarm_has_the_nodes_that_the_system_s_file_says(tmp_path: Path) -> None:
    """It drew three to five nodes, and settings by Kafka's names."""
    steps = "[{kill: random node, for: 100ms}]"
    plain, drawn = (planned(tmp_path, {"swarm": swarm, "steps": steps}) for swarm in ("false", "true"))

    assert drawn.spec == plain.spec


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        pytest.param('["{python}", "-c", "exit(3)"]', "failed", id="it fails"),
        pytest.param('["{python}", "-c", ""]', "said nothing", id="it says nothing"),
    ],
)
def test_a_version_that_cannot_be_had_ends_the_run_before_it_begins(tmp_path: Path, version: str, problem: str) -> None:
    plan = planned(tmp_path, {})
    file = tmp_path / "keeper" / "system.toml"
    file.write_text(
        "\n".join(
            f"version = {version}" if line.startswith("version") else line for line in file.read_text().splitlines()
        )
    )
    run_dir = new_run_dir(plan, tmp_path)

    ending = asyncio.run(Run(plan, run_dir, Silent()).execute())

    assert ending.failure is not None
    assert ending.failure.startswith("version: ")
    assert problem in ending.failure
    assert kind.leftovers(run_dir) == []


def test_calls_that_were_taken_out_of_an_archive_are_missed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verdict, run_dir = judged(planned(tmp_path, {}), tmp_path / "runs")
    save(verdict, run_dir / "verdict.json")
    write_report(run_dir)
    without_calls(run_dir)

    assert exit_code(["bundle", str(run_dir), "-o", str(tmp_path / "forged.zip")]) == 0
    assert exit_code(["verify", str(tmp_path / "forged.zip"), "--engine", "inline"]) == 3
    assert "the phases counted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("workload", "anomaly", "word"),
    [
        pytest.param("{name: register, keys: 20, rate: 100}", "not_linearizable", "acknowledged", id="registers"),
        pytest.param("{name: set, rate: 80}", "element_lost", "acknowledged", id="set"),
        pytest.param("{name: counter, rate: 80}", "too_low", "acknowledged", id="counter"),
        pytest.param("{name: lock, locks: 2, rate: 40, held_ms: 4000}", "held_twice", "acquired", id="lock"),
        pytest.param("{name: stream, streams: 1, rate: 80}", "element_lost", "acknowledged", id="stream"),
    ],
)
def test_what_was_acknowledged_before_it_was_written_is_missed(
    tmp_path: Path, workload: str, anomaly: str, word: str
) -> None:
    """The same run of the system that acknowledges first is a violation, in words that name the call.

    What the kill takes is chance, and whether anybody asks for it before it is written anew: of some seeds one has to be convicted.
    """
    lossy = {"cluster.system": str(tmp_path / "keeper" / "lossy.toml"), "workload": workload}

    verdicts = (judged(planned(tmp_path, lossy, seed=seed), tmp_path)[0] for seed in range(1, 6))
    verdict = next((one for one in verdicts if one.verdict is Verdict.VIOLATION), None)

    assert verdict is not None
    # What is written anew behind a loss stands where readers had seen something else.
    assert anomaly in {finding.kind for finding in verdict.findings} <= {anomaly, "entry_changed"}
    assert any(word in (finding.detail.detail or "") for finding in verdict.findings if finding.kind == anomaly)


@pytest.mark.parametrize(
    ("workload", "counted"),
    [
        pytest.param("{name: counter, counters: 2, rate: 80}", "calls on counters", id="counter"),
        pytest.param("{name: lock, rate: 80, held_ms: 30}", "calls on locks", id="lock"),
        pytest.param("{name: stream, streams: 2, rate: 80}", "calls on streams", id="stream"),
    ],
)
def test_counters_locks_and_streams_that_are_written_first_pass(tmp_path: Path, workload: str, counted: str) -> None:
    verdict, _ = judged(planned(tmp_path, {"workload": workload}), tmp_path)

    assert (verdict.verdict, verdict.reasons) == (Verdict.PASS, [])
    assert verdict.judged[counted] > 20


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        pytest.param({"steps": "[{isolate: node 1}]"}, "fault isolate: cluster system cannot cut", id="fault"),
        pytest.param({"steps": "[{kill: broker 1}]"}, "is none of: random node, node N", id="target"),
        pytest.param({"steps": "[{kill: node 2}]"}, "nodes of this system are 1", id="node"),
        pytest.param({"steps": "[{kill: node 1, for: 1x session}]"}, "unknown time-out 'session'", id="time-out"),
        pytest.param({"workload": "produce-consume"}, "sends and reads records", id="records"),
    ],
)
def test_what_a_system_does_not_have_is_refused_when_it_is_planned(
    tmp_path: Path, overrides: dict[str, str], words: str
) -> None:
    """Faults, targets, time-outs and workloads are refused by name, before anything starts."""
    with pytest.raises(BadScenario, match=words):
        planned(tmp_path, overrides)


@pytest.mark.parametrize(
    ("change", "overrides", "words"),
    [
        pytest.param(('"write", "cas",', '"write",'), {}, "workload register calls cas, which clients", id="operation"),
        pytest.param(
            ("[nodes]", 'withheld = ["kill"]\n[nodes]'), {}, r"cannot kill \(keeper withholds it\)", id="withheld"
        ),
        pytest.param(
            (', "--data", "{data}"', ""),
            {"steps": "[{wipe: node 1}]"},
            r"cannot wipe \(no command of keeper names \{data\}\)",
            id="no data folder",
        ),
        pytest.param(('"{port}"', '"{prot}"'), {}, r"there is no \{prot\}; did you mean \{port\}\?", id="placeholder"),
        pytest.param(('"{port}"', '"{port:peer}"'), {}, r"there is no \{port:peer\}; known: .*\{port:main\}", id="a port that there is not"),
        pytest.param(("within_ms = 10000", 'http = "health"'), {}, "ready: http = 'health': a path begins with /", id="no path"),
        pytest.param(
            ("within_ms = 10000", 'http = "/health", command = ["x"]'), {}, "ready: http or command, not both: one of them would not be asked",
            id="two ways to be ready",
        ),
        pytest.param(("[nodes]", "[notes]"), {}, "notes", id="word"),
        pytest.param(
            ("[nodes]", '[promises]\none_lost = ["kil"]\n[nodes]'), {}, "one_lost: unknown fault 'kil'; did you mean kill", id="no fault"
        ),
        pytest.param(
            ('"publish", ', ""), {"workload": "{name: stream}"}, "workload stream calls publish, which clients", id="level"
        ),
        pytest.param(("[nodes]", "[nodes]"), {"workload": "{name: stream, one: 80, none: 30}"}, "shares of all publications", id="shares"),
        pytest.param(
            ('"write", "cas",', '"write", "txn-lists",'),
            {"workload": "append"},
            r"does not say what is promised: \[promises\] consistency",
            id="no consistency",
        ),
        pytest.param(
            ("[nodes]", '[nodes]\nmore = { 2 = ["--join"] }'), {}, "more: there is no node 2", id="words of no node"
        ),
        pytest.param(("[nodes]", "[nodes]\nports = []"), {}, "length >= 1", id="no port"),
        pytest.param(("[nodes]", '[nodes]\nports = ["a", "a"]'), {}, "two have the same name", id="one port twice"),
        pytest.param(
            ("[nodes]", '[nodes]\nports = ["main", "peer-url"]'), {}, "'peer-url' cannot stand", id="name of a port"
        ),
        pytest.param(
            ("[nodes]", "[promises]\nlost_ms = { pause = 5 }\n[nodes]"), {}, "lost_ms", id="a fault that takes nothing"
        ),
        pytest.param(
            ("[nodes]\ncount = 1", "[promises]\nlost_ms = { kill = 5 }\n[nodes]\ncount = 2"),
            {},
            "lost_ms is for systems of one node",
            id="losses of several nodes",
        ),
        pytest.param(
            ("[nodes]", '[promises]\nconsistency = "serialisable"\n[nodes]'),
            {},
            "unknown consistency model 'serialisable'; known: .*serializable",
            id="a consistency that there is not",
        ),
        pytest.param(
            ('"read", "write"', '"raed", "write"'), {},
            r"client.operations.0.: 'raed' is none of the words that may stand here; did you mean read\?", id="an operation that there is not",
        ),
        pytest.param(("ready =", "redy ="), {}, "nodes: unknown field `redy`; did you mean ready", id="a word that there is not"),
    ],
)  # fmt: skip
def test_what_a_description_does_not_give_is_refused_when_it_is_planned(
    tmp_path: Path, change: tuple[str, str], overrides: dict[str, str], words: str
) -> None:
    """A capability or an operation that is not described is missing; what is mistyped is said."""
    made_system("keeper", tmp_path)
    file = tmp_path / "keeper" / "system.toml"
    file.write_text(file.read_text().replace(*change))

    with pytest.raises(BadScenario, match=words):
        planned(tmp_path, overrides)


def test_a_plan_of_a_described_system_is_none_for_the_simulator(tmp_path: Path) -> None:
    """It would run replog in its place, and say what that does; the words say what can be done."""
    plan = tmp_path / "run" / "plan.json"
    plan.parent.mkdir()
    plan.write_bytes(encoded(planned(tmp_path, {})))

    with pytest.raises(BadScenario, match="which the simulator cannot run") as refused:
        in_simulator(plan)

    assert f"tribunal confirm {plan.parent} --cluster system" in str(refused.value)


@pytest.mark.parametrize("command", ["sweep", "search"])
def test_scenarios_of_a_described_system_are_not_swept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """These have no `--cluster`: the words say which command has."""
    planned(tmp_path, {})

    assert exit_code([command, str(tmp_path / "keeper" / "scenario.yaml"), "--out", str(tmp_path / "out")]) == 64

    said = capsys.readouterr().err
    assert "the simulator runs replog alone, not" in said
    assert "tribunal run" in said
