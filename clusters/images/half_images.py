"""What a build has made that did not come to its end: images without a name, and the container of the step it was at.

The engine keeps them for a next build. A run takes note of them as its builder names them, so that whoever undoes the run can remove them: they
carry no label, and of those of others nothing is touched: lines that another machine wrote name nothing here (`line_journal.py`). What the engine made in the very moment
at which nobody listened any more stays: `docker image prune` takes it. The note is gone when the image has its name.
"""

import contextlib
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tribunal.clusters.nodes.line_journal import note, noted

if TYPE_CHECKING:
    from docker import DockerClient

NOTE: Final = "image-build.jsonl"
LATE_S: Final = 20.0
AGAIN_S: Final = 0.2
# What the engine's builder says of each step: the image that it made, or the container that it runs in.
STEP: Final = re.compile(r" ---> (Running in )?([0-9a-f]{12})\n?")


class Made(msgspec.Struct, frozen=True):
    """One thing that a build made: an image's or a container's id, as the engine shortens it."""

    is_container: bool
    id: str

    @property
    def words(self) -> str:
        """Its name for people."""
        return f"build container {self.id}" if self.is_container else f"unnamed image {self.id}"


class HalfImages:
    """The note of one build; images that were there before are not the build's."""

    def __init__(self, client: "DockerClient", note: Path) -> None:
        self._note = note
        self._before = frozenset(_short(one) for one in client.api.images(quiet=True, all=True))

    def take_note(self, said: str) -> None:
        """Look at one thing that the builder says."""
        found = STEP.fullmatch(said)
        if found is not None and found[2] not in self._before:
            note(self._note, [Made(found[1] is not None, found[2])])

    def has_its_name(self) -> None:
        """Keep what was made: the image is whole."""
        self._note.unlink(missing_ok=True)


def _short(long: str) -> str:
    return long.removeprefix("sha256:")[:12]


def half_made(client: "DockerClient", run_dir: Path) -> list[str]:
    """Return what a run's build has left."""
    return [one.words for one in _noted(run_dir) if _is_there(client, one)]


def remove_half(client: "DockerClient", run_dir: Path) -> list[str]:
    """Remove what a run's build has left, the newest first; return what was removed.

    The engine removes a step's container itself when nobody waits for the build any more, and refuses to remove the image under it until then.
    What it refuses for longer is not the build's alone: somebody else's image stands on it.
    """
    from docker.errors import APIError, NotFound

    made, removed = _noted(run_dir)[::-1], []
    deadline = time.monotonic() + LATE_S
    while left := [one for one in made if _is_there(client, one)]:
        for one in left:
            with contextlib.suppress(NotFound, APIError):
                if one.is_container:
                    client.containers.get(one.id).remove(force=True)
                else:
                    client.images.remove(one.id, noprune=True)
                removed.append(f"{one.words} removed")
        if time.monotonic() > deadline:
            break
        time.sleep(AGAIN_S)  # noqa: TID251 - the harness is no node
    (run_dir / NOTE).unlink(missing_ok=True)
    return removed


def _noted(run_dir: Path) -> list[Made]:
    return list(dict.fromkeys(noted(run_dir / NOTE, Made)))


class _Named(msgspec.Struct, frozen=True, rename="pascal"):
    """An image's names, as the engine has them."""

    repo_tags: list[str] | None = None
    repo_digests: list[str] | None = None


def _is_there(client: "DockerClient", one: Made) -> bool:
    from docker.errors import NotFound

    try:
        if one.is_container:
            client.containers.get(one.id)
            return True
        named = msgspec.convert(client.images.get(one.id).attrs, _Named)
    except NotFound:
        return False
    return not (named.repo_tags or named.repo_digests)
