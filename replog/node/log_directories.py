"""A broker's log directories: which logs lie where, opened with the right amount of distrust, kept durable.

A directory holds one folder per replica (`topic-partition`) and the checkpoints of all of them. A folder whose topic id is
not the committed one belongs to a topic that is gone; it is put aside under another name, never opened and never
deleted, because the metadata might be the part that is wrong.
"""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

import msgspec

from replog.log.checkpoints import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    CorruptCheckpoint,
    read_offsets,
    write_offsets,
)
from replog.log.clean_shutdown import LogDirectory, shutdown, startup, write_checkpoints
from replog.log.creation import files_of_new_log
from replog.log.log import Log
from replog.log.settings import LogSettings
from replog.ports import NewFolder, World
from replog.types import METADATA_TOPIC, NO_BROKER_EPOCH, BrokerEpoch, TopicPartition

STRAY_SUFFIX = "-stray"


class NewLog(NamedTuple):
    """A log that is to be: `leader_epoch` is None where this broker follows."""

    name: TopicPartition
    topic_id: UUID
    leader_epoch: int | None


class StoredLog(msgspec.Struct, kw_only=True):
    """An open log, where it lies, and the high watermark known when it was opened."""

    directory: str
    log: Log
    high_watermark: int


class LogDirectories:
    """All log directories of one broker."""

    def __init__(self, world: World, paths: list[str], defaults: LogSettings) -> None:
        self.world = world
        self.paths = paths
        self.defaults = defaults
        self.logs: dict[TopicPartition, StoredLog] = {}
        self.previous_broker_epoch = NO_BROKER_EPOCH
        self._written: dict[str, dict[TopicPartition, int]] = {}
        self._prepared: dict[TopicPartition, str] = {}

    def open(self) -> None:
        """Open all logs there are; to be called once, before anything else (SPEC 3.11.1, 3.11.2)."""
        for path in self.paths:
            self.world.disk.make_directory(path)
        left = startup(self.world.disk, self.paths)
        self.previous_broker_epoch = left.previous_broker_epoch
        for path in self.paths:
            self._open_directory(path, recover=left.needs_recovery[path])

    def _open_directory(self, path: str, *, recover: bool) -> None:
        recovery_points = self._offsets(path, RECOVERY_POINTS)
        log_starts = self._offsets(path, LOG_STARTS)
        high_watermarks = self._offsets(path, HIGH_WATERMARKS)
        for folder in self.world.disk.list_directory(path):
            name = partition_of(folder)
            if name is None or name in self.logs:
                continue
            log = Log.open(
                self.world.disk,
                f"{path}/{folder}",
                self.defaults,
                recover=recover,
                recovery_point=recovery_points.get(name, 0),
                log_start_offset=log_starts.get(name, 0),
                now_ms=self.world.clock.wall_ms(),
            )
            if log.cut is not None:
                self.world.journal.log("warning", f"{name}: cut at {log.cut.offset} in recovery: {log.cut.reason}")
                self.world.journal.probe("recovery_cut_log")
            # SPEC 3.5.7: a missing entry means that nothing above the log start is known to be committed.
            high_watermark = high_watermarks.get(name, log.log_start_offset)
            self.logs[name] = StoredLog(directory=path, log=log, high_watermark=high_watermark)

    def _offsets(self, path: str, file: str) -> dict[TopicPartition, int]:
        try:
            return read_offsets(self.world.disk, f"{path}/{file}")
        except CorruptCheckpoint as problem:
            # All three are lower bounds: without them recovery reads more, and high watermarks are learnt again.
            self.world.journal.log("warning", f"{path}/{file}: {problem}; going on without")
            return {}

    def find(self, name: TopicPartition) -> StoredLog | None:
        """Return an open log."""
        return self.logs.get(name)

    async def prepare(self, wanted: Sequence[NewLog]) -> None:
        """Lay down the files of logs that are not here, each in the directory with the fewest, for `create` to open."""
        counts = self._counts()
        folders: list[NewFolder] = []
        for new in wanted:
            path = self._prepared[new.name] = min(self.paths, key=counts.__getitem__)
            counts[path] += 1
            files = files_of_new_log(new.topic_id, leader_epoch=new.leader_epoch)
            folders.append(NewFolder(f"{path}/{new.name}", files))
        await self.world.disk.create_in_background(folders)

    def drop_prepared(self, name: TopicPartition) -> None:
        """Remove what was prepared for a log that is not wanted any more."""
        path = self._prepared.pop(name)
        self.world.disk.remove_tree(f"{path}/{name}")
        self.world.disk.sync_directory(path)

    def _counts(self) -> dict[str, int]:
        counts = dict.fromkeys(self.paths, 0)
        for stored in self.logs.values():
            counts[stored.directory] += 1
        return counts

    def create(self, name: TopicPartition, settings: LogSettings) -> StoredLog:
        """Create an empty log where it was prepared, or in the directory with the fewest."""
        path = self._prepared.pop(name, None)
        if path is None:
            counts = self._counts()
            path = min(self.paths, key=counts.__getitem__)
        log = Log.open(
            self.world.disk,
            f"{path}/{name}",
            settings,
            recover=False,
            recovery_point=0,
            log_start_offset=0,
            now_ms=self.world.clock.wall_ms(),
        )
        self.logs[name] = StoredLog(directory=path, log=log, high_watermark=0)
        return self.logs[name]

    def delete(self, name: TopicPartition) -> None:
        """Remove a log with its files."""
        self.logs.pop(name).log.delete()

    def put_aside(self, name: TopicPartition) -> None:
        """Rename the folder of a log that no committed partition claims."""
        stored = self.logs.pop(name)
        stored.log.close_files()
        disk = self.world.disk
        number = 0
        while disk.exists(f"{stored.directory}/{name}.{number}{STRAY_SUFFIX}"):
            number += 1
        disk.rename(f"{stored.directory}/{name}", f"{stored.directory}/{name}.{number}{STRAY_SUFFIX}")
        disk.sync_directory(stored.directory)
        self.world.journal.log("warning", f"{name}: belongs to no partition of this cluster; put aside")

    def note_high_watermark(self, name: TopicPartition, high_watermark: int) -> None:
        """Remember what the next checkpoint writes."""
        stored = self.logs.get(name)
        if stored is not None:
            stored.high_watermark = high_watermark

    def write_high_watermarks(self) -> None:
        """Checkpoint the high watermarks of all directories in which one moved (SPEC 3.5.7)."""
        for directory in self._directories():
            if self._written.get(directory.path) != directory.high_watermarks:
                self._written[directory.path] = dict(directory.high_watermarks)
                write_offsets(self.world.disk, f"{directory.path}/{HIGH_WATERMARKS}", directory.high_watermarks)

    async def flush(self) -> None:
        """Make durable what is not yet, without holding up the event loop, and checkpoint how far that is."""
        for stored in list(self.logs.values()):
            flush = stored.log.begin_flush()
            if flush.files:
                await self.world.disk.sync_in_background(flush.files)
                stored.log.complete_flush(flush)
        for directory in self._directories():
            write_checkpoints(self.world.disk, directory)

    def close_in_order(self, broker_epoch: BrokerEpoch) -> None:
        """Close everything and say so for the next start; a directory that fails gets no such word."""
        for path, problem in shutdown(self.world.disk, self._directories(), broker_epoch).items():
            self.world.journal.log("error", f"{path}: not closed in order: {problem}")

    def _directories(self) -> list[LogDirectory]:
        return [
            LogDirectory(
                path,
                {name: stored.log for name, stored in self.logs.items() if stored.directory == path},
                {name: stored.high_watermark for name, stored in self.logs.items() if stored.directory == path},
            )
            for path in self.paths
        ]


def partition_of(folder: str) -> TopicPartition | None:
    """Return the partition that a folder name stands for; None for everything else in a log directory."""
    topic, dash, index = folder.rpartition("-")
    if not dash or not topic or not index.isdigit() or topic == METADATA_TOPIC:
        return None
    return TopicPartition(topic, int(index))
