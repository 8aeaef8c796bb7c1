"""Which commit broke it: git's own bisect, with a replay of the plan as its test.

Everything happens in a work tree of its own, made for it and removed after it; the user's files are not touched. Each commit
is asked in a fresh interpreter that sees that commit's code and this environment's libraries. Of a described system the commits are those of the
repository that its file lies in; each is asked by running the plan on its nodes again and again (`repetition.py`).
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from tribunal import ROOT
from tribunal.clusters.api import ClusterError
from tribunal.harness.campaign.confirm import on_kind
from tribunal.harness.campaign.repetition import Repeated, folder_of_runs
from tribunal.harness.plan import Plan, encoded, in_simulator, with_system
from tribunal.harness.scenario import BadScenario
from tribunal.results.scratch import Scratch

FIRST_BAD: Final = " is the first bad commit"
PROBE: Final = Path(__file__).with_name("bisect_probe.py")


class Bisected(msgspec.Struct, frozen=True, kw_only=True):
    """The first commit that shows it; `steps` are git's own words on the way."""

    commit: str
    subject: str
    signature: str
    steps: list[str]


def bisected(
    run: Path, signature: str, good: str, bad: str, notify: Callable[[str], None], *, seeds: int = 1
) -> Bisected:
    """Find the first commit between `good` and `bad` that shows a signature under a run's plan.

    seeds:  how many from the plan's own on each commit is asked with: another code may need another seed to show the same.
    Raises ClusterError when git cannot do it: unknown commits, `good` that is not good, no repository; BadScenario when the simulator cannot run the plan.
    """
    plan = in_simulator(run / "plan.json" if run.is_dir() else run)
    if not (ROOT / ".git").exists():
        raise ClusterError(
            f"{ROOT} is no clone of tribunal: bisect asks its commits; run it in a clone, whose plans are the same"
        )
    with _work_tree(bad) as tree, Scratch("bisect") as folder:
        path = folder / "plan.json"
        path.write_bytes(encoded(plan))
        environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
        test = [sys.executable, str(PROBE), str(path), signature, str(seeds)]
        for commit, wanted in ((bad, 1), (good, 0)):
            _git(tree, "checkout", "--quiet", "--detach", commit)
            notify(f"asking {commit}")
            answer = subprocess.run(  # noqa: S603 - our own command, no shell
                test, cwd=tree, env=environment, check=False, capture_output=True, text=True
            )
            if answer.returncode != wanted:
                raise ClusterError(_unfit(commit, wanted, answer.returncode, signature, answer.stderr))
        _git(tree, "bisect", "start", bad, good)
        steps = []
        with subprocess.Popen(  # noqa: S603
            ["git", "bisect", "run", *test],  # noqa: S607
            cwd=tree, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as running:  # fmt: skip
            assert running.stdout is not None
            for line in running.stdout:
                steps.append(line.rstrip())
                notify(line.rstrip())
        found = [line.removesuffix(FIRST_BAD) for line in steps if line.endswith(FIRST_BAD)]
        if not found:
            raise ClusterError(f"git bisect came to no end: {steps[-1] if steps else 'it said nothing'}")
        subject = _git(tree, "log", "-1", "--format=%s", found[0])
    return Bisected(commit=found[0], subject=subject, signature=signature, steps=steps)


def bisected_by_runs(
    plan: Plan, runner: Repeated, good: str, bad: str, notify: Callable[[str], None], *, build: str = ""
) -> Bisected:
    """Find the first commit of a described system's own repository between `good` and `bad` that shows a signature often enough.

    build:  a command that is run in the folder of the system's file before a commit is asked; a commit that it fails on is left out.
    Raises ClusterError when git cannot do it: no repository, unknown commits, `good` that is not good, all left out.
    """
    file = Path(plan.spec.system)
    top = Path(_git(file.parent, "rev-parse", "--show-toplevel"))
    place = file.resolve().relative_to(top.resolve())
    steps: list[str] = []
    with _work_tree(bad, top) as tree, folder_of_runs("bisect", notify) as scratch:

        def word() -> str:
            """Ask the commit that is checked out now."""
            try:
                run_build(build, (tree / place).parent)
                asked = on_kind(with_system(plan, str(tree / place)), plan.cluster)
                (result,) = runner.swept([asked], budget_s=None, scratch=scratch).results
            except (BadScenario, ClusterError) as problem:
                notify(f"cannot be asked: {problem}")
                return "skip"
            return "bad" if result.signatures else "good"

        for commit, wanted in ((bad, "bad"), (good, "good")):
            _git(tree, "checkout", "--quiet", "--detach", commit)
            notify(f"asking {commit}")
            if (said := word()) != wanted:
                raise ClusterError(
                    f"{commit} is {'left out' if said == 'skip' else said}, not {wanted}: {runner.words}"
                )
        answer = _git(tree, "bisect", "start", bad, good)
        steps += answer.splitlines()  # there may be no commit between them
        while FIRST_BAD not in answer:
            notify(answer.splitlines()[-1] if answer else "")
            answer = _git(tree, "bisect", word())
            steps += answer.splitlines()
        commit = next(line for line in steps if line.endswith(FIRST_BAD)).removesuffix(FIRST_BAD)
        subject = _git(tree, "log", "-1", "--format=%s", commit)
    return Bisected(commit=commit, subject=subject, signature=str(runner.sought), steps=[runner.words, *steps])


def run_build(command: str, folder: Path) -> None:
    """Run a command in a folder. Raises ClusterError when it fails."""
    if not command:
        return
    try:
        done = subprocess.run(shlex.split(command), cwd=folder, check=False, capture_output=True, text=True)  # noqa: S603
    except OSError as problem:
        raise ClusterError(f"{command}: {problem.strerror}") from None
    if done.returncode != 0:
        raise ClusterError(f"{command} ended with {done.returncode}: {(done.stderr.strip().splitlines() or [''])[-1]}")


def _unfit(commit: str, wanted: int, code: int, signature: str, said: str) -> str:
    last = (said.strip().splitlines() or ["it said nothing"])[-1]
    if code not in (0, 1):
        return f"{commit} cannot be asked: {last}"
    return (
        f"{commit} does not show {signature!r}" if wanted else f"{commit} shows {signature!r} already: it is not good"
    )


@contextmanager
def _work_tree(commit: str, repository: Path = ROOT) -> Iterator[Path]:
    with Scratch("bisect-tree") as folder:
        tree = folder / "tree"
        _git(repository, "worktree", "add", "--quiet", "--detach", str(tree), commit)
        try:
            yield tree
        finally:
            _git(repository, "worktree", "remove", "--force", str(tree))


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(  # noqa: S603
        ["git", *arguments],  # noqa: S607
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ClusterError(f"git {arguments[0]}: {said}")
    return done.stdout.strip()
