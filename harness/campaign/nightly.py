"""A night in a fixed time: past findings first, canaries that must stay red, sweeps by weight, then real nodes.

What it runs is one YAML file (`tribunal.harness.campaign.night_file`). Shards split everything evenly and see different seeds.
Nothing is tried again until it is green: a repeat is data. Its files say that it is under way from its first moment on, so
that a night that is killed has said so; with what they say another process can go on where it was.
"""

import itertools
import math
import shlex
import shutil
import time
from calendar import timegm
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tribunal.clusters.api import ClusterError
from tribunal.clusters.simulated.guards import Guards, counted, known_guards
from tribunal.clusters.spec import MODES, Mode
from tribunal.harness.campaign.artefacts import in_turn, within
from tribunal.harness.campaign.calibrate import Options, measure, missed
from tribunal.harness.campaign.findings import RealRuns, Rerun, all_findings, rerun
from tribunal.harness.campaign.mutation_score import power
from tribunal.harness.campaign.night_file import Config, KnownIssues, RealRun, own_names, read_known
from tribunal.harness.campaign.night_findings import Announcement, FindingsOfNight, NotAnnounced, Seen
from tribunal.harness.campaign.night_search import begun, came_to, search_for
from tribunal.harness.campaign.runners import LocalRunner, SayingRunner
from tribunal.harness.campaign.search import PLAN, Ran, Searched, keep
from tribunal.harness.campaign.sweep import Keeper, SeedResult, Sweep, guards_table, swept
from tribunal.harness.campaign.system_power import Sought
from tribunal.harness.campaign.system_power import power as power_of_system
from tribunal.harness.campaign.system_power import read as read_bugs
from tribunal.harness.catalog import SIMULATED, mutant_named, scenario_file, scenarios
from tribunal.harness.fault_journal import has_journal
from tribunal.harness.plan import Plan, chance, made, read_plan
from tribunal.harness.progress import Silent
from tribunal.harness.run import commit, lock_sha256
from tribunal.harness.scenario import BadScenario, Scenario
from tribunal.harness.scenario import load as load_scenario
from tribunal.harness.simulated import conduct_simulated
from tribunal.results.guards import DamagedTable, Place, Table, cold
from tribunal.results.guards import added as added_tables
from tribunal.results.guards import read as read_guards
from tribunal.results.guards import write as write_guards
from tribunal.results.night import (
    Canary,
    Confirmation,
    FoundState,
    Guided,
    Night,
    NightState,
    Once,
    Past,
    Swept,
    bound_of,
    compared,
    least_runs,
)
from tribunal.results.night_files import POWER, announced, forget, note_announced, save
from tribunal.results.night_merge import continued
from tribunal.results.power import Power, brought_up_to_date
from tribunal.results.power import write as write_power
from tribunal.results.recording import DamagedRecording
from tribunal.results.report.index import write as write_index
from tribunal.results.scratch import Scratch
from tribunal.results.sensitivity import Figure, Sensitivity, added
from tribunal.results.signature import texts, without_numbers
from tribunal.results.verdict import RunVerdict, Verdict
from tribunal.results.verdict import counted as counted_words

if TYPE_CHECKING:
    from tribunal.harness.cli.session import Judged

SEEDS_A_NIGHT: Final = 1_000_000
PASSES_KEPT: Final = 100  # one passing run on real nodes of so many is kept
CANARY_S: Final = 30  # a canary gets no less, however short the night: a miss for want of time says nothing
MS: Final = 1_000
MB: Final = 1_000_000
SAVED_EVERY_S: Final = 10


