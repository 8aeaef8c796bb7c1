"""Guided search: runs that reach new abstract states are kept and varied, because what is near them was not reached either.

Runs go in rounds of `ROUND`. A round is chosen from the corpus as it is when the round begins, and accounted for in its own order when it
has ended, so that neither the number of processes nor where they run changes anything: the same seed, corpus, size of rounds and commit give the
same runs. A budget in time only decides where that sequence ends. (`tribunal.clusters.simulated.reached` says what a state is, `variations.py` how plans are made of plans.)
"""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import msgspec

from tribunal.clusters.simulated.reached import Reached
from tribunal.harness.campaign import successions
from tribunal.harness.campaign.corpus import Corpus, Entry
from tribunal.harness.campaign.crossings import Table, crossed_rows, is_crossable, planned
from tribunal.harness.campaign.pairs import Row
from tribunal.harness.campaign.runners import Runner
from tribunal.harness.campaign.sweep import Keeper, SeedResult, Sweep, run_name, states_file
from tribunal.harness.campaign.variations import Chosen, fresh, varied
from tribunal.harness.plan import Plan, encoded
from tribunal.harness.scenario import Scenario
from tribunal.results.unreadable import UNREADABLE

PLAN: Final = "plan.json"
ROUND: Final = 4
FIRST_RUNS: Final = 4  # from the scenarios alone, before anything is varied
CROSSED_FROM: Final = 16  # runs before are chosen as ever: what they find they find soon
CROSSING_SHARE: Final = 0.85  # of those behind, as long as pairs are left
SUCCESSION_WEIGHTS: Final = {"brokers": 3.0, "voters": 1.0}  # of their tables
CROSSING_WEIGHT: Final = 0.5  # of that of crossings: whom a message concerns is what questions ask
FOLLOWED_SHARE: Final = 0.1  # of the runs behind the first, as long as there is somebody to follow
FOLLOWED: Final = 2  # times: who came to a guard that no other run did is varied so often, however old it is
FRESH_SHARE: Final = 0.3
COMPOSED_SHARE: Final = 0.7  # of the plans made from scenarios
NEWEST: Final = 24  # entries that are varied: older ones have had their turns
EVENTS_LEAST: Final = 10_000  # what any run costs: to start, to elect, to read everything at the end
NOT_ENTERED: Final = 0.1  # of the weight: runs that never came to the code of the bug that is sought
IDLE_RUNS: Final = 60  # without anything new: say that the search is of no use any more


class Ran(NamedTuple):
    """A run of the search."""

    number: int
    chosen: Chosen
    result: SeedResult
    new: Sequence[str]


def keep(keeper: Keeper, ran: Ran) -> Path | None:
    """Keep a run if it shows something new enough, with the plan that shows it again, which no seed alone does; return its folder."""
    folder = keeper.keep(ran.result)
    if folder is not None:
        (folder / PLAN).write_bytes(encoded(ran.chosen.plan))
    return folder


class Searched(msgspec.Struct, kw_only=True):
    """What a search has come to.

    runs, new, states:  of this search, and all states that the corpus knows.
    crossed, pairs:     of the tables of crossings and successions: how many pairs came about, of how many; none where no scenario leaves its cluster to chance.
    guards:             of the nodes' code, that the corpus has come to; none where they are not counted.
    cpu_s:              of the runs, judging included.
    idle_runs:          how many runs ago the last new state was reached.
    """

    runs: int = 0
    new: int = 0
    states: int = 0
    crossed: int = 0
    pairs: int = 0
    guards: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    idle_runs: int = 0
    is_exhausted: bool = False

    @property
    def new_per_minute(self) -> float:
        """New states per minute of real time."""
        return 60 * self.new / self.seconds if self.seconds else 0.0


