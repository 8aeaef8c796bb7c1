"""Work items of recordings in storage, on a cluster's workers: each task sees the recording through a mirror of its own.

Items name a run by the folder that the driver has for it. A task lays a mirror of that folder down on its own machine, is given the
item with the mirror's path in it, and what it answers has the driver's path again. Who reads from storage has the credentials of
its own environment: the driver's do not travel.
"""

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from tribunal.checkers.judge.items import Circles, Files, Lists, Messages, Offsets, Producers, SieveRange, WorkItem
from tribunal.checkers.judge.read_steps import TABLE as TRANSACTIONS
from tribunal.checkers.judge.tables import TableRow
from tribunal.results.history import HISTORY, ORIGIN
from tribunal.results.mirror import Mirror, mirrored
from tribunal.results.scratch import Scratch
from tribunal.results.storage import NoStorage
from tribunal.results.store import MANIFEST

AT_ONCE: Final = (MANIFEST, HISTORY, ORIGIN)  # that is all of a run that tasks read, but segments
Judges = Callable[[WorkItem], list[TableRow]]
Plain = str | int | bool | bytes | float | list["Plain"] | tuple["Plain", ...] | dict["Plain", "Plain"] | None
Moved = TypeVar("Moved", bound=msgspec.Struct)


@contextmanager
def through_mirrors(judge: Judges, stored: Mapping[str, str]) -> Iterator[Judges]:
    """Give what judges items of which some runs are in storage.

    stored:  URLs by the folders that items name; other runs are where their items say.
    raises:  NoStorage with this machine's name, for that is where something has to be done.
    """
    if not stored:
        yield judge
        return
    with Scratch("mirror") as scratch:
        mirrors: dict[str, Mirror] = {}

        def judged(item: WorkItem) -> list[TableRow]:
            url = stored.get(item.run_dir)
            if url is None:
                return judge(item)
            try:
                if item.run_dir not in mirrors:
                    folder = scratch / str(len(mirrors)) / Path(item.run_dir).name
                    mirrors[item.run_dir] = Mirror(url, folder, at_once=AT_ONCE, later=True)
                mirror = mirrors[item.run_dir]
                mirror.lay(_looked_at(item))
                with mirrored([mirror]):
                    answers = judge(_renamed(item, item.run_dir, str(mirror.folder)))
            except NoStorage as problem:
                raise NoStorage(f"{problem} (asked by {socket.gethostname()})") from None
            return [_renamed(answer, str(mirror.folder), item.run_dir) for answer in answers]

        yield judged


def _looked_at(item: WorkItem) -> Callable[[str], bool]:
    """Return of which segments an item may want to know that they are there: with all of them for each item the work is quadratic.

    What is judged may be excused by what stands in any partition (`remembered.py`): only items that name all they read see less.
    """
    all_of: str | None = None
    match item:
        case Files():
            paths = set(item.paths)
        case Lists(part=part) | Messages(part=part):
            paths = {group.path for group in part.groups}
        case Circles(groups=groups) | Producers(groups=groups) | Offsets(groups=groups):
            paths = {group.path for group in groups}
        case SieveRange():
            paths = {group.path for own in item.groups.values() for group in own}
            all_of = f"recording/{TRANSACTIONS}/"  # they are read where those of the range's time are not enough
        case _:
            return lambda name: True
    own = {Path(path).relative_to(item.run_dir).as_posix() for path in paths}
    return own.__contains__ if all_of is None else lambda name: name in own or name.startswith(all_of)


def _renamed(value: Moved, former: str, today: str) -> Moved:
    """Return a value with another path in all of its texts."""
    plain = msgspec.to_builtins(value, builtin_types=(bytes,))
    return msgspec.convert(_replaced(plain, former, today), type(value))


def _replaced(plain: Plain, former: str, today: str) -> Plain:
    if isinstance(plain, str):
        return plain.replace(former, today)
    if isinstance(plain, dict):
        return {name: _replaced(content, former, today) for name, content in plain.items()}
    if isinstance(plain, list | tuple):
        return [_replaced(content, former, today) for content in plain]
    return plain


def reason(problem: Exception, kind: type[Exception]) -> str | None:
    """Return what a task that failed of such an exception said, in what Spark says of the task; None: it failed of something else."""
    mark = f"{kind.__name__}: "
    return next((line.partition(mark)[2] for line in str(problem).splitlines() if mark in line), None)
