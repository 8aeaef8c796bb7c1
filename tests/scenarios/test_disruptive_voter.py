"""Transcripts of the KIP-996 scenarios: what the members say to each other, to be read by people.

Each scenario's transcript is a file in `transcripts/`; with TRIBUNAL_WRITE_TRANSCRIPTS=1 the files are written anew
(look at the difference before you commit it). Fetches are left out unless they are refused or diverge.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from replog.quorum import events
from replog.types import NO_NODE
from tests.quorum.quorum_world import World

FOLDER = Path(__file__).parent / "transcripts"


def cut_off_follower(world: World) -> None:
    """A follower is cut off for ten seconds and comes back: no epoch grows, no vote is asked for."""
    leader = world.leader()
    follower = next(voter for voter in world.voters if voter != leader)
    world.isolate(follower)
    world.run(10_000)
    world.heal()
    world.run(3_000)

    assert world.leader() == leader
    assert world.standard_votes == 0


def cut_off_leader(world: World) -> None:
    """A leader is cut off with a record it cannot commit: the others elect, it steps down, truncates, follows."""
    old = world.leader()
    world.isolate(old)
    world.append("never committed")
    world.run(8_000)
    assert world.leader() not in (NO_NODE, old)
    world.append("committed")
    world.heal()
    world.run_until(world.agrees)

    assert "never committed" not in world.committed()


def one_link_cut(world: World) -> None:
    """Leader and one follower cannot talk, the third sees both: it refuses, leadership stays."""
    leader = world.leader()
    follower = next(voter for voter in world.voters if voter != leader)
    world.note(f"the link between {leader} and {follower} is cut")
    world.cut([leader], [follower])
    world.run(10_000)

    assert world.leader() == leader
    assert world.standard_votes == 0


def disk_loss(world: World) -> None:
    """The table "Disk Loss Scenario": the wiped voter may not make the lagging one leader (KIP-853)."""
    leader = world.leader()
    lagging, wiped = [voter for voter in world.voters if voter != leader]
    world.note(f"{lagging} lags behind")
    world.cut([lagging], [leader, wiped])
    world.append("committed by two")
    world.run(100)
    world.crash(wiped)
    world.wipe(wiped)
    world.crash(leader)
    world.heal()
    world.note(f"{wiped} starts with an empty disk")
    world.start(wiped)
    world.run(9_000)
    assert world.leader() == NO_NODE
    world.note(f"{leader} starts again")
    world.start(leader)
    world.run_until(world.agrees)

    assert all(world.lost(voter) == [] for voter in world.voters)


def hand_over(world: World) -> None:
    """A leader that resigns names its successors; the first of them starts at once."""
    member = world.members[world.leader()]
    world.deliver(member, events.ResignAsked(now_ms=world.now_ms))
    world.run_until(world.agrees)

    assert world.leader() != member.node_id


@pytest.mark.parametrize("scenario", [cut_off_follower, cut_off_leader, one_link_cut, disk_loss, hand_over])
def test_transcript(scenario: Callable[[World], None]) -> None:
    world = World(5)
    world.start()
    world.run_until(world.agrees)
    world.run(1_000)
    world.standard_votes = 0
    world.transcript = [f"# {(scenario.__doc__ or '').splitlines()[0]}", f"#   {world.describe()}"]

    scenario(world)

    world.transcript.append(f"#   {world.describe()}")
    written, path = "\n".join(world.transcript) + "\n", FOLDER / f"{scenario.__name__}.txt"
    if os.environ.get("TRIBUNAL_WRITE_TRANSCRIPTS"):
        FOLDER.mkdir(exist_ok=True)
        path.write_text(written)
    assert written == path.read_text()
