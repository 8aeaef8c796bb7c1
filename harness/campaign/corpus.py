"""The corpus of a guided search: the plans of runs that came to states which no run before them had reached.

A folder that goes on from night to night: `corpus.json` says how far the search is, each `NNNNN.json` is an entry. There are no times and no places in
it, so that the same search writes the same bytes.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from tribunal.harness.plan import PLAN_VERSION, Plan, must_be_runnable
from tribunal.harness.scenario import BadScenario
from tribunal.results.unreadable import UNREADABLE
from tribunal.results.whole_files import put

VERSION: Final = 1
INDEX: Final = "corpus.json"
FEW: Final = 3  # runs: a guard that no more have come to is rare


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was worth keeping.

    number:  of the run, counted over all nights; parent: of the entry it was varied from, None: it was made from its scenario.
    new:     states that no run had reached before; requests: what it sent, which says where faults can be moved to.
    events:  of its simulation, which is what a run near it will cost; 0: of a corpus that did not know.
    entered: whether it came to the code of the known bug that was sought; True where none was.
    guards:  places of the nodes' code that refuse, raise or catch something, which few runs had come to by then.
    """

    number: int
    parent: int | None
    how: str
    plan: Plan
    new: list[str]
    requests: dict[str, int]
    events: int = 0
    entered: bool = True
    guards: list[str] = []


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """How far a search is.

    runs:      how many there were; last_new: the number of the last one that reached something new.
    chosen:    how often each entry was varied, by its number.
    tried:     how often each pair of the crossings' table was tried; crossed: those that came about.
    guards:    how many runs came to each guard of the nodes' code.
    """

    corpus_version: int = VERSION
    plan_version: int = PLAN_VERSION
    runs: int = 0
    last_new: int = -1
    chosen: dict[int, int] = {}
    tried: dict[str, int] = {}
    crossed: list[str] = []
    guards: dict[str, int] = {}


class Corpus:
    """Entries and the states that they stand for; written as it grows."""

    def __init__(self, folder: Path) -> None:
        """Open a folder; `BadScenario` names the file that is none of a corpus."""
        self._folder = folder
        index = _read(folder / INDEX, Index) if (folder / INDEX).exists() else Index()
        if (index.corpus_version, index.plan_version) != (VERSION, PLAN_VERSION):
            raise BadScenario(
                f"{folder / INDEX}: corpus version {index.corpus_version} with plan version {index.plan_version}; "
                f"this is {VERSION} with {PLAN_VERSION}: begin another folder"
            )
        self.runs = index.runs
        self.last_new = index.last_new
        self.chosen = dict(index.chosen)
        self.tried = dict(index.tried)
        self.crossed = dict.fromkeys(index.crossed)
        self.guards = dict(index.guards)
        entries = [_entry(path) for path in folder.glob("[0-9]*.json")]
        # A search that died within a round runs it again, from the corpus that it was chosen from: with another seed, that is other runs.
        ended = [entry for entry in entries if entry.number < index.runs]
        self._left = {entry.number for entry in entries} - {entry.number for entry in ended}
        self.entries = sorted(ended, key=lambda entry: entry.number)  # names of more than 5 digits sort otherwise
        self.known = {state: None for entry in self.entries for state in entry.new}

    def take(self, entry: Entry) -> None:
        """Keep an entry."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self.entries.append(entry)
        self.known.update(dict.fromkeys(entry.new))
        self.last_new = entry.number
        self._left.discard(entry.number)
        put(self._path(entry.number), _bytes(entry))

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:05}.json"

    def came_to(self, guards: Iterable[str]) -> list[str]:
        """Count a run's guards; return those that few runs have come to."""
        rare = []
        for name in sorted(guards):
            self.guards[name] = self.guards.get(name, 0) + 1
            rare += [name] if self.guards[name] <= FEW else []
        return rare

    def rarity(self, entry: Entry) -> float:
        """Return how rare the guards are that an entry came to: 1 for each that no other run did."""
        return sum(1 / self.guards[name] for name in entry.guards)

    def save(self) -> None:
        """Write how far it is; what a round left that was never counted is removed before it could be taken for one of these runs."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for number in sorted(self._left):
            self._path(number).unlink(missing_ok=True)
        self._left.clear()
        index = Index(
            runs=self.runs, last_new=self.last_new, chosen=self.chosen, tried=self.tried, crossed=list(self.crossed),
            guards=self.guards,
        )  # fmt: skip
        put(self._folder / INDEX, _bytes(index))


Content = TypeVar("Content", Entry, Index)


def _read(path: Path, wanted: type[Content]) -> Content:
    try:
        return msgspec.json.decode(path.read_bytes(), type=wanted)
    except OSError as problem:
        raise BadScenario(f"{path}: {problem.strerror}") from None
    except UNREADABLE as problem:
        raise BadScenario(f"{path}: not of a corpus: {problem}") from None


def _bytes(content: Entry | Index) -> bytes:
    return msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"


def _entry(path: Path) -> Entry:
    """Read an entry; what is varied and run is checked as any plan that comes from a file."""
    entry = _read(path, Entry)
    must_be_runnable(entry.plan, path)
    return entry
