"""A finding of the simulator, looked for on real nodes: how often it shows, what counts, and when nothing can be said."""

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import msgspec
import pytest

from tests.harness.this_machine import skip_unless_it_can
from tribunal.harness.campaign.confirm import (
    Confirmation,
    attempt_of,
    confirmed,
    on_kind,
    set_aside,
    signatures_of,
    verdict_of,
)
from tribunal.harness.catalog import all_workloads
from tribunal.harness.plan import made, read_plan
from tribunal.harness.scenario import BadScenario, load
from tribunal.results.intervals import interval
from tribunal.results.signature import Signature
from tribunal.results.verdict import Failure, Finding, RunVerdict, Verdict, save

ROOT = Path(__file__).parents[2]
MINIMAL = Path(__file__).with_name("data") / "last-replica-standing-m01.json"


def verdict(*found, run_id="r", word=None):
    findings = [Finding(property_name=name, kind=kind, severity="violation", explanation="") for name, kind in found]
    word = word or (Verdict.VIOLATION if findings else Verdict.PASS)
    return RunVerdict(run_id=run_id, verdict=word, claim="", findings=findings)


LOST = ("lost_writes", "lost")
TORN = ("consumers", "gap")
LOST_WRITE = Signature("lost_writes", "lost")
OF_THE_SIMULATOR = ("invariant", "I4")
I8 = ("invariant", "I8")
LIVENESS = ("invariant", "liveness")


@pytest.fixture
def finding(tmp_path):
    """A run's folder with a plan and a verdict."""
    folder = tmp_path / "found"
    folder.mkdir()
    (folder / "plan.json").write_bytes(MINIMAL.read_bytes())
    save(verdict(LOST, OF_THE_SIMULATOR), folder / "verdict.json")
    return folder


@pytest.mark.parametrize(
    ("shown", "runs", "low", "high"),
    [
        pytest.param(0, 10, 0.0, 0.3085, id="never"),
        pytest.param(10, 10, 0.6915, 1.0, id="always"),
        pytest.param(3, 5, 0.1466, 0.9473, id="now and then"),
    ],
)
def test_the_interval_is_the_exact_one(shown, runs, low, high):
    assert interval(shown, runs) == pytest.approx((low, high), abs=1e-4)


@pytest.mark.parametrize(
    ("sought", "found", "shows"),
    [
        pytest.param([LOST_WRITE], [LOST, TORN], True, id="the same"),
        pytest.param([LOST_WRITE], [TORN], False, id="something else"),
        pytest.param([], [TORN], True, id="an invariant is shown by any violation"),
        pytest.param([], [], False, id="nothing"),
    ],
)
def test_what_shows_a_finding(sought, found, shows):
    assert attempt_of(Path("run"), verdict(*found), sought).shows is shows


def test_what_is_sought_is_what_checkers_said(finding):
    assert signatures_of(verdict_of(finding)) == [LOST_WRITE]


LACKS = ("replicas", "replica_lacks")
EARLY = [Failure(signature=Signature("run", "ClusterError"), words="the run ended early: I8")]


@pytest.mark.parametrize(
    ("found", "failures", "sought"),
    [
        pytest.param([LACKS, I8], EARLY, [], id="logs in the midst of faults"),
        pytest.param([LACKS, LOST, I8], EARLY, [LOST_WRITE], id="beside something else"),
        pytest.param([LACKS], [], [Signature(*LACKS)], id="at the end"),
        pytest.param([LACKS], EARLY, [Signature(*LACKS)], id="ended early at no invariant"),
        pytest.param([LACKS, LIVENESS], EARLY, [Signature(*LACKS)], id="after all faults"),
    ],
)
def test_what_final_logs_show_in_the_midst_of_faults_is_not_sought(finding, found, failures, sought):
    """A real run goes on until everybody has caught up, so it never shows it."""
    was = msgspec.structs.replace(verdict(*found), failures=failures)

    assert signatures_of(was) == sought
    assert sorted([*sought, *set_aside(was, sought)]) == was.signatures


@pytest.mark.parametrize(
    ("found", "words"),
    [
        pytest.param(
            [LOST, OF_THE_SIMULATOR],
            "show lost_writes/lost  (95 %: 0% to 98%); not looked for: invariant/unknown/I4",
            id="beside it",
        ),
        pytest.param(
            [OF_THE_SIMULATOR],
            "show any violation  (95 %: 0% to 98%); not looked for: invariant/unknown/I4",
            id="alone",
        ),
        pytest.param([LOST], "show lost_writes/lost  (95 %: 0% to 98%)", id="nothing"),
    ],
)
def test_what_is_not_looked_for_is_said(finding, found, words):
    """A reader of the share must not take it for one of everything that the simulated run showed."""
    save(verdict(*found), finding / "verdict.json")

    counted = confirmed(finding, "processes", 1, lambda plan: (Path(plan.cluster), verdict()))

    assert counted.line().endswith(words)
    assert counted.left_out == (["invariant/unknown/I4"] if OF_THE_SIMULATOR in found else [])


def test_runs_are_counted_and_reported(finding):
    ended = iter([verdict(LOST), verdict(TORN), verdict()])
    reported = []

    found = confirmed(finding, "processes", 3, lambda plan: (Path(plan.cluster), next(ended)), reported.append)

    assert (found.shown, found.runs, found.exit_code) == (1, 3, 1)
    assert [attempt.shows for attempt in reported] == [True, False, False]
    assert (
        found.line()
        == "1 of 3 runs on processes show lost_writes/lost  (95 %: 1% to 91%); not looked for: invariant/unknown/I4"
    )


