"""Regular expressions over topic names, matched in linear time (KIP-848: the server resolves SubscribedTopicRegex).

Over transactional ids, too (ListTransactions). A pattern comes from a client and must not be able to hang a coordinator,
so there is no backtracking: the parsed expression becomes a set of positions that all move on at once, as in RE2, the
syntax that clients are documented to use. Which positions follow which is found out once (a name is like the one before it), and
for one pattern only so much of it: with thousands of positions each character may take a millisecond. What needs backtracking (references to groups, looking around) is refused, as
are patterns that unfold to too much. Python's parser is used for the syntax; RE2's rarer classes (`[[:alpha:]]`, Unicode
properties) are refused or unknown to it.
"""

import re
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final, NamedTuple

POSITIONS_MAX: Final = 5_000
LENGTH_MAX: Final = 1_000
WORK_MAX: Final = 200_000  # positions and classes that are looked at for one pattern: some 50 ms
BEGIN: Final = 0  # the first state
NESTING_MAX: Final = 100  # far from the depth of Python's stack, which is not the same wherever a pattern is compiled

Parsed = Any  # what Python's parser returns: it has no types


class BadPattern(Exception):
    """The expression is malformed, or more than is offered."""


class Step(NamedTuple):
    """A position: `take` a character of these classes, `go` to other positions, or `start`, `finish` and `end`."""

    kind: str
    classes: list[tuple[Parsed, Parsed]] | None = None
    targets: tuple[int, ...] = ()


class State(NamedTuple):
    """Positions that are reached at once."""

    takes: tuple[int, ...]  # those that wait for a character
    is_end: bool


