"""A finding on a described system is made smaller on its own nodes, by repetition."""

import json
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from tests.systems.test_sample import planned
from tribunal.checkers.judge.verdict import check
from tribunal.harness.campaign.bisect import bisected_by_runs
from tribunal.harness.campaign.findings import RealRuns, add, of_plan, read, rerun
from tribunal.harness.campaign.repetition import Repeated, SequentialTest
from tribunal.harness.campaign.shrink import Shrinker, fewer_calls, processes_of, size_of
from tribunal.harness.cli.main import exit_code
from tribunal.harness.cli.repeated import conducted
from tribunal.harness.plan import Plan, encoded, read_plan
from tribunal.results.scratch import remove_abandoned
from tribunal.results.signature import Signature
from tribunal.results.verdict import EXIT_ERROR, Finding, RunVerdict, Verdict, save
from tribunal.workloads.kinds.set import Plan as SetPlan

LOST = Signature("sets", "element_lost")
FIRST, LATER = 'write = "first"', 'write = "later"'


def losing(folder: Path) -> Plan:
    """Return a plan of the sample system that loses what a kill takes, with a pause that has no part in it."""
    return planned(
        folder,
        {
            "cluster.system": str(folder / "keeper" / "lossy.toml"),
            "workload": "{name: set, sets: 4, rate: 80}",
            "steps": "[{kill: node 1, for: 100ms, after: 200ms}, {pause: node 1, for: 100ms, after: 50ms}]",
        },
    )


def test_what_has_no_part_in_a_finding_is_taken_away(tmp_path: Path) -> None:
    """The kill stays; each plan that was kept had shown the finding in runs of its own."""
    planned(tmp_path, {})  # writes the sample system
    said = list[str]()

    def until_one_is_left(line: str) -> None:
        if line.startswith("1 faults"):
            raise KeyboardInterrupt  # whoever has seen enough keeps what there is

    runner = Repeated(conducted, LOST, SequentialTest(), said.append)
    shrinker = Shrinker(tmp_path / "runs", signature=LOST, runner=runner, budget_s=600, notify=until_one_is_left)
    small = shrinker.shrink(losing(tmp_path))

    assert small.interrupted
    assert [fault.kind for fault in small.plan.faults] == ["kill"]
    assert said[0].startswith("yes  ")
    (verdict,) = check([Path(small.result.run_dir)], "inline")
    assert LOST in verdict.signatures


def test_processes_objects_and_calls_are_taken_away(tmp_path: Path) -> None:
    """Each smaller plan is one that can be run; a process that stays goes on at its pace."""
    plan = planned(tmp_path, {"workload": "{name: set, sets: 4, rate: 80}"})

    smaller = list(fewer_calls(plan))

    options = [msgspec.convert(one.workload_plan, SetPlan).options for one in smaller]
    assert [(one.processes, one.sets, one.rate) for one in options] == [
        (1, 4, 16), (2, 4, 32), (5, 1, 80), (5, 2, 80), (5, 4, 10), (5, 4, 40),
    ]  # fmt: skip
    assert [processes_of(one) for one in smaller] == [1, 2, 5, 5, 5, 5]
    assert all(size_of(one) < size_of(plan) for one in smaller)


def history(folder: Path) -> list[str]:
    """Make the sample system's folder a repository of four commits of which the third one broke it; return them."""
    file = folder / "lossy.toml"
    losing_file = file.read_text()
    commits = []
    for number, text in enumerate((losing_file.replace(LATER, FIRST), losing_file)):
        file.write_text(text)
        commits.append(committed(folder, f"{number} at first"))
        (folder / "notes").write_text(str(number))
        commits.append(committed(folder, f"{number} later"))
    return commits


