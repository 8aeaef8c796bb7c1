"""Copies of a node's disk, as a snapshot of its machine or a backup makes them, and putting them back.

The copy lies beside the node's data, in the same folder; `cp -a` keeps owners, times and holes.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Final

from tribunal.clusters.api import ClusterError, Proof
from tribunal.clusters.nodes.log_damage import log_ends

COPY: Final = "copy-of-data"


def save(folder: Path) -> None:
    """Copy a node's data as they are, synced or not: a process that has ended leaves them in the page cache; `ClusterError` if it cannot be done."""
    data, copy = folder / "data", folder / COPY
    shutil.rmtree(copy, ignore_errors=True)
    _copied(data, copy)


def restore(folder: Path) -> Proof:
    """Put the copy in the data's place; nothing of it counts as not synced. The copy stays."""
    data, copy = folder / "data", folder / COPY
    if not copy.is_dir():
        raise ClusterError(f"{copy}: there is no copy of a disk to put back")
    before = log_ends(data)
    shutil.rmtree(data)
    shutil.rmtree(folder / "undo", ignore_errors=True)
    _copied(copy, data)
    after = log_ends(data)
    return Proof(
        holds=after == log_ends(copy),
        facts={"log_end_offsets_before": before, "log_end_offsets_after": {**dict.fromkeys(before, 0), **after}},
    )


def _copied(source: Path, target: Path) -> None:
    ran = subprocess.run(["cp", "-a", "--", source, target], capture_output=True, text=True, check=False)  # noqa: S603, S607 - coreutils
    if ran.returncode:
        raise ClusterError(f"{source}: its copy failed: {ran.stderr.strip()}")
