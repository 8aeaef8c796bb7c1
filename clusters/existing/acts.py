"""What was done to a cluster that is not ours, and is not undone yet: written down before it is done, in the run's folder.

Whoever finds a run that was ended in its midst undoes by it what is left: nodes are started, resumed, connected; topics deleted.
"""

from pathlib import Path
from typing import Final

import msgspec

from tribunal.clusters.api import ClusterError
from tribunal.clusters.existing.description import Undoing
from tribunal.results.unreadable import UNREADABLE

ACTS: Final = "acts.json"


class Act(msgspec.Struct, frozen=True, order=True):
    """A node's state that a command has changed: `start`, `resume` or `rejoin` undoes it."""

    node: int
    undone_by: Undoing  # no other command of the file: whoever sends a run's folder writes this list himself


class Done(msgspec.Struct):
    """All of it.

    cluster:  the cluster.toml that says how it is undone, by its full path.
    """

    cluster: str
    acts: list[Act] = []
    topics: list[str] = []


class Acts:
    """The list of one run, on disk."""

    def __init__(self, run_dir: Path, cluster: Path, found: Done | None = None) -> None:
        """Begin it, or go on with one that a run has left."""
        self._path = run_dir / ACTS
        self.done = Done(cluster=str(cluster.resolve())) if found is None else found
        self._write()

    def doing(self, node: int, undone_by: Undoing) -> None:
        """Take note of what is about to be done to a node."""
        if (act := Act(node, undone_by)) not in self.done.acts:
            self.done.acts.append(act)
            self._write()

    def undone(self, node: int, undone_by: Undoing) -> None:
        """Take note that it was undone."""
        if (act := Act(node, undone_by)) in self.done.acts:
            self.done.acts.remove(act)
            self._write()

    def making(self, topic: str) -> None:
        """Take note of a topic that is about to be created."""
        if topic not in self.done.topics:
            self.done.topics.append(topic)
            self._write()

    def deleted(self, topic: str) -> None:
        """Take note that a topic is gone."""
        self.done.topics.remove(topic)
        self._write()

    def close(self) -> None:
        """Remove the list where nothing stands on it; safe twice."""
        if not self.done.acts and not self.done.topics:
            self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        half = self._path.with_suffix(".half")
        half.write_bytes(msgspec.json.encode(self.done))
        half.rename(self._path)


def left(run_dir: Path) -> Done | None:
    """Return what a run of this folder has left undone; None: nothing. Raises ClusterError for a list that cannot be read."""
    try:
        done = msgspec.json.decode((run_dir / ACTS).read_bytes(), type=Done)
    except FileNotFoundError:
        return None
    except (OSError, *UNREADABLE) as problem:
        raise ClusterError(
            f"{run_dir / ACTS}: not a list of what was done ({problem}); look at the cluster, then remove it by hand"
        ) from None
    return done if done.acts or done.topics else None
