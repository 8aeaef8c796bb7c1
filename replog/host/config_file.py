"""Reads the file that configures a node: our own TOML, or Apache Kafka's properties by the ending of its name.

A file of Kafka's does not say which cluster the node belongs to. Its directories do once they are formatted; until then whoever
formats them does.
"""

import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from replog.config import NodeConfig, load
from replog.config.properties import config_of, parsed
from replog.config.setting import words

ENDING: Final = ".properties"
META_PROPERTIES: Final = "meta.properties"


def read_config(path: Path, *, cluster_id: str | None = None) -> NodeConfig:
    """Return a node's configuration; `ConfigError` or `OSError` when there is none.

    cluster_id: of the cluster that directories are formatted for, where the file has none.
    """
    content = path.read_bytes()
    if path.suffix != ENDING:
        return load(content, str(path))
    known = cluster_id or cluster_of_directories(parsed(content.decode(errors="replace")))
    return config_of(content, str(path), cluster_id=known, host=socket.gethostname())


def cluster_of_directories(given: Mapping[str, str]) -> str | None:
    """Return the cluster that the directories of a file of Kafka's are formatted for; None: they are not."""
    for directory in [given.get("metadata.log.dir", ""), *words(given.get("log.dirs", given.get("log.dir", "")))]:
        with suppress(OSError):
            found = parsed((Path(directory) / META_PROPERTIES).read_text(errors="replace")).get("cluster.id")
            if directory and found:
                return found
    return None
