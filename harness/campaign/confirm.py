"""Is a finding of the simulator one of real nodes too: its plan run again, several times, on a real kind of cluster.

Real time is not repeated by a seed: what comes back is a share, k of N runs, with its exact 95 % interval. A run shows the
finding when a checker says what it said of the simulated run. What only an invariant said, which looks into nodes and has no
eyes outside the simulator, is shown by any violation; the attempts say which. Where the simulated run stopped at an invariant, its
replicas' logs were compared in the midst of the faults: a real run goes on until they have caught up, so that is not sought either.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tribunal.harness.catalog import all_clusters, known_name
from tribunal.harness.plan import Plan, must_be_possible, must_see_messages, read_plan
from tribunal.harness.scenario import BadScenario
from tribunal.results.confirmation import Rate
from tribunal.results.intervals import interval
from tribunal.results.report.minimal import FILE as SMALL_PLAN
from tribunal.results.signature import RUN, Signature, texts
from tribunal.results.verdict import EXIT_ERROR, RunVerdict, Verdict, load
from tribunal.results.violation import Invariant

COMPARES_LOGS: Final = "replicas"  # the property that holds the replicas' final logs against each other


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One run on real nodes.

    signatures:  what its checkers found, as `property/kind`.
    reasons:     why there is no verdict, if there is none.
    """

    run_dir: str
    verdict: Verdict
    shows: bool
    signatures: list[str] = []
    reasons: list[str] = []

    def line(self) -> str:
        """Say it in a line."""
        found = ", ".join(self.signatures) or "; ".join(self.reasons[:2]) or "nothing"
        return f"{'shown' if self.shows else 'not shown':<10} {self.verdict.value:<12} {found}  {self.run_dir}"


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it.

    sought:    what the simulated run showed, as `property/kind`; empty: nothing that a real run can show alike, any violation counts.
    left_out:  what the simulated run showed besides and no real run can show alike (`signatures_of`), so nobody looked for it.
    shown:     runs that showed what is sought, of `runs`.
    interval:  exact (Clopper and Pearson) 95 % interval of the share.
    """

    plan: str
    cluster: str
    mutants: list[str]
    sought: list[str]
    runs: int
    shown: int
    interval: tuple[float, float]
    attempts: list[Attempt]
    left_out: list[str] = []

    @property
    def exit_code(self) -> int:
        """1: shown at least once; 0: never, in runs that were judged; 2, 3: nothing could be said."""
        if self.shown:
            return Verdict.VIOLATION.exit_code(strict=False)
        verdicts = [attempt.verdict for attempt in self.attempts]
        if any(verdict in (Verdict.PASS, Verdict.PERMITTED, Verdict.VIOLATION) for verdict in verdicts):
            return Verdict.PASS.exit_code(strict=False)
        return Verdict.INCONCLUSIVE.exit_code(strict=False) if Verdict.INCONCLUSIVE in verdicts else EXIT_ERROR

    @property
    def rate(self) -> Rate:
        """What stays beside the run."""
        return Rate(cluster=self.cluster, sought=tuple(self.sought), runs=self.runs, shown=self.shown)

    def line(self) -> str:
        """Say it in a line."""
        low, high = self.interval
        what = ", ".join(self.sought) or "any violation"
        besides = f"; not looked for: {', '.join(self.left_out)}" if self.left_out else ""
        return (
            f"{self.shown} of {self.runs} runs on {self.cluster} show {what}  (95 %: {low:.0%} to {high:.0%}){besides}"
        )


def confirmed(
    run: Path,
    cluster: str,
    count: int,
    conduct: Callable[[Plan], tuple[Path, RunVerdict] | None],
    notify: Callable[[Attempt], None] = lambda attempt: None,
) -> Confirmation | None:
    """Run a finding's plan on another kind of cluster; None when interrupted.

    run:      folder of the run that found something (its shrunk plan is preferred), or a plan.json.
    conduct:  runs and judges one plan; returns the run's folder and verdict, None when interrupted.
    Raises `BadScenario` when there is nothing to confirm or this kind cannot do what the plan asks for.
    """  # fmt: skip
    path = plan_of(run)
    plan, verdict = on_kind(read_plan(path), cluster), verdict_of(run)
    sought = signatures_of(verdict)
    attempts: list[Attempt] = []
    for _ in range(count):
        ended = conduct(plan)
        if ended is None:
            return None
        attempts.append(attempt_of(*ended, sought))
        notify(attempts[-1])
    shown = sum(attempt.shows for attempt in attempts)
    return Confirmation(
        plan=str(path), cluster=cluster, mutants=list(plan.spec.mutants), sought=texts(sought), runs=count, shown=shown,
        interval=interval(shown, count), attempts=attempts, left_out=texts(set_aside(verdict, sought)),
    )  # fmt: skip


def plan_of(run: Path) -> Path:
    """Return the plan to run: the shrunk one where there is one.

    Raises `BadScenario` where that is no smaller form of the run's own: what it shows says nothing of this run.
    """
    if not run.is_dir():
        return run
    small, own = run / SMALL_PLAN, run / "plan.json"
    if not small.is_file():
        return own
    if own.is_file() and not _is_smaller_form(read_plan(small), read_plan(own)):
        raise BadScenario(f"{small} is not of {own}: remove it, or make it anew (tribunal shrink {run})")
    return small


def _is_smaller_form(small: Plan, own: Plan) -> bool:
    """Whether a plan is what shrinking leaves of another one; what a described system did was never shrunk in the simulator."""
    was_counted_elsewhere = bool(own.spec.system) and small.cluster != own.cluster
    identities = [
        (plan.seed, plan.cluster_id, plan.workload, plan.spec.mutants, plan.spec.system) for plan in (small, own)
    ]
    surplus = Counter(fault.kind for fault in small.faults) - Counter(fault.kind for fault in own.faults)
    return identities[0] == identities[1] and not surplus and not was_counted_elsewhere


def on_kind(plan: Plan, cluster: str) -> Plan:
    """Return the plan for another kind of cluster; `BadScenario` when that kind cannot do it, before anything starts."""
    cluster = known_name("cluster", cluster, all_clusters())
    if all_clusters()[cluster].is_simulated:
        raise BadScenario("a simulated run is confirmed on real nodes: --cluster processes, containers, ssh")
    must_be_possible((planned.kind for planned in plan.faults), plan.spec, cluster)
    for planned in plan.faults:
        must_see_messages(planned.kind, planned.target.text, (planned.when, planned.until), cluster)
    return msgspec.structs.replace(plan, cluster=cluster)


def verdict_of(run: Path) -> RunVerdict:
    """Return the verdict of a run, or of a plan's folder. `BadScenario` when it found nothing at all."""
    folder = run if run.is_dir() else run.parent
    if not (folder / "verdict.json").is_file():
        raise BadScenario(f"{folder}: no verdict.json: what is to be confirmed? (tribunal check {folder})")
    verdict = load(folder / "verdict.json")
    if not verdict.violations:
        raise BadScenario(f"{folder}: found nothing, so there is nothing to confirm")
    return verdict


