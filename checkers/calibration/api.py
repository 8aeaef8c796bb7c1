"""What a class of anomalies is, and what it makes of a recording. Read this first.

A class changes one fact of a recording, everywhere that the fact is written down, so that a promise is broken for certain. It is
a value: a name, what it changes, which properties should see it, and a function that yields injections in an order of chance, one
place each. The function sees a `Case` (the recording's rows and its committed history, `tribunal.checkers.calibration.case`)
and nothing of the judge: an injection that asked the judge where it sees well would measure nothing.

Families are the modules of `checkers/calibration/families`; each has `CLASSES`. A class that no schema can hold yet has no function
and says what is missing. Whoever adds one: choose only places where no rule of docs/verdicts.md permits the anomaly, by an event
inside of its interval and its place and for every holder. When in doubt, yield nothing.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import TypeVar

import msgspec

from tribunal.checkers.calibration.case import Case, Place
from tribunal.results.copies import Part
from tribunal.results.manifest import Setting
from tribunal.results.rows import Row

Item = TypeVar("Item")
Changed = Mapping[Part, tuple[type[Row], Sequence[Row]]]


class Injection(msgspec.Struct, frozen=True, kw_only=True):
    """One changed fact, its place and its interval.

    change:    what was changed, in words.
    place:     the partition in which the promise is broken; None: it is the run's.
    since_ns, until_ns:  from the last proof that all was well to the first proof that it was not.
    """

    change: str
    place: Place | None
    log_offset: int | None = None
    value: int | None = None
    since_ns: int = 0
    until_ns: int | None = None

    def where(self) -> str:
        """Say place, offset and interval."""
        name = "the run" if self.place is None else str(self.place)
        offset = "" if self.log_offset is None else f"@{self.log_offset}"
        until = "the end" if self.until_ns is None else f"{self.until_ns / 1e9:.3f} s"
        return f"{name}{offset} from {self.since_ns / 1e9:.3f} s to {until}"


class Injected(msgspec.Struct, frozen=True, kw_only=True):
    """An injection and the parts of tables that it changes, whole.

    settings:  added to what the manifest says the nodes were started with.
    """

    injection: Injection
    changed: Changed
    settings: Mapping[str, Setting] | None = None


Inject = Callable[[Case, Random], Iterator[Injected]]


class AnomalyClass(msgspec.Struct, frozen=True, kw_only=True):
    """A class of anomalies.

    seen_by:  properties that should see it; those in words are properties that do not exist yet.
    lacking:  what recordings lack so far, where there is no `inject`.
    """

    name: str
    changes: str
    seen_by: tuple[str, ...]
    inject: Inject | None = None
    lacking: str = ""


def classes() -> dict[str, AnomalyClass]:
    """Return all classes by name, family by family."""
    package = importlib.import_module("tribunal.checkers.calibration.families")
    found: dict[str, AnomalyClass] = {}
    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda module: module.name):
        family = importlib.import_module(f"{package.__name__}.{module.name}")
        for one in family.CLASSES:
            assert one.name not in found, one.name
            assert (one.inject is None) == bool(one.lacking), one.name
            found[one.name] = one
    return found


def shuffled(items: Iterable[Item], random: Random) -> list[Item]:
    """Return items in an order of chance; the given ones stay as they are."""
    known = list(items)
    return random.sample(known, len(known))
