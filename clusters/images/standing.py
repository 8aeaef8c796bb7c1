"""An image of replog by itself: a node that is no part of any run, for whoever wants one."""

import io
import os
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tribunal.clusters.images.build import HERE, Recipe, built, node_image

if TYPE_CHECKING:
    from docker import DockerClient

NAME: Final = "replog:latest"
DOCKERFILE: Final = "Dockerfile.standing"


def standing_image(client: "DockerClient", tag: str, receive: Callable[[str], None]) -> str:
    """Build the image of a node of this source, and return its name. Raises ClusterError.

    receive:  takes what the builder says.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(HERE / DOCKERFILE, arcname=DOCKERFILE)
    nowhere = Path(os.devnull)
    with tempfile.TemporaryDirectory() as notes:
        base = node_image(client, nowhere, Path(notes), receive)
        recipe = Recipe(
            what=f"image {tag}", context=buffer.getvalue(), dockerfile=DOCKERFILE, arguments={"BASE_IMAGE": base}
        )
        built(client, recipe, tag, log=nowhere, run_dir=Path(notes), report=receive)
    return tag
