"""Folders that commands are given by name or by URL: where they put what they made, and where they get recordings from."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tribunal.harness.cli.usage import UsageError, must_not_be_file
from tribunal.harness.terminal import echo
from tribunal.results.mirror import Mirror, mirrored
from tribunal.results.scratch import Scratch
from tribunal.results.storage import NoStorage, Storage, is_url, put_or_kept

NUMBERED: Final = re.compile(r"\d{10}(\.\d+)?")


class Out:
    """Where a command puts what it made: a folder of this machine, or storage, with a folder here until it is there.

    folder:  where it is made.
    """

    def __init__(self, folder: Path, storage: Storage | None, otherwise: Path) -> None:
        self.folder = folder
        self._storage, self._otherwise = storage, otherwise

    def put(self, folder: Path) -> str:
        """Put a folder where it is to stay; return where that is. Storage that fails is said; then it stays on this machine."""
        if self._storage is None:
            return str(folder)
        where, problem = put_or_kept(self._storage, folder, self._otherwise)
        if problem is not None:
            echo(f"tribunal: {problem}; kept in {where}", err=True)
        return where

    def put_file(self, file: Path) -> str:
        """Put a file where it is to stay; return where that is, or the file's name where storage failed."""
        if self._storage is None:
            return str(file)
        try:
            return self._storage.put_file(file)
        except NoStorage as problem:
            echo(f"tribunal: {problem}", err=True)
            return file.name


@contextmanager
def out_at(out: str, otherwise: Path) -> Iterator[Out]:
    """Give where `--out` puts things.

    otherwise:  the folder of this machine for what storage did not take.
    raises:     NoStorage when nobody answers at a URL.
    """
    if not is_url(out):
        must_not_be_file("--out", Path(out))
        yield Out(Path(out), None, otherwise)
        return
    storage = Storage(out)
    storage.must_answer()
    with Scratch("out") as scratch:
        yield Out(scratch, storage, otherwise)


def storage_at(option: str, url: str) -> Storage:
    """Return the storage that an option names, which answers. Raises UsageError, NoStorage."""
    if not is_url(url):
        raise UsageError(f"{option} {url!r}: a URL of storage, such as s3://BUCKET/FOLDER")
    storage = Storage(url)
    storage.must_answer()
    return storage


class Kept:
    """A folder that goes on from command to command: one of this machine, or a copy of the newest one in storage.

    Each command puts its own folder there, under a number, and only then removes the one that it began with: an upload that is
    interrupted costs what this command added and no more, and what another command put there meanwhile stays.
    """

    def __init__(self, place: str, scratch: Path) -> None:
        self.place = place
        self.folder = scratch / "kept" if is_url(place) else Path(place)
        self._storage = storage_at("--corpus", place) if is_url(place) else None
        self._began: str | None = None
        if self._storage is not None:
            numbered = [name for name in self._storage.folders() if NUMBERED.fullmatch(name)]
            self._began = max(numbered, default=None)
            self.folder.mkdir()
            if self._began is not None:
                self._storage.fetch(self.folder, self._began)

    def put(self, number: int, otherwise: Path) -> str:
        """Put the folder back as number so many; return where it is. What storage does not take goes to `otherwise`.

        number:  grows with what is in the folder; one like that of the beginning says that nothing was added.
        """
        name = f"{number:010}"
        if self._storage is None or number == 0 or (self._began or "").partition(".")[0] == name:
            return self.place
        folder = self.folder.rename(self.folder.with_name(name))
        url, problem = put_or_kept(self._storage, folder, otherwise)
        if problem is not None:
            echo(f"tribunal: {problem}; kept in {url}", err=True)
        elif self._began is not None:
            try:
                self._storage.remove(self._began)
            except NoStorage as still:
                echo(f"tribunal: {still}", err=True)
        return url


@contextmanager
def fetched(runs: Sequence[str]) -> Iterator[list[Path]]:
    """Give the folders of runs; those that are named by a URL are copied to this machine for as long. NoStorage: one is not there as a whole."""
    with Scratch("runs") as scratch:
        yield [_copied(run, scratch / str(number)) if is_url(run) else Path(run) for number, run in enumerate(runs)]


@contextmanager
def at_hand(runs: Sequence[str], *, afar: bool) -> Iterator[tuple[list[Path], dict[str, str]]]:
    """Give the folders of runs, and the URLs of those that are only mirrored here.

    afar:  a cluster judges, which reads from storage itself; of what is named by a URL this machine has what it looks at.
    """
    if not afar:
        with fetched(runs) as folders:
            yield folders, {}
        return
    with Scratch("runs") as scratch:
        mirrors = {
            number: Mirror(run, scratch / str(number) / _name(run)) for number, run in enumerate(runs) if is_url(run)
        }
        with mirrored(mirrors.values()):
            yield (
                [mirrors[number].folder if number in mirrors else Path(run) for number, run in enumerate(runs)],
                {str(mirror.folder): runs[number] for number, mirror in mirrors.items()},
            )


def _name(url: str) -> str:
    return url.rstrip("/").rpartition("/")[2]


def _copied(url: str, folder: Path) -> Path:
    target = folder / _name(url)
    target.mkdir(parents=True)
    Storage(url).fetch(target)
    return target
