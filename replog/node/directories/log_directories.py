"""A broker's log directories: which logs lie where, opened with the right amount of distrust, kept durable.

A directory that fails, at start or later, is offline for the rest of this process with all its logs: what the process holds
of them and what the disk holds may differ, and after an fsync that failed nobody can find out. The others go on. A
partition whose log lies in an offline directory gets no new one: an empty log in the name of a full one is a loss.

A directory holds one folder per replica (`topic-partition`) and the checkpoints of all of them. A folder whose topic id is
not the committed one belongs to a topic that is gone; it is put aside under another name, never opened and never
deleted, because the metadata might be the part that is wrong.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple
from uuid import UUID

import msgspec

from replog.log.checkpoints import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    CorruptCheckpoint,
    read_offsets,
    rendered_offsets,
)
from replog.log.clean_shutdown import LogDirectory, checkpoints_of, recovery_checkpoints_of, shutdown, startup
from replog.log.creation import files_of_new_log
from replog.log.log import Log
from replog.log.moving import CUT, DELETE_SUFFIX, FUTURE_SUFFIX, LogCopy, beside, delete_log, goes_further, put_away
from replog.log.settings import LogSettings
from replog.node.directories.checkpoint_files import CheckpointFiles
from replog.node.directories.meta_properties import FILE_NAME
from replog.node.quorum.metadata_log import directory_id_of
from replog.ports import NewFolder, World
from replog.types import METADATA_TOPIC, NO_BROKER_EPOCH, BrokerEpoch, TopicPartition

STRAY_SUFFIX = "-stray"

OnFailure = Callable[[str, list[TopicPartition]], None]


class NoDirectory(Exception):
    """No log directory can be used; the message says why not the last one."""


class NewLog(NamedTuple):
    """A log that is to be: `leader_epoch` is None where this broker follows."""

    name: TopicPartition
    topic_id: UUID
    leader_epoch: int | None


class Prepared(NamedTuple):
    """A log whose files lie in a directory, durable, and are not open yet."""

    path: str
    new: NewLog


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
        self.ids: dict[str, UUID] = {}  # by path, as far as they could be read
        self.offline: dict[str, str] = {}  # by path, why; in the order they failed
        self.cordoned: list[str] = []  # take no new logs, as long as there are others (KIP-1066)
        self.preferred: dict[TopicPartition, str] = {}  # where a log is to be created, if somebody has said so
        self.unfinished: dict[TopicPartition, str] = {}  # logs that were on their way to this directory
        self._on_failure: OnFailure = _take_note
        self.previous_broker_epoch = NO_BROKER_EPOCH
        self._written: dict[str, dict[TopicPartition, int]] = {}
        self._prepared: dict[TopicPartition, Prepared] = {}
        self._competing_logs: dict[TopicPartition, list[StoredLog]] = {}  # other topics' logs of the same name
        self._have_cut_logs = False  # at the start one ended below its checkpointed recovery point
        # By path: logs that its checkpoints may still name, each with the number of its going.
        self._gone: dict[str, dict[TopicPartition, int]] = {}
        self._gone_count = 0
        self._checkpoints = CheckpointFiles(world.disk, self.fail)

    def open(self, on_failure: OnFailure | None = None) -> None:
        """Open all logs there are; to be called once, before anything else (SPEC 3.11.1, 3.11.2).

        on_failure:  called for each directory that fails later, and of the logs in it.
        Raises `NoDirectory` when there is none left to work with.
        """
        for path in self.paths:
            self._try(path, self._prepare_directory)
        left = startup(self.world.disk, self.paths)
        self.previous_broker_epoch = left.previous_broker_epoch
        for path, problem in left.failures.items():
            self.fail(path, problem)
        for path in self.online:
            self._try(path, lambda path: self._open_directory(path, recover=left.needs_recovery[path]))
        if self._have_cut_logs:
            self.write_recovery_points()
        if not self.online:
            path, reason = list(self.offline.items())[-1]
            raise NoDirectory(f"no log directory can be used; {path}: {reason}")
        if on_failure is not None:
            self._on_failure = on_failure

    def _try(self, path: str, work: Callable[[str], None]) -> None:
        try:
            work(path)
        except OSError as problem:
            self.fail(path, problem)

    def _prepare_directory(self, path: str) -> None:
        disk = self.world.disk
        disk.make_directory(path)
        self.ids[path] = directory_id_of(disk, path)
        if disk.exists(f"{path}/{FILE_NAME}"):
            disk.open(f"{path}/{FILE_NAME}").close()  # refused by a file system that is mounted read-only

    @property
    def online(self) -> list[str]:
        """Return the directories that work."""
        return [path for path in self.paths if path not in self.offline]

    @property
    def cordoned_ids(self) -> list[UUID]:
        """Return the ids of the directories that take no new logs."""
        return [self.ids[path] for path in self.cordoned if path in self.ids]

    @property
    def online_ids(self) -> list[UUID]:
        """Return the ids of the directories that work."""
        return [self.ids[path] for path in self.online if path in self.ids]

    def fail(self, path: str, problem: OSError) -> None:
        """Take a directory offline, for the rest of this process; its logs are no logs any more."""
        if path in self.offline:
            return
        self.offline[path] = str(problem)
        self._checkpoints.stop(path)
        self.world.journal.log("error", f"{path}: {problem}; it is offline now, with all its logs")
        self.world.journal.probe("log_directory_failed")
        lost = [name for name, stored in self.logs.items() if stored.directory == path]
        for name in lost:
            with suppress(OSError):
                self.logs.pop(name).log.close_files()
        self._on_failure(path, lost)

    def fail_directory_of(self, name: TopicPartition, problem: OSError, log: Log | None = None) -> None:
        """Take the directory offline that a log lies in; nothing to do where it is already.

        log:  whose trouble it is, where known; the files of one that was deleted are closed, not broken.
        """
        stored = self.logs.get(name)
        if stored is not None and (log is None or stored.log is log):
            self.fail(stored.directory, problem)

    def _open_directory(self, path: str, *, recover: bool) -> None:
        recovery_points = self._offsets(path, RECOVERY_POINTS)
        log_starts = self._offsets(path, LOG_STARTS)
        high_watermarks = self._offsets(path, HIGH_WATERMARKS)
        for folder in self.world.disk.list_directory(path):
            name = partition_of(folder)
            if name is None:
                self._clear_up(path, folder)
                continue
            log_start_offset = log_starts.get(name, 0)
            log = Log.open(
                self.world.disk,
                f"{path}/{folder}",
                self.defaults,
                recover=recover,
                recovery_point=recovery_points.get(name, 0),
                log_start_offset=log_start_offset,
                now_ms=self.world.clock.wall_ms(),
                was_closed_in_order=not recover,
                high_watermark=high_watermarks.get(name, log_start_offset),
            )
            if log.cut is not None:
                self.world.journal.log("warning", f"{name}: cut at {log.cut.offset} in recovery: {log.cut.reason}")
                self.world.journal.probe("recovery_cut_log")
                self.previous_broker_epoch = NO_BROKER_EPOCH  # KIP-966: nobody may count on what was here
            if log.missing_from is not None:
                what = f"{log.segments[0].base_offset} comes first, {log.missing_from} is missing"
                self.world.journal.log("error", f"{name}: {what}; it is fetched again where another replica has it")
                self.world.journal.probe("log_start_missing")
                self.previous_broker_epoch = NO_BROKER_EPOCH
            self._have_cut_logs |= log.flushed_offset < recovery_points.get(name, 0)
            # SPEC 3.5.7: a missing entry means that nothing above the log start is known to be committed.
            high_watermark = high_watermarks.get(name, log.log_start_offset)
            if high_watermark > log.log_end_offset:
                what = f"ends at {log.log_end_offset}, and records below {high_watermark} were committed"
                self.world.journal.log(
                    "warning", f"{name}: {what}; they are fetched again where another replica has them"
                )
            self._keep(name, StoredLog(directory=path, log=log, high_watermark=high_watermark))
        for name in {**recovery_points, **log_starts, **high_watermarks}:
            if name not in self.logs or self.logs[name].directory != path:
                self._note_gone(path, name)

    def _clear_up(self, path: str, folder: str) -> None:
        """Remove what a deletion, or a move between directories, left when this broker ended in the middle of it (KIP-113)."""
        for suffix in (FUTURE_SUFFIX, DELETE_SUFFIX):
            name = partition_of(folder.removesuffix(suffix)) if folder.endswith(suffix) else None
            if name is not None or (folder.endswith(suffix) and CUT in folder):
                self.world.disk.remove_tree(f"{path}/{folder}")
            if name is not None and suffix == FUTURE_SUFFIX:
                self.unfinished[name] = path  # a name that was cut does not say whose move it was

    def _keep(self, name: TopicPartition, found: StoredLog) -> None:
        """Keep a log; of two of one name, which a move that was not finished leaves, the one that goes further.

        A directory that was offline may hold the log of a topic that was deleted meanwhile, and created again in another
        directory: which of them is wanted is said by the metadata (`choose`).
        """
        other = self.logs.get(name)
        if other is None:
            self.logs[name] = found
            return
        first, second = (found, other) if goes_further(found.log, other.log) else (other, found)
        self.logs[name] = first
        if first.log.topic_id != second.log.topic_id and None not in (first.log.topic_id, second.log.topic_id):
            self._competing_logs.setdefault(name, []).append(second)
        else:
            self._put_aside(name, second)

    def choose(self, name: TopicPartition, topic_id: UUID | None) -> None:
        """Of several topics' logs of one name keep that of this topic, and put the others aside."""
        for competing in self._competing_logs.pop(name, []):
            if competing.directory in self.offline:
                continue
            other = competing
            if competing.log.topic_id == topic_id and name in self.logs:
                other, self.logs[name] = self.logs[name], competing
            elif competing.log.topic_id == topic_id:
                self.logs[name] = competing
                continue
            try:
                self._put_aside(name, other)
            except OSError as problem:
                self.fail(other.directory, problem)

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
        """Lay down the files of logs that are not here, each in the directory with the fewest, for `create` to open.

        Those of a directory that fails are left to `create`, which finds them another.
        """
        counts = self._counts()
        folders: dict[str, list[NewFolder]] = {path: [] for path in counts}
        for new in wanted:
            path = self._home(new.name, counts)
            self._prepared[new.name] = Prepared(path, new)
            counts[path] += 1
            files = files_of_new_log(new.topic_id, leader_epoch=new.leader_epoch)
            folders[path].append(NewFolder(f"{path}/{new.name}", files))
        for path, new_folders in folders.items():
            try:
                self._forget_former(path, [new.name for new in wanted if self._prepared[new.name].path == path])
                await self.world.disk.create_in_background(new_folders)
            except OSError as problem:
                self.fail(path, problem)
        self._prepared = {name: one for name, one in self._prepared.items() if one.path not in self.offline}

    def drop_prepared(self, name: TopicPartition) -> None:
        """Remove what was prepared for a log that is not wanted any more."""
        prepared = self._prepared.pop(name, None)
        if prepared is None or prepared.path in self.offline:
            return
        try:
            self.world.disk.remove_tree(f"{prepared.path}/{name}")
            self.world.disk.sync_directory(prepared.path)
        except OSError as problem:
            self.fail(prepared.path, problem)

    def _counts(self) -> dict[str, int]:
        counts = dict.fromkeys(self.online, 0)
        for stored in self.logs.values():
            counts[stored.directory] += 1
        return counts

    def _home(self, name: TopicPartition, counts: dict[str, int]) -> str:
        """Return the directory for a new log: the one that was asked for, or the one with the fewest."""
        preferred = self.preferred.pop(name, None)
        if preferred in counts:
            return preferred
        # The controller may have learned of a cordon after it had chosen this broker: a log needs a place all the same.
        open_to_new = [path for path in counts if path not in self.cordoned] or list(counts)
        return min(open_to_new, key=counts.__getitem__)

    def create(self, name: TopicPartition, settings: LogSettings) -> StoredLog:
        """Create an empty log where it was prepared, or in the directory with the fewest; the next one if that fails.

        Raises the last directory's `OSError`.
        """
        prepared = self._prepared.pop(name, None)
        if prepared is not None and prepared.path in self.offline:
            prepared = None
        path = self._home(name, self._counts()) if prepared is None else prepared.path
        try:
            self._forget_former(path, [name])
            log = self._new_log(f"{path}/{name}", settings, None if prepared is None else prepared.new)
        except OSError as problem:
            self.fail(path, problem)
            if not self.online:
                raise
            return self.create(name, settings)
        self.logs[name] = StoredLog(directory=path, log=log, high_watermark=0)
        return self.logs[name]

    def _new_log(self, folder: str, settings: LogSettings, laid_down: NewLog | None) -> Log:
        disk, now_ms = self.world.disk, self.world.clock.wall_ms()
        if laid_down is not None:
            topic_id, leader_epoch = laid_down.topic_id, laid_down.leader_epoch
            return Log.begin(disk, folder, settings, topic_id=topic_id, leader_epoch=leader_epoch, now_ms=now_ms)
        return Log.open(disk, folder, settings, recover=False, recovery_point=0, log_start_offset=0, now_ms=now_ms)

    def delete(self, name: TopicPartition) -> None:
        """Remove a log with its files."""
        stored = self.logs.pop(name)
        self._note_gone(stored.directory, name)
        delete_log(self.world.disk, stored.log)

    def _note_gone(self, path: str, name: TopicPartition) -> None:
        self._gone_count += 1
        self._gone.setdefault(path, {})[name] = self._gone_count

    def _forget_former(self, path: str, names: Sequence[TopicPartition]) -> None:
        """Take former logs of these names out of a directory's checkpoints, before others of the same names begin there.

        Checkpoints know no topic ids: a crash before the next would leave the new log with the old one's start, high
        watermark and recovery point. Raises the directory's `OSError`.
        """
        if any(name in self._gone.get(path, {}) for name in names):
            self._written.pop(path, None)
            directory = next(directory for directory in self._directories() if directory.path == path)
            self._checkpoints.write(path, checkpoints_of(directory))
            self._gone.pop(path, None)

    def _begin_checkpoints(self, directory: LogDirectory) -> None:
        """Write all checkpoints of a directory in the background; what is gone now they name no more when that is done."""
        path, gone = directory.path, dict(self._gone.get(directory.path, {}))

        def forget() -> None:
            left = {name: number for name, number in self._gone.get(path, {}).items() if gone.get(name) != number}
            self._gone[path] = left

        self._checkpoints.begin(path, checkpoints_of(directory), forget)

    def begin_copy(self, name: TopicPartition, path: str) -> LogCopy:
        """Begin to copy a log into another directory. Raises that directory's `OSError`."""
        self._forget_former(path, [name])
        log = self.logs[name].log
        return LogCopy(self.world.disk, log, f"{path}/{name}", self.world.clock.wall_ms())

    def take_copy(self, name: TopicPartition, copy: LogCopy) -> str | None:
        """Let a complete copy be the log; return the folder of the former one, to be removed once nobody has it open.

        returns:  None where the former log's directory has failed meanwhile.
        Raises the new directory's `OSError`; then nothing has changed.
        """
        stored = self.logs[name]
        log = copy.become_the_log(self.world.clock.wall_ms())
        former = msgspec.structs.replace(stored)
        self._note_gone(former.directory, name)
        stored.log, stored.directory = log, copy.directory.rpartition("/")[0]
        try:
            left = put_away(self.world.disk, former.log)
        except OSError as problem:
            self.fail(former.directory, problem)
            return None
        self._written.clear()
        self.write_recovery_points()
        self._write_high_watermarks()
        return left

    def put_aside(self, name: TopicPartition) -> None:
        """Rename the folder of a log that no committed partition claims."""
        self._put_aside(name, self.logs.pop(name))

    def _put_aside(self, name: TopicPartition, stored: StoredLog) -> None:
        self._note_gone(stored.directory, name)
        stored.log.close_files()
        disk = self.world.disk
        number = 0
        former = f"{stored.directory}/{name}"
        while disk.exists(beside(former, f".{number}{STRAY_SUFFIX}")):
            number += 1
        disk.rename(former, beside(former, f".{number}{STRAY_SUFFIX}"))
        disk.sync_directory(stored.directory)
        self.world.journal.log("warning", f"{name}: belongs to no partition of this cluster; put aside")

    def note_high_watermark(self, name: TopicPartition, high_watermark: int) -> None:
        """Remember what the next checkpoint writes."""
        stored = self.logs.get(name)
        if stored is not None:
            stored.high_watermark = high_watermark

    def begin_high_watermarks(self) -> None:
        """Checkpoint, in the background, the high watermarks of all directories in which one moved (SPEC 3.5.7)."""
        for directory in self._with_other_high_watermarks():
            content = rendered_offsets(directory.high_watermarks)
            self._checkpoints.begin(directory.path, {HIGH_WATERMARKS: content}, _nothing)

    def _write_high_watermarks(self) -> None:
        for directory in self._with_other_high_watermarks():
            self._write_now(directory.path, {HIGH_WATERMARKS: rendered_offsets(directory.high_watermarks)})

    def _with_other_high_watermarks(self) -> list[LogDirectory]:
        """Return the directories in which a high watermark moved since it was asked last."""
        moved = [one for one in self._directories() if self._written.get(one.path) != one.high_watermarks]
        self._written.update({one.path: dict(one.high_watermarks) for one in moved})
        return moved

    def write_recovery_points(self) -> None:
        """Checkpoint how far logs are durable: after a truncation at once, for what is written next may be new below it.

        With where they begin: a log that was cut below its start begins there, and the next start would hide what comes then.
        """
        for directory in self._directories():
            self._write_now(directory.path, recovery_checkpoints_of(directory))

    def _write_now(self, path: str, files: dict[str, bytes]) -> None:
        try:
            self._checkpoints.write(path, files)
        except OSError as problem:
            self.fail(path, problem)

    async def flush(self) -> None:
        """Make durable what is not yet, without holding up the event loop, and checkpoint how far that is."""
        for name, stored in list(self.logs.items()):
            if self.logs.get(name) is stored:
                path = stored.directory  # of what is synced: the log may lie elsewhere when the disk says no
                try:
                    await self._flush(name, stored)
                except OSError as problem:
                    # Never a second try: Linux forgets what it could not write, and the next fsync says yes.
                    self.fail(path, problem)
        for directory in self._directories():
            self._begin_checkpoints(directory)

    async def _flush(self, name: TopicPartition, stored: StoredLog) -> None:
        log = stored.log
        flush = log.begin_flush()
        if flush.files:
            await self.world.disk.sync_in_background(flush.files)
            if self.logs.get(name) is stored and stored.log is log:  # neither deleted nor moved meanwhile
                log.complete_flush(flush)

    def close_in_order(self, broker_epoch: BrokerEpoch) -> None:
        """Close everything and say so for the next start; a directory that fails gets no such word."""
        for path in self.paths:
            self._checkpoints.stop(path)
        for path, problem in shutdown(self.world.disk, self._directories(), broker_epoch).items():
            self.world.journal.log("error", f"{path}: not closed in order: {problem}")

    def _directories(self) -> list[LogDirectory]:
        return [
            LogDirectory(
                path,
                {name: stored.log for name, stored in self.logs.items() if stored.directory == path},
                {name: stored.high_watermark for name, stored in self.logs.items() if stored.directory == path},
            )
            for path in self.online
        ]


def _nothing() -> None:
    """Do nothing: nobody waits for it."""


def _take_note(path: str, lost: list[TopicPartition]) -> None:
    """Do nothing: there are no replicas yet."""


def partition_of(folder: str) -> TopicPartition | None:
    """Return the partition that a folder name stands for; None for everything else in a log directory."""
    topic, dash, index = folder.rpartition("-")
    if not dash or not topic or not index.isdecimal() or topic == METADATA_TOPIC:
        return None
    return TopicPartition(topic, int(index))