def signatures_of(verdict: RunVerdict) -> list[Signature]:
    """Return what real runs of a run's plan may show; empty: any violation."""
    found = found_by_checkers(verdict)
    return [one for one in found if one.property_name != COMPARES_LOGS] if _stopped_at_invariant(verdict) else found


def set_aside(verdict: RunVerdict, sought: Sequence[Signature]) -> list[Signature]:
    """Return what a run showed and nobody looks for in real runs of its plan."""
    return [one for one in verdict.signatures if one not in sought]


def _stopped_at_invariant(verdict: RunVerdict) -> bool:
    """Whether the run ended in the midst of its faults; what is expected of liveness is asked after the last one."""
    ended_early = any(failure.signature.property_name == RUN for failure in verdict.failures)
    return ended_early and any(one.invariant not in ("", Invariant.LIVENESS) for one in verdict.signatures)


def found_by_checkers(verdict: RunVerdict) -> list[Signature]:
    """Return the violations that checkers found, without the simulator's invariants."""
    return [one for one in verdict.signatures if not one.is_failure and not one.invariant]


def attempt_of(run_dir: Path, verdict: RunVerdict, sought: Sequence[Signature]) -> Attempt:
    """Say whether a run shows what is sought."""
    signatures = found_by_checkers(verdict)
    return Attempt(
        run_dir=str(run_dir),
        verdict=verdict.verdict,
        shows=any(signature in sought for signature in signatures) if sought else bool(signatures),
        signatures=texts(signatures),
        reasons=list(verdict.reasons),
    )
