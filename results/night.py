"""What a night of testing came to, as data: its parts, what it may call itself, and the exit code that follows.

A night is green only if it ended, found nothing new, and saw enough: each scenario so many runs with an answer that the
bound which the nightly file asks for holds. A night that was ended by a signal or an error is `running` in its files
until something says otherwise, so that `kill -9` cannot leave a green one behind.
"""

import math
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Literal

import msgspec

from tribunal.results.sensitivity import Sensitivity, fallen
from tribunal.results.verdict import answered

VERSION: Final = 1
MOST_NIGHTS: Final = 60
WHOLE: Final = "1/1"  # the shard of a night that is not shared out
CONFIDENCE: Final = 0.95
SIMULATED: Final = "simulated"
NOTHING_RUN: Final = "nothing was run that could have found anything"

FoundState = Literal["new", "known", "regressed", "expired"]
GRAVITY: Final[tuple[FoundState, ...]] = ("regressed", "new", "expired", "known")


class NightState(StrEnum):
    """How far a night came; `running` in the files of a night that nobody ended is one that was killed."""

    RUNNING = "running"
    ENDED = "ended"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """A past failure run again; `is_bad`: the code of now does something wrong, `is_lost`: it could not be shown; `reasons`: why nothing can be said."""

    name: str
    signature: str
    outcome: str
    runs: int
    max_runs: int
    seconds: float
    others: list[str]
    is_bad: bool
    is_lost: bool
    reasons: list[str] = []

    @property
    def words(self) -> str:
        """What it came to, and why, where that is known."""
        return ": ".join([self.outcome, *self.reasons[:1]])


class Canary(msgspec.Struct, frozen=True, kw_only=True):
    """A known bug switched on, which must be found."""

    mutant: str
    scenario: str
    found: bool
    seen_by: list[str]
    seeds: int
    seconds: float
    note: str

    @property
    def is_untried(self) -> bool:
        """Whether no seed of it ended in the time that it had: that says nothing of the harness."""
        return not self.found and not self.seeds

    @property
    def is_missed(self) -> bool:
        """Whether seeds with the bug ended, and none was found to be wrong."""
        return not self.found and bool(self.seeds)


class Swept(msgspec.Struct, kw_only=True):
    """What a scenario's seeds came to; `bound_95`: at most this share of runs has a violation, with 95 % confidence.

    begun:    how many of its seeds were begun, the first ones: a night that goes on begins behind them.
    reasons:  why runs were INCONCLUSIVE, without numbers, and how many of them said so.
    """

    scenario: str
    runs: int = 0
    begun: int = 0
    seconds: float = 0.0
    simulated_ms: int = 0
    verdicts: dict[str, int] = {}
    reasons: dict[str, int] = {}
    bound_95: float = 1.0


