"""The file system for nodes under test: what is not synced can be undone (`undo_journal.py`), and it can misbehave.

The same files as `RealDisk`'s, with a word to the journal before each change; and, where there is a control page
(`control_page.py`), writes that are refused and fsyncs that take their time.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from replog.host.sabotage.control_page import ControlPage
from replog.host.sabotage.undo_journal import UndoJournal
from replog.host.world import RealDisk, RealFile
from replog.ports import Buffer


class UndoFile(RealFile):
    """A file whose unsynced changes are written down."""

    def __init__(self, path: str, descriptor: int, journal: UndoJournal, page: ControlPage | None) -> None:
        super().__init__(path, descriptor)
        self._journal = journal
        self._page = page
        self.inode = os.fstat(descriptor).st_ino

    def _write(self, parts: Sequence[Buffer], position: int) -> None:
        if self._page is not None:
            self._page.check_write(self._path)
        with self._journal.lock:
            length = sum(map(len, parts))
            self._journal.will_write(self._descriptor, self.inode, self._size, position, length)
            super()._write(parts, position)

    def truncate(self, size: int) -> None:
        """Cut to `size` bytes."""
        if self._page is not None:
            self._page.check_write(self._path)
        with self._journal.lock:
            self._journal.will_truncate(self._descriptor, self.inode, self._size, size)
            super().truncate(size)

    def sync(self) -> None:
        """Block until content and size are durable."""
        with self._journal.lock:
            number = self._journal.begin_sync(self.inode, self._size)
        if self._page is not None:
            self._page.hold_up_sync()
        super().sync()
        with self._journal.lock:
            self._journal.end_sync(self.inode, number, self._size)


class UndoDisk(RealDisk):
    """The file system, with an undo journal."""

    def __init__(self, journal_directory: str, page: ControlPage | None = None) -> None:
        super().__init__()
        self._journal = UndoJournal(journal_directory)
        self._page = page

    def open(self, path: str, *, create: bool = False) -> UndoFile:
        """Open for reading and writing."""
        with self._journal.lock:
            is_new = create and not Path(path).exists()
            if is_new:
                self._check(path)
                self._journal.will_name(path)
            flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
            file = UndoFile(path, os.open(path, flags, 0o644), self._journal, self._page)
            if is_new:
                self._journal.forget(file.inode)  # an inode used again
            return file

    def _check(self, path: str) -> None:
        if self._page is not None:
            self._page.check_write(path)

    def make_directory(self, path: str) -> None:
        """Create it and its parents."""
        with self._journal.lock:
            missing = [folder for folder in (Path(path), *Path(path).parents) if not folder.exists()]
            for folder in reversed(missing):
                self._check(str(folder))
                self._journal.will_name(str(folder))
                folder.mkdir()

    def rename(self, old: str, new: str) -> None:
        """Replace `new` by `old` atomically."""
        self._check(new)
        with self._journal.lock:
            self._journal.will_name(old)
            self._journal.will_name(new)
            if Path(new).is_file():
                self._journal.keep(new)
            super().rename(old, new)

    def remove(self, path: str) -> None:
        """Remove a file."""
        self._check(path)
        with self._journal.lock:
            if Path(path).exists():
                self._journal.will_name(path)
                self._journal.keep(path)
            super().remove(path)

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all it holds; a missing one is fine."""
        self._check(path)
        with self._journal.lock:
            if Path(path).exists():
                self._journal.will_name(path)
                if self._journal.keep_tree(path):
                    return
                self._journal.forget_tree(path)
            super().remove_tree(path)

    def sync_directory(self, path: str) -> None:
        """Make the names in this directory durable."""
        super().sync_directory(path)
        with self._journal.lock:
            self._journal.synced_directory(path)

    def close(self) -> None:
        """End the syncing thread and let go of the journal."""
        super().close()
        self._journal.close()
