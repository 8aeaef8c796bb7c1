"""An image of replog by itself: a node that is no part of any run, for whoever wants one."""

import io
import tarfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tribunal.clusters.images.build import HERE, built, node_image

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
    base = node_image(client)
    built(
        client, buffer.getvalue(), tag, what=f"image {tag}", arguments={"BASE_IMAGE": base}, dockerfile=DOCKERFILE,
        receive=receive,
    )  # fmt: skip
    return tag
