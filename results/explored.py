"""What the exhaustive exploration of a small world found: how far it went, and the shortest way to a broken invariant."""

import msgspec


class Broken(msgspec.Struct, frozen=True, kw_only=True):
    """An invariant that does not hold in a state."""

    invariant: str  # its name in docs/invariants.md
    words: str


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What one part of the world looks like in a state, for readers."""

    part: str
    words: str


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
    """A shortest way to a state in which an invariant does not hold; `scenario` makes clusters go it, where one can say it."""

    broken: tuple[Broken, ...]
    way: tuple[Shown, ...]
    scenario: str | None

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
    not_explored: tuple[str, ...]
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
