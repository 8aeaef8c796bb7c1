"""The faults in force right now, on disk: written before a fault is injected, struck out when it is healed.

One file in the run's folder, there from before the first node starts until everything is put down. A harness that
dies with kill -9 leaves its file, and one whose putting down failed does: then the next run refuses to start, and `tribunal heal`
undoes what is left: it ends what the run's kind of cluster has left running, proves that nothing is left, and only then removes the file.
The run's guard (`guard.py`) does that by itself when the harness is killed.
"""

import os
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Final

import msgspec

from tribunal.clusters.api import ClusterError, Kind
from tribunal.clusters.nodes.leftovers import started_at
from tribunal.clusters.nodes.node_process import process_exists
from tribunal.harness.catalog import all_clusters
from tribunal.results.unreadable import UNREADABLE

FILE: Final = "unhealed.json"
LATE_ROUNDS: Final = 3  # an engine may be making what it was asked for before the harness died
LATE_S: Final = 1.0


class ActiveFault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault in force, or about to be."""

    index: int
    kind: str
    target: str
    options: Mapping[str, object]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One run that has not been put down."""

    run_dir: str
    cluster: str
    harness_pid: int
    harness_started: int | None
    active: tuple[ActiveFault, ...] = ()

    def harness_is_alive(self) -> bool:
        """Return whether the harness that wrote this is still running."""
        return process_exists(self.harness_pid) and started_at(self.harness_pid) == self.harness_started

    def title(self) -> str:
        """Say which run it is, and what was in force."""
        faults = ", ".join(f"{fault.kind} {fault.target}" for fault in self.active) or "no fault in force"
        return f"{Path(self.run_dir).name} ({faults})"


class NotHealed(ClusterError):
    """A run that died has left something behind."""


class FaultJournal:
    """The journal of one run; `left` is what the run has left behind when it is over: then the journal stays."""

    def __init__(self, run_dir: Path, cluster: str) -> None:
        self.path = run_dir / FILE
        self.left: list[str] = []
        self._entry = Entry(
            run_dir=str(run_dir.resolve()),
            cluster=cluster,
            harness_pid=os.getpid(),
            harness_started=started_at(os.getpid()),
        )

    def __enter__(self) -> "FaultJournal":
        self._write()
        return self

    def __exit__(self, *error: object) -> None:
        known = all_clusters().get(self._entry.cluster)
        try:
            self.left = [] if known is None else known.leftovers(self.path.parent)
        except ClusterError as problem:  # nobody can say: as good as left
            self.left = [str(problem)]
        if not self.left:
            self.path.unlink(missing_ok=True)

    def injecting(self, fault: ActiveFault) -> None:
        """Say what is about to be done."""
        self._entry = msgspec.structs.replace(self._entry, active=(*self._entry.active, fault))
        self._write()

    def healed(self, index: int) -> None:
        """Say that it is undone."""
        left = tuple(fault for fault in self._entry.active if fault.index != index)
        self._entry = msgspec.structs.replace(self._entry, active=left)
        self._write()

    def _write(self) -> None:
        fresh = self.path.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(self._entry))
        fresh.replace(self.path)


def has_journal(run_dir: Path) -> bool:
    """Whether a run has left something: it is undone from its journal alone, so the folder has to stay until `tribunal heal` was there."""
    return (run_dir / FILE).exists()


def has_journals(out: Path) -> bool:
    """Whether any run in a folder has left something."""
    return any(out.glob(f"*/{FILE}"))


def unhealed(out: Path) -> list[Entry]:
    """Return the runs in this folder whose harness died."""
    return [entry for _, entry in _entries(out) if not entry.harness_is_alive()]


def running(out: Path) -> list[Entry]:
    """Return the runs in this folder that are going on."""
    return [entry for _, entry in _entries(out) if entry.harness_is_alive()]


def _entries(out: Path) -> list[tuple[Path, Entry]]:
    found = []
    for path in sorted(out.glob(f"*/{FILE}")):
        try:
            found.append((path, msgspec.json.decode(path.read_bytes(), type=Entry)))
        except FileNotFoundError:
            continue  # that run has just ended
        except UNREADABLE as problem:
            raise ClusterError(f"{path}: not a fault journal ({problem}); remove it by hand") from None
    return found