class Search:
    """A search over one corpus.

    round_size:  how many runs are chosen from the same corpus; another size gives other runs.
    notify:      is called with each run when its round has ended, and with those that had ended when a round was cut off.
    account:     takes the results of all runs.
    """

    def __init__(  # noqa: PLR0913 - what a search begins with
        self,
        scenarios: Sequence[Scenario],
        corpus: Corpus,
        *,
        seed: int,
        runner: Runner,
        scratch: Path,
        round_size: int = ROUND,
        mutants: tuple[str, ...] = (),
        notify: Callable[[Ran, Searched], None] = lambda ran, searched: None,
        account: Sweep | None = None,
    ) -> None:
        self.corpus = corpus
        self.account = Sweep() if account is None else account
        self._scenarios = scenarios
        self._seed = seed
        self._runner = runner
        self._round_size = round_size
        self._scratch = scratch
        self._mutants = mutants
        self._notify = notify
        self._crossable = [one for one in scenarios if is_crossable(one)]
        mode = (self._crossable or scenarios)[0].spec.mode
        self.table = Table(mode, corpus.tried, corpus.crossed)
        self._successions = successions.tables(mode, corpus.tried, corpus.crossed)
        self._rows: dict[int, list[Row]] = {}  # of the runs under way, by their numbers
        self.searched = Searched(
            states=len(corpus.known),
            crossed=len(corpus.crossed),
            guards=len(corpus.guards),
            pairs=sum(len(one.pairs) for one in (self.table, *self._successions)) if self._crossable else 0,
        )
        self._unasked: list[Ran] = []  # of the last round: whether they are found was not asked yet

    def run(
        self,
        *,
        runs: int | None = None,
        budget_s: float | None = None,
        cpu_budget_s: float | None = None,
        is_found: Callable[[Ran], bool] = lambda ran: False,
    ) -> Ran | None:
        """Search until the budget is used up, or until `is_found`; return the run that it was said of.

        Budgets are of this call. Whoever goes on after that is first asked of the other runs of that round.
        """
        began, cpu_before_s = time.monotonic(), self._runner.cpu_s
        while True:
            while self._unasked:
                ran = self._unasked.pop(0)
                if is_found(ran):
                    return ran
            left = self._round_size if runs is None else min(self._round_size, runs - self.searched.runs)
            is_late = budget_s is not None and time.monotonic() - began >= budget_s
            is_spent = cpu_budget_s is not None and self._runner.cpu_s - cpu_before_s >= cpu_budget_s
            if left <= 0 or is_late or is_spent:
                return None
            ended = self._round(left)
            self.searched.seconds = round(time.monotonic() - began, 1)
            self.searched.cpu_s = round(self._runner.cpu_s - cpu_before_s, 1)
            for ran in ended:
                self._notify(ran, self.searched)
            self._unasked = ended

    def _round(self, count: int) -> list[Ran]:
        first = self.corpus.runs
        chosen = [self._choice(first + index) for index in range(count)]
        named = [
            msgspec.structs.replace(one.plan, scenario=f"{one.plan.scenario}.{first + index}")
            for index, (_, one) in enumerate(chosen)
        ]
        before = len(self.account.results)
        try:
            self._runner.swept(named, budget_s=None, scratch=self._scratch, account=self.account, notes_states=True)
        except BaseException:  # Ctrl-C, or the cluster went away: what had ended by then found what it found
            numbers = {plan.scenario: index for index, plan in enumerate(named)}
            for result in self.account.results[before:]:
                index = numbers[result.scenario]
                self._notify(Ran(first + index, chosen[index][1], result, new=()), self.searched)
            raise
        by_name = {result.scenario: result for result in self.account.results[before:]}
        ended = [
            self._account_for(first + index, parent, one, by_name[plan.scenario], plan)
            for index, ((parent, one), plan) in enumerate(zip(chosen, named, strict=True))
        ]
        self.corpus.runs += count
        self.corpus.save()
        self.searched.runs += count
        self.searched.idle_runs = self.corpus.runs - 1 - self.corpus.last_new
        self.searched.is_exhausted = self.searched.idle_runs >= IDLE_RUNS
        self.searched.states = len(self.corpus.known)
        self.searched.crossed = len(self.corpus.crossed)
        self.searched.guards = len(self.corpus.guards)
        return ended

    def _choice(self, number: int) -> tuple[int | None, Chosen]:
        """Choose a run: from a scenario, or near an entry of the corpus, the newer the more often."""
        random = Random(f"{self._seed}/search/{number}")
        if number >= FIRST_RUNS and random.random() < FOLLOWED_SHARE and (alone := self._alone()):
            return self._varied(random.choices(alone, [self.corpus.rarity(entry) for entry in alone])[0], random)
        is_crossed = number >= CROSSED_FROM and self._crossable and random.random() < CROSSING_SHARE
        if is_crossed and (crossed := self._from_a_table(number, random)) is not None:
            return None, crossed
        entries = self.corpus.entries[-NEWEST:]
        if number < FIRST_RUNS or not entries or random.random() < FRESH_SHARE:
            scenario = self._scenario(number)
            composed = random.random() < COMPOSED_SHARE
            return None, fresh(scenario, random, self._mutants, composed=composed)
        weights = [self._weight(entry) for entry in entries]
        return self._varied(random.choices(entries, weights)[0], random)

    def _alone(self) -> list[Entry]:
        """Return the entries that came to a guard which no other run did, and were hardly varied."""
        known = self.corpus
        return [
            entry
            for entry in known.entries
            if known.chosen.get(entry.number, 0) < FOLLOWED and any(known.guards[name] == 1 for name in entry.guards)
        ]

    def _varied(self, parent: Entry, random: Random) -> tuple[int, Chosen]:
        self.corpus.chosen[parent.number] = self.corpus.chosen.get(parent.number, 0) + 1
        plan = msgspec.structs.replace(
            parent.plan, spec=msgspec.structs.replace(parent.plan.spec, mutants=self._mutants)
        )
        return parent.number, varied(plan, random, parent.requests)

    def _from_a_table(self, number: int, random: Random) -> Chosen | None:
        """Return a plan of rows of one of the tables that have pairs left, None where none has."""
        left = [one for one in self._successions if one.is_left()]
        weights = [SUCCESSION_WEIGHTS[one.name] for one in left]
        chosen = random.choices((None, *left), (CROSSING_WEIGHT * self.table.is_left(), *weights))[0] if left else None
        if chosen is not None:
            rows = chosen.rows(random)
            return successions.planned(self._crossable[0], rows, chosen, random, self._mutants)
        if not self.table.is_left():
            return None
        rows = self._rows[number] = self.table.rows(random)
        return planned(self._crossable[0], rows, self.table, random, self._mutants)

    def _scenario(self, number: int) -> Scenario:
        """Return the scenarios by turns; once each had its turn, only those in which the code of the bug that is sought was called."""
        entered = {one.plan.scenario for one in self.corpus.entries if one.entered} if self._mutants else set()
        promising = [one for one in self._scenarios if one.name in entered]
        wanted = promising if promising and number >= len(self._scenarios) else self._scenarios
        return wanted[number % len(wanted)]

    def _weight(self, entry: Entry) -> float:
        """Return how worthwhile it is to vary an entry: what it reached for what it cost, the less the more often it was varied."""
        varied_before = self.corpus.chosen.get(entry.number, 0)
        reached = math.sqrt(len(entry.new) or 1) * (1 + self.corpus.rarity(entry))
        worth = reached / (1 + varied_before) / max(entry.events, EVENTS_LEAST)
        return worth if entry.entered else worth * NOT_ENTERED

    def _account_for(self, number: int, parent: int | None, chosen: Chosen, result: SeedResult, plan: Plan) -> Ran:
        for row in crossed_rows(plan, self._rows.pop(number, []), result.crossed):
            self.table.took(row)
        reached = taken(states_file(self._scratch / run_name(plan)))
        new = [state for state in reached.states if state not in self.corpus.known]
        guards = self.corpus.came_to(result.guards)
        if new or guards:
            requests = {name.replace("_", "-"): count for name, count in sorted(reached.requests.items())}
            entry = Entry(
                number=number, parent=parent, how=chosen.how, plan=chosen.plan, new=new, requests=requests,
                events=result.event_count, entered=result.entered, guards=guards,
            )  # fmt: skip
            self.corpus.take(entry)
            self.searched.new += len(new)
        return Ran(number, chosen, result, new)


def taken(path: Path) -> Reached:
    """Read what a run has reached, and remove the file; nothing where it died before, or while it wrote."""
    nothing = Reached(states={}, requests={})
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return nothing
    path.unlink()
    try:
        return msgspec.json.decode(content, type=Reached)
    except UNREADABLE:
        return nothing
