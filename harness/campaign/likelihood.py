"""How likely a finding was from each moment of its run on: the run goes on from there with other chance, again and again.

Up to the moment everything is as it was; behind it network, disks and nodes draw from another seed, while load and faults stay
as planned. The share of runs that still show the finding is its likelihood at that moment. Half of the moments are spread
evenly over the run, the others halve, one by one, the step in which the likelihood changes most.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from tribunal.harness.campaign.runners import LocalRunner, Runner
from tribunal.harness.campaign.sweep import SeedResult, Sweep
from tribunal.harness.plan import DrawnAnew, Plan
from tribunal.results.likelihood import Likelihood, Moment
from tribunal.results.signature import Signature, gravity, texts
from tribunal.results.verdict import WITHOUT_ANSWER

LEAST_STEP_NS: Final = 1_000_000


class NotFound(Exception):
    """The run does not show the finding when it is run again; the message says what it shows."""


class Measured:
    """Measures one plan's likelihood.

    signature:  what has to be shown; None: the gravest that the plan itself shows.
    each:       how many runs go on from each moment.
    notify:     called with each moment that was measured, and how many there are by now.
    under_way:  called with how many moments were measured, and how many runs of the next one have ended, after each run.
    """

    def __init__(
        self,
        plan: Plan,
        scratch: Path,
        *,
        signature: Signature | None = None,
        each: int = 10,
        runner: Runner | None = None,
        notify: Callable[[Moment, int], None] = lambda moment, number: None,
        under_way: Callable[[int, int], None] = lambda moments, runs: None,
    ) -> None:
        self._plan = plan
        self._scratch = scratch
        self._each = each
        self._runner = runner or LocalRunner(1)
        self._notify = notify
        self._under_way = under_way
        self._signature = signature
        self._known: dict[int, Moment] = {}

    def likelihood(self, moments: int, end_ns: int) -> Likelihood:
        """Measure so many moments between the run's beginning and `end_ns`, its virtual time then."""
        signature = self._shown()
        first = max(2, (moments + 1) // 2)
        self._measure(signature, [end_ns * number // (first - 1) for number in range(first)])
        while len(self._known) < moments and (between := halved(list(self._known.values()))) is not None:
            self._measure(signature, [between])
        return Likelihood(
            signature=str(signature), end_ns=end_ns, each=self._each, moments=[self._known[at] for at in sorted(self._known)]
        )  # fmt: skip

    def _shown(self) -> Signature:
        (result,) = self._run([self._plan])
        signature = self._signature or min(result.signatures, key=gravity, default=None)
        if signature is None or signature not in result.signatures:
            raise NotFound(f"this plan shows {', '.join(texts(result.signatures)) or 'nothing'} when it is run again")
        return signature

    def _measure(self, signature: Signature, times: Iterable[int]) -> None:
        for at_ns in times:
            anew = (DrawnAnew(at_ns=at_ns, seed=seed) for seed in range(self._each))
            results = self._run(
                (msgspec.structs.replace(self._plan, drawn_anew=one) for one in anew),
                lambda _, account: self._under_way(len(self._known), len(account.results)),
            )
            answered = [result for result in results if result.verdict not in WITHOUT_ANSWER]
            shown = sum(signature in result.signatures for result in answered)
            self._known[at_ns] = moment = Moment(at_ns=at_ns, runs=len(answered), shown=shown)
            self._notify(moment, len(self._known))

    def _run(
        self, plans: Iterable[Plan], notify: Callable[[SeedResult, Sweep], None] = lambda result, account: None
    ) -> Sequence[SeedResult]:
        named = [
            msgspec.structs.replace(plan, scenario=f"{plan.scenario}.{number}") for number, plan in enumerate(plans)
        ]
        return self._runner.swept(named, budget_s=None, scratch=self._scratch, notify=notify).results


def halved(known: Sequence[Moment]) -> int | None:
    """Return the middle of the step in which the likelihood changes most, of equal ones the longest; None: all are too short."""
    steps = [
        (abs(after.share - before.share), after.at_ns - before.at_ns, before.at_ns)
        for before, after in pairwise(sorted(known, key=lambda moment: moment.at_ns))
        if after.at_ns - before.at_ns >= 2 * LEAST_STEP_NS
    ]
    if not steps:
        return None
    _, length, begin = max(steps)
    return begin + length // 2
