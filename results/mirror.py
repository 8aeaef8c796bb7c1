"""Folders of this machine that stand for ones in storage: a recording's segments come when they are first opened.

A mirror has all names and sizes of the folder that it stands for, and nothing in its segments: they are files of holes. Whoever opens
one calls `here` first, which fetches it and compares it with the list of the folder. So a process has on its disk what it has looked
at, and not the recording. What is small and read by anybody, as manifest.json, comes at once.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tribunal.results.storage import Storage, StoredFile

SEGMENT: Final = ".parquet"
TOGETHER: Final = 8  # files fetched at once: storage takes as long to begin with one as to send a small one


class Mirror:
    """A folder that stands for one in storage."""

    def __init__(self, url: str, folder: Path, *, at_once: Sequence[str] | None = None) -> None:
        """Lay a mirror down.

        folder:   is made.
        at_once:  what comes now if it is there, by the paths in the folder; None: all but segments and what lies in further folders.
        raises:   NoStorage when no folder stands there as a whole.
        """
        self.folder = folder
        self._storage = Storage(url)
        self._missing: dict[str, StoredFile] = {}
        self._lock = threading.Lock()
        for name, listed in self._storage.listed(folder).items():
            target = folder / name
            wanted = ("/" not in name and target.suffix != SEGMENT) if at_once is None else name in at_once
            if wanted:
                self._fetch(name, listed)
            elif target.suffix == SEGMENT:
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
            with self._lock:
                self._missing.pop(name, None)

    def _fetch(self, name: str, listed: StoredFile) -> None:
        target = self.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f"{target.name}.{threading.get_ident()}.tmp")
        self._storage.fetch_file(name, temporary, listed)
        temporary.replace(target)


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
    wanted = [(mirror, path) for mirror in _mirrors for path in paths if path.is_relative_to(mirror.folder)]
    if len(wanted) < 2:
        for mirror, path in wanted:
            mirror.bring(path)
        return
    with ThreadPoolExecutor(TOGETHER, thread_name_prefix="mirror") as pool:
        list(pool.map(lambda own: own[0].bring(own[1]), wanted))
