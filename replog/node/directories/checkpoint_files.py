"""The checkpoints of log directories: each file has one writer, and the last content that was asked for is what stays.

What is written now and then is a lower bound and is written beside the event loop; a directory has one such write at a time,
and what comes meanwhile waits, the newest content of each file. What has to be on disk before anything else happens (a log was
cut, or begins under the name of one that is gone) is written at once, and a write in the background that is older
does not take its place any more: it would bring back what was taken out.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from replog.ports import Disk


class Batch(msgspec.Struct, kw_only=True):
    """Contents by path that are written together, and who wants to know when they are durable."""

    files: dict[str, bytes] = {}
    done: list[Callable[[], None]] = []


class CheckpointFiles:
    """Writes the checkpoints of all directories of one broker."""

    def __init__(self, disk: Disk, failed: Callable[[str, OSError], None]) -> None:
        """`failed` is called with the directory in which a write in the background failed."""
        self._disk = disk
        self._failed = failed
        self._under_way: dict[str, Batch] = {}  # by directory; without files that are not wanted any more
        self._waiting: dict[str, Batch] = {}

    def write(self, directory: str, files: Mapping[str, bytes]) -> None:
        """Write files, by name, at once and durably. Raises `OSError`."""
        self.give_up(directory, files)
        for name, content in files.items():
            self._disk.replace_file(f"{directory}/{name}", content)

    def begin(self, directory: str, files: Mapping[str, bytes], done: Callable[[], None]) -> None:
        """Write files, by name, in the background; `done` when these contents, or newer ones, are durable."""
        batch = self._waiting.setdefault(directory, Batch())
        batch.files.update({f"{directory}/{name}": content for name, content in files.items()})
        batch.done.append(done)
        self._next(directory)

    def give_up(self, directory: str, names: Iterable[str]) -> None:
        """Let what was begun for these files, and is not in place yet, never be."""
        for batches in (self._under_way, self._waiting):
            if directory in batches:
                for name in names:
                    batches[directory].files.pop(f"{directory}/{name}", None)

    def stop(self, directory: str) -> None:
        """Let nothing that was begun in a directory be put in place; nothing may be begun there afterwards."""
        self._waiting.pop(directory, None)
        self._under_way.pop(directory, None)

    def _next(self, directory: str) -> None:
        if directory in self._under_way or directory not in self._waiting:
            return
        batch = self._under_way[directory] = self._waiting.pop(directory)

        def is_wanted(path: str) -> bool:
            return self._under_way.get(directory) is batch and path in batch.files

        def done(problem: OSError | None) -> None:
            if self._under_way.get(directory) is not batch:
                return
            del self._under_way[directory]
            if problem is not None:
                self._failed(directory, problem)
                return
            for one in batch.done:
                one()
            self._next(directory)

        self._disk.replace_in_background(batch.files.copy(), is_wanted=is_wanted, done=done)
