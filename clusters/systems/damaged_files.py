"""Damages files of a folder, and says which; run as a script where the folder is seen, standard library only.

    python -I -S damaged_files.py FOLDER PATTERN HOW MOST SEED

It says one line of JSON: {"matching": how many files match and hold something, "damaged": [{"path", "at", "was", "is"}, ...], "others": [...]}.
`at` is the first byte that is another one, `was` and `is` are bytes in hexadecimal digits (of a cut: the lengths); `others` names some files that
there are where none matches. What it writes is synced, as it is the disk that has it. Room that was made in advance (zeros) holds nothing: a bit or a page
of zeros would be missed by nobody, and what is cut off is a third of what there is before the last byte that is not zero.
"""

import json
import os
import sys
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

PAGE: Final = 4096
CHUNK: Final = 1 << 20
OTHERS: Final = 10
SHOWN: Final = 8  # bytes of a page that was


class Damaged(NamedTuple):
    """What is another one in a file, from which byte on: as it was, and as it is."""

    path: str
    at: int
    was: str
    now: str


def held(path: Path) -> tuple[int, int]:
    """Return how many bytes of a file are not zero, and where the last of them ends."""
    count = end = begin = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            kept = chunk.rstrip(b"\0")
            count += len(kept) - kept.count(0)
            end = begin + len(kept) if kept else end
            begin += len(chunk)
    return count, end


def place_of(path: Path, number: int) -> int:
    """Return where the so-manieth byte stands that is not zero."""
    begin = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            count = len(chunk) - chunk.count(0)
            if number < count:
                return begin + next(at for at, byte in enumerate(chunk) if byte and (number := number - 1) < 0)
            number -= count
            begin += len(chunk)
    raise OSError(f"{path} holds less than before")


def damaged(path: Path, count: int, end: int, how: str, random: Random) -> Damaged:
    """Damage one file that holds something (`held`). Raises OSError."""
    with path.open("r+b", buffering=0) as file:
        if how == "truncate":
            length, cut = path.stat().st_size, end - -(-end // 3)
            file.truncate(cut)
            os.fsync(file.fileno())
            return Damaged(str(path), cut, str(length), str(path.stat().st_size))
        at = place_of(path, random.randrange(count))
        if how == "zeros":
            at -= at % PAGE
        file.seek(at)
        was = file.read(1 if how == "bit-flip" else PAGE)
        now = bytes([was[0] ^ 1 << random.randrange(8)]) if how == "bit-flip" else bytes(len(was))
        file.seek(at)
        file.write(now)
        os.fsync(file.fileno())
        first = next(place for place, (old, new) in enumerate(zip(was, now, strict=True)) if old != new)
        file.seek(at + first)
        return Damaged(str(path), at + first, was[first:][:SHOWN].hex(), file.read(len(was) - first)[:SHOWN].hex())


def _is_own(path: Path, folder: Path) -> bool:
    """Whether a path is a file of a folder: what a link leads to, also one on the way there, may be anybody's."""
    return path.is_file() and not path.is_symlink() and path.resolve().is_relative_to(folder.resolve())


def _named(path: str | Path, folder: Path) -> str:
    """Return a path from a folder on, as text: names are any bytes, and JSON is not."""
    return os.fsencode(os.path.relpath(path, folder)).decode(errors="replace")


def main(folder: Path, pattern: str, how: str, most: int, seed: int) -> dict[str, object]:
    """Damage at most so many files; return what is said."""
    random = Random(seed)
    files = sorted(path for path in folder.glob(pattern) if _is_own(path, folder))
    matching = {path: content for path in files if (content := held(path))[0]}
    chosen = sorted(random.sample(list(matching), min(most, len(matching))))
    found = [damaged(path, *matching[path], how, random) for path in chosen]
    there = () if matching else sorted(path for path in folder.rglob("*") if path.is_file())[:OTHERS]
    return {
        "matching": len(matching),
        "damaged": [{"path": _named(one.path, folder), "at": one.at, "was": one.was, "is": one.now} for one in found],
        "others": [_named(path, folder) for path in there],
    }


if __name__ == "__main__":
    said = main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    sys.stdout.write(json.dumps(said) + "\n")
