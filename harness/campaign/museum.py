"""The museum: known faults of released software shown where they were real, beside the release that mended them and our own log.

Every entry is run on four sides by one scenario and judged by one judge. Each side gets its first run before any gets its second;
rounds go on until every side has as many runs as were asked for, or the time is over. What is known is saved after each run.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tribunal.clusters.api import ClusterError
from tribunal.harness.campaign.museum_entries import NO_BREACH, Entry
from tribunal.harness.catalog import SIMULATED, mutant_named, nearest, scenario_file
from tribunal.harness.evidence.bundle import bundle, sha256_of
from tribunal.harness.plan import Plan, made
from tribunal.harness.run import commit, lock_sha256
from tribunal.harness.scenario import BadScenario, load
from tribunal.results.museum import SHOWS, Attempt, Evidence, Exhibit, Museum, Shown, Side, save
from tribunal.results.recording import DamagedRecording
from tribunal.results.verdict import RunVerdict, Verdict

RELEASED: Final = "apache-kafka"
PROFILE: Final = "jvm"  # time-outs of JVMs on a busy machine
RUNS: Final = "runs"
EVIDENCE: Final = "evidence"


class Guided(msgspec.Struct, frozen=True, kw_only=True):
    """One side of an entry, and what its runs are made of."""

    entry: Entry
    exhibit: Exhibit
    scenario: str
    cluster: str
    mutants: tuple[str, ...]
    overrides: dict[str, str]


class Tour:
    """A visit in progress.

    conduct:  runs a plan and judges it, in a new folder below the one given; None when interrupted.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        *,
        budget_s: float,
        runs: int,
        first_seed: int,
        out: Path,
        conduct: Callable[[Plan, Path], tuple[Path, RunVerdict] | None],
        notify: Callable[[str], None],
    ) -> None:
        self._runs = runs
        self._first_seed = first_seed
        self._out = out
        self._conduct = conduct
        self._notify = notify
        self._began = time.monotonic()
        self._longest_s: dict[str, float] = {}
        self.sides = [side for entry in entries for side in sides(entry)]
        self.museum = Museum(
            began=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            commit=commit(),
            lock_sha256=lock_sha256(),
            budget_s=budget_s,
            shown=[
                Shown(
                    name=entry.name, fault=entry.fault, proposal=entry.proposal, scenario=entry.scenario,
                    sign=entry.sign.words, story=entry.story,
                    exhibits=[one.exhibit for one in self.sides if one.entry is entry],
                )
                for entry in entries
            ],
        )  # fmt: skip

    def show(self) -> Museum:
        """Run every side; Ctrl-C ends it, and what is known stays."""
        for number in range(self._runs):
            for side in self.sides:
                if not self._is_time_for(side):
                    self._notify(f"no time left for {side.entry.name} on {side.exhibit.system}")
                    continue
                self._try(side, self._first_seed + number)
                self.museum.seconds = round(time.monotonic() - self._began, 1)
                save(self.museum, self._out)
        return self.museum

    def _is_time_for(self, side: Guided) -> bool:
        left_s = self.museum.budget_s - (time.monotonic() - self._began)
        return left_s > self._longest_s.get(side.cluster, 0.0)

    def _try(self, side: Guided, seed: int) -> None:
        began = time.monotonic()
        attempt = self._attempt(side, seed, began)
        self._longest_s[side.cluster] = max(self._longest_s.get(side.cluster, 0.0), attempt.seconds)
        side.exhibit.attempts.append(attempt)
        self._notify(f"{side.entry.name:<15} {side.exhibit.system:<22} seed {seed}  {attempt.line()}")
        wanted = side.exhibit.side in SHOWS
        if attempt.counts and attempt.shows == wanted and side.exhibit.evidence is None:
            run_dir = self._out / attempt.run_dir
            target = self._out / EVIDENCE / f"{run_dir.name}.zip"
            target.parent.mkdir(parents=True, exist_ok=True)
            bundle(run_dir, target)
            side.exhibit.evidence = Evidence(f"{EVIDENCE}/{target.name}", sha256_of(target))

    def _attempt(self, side: Guided, seed: int, began: float) -> Attempt:
        try:
            scenario = load(scenario_file(side.scenario), side.overrides)
            plan = made(scenario, seed=seed, cluster=side.cluster, time_ms=None, mutants=side.mutants)
            judged = self._conduct(plan, self._out / RUNS)
        except (ClusterError, BadScenario) as problem:  # no jars, no Java, a fault that this machine cannot do
            seconds = round(time.monotonic() - began, 1)
            return Attempt(
                seed=seed, verdict=Verdict.ERROR, shows=False, measured="", reasons=(str(problem),), seconds=seconds
            )
        if judged is None:
            raise KeyboardInterrupt
        run_dir, verdict = judged
        given, reasons = verdict.verdict, tuple(verdict.reasons)
        try:
            shows, measured = seen(side, run_dir, verdict)
        except DamagedRecording as problem:  # its run ended before there was one, or was cut off: the others go on
            shows, measured, given, reasons = False, "", Verdict.ERROR, (*reasons, str(problem))
        return Attempt(
            seed=seed,
            verdict=given,
            shows=shows,
            measured=measured,
            reasons=reasons,
            seconds=round(time.monotonic() - began, 1),
            run_dir=run_dir.relative_to(self._out).as_posix(),
        )


