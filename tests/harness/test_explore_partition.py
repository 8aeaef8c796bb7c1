"""Small worlds of one partition: what is found from the invariants alone, and its neighbours in which nothing is.

No scenario is written for what is found here: the tests name a setting of the world, and the search finds the way.
"""

import re
from pathlib import Path

import msgspec
import pytest

from tribunal.harness.campaign.sweep import swept
from tribunal.harness.explore.cores import Cores, grown
from tribunal.harness.explore.engine import explore
from tribunal.harness.explore.partition.broker import SmallBroker
from tribunal.harness.explore.partition.events import Settings
from tribunal.harness.explore.partition.world import PartitionWorld
from tribunal.harness.explore.written import write
from tribunal.harness.plan import made
from tribunal.harness.scenario import load
from tribunal.harness.switches import switched_on
from tribunal.results.explored import Bounds, Explored
from tribunal.results.verdict import Verdict

TWO_BROKERS = Settings(brokers=2, min_isr=2, records=1, kills=1, tails=1, fences=1, lates=0, late_fetches=False)

RAISED = Settings(brokers=2, min_isr=1, raised_min_isr=2, records=1, kills=1, tails=0, lates=1, late_fetches=False)


def explored(
    settings: Settings, *, steps: int, states: int = 100_000, only: tuple[str, ...] = (), mutants: tuple[str, ...] = ()
) -> Explored:
    with switched_on(mutants):
        bounds = Bounds(steps=steps, states=states, seconds=600)
        return explore(PartitionWorld(settings), bounds, name="partition", settings={}, only=only)


def test_without_elr_the_last_replica_standing_loses_what_both_had() -> None:
    """KIP-966, "Motivation": the last member of the ISR comes back without its tail and leads all the same."""
    found = explored(msgspec.structs.replace(TWO_BROKERS, elr=False), steps=9)

    assert found.counterexample is not None
    assert {broken.invariant for broken in found.counterexample.broken} == {"I9"}
    assert found.counterexample.steps[-1] == "broker 1 starts again and registers"
    assert "broker 1 loses power: what it had not synced is gone" in found.counterexample.steps


def test_with_elr_the_same_world_loses_nothing() -> None:
    found = explored(TWO_BROKERS, steps=9)

    assert found.counterexample is None
    assert found.states > 2_000
    assert found.depth == 9


def test_what_was_looked_at_wholly_is_the_depth() -> None:
    """Not what was begun: nobody may take the level at which a search ended for one that has nothing broken."""
    whole = explored(TWO_BROKERS, steps=3)
    cut_off = explored(TWO_BROKERS, steps=9, states=sum(whole.levels[:-1]) + 1)

    assert (whole.depth, len(whole.levels)) == (3, 4)
    assert cut_off.depth == 2
    assert explored(TWO_BROKERS, steps=9, states=1).depth == 0


def test_the_shortest_way_is_found_again_and_again() -> None:
    settings = msgspec.structs.replace(TWO_BROKERS, elr=False)

    first, second = explored(settings, steps=9), explored(settings, steps=9)

    assert first.counterexample == second.counterexample
    assert (first.states, first.levels) == (second.states, second.levels)
    assert first.counterexample is not None
    assert len(first.counterexample.steps) == len(first.levels) - 1  # nothing nearer to the start breaks


def test_a_raised_min_isr_that_the_leader_has_not_read_loses_records() -> None:
    """M88 is KIP-966 as written: what leaves an ISR below the new min ISR is eligible, while the leader commits by the old one."""
    found = explored(RAISED, steps=9, mutants=("m88_unannounced_min_isr",))

    assert found.counterexample is not None
    assert {broken.invariant for broken in found.counterexample.broken} == {"I8"}
    assert "the operator raises min.insync.replicas to 2" in found.counterexample.steps


def test_where_leaders_learn_of_it_a_raised_min_isr_loses_nothing() -> None:
    found = explored(RAISED, steps=8)

    assert found.counterexample is None
    assert found.states > 1_000


def test_a_counterexample_is_written_as_a_page_and_as_a_scenario(tmp_path: Path) -> None:
    found = explored(RAISED, steps=9, only=("I6",), mutants=("m88_unannounced_min_isr",))

    write(found, tmp_path)

    page = (tmp_path / "explored.html").read_text()
    assert "I6 is broken after 7 steps" in page
    assert "the operator raises min.insync.replicas to 2" in page
    assert not re.search(r"https?:|<script|src=", page)
    planned = load(tmp_path / "scenario.yaml", {})
    assert sorted(step.kind for step in planned.steps) == [
        "change-min-isr", "hold-messages", "hold-messages", "hold-messages", "kill",
    ]  # fmt: skip


@pytest.mark.nightly
def test_the_simulator_comes_to_the_counterexamples_end(tmp_path: Path) -> None:
    """From the invariant alone to a run: the scenario that was written convicts the known bug, and only that."""
    mutant = "m88_unannounced_min_isr"
    write(explored(RAISED, steps=9, only=("I6",), mutants=(mutant,)), tmp_path)
    scenario = load(tmp_path / "scenario.yaml", {})

    plans = [made(scenario, seed=1, cluster="simulated", time_ms=None, mutants=mutants) for mutants in ((mutant,), ())]
    results = [swept([plan], jobs=1, budget_s=None, scratch=tmp_path).results[0] for plan in plans]

    assert results[0].verdict is Verdict.VIOLATION
    assert results[1].verdict is not Verdict.VIOLATION


@pytest.mark.nightly
def test_with_elr_two_brokers_lose_nothing_however_long() -> None:
    found = explored(TWO_BROKERS, steps=60, states=1_000_000)

    assert found.counterexample is None
    assert found.is_whole


def test_two_cores_with_one_key_do_the_same() -> None:
    """A key that left something out would let one state stand for another."""
    brokers = Cores(SmallBroker.key)
    broker = SmallBroker(node=1, min_isr=1)

    number = brokers.number(broker)

    assert brokers.number(brokers.core(number)) == number
    assert brokers.core(number) is not brokers.core(number)


@pytest.mark.parametrize(
    ("shown", "committed"),
    [
        pytest.param("ab", "ab", id="as much"),
        pytest.param("abc", "abc", id="more"),
        pytest.param("a", "ab", id="less"),
        pytest.param("xbc", "ab", id="more, and other records"),
        pytest.param("x", "ab", id="less, and other records"),
    ],
)
def test_what_was_committed_stays_so(shown: str, committed: str) -> None:
    assert grown(tuple("ab"), tuple(shown)) == tuple(committed)
