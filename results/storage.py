"""Folders in storage that is named by a URL, such as s3://bucket/nights or file:///mnt/nights, by pyarrow's file systems.

What is put there ends with a list of its files, `stored.json`: their sizes and sha256. It is removed first and written last, so that
an upload that was interrupted has none, and nobody takes it for the whole. Whoever fetches a folder compares every file with the list.
Credentials come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, or a profile), as do the region
(AWS_REGION) and the address of a server that is not Amazon's (AWS_ENDPOINT_URL). A URL that holds some is refused: it would be recorded.
"""

import hashlib
import mimetypes
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

import msgspec
import pyarrow as pa
import pyarrow.fs as arrow_fs

from tribunal.results.unreadable import UNREADABLE

LIST: Final = "stored.json"
MANIFESTS: Final = ("manifest.json", "nightly.json")  # of what is whole: they go last of what is listed
MARK: Final = "://"
S3: Final = "s3"
ATTEMPTS: Final = 3
CONNECT_S: Final = 5.0
REQUEST_S: Final = 60.0
PIECE_BYTES: Final = 1 << 20


class NoStorage(Exception):
    """Storage cannot be had, or holds no whole folder there; one line."""


class BadUrl(NoStorage):
    """A URL of storage that nobody can use; one line."""


class StoredFile(msgspec.Struct, frozen=True):
    """A file's size and the sha256 of its bytes."""

    size_bytes: int
    sha256: str


class Stored(msgspec.Struct, frozen=True):
    """The list of a folder's files, by their path in it."""

    files: dict[str, StoredFile]


def is_url(text: str) -> bool:
    """Return whether a folder is named by a URL."""
    return MARK in text


def parts_of(url: str) -> SplitResult:
    """Return the parts of a URL of storage. Raises BadUrl for what is none, and for one that holds credentials: it would be recorded."""
    try:
        parts = urlsplit(url)
    except ValueError as problem:  # the URL itself may hold credentials
        raise BadUrl(f"no URL of storage ({problem}): write s3://BUCKET/FOLDER or file:///FOLDER") from None
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise BadUrl(
            f"{parts.scheme}://{parts.hostname or ''}{parts.path}: a URL of storage has no credentials and no query; "
            "give them by the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL"
        )
    return parts