def seen(side: Guided, run_dir: Path, verdict: RunVerdict) -> tuple[bool, str]:
    """Return whether a run shows the fault, and what was measured.

    A known bug of ours is convicted by whatever is wrong first: a simulation stops at an invariant, or the judge sees the cause
    before anything is lost.
    """
    shows, measured = side.entry.sign.seen(run_dir, verdict)
    if side.exhibit.side is Side.MUTANT and verdict.violations and not shows:
        return True, verdict.claim
    return shows, measured


def sides(entry: Entry) -> Iterator[Guided]:
    """Yield an entry's sides: those that cost little first."""
    mutant = mutant_named(entry.mutant)
    yield _simulated(entry, Side.OURS, "replog", NO_BREACH, ())
    yield _simulated(entry, Side.MUTANT, f"replog with {entry.mutant}", _of_mutant(entry), (mutant,))
    yield _released(entry, Side.HAS, entry.has, entry.expected, entry.has_settings)
    if entry.has_not is not None:
        yield _released(entry, Side.HAS_NOT, entry.has_not, NO_BREACH, {})


def _of_mutant(entry: Entry) -> tuple[Verdict, ...]:
    """Return the verdict on our own log with the bug: its contract permits no loss."""
    return NO_BREACH if entry.expected == NO_BREACH else (Verdict.VIOLATION,)


def _simulated(
    entry: Entry, side: Side, system: str, expected: tuple[Verdict, ...], mutants: tuple[str, ...]
) -> Guided:
    words = [f"--mutant {one}" for one in mutants]
    return _guided(entry, Exhibit(side=side, system=system, expected=expected, again=""), SIMULATED, {}, mutants, words)


def _released(
    entry: Entry, side: Side, version: str, expected: tuple[Verdict, ...], settings: Mapping[str, str]
) -> Guided:
    overrides = {**entry.released, **settings, "cluster.profile": PROFILE, "cluster.version": version}
    words = [f"--set {name}={value}" for name, value in overrides.items()]
    system = f"Apache Kafka {version}" + (f" as {', '.join(settings.values())}" if settings else "")
    exhibit = Exhibit(side=side, system=system, expected=expected, again="")
    return _guided(entry, exhibit, RELEASED, overrides, (), words)


def _guided(
    entry: Entry,
    exhibit: Exhibit,
    cluster: str,
    overrides: dict[str, str],
    mutants: tuple[str, ...],
    words: Sequence[str],
) -> Guided:
    scenario = entry.scenario if cluster == RELEASED else entry.ours or entry.scenario
    exhibit.again = " ".join([f"tribunal run {scenario} --cluster {cluster}", *words])
    return Guided(
        entry=entry, exhibit=exhibit, scenario=scenario, cluster=cluster, mutants=mutants, overrides=overrides
    )


def chosen(entries: Sequence[Entry], only: Sequence[str]) -> list[Entry]:
    """Return the entries of these names in the museum's own order, all of them for none."""
    known = {entry.name.lower(): entry.name for entry in entries}
    for name in only:
        if name.lower() not in known:
            raise nearest("entry", name, [*known.values()])
    wanted = {name.lower() for name in only} or {*known}
    return [entry for entry in entries if entry.name.lower() in wanted]
