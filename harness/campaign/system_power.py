"""Known bugs of a described system, each switched on in turn: how soon is each found, and is the system without it not accused.

A bug is another configuration, another version, or a patch. The file that lists them:

    scenario = "kill-primary.yaml"       # what is run, beside this file; a bug may name another one
    sound = "replicated.toml"            # the system without a bug: what it shows too counts for none

    [[bug]]
    name = "volatile"
    about = "a primary without persistence comes back empty"
    system = "volatile.toml"             # another configuration or version

    [[bug]]
    name = "early-answer"
    about = "it answers before it has written"
    patch = "early-answer.patch"         # applied with `git apply` to a copy of this folder
    build = "make server"                # run in the copy, with the patch

Real time is not repeated by a seed: each run is another one. Where a run with a bug shows something, the sound system is run once with the same seed;
what that shows too is a finding of the system as it is, and the bug goes on being sought. It goes on, too, where the sound system's run has no answer:
whoever does not run shows nothing either.
"""

import os
import shutil
import subprocess
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec

from tribunal.clusters.api import ClusterError
from tribunal.clusters.systems.folder import PLAN
from tribunal.harness.campaign.bisect import run_build
from tribunal.harness.campaign.confirm import found_by_checkers
from tribunal.harness.campaign.repetition import Conduct, let_go, ran
from tribunal.harness.catalog import nearest
from tribunal.harness.plan import Plan, made
from tribunal.harness.scenario import BadScenario, load
from tribunal.results.power import Power
from tribunal.results.signature import Signature, texts
from tribunal.results.unreadable import UNREADABLE
from tribunal.results.verdict import WITHOUT_ANSWER, RunVerdict

SYSTEM: Final = "system"  # the kind of cluster
NAME: Final = r"^[a-z0-9][a-z0-9-]{0,63}$"
File = Annotated[str, msgspec.Meta(min_length=1)]


