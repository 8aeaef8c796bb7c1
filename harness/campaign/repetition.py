"""Plans of systems that are not simulated: each is run again until a sequential test says how often it shows a finding.

Real time is not repeated by a seed, so one run that shows nothing says little, and one that shows the finding says nothing of the next.
Wald's sequential probability ratio test looks at the runs one by one and ends as soon as it may: after few runs where a plan
shows the finding nearly always or never.
"""

import math
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Final, Self

import msgspec

from tribunal.harness.campaign.confirm import Attempt, attempt_of
from tribunal.harness.campaign.sweep import SeedResult, Sweep
from tribunal.harness.fault_journal import has_journal, has_journals
from tribunal.harness.plan import Plan
from tribunal.harness.scenario import BadScenario
from tribunal.results.scratch import Scratch
from tribunal.results.signature import Signature
from tribunal.results.verdict import RunVerdict, Verdict

SELDOM: Final = 5  # a plan that shows the finding five times as seldom as is asked for is surely not wanted
UNDECIDED: Final = 10  # so many times the runs that a plan needs that never shows it; then it is undecided
SHARE: Final = 0.5
CONFIDENCE: Final = 0.9
SHARES: Final = (0.05, 0.95)
CONFIDENCES: Final = (0.8, 0.999)  # tests/harness/test_repetition.py counts that they hold

Conduct = Callable[[Plan, Path], tuple[Path, RunVerdict] | None]


def ran(conduct: Conduct, plan: Plan, out: Path) -> tuple[Path, RunVerdict]:
    """Run and judge one plan of many. Raises KeyboardInterrupt when somebody interrupts it."""
    ended = conduct(plan, out)
    if ended is None:
        raise KeyboardInterrupt
    return ended


def let_go(run_dir: Path) -> None:
    """Remove the folder of a run that found nothing, unless something is left to be healed."""
    if not has_journal(run_dir):
        shutil.rmtree(run_dir, ignore_errors=True)


@contextmanager
def folder_of_runs(purpose: str, notify: Callable[[str], None]) -> Iterator[Path]:
    """Give a folder for runs on real nodes, that is removed when they are over; not where one of them has left something to be healed."""
    scratch = Scratch(purpose, is_needed=has_journals)
    try:
        with scratch as folder:
            yield folder
    finally:
        if scratch.path.exists():
            notify(f"a run has left something behind: tribunal heal --out {quote(str(scratch.path))}")


class SequentialTest(msgspec.Struct, frozen=True, kw_only=True):
    """Decides between two shares of runs that show a finding: at least `share`, and at most a fifth of it.

    confidence:  how surely either answer is right where the share is one of these two; between them it may be either.
    source:      Wald, "Sequential Tests of Statistical Hypotheses" (1945).
    """

    share: float = SHARE
    confidence: float = CONFIDENCE

    @classmethod
    def of(cls, share: float, confidence: float) -> Self:
        """Return the test; `BadScenario` for what no test can be made of."""
        for name, value, (low, high) in (("share", share, SHARES), ("confidence", confidence, CONFIDENCES)):
            if not low <= value <= high:
                raise BadScenario(f"--{name} {value:g}: from {low:g} to {high:g}")
        return cls(share=share, confidence=confidence)

    @property
    def seldom(self) -> float:
        """The share that is surely too small."""
        return self.share / SELDOM

    @property
    def runs_max(self) -> int:
        """After how many runs a plan is given up as undecided."""
        never = math.ceil(self._bound / -self._weight(shows=False))
        return UNDECIDED * never

    @property
    def _bound(self) -> float:
        """What the ratio has to pass: with this bound, not with Wald's approximation, the confidence is never less than stated."""
        return -math.log(1 - self.confidence)

    def _weight(self, *, shows: bool) -> float:
        """What one run adds to the logarithm of the likelihood ratio."""
        return math.log(self.share / self.seldom if shows else (1 - self.share) / (1 - self.seldom))

    def decided(self, shown: int, runs: int) -> bool | None:
        """Return whether the plan shows it often enough; None: run it again."""
        ratio = shown * self._weight(shows=True) + (runs - shown) * self._weight(shows=False)
        if abs(ratio) < self._bound:
            return None if runs < self.runs_max else False
        return ratio > 0

    @property
    def words(self) -> str:
        """What is tested, for people."""
        return (
            f"sequential test (Wald): shown by at least {self.share:.0%} of runs, not by at most {self.seldom:.0%}; "
            f"either answer with {self.confidence:.0%} confidence, undecided after {self.runs_max} runs is no"
        )


class Repeated:
    """Runs each plan until the test has decided; implements `Runner`. One run at a time: real nodes share this machine.

    A run that does not show the finding counts as one that does not, whatever else it says; so does one that broke.
    """

    jobs = 1
    cpu_s = 0.0  # what nodes use is not counted

    def __init__(
        self,
        conduct: Conduct,
        sought: Signature,
        test: SequentialTest,
        notify: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.runs = 0
        self.sought = sought
        self._conduct = conduct
        self._test = test
        self._notify = notify

    @property
    def words(self) -> str:
        """What is tested, for people."""
        return self._test.words

    def swept(
        self,
        plans: Iterable[Plan],
        *,
        budget_s: float | None,
        scratch: Path,
        notify: Callable[[SeedResult, Sweep], None] = lambda result, sweep: None,
        account: Sweep | None = None,
        cut_at: float | None = None,
        notes_states: bool = False,
    ) -> Sweep:
        """Run plans as `tribunal.harness.campaign.sweep.swept` does; a result has the sought signature where the test says so.

        Raises KeyboardInterrupt when somebody interrupts a run.
        """
        ends = [time.monotonic() + budget_s] if budget_s is not None else []
        ends += [] if cut_at is None else [cut_at]
        sweep = Sweep() if account is None else account
        for plan in plans:
            result = self._result(plan, scratch, min(ends, default=math.inf))
            if result is None:
                break
            sweep.add(result)
            notify(result, sweep)
        return sweep

    def _result(self, plan: Plan, scratch: Path, end: float) -> SeedResult | None:
        """Run one plan to a decision; None: time was over before there was one."""
        began, attempts = time.monotonic(), list[Attempt]()
        decided = None
        while decided is None:
            if time.monotonic() >= end:
                return None
            attempts.append(self.attempt(plan, scratch))
            decided = self._test.decided(_shown(attempts), len(attempts))
        words = f"{_shown(attempts)} of {len(attempts)} runs show {self.sought}"
        self._notify(f"{'yes' if decided else 'no':<4} {words}")
        shows = [one for one in attempts if one.shows]
        return SeedResult(
            scenario=plan.scenario,
            seed=plan.seed,
            verdict=Verdict.VIOLATION if decided else attempts[-1].verdict,
            claim=words,
            signatures=[self.sought] if decided else [],
            reasons=[words],
            wall_ms=round(1000 * (time.monotonic() - began)),
            run_dir=(shows or attempts)[-1].run_dir,
        )

    def attempt(self, plan: Plan, scratch: Path) -> Attempt:
        """Run a plan once. Raises KeyboardInterrupt when somebody interrupts it."""
        ended = ran(self._conduct, plan, scratch)
        self.runs += 1
        attempt = attempt_of(*ended, [self.sought])
        if not attempt.shows:
            let_go(ended[0])
        return attempt


def _shown(attempts: Sequence[Attempt]) -> int:
    return sum(attempt.shows for attempt in attempts)
