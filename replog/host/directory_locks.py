"""A lock on each log directory: two processes that write into one destroy it.

It is Kafka's: the file `.lock`, locked as a whole. The system lets go of it with the process, however that ends.
"""

import errno
import fcntl
import os
from collections.abc import Sequence
from typing import Final

FILE_NAME: Final = ".lock"


class DirectoryInUse(Exception):
    """Another process works in a log directory; the message says which."""


class DirectoryLocks:
    """The locks of one process."""

    def __init__(self, directories: Sequence[str]) -> None:
        """Take them all, or raise `DirectoryInUse`. A directory that cannot be written to fails later, by itself."""
        self._descriptors: list[int] = []
        for directory in directories:
            try:
                path = f"{directory}/{FILE_NAME}"
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError:
                continue
            self._descriptors.append(descriptor)
            if not _lock(descriptor):
                self.close()
                raise DirectoryInUse(f"{directory} is in use by another process, which holds {FILE_NAME} in it")

    def close(self) -> None:
        """Let go of them."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []


def _lock(descriptor: int) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        return problem.errno not in (errno.EACCES, errno.EAGAIN)  # others: a file system without locks
    return True
