"""What tests ask an engine: whether there is one, and about images."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from tribunal.clusters.api import ClusterError
from tribunal.clusters.images import build

if TYPE_CHECKING:
    from docker import DockerClient


def no_engine() -> str:
    """Return why there is no container engine, or nothing."""
    try:
        build.engine().close()
    except ClusterError as problem:
        return str(problem)
    return ""


def unnamed(client: "DockerClient", unique: Path) -> list[str]:
    """Return the images without a name that a build of a test has made, by a word of its own in their steps."""
    from docker.errors import NotFound

    found = []
    for one in client.images.list(all=True):
        with contextlib.suppress(NotFound):  # somebody else has removed it meanwhile
            if not one.tags and any(f"{unique}" in step["CreatedBy"] for step in one.history()):
                found.append(str(one.id))
    return found