@pytest.mark.nightly
def test_the_commit_that_broke_a_system_is_found_in_its_own_repository(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each commit is built and asked in a work tree that goes away; the user's own checkout stays as it is."""
    run = finding(tmp_path, losing_plan=True)
    folder = tmp_path / "keeper"
    commits = history(folder)
    before = git(folder, "status", "--porcelain", "--branch")

    options = ["--good", commits[0], "--bad", commits[3], "--build", "touch built", "--json"]
    assert exit_code(["bisect", str(run), *options]) == 0

    said = json.loads(capsys.readouterr().out)
    assert (said["commit"], said["subject"], said["signature"]) == (commits[2], "1 at first", str(LOST))
    assert "Wald" in said["steps"][0]
    assert git(folder, "status", "--porcelain", "--branch") == before
    assert len(git(folder, "worktree", "list").splitlines()) == 1


def test_the_commit_right_behind_the_good_one_is_found(tmp_path: Path) -> None:
    """Git names it before anything is asked: the command ended in an error of the harness."""
    plan = losing(tmp_path)
    commits = history(tmp_path / "keeper")

    def conduct(plan: Plan, out: Path) -> tuple[Path, RunVerdict]:
        loses = LATER in Path(plan.spec.system).read_text()
        lost = Finding(property_name=LOST.property_name, kind=LOST.kind, severity="violation", explanation="")
        word = Verdict.VIOLATION if loses else Verdict.PASS
        return out / "run", RunVerdict(run_id="r", verdict=word, claim="", findings=[lost] if loses else [])

    runner = Repeated(conduct, LOST, SequentialTest())
    found = bisected_by_runs(plan, runner, commits[1], commits[2], lambda line: None)

    assert (found.commit, found.subject) == (commits[2], "1 at first")


@pytest.mark.parametrize("is_left", [True, False])
def test_a_run_that_has_left_something_to_heal_is_there_when_the_others_are_gone(tmp_path: Path, is_left: bool) -> None:
    """It is undone from its folder alone, and who asked for many runs has not seen where that is."""
    plan = losing(tmp_path)
    commits = history(tmp_path / "keeper")
    folders, said = dict[Path, None](), list[str]()

    def conduct(plan: Plan, out: Path) -> tuple[Path, RunVerdict]:
        folders[out] = None
        run = out / f"run-{len(list(out.iterdir()))}"
        run.mkdir()
        loses = LATER in Path(plan.spec.system).read_text()
        if is_left and not loses:
            (run / "unhealed.json").touch()
        lost = Finding(property_name=LOST.property_name, kind=LOST.kind, severity="violation", explanation="")
        word = Verdict.VIOLATION if loses else Verdict.PASS
        return run, RunVerdict(run_id="r", verdict=word, claim="", findings=[lost] if loses else [])

    bisected_by_runs(plan, Repeated(conduct, LOST, SequentialTest()), commits[1], commits[2], said.append)
    remove_abandoned()

    (folder,) = folders
    assert folder.exists() is is_left
    assert [line for line in said if "tribunal heal" in line] == (
        [f"a run has left something behind: tribunal heal --out {folder}"] if is_left else []
    )
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        pytest.param("false", "is left out, not bad", id="it fails"),
        pytest.param("no-such-program", "is left out, not bad", id="there is no such program"),
    ],
)
def test_a_commit_that_cannot_be_built_cannot_be_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], build: str, words: str
) -> None:
    run = finding(tmp_path, losing_plan=True)
    commits = history(tmp_path / "keeper")

    assert exit_code(["bisect", str(run), "--good", commits[0], "--bad", commits[3], "--build", build]) == EXIT_ERROR

    said = capsys.readouterr().err
    assert words in said
    assert f"cannot be asked: {build}" in said


def test_a_system_that_lies_in_no_repository_cannot_be_bisected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = finding(tmp_path, losing_plan=True)

    assert exit_code(["bisect", str(run), "--good", "HEAD~1"]) == EXIT_ERROR

    assert "git rev-parse" in capsys.readouterr().err


