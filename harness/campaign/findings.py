"""Past failures, kept: each a plan with what it showed, run again every night before anything else.

A finding is one JSON file, written by `tribunal findings add` from a run's folder. Its state says what is expected of it:
`fixed` must not be found any more (found again, it has regressed), `known` must still be found (a bug nobody has mended
yet, or a plan whose known bug is switched on on purpose). Nothing is repeated until it looks good: a `known` finding may
take up to `max_runs` seeds to show, because the code around it moves, and how many it took is data.

A finding of a described system is run on its own nodes, up to `max_runs` times: real time is not repeated by a seed. Its plan names
`system.toml` by the way there from the finding's own file.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from tribunal.clusters.api import ClusterError
from tribunal.harness.campaign.confirm import Attempt, attempt_of, on_kind
from tribunal.harness.campaign.repetition import Conduct, let_go, ran
from tribunal.harness.campaign.sweep import SeedResult, Sweep, swept
from tribunal.harness.catalog import SIMULATED, nearest
from tribunal.harness.plan import PLAN_VERSION, Plan, with_system
from tribunal.harness.run import commit
from tribunal.harness.scenario import BadScenario
from tribunal.results.signature import Signature, texts
from tribunal.results.signature import read as read_signature
from tribunal.results.unreadable import UNREADABLE
from tribunal.results.verdict import WITHOUT_ANSWER, Verdict

FOLDER: Final = Path("tests/findings")
VERSION: Final = 1
NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
State = Literal["fixed", "known"]
Outcome = Literal["stays fixed", "regressed", "reproduced", "gone", "error"]


class KnownFinding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One past failure.

    signature:  the text form of what it shows (`tribunal.results.signature`); `shows` is the value.
    max_runs:   how many seeds from the plan's own on may be tried before a known finding counts as gone; of a described system how many runs.
    commit:     of the code that it was found with.
    """

    finding_version: int = VERSION
    name: str
    about: str
    signature: str
    state: State = "fixed"
    max_runs: int = 1
    commit: str = "unknown"
    plan: Plan

    @property
    def shows(self) -> Signature:
        """Its identity: findings with equal signatures are the same bug."""
        return read_signature(self.signature)


