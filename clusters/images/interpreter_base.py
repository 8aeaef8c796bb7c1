"""A base image made of the interpreter that runs this: no registry, no network.

It holds the standard library, the packages that a node needs, a shell for the Dockerfile's RUN, and every shared library
that these load (`ldd`), at the paths where they are looked for. Compiled modules are kept: a node starts in half the time.
"""

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Final

PREFIX: Final = "/opt/python"  # CPython finds its library relative to its executable
LIBRARIES: Final = "/opt/lib"
VERSION: Final = f"python{sys.version_info.major}.{sys.version_info.minor}"
SKIPPED: Final = frozenset(
    {"test", "tests", "idlelib", "tkinter", "turtledemo", "site-packages", "ensurepip", "lib2to3", "pydoc_data"}
)
PACKAGES: Final = ("msgspec", "crc32c", "cramjam", "kazoo", "uvloop", "typing_extensions")
SHELL: Final = "/bin/sh"
NAME_SERVICE: Final = ("libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2")  # opened by name, so not in ldd
LIBRARY_FOLDERS: Final = ("/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64")
CHANGES: Final = (
    f"ENV PATH={PREFIX}/bin:/usr/bin:/bin",
    f"ENV LD_LIBRARY_PATH={LIBRARIES}",
    "LABEL tribunal.base=interpreter",
)


class Unbuildable(Exception):
    """No base can be made of this interpreter; the message says why."""


def write_base(target: IO[bytes]) -> None:
    """Write the image's file system as a tar archive."""
    if sys.platform != "linux":
        raise Unbuildable("a base of this interpreter needs Linux; set TRIBUNAL_BASE_IMAGE to a Python image")
    with tarfile.open(fileobj=target, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        image = _Image(archive)
        _add_python(image)
        image.add(Path(SHELL), SHELL)
        for path in sorted(_shared_libraries(image.binaries)):
            image.add(path, f"/lib64/{path.name}" if "ld-linux" in path.name else f"{LIBRARIES}/{path.name}")
        for name in NAME_SERVICE:
            for path in (Path(folder, name) for folder in LIBRARY_FOLDERS):
                if path.exists():
                    image.add(path, f"{LIBRARIES}/{name}")
                    break
        image.text("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
        image.text("/etc/group", "root:x:0:\n")
        image.text("/etc/nsswitch.conf", "hosts: files dns\n")
        for folder in ("/proc", "/sys", "/dev", "/root", "/tmp", "/var/tmp"):  # noqa: S108 - of the image
            image.folder(folder)


class _Image:
    """The archive as it grows; each path once."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        self._seen: set[str] = set()
        self.binaries: list[str] = []

    def folder(self, path: str) -> None:
        parts = Path(path.lstrip("/")).parts
        for end in range(1, len(parts) + 1):
            name = "/".join(parts[:end])
            if name not in self._seen:
                self._seen.add(name)
                entry = tarfile.TarInfo(name)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                self._archive.addfile(entry)

    def _is_new(self, target: str) -> bool:
        name = target.lstrip("/")
        if name in self._seen:
            return False
        self.folder(str(Path(target).parent))
        self._seen.add(name)
        return True

    def add(self, source: Path, target: str) -> None:
        if not self._is_new(target):
            return
        real = source.resolve()
        entry = self._archive.gettarinfo(str(real), target.lstrip("/"))
        entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", real.stat().st_size
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        with real.open("rb") as file:
            self._archive.addfile(entry, file)
        if ".so" in real.name or os.access(real, os.X_OK):
            self.binaries.append(str(real))

    def add_tree(self, source: Path, target: str, skipped: frozenset[str]) -> None:
        for path in _files(source, skipped):
            self.add(path, f"{target}/{path.relative_to(source)}")

    def link(self, target: str, to: str) -> None:
        if self._is_new(target):
            entry = tarfile.TarInfo(target.lstrip("/"))
            entry.type, entry.linkname = tarfile.SYMTYPE, to
            self._archive.addfile(entry)

    def text(self, target: str, content: str) -> None:
        import io

        if self._is_new(target):
            entry = tarfile.TarInfo(target.lstrip("/"))
            entry.size, entry.mode = len(content), 0o644
            self._archive.addfile(entry, io.BytesIO(content.encode()))


def _add_python(image: _Image) -> None:
    executable = Path(sys.base_prefix, "bin", VERSION)
    if not executable.exists():
        raise Unbuildable(f"no interpreter at {executable}; set TRIBUNAL_BASE_IMAGE to a Python image")
    image.add(executable, f"{PREFIX}/bin/{VERSION}")
    for link in (f"{PREFIX}/bin/python3", "/usr/bin/python3"):
        image.link(link, f"{PREFIX}/bin/{VERSION}")
    library = Path(sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix}))
    image.add_tree(library, f"{PREFIX}/lib/{VERSION}", SKIPPED)
    for name in PACKAGES:
        _add_package(image, name)


def _add_package(image: _Image, name: str) -> None:
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        return  # uvloop is optional
    origin, site = Path(found.origin), f"{PREFIX}/lib/{VERSION}/site-packages"
    if found.submodule_search_locations:
        image.add_tree(origin.parent, f"{site}/{name}", frozenset({"tests"}))
    else:
        image.add(origin, f"{site}/{origin.name}")
    for file in importlib.metadata.files(name) or ():  # some ask for their own version
        if file.name == "METADATA":
            image.add(Path(str(file.locate())), f"{site}/{file}")


def _files(source: Path, skipped: frozenset[str]) -> Iterator[Path]:
    """Yield the files that are needed: not tests, not archives, not other interpreters' compiled modules."""
    for folder, folders, names in os.walk(source):
        folders[:] = sorted(name for name in folders if name not in skipped and not name.startswith("config-3"))
        for name in sorted(names):
            foreign = name.endswith(".pyc") and f"{sys.implementation.cache_tag}.pyc" not in name
            if (
                not foreign
                and not name.startswith("_tkinter")
                and not name.endswith((".a", ".exe", ".pyx", ".c"))
                and Path(folder, name).exists()
            ):
                yield Path(folder, name)


def _shared_libraries(binaries: Iterable[str]) -> set[Path]:
    """Return what `ldd` finds for these, transitively."""
    output = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False).stdout  # noqa: S603, S607
    found = set()
    for line in output.splitlines():
        word = line.partition("=>")[2].split() or line.split()
        if word and word[0].startswith("/") and not word[0].endswith(":"):
            found.add(Path(word[0]))
    return found
