"""Has the image that nodes run in in a process of its own: whoever gives up waiting ends it, and with it what the engine does for it.

    python -m tribunal.clusters.images.builder      reads one `Wanted` as a line of JSON; says lines of JSON: `Said`, and at the end `Had` or `Failed`

An engine's client blocks, and a thread that waits for it cannot be ended: Ctrl-C waited for the end of the build.
"""

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tribunal.clusters.api import ClusterError
from tribunal.clusters.images.build import engine, image_of, node_image, pulled
from tribunal.clusters.systems.packing import by_content, packed

if TYPE_CHECKING:
    from docker import DockerClient

SHOWN: Final = 160
LONGEST: Final = 16_000  # of a line, in characters


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """An image of this name, or of a Dockerfile in a folder; neither: that of replog's nodes, of this very source.

    log:  of what the builder says.
    """

    image: str = ""
    dockerfile: str = ""
    folder: str = ""
    run_dir: str
    log: str

    @property
    def words(self) -> str:
        """What is done, for people."""
        if self.image:
            return f"pulling image {self.image}"
        return f"building the image of {self.dockerfile}" if self.dockerfile else "building the nodes' image"


class Said(msgspec.Struct, frozen=True, tag="said"):
    """Something that the engine says, the beginning of its line."""

    line: str


class Had(msgspec.Struct, frozen=True, tag="had"):
    """The image is there, by this name."""

    image: str


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """It is not."""

    words: str


Line = Said | Had | Failed


def _say(line: Line) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


def _report(said: str) -> None:
    for line in said.splitlines():
        if line.strip():
            _say(Said(line.strip()[:SHOWN]))


def had(client: "DockerClient", wanted: Wanted) -> str:
    """Return the name of an image that is there now. Raises ClusterError."""
    if wanted.image:
        return pulled(client, wanted.image, _report)
    if not wanted.dockerfile:
        return node_image(client, Path(wanted.log), Path(wanted.run_dir), _report)
    context = packed(Path(wanted.folder), Path(wanted.run_dir), by_content)
    return image_of(client, wanted.dockerfile, context, Path(wanted.log), Path(wanted.run_dir), _report)


def main() -> None:
    """Read what is wanted, and have it."""
    wanted = msgspec.json.decode(sys.stdin.buffer.readline(), type=Wanted)
    try:
        with closing(engine()) as client:
            _say(Had(had(client, wanted)))
    except ClusterError as problem:
        _say(Failed(str(problem)[:LONGEST]))
    except OSError as problem:
        _say(Failed(f"{wanted.words}: {problem}"))


if __name__ == "__main__":
    main()
