"""Small worlds of the metadata quorum: a cluster that can never elect a leader again is found from that alone."""

import pytest

from replog.quorum.election import Election
from replog.quorum.roles import Follower
from tribunal.harness.explore.engine import explore
from tribunal.harness.explore.quorum.world import Append, QuorumWorld, Settings
from tribunal.results.explored import Bounds, Explored

JOINING = Settings(voters=2, observers=1, records=0, crashes=1, restarts=False)
THREE = Settings(voters=3, records=1, crashes=1)


def explored(settings: Settings, *, steps: int, states: int = 1_000_000) -> Explored:
    bounds = Bounds(steps=steps, states=states, seconds=600)
    return explore(QuorumWorld(settings), bounds, name="quorum", settings={})


@pytest.fixture
def _observers_never_doubt_their_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """KIP-996 as released: what an observer has fetched from its leader is held against every pre-vote for ever."""
    step = Election._step_follower

    def released(self: Election, role: Follower, now_ms: int) -> None:
        had_fetched = role.has_fetched
        step(self, role, now_ms)
        role.has_fetched = had_fetched

    monkeypatch.setattr(Election, "_step_follower", released)


@pytest.mark.usefixtures("_observers_never_doubt_their_leader")
def test_an_observer_that_is_a_voter_without_knowing_it_refuses_every_pre_vote() -> None:
    """KIP-853: the set in force at the next leader has a member that has not read it yet, and the leader is gone."""
    found = explored(JOINING, steps=6)

    assert found.counterexample is not None
    assert found.counterexample.broken[0].invariant == "liveness"
    assert found.counterexample.steps[0] == "the operator asks leader 101 to make controller 103 a voter"
    assert found.counterexample.steps[-1] == "controller 101 crashes"


def test_an_observer_whose_leader_fell_silent_lets_others_be_elected() -> None:
    found = explored(JOINING, steps=6)

    assert found.counterexample is None
    assert found.states > 1_000


def test_three_voters_agree_and_always_get_a_leader() -> None:
    found = explored(THREE, steps=5)

    assert found.counterexample is None
    assert found.states > 1_000


@pytest.mark.nightly
def test_three_voters_agree_whatever_crashes() -> None:
    found = explored(Settings(voters=3, records=1, crashes=2, ticks=8), steps=30, states=300_000)

    assert found.counterexample is None
    assert found.states >= 300_000


@pytest.mark.parametrize(
    ("by_others", "is_wrong"),
    [pytest.param("the same", False, id="what it has"), pytest.param("another", True, id="another record")],
)
def test_who_commits_more_than_others_had_must_have_what_they_had(by_others: str, is_wrong: bool) -> None:
    """Its longer log was taken for what had been committed, and nobody else was there to contradict it."""
    world = QuorumWorld(THREE)
    here = world._unpacked(world.start())
    (index,) = (index for index, number in enumerate(here.members) if world._look(number).leads)
    node = world._nodes[index]
    here = world._quiet(world._moved(here, index, Append(node, 1)))
    seen, tally = world._look(here.members[index]), world._tallies[here.tally]
    (first, content), *more = seen.log
    assert more
    assert len(tally.committed) > 1
    others = tally._replace(committed=((first, content if by_others == "the same" else by_others),))

    found = world.broken(world._packed(world._noted(world._tallied(here, others), node, seen)))

    assert {one.invariant for one in found} == ({"I1"} if is_wrong else set())
