"""Patterns of files below a node's data folder, as faults' options have them."""

from pathlib import PurePosixPath


def must_be_below(files: str) -> None:
    """Raise ValueError in one line for a pattern that leads out of the node's folder, or nowhere."""
    path = PurePosixPath(files)
    if not path.parts or path.is_absolute() or ".." in path.parts:
        raise ValueError(f"files is {files!r}: a pattern of paths below the data folder, as wal/*.log or **/*")
    if any("**" in part and part != "**" for part in path.parts):
        raise ValueError(f"files is {files!r}: ** stands for folders, and alone between slashes")
