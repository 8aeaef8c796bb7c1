"""Plugins of a user's own: modules in a folder of the project that is tested, found like those that ship.

`tribunal_plugins/nemesis/jam.py` beside where `tribunal` is called is the fault `jam`; the same for workloads, checkers,
clusters and scenarios. Nothing has to be installed or registered.
"""

from collections.abc import MutableSequence
from pathlib import Path
from typing import Final

FOLDER: Final = Path("tribunal_plugins")


def extend(package_path: MutableSequence[str], package: str) -> None:
    """Let a package also look into the user's folder of its name; what ships goes first."""
    folder = FOLDER / package
    if folder.is_dir():
        package_path.append(str(folder.resolve()))
