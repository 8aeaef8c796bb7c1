"""Search for an order of operations that a single object would explain.

Every operation seems to take effect at one moment between its invocation and its completion (Herlihy and Wing, 1990).
The search walks along the history and keeps all *configurations* that may be true: a state and which open
operations have already taken effect in it. Nothing happens before it has to: only when an operation completes must it have
taken effect, so configurations are extended just in time (Lowe, "Testing for linearizability", 2017).

What keeps the search small:
- a completing read that fits a state takes effect there at once: whatever else might have come first can as well come after it;
- operations of unknown outcome stay open for ever, and each doubles the configurations. Those that ask for the
  same are interchangeable, so only their number counts; and a configuration that reached the same state with some of them can do
  all that one with these and more can: the latter is dropped, as far as a few comparisons show it.

The search obeys its limits: it answers `unknown` with the longest prefix that it could order instead of taking more.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from tribunal.checkers.graphs.operations import OPEN_END, Datum, Operation, by_key
from tribunal.checkers.registers.models import IMPOSSIBLE, UNKNOWN, Model, State


class Answer(StrEnum):
    """Whether an order exists."""

    LINEARIZABLE = "linearizable"
    ILLEGAL = "illegal"
    UNKNOWN = "unknown"


class Linearization(msgspec.Struct, frozen=True, kw_only=True):
    """The answer; for a bad or undecided history the first completion that could not be ordered."""

    answer: Answer
    key: Hashable = None
    ordered_until: int  # completions up to here (exclusive, places in the history) fit one order
    culprit: int | None = None
    configurations: int  # the largest number held at once


class Limits(msgspec.Struct, frozen=True):
    """How much a search may take: configurations in memory, and a clock to stop by."""

    configurations: int = 1_000_000
    expired: Callable[[], bool] = lambda: False


class Call(msgspec.Struct, frozen=True):
    """One operation on the object."""

    number: int
    function: str
    argument: Hashable
    result: Hashable
    known: bool  # its completion was seen


# A state; the open calls of known outcome that took effect in it, one bit each; the kinds of those of unknown outcome that
# did, ascending, one of which several did as often.
# Millions of these are made and compared: a tuple with a number costs a fifth of an object with a set.
Configuration = tuple[State, int, tuple[int, ...]]
COMPARED: Final = 16  # with so many that reached the same state a configuration is compared; all would be quadratic
LOOKED_AFTER: Final = 1 << 16  # so many effects tried are a few hundredths of a second


def check(operations: Sequence[Operation], model: Model, limits: Limits | None = None) -> Linearization:
    """Judge every key by itself (linearizability is local); return the worst answer."""
    worst: Linearization | None = None
    for key, own in by_key(operations).items():
        result = check_object(own, model, limits or Limits(), key)
        if result.answer is Answer.ILLEGAL:
            return result
        if worst is None or result.answer is Answer.UNKNOWN:
            worst = result
    return worst or Linearization(answer=Answer.LINEARIZABLE, ordered_until=0, configurations=0)


def check_object(operations: Sequence[Operation], model: Model, limits: Limits, key: Hashable = None) -> Linearization:
    """Judge the history of one object."""
    search = Search(model, limits)
    ordered = 0
    for place, opens, number in _events(operations, model):
        operation = operations[number]
        if opens:
            search.open(_call(number, operation))
            continue
        verdict = search.complete(number)
        if verdict is not Answer.LINEARIZABLE:
            return Linearization(
                answer=verdict, key=key, ordered_until=ordered, culprit=operation.index, configurations=search.most
            )
        ordered = place
    return Linearization(answer=Answer.LINEARIZABLE, key=key, ordered_until=ordered, configurations=search.most)


def _events(operations: Sequence[Operation], model: Model) -> Iterable[tuple[int, bool, int]]:
    """Yield (place, is an invocation, operation number) in order; what surely had no effect is left out."""
    events: list[tuple[int, bool, int]] = []
    for number, operation in enumerate(operations):
        unknown = operation.outcome == "info"
        if operation.outcome == "fail" or (unknown and operation.steps[0][0] in model.reads):
            continue
        events.append((operation.invoked, True, number))
        if not unknown:
            events.append((operation.completed, False, number))
    return sorted(events)


def _call(number: int, operation: Operation) -> Call:
    function, _, argument, result = operation.steps[0]
    known = operation.completed != OPEN_END
    return Call(number, function, _frozen(argument), _frozen(result) if known else UNKNOWN, known)


def _frozen(value: Datum) -> Hashable:
    return tuple(value) if isinstance(value, list) else value


class Search:
    """The configurations that explain the history so far."""

    def __init__(self, model: Model, limits: Limits) -> None:
        self._model = model
        self._limits = limits
        self._open: dict[int, tuple[Call, int]] = {}  # calls by number, each with its bit
        self._free: list[int] = []
        self._kinds: dict[tuple[str, Hashable], int] = {}  # unknown outcomes that ask for the same, numbered
        self._available: list[int] = []
        self._configurations: set[Configuration] = {(model.initial, 0, ())}
        self.most = 1
        # Effects of calls, over all completions: a thousand short searches take as long as one long one.
        self._tried = 0

    def open(self, call: Call) -> None:
        """Note an invocation: from now on it may take effect."""
        if call.known:
            self._open[call.number] = (call, self._free.pop() if self._free else 1 << len(self._open))
            return
        kind = self._kinds.setdefault((call.function, call.argument), len(self._kinds))
        if kind == len(self._available):
            self._available.append(0)
        self._available[kind] += 1

    def complete(self, number: int) -> Answer:
        """Keep the configurations in which this call has taken effect by now."""
        call, bit = self._open[number]
        step = self._model.step
        kept: set[Configuration] = set()
        todo: deque[Configuration] = deque()
        seen = set(self._configurations)
        fewest = _Fewest(self._configurations) if self._kinds else None
        for configuration in self._configurations:
            if configuration[1] & bit:
                kept.add((configuration[0], configuration[1] ^ bit, configuration[2]))
            else:
                todo.append(configuration)
        # In this order a state is reached with the fewest calls of unknown outcome first.
        while todo:
            configuration = todo.popleft()
            if self._is_expired():
                return Answer.UNKNOWN
            state = step(configuration[0], call.function, call.argument, call.result)
            if state is not IMPOSSIBLE:
                kept.add((state, configuration[1], configuration[2]))
                if call.function in self._model.reads:
                    continue
            for following in self._extensions(configuration, bit):
                if following not in seen and (fewest is None or fewest.add(following)):
                    seen.add(following)
                    todo.append(following)
            if len(seen) > self._limits.configurations:
                return Answer.UNKNOWN
        del self._open[number]
        self._free.append(bit)
        self._configurations = _undominated(kept) if self._kinds else kept
        self.most = max(self.most, len(seen))
        return Answer.LINEARIZABLE if kept else Answer.ILLEGAL

    def _is_expired(self) -> bool:
        before = self._tried // LOOKED_AFTER
        self._tried += 1 + len(self._open) + len(self._kinds)
        return self._tried // LOOKED_AFTER != before and self._limits.expired()

    def _extensions(self, configuration: Configuration, completing: int) -> Iterable[Configuration]:
        """Let one more open call take effect."""
        before, done, spent = configuration
        step = self._model.step
        for call, bit in self._open.values():
            if done & bit or bit == completing:
                continue
            state = step(before, call.function, call.argument, call.result)
            if state is not IMPOSSIBLE:
                yield state, done | bit, spent
        for (function, argument), kind in self._kinds.items():
            state = step(before, function, argument, UNKNOWN)
            if state is not IMPOSSIBLE and state != before and spent.count(kind) < self._available[kind]:
                yield state, done, tuple(sorted((*spent, kind)))


class _Fewest:
    """Which calls of unknown outcome sufficed to reach a state."""

    def __init__(self, configurations: Iterable[Configuration] = ()) -> None:
        self._reached: dict[tuple[State, int], list[tuple[int, ...]]] = {}
        for configuration in configurations:
            self.add(configuration)

    def add(self, configuration: Configuration) -> bool:
        """Tell whether none that was added before can do all that this one can; then it is noted."""
        state, done, spent = configuration
        group = self._reached.setdefault((state, done), [])
        if any(_is_part(better, spent) for better in group[:COMPARED]):
            return False
        group.append(spent)
        return True


def _undominated(configurations: set[Configuration]) -> set[Configuration]:
    """Drop configurations that another one reaches with a part of their unknown operations."""
    fewest = _Fewest()
    return {one for one in sorted(configurations, key=lambda one: len(one[2])) if fewest.add(one)}


def _is_part(few: tuple[int, ...], many: tuple[int, ...]) -> bool:
    rest = iter(many)
    return all(kind in rest for kind in few)