@pytest.mark.nightly
def test_the_command_writes_a_plan_that_runs_and_says_how_often_it_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = finding(tmp_path, losing_plan=True)

    assert exit_code(["shrink", str(run), "--budget", "60s", "--json"]) == 0

    said = json.loads(capsys.readouterr().out)
    small = read_plan(run / "plan.min.json")
    assert said["signature"] == str(LOST)
    assert said["runs"] > 10
    assert "of 8 more runs show it (95 %" in said["fresh"]
    assert "Wald" in said["test"]
    assert [fault.kind for fault in small.faults] == ["kill"]
    assert (small.cluster, small.spec.system) == ("system", read_plan(run / "plan.json").spec.system)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param(["--jobs", "2"], "one after the other", id="jobs"),
        pytest.param(["--share", "2"], "--share 2: from 0.05 to 0.95", id="share"),
        pytest.param(["--confidence", "0.1"], "--confidence 0.1", id="confidence"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    run = finding(tmp_path)
    there = sorted(tmp_path.rglob("*"))

    assert exit_code(["shrink", str(run), *options]) == 64

    assert words in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == there


def test_shares_are_for_runs_that_a_seed_does_not_repeat(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = Path(__file__).parents[1] / "harness" / "data" / "last-replica-standing-m01.json"

    assert exit_code(["shrink", str(plan), "--share", "0.5"]) == 64

    assert "are for described systems" in capsys.readouterr().err


def finding(folder: Path, *, losing_plan: bool = False) -> Path:
    """Return the folder of a run that lost an element."""
    plan = planned(folder, {})
    run = folder / "run"
    run.mkdir()
    (run / "plan.json").write_bytes(encoded(losing(folder) if losing_plan else plan))
    lost = Finding(property_name=LOST.property_name, kind=LOST.kind, severity="violation", explanation="")
    save(
        RunVerdict(run_id="r", verdict=Verdict.VIOLATION, claim="", findings=[lost]),
        run / "verdict.json",
    )
    return run


def committed(folder: Path, subject: str) -> str:
    """Commit all that a folder holds; return the commit."""
    if not (folder / ".git").exists():
        git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "--quiet", "--message", subject)
    return git(folder, "rev-parse", "HEAD")


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def test_a_finding_of_a_described_system_is_kept_and_run_again_on_its_own_nodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its plan names the system by the way there, so that both may move; mended it stays so, and without its software nothing is said."""
    planned(tmp_path, {})
    plan, folder = losing(tmp_path), tmp_path / "findings"
    found = next(
        run for run in (conducted(plan, tmp_path / "runs") for _ in range(4)) if run and LOST in run[1].signatures
    )
    save(found[1], found[0] / "verdict.json")
    add = ["findings", "add", str(found[0]), "--about", "it loses what a kill takes", "--folder", str(folder)]

    assert exit_code([*add, "--name", "lost", "--state", "known", "--max-runs", "6"]) == 0
    assert exit_code([*add, "--name", "mended"]) == 0
    assert '"system": "../keeper/lossy.toml"' in (folder / "lost.json").read_text()

    moved = tmp_path / "moved"
    moved.mkdir()
    (tmp_path / "keeper").rename(moved / "keeper")
    folder.rename(moved / "findings")
    monkeypatch.chdir(moved)  # where they are run from does not matter
    again = ["findings", "run", "--folder", str(moved / "findings"), "--out", str(tmp_path / "again")]
    capsys.readouterr()
    assert exit_code([*again, "lost"]) == 0
    assert capsys.readouterr().out.startswith("reproduced   lost ")

    lossy = moved / "keeper" / "lossy.toml"
    text = lossy.read_text()
    assert LATER in text
    lossy.write_text(text.replace(LATER, FIRST))
    assert exit_code([*again, "mended"]) == 0
    assert capsys.readouterr().out.startswith("stays fixed  mended ")

    lossy.write_text(text.replace('start = ["{python}"', 'start = ["no-such-program"'))
    assert exit_code([*again, "mended"]) == EXIT_ERROR
    said = capsys.readouterr().out
    assert said.startswith("error        mended ")
    assert "no-such-program" in said


def test_a_finding_names_its_system_by_the_way_there_also_where_a_link_leads_to_their_folder(tmp_path: Path) -> None:
    """Who goes up from a link comes to another folder than who goes up from where it leads."""
    planned(tmp_path, {})
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "repository").symlink_to(tmp_path)
    findings = tmp_path / "deep" / "er" / "repository" / "findings"
    finding = of_plan(losing(tmp_path), name="lost", about="it loses", signature=str(LOST), state="known", max_runs=1)

    kept = add(finding, findings)

    assert '"system": "../keeper/lossy.toml"' in kept.read_text()
    assert read(kept).plan.spec.system == str((tmp_path / "keeper" / "lossy.toml").resolve())


def test_a_finding_whose_system_has_become_another_one_is_an_error_with_a_reason(tmp_path: Path) -> None:
    """Its plan is of as many nodes as there were; the command, and the night, ended in the midst of it."""
    planned(tmp_path, {})
    lossy = tmp_path / "keeper" / "lossy.toml"
    finding = of_plan(losing(tmp_path), name="lost", about="it loses", signature=str(LOST), state="known", max_runs=3)
    text = lossy.read_text()
    assert "count = 1" in text
    lossy.write_text(text.replace("count = 1", 'count = 3\nmore = { 1 = ["{host@3}"] }'))

    (one,) = rerun([finding], jobs=1, scratch=tmp_path / "scratch", real=RealRuns(conducted, tmp_path / "runs"))

    assert (one.outcome, one.runs) == ("error", 0)
    assert "has 3 nodes, not 1" in one.reasons[0]