class Bug(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One known bug; files lie beside the list of them.

    system:  the file of a system that has it; with a patch: the file in the patched copy, default: the sound one's.
    sound:   what it is compared with, where that is not the list's.
    """

    name: Annotated[str, msgspec.Meta(pattern=NAME)]
    about: str
    system: File | None = None
    patch: File | None = None
    build: str = ""
    scenario: File | None = None
    sound: File | None = None


class Bugs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A system's known bugs, as read."""

    scenario: File
    sound: File
    bug: Annotated[tuple[Bug, ...], msgspec.Meta(min_length=1)]


class Sought(msgspec.Struct, frozen=True, kw_only=True):
    """How bugs are sought.

    seeds:     tried one after the other, until one run shows the bug.
    budget_s:  for all of them, an equal share of what is left for each; a run that has begun is not broken off.
    conduct:   runs and judges a plan in a new folder below the one given; None: somebody interrupted it.
    out:       folder for the runs; those that found something stay.
    notify:    gets each bug's fate; accuse: each run of the sound system that is a violation.
    """

    seeds: range
    budget_s: float
    conduct: Conduct
    out: Path
    notify: Callable[[Power], None] = lambda result: None
    accuse: Callable[[Path, RunVerdict], None] = lambda run_dir, verdict: None


def read(path: Path) -> Bugs:
    """Read a list of known bugs; `BadScenario` in one line for what is none."""
    try:
        bugs = msgspec.convert(tomllib.loads(path.read_text()), Bugs)
    except OSError as problem:
        raise BadScenario(f"{path}: {problem.strerror}") from None
    except (*UNREADABLE, tomllib.TOMLDecodeError) as problem:
        raise BadScenario(f"{path}: not a list of known bugs: {problem}") from None
    names = [bug.name for bug in bugs.bug]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadScenario(f"{path}: two bugs are called {twice}")
    for bug in bugs.bug:
        if bug.system is None and bug.patch is None:
            raise BadScenario(f"{path}: {bug.name}: what has it: system = a file, or patch = a file")
        if bug.build and bug.patch is None:
            raise BadScenario(
                f"{path}: {bug.name}: build goes with a patch: what is built of the folder as it is has no bug"
            )
        wanted = (bug.patch, bug.scenario or bugs.scenario, bug.sound or bugs.sound)
        for name in (*wanted, None if bug.patch else bug.system):
            if name is not None and not (path.parent / name).is_file():
                raise BadScenario(f"{path}: {bug.name}: there is no file {path.parent / name}")
    return bugs


def scenario_files(path: Path) -> list[Path]:
    """Return the scenarios in which the bugs of a list are sought, each once."""
    bugs = read(path)
    return [path.parent / name for name in dict.fromkeys(bug.scenario or bugs.scenario for bug in bugs.bug)]


def chosen(bugs: Bugs, names: Sequence[str]) -> list[Bug]:
    """Return the bugs of these names, or all; `BadScenario` names one that there is not."""
    known = {bug.name: bug for bug in bugs.bug}
    for name in names:
        if name not in known:
            raise nearest("bug", name, known)
    return [known[name] for name in dict.fromkeys(names)] if names else list(bugs.bug)


def power(folder: Path, bugs: Bugs, wanted: Sequence[Bug], how: Sought, scratch: Path) -> list[Power]:
    """Switch bugs on, one after the other, and say what became of each.

    folder:   where the list and its files lie.
    scratch:  for patched copies of the folder.
    A patch that does not fit, and a system that cannot be run here, are said in the note of a bug without any seed.
    Raises KeyboardInterrupt when somebody interrupts a run.
    """
    ends = time.monotonic() + how.budget_s
    results = []
    for number, bug in enumerate(wanted):
        share_s = (ends - time.monotonic()) / (len(wanted) - number)
        results.append(_sought(folder, bugs, bug, how, time.monotonic() + share_s, scratch))
        how.notify(results[-1])
    return results


class _Tried:
    """The runs of one bug so far."""

    def __init__(self, bug: Bug, scenario: Path) -> None:
        self._bug = bug
        self._scenario = scenario
        self._began = time.monotonic()
        self._verdicts: Counter[str] = Counter()
        self.excused: dict[Signature, None] = {}  # what the sound system shows too
        self.not_compared: list[int] = []  # seeds with which the sound system's run had no answer

    def add(self, verdict: RunVerdict) -> list[Signature]:
        """Count a run; return what it shows that is not excused."""
        self._verdicts[verdict.verdict.value] += 1
        return [one for one in found_by_checkers(verdict) if one not in self.excused]

    def fate(
        self, found: Sequence[Signature] = (), *, seed: int | None = None, run_dir: str = "", note: str = ""
    ) -> Power:
        """Return what became of the bug."""
        notes = [note] if note else []
        if self.excused and not note:
            notes.append(f"the sound system shows it too, so it does not count: {', '.join(texts(list(self.excused)))}")
        if self.not_compared and not found and not note:
            seeds = ", ".join(map(str, self.not_compared))
            notes.append(f"the sound system has no answer, so it does not count: seeds {seeds}")
        return Power(
            mutant=self._bug.name, scenario=self._scenario.stem, found=bool(found), seen_by=texts(list(found)),
            what=found[0] if found else None, seed=seed, seeds=self._verdicts.total(), verdicts=dict(self._verdicts),
            seconds=round(time.monotonic() - self._began, 1), run_dir=run_dir, note="; ".join(notes),
        )  # fmt: skip


def _sought(folder: Path, bugs: Bugs, bug: Bug, how: Sought, end: float, scratch: Path) -> Power:
    scenario, sound = folder / (bug.scenario or bugs.scenario), bug.sound or bugs.sound
    tried = _Tried(bug, scenario)
    try:
        place = folder if bug.patch is None else patched(folder, bug, scratch)
        for plan in _plans(scenario, place / (bug.system or sound), how.seeds):
            if time.monotonic() >= end:
                break
            run_dir, verdict = _run(plan, how)
            if not tried.add(verdict):
                continue
            (same,) = _plans(scenario, folder / sound, range(plan.seed, plan.seed + 1))
            innocent_dir, innocent = _run(same, how)
            if innocent.verdict in WITHOUT_ANSWER:
                tried.not_compared.append(plan.seed)
                continue
            if shown := found_by_checkers(innocent):
                how.accuse(innocent_dir, innocent)
                tried.excused |= dict.fromkeys(shown)
            if found := [one for one in found_by_checkers(verdict) if one not in tried.excused]:
                return tried.fate(found, seed=plan.seed, run_dir=str(run_dir))
    except (ClusterError, BadScenario) as problem:  # it cannot be made, or not be run here: others can
        return tried.fate(note=str(problem))
    return tried.fate()


def _plans(scenario: Path, system: Path, seeds: range) -> Iterator[Plan]:
    wanted = load(scenario, {"cluster.system": str(system)})
    for seed in seeds:
        yield made(wanted, seed=seed, cluster=SYSTEM, time_ms=None, mutants=())


def _run(plan: Plan, how: Sought) -> tuple[Path, RunVerdict]:
    """Run a plan; its folder stays where something was found, or something is left to be healed."""
    ended = ran(how.conduct, plan, how.out)
    if not ended[1].violations:
        let_go(ended[0])
    return ended


def _left_out(folder: str, names: Sequence[str]) -> list[str]:
    """Return what of a folder is not copied: hidden names, runs wherever they were put, and links that lead nowhere."""
    paths = [Path(folder, name) for name in names]
    return [one.name for one in paths if one.name.startswith(".") or (one / PLAN).exists() or not one.exists()]


def patched(folder: Path, bug: Bug, scratch: Path) -> Path:
    """Return a copy of a folder with a bug's patch, built. Raises ClusterError."""
    assert bug.patch is not None
    copy = scratch / bug.name
    try:
        # A link out of the folder would lead elsewhere from the copy.
        shutil.copytree(folder, copy, ignore=_left_out)
    except OSError as problem:
        raise ClusterError(f"{bug.name}: {folder} cannot be copied: {problem}") from None
    # In a folder that belongs to a repository git would take the patch for one of the repository's, and apply nothing.
    alone = {**os.environ, "GIT_CEILING_DIRECTORIES": str(scratch.resolve())}
    command = ["git", "apply", str((folder / bug.patch).resolve())]
    try:
        done = subprocess.run(command, cwd=copy, env=alone, check=False, capture_output=True, text=True)  # noqa: S603
    except OSError as problem:
        raise ClusterError(f"{bug.name}: git: {problem.strerror}") from None
    if done.returncode != 0:
        raise ClusterError(f"{bug.name}: {bug.patch} does not fit: {' '.join(done.stderr.split())}")
    run_build(bug.build, copy)
    return copy