class Storage:
    """A place in storage, with folders in it."""

    def __init__(self, url: str) -> None:
        """Take a URL. Raises BadUrl for one that nobody can use, or that holds credentials."""
        self.url = url.rstrip("/")
        parts = parts_of(url)
        if parts.scheme == S3 and not parts.netloc:
            raise BadUrl(f"{url}: names no bucket: write s3://BUCKET/FOLDER")
        with _said(url):
            if parts.scheme == S3:
                self._system: arrow_fs.FileSystem = _s3()
                self._root = f"{parts.netloc}{parts.path}".rstrip("/")
            else:
                try:
                    self._system, root = arrow_fs.FileSystem.from_uri(self.url)
                except pa.ArrowInvalid:
                    raise BadUrl(
                        f"{url}: no storage that pyarrow knows: write s3://BUCKET/FOLDER or file:///FOLDER"
                    ) from None
                self._root = root.rstrip("/")

    def must_answer(self) -> None:
        """Raise NoStorage if nobody answers there, or there is no such bucket: before hours of work and not behind them."""
        if not isinstance(self._system, arrow_fs.S3FileSystem):
            return
        bucket = self._root.partition("/")[0]
        with _said(self.url):
            if self._system.get_file_info(bucket).type is arrow_fs.FileType.NotFound:
                raise NoStorage(f"{self.url}: there is no bucket {bucket}")

    def free(self, name: str) -> str:
        """Return `name`, or `name.2` and so on where something stands there already."""
        names = (name if number == 1 else f"{name}.{number}" for number in count(1))
        return next(one for one in names if not self._has(one))

    def put(self, folder: Path, name: str = "") -> str:
        """Put a folder there, under a name; return its URL. What stood there and is not in the folder is listed no more."""
        with _said(self._url(name)):
            if self._has(f"{name}/{LIST}"):
                self._system.delete_file(self._path(f"{name}/{LIST}"))
            files = {}
            for path in _manifests_last(folder):
                relative = path.relative_to(folder).as_posix()
                files[relative] = self._put(path, f"{name}/{relative}")
            self._put_list(name, Stored(files))
        return self._url(name)

    def folders(self) -> list[str]:
        """Return the names of the folders that stand there as wholes, in order."""
        with _said(self.url):
            found = self._system.get_file_info(arrow_fs.FileSelector(self._root, allow_not_found=True))
        names = sorted(one.base_name for one in found if one.type is arrow_fs.FileType.Directory)
        return [name for name in names if self.is_whole(name)]

    def is_whole(self, name: str = "") -> bool:
        """Return whether a folder stands there that was put there to the end."""
        return self._has(f"{name}/{LIST}")

    def remove(self, name: str) -> None:
        """Remove a folder, its list first; nothing if it is not there."""
        with _said(self._url(name)):
            if self.is_whole(name):
                self._system.delete_file(self._path(f"{name}/{LIST}"))
            if self._has(name):
                self._system.delete_dir(self._path(name))

    def put_file(self, file: Path) -> str:
        """Put one file there by itself, in place of what stood there; return its URL."""
        with _said(f"{self.url}/{file.name}"):
            self._put(file, file.name)
        return f"{self.url}/{file.name}"

    def fetch(self, folder: Path, name: str = "") -> None:
        """Copy a folder from there. NoStorage: it is not there as a whole, or not as it was put there."""
        for relative, listed in self.listed(name).items():
            target = folder / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            self.fetch_file(relative, target, listed, name)

    def listed(self, name: str = "") -> dict[str, StoredFile]:
        """Return the files of a folder that stands there as a whole, by their paths inside of it. NoStorage: it does not."""
        with _said(self._url(name)):
            files = self._listed(name).files
        for relative in files:
            if relative.startswith("/") or ".." in relative.split("/"):
                raise NoStorage(f"{self._url(name)}: {LIST} names a file outside of the folder: {relative}")
        return files

    def fetch_file(self, relative: str, target: Path, listed: StoredFile, name: str = "") -> None:
        """Copy one file of a folder from there. NoStorage: it is not as the list has it."""
        with _said(self._url(name)):
            fetched = self._fetched(f"{name}/{relative}", target)
        if fetched != listed:
            raise NoStorage(f"{self._url(name)}: {relative} is not as it was put there: put the folder there again")

    def end_of_file(self, relative: str, listed: StoredFile, wanted: int) -> bytes:
        """Return the last bytes of a file, all of one that is smaller. NoStorage: it has not the size that the list says."""
        with _said(self.url), self._system.open_input_file(self._path(relative)) as source:
            size = int(source.size())
            first = max(0, size - wanted)
            end = bytes(source.read_at(size - first, first))
        if size != listed.size_bytes:
            raise NoStorage(f"{self.url}: {relative} is not as it was put there: put the folder there again")
        return end

    def _put(self, file: Path, name: str) -> StoredFile:
        path = self._path(name)
        if not isinstance(self._system, arrow_fs.S3FileSystem):  # which has no folders
            self._system.create_dir(path.rpartition("/")[0], recursive=True)
        # What a browser takes a page for; other storage than S3 keeps no such thing.
        kind = {"Content-Type": mimetypes.guess_type(file.name)[0] or "application/octet-stream"}
        with file.open("rb") as source, self._system.open_output_stream(path, metadata=kind) as target:
            return _copied(iter(lambda: source.read(PIECE_BYTES), b""), target)

    def _fetched(self, name: str, file: Path) -> StoredFile:
        with self._system.open_input_stream(self._path(name)) as source, file.open("wb") as target:
            return _copied(iter(lambda: source.read(PIECE_BYTES), b""), target)

    def _put_list(self, name: str, stored: Stored) -> None:
        """Write the list whole or not at all: an object is there when it is, a file is from its first byte on."""
        path = self._path(f"{name}/{LIST}")
        is_file = not isinstance(self._system, arrow_fs.S3FileSystem)
        beside = f"{path}.new" if is_file else path
        with self._system.open_output_stream(beside) as target:
            target.write(msgspec.json.encode(stored))
        if is_file:
            self._system.move(beside, path)

    def _listed(self, name: str) -> Stored:
        if not self._has(f"{name}/{LIST}"):
            raise NoStorage(
                f"{self._url(name)}: no folder stands there as a whole: it has no {LIST}, which is put there last"
            )
        with self._system.open_input_stream(self._path(f"{name}/{LIST}")) as source:
            content = source.readall()
        try:
            return msgspec.json.decode(content, type=Stored)
        except UNREADABLE as problem:
            raise NoStorage(f"{self._url(name)}: {LIST} cannot be read: {problem}") from None

    def _has(self, name: str) -> bool:
        with _said(self._url(name)):
            return self._system.get_file_info(self._path(name)).type is not arrow_fs.FileType.NotFound

    def _path(self, name: str) -> str:
        return f"{self._root}/{name.strip('/')}".rstrip("/")

    def _url(self, name: str) -> str:
        return f"{self.url}/{name.strip('/')}".rstrip("/")


def put_or_kept(storage: Storage, folder: Path, otherwise: Path) -> tuple[str, str | None]:
    """Put a folder into storage under its own name, or move it into another folder; return where it is, and why it is not in storage.

    What was found is never lost because storage is.
    """
    try:
        where = storage.put(folder, storage.free(folder.name))
    except NoStorage as problem:
        otherwise.mkdir(parents=True, exist_ok=True)
        names = (folder.name if number == 1 else f"{folder.name}.{number}" for number in count(1))
        target = next(otherwise / one for one in names if not (otherwise / one).exists())
        shutil.move(folder, target)
        return str(target), str(problem)
    shutil.rmtree(folder)
    return where, None


def _copied(pieces: Iterable[bytes], target: "pa.NativeFile") -> StoredFile:
    digest, size = hashlib.sha256(), 0
    for piece in pieces:
        digest.update(piece)
        size += len(piece)
        target.write(piece)
    return StoredFile(size, digest.hexdigest())


def _manifests_last(folder: Path) -> list[Path]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != LIST]
    return sorted(files, key=lambda path: path.name in MANIFESTS)


def _s3() -> arrow_fs.S3FileSystem:
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return arrow_fs.S3FileSystem(
        region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
        endpoint_override=endpoint,
        connect_timeout=CONNECT_S,
        request_timeout=REQUEST_S,
        retry_strategy=arrow_fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
    )


@contextmanager
def _said(url: str) -> Iterator[None]:
    """Say what pyarrow or the system says of a URL in one line."""
    try:
        yield
    except (OSError, pa.ArrowException) as problem:
        line = " ".join(str(problem).split()) or type(problem).__name__
        raise NoStorage(f"{url}: {line[:300]}") from None
