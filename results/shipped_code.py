"""Our own code on a Spark worker: it comes as an archive that Spark copied, and is imported out of it.

It is light: a task imports it before anything is unpacked.
"""

import fcntl
import shutil
import zipfile
from pathlib import Path

import tribunal


def is_shipped() -> bool:
    """Return whether this process imports our code out of an archive."""
    return not Path(tribunal.__file__).is_file()


def unpacked() -> Path:
    """Return the folder that `tribunal` is in as files; unpack the archive that it came in, once for all processes here."""
    package = Path(tribunal.__file__).absolute()  # Spark names the archive by its way from where the executor runs
    if package.is_file():
        return package.parent.parent
    archive = next(folder for folder in package.parents if folder.is_file())
    target = archive.with_name(f"{archive.stem}.unpacked")
    with archive.with_name(f"{archive.stem}.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            half = target.with_name(f"{target.name}.half")
            shutil.rmtree(half, ignore_errors=True)
            with zipfile.ZipFile(archive) as file:
                file.extractall(half)
            half.rename(target)
    return target


def files_below(folder: Path, name: str) -> list[tuple[Path, str]]:
    """Return all files below a folder, with their names in an archive; the parts of a checkout are links, which `Path.rglob` does not follow."""
    found = []
    for path in sorted(folder.iterdir()):
        own = f"{name}/{path.name}"
        if path.is_dir():
            found += [] if path.name == "__pycache__" else files_below(path, own)
        elif path.suffix != ".pyc":
            found.append((path, own))
    return found
