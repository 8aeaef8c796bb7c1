"""A log that moves to another directory of its broker (KIP-113): copied beside its use, then the copy becomes the log.

The copy is made as a follower makes one, whole batches with their offsets and epochs, in a folder of its own name
(`-future`). When it holds what the log holds, it is synced and renamed to what the log is called, and only then the old
folder is put out of the way (`-delete`). A crash between the two leaves two folders of one name that hold the same; whoever
opens them takes the one that goes further (`goes_further`). Producers and epochs need no copying: they are the log's own.

A log that is cut while it is copied is copied anew: what the copy has may be what was cut.
"""

from contextlib import suppress
from typing import Final

from replog.log.log import Log
from replog.ports import Disk

FUTURE_SUFFIX: Final = "-future"
DELETE_SUFFIX: Final = "-delete"
STEP_BYTES: Final = 1 << 20
FOLDER_NAME_MAX: Final = 255  # characters of a name; topics may have 249
CUT: Final = "~"  # in no topic's name


def beside(directory: str, suffix: str) -> str:
    """Return the folder of this suffix beside a log's own; a name that leaves no room for the suffix is cut."""
    path = f"{directory}{suffix}"
    parent, _, name = path.rpartition("/")
    if len(name) <= FOLDER_NAME_MAX:
        return path
    topic, _, index = directory.rpartition("/")[2].rpartition("-")
    end = f"{CUT}{index}{suffix}"
    return f"{parent}/{topic[: FOLDER_NAME_MAX - len(end)]}{end}"


class LogCopy:
    """A copy on its way to become the log."""

    def __init__(self, disk: Disk, log: Log, directory: str, now_ms: int) -> None:
        """Begin with nothing. directory: what the log will be called, in another log directory."""
        self.disk = disk
        self.source = log
        self.directory = directory
        self.path = beside(directory, FUTURE_SUFFIX)
        self._truncation_count = log.truncation_count
        disk.remove_tree(self.path)
        self.log = Log.open(
            disk,
            self.path,
            log.settings,
            recover=False,
            recovery_point=0,
            log_start_offset=log.log_start_offset,
            now_ms=now_ms,
        )
        if log.topic_id is not None:
            self.log.assign_topic_id(log.topic_id)
        if log.expects_gaps:
            self.log.expect_gaps()

    @property
    def is_void(self) -> bool:
        """Return whether the log was cut, or what comes next in it is gone: then a new copy is needed."""
        was_cut = self.source.truncation_count != self._truncation_count
        return was_cut or self.source.log_start_offset > self.log.log_end_offset

    @property
    def is_complete(self) -> bool:
        """Return whether the copy holds all that the log holds now."""
        return not self.is_void and self.log.log_end_offset == self.source.log_end_offset

    def next_batches(self) -> bytes:
        """Return what comes next in the log. Raises `OSError` of the log's directory."""
        return self.source.read(
            self.log.log_end_offset,
            max_bytes=STEP_BYTES,
            end_offset=self.source.log_end_offset,
            at_least_one=True,
        )

    def add(self, content: bytes, now_ms: int) -> None:
        """Copy these batches. Raises `CorruptBatch` if what the disk gave back is damaged, `OSError` of the copy's directory."""
        if self.source.expects_gaps and not self.log.expects_gaps:
            self.log.expect_gaps()
        self.log.move_log_start(min(self.source.log_start_offset, self.log.log_end_offset))
        self.log.append_as_follower(content, now_ms=now_ms)

    def become_the_log(self, now_ms: int) -> Log:
        """Return the log in its new place, durable; the old one is still where it was (`put_away`)."""
        assert self.is_complete
        source, end_offset = self.source, self.source.log_end_offset
        self.log.close()
        self.disk.rename(self.path, self.directory)
        self.disk.sync_directory(self.directory.rpartition("/")[0])
        log = Log.open(
            self.disk,
            self.directory,
            source.settings,
            recover=False,
            recovery_point=end_offset,
            log_start_offset=source.log_start_offset,
            now_ms=now_ms,
        )
        assert log.log_end_offset == end_offset
        log.take_over(source)
        return log

    def drop(self) -> None:
        """Leave nothing of it."""
        self.log.close_files()
        self.disk.remove_tree(self.path)


def put_away(disk: Disk, log: Log) -> str:
    """Rename the folder of a log that was moved, or is to be deleted; its files stay open for whoever still reads or syncs them."""
    path = beside(log.directory, DELETE_SUFFIX)
    with suppress(FileNotFoundError):
        disk.remove_tree(path)
    disk.rename(log.directory, path)
    disk.sync_directory(path.rpartition("/")[0])
    return path


def delete_log(disk: Disk, log: Log) -> None:
    """Remove a log with all its files.

    Its folder goes out of the way first: a crash in the midst leaves some of the files, perhaps not the one that says whose they are,
    and under its name they would be taken for a later topic's.
    """
    log.close_files()
    disk.remove_tree(put_away(disk, log))


def goes_further(log: Log, other: Log) -> bool:
    """Return which of two logs of one partition, in two directories, is the one that was used last."""
    return (log.last_epoch, log.log_end_offset) > (other.last_epoch, other.log_end_offset)