class Once(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario that was run once in a mode; verdict: empty where no time was left for it."""

    scenario: str
    mode: str
    seed: int
    verdict: str = ""

    def __str__(self) -> str:
        return f"{self.scenario} --mode {self.mode} --seed {self.seed}"


class Guided(msgspec.Struct, frozen=True, kw_only=True):
    """What the guided search of tonight came to in one mode.

    new:       states that no run of any night before had reached; states: all that its corpus knows now, of shards the most that one knows.
    seconds:   of the search; cpu_s: of its runs, judging included.
    bound_95:  at most this share of such runs has a violation, with 95 % confidence.
    """

    mode: str
    scenarios: list[str]
    runs: int = 0
    new: int = 0
    states: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    verdicts: dict[str, int] = {}
    bound_95: float = 1.0


class FoundTonight(msgspec.Struct, frozen=True, kw_only=True):
    """A signature that runs of tonight showed; `known_as` is the kept finding of that signature.

    owner, link, expires:  of the known issue that it is, in the file of known issues.
    since:                 when the first night in a row began that found it.
    """

    signature: str
    state: FoundState
    known_as: str
    count: int
    scenarios: list[str]
    seeds: list[int]
    claim: str
    run_dirs: list[str]
    again: str
    owner: str = ""
    link: str = ""
    expires: str = ""
    since: str = ""

    @property
    def is_known(self) -> bool:
        """Whether somebody has it in hand."""
        return self.state == "known"


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario on real nodes; `number` is its place among the planned runs, `signatures` what it found."""

    scenario: str
    cluster: str
    seed: int
    verdict: str
    claim: str
    reasons: list[str]
    seconds: float
    run_dir: str
    number: int = 0
    signatures: list[str] = []


class Confirmed(msgspec.Struct, frozen=True, kw_only=True):
    """How a night's runs of one scenario on one kind of real nodes ended."""

    scenario: str
    cluster: str
    verdicts: dict[str, int]

    @property
    def bound_95(self) -> float:
        """Up to which share of such runs may have a violation, with 95 % confidence."""
        return bound_of(self.verdicts)


class Quarantine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A scenario that may be INCONCLUSIVE in up to `rate` per cent of its runs on a kind of cluster, until a day."""

    scenario: str
    cluster: str = SIMULATED
    rate: float
    owner: str
    link: str = ""
    expires: str


class Unjudged(msgspec.Struct, frozen=True, kw_only=True):
    """How many of a scenario's runs were INCONCLUSIVE; `quarantine` when somebody has that in hand."""

    scenario: str
    cluster: str
    runs: int
    inconclusive: int
    quarantine: Quarantine | None = None

    @property
    def rate(self) -> float:
        """How many of hundred runs were INCONCLUSIVE."""
        return 100 * self.inconclusive / self.runs

    @property
    def is_too_many(self) -> bool:
        """Whether a night may not pass over it.

        In quarantine: when the true rate is above the stated one with 95 % confidence. Otherwise one run on real nodes is enough;
        simulated runs without an answer count for nothing in the bound, which says enough.
        """
        if self.quarantine is None:
            return self.cluster != SIMULATED and self.inconclusive > 0
        return 100 * lower_bound(self.runs, self.inconclusive) > self.quarantine.rate


class NightBefore(msgspec.Struct, frozen=True, kw_only=True):
    """A night before this one: what it called itself, and its figures."""

    began: str
    commit: str
    word: str
    figures: dict[str, float]


class Night(msgspec.Struct, kw_only=True):
    """A night; times in seconds, `began` in UTC (ISO 8601).

    state, under_way, done:  how far it came: the part that was under way when this was written, and those before it.
    part_seconds:  how long each part took.
    least_runs:  so many runs with an answer each scenario must have, for a bound of `bound` per cent. 0: none was asked for.
    cold:  probes that had to be reached and were not.
    sensitivity:  anomalies put into recordings of tonight; fallen: classes of which less was seen than the last night.
    guards_known, guards_cold:  how many places of the nodes' code refuse, raise or catch something, and which of them no run reached.
    left_out:  planned runs for which no time was left, and runs that were not kept because of their size.
    trend: figures beside the last night's: name -> [then, now]; before: the nights before, the oldest first.
    """

    night_version: int = VERSION
    name: str
    began: str
    commit: str
    lock_sha256: str
    shard: str
    budget_s: float
    first_seed: int
    state: NightState = NightState.ENDED
    under_way: str = ""
    done: list[str] = []
    part_seconds: dict[str, float] = {}
    bound: float = 100.0
    least_runs: int = 0
    seconds: float = 0.0
    past: list[Past] = []
    canaries: list[Canary] = []
    once: list[Once] = []
    swept: list[Swept] = []
    guided: list[Guided] = []
    found: list[FoundTonight] = []
    confirmations: list[Confirmation] = []
    quarantine: list[Quarantine] = []
    probes: dict[str, int] = {}
    cold: list[str] = []
    sensitivity: Sensitivity = msgspec.field(default_factory=Sensitivity)
    fallen: list[str] = []
    guards_known: int = 0
    guards_cold: list[str] = []
    errors: list[str] = []
    left_out: list[str] = []
    trend: dict[str, list[float]] = {}
    before: list[NightBefore] = []

    @property
    def runs(self) -> int:
        """How many simulated runs there were."""
        return sum(swept.runs for swept in self.swept)

    @property
    def verdicts(self) -> Counter[str]:
        """How many simulated runs got which verdict."""
        return Counter(
            verdict for swept in self.swept for verdict, count in swept.verdicts.items() for _ in range(count)
        )

    @property
    def once_verdicts(self) -> Counter[str]:
        """How many scenarios, each in a mode, came to which verdict when they were run once."""
        return Counter(one.verdict for one in self.once if one.verdict)

    @property
    def not_begun(self) -> list[Once]:
        """Which of them no time was left for."""
        return [one for one in self.once if not one.verdict]

    @property
    def simulated_hours(self) -> float:
        """How much virtual time the simulated clusters ran in all."""
        return sum(swept.simulated_ms for swept in self.swept) / 3_600_000

    @property
    def figures(self) -> dict[str, float]:
        """What can be compared with another night, whatever the budgets were."""
        sweep_s = sum(swept.seconds for swept in self.swept)
        found = {
            "runs per CPU minute": 60 * self.runs / sweep_s if sweep_s else 0.0,
            "simulated seconds per second": 3600 * self.simulated_hours / sweep_s if sweep_s else 0.0,
            "signatures found": float(len(self.found)),
            "canaries found": float(sum(one.found for one in self.canaries)),
            "seconds to a canary": max((one.seconds for one in self.canaries), default=0.0),
            "probes reached": float(len(self.probes)),
            "guards reached": float(self.guards_known - len(self.guards_cold)),
        }
        if searched_s := sum(one.seconds for one in self.guided):
            found["new states per minute of search"] = 60 * sum(one.new for one in self.guided) / searched_s
        if self.runs:
            found["INCONCLUSIVE, %"] = 100 * self.verdicts["INCONCLUSIVE"] / self.runs
        if self.sensitivity.total.injected:
            found["anomalies seen, %"] = 100 * self.sensitivity.total.share
        return {name: round(value, 2) for name, value in found.items()}

    @property
    def has_ended(self) -> bool:
        """Whether all that was planned was done, as far as time allowed."""
        return self.state is NightState.ENDED

    @property
    def is_red(self) -> bool:
        """Whether the system under test did something wrong that nobody knew of, or did again what was mended."""
        known = {one.signature for one in self.found if one.is_known}
        bad_confirmation = any(
            one.verdict == "VIOLATION" and not (one.signatures and known.issuperset(one.signatures))
            for one in self.confirmations
        )
        return any(not one.is_known for one in self.found) or any(one.is_bad for one in self.past) or bad_confirmation

    @property
    def harness_failures(self) -> list[str]:
        """What the harness itself failed to do: find what it must, reach what it must, judge what it ran."""
        found = [f"canary {one.mutant} was not found in {one.seeds} seeds" for one in self.canaries if one.is_missed]
        found += [f"finding {one.name}: {one.words}" for one in self.past if one.is_lost]
        found += [f"probe {name} was never reached" for name in self.cold]
        found += [f"the judge sees less of {line}" for line in self.fallen]
        found += [
            f"{one.scenario} on {one.cluster}: ERROR {'; '.join(one.reasons[:1])}"
            for one in self.confirmations
            if one.verdict == "ERROR"
        ]
        return found + self.errors

    @property
    def unjudged(self) -> list[Unjudged]:
        """What was INCONCLUSIVE, by scenario and kind of cluster."""
        counts: dict[tuple[str, str], list[int]] = {
            (one.scenario, SIMULATED): [one.runs, one.verdicts.get("INCONCLUSIVE", 0)] for one in self.swept
        }
        for real in self.on_real_nodes:
            count = counts.setdefault((real.scenario, real.cluster), [0, 0])
            count[0] += sum(real.verdicts.values())
            count[1] += real.verdicts.get("INCONCLUSIVE", 0)
        held = {(one.scenario, one.cluster): one for one in self.quarantine}
        return [
            Unjudged(
                scenario=scenario, cluster=cluster, runs=runs, inconclusive=number, quarantine=held.get((scenario, cluster))
            )
            for (scenario, cluster), (runs, number) in counts.items()
            if number
        ]  # fmt: skip

    @property
    def is_inconclusive(self) -> bool:
        """Whether more could not be judged than the night may pass over."""
        return any(one.is_too_many for one in self.unjudged)

    @property
    def on_real_nodes(self) -> list[Confirmed]:
        """The runs on real nodes, counted by scenario and kind of cluster, in the order of their first ones."""
        counts: dict[tuple[str, str], Counter[str]] = {}
        for one in self.confirmations:
            counts.setdefault((one.scenario, one.cluster), Counter())[one.verdict] += 1
        return [
            Confirmed(scenario=scenario, cluster=cluster, verdicts=dict(verdicts))
            for (scenario, cluster), verdicts in counts.items()
        ]

    @property
    def shortfalls(self) -> list[str]:
        """What lacks to be called green: scenarios with too few runs with an answer, canaries that no time was left for."""
        found = [line for one in self.swept if (line := self.shortfall(one))]
        if self.has_nothing_to_say:
            found.append(NOTHING_RUN)
        why = "no time was left for a seed"
        return found + [f"canary {one.mutant}: {one.note or why}" for one in self.canaries if one.is_untried]

    @property
    def has_nothing_to_say(self) -> bool:
        """Whether nothing of the system itself was run."""
        searched = any(one.runs for one in self.guided)
        return not (self.swept or self.past or self.once_verdicts or self.confirmations or searched)

    def shortfall(self, swept: Swept) -> str:
        """Say what a scenario lacks to be called green; nothing when it had enough runs, or makes the night red anyway."""
        had = answered(swept.verdicts)
        if had >= max(1, self.least_runs) or (self.is_red and swept.verdicts.get("VIOLATION")):
            return ""
        if not had:
            return f"{swept.scenario}: no run with an answer"
        return (
            f"{swept.scenario}: {had} runs with an answer, {self.least_runs} are needed for a bound of {self.bound:g} %"
        )

    @property
    def word(self) -> str:
        """What the night may be called, in a word or two; `green` only if it ended, found nothing new and saw enough."""
        if self.is_red:
            return "RED" if self.has_ended else "RED, and did not end"
        if not self.has_ended:
            return "did not end"
        if self.harness_failures:
            return "harness failure"
        if self.is_inconclusive:
            return "inconclusive"
        return "not enough seeds" if self.shortfalls else "green"

    @property
    def exit_code(self) -> int:
        """Return the exit code: a violation goes before a failure of the harness, that before what has no answer."""
        if self.is_red:
            return 1
        if self.harness_failures or not self.has_ended:
            return 3
        return 2 if self.is_inconclusive or self.shortfalls else 0


def compared(night: Night, last: Night) -> None:
    """Write down what is comparable of two nights, whatever their budgets were, and what is seen less of."""
    then = last.figures
    night.trend = {name: [then[name], value] for name, value in night.figures.items() if name in then}
    night.fallen = fallen(last.sensitivity.figures, night.sensitivity.figures)
    own = NightBefore(began=last.began, commit=last.commit, word=last.word, figures=then)
    night.before = [*last.before, own][-MOST_NIGHTS:]


def part_of_name(shard: str) -> str:
    """Return what a shard (`i/n`) adds to the name of what belongs to it; nothing where there is one alone."""
    return "" if shard == WHOLE else f"-{shard.replace('/', 'of')}"


def bound_of(verdicts: Mapping[str, int]) -> float:
    """Return the 95 % upper bound of the share of violations among runs with an answer, by how many came to which verdict."""
    return upper_bound(answered(verdicts), verdicts.get("VIOLATION", 0))


def upper_bound(runs: int, found: int) -> float:
    """Return the 95 % upper bound of the share of runs that find something (exact for none: the rule of three)."""
    if runs == 0:
        return 1.0
    if found == 0:
        return 1 - float((1 - CONFIDENCE) ** (1 / runs))
    from scipy.stats import beta

    return float(beta.ppf(CONFIDENCE, found + 1, max(runs - found, 1e-9)))


def lower_bound(runs: int, found: int) -> float:
    """Return the 95 % lower bound of that share."""
    if found == 0:
        return 0.0
    from scipy.stats import beta

    return float(beta.ppf(1 - CONFIDENCE, found, runs - found + 1))


def least_runs(bound: float) -> int:
    """Return how many runs without a violation hold a bound (per cent): the rule of three, exact."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(1 - bound / 100))
