"""Small worlds of one partition: what is found from the invariants alone, and its neighbours in which nothing is.

No scenario is written for what is found here: the tests name a setting of the world, and the search finds the way.
"""

import msgspec
import pytest

from tribunal.harness.explore.cores import Cores
from tribunal.harness.explore.engine import Bounds, Explored, explore
from tribunal.harness.explore.partition.broker import SmallBroker
from tribunal.harness.explore.partition.events import Settings
from tribunal.harness.explore.partition.world import PartitionWorld
from tribunal.harness.switches import switched_on

TWO_BROKERS = Settings(brokers=2, min_isr=2, records=1, kills=1, tails=1, fences=1, lates=0, late_fetches=False)


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
    found = explored(TWO_BROKERS, steps=12)

    assert found.counterexample is None
    assert found.states > 10_000
    assert found.depth == 12


def test_the_shortest_way_is_found_again_and_again() -> None:
    settings = msgspec.structs.replace(TWO_BROKERS, elr=False)

    first, second = explored(settings, steps=9), explored(settings, steps=9)

    assert first.counterexample == second.counterexample
    assert (first.states, first.levels) == (second.states, second.levels)
    assert first.counterexample is not None
    assert len(first.counterexample.steps) == len(first.levels) - 1  # nothing nearer to the start breaks


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
