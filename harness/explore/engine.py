"""Breadth first through a world: every state within the bounds once, invariants at each, the shortest way to the first that breaks.

A state is bytes: the numbers of its parts, packed. Kept for each are its bytes, the state it was first reached from and the
step between the two; so the way to any state can be outcome, and because the search is breadth first it is a shortest one.

No partial order reduction: it would have to know which events commute in the product's code, and be wrong once that changes.
What takes its place is `replog`'s own form: an event at one core leaves all others as they are, so its effect is worked out
once, however often it is interleaved anew (`cores.py`).
"""

import time
from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, Protocol

from tribunal.results.explored import Bounds, Broken, Counterexample, Explored, Row, Shown

State = bytes
NOWHERE: Final = -1


class World(Protocol):
    """A transition system made of cores."""

    @property
    def invariants(self) -> tuple[str, ...]:
        """The names of all that it can find broken."""

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

    def scenario(self, steps: Sequence[int], words: str) -> str | None:
        """Return a scenario that makes a cluster take these steps; None where none can say it."""

    def not_explored(self) -> list[str]:
        """Return what does not happen in this world, for readers of a result that found nothing."""

    def sizes(self) -> dict[str, int]:
        """Return how many states of each core were met, and how many events of cores were worked out."""


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

    def steps_to(self, state: State) -> list[int]:
        """Return the steps of a shortest way from the start."""
        steps: list[int] = []
        number = self.seen[state]
        while self._came_from[number] != NOWHERE:
            steps.append(self._by_step[number])
            number = self._came_from[number]
        return steps[::-1]

    def way(self, steps: Sequence[int]) -> tuple[Shown, ...]:
        """Return what the world looks like on a way, by taking its steps again."""
        here = self.world.start()
        way = [Shown(step="", rows=tuple(self.world.rows(here)))]
        for step in steps:
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
    frontier, levels, depth, found = [start], [1], 0, _broken(search, start, only)
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
        depth += bool(after) and not stopped
        if after:
            levels.append(len(after))
            if notify is not None:
                notify(len(levels) - 1, len(search.seen), len(after))
    whole = not frontier and not stopped
    return Explored(
        world=name,
        settings=settings,
        not_explored=tuple(world.not_explored()),
        mutants=mutants,
        bounds=bounds,
        states=len(search.seen),
        steps_taken=search.steps_taken,
        depth=depth,
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
    if not broken:
        return None
    steps = search.steps_to(state)
    words = f"{broken[0].invariant}: {broken[0].words}"
    return Counterexample(broken=tuple(broken), way=search.way(steps), scenario=search.world.scenario(steps, words))
