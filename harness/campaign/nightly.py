"""A night in a fixed time: past findings first, canaries that must stay red, sweeps by weight, then real nodes.

What it runs is one YAML file of at most 25 lines:

    nightly: my-log
    findings: tests/findings
    canaries: {mutants: [M01, M44], share: 20}      # per cent of the budget; each must be found
    sweeps: {rotating-swarm: 6, produce-consume: 1}  # weights of the time that is left
    calibrate: {share: 10}                          # anomalies put into recordings of tonight: how many are seen
    confirm: {share: 15, runs: [{scenario: produce-consume, cluster: containers, count: 1}]}
    probes: [elr_nonempty]                          # rare states that the sweeps must reach

Shards split everything evenly and see different seeds. Nothing is tried again until it is green: a repeat is data.
"""

import itertools
import shutil
import time
from calendar import timegm
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tribunal.checkers.calibration.api import classes
from tribunal.clusters.api import ClusterError
from tribunal.clusters.simulated.guards import Guards, counted
from tribunal.harness.campaign.calibrate import Options, measure, missed
from tribunal.harness.campaign.findings import KnownFinding, Rerun, all_findings, rerun
from tribunal.harness.campaign.mutation_score import power
from tribunal.harness.campaign.sweep import (
    Keeper,
    SeedResult,
    Sweep,
    cold_guards,
    swept,
    upper_bound,
    write_guards,
)
from tribunal.harness.catalog import SIMULATED, all_clusters, mutant_named, one_of, scenario_file
from tribunal.harness.plan import Plan, made
from tribunal.harness.progress import Silent
from tribunal.harness.run import commit, lock_sha256
from tribunal.harness.scenario import BadScenario, Scenario, read_yaml
from tribunal.harness.scenario import load as load_scenario
from tribunal.harness.simulated import conduct_simulated
from tribunal.results.night import Canary, Confirmation, FoundTonight, Night, Past, Swept, save
from tribunal.results.recording import DamagedRecording
from tribunal.results.sensitivity import Figure, Sensitivity, added
from tribunal.results.verdict import Verdict, answered

if TYPE_CHECKING:
    from tribunal.harness.cli.session import Judged

SEEDS_A_NIGHT: Final = 1_000_000
PASSES_KEPT: Final = 100  # one passing run on real nodes of so many is kept
CANARY_S: Final = 30  # a canary gets no less, however short the night: a miss for want of time says nothing
MS: Final = 1_000


