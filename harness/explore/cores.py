"""States of cores as small numbers, and what one event does to a core, worked out once.

A core takes one event and returns effects; time and chance come with the event. So what an event does is a function of the
core's state and of the event, and has to be worked out once for each pair: the product's own code runs then, on an object
unpickled for the purpose, and the outcome is remembered. A world's state is a tuple of such numbers. That is what makes a
million states affordable: most steps are two look-ups, and no object is copied.

Two objects with the same key are the same state. The key leaves out what cannot matter any more (absolute times, probes);
whoever writes a key decides that, and a search with two of them merged wrongly finds ways that cannot be taken again.
"""

import io
import pickle
from collections.abc import Callable, Hashable
from random import Random
from typing import Final, Generic, TypeVar

Value = TypeVar("Value", bound=Hashable)
Core = TypeVar("Core")
Event = TypeVar("Event", bound=Hashable)
Outcome = TypeVar("Outcome")
Entry = TypeVar("Entry")

NO_CHANCE: Final = Random(0)  # what asks for chance gets this one; no world lets anything depend on it


class Numbered(Generic[Value]):
    """Values by number, numbers by value; equal values have one number."""

    def __init__(self) -> None:
        self._numbers: dict[Value, int] = {}
        self.values: list[Value] = []

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, number: int) -> Value:
        return self.values[number]

    def number(self, value: Value) -> int:
        """Return the value's number, a new one for a new value."""
        number = self._numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


class Cores(Generic[Core]):
    """States of one kind of core, numbered; each can be had as an object of its own."""

    def __init__(self, key: Callable[[Core], Hashable]) -> None:
        """`key` names everything that can matter to what the core does next."""
        self._key = key
        self._keys: Numbered[Hashable] = Numbered()
        self._pickled: list[bytes] = []

    def __len__(self) -> int:
        return len(self._pickled)

    def number(self, core: Core) -> int:
        """Return the number of the core's present state."""
        number = self._keys.number(self._key(core))
        if number == len(self._pickled):
            self._pickled.append(_pickled(core))
        return number

    def core(self, number: int) -> Core:
        """Return a core in this state: nobody else has it."""
        core: Core = pickle.loads(self._pickled[number])  # noqa: S301 - written a moment ago, by this process
        return core


class Remembered(Generic[Event, Outcome]):
    """What events do to cores, each worked out when it is first asked for."""

    def __init__(self, work_out: Callable[[int, Event], Outcome]) -> None:
        self._work_out = work_out
        self._outcomes: dict[tuple[int, Event], Outcome] = {}

    def __len__(self) -> int:
        return len(self._outcomes)

    def outcome(self, core: int, event: Event) -> Outcome:
        """Return what the event does to the core with this number."""
        found = self._outcomes.get((core, event))
        if found is None:
            found = self._outcomes[core, event] = self._work_out(core, event)
        return found


def grown(committed: tuple[Entry, ...], shown: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Return all that was ever committed, once somebody shows this much as committed.

    What contradicts the former stays out: taken for what is committed, it would be found wrong only while somebody else shows the former yet.
    """
    return shown if shown[: len(committed)] == committed else committed


def no_chance(_: Random) -> tuple[Callable[[], Random], tuple[()]]:
    """Leave a generator out of what is pickled: 2.5 kB of state that nothing here looks at."""
    return _no_chance, ()


def _no_chance() -> Random:
    return NO_CHANCE


def _pickled(core: object) -> bytes:
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = {Random: no_chance}
    pickler.dump(core)
    return buffer.getvalue()
