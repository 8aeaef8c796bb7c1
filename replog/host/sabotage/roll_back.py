"""Put a dead node's files back to where its last fsyncs left them (`undo_journal.py`)."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from replog.host.sabotage.undo_journal import KEPT, Patch, Unsynced, load


class RolledBack(msgspec.Struct, frozen=True, kw_only=True):
    """What was undone."""

    file_count: int  # files whose content or size went back
    byte_count: int  # bytes that files are shorter
    name_count: int  # names that went back


def roll_back(directory: Path, roots: Sequence[Path]) -> RolledBack:
    """Undo all that the journal in `directory` holds, in the trees below `roots`; then there is no journal."""
    state = load(directory)
    kept = directory / KEPT
    kept.mkdir(parents=True, exist_ok=True)
    where = _inodes([*roots, kept])
    files, lost_bytes = 0, 0
    for inode, size in state.sizes.items():
        path = where.get(inode)
        if path is not None and path.is_file():
            files += 1
            lost_bytes += _restore(path, size, state.patches.get(inode, []))
    names = _restore_names(state, roots, kept)
    shutil.rmtree(directory)
    return RolledBack(file_count=files, byte_count=lost_bytes, name_count=names)


def _inodes(roots: Sequence[Path]) -> dict[int, Path]:
    """Return where each inode is; directories come before what they hold."""
    found: dict[int, Path] = {}
    for root in roots:
        for folder, _, files in os.walk(root):
            found[Path(folder).stat().st_ino] = Path(folder)
            found |= {os.lstat(Path(folder, name)).st_ino: Path(folder, name) for name in files}
    return found


def _restore(path: Path, size: int, patches: Sequence[Patch]) -> int:
    """Put a file's content back; return how much shorter it has become."""
    before = path.stat().st_size
    with path.open("r+b") as file:
        for patch in reversed(patches):
            file.seek(patch.position)
            file.write(patch.old)
        file.truncate(size)
    return max(0, before - size)


def _restore_names(state: Unsynced, roots: Sequence[Path], kept: Path) -> int:
    _keep_what_is_meant(state, roots, kept)
    where = _inodes([*roots, kept])
    meant: list[tuple[Path, int]] = []
    for directory, names in state.names.items():
        folder = where.get(directory)
        for name, inode in names.items() if folder is not None else ():
            assert folder is not None
            _take_away(folder / name)
            if inode:
                meant.append((folder / name, inode))
    folders = []
    for path, inode in meant:
        source = kept / str(inode)
        if source.is_dir():
            folders.append((path, source))
        elif source.exists() and path.parent.is_dir():
            os.link(source, path)
    for path, source in folders:
        if path.parent.is_dir() and source.is_dir():
            source.rename(path)
    return sum(map(len, state.names.values()))


def _keep_what_is_meant(state: Unsynced, roots: Sequence[Path], kept: Path) -> None:
    """Have every file and directory that a durable name means in `kept`, whatever its name is now."""
    for inode in sorted(state.referenced()):
        place = kept / str(inode)
        now = None if place.exists() else _inodes([*roots, kept]).get(inode)
        if now is None:
            continue
        if now.is_dir():
            now.rename(place)
        else:
            os.link(now, place)


def _take_away(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
