"""Folders that commands are given by name or by URL: where they put what they made, and where they get recordings from."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer

from tribunal.results.scratch import Scratch
from tribunal.results.storage import NoStorage, Storage, is_url, put_or_kept


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
            typer.echo(f"tribunal: {problem}; kept in {where}", err=True)
        return where

    def put_file(self, file: Path) -> str:
        """Put a file where it is to stay; return where that is, or the file's name where storage failed."""
        if self._storage is None:
            return str(file)
        try:
            return self._storage.put_file(file)
        except NoStorage as problem:
            typer.echo(f"tribunal: {problem}", err=True)
            return file.name


@contextmanager
def out_at(out: str, otherwise: Path) -> Iterator[Out]:
    """Give where `--out` puts things.

    otherwise:  the folder of this machine for what storage did not take.
    raises:     NoStorage when nobody answers at a URL.
    """
    if not is_url(out):
        yield Out(Path(out), None, otherwise)
        return
    storage = Storage(out)
    storage.must_answer()
    with Scratch("out") as scratch:
        yield Out(scratch, storage, otherwise)


@contextmanager
def fetched(runs: Sequence[str]) -> Iterator[list[Path]]:
    """Give the folders of runs; those that are named by a URL are copied to this machine for as long. NoStorage: one is not there as a whole."""
    with Scratch("runs") as scratch:
        yield [_copied(run, scratch / str(number)) if is_url(run) else Path(run) for number, run in enumerate(runs)]


def _copied(url: str, folder: Path) -> Path:
    target = folder / url.rstrip("/").rpartition("/")[2]
    target.mkdir(parents=True)
    Storage(url).fetch(target)
    return target
