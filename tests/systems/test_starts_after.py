"""A node of the sample system that finds its own file damaged when it starts again: the file's promise decides what that means."""

import asyncio
from pathlib import Path

import pytest

from tests.systems.test_sample import ONE_KILL
from tribunal.checkers.judge.verdict import check
from tribunal.clusters.kinds import system as kind
from tribunal.harness.new import made_system
from tribunal.harness.plan import made
from tribunal.harness.progress import Silent
from tribunal.harness.run import Run, new_run_dir
from tribunal.harness.scenario import BadScenario, load
from tribunal.results.store import Recording
from tribunal.results.verdict import RunVerdict, Verdict

# Starts its server, or ends at once, as the next line of a file says: what a damaged disk does to a real one.
STARTS = """import pathlib, runpy, sys, time
file = pathlib.Path(sys.argv[1])
word, *later = file.read_text().split()
file.write_text(" ".join(later))
if word == "late":
    time.sleep(7)
if word in ("ends", "late"):
    sys.exit("proto: illegal tag 0")
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
TWICE = "serves ends ends"


def judged(folder: Path, starts: str, promises: str, *, within_ms: int = 10_000) -> tuple[RunVerdict, Path]:
    """Kill the node of a sample system that starts like this, and judge the run."""
    made_system("keeper", folder)
    (folder / "starts.py").write_text(STARTS)
    (folder / "starts").write_text(starts)
    file = folder / "keeper" / "system.toml"
    begun = f'start = ["{{python}}", "{folder}/starts.py", "{folder}/starts", "{{folder}}/server.py",'
    text = file.read_text().replace('start = ["{python}", "{folder}/server.py",', begun)
    text = text.replace("within_ms = 10000", f"within_ms = {within_ms}")
    assert begun in text
    file.write_text(f"{text}\n[promises]\n{promises}\n")
    scenario = load(folder / "keeper" / "scenario.yaml", dict(ONE_KILL) | {"final_read": "2s"})
    plan = made(scenario, seed=1, cluster="system", time_ms=None, mutants=())
    run_dir = new_run_dir(plan, folder)
    ending = asyncio.run(Run(plan, run_dir, Silent()).execute())
    assert ending.failure is None
    assert kind.leftovers(run_dir) == []
    return check([run_dir], "inline")[0], run_dir


def test_a_node_that_has_to_start_again_and_does_not_is_accused(tmp_path: Path) -> None:
    """It is started twice, and what it said stands in its log; the run comes to its end all the same."""
    verdict, run_dir = judged(tmp_path, TWICE, "starts_after = { kill = true }")

    assert verdict.verdict is Verdict.VIOLATION
    assert [str(one) for one in verdict.signatures] == ["invariant/does_not_start/liveness"]
    manifest = Recording.open(run_dir).manifest
    assert manifest is not None
    (seen,) = manifest.not_started
    assert seen.second is not None
    assert (seen.node, seen.first.exit_code, seen.second.exit_code, seen.not_ready) == (1, 1, 1, (1,))
    assert (run_dir / "logs" / "1.log").read_text().count("illegal tag 0") == 2


def test_a_node_that_was_silent_and_ends_while_it_is_waited_for_is_started_again(tmp_path: Path) -> None:
    """Only the end of the start that was made with nothing else in effect has an exit code."""
    verdict, run_dir = judged(tmp_path, "serves late ends", "starts_after = { kill = true }", within_ms=5_000)

    assert verdict.verdict is Verdict.VIOLATION
    manifest = Recording.open(run_dir).manifest
    assert manifest is not None
    (seen,) = manifest.not_started
    assert (seen.first.how, seen.second and seen.second.exit_code) == ("silent", 1)


@pytest.mark.parametrize(
    ("starts", "promises", "verdict", "words"),
    [
        pytest.param(TWICE, "starts_after = { kill = false }", Verdict.INCONCLUSIVE, "", id="it need not"),
        pytest.param(TWICE, "", Verdict.ERROR, "[promises] starts_after = { kill = true }", id="nothing is said"),
        pytest.param(
            "serves ends serves",
            "starts_after = { kill = true }",
            Verdict.INCONCLUSIVE,
            "was not healed",
            id="it has to, and does at the second start",
        ),
    ],
)
def test_a_node_of_which_that_is_not_promised_or_not_proven_is_not(
    tmp_path: Path, starts: str, promises: str, verdict: Verdict, words: str
) -> None:
    """It is the only node: nobody can say what it had, so the run is no PERMITTED either."""
    found, _ = judged(tmp_path, starts, promises)

    assert (found.verdict, found.violations) == (verdict, [])
    assert words in " ".join(found.reasons)


@pytest.mark.parametrize("promises", ["starts_after = { pause = true }", "starts_after = { killing = true }"])
def test_only_faults_behind_which_a_node_is_started_can_be_named(tmp_path: Path, promises: str) -> None:
    with pytest.raises(BadScenario, match=r"starts_after: .* is no fault behind which a node is started: .*kill"):
        judged(tmp_path, TWICE, promises)