class Shard(msgspec.Struct, frozen=True):
    """Part `index` of `count`, from 1."""

    index: int
    count: int

    def has(self, number: int) -> bool:
        """Return whether the item of this number belongs to this shard."""
        return number % self.count == self.index - 1

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What the night may use: its time in seconds, its part of all, its seeds and processes."""

    budget_s: float
    shard: Shard
    first_seed: int
    jobs: int


def _once(plan: Plan, verdict: str = "") -> Once:
    return Once(scenario=plan.scenario, mode=plan.mode, seed=plan.seed, verdict=verdict)


def moment(at_ns: int) -> str:
    """Return when a night began, in UTC: to the millisecond, for by that it is known from others of its name."""
    seconds, ns = divmod(at_ns, 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{ns // 1_000_000:03}Z"


def first_seed_of(date: time.struct_time) -> int:
    """Return the first seed of the night of a date (UTC): every night sees others, the same night the same."""
    return timegm(date) // 86_400 * SEEDS_A_NIGHT


class Folders(msgspec.Struct, frozen=True, kw_only=True):
    """Where paths in the nightly file start from, what is written to, and a folder for runs that find nothing."""

    base: Path
    out: Path
    scratch: Path


class Outside(msgspec.Struct, frozen=True, kw_only=True):
    """What the night has others do.

    conduct:  runs a plan on real nodes and judges it, in a new folder below the one given (`tribunal.harness.cli.session.conduct`).
    notify:   says a line.
    news:     is called with each new signature.
    tables:   writes the night's tables.
    """

    conduct: "Callable[[Plan, Path], Judged | None]"
    notify: Callable[[str], None]
    news: Callable[[Announcement], None] = lambda news: None
    tables: Callable[[Night], None] = lambda night: None


class Earlier(msgspec.Struct, frozen=True, kw_only=True):
    """The last night, to compare with; and this night as far as it came before it was killed: what it had done is not done again.

    power:    what is known of bugs that were switched on: this night's canaries are put in their places.
    corpora:  the folder of the corpora that the last night's searches have left; None: there is none.
    """

    former: Night | None = None
    killed: Night | None = None
    power: tuple[Power, ...] = ()
    corpora: Path | None = None


class Nightly:
    """A night in progress."""

    def __init__(self, config: Config, *, terms: Terms, folders: Folders, outside: Outside, earlier: Earlier) -> None:
        self._config = config
        self._base, self._out, self._scratch = folders.base, folders.out, folders.scratch
        self._outside = outside
        self._notify = outside.notify
        self._former, self._killed = earlier.former, earlier.killed
        self._power = earlier.power
        self._corpora = earlier.corpora
        self._shard = terms.shard
        self._jobs = terms.jobs
        self._began = self._saved = time.monotonic()
        self._kept = [] if config.findings is None else all_findings(self._base / config.findings)
        self._list = None if config.canaries.bugs is None else self._base / config.canaries.bugs
        self._bugs = [] if self._list is None else read_bugs(self._list).bug
        known = (
            KnownIssues()
            if config.known is None
            else read_known(self._base / config.known, own_names(config, self._base))
        )
        self._scenarios: dict[str, Scenario] = {name: load_scenario(scenario_file(name), {}) for name in config.sweeps}
        self._given = {one.name: name for name, one in self._scenarios.items()}  # a file is found by its path alone
        self._counts = {one.name: Swept(scenario=one.name) for one in self._scenarios.values()}
        if len(self._counts) < len(self._scenarios):
            raise BadScenario("sweeps: two scenarios of one name: runs are named by scenario and seed")
        today = time.strftime("%Y-%m-%d", time.gmtime())
        self._errors: list[str] = []
        self._broken: dict[
            str, list[int]
        ] = {}  # what broke in sweeps, and the seeds: it says nothing of the system under test
        self._run_dirs: dict[str, list[str]] = {}
        self._guards: Table = Counter()  # of the parts that are done, and of the night before it was killed
        if self._killed is not None:
            try:
                self._guards = read_guards(self._out)
            except DamagedTable as problem:
                raise BadScenario(f"{problem}; without that file the night goes on, and counts anew") from None
        self._found = FindingsOfNight(
            kept=self._kept, issues=known.issues, today=today, former=self._former,
            announced=self._said_before(), news=self._announce,
        )  # fmt: skip
        self.night = Night(
            name=config.nightly,
            began=moment(time.time_ns()),
            commit=commit(),
            lock_sha256=lock_sha256(),
            shard=str(terms.shard),
            budget_s=terms.budget_s - (0 if self._killed is None else self._killed.seconds),
            first_seed=terms.first_seed,
            state=NightState.RUNNING,
            bound=config.bound,
            least_runs=math.ceil(least_runs(config.bound) / terms.shard.count),
            quarantine=[one for one in known.quarantine if today <= one.expires],
            left_out=[
                f"the quarantine of {one.scenario} has expired" for one in known.quarantine if one.expires < today
            ],
        )

    def run(self) -> Night:
        """Do all of it; what is known is saved again and again, so that a night that is cut off has said something."""
        config = self._config
        parts: dict[str, tuple[Callable[[], None], bool]] = {  # what does a part, and whether there is anything to do
            "past findings": (self._past, any(map(self._shard.has, range(len(self._kept))))),
            "canaries": (
                self._canaries,
                any(map(self._shard.has, range(len(config.canaries.mutants) + len(self._bugs)))),
            ),
            "every scenario": (self._every_scenario, config.every_scenario.share > 0),
            "search": (self._search, bool(config.search.scenarios)),
            "sweeps": (self._sweeps, bool(self._scenarios)),
            "sensitivity": (self._calibrate, config.calibrate.share > 0),
            "real nodes": (self._real, bool(config.confirm.runs)),
            "tables": (lambda: self._outside.tables(self._whole()), False),
        }
        if self._killed is None:
            forget(self._out)
        try:
            for name, (part, has_work) in parts.items():
                if self._killed is not None and name in self._killed.done:
                    continue
                self.night.under_way = name
                self._save()
                self._write_index()
                if has_work:
                    self._notify(f"begun        {name}, {max(0.0, self._left_s()):.0f} s are left")
                began = time.monotonic()
                part()
                self.night.part_seconds[name] = round(time.monotonic() - began, 1)
                self.night.done.append(name)
            self.night.state, self.night.under_way = NightState.ENDED, ""
            self._save()
            self._write_index()
        except KeyboardInterrupt:
            self._end_early(NightState.INTERRUPTED, "interrupted; what had ended by then is what this night says")
            raise
        except Exception as problem:  # the top of a night: whatever it is, the night says that it did not end
            self._end_early(NightState.FAILED, f"{type(problem).__name__}: {problem}")
            raise
        return self._whole()

    def _end_early(self, state: NightState, why: str) -> None:
        """Say in every file that the night did not end, also in those that had just said that it did."""
        self.night.state, self.night.under_way = state, self.night.under_way or "its last account"
        self._errors.append(why)
        self._save()
        self._write_index()

    def _save(self) -> None:
        """Write down what is known so far."""
        night = self.night
        night.seconds = round(time.monotonic() - self._began, 1)
        before = [] if self._killed is None else [one.run_dirs for one in self._killed.found]
        wanted = in_turn([*self._run_dirs.values(), *before])
        gone = within(self._out / "runs", int(self._config.artefacts_mb * MB), wanted)
        night.left_out = [*night.left_out, *gone]
        there = {name: [one for one in places if Path(one).is_dir()] for name, places in self._run_dirs.items()}
        night.found = self._found.found(night.began, there)
        broken = [f"{name} ({len(seeds)} runs, seeds {seeds[:3]})" for name, seeds in self._broken.items()]
        night.errors = [*self._errors, *broken]
        save(self._whole(), self._out)
        self._saved = time.monotonic()

    def _is_time_to_save(self) -> bool:
        return time.monotonic() - self._saved > SAVED_EVERY_S

    def _whole(self) -> Night:
        """Return the night with what it had done before it was killed."""
        whole = self.night if self._killed is None else continued(self._killed, self.night)
        if whole.has_ended and self._former is not None:
            compared(whole, self._former)
        return whole

    def _write_index(self) -> None:
        write_index(self._out, None if self._config.findings is None else self._base / self._config.findings)

    def _announce(self, signature: str, state: FoundState, seen: Seen) -> None:
        news = Announcement(
            night=self.night.name, began=self.night.began, shard=self.night.shard, commit=self.night.commit,
            signature=signature, state=state, scenario=seen.where or seen.scenario, seed=seen.seed, claim=seen.claim, again=seen.again,
            run_dir=seen.run_dir,
        )  # fmt: skip
        try:
            self._outside.news(news)
        except NotAnnounced as problem:
            self._errors.append(f"{signature} was not announced: {problem}")
        else:
            note_announced(self._out, signature)

    def _said_before(self) -> list[str]:
        """Return what this night announced before it was killed; its file may be ten seconds older than the last of it."""
        if self._killed is None:
            return []
        return [*(one.signature for one in self._killed.found if not one.is_known), *announced(self._out)]

    def _left_s(self) -> float:
        return self.night.budget_s - (time.monotonic() - self._began)

    def _reserved_s(self) -> float:
        """Return the time that is kept for real nodes."""
        return self.night.budget_s * self._config.confirm.share / 100 if self._config.confirm.runs else 0.0

    def _past(self) -> None:
        own = [finding for number, finding in enumerate(self._kept) if self._shard.has(number)]
        results = rerun(
            own,
            jobs=self._jobs,
            scratch=self._scratch / "findings",
            real=RealRuns(self._conducted, self._out / "runs"),
            notify=lambda one: self._notify(one.line()),
        )
        self.night.past = [self._rerun(result, finding.plan) for result, finding in zip(results, own, strict=True)]
        for result, finding in zip(results, own, strict=True):
            for signature in (*result.others, *([result.signature] if result.outcome == "regressed" else [])):
                again = f"tribunal findings run {result.name}"
                seen = Seen(
                    scenario=finding.plan.scenario, mode=finding.plan.mode, seed=finding.plan.seed, claim=result.about,
                    again=again,
                )  # fmt: skip
                self._found.announce_once(signature, seen)

    def _conducted(self, plan: Plan, out: Path) -> tuple[Path, RunVerdict] | None:
        judged = self._outside.conduct(plan, out)
        return None if judged is None else (judged.run_dir, judged.verdict)

    def _rerun(self, result: Rerun, plan: Plan) -> Past:
        """Return what a kept finding came to; what it found besides is no news where somebody has that in hand."""
        is_news = any(self._found.state(one, plan.scenario, plan.mode) != "known" for one in result.others)
        return Past(
            name=result.name, signature=result.signature, outcome=result.outcome, runs=result.runs,
            max_runs=result.max_runs, seconds=result.seconds, others=result.others,
            is_bad=result.outcome == "regressed" or is_news, is_lost=result.outcome in ("gone", "error"),
            reasons=result.reasons,
        )  # fmt: skip

    def _canaries(self) -> None:
        own, foreign = len(self._config.canaries.mutants), len(self._bugs)
        share_s = self.night.budget_s * self._config.canaries.share / 100 / max(1, own + foreign)
        measured = self._canaries_of_replog(own * share_s)
        if self._list is not None:
            measured += self._canaries_of_system(self._list, foreign * share_s)
        self.night.canaries = [
            Canary(
                mutant=one.mutant, scenario=one.scenario, found=one.found, seen_by=one.seen_by, seeds=one.seeds,
                seconds=one.seconds, note=one.note,
            )
            for one in measured
        ]  # fmt: skip

    def _say_canary(self, one: Power) -> None:
        fate = "found" if one.found else "MISSED" if one.seeds else "no seed ended"
        self._notify(f"canary       {one.mutant}: {fate} in {one.seconds} s")

    def _canaries_of_replog(self, budget_s: float) -> list[Power]:
        canaries = self._config.canaries
        own = [mutant_named(name) for number, name in enumerate(canaries.mutants) if self._shard.has(number)]
        if not own:
            if self._power:  # for the night after this one, which reads them beside this one's account
                write_power(self._out / POWER, self._power)
            return []
        seeds = range(self.night.first_seed, self.night.first_seed + SEEDS_A_NIGHT)
        runner = SayingRunner(self._jobs, lambda line: self._notify(f"canaries     {line}"), SAVED_EVERY_S)
        keeper = Keeper(self._out / "runs")
        results = power(
            own, scenario=None, seeds=seeds, budget_s=max(budget_s, CANARY_S * len(own)), runner=runner,
            scratch=self._scratch / "canaries", notify=self._say_canary,
            accuse=lambda one: self._see(one, keeper, f" --mode {one.mode}"),
        )  # fmt: skip
        measured = [one for one in results if one.found or one.seeds]
        write_power(self._out / POWER, brought_up_to_date(self._power, measured))
        return results

    def _canaries_of_system(self, path: Path, budget_s: float) -> list[Power]:
        """Seek the known bugs of a described system on its own nodes."""
        before = len(self._config.canaries.mutants)
        wanted = [bug for number, bug in enumerate(self._bugs, before) if self._shard.has(number)]

        def accuse(run_dir: Path, verdict: RunVerdict) -> None:
            plan = read_plan(run_dir / "plan.json")
            again = f"tribunal run --plan {shlex.quote(str(run_dir / 'plan.json'))}"
            self._see_real(plan, verdict, run_dir, again)

        how = Sought(
            seeds=range(self.night.first_seed, self.night.first_seed + SEEDS_A_NIGHT), budget_s=budget_s,
            conduct=self._conducted, out=self._out / "runs", notify=self._say_canary, accuse=accuse,
        )  # fmt: skip
        with Scratch("bugs") as copies:  # not in memory: programs that are built there have to run, and may be large
            return power_of_system(path.parent, read_bugs(path), wanted, how, copies)

    def _every_scenario(self) -> None:
        """Run every scenario once in every mode that it can do: weights leave most of them unseen for ever.

        The order is another one each night, so that it is not always the same ones that no time is left for.
        """
        if not self._config.every_scenario.share:
            return
        done = [] if self._killed is None else [str(one) for one in self._killed.once if one.verdict]
        plans = {
            (plan.scenario, plan.seed): plan
            for number, plan in enumerate(self._of_every_scenario())
            if self._shard.has(number) and str(_once(plan)) not in done
        }
        keeper, budget_s = Keeper(self._out / "runs"), self.night.budget_s * self._config.every_scenario.share / 100

        def notify(result: SeedResult, account: Sweep) -> None:
            plan = plans.pop((result.scenario, result.seed))
            self.night.once.append(_once(plan, result.verdict.value))
            self._see(result, keeper, f" --mode {plan.mode}")
            if self._is_time_to_save():
                self._note_guards(account, guards)
                self._save()

        account = Sweep()
        with counted() as guards:
            try:
                swept(
                    list(plans.values()), jobs=self._jobs, budget_s=min(budget_s, self._left_s() - self._reserved_s()),
                    scratch=self._scratch / "every", notify=notify, account=account, guards=guards, ends_in_time=True,
                )  # fmt: skip
            finally:
                self._guards = self._note_guards(account, guards)
        self.night.once += [_once(plan) for plan in plans.values()]
        self._notify(f"every one    {counted_words(self.night.once_verdicts)}, {len(plans)} not begun")

    def _of_every_scenario(self) -> Iterator[Plan]:
        """Yield a plan for each scenario and mode, a seed for each mode, in tonight's order."""
        names = sorted(scenarios())
        chance(self.night.first_seed, "every scenario").shuffle(names)
        for name, (number, mode) in itertools.product(names, enumerate(MODES)):
            if name in self._config.every_scenario.without.get(mode, ()):
                continue
            try:
                scenario = load_scenario(scenario_file(name), {"cluster.mode": mode})
                seed = self.night.first_seed + number
                yield made(scenario, seed=seed, cluster=SIMULATED, time_ms=None, mutants=())
            except BadScenario:  # it is of the other mode, or of other clusters
                continue

    def _search(self) -> None:
        """Search in each mode for an equal part of the time, on from the corpus that the last night has left."""
        for mode in self._config.search.modes if self._config.search.scenarios else ():
            self.night.guided.append(Guided(mode=mode, scenarios=list(self._config.search.scenarios)))
            self._search_in(mode)

    def _search_in(self, mode: Mode) -> None:
        wanted, keeper, account = self._config.search, Keeper(self._out / "runs"), Sweep()
        part_s = self.night.budget_s * wanted.share / 100 / len(wanted.modes)

        def notify(ran: Ran, searched: Searched) -> None:
            self._take_searched(ran, keeper)
            self.night.guided[-1] = came_to(self.night.guided[-1], searched, account)
            if self._is_time_to_save():
                self._notify(f"search       {mode}: {searched.runs} runs, {searched.new} new states")
                self._note_guards(account, guards)
                self._save()

        with counted() as guards:
            try:
                search_for(
                    wanted.loaded(mode),
                    begun(self._out, mode, str(self._shard), self._corpora, self.night.left_out.append),
                    seed=self.night.first_seed + self._shard.index - 1,
                    budget_s=max(1.0, min(part_s, self._left_s() - self._reserved_s())),
                    runner=LocalRunner(self._jobs, guards),
                    scratch=self._scratch / f"search-{mode}",
                    account=account,
                    notify=notify,
                )
            finally:
                self._guards = self._note_guards(account, guards)

    def _take_searched(self, ran: Ran, keeper: Keeper) -> None:
        """Keep and announce what a run of the search found; its own plan runs it again, no seed alone does."""
        place, scenario = keep(keeper, ran), ran.chosen.plan.scenario
        again = "" if place is None else f"tribunal run --plan {shlex.quote(str(place / PLAN))}"
        self._note(ran.result, keeper, place, scenario=scenario, where=f"search from {scenario}", again=again)

    def _sweeps(self) -> None:
        if not self._scenarios:
            if not self.night.guards_known:  # nothing was simulated that could have reached one: a table says that, too
                places = [Place(one.module, one.function, one.what) for one in known_guards()]
                write_guards(self._out, added_tables([self._guards, Counter(dict.fromkeys(places, 0))]))
            return
        reserved_s = self._reserved_s() + self.night.budget_s * self._config.calibrate.share / 100
        account, keeper = Sweep(), Keeper(self._out / "runs")

        def notify(result: SeedResult, account: Sweep) -> None:
            self._take(result, keeper)
            if self._is_time_to_save():
                self._notify(f"sweep        {len(account.results)} runs, {len(account.findings)} signatures")
                self._count(account)
                self._note_guards(account, guards)
                self._save()

        budget_s = max(1.0, self._left_s() - reserved_s)
        with counted() as guards:
            try:
                swept(
                    self.upcoming(), jobs=self._jobs, budget_s=budget_s, scratch=self._scratch / "sweep", notify=notify,
                    account=account, guards=guards, ends_in_time=True,
                )  # fmt: skip
            finally:
                self._count(account)
                self._guards = self._note_guards(account, guards)

    def _take(self, result: SeedResult, keeper: Keeper) -> None:
        """Count one seed, keep what it found, and announce what nobody knows of."""
        count = self._counts[result.scenario]
        count.runs += 1
        count.seconds = round(count.seconds + result.wall_ms / MS, 3)
        count.simulated_ms += result.simulated_ms
        count.verdicts[result.verdict.value] = count.verdicts.get(result.verdict.value, 0) + 1
        if result.verdict is Verdict.INCONCLUSIVE:
            why = without_numbers(result.reasons[0] if result.reasons else result.claim)
            count.reasons[why] = count.reasons.get(why, 0) + 1
        self._see(result, keeper)

    def _see(self, result: SeedResult, keeper: Keeper, options: str = "") -> None:
        """Keep what a seed found, and announce what nobody knows of."""
        place = keeper.keep(result)
        scenario = shlex.quote(self._given.get(result.scenario, result.scenario))
        again = f"tribunal run {scenario} --cluster simulated --seed {result.seed}{options}"
        self._note(result, keeper, place, scenario=result.scenario, where="", again=again)

    def _note(
        self, result: SeedResult, keeper: Keeper, place: Path | None, *, scenario: str, where: str, again: str
    ) -> None:
        for name, places in keeper.folders.items():
            self._run_dirs[str(name)] = list(dict.fromkeys([*self._run_dirs.get(str(name), []), *places]))
        seen = Seen(
            scenario=scenario, where=where, mode=result.mode, seed=result.seed, claim=result.claim, again=again,
            run_dir="" if place is None else str(place),
        )  # fmt: skip
        for signature in result.signatures:
            if signature.is_failure:
                self._broken.setdefault(str(signature), []).append(result.seed)
            else:
                self._found.saw(str(signature), seen)

    def _note_guards(self, account: Sweep, guards: Guards) -> Table:
        """Write down which guards the night's runs have reached so far; return the table."""
        table = added_tables([self._guards, guards_table(account, guards)])
        self.night.guards_known, self.night.guards_cold = len(table), cold(table)
        write_guards(self._out, table)
        return table

    def _count(self, account: Sweep) -> None:
        """Write down what the sweeps have said so far."""
        for count in self._counts.values():
            count.bound_95 = bound_of(count.verdicts)
        self.night.swept = list(self._counts.values())
        self.night.probes = dict(sorted(account.probes.items()))
        self.night.cold = [name for name in self._config.probes if not account.probes[name]]

    def upcoming(self) -> Iterator[Plan]:
        """Yield the sweep's plans without end, always of the scenario that has had the least time for its weight."""
        before = {} if self._killed is None else {one.scenario: one.begun for one in self._killed.swept}
        while True:
            name = min(self._scenarios, key=lambda name: self._had_s(name) / self._config.sweeps[name])
            count = self._counts[self._scenarios[name].name]
            number = before.get(count.scenario, 0) + count.begun
            seed = self.night.first_seed + number * self._shard.count + self._shard.index - 1
            count.begun += 1
            yield made(self._scenarios[name], seed=seed, cluster=SIMULATED, time_ms=None, mutants=())

    def _had_s(self, name: str) -> float:
        """Return the time that a scenario has had, with what is under way at the mean of what has ended."""
        count = self._counts[self._scenarios[name].name]
        mean_s = count.seconds / count.runs if count.runs else 1.0
        return count.seconds + (count.begun - count.runs) * mean_s

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
        had = set() if self._killed is None else {one.number for one in self._killed.confirmations}
        for number, run in enumerate(wanted):
            if not self._shard.has(number) or number in had:
                continue
            if longest_s and self._left_s() < longest_s:
                self.night.left_out.append(
                    f"no time was left for {run.scenario} on {run.cluster}, seed {self.night.first_seed + number}"
                )
                continue
            began = time.monotonic()
            self.night.confirmations.append(self._confirmation(run, number))
            longest_s = max(longest_s, time.monotonic() - began)
            self._save()

    def _see_real(self, plan: Plan, verdict: RunVerdict, folder: Path, again: str) -> list[str]:
        """Take note of what a run on real nodes found; return its signatures."""
        signatures = texts(sorted({one.signature for one in verdict.violations}))
        for signature in signatures:
            self._run_dirs.setdefault(signature, []).append(str(folder))
            seen = Seen(
                scenario=plan.scenario,
                mode=plan.mode,
                where=f"{plan.scenario} on {plan.cluster}",
                seed=plan.seed,
                claim=verdict.claim,
                again=again,
                run_dir=str(folder),
            )
            self._found.saw(signature, seen)
        return signatures

    def _confirmation(self, run: RealRun, number: int) -> Confirmation:
        began, seed = time.monotonic(), self.night.first_seed + number
        scenario = load_scenario(scenario_file(run.scenario), {})
        given = shlex.quote(
            run.scenario
        )  # a file is found by its path alone; known issues and quarantines say its name
        self._notify(f"real nodes   {scenario.name} on {run.cluster}, seed {seed}")
        try:
            plan = made(scenario, seed=seed, cluster=run.cluster, time_ms=None, mutants=())
            judged = self._outside.conduct(plan, self._out / "runs")
        except (ClusterError, BadScenario) as problem:  # also a fault that this machine cannot do
            return Confirmation(
                scenario=scenario.name, cluster=run.cluster, seed=seed, verdict="ERROR", claim="could not be run",
                reasons=[str(problem)], seconds=round(time.monotonic() - began, 1), run_dir="", number=number,
            )  # fmt: skip
        if judged is None:
            raise KeyboardInterrupt
        verdict, folder = judged.verdict, judged.run_dir
        is_clean = verdict.verdict in (Verdict.PASS, Verdict.PERMITTED) and not has_journal(folder)
        if is_clean and seed % PASSES_KEPT:
            shutil.rmtree(folder)
        signatures = self._see_real(
            plan, verdict, folder, f"tribunal run {given} --cluster {run.cluster} --seed {seed}"
        )
        return Confirmation(
            scenario=scenario.name, cluster=run.cluster, seed=seed, verdict=verdict.verdict.value, claim=verdict.claim,
            reasons=list(verdict.reasons), seconds=round(time.monotonic() - began, 1),
            run_dir=str(folder) if folder.is_dir() else "", number=number, signatures=signatures,
        )  # fmt: skip
