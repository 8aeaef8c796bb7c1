"""What lies beside a system.toml, as a tar archive: for hosts, and for the builder of an image."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path


def packed(folder: Path, run_dir: Path, entry: Callable[[tarfile.TarInfo], tarfile.TarInfo]) -> bytes:
    """Return what lies in a folder as a tar archive, without hidden names and without the folder that runs are in."""
    own, buffer = run_dir.resolve(), io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(folder.iterdir()):
            if not path.name.startswith(".") and not own.is_relative_to(path):
                archive.add(path, path.name, filter=entry)
    return buffer.getvalue()


def as_it_is(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Keep whose a file is, and from when."""
    return entry


def by_content(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Forget whose a file is, and from when: the same files make the same archive."""
    return entry.replace(mtime=0, uid=0, gid=0, uname="", gname="")