def refuse_unless_healed(out: Path) -> None:
    """Raise `NotHealed` if a run in this folder died and was not healed."""
    dead = unhealed(out)
    if dead:
        raise NotHealed(
            f"the harness of {dead[0].title()} was killed, or could not put it down: first undo what it left with: tribunal heal --out {quote(str(out))}"
        )


def heal(out: Path, trusted: Collection[Path] = ()) -> list[str]:
    """Undo what dead runs left; return what was done. `NotHealed` if something cannot be undone.

    trusted:  files whose commands the user lets us run here: who sends a run's folder can write any into it.
    """
    named = {path.resolve() for path in trusted}
    done: list[str] = []
    problems = []
    for path, entry in _entries(out):
        if entry.harness_is_alive():
            done.append(f"{entry.title()}: is running, left alone")
            continue
        run_dir = path.parent.resolve()
        if entry.run_dir != f"{run_dir}":
            problems.append(
                f"{path} is the journal of {entry.run_dir}: the folder was moved, or the journal is forged; nothing was touched. "
                f"Look at what runs there, then remove the journal by hand"
            )
            continue
        try:
            _must_be_trusted(entry.cluster, run_dir, named)
            done += [f"{run_dir.name}: {action}" for action in sweep(entry.cluster, run_dir)]
        except ClusterError as problem:  # the others are
            problems.append(str(problem))
            continue
        path.unlink(missing_ok=True)
        done.append(f"{entry.title()}: healed")
    if problems:
        raise NotHealed("; ".join(problems))
    return done


def undone(run_dir: Path) -> list[str]:
    """Undo what one run left whose harness is known to be dead, also what comes late; return what was done. Raises ClusterError."""
    path = run_dir / FILE
    try:
        entry = msgspec.json.decode(path.read_bytes(), type=Entry)
    except FileNotFoundError:
        return []  # somebody else has healed it
    except UNREADABLE as problem:
        raise ClusterError(f"{path}: not a fault journal ({problem}); remove it by hand") from None
    known = _known(entry.cluster, run_dir)
    ends = known.sweep if known.commands_of(run_dir) is None else known.end_own
    done: list[str] = []
    for number in range(LATE_ROUNDS):
        if number:
            time.sleep(LATE_S)  # noqa: TID251 - the harness is no node
        try:
            done += ends(run_dir)
        except ClusterError:  # who does not answer now may do so in a moment
            if number == LATE_ROUNDS - 1:
                raise
    _must_be_trusted(entry.cluster, run_dir, ())
    _must_be_gone(known, run_dir, done)
    path.unlink(missing_ok=True)
    return [*done, f"{entry.title()}: healed"]


def _must_be_trusted(kind: str, run_dir: Path, trusted: Collection[Path]) -> None:
    """Raise `NotHealed` where commands of a file would be run that the user has not named; what needs none of them is ended."""
    known = _known(kind, run_dir)
    path = known.commands_of(run_dir)
    if path is not None and path.resolve() not in trusted:
        known.end_own(run_dir)
        raise NotHealed(
            f"{run_dir.name}: left {', '.join(known.leftovers(run_dir))}. The commands that undo it stand in {path}: if that file is "
            f"yours, tribunal heal --out {quote(str(run_dir.parent))} --cluster-file {quote(str(path))}"
        )


def _known(kind: str, run_dir: Path) -> Kind:
    known = all_clusters().get(kind)
    if known is None:
        raise NotHealed(f"{run_dir.name}: no cluster {kind!r} is known here: heal it where its plugin is")
    return known


def sweep(kind: str, run_dir: Path) -> list[str]:
    """End what a run of this kind left; `NotHealed` if something remains."""
    known = _known(kind, run_dir)
    done = known.sweep(run_dir)
    _must_be_gone(known, run_dir, done)
    return done


def _must_be_gone(known: Kind, run_dir: Path, done: Sequence[str]) -> None:
    """Raise `NotHealed` where something is left; what was done may say why."""
    if left := known.leftovers(run_dir):
        tried = f" ({'; '.join(done)})" if done else ""
        raise NotHealed(f"{run_dir.name}: cannot undo {', '.join(left)}{tried}")
