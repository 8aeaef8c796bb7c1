"""Runs that go on at once: of several that find something none is forgotten, and what is left of a plan is numbered as any plan."""

from pathlib import Path

from msgspec.structs import replace

from tribunal.harness.campaign.mutation_score import plan_of, sought
from tribunal.harness.campaign.shrink import Shrinker
from tribunal.harness.campaign.sweep import SeedResult, Sweep
from tribunal.results.signature import Signature
from tribunal.results.verdict import Verdict

EVERYWHERE = Signature("watermarks", "back")  # also without the bug
OF_BUG = Signature("lost_writes", "lost")


class AtOnce:
    """Runs as many plans at once as it is asked to, the last begun ends first; `found` says what a plan shows."""

    jobs = 2
    cpu_s = 0.0

    def __init__(self, found):
        self.found = found
        self.begun = []

    def swept(self, plans, *, budget_s, scratch, notify=lambda result, sweep: None, account=None, **_):
        sweep, waiting = Sweep() if account is None else account, iter(plans)
        while under_way := [plan for _ in range(self.jobs) if (plan := next(waiting, None)) is not None]:
            for plan in reversed(under_way):
                self.begun.append(plan)
                signatures = self.found(plan)
                verdict = Verdict.VIOLATION if signatures else Verdict.PASS
                result = SeedResult(
                    scenario=plan.scenario, seed=plan.seed, verdict=verdict, claim="", signatures=signatures
                )
                sweep.add(result)
                notify(result, sweep)
        return sweep


def test_of_two_runs_at_once_that_find_something_the_one_counts_that_the_other_does_not_explain():
    """The run of the later seed ended first, with what is found without the bug as well; that of the earlier one was forgotten."""

    def found(plan):
        is_first = plan.seed == 4 and plan.spec.mutants
        return [OF_BUG] if is_first else [EVERYWHERE] if plan.seed == 5 else []

    runner = AtOnce(found)
    power = sought("m44_acks_local", "produce-consume", range(4, 40), 60, runner, Path("unused"))

    assert (power.found, power.seed, power.what, power.seeds) == (True, 4, OF_BUG, 2)


def test_no_seed_is_run_again_behind_what_the_bug_did_not_do():
    runner = AtOnce(lambda plan: [EVERYWHERE] if plan.seed == 4 else [])
    power = sought("m44_acks_local", "produce-consume", range(4, 10), 60, runner, Path("unused"))

    assert not power.found
    assert power.seeds == 6
    assert sorted(plan.seed for plan in runner.begun if plan.spec.mutants) == [4, 5, 6, 7, 8, 9]


def test_a_plan_without_its_reserve_begins_with_fault_0_by_itself():
    """A varied plan has faults that need not be, anywhere among the others."""
    plan = plan_of("produce-consume", 1, ())
    first, second, third = (replace(plan.faults[number], meanwhile=number > 0) for number in range(3))
    varied = replace(plan, faults=(replace(first, must=False), second, third))

    def found(candidate):
        is_whole = candidate.spec == plan.spec and candidate.time_ms == plan.time_ms
        is_wanted = [fault.kind for fault in candidate.faults][-2:] == [second.kind, third.kind]
        return [OF_BUG] if is_whole and is_wanted and candidate.workload_plan == plan.workload_plan else []

    small = Shrinker(Path("unused"), runner=AtOnce(found), budget_s=60).shrink(varied).plan

    assert [(fault.index, fault.meanwhile, fault.origin) for fault in small.faults] == [(0, False, 1), (1, True, 2)]
