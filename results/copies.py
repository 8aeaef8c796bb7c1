"""A copy of a recording in which some tables' rows are others: what did not change is the same file.

The copy has a manifest of its own, made as every manifest is, so it is as sound as the recording that it was made from; of one
that was cut off and has none, the copy has none either.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pyarrow as pa

from tribunal.results.manifest import Setting
from tribunal.results.recording import TABLES
from tribunal.results.store import Recorder, Recording

Part = tuple[str, str]  # a table, and a partition of it ("none" where it has none)


def copied(
    original: Recording, run_dir: Path, changed: Mapping[Part, pa.Table], settings: Mapping[str, Setting] | None = None
) -> Path:
    """Write a recording like another one into a new folder.

    changed:   the rows of whole parts, without `run_id`; all other parts are hard links where the file system has them.
    settings:  added to those that the manifest says the nodes were started with.
    """
    recorder = Recorder(run_dir, original.run_id)
    for table, parts in original.files.items():
        for part, paths in parts.items():
            for path in paths if (table, part) not in changed else ():
                _linked(path, run_dir / path.relative_to(original.run_dir))
    for (table, part), rows in changed.items():
        # A part without rows has no folder: its table exists by its empty part.
        if rows.num_rows:
            assert TABLES[table].by_partition or part == "none", (table, part)
            recorder.write(table, rows)
    if original.manifest is None:
        recorder.close_segment()
        return run_dir
    made = original.manifest.made
    if settings is not None:
        made = msgspec.structs.replace(made, settings={**(made.settings or {}), **settings})
    recorder.finish(made)
    return run_dir


def _linked(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)  # the recorder's own empty part
    try:
        os.link(path, target)
    except OSError:  # another file system
        target.symlink_to(path.resolve())