class Canaries(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Known bugs that must be found, and per cent of the budget for all of them."""

    mutants: tuple[str, ...] = ()
    share: float = 20


class Calibrate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Anomalies put into recordings of tonight, so many of each class and recording, and per cent of the budget for all; no share: none."""

    share: float = 0
    per_class: int = 1
    classes: tuple[str, ...] = ()


class RealRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A scenario on a kind of real cluster, and how often."""

    scenario: str
    cluster: str
    count: int = 1


class Confirm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Runs on real nodes, and per cent of the budget that the sweeps leave for them."""

    runs: tuple[RealRun, ...] = ()
    share: float = 20


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A nightly file, as read."""

    nightly: str
    findings: str | None = None
    canaries: Canaries = Canaries()
    sweeps: dict[str, float]
    calibrate: Calibrate = Calibrate()
    confirm: Confirm = Confirm()
    probes: tuple[str, ...] = ()


class Shard(msgspec.Struct, frozen=True):
    """Part `index` of `count`, from 1."""

    index: int
    count: int

    def has(self, number: int) -> bool:
        """Return whether the item of this number belongs to this shard."""
        return number % self.count == self.index - 1

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def read_config(path: Path) -> Config:
    """Read and check a nightly file; `BadScenario` in one line says what is wrong with it."""
    try:
        config = msgspec.convert(read_yaml(path), Config)
    except msgspec.ValidationError as problem:
        raise BadScenario(f"{path}: {' '.join(str(problem).split())}") from None
    _check(config, path)
    return config


def _check(config: Config, path: Path) -> None:
    for name in (*config.sweeps, *(run.scenario for run in config.confirm.runs)):
        scenario_file(name)
    for mutant in config.canaries.mutants:
        mutant_named(mutant)
    for run in config.confirm.runs:
        one_of("cluster", run.cluster, all_clusters())
    if not config.sweeps or min(config.sweeps.values()) <= 0:
        raise BadScenario(f"{path}: sweeps: at least one scenario, each with a weight above 0")
    for name in config.calibrate.classes:
        one_of("class", name, classes())
    if not 0 <= config.canaries.share + config.calibrate.share + config.confirm.share < 100:
        raise BadScenario(f"{path}: the shares of canaries, calibrate and confirm leave nothing for the sweeps")


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What the night may use: its time in seconds, its part of all, its seeds and processes."""

    budget_s: float
    shard: Shard
    first_seed: int
    jobs: int


def first_seed_of(date: time.struct_time) -> int:
    """Return the first seed of the night of a date (UTC): every night sees others, the same night the same."""
    return timegm(date) // 86_400 * SEEDS_A_NIGHT


class Nightly:
    """A night in progress.

    base:     the folder that paths in the nightly file start from.
    scratch:  a folder for runs that find nothing.
    conduct:  runs a plan on real nodes and judges it, in a new folder below the one given (`tribunal.harness.cli.session.conduct`).
    """

    def __init__(
        self,
        config: Config,
        *,
        terms: Terms,
        base: Path,
        out: Path,
        scratch: Path,
        conduct: "Callable[[Plan, Path], Judged | None]",
        notify: Callable[[str], None],
    ) -> None:
        self._config = config
        self._base = base
        self._shard = terms.shard
        self._jobs = terms.jobs
        self._out = out
        self._scratch = scratch
        self._conduct = conduct
        self._notify = notify
        self._began = time.monotonic()
        self._kept_findings: list[KnownFinding] = []
        self._scenarios: dict[str, Scenario] = {name: load_scenario(scenario_file(name), {}) for name in config.sweeps}
        self._counts = {one.name: Swept(scenario=one.name) for one in self._scenarios.values()}
        if len(self._counts) < len(self._scenarios):
            raise BadScenario("sweeps: two scenarios of one name: runs are named by scenario and seed")
        self.night = Night(
            name=config.nightly,
            began=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            commit=commit(),
            lock_sha256=lock_sha256(),
            shard=str(terms.shard),
            budget_s=terms.budget_s,
            first_seed=terms.first_seed,
        )

    def run(self) -> Night:
        """Do all of it; what is known after each part is saved, so that a night that is cut off has said something."""
        for part in (self._past, self._canaries, self._sweeps, self._calibrate, self._real):
            try:
                part()
            except KeyboardInterrupt:
                self.night.errors.append("interrupted; what had ended by then is what this night says")
                raise
            finally:
                self.night.seconds = round(time.monotonic() - self._began, 1)
                save(self.night, self._out)
        return self.night

    def _left_s(self) -> float:
        return self.night.budget_s - (time.monotonic() - self._began)

    def _reserved_s(self) -> float:
        """Return the time that is kept for real nodes."""
        return self.night.budget_s * self._config.confirm.share / 100 if self._config.confirm.runs else 0.0

    def _past(self) -> None:
        if self._config.findings is None:
            return
        self._kept_findings = all_findings(self._base / self._config.findings)
        own = [finding for number, finding in enumerate(self._kept_findings) if self._shard.has(number)]
        results = rerun(
            own, jobs=self._jobs, scratch=self._scratch / "findings", notify=lambda one: self._notify(one.line())
        )
        self.night.past = [_past(result) for result in results]

    def _canaries(self) -> None:
        canaries = self._config.canaries
        own = [mutant_named(name) for number, name in enumerate(canaries.mutants) if self._shard.has(number)]
        if not own:
            return
        seeds = range(self.night.first_seed, self.night.first_seed + SEEDS_A_NIGHT)
        budget_s = max(self.night.budget_s * canaries.share / 100, CANARY_S * len(own))
        results = power(
            own, scenario=None, seeds=seeds, budget_s=budget_s, jobs=self._jobs, scratch=self._scratch / "canaries",
            notify=lambda one: self._notify(f"canary       {one.mutant}: {'found' if one.found else 'MISSED'} in {one.seconds} s"),
        )  # fmt: skip
        self.night.canaries = [
            Canary(
                mutant=one.mutant, scenario=one.scenario, found=one.found, seen_by=one.seen_by, seeds=one.seeds,
                seconds=one.seconds, note=one.note,
            )
            for one in results
        ]  # fmt: skip

    def _sweeps(self) -> None:
        counts = self._counts
        reserved_s = self._reserved_s() + self.night.budget_s * self._config.calibrate.share / 100
        said = time.monotonic()
        account, keeper = Sweep(), Keeper(self._out / "runs")

        def notify(result: SeedResult, account: Sweep) -> None:
            nonlocal said
            keeper.keep(result)
            count = counts[result.scenario]
            count.runs += 1
            count.seconds += result.wall_ms / MS
            count.simulated_ms += result.simulated_ms
            count.verdicts[result.verdict.value] = count.verdicts.get(result.verdict.value, 0) + 1
            if time.monotonic() - said > 10:
                said = time.monotonic()
                self._notify(f"sweep        {len(account.results)} runs, {len(account.findings)} signatures")

        budget_s = max(1.0, self._left_s() - reserved_s)
        with counted() as guards:
            try:
                swept(
                    self.upcoming(), jobs=self._jobs, budget_s=budget_s, scratch=self._scratch / "sweep", notify=notify,
                    account=account, guards=guards,
                )  # fmt: skip
            finally:
                self._count(account, keeper, guards)

    def _count(self, account: Sweep, keeper: Keeper, guards: Guards) -> None:
        """Write down what the sweeps have said so far."""
        for count in self._counts.values():
            count.seconds = round(count.seconds, 1)
            count.bound_95 = upper_bound(answered(count.verdicts), count.verdicts.get(Verdict.VIOLATION.value, 0))
        self.night.swept = list(self._counts.values())
        self.night.probes = dict(sorted(account.probes.items()))
        self.night.cold = [name for name in self._config.probes if not account.probes[name]]
        self.night.guards_known, self.night.guards_cold = len(guards.known), cold_guards(account, guards)
        write_guards(account, guards, self._out)
        self._found(account, keeper)

    def upcoming(self) -> Iterator[Plan]:
        """Yield the sweep's plans without end, always of the scenario that has had the least time for its weight."""
        begun = dict.fromkeys(self._config.sweeps, 0)
        while True:
            name = min(begun, key=lambda name: self._had_s(name, begun[name]) / self._config.sweeps[name])
            seed = self.night.first_seed + begun[name] * self._shard.count + self._shard.index - 1
            begun[name] += 1
            yield made(self._scenarios[name], seed=seed, cluster=SIMULATED, time_ms=None, mutants=())

    def _had_s(self, name: str, begun: int) -> float:
        """Return the time that a scenario has had, with what is under way at the mean of what has ended."""
        count = self._counts[self._scenarios[name].name]
        mean_s = count.seconds / count.runs if count.runs else 1.0
        return count.seconds + (begun - count.runs) * mean_s

    def _found(self, account: Sweep, keeper: Keeper) -> None:
        by_signature = {finding.shows: finding for finding in self._kept_findings}
        for signature, results in sorted(account.findings.items(), key=lambda item: -len(item[1])):
            if signature.is_failure:
                self.night.errors.append(
                    f"{signature} ({len(results)} runs, seeds {[one.seed for one in results[:3]]})"
                )
                continue
            kept = by_signature.get(signature)
            self.night.found.append(
                FoundTonight(
                    signature=str(signature),
                    state="new" if kept is None else "regressed" if kept.state == "fixed" else "known",
                    known_as="" if kept is None else kept.name,
                    count=len(results),
                    scenarios=sorted({one.scenario for one in results}),
                    seeds=[one.seed for one in results[:5]],
                    claim=results[0].claim,
                    run_dirs=keeper.folders.get(signature, []),
                    again=f"tribunal run {results[0].scenario} --cluster simulated --seed {results[0].seed}",
                )
            )

    def _calibrate(self) -> None:
        """Record the sweep's first seeds again and put anomalies into them: one run at least, and more while there is time for one more."""
        if not self._config.calibrate.share:
            return
        longest_s, figures, until_s = 0.0, dict[str, Figure](), self._reserved_s()
        for plan in self._each_in_turn():
            if longest_s and self._left_s() - until_s < longest_s:
                break
            began = time.monotonic()
            folder = self._scratch / "calibrate" / f"{plan.scenario}-{plan.seed}"
            folder.mkdir(parents=True)
            conduct_simulated(plan, folder, Silent())
            try:
                found = measure([folder], self._measured(), self._scratch / "copies")
            except DamagedRecording as problem:
                self._notify(f"calibrate    {plan.scenario}, seed {plan.seed}: {problem}")
            else:
                figures = added([figures, found.figures])
                misses = [*self.night.sensitivity.misses, *map(missed, found.misses)]
                runs = [*self.night.sensitivity.runs, f"{plan.scenario}, seed {plan.seed}"]
                self.night.sensitivity = Sensitivity(runs=runs, figures=figures, misses=misses)
                self._notify(f"calibrate    {runs[-1]}: {found.total.seen} of {found.total.injected} anomalies seen")
            shutil.rmtree(folder)
            longest_s = max(longest_s, time.monotonic() - began)

    def _each_in_turn(self) -> Iterator[Plan]:
        for number in itertools.count():
            for scenario in self._scenarios.values():
                seed = self.night.first_seed + number * self._shard.count + self._shard.index - 1
                yield made(scenario, seed=seed, cluster=SIMULATED, time_ms=None, mutants=())

    def _measured(self) -> Options:
        chosen = self._config.calibrate
        return Options(per_class=chosen.per_class, seed=self.night.first_seed, engine="inline", chosen=chosen.classes)

    def _real(self) -> None:
        """Run on real nodes, once at least, while there is time for one more as long as the longest so far.

        Sweeps end with their last seeds, not on the second: what was reserved must not be lost to that.
        """
        wanted = [run for run in self._config.confirm.runs for _ in range(run.count)]
        longest_s = 0.0
        for number, run in enumerate(wanted):
            if not self._shard.has(number):
                continue
            if longest_s and self._left_s() < longest_s:
                self._notify(f"no time left for {run.scenario} on {run.cluster}")
                break
            began = time.monotonic()
            self.night.confirmations.append(self._confirmation(run, self.night.first_seed + number))
            longest_s = max(longest_s, time.monotonic() - began)

    def _confirmation(self, run: RealRun, seed: int) -> Confirmation:
        began = time.monotonic()
        scenario = load_scenario(scenario_file(run.scenario), {})
        self._notify(f"real nodes   {run.scenario} on {run.cluster}, seed {seed}")
        try:
            plan = made(scenario, seed=seed, cluster=run.cluster, time_ms=None, mutants=())
            judged = self._conduct(plan, self._out / "runs")
        except (ClusterError, BadScenario) as problem:  # also a fault that this machine cannot do
            return Confirmation(
                scenario=run.scenario, cluster=run.cluster, seed=seed, verdict="ERROR", claim="could not be run",
                reasons=[str(problem)], seconds=round(time.monotonic() - began, 1), run_dir="",
            )  # fmt: skip
        if judged is None:
            raise KeyboardInterrupt
        verdict, folder = judged.verdict, judged.run_dir
        if verdict.verdict in (Verdict.PASS, Verdict.PERMITTED) and seed % PASSES_KEPT:
            shutil.rmtree(folder)
        return Confirmation(
            scenario=run.scenario, cluster=run.cluster, seed=seed, verdict=verdict.verdict.value, claim=verdict.claim,
            reasons=list(verdict.reasons), seconds=round(time.monotonic() - began, 1),
            run_dir=str(folder) if folder.is_dir() else "",
        )  # fmt: skip


def _past(result: Rerun) -> Past:
    return Past(
        name=result.name, signature=result.signature, outcome=result.outcome, runs=result.runs,
        max_runs=result.max_runs, seconds=result.seconds, others=result.others, is_bad=result.is_bad,
        is_lost=result.outcome in ("gone", "error"),
    )  # fmt: skip
