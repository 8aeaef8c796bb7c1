"""Breadth first through a world: every state within the bounds once, invariants at each, the shortest way to the first that breaks.

A state is bytes: the numbers of its parts, packed. Kept for each are its bytes, the state it was first reached from and the
step between the two; so the way to any state can be outcome, and because the search is breadth first it is a shortest one.

No partial order reduction: it would have to know which events commute in the product's code, and be wrong once that changes.
What takes its place is `replog`'s own form: an event at one core leaves all others as they are, so its effect is worked out
once, however often it is interleaved anew (`cores.py`).
"""

import time
from array import array
from collections.abc import Callable, Collection, Iterator
from typing import Final, Protocol

import msgspec

State = bytes
NOWHERE: Final = -1


class Broken(msgspec.Struct, frozen=True, kw_only=True):
    """An invariant that does not hold in a state."""

    invariant: str  # its name in docs/invariants.md
    words: str


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What one part of the world looks like in a state, for readers."""

    part: str
    words: str


class World(Protocol):
    """A transition system made of cores."""

    def start(self) -> State:
        """Return the state that everything begins in."""

    def steps(self, state: State) -> Iterator[tuple[int, State]]:
        """Yield what may happen next: the step's number and the state after it. Steps that change nothing may be left out."""

    def broken(self, state: State) -> list[Broken]:
        """Return the invariants that do not hold."""

    def words(self, step: int) -> str:
        """Describe a step."""

    def rows(self, state: State) -> list[Row]:
        """Describe a state, part by part."""

    def sizes(self) -> dict[str, int]:
        """Return how many states of each core were met, and how many events of cores were worked out."""


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Where a search ends, whichever comes first."""

    steps: int
    states: int
    seconds: float


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a way: what happened and what the world looks like then."""

    step: str  # "" for the beginning
    rows: tuple[Row, ...]


class Counterexample(msgspec.Struct, frozen=True, kw_only=True):
    """A shortest way to a state in which an invariant does not hold."""

    broken: tuple[Broken, ...]
    way: tuple[Shown, ...]

    @property
    def steps(self) -> tuple[str, ...]:
        """What happened, in order."""
        return tuple(shown.step for shown in self.way[1:])


class Explored(msgspec.Struct, frozen=True, kw_only=True):
    """What a search did.

    depth:     all states that are at most so many steps from the start were visited, and their invariants looked at.
    is_whole:  there is no state beyond these: `depth` is the diameter as seen from the start.
    levels:    how many new states each number of steps brought.
    stopped:   what ended the search.
    """

    world: str
    settings: dict[str, str]
    mutants: tuple[str, ...]
    bounds: Bounds
    states: int
    steps_taken: int
    depth: int
    levels: tuple[int, ...]
    is_whole: bool
    stopped: str
    seconds: float
    sizes: dict[str, int]
    counterexample: Counterexample | None


class Search:
    """The states met so far and how they were reached."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.seen: dict[State, int] = {}
        self._came_from = array("q")
        self._by_step = array("q")
        self.steps_taken = 0

    def meet(self, state: State, came_from: int, by_step: int) -> bool:
        """Take note of a state; return whether it is new."""
        number = len(self.seen)
        if self.seen.setdefault(state, number) != number:
            return False
        self._came_from.append(came_from)
        self._by_step.append(by_step)
        return True

    def way_to(self, state: State) -> tuple[Shown, ...]:
        """Return a shortest way from the start, by taking its steps again."""
        steps: list[int] = []
        number = self.seen[state]
        while self._came_from[number] != NOWHERE:
            steps.append(self._by_step[number])
            number = self._came_from[number]
        here = self.world.start()
        way = [Shown(step="", rows=tuple(self.world.rows(here)))]
        for step in reversed(steps):
            here = next(after for taken, after in self.world.steps(here) if taken == step)
            way.append(Shown(step=self.world.words(step), rows=tuple(self.world.rows(here))))
        return tuple(way)


def explore(
    world: World,
    bounds: Bounds,
    *,
    name: str,
    settings: dict[str, str],
    mutants: tuple[str, ...] = (),
    only: Collection[str] = (),
    notify: Callable[[int, int, int], None] | None = None,
) -> Explored:
    """Search until something breaks, until a bound is reached, or until there is nothing left.

    only:    the invariants to look at; none named: all.
    notify:  called at the end of each level with steps, states, new states.
    """
    began_s = time.monotonic()
    search = Search(world)
    start = world.start()
    search.meet(start, NOWHERE, NOWHERE)
    frontier, levels, found = [start], [1], _broken(search, start, only)
    stopped = "an invariant is broken" if found else ""
    while frontier and not stopped and len(levels) <= bounds.steps:
        after: list[State] = []
        for state in frontier:
            number = search.seen[state]
            for step, reached in world.steps(state):
                search.steps_taken += 1
                if not search.meet(reached, number, step):
                    continue
                after.append(reached)
                found = _broken(search, reached, only)
                if found:
                    break
            stopped = _stopped(search, bounds, began_s, found=found is not None)
            if stopped:
                break
        frontier = after
        if after:
            levels.append(len(after))
            if notify is not None:
                notify(len(levels) - 1, len(search.seen), len(after))
    whole = not frontier and not stopped
    return Explored(
        world=name,
        settings=settings,
        mutants=mutants,
        bounds=bounds,
        states=len(search.seen),
        steps_taken=search.steps_taken,
        depth=len(levels) - 1 - bool(stopped),
        levels=tuple(levels),
        is_whole=whole,
        stopped=stopped or ("there are no more states" if whole else f"the bound of {bounds.steps} steps"),
        seconds=time.monotonic() - began_s,
        sizes=world.sizes(),
        counterexample=found,
    )


def _stopped(search: Search, bounds: Bounds, began_s: float, *, found: bool) -> str:
    if found:
        return "an invariant is broken"
    if len(search.seen) >= bounds.states:
        return f"the bound of {bounds.states} states"
    if time.monotonic() - began_s >= bounds.seconds:
        return f"the bound of {bounds.seconds:.0f} s"
    return ""


def _broken(search: Search, state: State, only: Collection[str]) -> Counterexample | None:
    broken = [one for one in search.world.broken(state) if not only or one.invariant in only]
    return Counterexample(broken=tuple(broken), way=search.way_to(state)) if broken else None
