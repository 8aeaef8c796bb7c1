"""`meta.properties`: whose a log directory is. Written by `format`, checked before a node opens anything.

A directory of another cluster or node holds somebody else's data: a node that served it would lie, one that
replicated into it would destroy it. By the directory id a wiped and formatted disk differs from the one of before.
"""

import base64
from collections.abc import Callable
from typing import Final
from uuid import UUID

from replog.config import NodeConfig
from replog.ports import Disk

FILE_NAME: Final = "meta.properties"
VERSION: Final = "1"
SHORT_LETTERS: Final = 22


def short(directory_id: UUID) -> str:
    """Return an id as Kafka's tools write it: 22 characters."""
    return base64.urlsafe_b64encode(directory_id.bytes).decode().rstrip("=")


def directory_id(text: str) -> UUID:
    """Return the id that a text says, as Kafka's tools write it or as other programs do; `ValueError` where it says none."""
    return UUID(bytes=base64.urlsafe_b64decode(text + "==")) if len(text) == SHORT_LETTERS else UUID(text)


class ForeignDirectory(Exception):
    """A log directory that this node must not touch; the message says which and why."""


def directories_of(config: NodeConfig) -> list[str]:
    """Return all directories that carry the file, each once."""
    return list(dict.fromkeys([*config.log_dirs, config.metadata_log_dir]))


def read(disk: Disk, directory: str) -> dict[str, str] | None:
    """Return a directory's properties, None when it is not formatted."""
    path = f"{directory}/{FILE_NAME}"
    if not disk.exists(path):
        return None
    lines = disk.read_file(path).decode(errors="replace").splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def check(disk: Disk, config: NodeConfig) -> None:
    """Refuse directories that are not formatted, or formatted for another cluster or node.

    One of several log directories that cannot be read is passed over: the broker goes on without it.
    """
    for directory in directories_of(config):
        try:
            properties = read(disk, directory)
        except OSError:
            if directory == config.metadata_log_dir:
                raise
            continue
        if properties is None:
            raise ForeignDirectory(f"{directory} is not formatted; run: python -m replog format --config ...")
        refuse_foreign_directories(config, directory, properties)


def refuse_foreign_directories(config: NodeConfig, directory: str, properties: dict[str, str]) -> None:
    """Raise `ForeignDirectory` unless the properties are this node's."""
    if properties.get("version") != VERSION:
        raise ForeignDirectory(f"{directory}: version {properties.get('version')} of {FILE_NAME} is not known here")
    for name, ours in (("cluster.id", config.cluster_id), ("node.id", str(config.node_id))):
        theirs = properties.get(name)
        if theirs != ours:
            if theirs is None:
                raise ForeignDirectory(f"{directory}/{FILE_NAME} has no {name}, this node has {ours}")
            raise ForeignDirectory(f"{directory} belongs to {name} {theirs} by its {FILE_NAME}, this node has {ours}")


def format_directories(
    disk: Disk,
    config: NodeConfig,
    new_id: Callable[[], UUID],
    *,
    ignore_formatted: bool,
    prepare_metadata: Callable[[UUID], None] | None = None,
    metadata_id: UUID | None = None,
) -> list[str]:
    """Write the file where it is missing; return the directories that were formatted.

    A directory of this very node is refused unless `ignore_formatted`; one of another node or cluster always.

    prepare_metadata:  puts what else belongs there into the directory of the metadata log, before the file says that it is formatted;
                       takes the directory's id.
    metadata_id:       of the directory of the metadata log; None: a new one.
    """
    missing = []
    for directory in directories_of(config):
        properties = read(disk, directory)
        if properties is None:
            missing.append(directory)
            continue
        refuse_foreign_directories(config, directory, properties)
        if not ignore_formatted:
            raise ForeignDirectory(f"{directory} is formatted already; --ignore-formatted leaves it as it is")
    for directory in missing:
        disk.make_directory(directory)
        own_id = metadata_id if directory == config.metadata_log_dir and metadata_id is not None else new_id()
        if directory == config.metadata_log_dir and prepare_metadata is not None:
            prepare_metadata(own_id)
        lines = [
            f"version={VERSION}",
            f"cluster.id={config.cluster_id}",
            f"node.id={config.node_id}",
            f"directory.id={short(own_id)}",
        ]
        disk.replace_file(f"{directory}/{FILE_NAME}", "".join(f"{line}\n" for line in lines).encode())
    return missing
