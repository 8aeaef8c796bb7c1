"""What follows from a log directory that fails while the broker runs (KIP-112, KIP-858).

Its replicas are taken away: who waits for them and who asks for them is answered KAFKA_STORAGE_ERROR, the controller is notified of
it with the next heartbeat, which is sent at once, and moves the leaderships. A broker that is left with no directory, or
loses the one that its part of the metadata quorum writes to, ends; so does one that loses any in ZooKeeper mode.
"""

import asyncio
from collections.abc import Callable
from uuid import UUID

from replog.metadata.state import LOST
from replog.node.directories.log_directories import LogDirectories, NoDirectory
from replog.node.replication.replicas import Replica, Replicas
from replog.types import TopicPartition


class DirectoryFailures:
    """Takes replicas away with their directory."""

    def __init__(
        self,
        replicas: Replicas,
        directories: LogDirectories,
        *,
        metadata_path: str,
        report: Callable[[UUID], None],
        needs_all: bool,
    ) -> None:
        """`needs_all`: the broker cannot go on without any of its directories."""
        self.replicas = replicas
        self.directories = directories
        self.metadata_path = metadata_path
        self.report = report
        self.needs_all = needs_all

    def on_failure(self, path: str, names: list[TopicPartition]) -> None:
        """Serve nothing of it from now on, and clear up once whoever noticed has come to an end."""
        replicas = [replica for replica in map(self.replicas.find, names) if replica is not None]
        for replica in replicas:
            replica.partition.is_offline = True
        loop = asyncio.get_running_loop()
        if path == self.metadata_path or not self.directories.online or self.needs_all:
            reason = f"{path}: {self.directories.offline[path]}"
            context = {"message": "the broker cannot go on without this directory", "exception": NoDirectory(reason)}
            loop.call_exception_handler(context)
            return
        directory_id = self.directories.ids.get(path, LOST)
        loop.call_soon(self._take_away, replicas, directory_id)
        if directory_id != LOST:
            self.report(directory_id)

    def _take_away(self, replicas: list[Replica], directory_id: UUID) -> None:
        for replica in replicas:
            if replica.is_hosted:
                self.replicas.offline[replica.key] = directory_id
                self.replicas.remove(replica)
