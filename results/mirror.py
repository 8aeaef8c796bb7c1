"""Folders of this machine that stand for ones in storage: a recording's segments come when they are first opened.

A mirror has all names and sizes of the folder that it stands for, and nothing in its segments: they are files of holes. Whoever opens
one calls `here` first, which fetches it and compares it with the list of the folder. So a process has on its disk what it has looked
at, and not the recording. Who only asks what a segment's footer says calls `footers_here`, which fetches its end alone: that is compared
with nothing but the size, and every task that reads rows compares the segment. What is small and read by anybody, as manifest.json, comes at once.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from tribunal.results.storage import Storage, StoredFile

SEGMENT: Final = ".parquet"
ENDING: Final = b"....PAR1"  # the footer's size, and what Parquet files end with
FOOTER_BYTES: Final = 64 << 10  # most footers are smaller; one that is not costs a second request
TOGETHER: Final = 8  # files fetched at once: storage takes as long to begin with one as to send a small one


class Mirror:
    """A folder that stands for one in storage."""

    def __init__(self, url: str, folder: Path, *, at_once: Sequence[str] | None = None, later: bool = False) -> None:
        """Lay a mirror down.

        folder:   is made.
        at_once:  what comes now if it is there, by the paths in the folder; None: all but segments and what lies in further folders.
        later:    no segment is seen here before `lay` was called for it.
        raises:   NoStorage when no folder stands there as a whole.
        """
        self.folder = folder
        self._storage = Storage(url)
        self._missing: dict[str, StoredFile] = {}
        self._ended: set[str] = set()  # of these the end is here
        self._lock = threading.Lock()
        self._not_laid: dict[str, StoredFile] = {}
        for name, listed in self._storage.listed().items():
            is_segment = name.endswith(SEGMENT)
            wanted = ("/" not in name and not is_segment) if at_once is None else name in at_once
            if wanted:
                self._fetch(name, listed)
            elif is_segment:
                self._not_laid[name] = listed
        for room in {name.partition("/")[0] for name in self._not_laid if "/" in name}:
            (folder / room).mkdir(parents=True, exist_ok=True)
        if not later:
            self.lay(lambda name: True)

    def lay(self, is_wanted: Callable[[str], bool]) -> None:
        """Let segments be seen here, by their paths in the folder: of a large recording nobody who asks for a part makes files for all."""
        for name in [name for name in self._not_laid if is_wanted(name)]:
            listed = self._not_laid.pop(name)
            target = self.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as file:
                file.truncate(listed.size_bytes)
            self._missing[name] = listed

    def bring(self, path: Path) -> None:
        """Fetch a segment unless it is here. NoStorage: it is not as it was put there, or nobody answers."""
        name = path.relative_to(self.folder).as_posix()
        with self._lock:
            listed = self._missing.get(name)
        if listed is not None:
            self._fetch(name, listed)

    def bring_footer(self, path: Path) -> None:
        """Fetch the end of a segment that its footer lies in, unless it is here. NoStorage: nobody answers, or it has another size there."""
        name = path.relative_to(self.folder).as_posix()
        with self._lock:
            listed = self._missing.get(name)
            if listed is None or name in self._ended:
                return
        end = self._storage.end_of_file(name, listed, FOOTER_BYTES)
        needed = footer_bytes(end)
        if needed > len(end):
            end = self._storage.end_of_file(name, listed, needed)
        with self._lock:
            if name in self._missing:  # else it is here as a whole by now, and was compared
                with path.open("r+b") as file:
                    file.seek(-len(end), os.SEEK_END)
                    file.write(end)
                self._ended.add(name)

    def _fetch(self, name: str, listed: StoredFile) -> None:
        target = self.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f"{target.name}.{threading.get_ident()}.tmp")
        self._storage.fetch_file(name, temporary, listed)
        with self._lock:
            temporary.replace(target)
            self._missing.pop(name, None)


_mirrors: list[Mirror] = []


@contextmanager
def mirrored(mirrors: Iterable[Mirror]) -> Iterator[None]:
    """Let what is opened in these folders be fetched, for as long."""
    own = list(mirrors)
    _mirrors.extend(own)
    try:
        yield
    finally:
        for mirror in own:
            _mirrors.remove(mirror)


def here(*paths: Path) -> None:
    """Fetch files that are about to be opened, where they lie in a mirror."""
    _together([partial(mirror.bring, path) for mirror, path in _mirroring(paths)])


def footers_here(*paths: Path) -> None:
    """Fetch what says how files that are about to be opened are made up, where they lie in a mirror: no row of them may be read."""
    _together([partial(mirror.bring_footer, path) for mirror, path in _mirroring(paths)])


def footer_bytes(end: bytes) -> int:
    """Return how many bytes a Parquet file's footer takes, by the file's end; none where that is no end of one."""
    if len(end) < len(ENDING) or not end.endswith(ENDING[-4:]):
        return 0
    return int.from_bytes(end[-8:-4], "little") + len(ENDING)


def _mirroring(paths: Iterable[Path]) -> list[tuple[Mirror, Path]]:
    return [(mirror, path) for path in paths for mirror in _mirrors if path.is_relative_to(mirror.folder)]


def _together(fetches: Sequence[Callable[[], None]]) -> None:
    if len(fetches) < 2:
        for fetch in fetches:
            fetch()
        return
    with ThreadPoolExecutor(TOGETHER, thread_name_prefix="mirror") as pool:
        for _ in pool.map(lambda fetch: fetch(), fetches):
            pass