@pytest.mark.parametrize(
    ("words", "code"),
    [
        pytest.param([Verdict.PASS, Verdict.INCONCLUSIVE], 0, id="one was a test"),
        pytest.param([Verdict.ERROR, Verdict.INCONCLUSIVE], 2, id="none was a test"),
        pytest.param([Verdict.ERROR, Verdict.ERROR], 3, id="all broke"),
    ],
)
def test_the_exit_code_when_it_never_shows(words, code):
    attempts = [attempt_of(Path("run"), verdict(word=word), ["lost_writes/lost"]) for word in words]
    found = Confirmation(
        plan="", cluster="processes", mutants=[], sought=["lost_writes/lost"], runs=2, shown=0,
        interval=interval(0, 2), attempts=attempts,
    )  # fmt: skip

    assert found.exit_code == code


def test_the_shrunk_plan_is_preferred(finding):
    smaller = msgspec.json.decode(MINIMAL.read_bytes()) | {"scenario": "smaller"}
    (finding / "plan.min.json").write_bytes(msgspec.json.encode(smaller))
    seen = []

    confirmed(finding, "processes", 1, lambda plan: seen.append(plan.scenario))

    assert seen == ["smaller"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"seed": 77}, id="another seed"),
        pytest.param({"workload": "bank"}, id="another workload"),
        pytest.param({"faults": "twice"}, id="more faults"),
    ],
)
def test_a_smaller_plan_that_is_of_another_plan_is_refused(finding, change):
    """What it shows would be counted as what this run showed."""
    of_another = msgspec.json.decode(MINIMAL.read_bytes()) | change
    if "faults" in change:
        faults = read_plan(MINIMAL).faults
        again = [msgspec.structs.replace(fault, index=fault.index + len(faults)) for fault in faults]
        of_another["faults"] = [*faults, *again]
    if "workload" in change:
        of_another["workload_plan"] = all_workloads()["bank"].drawn({}, Random(1))
    (finding / "plan.min.json").write_bytes(msgspec.json.encode(of_another))

    with pytest.raises(BadScenario, match=r"plan\.min\.json is not of .*plan\.json: remove it"):
        confirmed(finding, "processes", 1, lambda plan: None)


def test_an_interrupted_run_ends_it_all(finding):
    assert confirmed(finding, "processes", 3, lambda plan: None) is None


def test_what_a_kind_cannot_do_is_refused_before_anything_starts(finding):
    skip_unless_it_can("apache-kafka", [fault.kind for fault in read_plan(finding / "plan.json").faults])

    with pytest.raises(BadScenario, match="mutants are bugs of replog: m01_no_elr"):
        confirmed(finding, "apache-kafka", 1, pytest.fail)
    with pytest.raises(BadScenario, match="on real nodes"):
        confirmed(finding, "simulated", 1, pytest.fail)
    plan = made(load(ROOT / "scenarios/disks.yaml", {}), seed=1, cluster="simulated", time_ms=None, mutants=())
    with pytest.raises(BadScenario, match=r"cluster apache-kafka cannot trouble_disk"):
        on_kind(plan, "apache-kafka")


def test_there_must_be_something_to_confirm(finding):
    save(verdict(), finding / "verdict.json")
    with pytest.raises(BadScenario, match="found nothing"):
        verdict_of(finding)
    (finding / "verdict.json").unlink()
    with pytest.raises(BadScenario, match=r"no verdict\.json"):
        verdict_of(finding)


def tribunal(*words):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tribunal.harness.cli.main", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)


def confirmed_on_processes(tmp_path, count, *plan):
    """Find something in the simulator and look for it on processes; return what `confirm --json` says."""
    simulated = tribunal("run", *plan, "--engine", "inline", "-q", "--out", str(tmp_path / "simulated"))
    assert simulated.returncode == 1, simulated.stdout + simulated.stderr
    (run,) = (tmp_path / "simulated").iterdir()
    done = tribunal("confirm", str(run), "-n", str(count), "-q", "--json", "--out", str(tmp_path / "real"))
    assert done.returncode == 1, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.nightly
@pytest.mark.e2e
@pytest.mark.timeout(200)
def test_the_last_replica_standing_is_found_again_on_real_processes(tmp_path):
    assert read_plan(MINIMAL).spec.mutants == ("m01_no_elr",)

    found = confirmed_on_processes(tmp_path, 1, "--plan", str(MINIMAL))

    assert found["sought"] == [
        "control_plane/clean_election_of_unclean_replica", "control_plane/elr_member_forgotten",
    ]  # fmt: skip
    assert found["shown"] == 1


@pytest.mark.e2e
@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("scenario", "mutant"),
    [("produce-consume", "M44"), ("elr-chain", "M15"), ("elr-chain", "M06"), ("last-replica-standing", "M01")],
)
def test_known_bugs_are_found_again_on_real_processes(tmp_path, scenario, mutant):
    words = (scenario, "--cluster", "simulated", "--mutant", mutant, "--seed", "1")

    assert confirmed_on_processes(tmp_path, 3, *words)["shown"] >= 1
