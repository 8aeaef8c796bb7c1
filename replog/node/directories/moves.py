"""Moving replicas from one log directory of this broker to another while they are used (AlterReplicaLogDirs, KIP-113).

One move at a time, a megabyte at a time, so that nobody else has to wait; where the copy has caught up, the last step is taken in
one go, and nothing can be appended in between. The folder of a copy says what was wanted: a broker that ended in the middle
of a move begins it again. Where a replica is not here yet, what is asked for is where it will be created.

The controller is notified afterwards (`assignments.py`). Until then the metadata names the replica's former directory;
if the new one fails before, the controller moves the leadership once it has the notification.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from replog.errors import Error
from replog.log.batch import CorruptBatch
from replog.log.log import Log
from replog.log.moving import LogCopy
from replog.node.directories.log_directories import LogDirectories
from replog.node.replication.replicas import Replica, Replicas
from replog.node.tasks import Tasks
from replog.types import ZERO_UUID, TopicPartition

WAIT_MS: Final = 100  # for a log whose end was compacted away: the next record brings a new one
DELETE_DELAY_MS: Final = 60_000  # reads and syncs that had begun have long ended then


class DirectoryMoves:
    """What is being moved on one broker."""

    def __init__(
        self, replicas: Replicas, directories: LogDirectories, on_moved: Callable[[], None], tasks: Tasks
    ) -> None:
        self.replicas = replicas
        self.directories = directories
        self.on_moved = on_moved
        self.tasks = tasks
        self.world = replicas.world
        self.copies: dict[TopicPartition, LogCopy] = {}
        self._wanted: dict[TopicPartition, str] = {}
        self._is_moving = False

    def move(self, name: TopicPartition, path: str) -> Error:
        """Begin to move a replica; asking for where it is calls off a move that is under way."""
        if path not in self.directories.paths:
            return Error.LOG_DIR_NOT_FOUND
        if path in self.directories.offline:
            return Error.KAFKA_STORAGE_ERROR
        stored = self.directories.find(name)
        if path in self.directories.cordoned and (stored is None or stored.directory != path):
            return Error.INVALID_REPLICA_ASSIGNMENT
        return self._accept(name, path)

    def _accept(self, name: TopicPartition, path: str) -> Error:
        stored = self.directories.find(name)
        if self.replicas.find(name) is None or stored is None:
            return self._prefer(name, path)
        self._wanted.pop(name, None)
        if stored.directory != path:
            self._wanted[name] = path
            self._begin()
        return Error.NONE

    def _prefer(self, name: TopicPartition, path: str) -> Error:
        error = self.replicas.missing_error(name.topic, ZERO_UUID, name.partition)
        if error is not Error.NOT_LEADER_OR_FOLLOWER:
            return error
        self.directories.preferred[name] = path
        return Error.REPLICA_NOT_AVAILABLE  # as Kafka says; tools ask again

    def look(self) -> None:
        """Begin again what the end of an earlier process interrupted."""
        for name, path in list(self.directories.unfinished.items()):
            if self.replicas.find(name) is not None:
                del self.directories.unfinished[name]
                if path in self.directories.online:
                    self._accept(name, path)  # it had begun: a cordon does not call it off

    def _begin(self) -> None:
        if not self._is_moving:
            self._is_moving = True
            self.tasks.start(self._run())

    async def _run(self) -> None:
        while self._wanted:
            name, path = next(iter(self._wanted.items()))
            try:
                await self._move(name, path)
            except OSError as problem:
                self._wanted.pop(name, None)
                self.copies.pop(name, None)
                self.directories.fail(path, problem)
            except CorruptBatch as problem:
                self._give_up(name, f"not moved to {path}: {problem}")
        self._is_moving = False

    async def _move(self, name: TopicPartition, path: str) -> None:
        """Copy until the copy is the log, or nobody wants it any more."""
        is_synced = False
        while self._wanted.get(name) == path and (replica := self._movable(name, path)) is not None:
            copy = self.copies.get(name)
            if copy is None or copy.is_void or copy.source is not replica.partition.log:
                self._drop(name)
                copy = self.copies[name] = self.directories.begin_copy(name, path)
            try:
                content = copy.next_batches()
            except OSError as problem:
                replica.partition.go_offline(problem)
                continue
            copy.add(content, self.world.clock.wall_ms())
            if not copy.is_complete:
                await asyncio.sleep(0 if content else WAIT_MS / 1000)
            elif is_synced:
                self._finish(replica, path)
                return
            else:  # what comes meanwhile is little
                flush = copy.log.begin_flush()
                await self.world.disk.sync_in_background(flush.files)
                copy.log.complete_flush(flush)
                is_synced = True
        if self._wanted.get(name) == path:
            del self._wanted[name]
        self._drop(name)

    def _movable(self, name: TopicPartition, path: str) -> Replica | None:
        """Return the replica while it is in use and the directory that it moves to has not failed."""
        replica = self.replicas.find(name)
        if replica is None or replica.partition.is_offline or path in self.directories.offline:
            return None
        return replica

    def _finish(self, replica: Replica, path: str) -> None:
        """Let the copy be the log: whoever asks from now on reads and writes there."""
        name = replica.name
        copy, former = self.copies.pop(name), replica.partition.log
        del self._wanted[name]
        self.directories.note_high_watermark(name, replica.partition.high_watermark)
        left = self.directories.take_copy(name, copy)
        replica.partition.log = self.directories.logs[name].log
        self.replicas.flushed(replica)
        self.on_moved()
        self.world.journal.log("info", f"{name}: moved to {path}")
        self.world.journal.probe("replica_changed_directory")
        if left is not None:
            self._delete_later(former, left)

    def _delete_later(self, former: Log, left: str) -> None:
        path = former.directory.rpartition("/")[0]

        def delete() -> None:
            former.close_files()
            if path not in self.directories.offline:
                try:
                    self.world.disk.remove_tree(left)
                except OSError as problem:
                    self.directories.fail(path, problem)

        asyncio.get_running_loop().call_later(DELETE_DELAY_MS / 1000, delete)

    def _give_up(self, name: TopicPartition, why: str) -> None:
        self.world.journal.log("warning", f"{name}: {why}")
        self._wanted.pop(name, None)
        self._drop(name)

    def _drop(self, name: TopicPartition) -> None:
        copy = self.copies.pop(name, None)
        if copy is None:
            return
        path = copy.directory.rpartition("/")[0]  # of an earlier move, perhaps: not where it goes now
        if path in self.directories.offline:
            return
        try:
            copy.drop()
        except OSError as problem:
            self.directories.fail(path, problem)
