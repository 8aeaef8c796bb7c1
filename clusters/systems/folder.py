"""What lies beside a system.toml, kept with a run so that others can repeat it: names and hashes of files, small ones of text themselves.

Hidden names, links and the folders of runs are passed over. A file that seems to hold a secret is named and nothing more of it is stated, not even
its hash: a short secret can be guessed by that. Where hosts are is nobody else's affair either.
"""

import hashlib
import re
import tomllib
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tribunal.clusters.systems.description import System, of_commands
from tribunal.results.described import SYSTEM_FOLDER, DescribedFile

FILES: Final = 200  # that are named
SEEN: Final = 2_000  # that are looked for
KEPT_BYTES: Final = 64 << 10  # of one file
ALL_KEPT_BYTES: Final = 1 << 20
HASHED_BYTES: Final = 64 << 20  # of one file
ALL_HASHED_BYTES: Final = 256 << 20
PLAN: Final = "plan.json"  # a folder with it is a run
PASSED_OVER: Final = ("__pycache__", "node_modules")
SECRET_NAME: Final = re.compile(
    r"secret|passw|credential|htpasswd|kubeconfig|private|\.(pem|key|p12|pfx|jks|keystore|env)$|^id_\w+$|(^|[^a-z])tokens?([^a-z]|$)",
    re.IGNORECASE,
)
# A private key; or something that is called a password, and its value as it is: `$VARIABLE` and `{placeholder}` are none.
SECRET_TEXT: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----|\bAKIA[0-9A-Z]{16}\b"
    r"""|(passw(or)?d|secret|api_?key|access_?key)["']?\s*[:=]\s*["'][^"'{}$<>\s]+["']"""
    r"|://[^/\s:@\"']*:[^/\s:@{}$<>\"']+@",  # in an address, behind a user's name
    re.IGNORECASE,
)
SECRET_LINE: Final = re.compile(
    r"^[ \t]*((-|export)[ \t]+)?[\w.-]*(passw(or)?d|requirepass|masterauth|secret|api[_-]?key|access[_-]?key)[\w.-]*"
    r"[ \t]*[:= \t][ \t]*[^\s:=\"'{}$<>\[]",
    re.IGNORECASE | re.MULTILINE,
)
OF_SETTINGS: Final = ("", ".conf", ".cfg", ".ini", ".yaml", ".yml", ".properties", ".txt", ".toml")
MAY_HOLD_ONE: Final = "it may hold a secret"
NAMES_HOSTS: Final = "it names hosts"
NOT_TEXT: Final = "it is no text"
LARGE: Final = f"larger than {KEPT_BYTES >> 10} KiB"
MANY: Final = f"more than {ALL_KEPT_BYTES >> 20} MiB with those before it"


def kept(system_file: Path, system: System, run_dir: Path) -> tuple[tuple[DescribedFile, ...], int]:
    """Copy what may be kept of a system's folder into a run's; return what is there, and how many files more were seen."""
    folder = system_file.resolve().parent
    named = {system_file.resolve(), *_named(system, folder)}
    found = sorted(_files(folder, run_dir.resolve()), key=lambda path: (path not in named, len(path.parts), path))
    hosts = system.nodes.hosts or system.nodes.existing
    taking = _Taking(folder, run_dir / SYSTEM_FOLDER, None if hosts is None else (folder / hosts).resolve())
    return tuple(taking.taken(path) for path in found[:FILES]), max(len(found) - FILES, 0)


def _named(system: System, folder: Path) -> set[Path]:
    """Return the files that commands name, by their places."""
    words = (word for command in of_commands(system) for word in command)
    return {folder / place for word in words for place in re.findall(r"\{folder\}/([^\s:,;'\"]+)", word)}


def _files(folder: Path, run_dir: Path) -> Iterator[Path]:
    """Yield the files of a folder and of those in it, the outer ones first."""
    left, seen = deque([folder]), 0
    while left:
        for path in _listed(left.popleft()):
            if path.name.startswith(".") or path.name in PASSED_OVER or path.is_symlink():
                continue
            if path.is_dir():
                if not run_dir.is_relative_to(path) and not (path / PLAN).exists():
                    left.append(path)
            elif path.is_file():
                yield path
                seen += 1
                if seen == SEEN:
                    return


def _listed(folder: Path) -> list[Path]:
    """Return what lies in a folder; of one that may not be read nothing."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


class _Taking:
    """Takes files one after the other, as long as there is room."""

    def __init__(self, folder: Path, target: Path, hosts: Path | None) -> None:
        self._folder = folder
        self._target = target
        self._hosts = hosts
        self._kept_bytes = 0
        self._hashed_bytes = 0

    def taken(self, path: Path) -> DescribedFile:
        """Take one; what cannot be read is left out."""
        name = path.relative_to(self._folder).as_posix()
        try:
            size = path.stat().st_size
            if path == self._hosts:
                return DescribedFile(name=name, size=size, why=NAMES_HOSTS)
            if size > KEPT_BYTES:
                return self._large(path, name, size)
            return self._small(name, path.read_bytes())
        except OSError as problem:
            return DescribedFile(name=name, size=0, why=f"it cannot be read: {problem.strerror}")

    def _large(self, path: Path, name: str, size: int) -> DescribedFile:
        if SECRET_NAME.search(path.name):
            return DescribedFile(name=name, size=size, why=MAY_HOLD_ONE)
        if size > min(HASHED_BYTES, ALL_HASHED_BYTES - self._hashed_bytes):
            return DescribedFile(name=name, size=size, why=f"{LARGE}, too large to be hashed")
        self._hashed_bytes += size
        with path.open("rb") as file:
            return DescribedFile(
                name=name, size=size, sha256=hashlib.file_digest(file, "sha256").hexdigest(), why=LARGE
            )

    def _small(self, name: str, content: bytes) -> DescribedFile:
        size = len(content)
        text = _text(content)
        if text is not None and _names_hosts(Path(name), text):
            return DescribedFile(name=name, size=size, why=NAMES_HOSTS)
        if SECRET_NAME.search(Path(name).name) or (text is not None and _is_secret(Path(name), text)):
            return DescribedFile(name=name, size=size, why=MAY_HOLD_ONE)
        sha256 = hashlib.sha256(content).hexdigest()
        if text is None:
            return DescribedFile(name=name, size=size, sha256=sha256, why=NOT_TEXT)
        if self._kept_bytes + size > ALL_KEPT_BYTES:
            return DescribedFile(name=name, size=size, sha256=sha256, why=MANY)
        self._kept_bytes += size
        target = self._target / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        return DescribedFile(name=name, size=size, sha256=sha256, is_kept=True)


def _text(content: bytes) -> str | None:
    """Return what a file says; None: it is no text."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _names_hosts(path: Path, text: str) -> bool:
    """Return whether a text says where nodes are, as files of hosts, of nodes and of clusters do: there may be those of other systems."""
    if path.suffix != ".toml":
        return False
    try:
        lists = [value for value in tomllib.loads(text).values() if isinstance(value, list)]
    except (ValueError, RecursionError):
        return False
    return any("address" in entry for entries in lists for entry in entries if isinstance(entry, dict))


def _is_secret(path: Path, text: str) -> bool:
    """Return whether a text seems to have a secret in it."""
    return SECRET_TEXT.search(text) is not None or (path.suffix in OF_SETTINGS and SECRET_LINE.search(text) is not None)