class Rerun(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a finding when it was run again; `seconds` of the processes' wall time; `reasons`: why nothing can be said."""

    name: str
    about: str
    signature: str
    outcome: Outcome
    runs: int
    max_runs: int
    seconds: float
    others: list[str] = []  # what else was found
    run_dir: str = ""
    reasons: list[str] = []

    @property
    def is_bad(self) -> bool:
        """Whether the code of now does something wrong here: a fixed bug is back, or a new one shows."""
        return self.outcome == "regressed" or bool(self.others)

    def line(self) -> str:
        """Say it in a line."""
        runs = f"{self.runs} of {self.max_runs} runs" if self.max_runs > 1 else "1 run"
        other = f"; found besides: {', '.join(self.others)}" if self.others else ""
        why = f"; {'; '.join(self.reasons)}" if self.reasons else ""
        return f"{self.outcome:<12} {self.name:<36} {runs}, {self.seconds:.1f} s  {self.signature}{other}{why}"


def all_findings(folder: Path = FOLDER) -> list[KnownFinding]:
    """Read a folder's findings by name; `BadScenario` names the file that is none."""
    if not folder.is_dir():
        raise BadScenario(f"{folder}: no folder of findings; `tribunal findings add` makes one")
    return [read(path) for path in sorted(folder.glob("*.json"))]


def chosen(names: Sequence[str], folder: Path = FOLDER) -> list[KnownFinding]:
    """Return the findings of these names, or all."""
    found = {finding.name: finding for finding in all_findings(folder)}
    for name in names:
        if name not in found:
            raise nearest("finding", name, found)
    return [found[name] for name in names] if names else list(found.values())


def read(path: Path) -> KnownFinding:
    """Read one finding; `BadScenario` in one line when it is none."""
    try:
        finding = msgspec.json.decode(path.read_bytes(), type=KnownFinding)
    except OSError as problem:
        raise BadScenario(f"{path}: {problem.strerror}") from None
    except UNREADABLE as problem:
        raise BadScenario(f"{path}: not a finding: {problem}") from None
    if finding.finding_version != VERSION or finding.plan.plan_version != PLAN_VERSION:
        raise BadScenario(
            f"{path}: finding version {finding.finding_version} with plan version {finding.plan.plan_version}; "
            f"this is {VERSION} with {PLAN_VERSION}"
        )
    if finding.plan.spec.system:
        finding = _with_system(finding, str((path.parent / finding.plan.spec.system).resolve()))
    if finding.name != path.stem:
        raise BadScenario(f"{path}: calls itself {finding.name!r}; the file's name is the finding's name")
    try:
        # A finding that was kept before there were kinds is the same finding still.
        return msgspec.structs.replace(finding, signature=str(finding.shows))
    except ValueError as problem:
        raise BadScenario(f"{path}: {problem}") from None


def add(finding: KnownFinding, folder: Path = FOLDER) -> Path:
    """Write a new finding; never over another one."""
    if not NAME.fullmatch(finding.name):
        raise BadScenario(f"finding name {finding.name!r}: small letters, digits and hyphens, at most 64")
    if finding.state == "fixed" and finding.plan.spec.mutants:
        raise BadScenario(f"{finding.name}: its plan switches {', '.join(finding.plan.spec.mutants)} on: --state known")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{finding.name}.json"
    if finding.plan.spec.system:
        finding = _with_system(finding, os.path.relpath(Path(finding.plan.spec.system).resolve(), folder.resolve()))
    content = msgspec.json.format(msgspec.json.encode(finding), indent=2) + b"\n"
    try:
        with path.open("xb") as file:
            file.write(content)
    except FileExistsError:
        raise BadScenario(f"{path}: there already; give another --name") from None
    return path


def _with_system(finding: KnownFinding, system: str) -> KnownFinding:
    return msgspec.structs.replace(finding, plan=with_system(finding.plan, system))


def of_plan(plan: Plan, *, name: str, about: str, signature: str, state: State, max_runs: int) -> KnownFinding:
    """Return a finding made of a plan, found with the code of now."""
    plan = plan if plan.spec.system else msgspec.structs.replace(plan, cluster=SIMULATED)
    return KnownFinding(
        name=name, about=about, signature=signature, state=state, max_runs=max_runs, commit=commit(), plan=plan
    )


class RealRuns(msgspec.Struct, frozen=True):
    """Who runs a plan on a described system's own nodes and judges it, and the folder that its runs' folders are made in."""

    conduct: Conduct
    out: Path


def rerun(
    findings: Iterable[KnownFinding],
    *,
    jobs: int,
    scratch: Path,
    real: RealRuns,
    notify: Callable[[Rerun], None] = lambda rerun: None,
) -> list[Rerun]:
    """Run findings again, one after the other, each over as many seeds or runs as it needs.

    Raises KeyboardInterrupt when somebody interrupts a real run.
    """
    results = []
    for finding in findings:
        is_real = bool(finding.plan.spec.system)
        results.append(_rerun_on_nodes(finding, real) if is_real else _rerun(finding, jobs, scratch / finding.name))
        notify(results[-1])
    return results


def _rerun_on_nodes(finding: KnownFinding, real: RealRuns) -> Rerun:
    """Run a plan of a described system until it shows the finding, or as often as it may. A folder stays where something was found."""
    began, attempts, reasons = time.monotonic(), list[Attempt](), list[str]()
    while len(attempts) < finding.max_runs and not any(one.shows for one in attempts):
        try:
            ended = ran(real.conduct, on_kind(finding.plan, finding.plan.cluster), real.out)
        except (ClusterError, BadScenario) as problem:  # also where its software is not installed
            reasons.append(str(problem))
            break
        attempts.append(attempt_of(*ended, [finding.shows]))
        if not attempts[-1].signatures:
            let_go(ended[0])
    shows = [one for one in attempts if one.shows]
    is_answered = any(one.verdict not in WITHOUT_ANSWER for one in attempts)
    return Rerun(
        name=finding.name,
        about=finding.about,
        signature=finding.signature,
        outcome=_outcome(finding.state, shown=bool(shows)) if is_answered else "error",
        runs=len(attempts),
        max_runs=finding.max_runs,
        seconds=round(time.monotonic() - began, 1),
        others=sorted({one for attempt in attempts for one in attempt.signatures} - {finding.signature}),
        run_dir=shows[0].run_dir if shows else "",
        reasons=reasons if reasons or is_answered else sorted({one for attempt in attempts for one in attempt.reasons}),
    )


def _rerun(finding: KnownFinding, jobs: int, scratch: Path) -> Rerun:
    shown: list[SeedResult] = []

    def plans() -> "Iterable[Plan]":
        for number in range(finding.max_runs):
            if shown:
                return
            yield msgspec.structs.replace(finding.plan, seed=finding.plan.seed + number)

    def notify(result: SeedResult, _: Sweep) -> None:
        if finding.shows in result.signatures:
            shown.append(result)

    account = swept(plans(), jobs=jobs, budget_s=None, scratch=scratch, notify=notify)
    # What broke says nothing of the system under test; where nothing was shown either, the outcome says it.
    other = texts(sorted({name for name in account.findings if name != finding.shows and not name.is_failure}))
    broken = account.verdicts[Verdict.ERROR.value] > 0 and not shown
    return Rerun(
        name=finding.name,
        about=finding.about,
        signature=finding.signature,
        outcome="error" if broken else _outcome(finding.state, shown=bool(shown)),
        runs=len(account.results),
        max_runs=finding.max_runs,
        seconds=round(sum(result.wall_ms for result in account.results) / 1000, 1),
        # With a known bug switched on, whatever else it does is no news.
        others=[] if finding.plan.spec.mutants else other,
        run_dir=shown[0].run_dir if shown else "",
    )


def _outcome(state: State, *, shown: bool) -> Outcome:
    if state == "fixed":
        return "regressed" if shown else "stays fixed"
    return "reproduced" if shown else "gone"
