"""Whatever happens to a quorum: one vote an epoch, one leader an epoch, epochs never fall, the committed prefix agrees.

The world checks these after every event (`quorum_world.py`); the schedules here only make trouble. At the end the
network heals, every member runs, and the quorum must come together again with everything that was ever committed.
"""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replog.quorum import events
from tests.quorum.quorum_world import World

LIMIT_MS = 120_000

steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["append", "append", "run", "run long", "crash", "start", "cut", "isolate", "heal", "lossy", "resign"]
        ),
        st.integers(0, 4),
        st.integers(0, 4),
    ),
    max_size=40,
)


def crash(world: World, one: int, _: int) -> None:
    member = world.members[world.voters[one % len(world.voters)]]
    if member.core is not None:
        world.crash(member.node_id)


def start(world: World, one: int, _: int) -> None:
    member = world.members[world.voters[one % len(world.voters)]]
    if member.core is None:
        world.start(member.node_id)


def resign(world: World, one: int, _: int) -> None:
    member = world.members[world.voters[one % len(world.voters)]]
    if member.core is not None:
        world.deliver(member, events.ResignAsked(now_ms=world.now_ms))


def lossy(world: World, one: int, other: int) -> None:
    world.drop, world.duplicate = one / 10, other / 10


TROUBLE: dict[str, Callable[[World, int, int], object]] = {
    "append": lambda world, one, other: world.append(*[f"{world.events}.{index}" for index in range(one + 1)]),
    "run": lambda world, one, other: world.run(1 + one * 7 + other),
    "run long": lambda world, one, other: world.run(500 * one + 100 * other),
    "crash": crash,
    "start": start,
    "cut": lambda world, one, other: world.cut(
        [world.voters[one % len(world.voters)]], [world.voters[other % len(world.voters)]], both_ways=False
    ),
    "isolate": lambda world, one, other: world.isolate(world.voters[one % len(world.voters)]),
    "heal": lambda world, one, other: world.heal(),
    "lossy": lossy,
    "resign": resign,
}


def suffer(world: World, schedule: list[tuple[str, int, int]]) -> None:
    world.start()
    world.run(3000)
    for name, one, other in schedule:
        TROUBLE[name](world, one, other)
    world.heal()
    for voter in range(len(world.voters)):
        start(world, voter, 0)
    world.run_until(world.agrees, LIMIT_MS)


def must_hold(world: World) -> None:
    for member in world.alive():
        assert world.lost(member.node_id) == []


@settings(max_examples=60)
@given(st.integers(0, 2**16), steps)
def test_three_members_survive_any_schedule(seed: int, schedule: list[tuple[str, int, int]]) -> None:
    world = World(seed, voters=3, observers=1)

    suffer(world, schedule)

    must_hold(world)


@settings(max_examples=40)
@given(st.integers(0, 2**16), steps)
def test_five_members_survive_any_schedule(seed: int, schedule: list[tuple[str, int, int]]) -> None:
    world = World(seed, voters=5)

    suffer(world, schedule)

    must_hold(world)


@pytest.mark.parametrize("seed", range(20))
def test_long_chaos_keeps_what_was_committed(seed: int) -> None:
    world = World(seed, voters=3 + 2 * (seed % 2), directories=seed % 3 > 0)
    names = [*TROUBLE, "append", "append", "run", "run", "run long", "start", "start", "heal"]
    schedule = [(world.random.choice(names), world.random.randrange(5), world.random.randrange(5)) for _ in range(150)]

    suffer(world, schedule)

    must_hold(world)