class TopicPattern:
    """A compiled pattern; `matches` looks at whole names."""

    def __init__(self, pattern: str) -> None:
        """Compile; `BadPattern` says what is wrong."""
        if len(pattern) > LENGTH_MAX:
            raise BadPattern(f"longer than {LENGTH_MAX} characters")
        self._steps: list[Step] = []
        self._depth = 0
        self._work = 0
        self._states: list[State] = []
        self._numbers: dict[State, int] = {}
        self._following: dict[tuple[int, str, bool], int] = {}  # by state and character; whether it is the last one
        try:
            parsed = parser.parse(pattern)
        except (re.error, OverflowError, RecursionError) as problem:
            raise BadPattern(str(problem)) from None
        if parsed.state.flags & ~re.UNICODE:
            raise BadPattern("flags are not offered")
        self._sequence(parsed)
        self._add(Step("end"))

    def matches(self, name: str) -> bool:
        """Return whether the pattern describes this whole name; `BadPattern` once that took too much for all names together."""
        if not name:
            return self._closure([0], at_start=True, at_end=True).is_end
        here, last = BEGIN, len(name) - 1
        for index, character in enumerate(name):
            following = self._following.get((here, character, index == last))
            if following is None:
                following = self._follow(here, character, at_end=index == last)
            here = following
        return self._states[here].is_end

    def _follow(self, here: int, character: str, *, at_end: bool) -> int:
        if not self._states:
            self._number(self._closure([0], at_start=True, at_end=False))
        state = self._closure(self._moved(self._states[here], ord(character)), at_start=False, at_end=at_end)
        following = self._following[here, character, at_end] = self._number(state)
        return following

    def _number(self, state: State) -> int:
        number = self._numbers.setdefault(state, len(self._states))
        if number == len(self._states):
            self._states.append(state)
        return number

    def _moved(self, here: State, character: int) -> list[int]:
        moved = []
        for step in here.takes:
            classes = self._steps[step].classes or []
            self._spend(1 + len(classes))
            if _fits(classes, character):
                moved.append(step + 1)
        return moved

    @property
    def work(self) -> int:
        """What comparing took so far, in positions and classes that were looked at."""
        return self._work

    def _spend(self, work: int) -> None:
        self._work += work
        if self._work > WORK_MAX:
            raise BadPattern("takes too long to be compared with all names")

    def _closure(self, begin: list[int], *, at_start: bool, at_end: bool) -> State:
        """Follow all that takes no character."""
        found: dict[int, None] = {}
        queue = list(begin)
        while queue:
            step = queue.pop()
            if step in found:
                continue
            found[step] = None
            kind, _, targets = self._steps[step]
            if kind == "go":
                queue += targets
            elif (kind == "start" and at_start) or (kind == "finish" and at_end):
                queue.append(step + 1)
        self._spend(len(found))
        takes = tuple(sorted(step for step in found if self._steps[step].classes is not None))
        return State(takes, any(self._steps[step].kind == "end" for step in found))

    def _add(self, step: Step) -> int:
        if len(self._steps) >= POSITIONS_MAX:
            raise BadPattern("unfolds to too many positions")
        self._steps.append(step)
        return len(self._steps) - 1

    def _go(self, *targets: int) -> int:
        return self._add(Step("go", targets=targets))

    def _sequence(self, parsed: Parsed) -> None:
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise BadPattern("nested too deeply")
        for kind, argument in parsed:
            self._element(kind, argument)
        self._depth -= 1

    def _element(self, kind: Parsed, argument: Parsed) -> None:
        if kind in (op.LITERAL, op.NOT_LITERAL, op.ANY):
            self._add(Step("take", [(kind, argument)]))
        elif kind is op.IN:
            self._add(Step("take", argument))
        elif kind is op.SUBPATTERN and not (argument[1] or argument[2]):
            self._sequence(argument[3])
        elif kind is op.BRANCH:
            self._branch(argument[1])
        elif kind in (op.MAX_REPEAT, op.MIN_REPEAT):
            self._repeat(*argument)
        elif kind is op.AT and argument in (op.AT_BEGINNING, op.AT_BEGINNING_STRING):
            self._add(Step("start"))
        elif kind is op.AT and argument in (op.AT_END, op.AT_END_STRING):
            self._add(Step("finish"))
        else:
            raise BadPattern(f"{str(kind).lower()} is not offered")

    def _branch(self, branches: list[Parsed]) -> None:
        exits = []
        for branch in branches[:-1]:
            fork = self._go()
            self._sequence(branch)
            exits.append(self._go())
            self._steps[fork] = Step("go", targets=(fork + 1, len(self._steps)))
        self._sequence(branches[-1])
        for leave in exits:
            self._steps[leave] = Step("go", targets=(len(self._steps),))

    def _repeat(self, least: int, most: Parsed, what: Parsed) -> None:
        for _ in range(least):
            self._go(len(self._steps) + 1)  # so that repeating nothing comes to its end, too
            self._sequence(what)
        if most is op.MAXREPEAT:
            fork = self._go()
            self._sequence(what)
            self._go(fork)
            self._steps[fork] = Step("go", targets=(fork + 1, len(self._steps)))
            return
        forks = []
        for _ in range(most - least):
            forks.append(self._go())
            self._sequence(what)
        for fork in forks:
            self._steps[fork] = Step("go", targets=(fork + 1, len(self._steps)))


def _fits(classes: list[tuple[Parsed, Parsed]], character: int) -> bool:
    negated = bool(classes) and classes[0][0] is op.NEGATE
    return any(_fits_one(kind, argument, character) for kind, argument in classes) != negated


def _fits_one(kind: Parsed, argument: Parsed, character: int) -> bool:
    if kind is op.LITERAL:
        return bool(character == argument)
    if kind is op.NOT_LITERAL:
        return bool(character != argument)
    if kind is op.RANGE:
        return bool(argument[0] <= character <= argument[1])
    if kind is op.CATEGORY:
        return bool(_CATEGORIES[argument].match(chr(character)))
    return kind is op.ANY


_CATEGORIES: Final = {
    op.CATEGORY_DIGIT: re.compile("[0-9]"),
    op.CATEGORY_NOT_DIGIT: re.compile("[^0-9]"),
    op.CATEGORY_WORD: re.compile("[0-9A-Za-z_]"),
    op.CATEGORY_NOT_WORD: re.compile("[^0-9A-Za-z_]"),
    op.CATEGORY_SPACE: re.compile(r"\s"),
    op.CATEGORY_NOT_SPACE: re.compile(r"\S"),
}
