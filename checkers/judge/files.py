"""The files of a large recording, dealt out: what one task sees of each file, and what has to be compared across files.

That no value was sent twice concerns all files of `sends`. Each file says of every process between which sequence numbers it
holds values. Most files share none of these *spans* with another one; where some do, the spans are cut into windows, and a task looks
at all files that reach into its window. So no task sees all values, and nothing grows with the recording but the list of files.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from tribunal.results.manifest import FileFacts, Manifest
from tribunal.results.recording import DamagedRecording
from tribunal.results.store import differs, partition_in, partition_order
from tribunal.results.validation import all_different, by_process
from tribunal.results.values import SEQUENCE_BITS
from tribunal.results.versions import tables_of

DEALT_BYTES: Final = 16 << 20  # a recording's files, from which on they are dealt out
TOGETHER_BYTES: Final = 64 << 20
TOGETHER_VALUES: Final = 1 << 23


class Span(msgspec.Struct, frozen=True):
    """Sequence numbers of a process from `first` on and before `end`, in which a file holds so many values."""

    process: int
    first: int
    end: int
    count: int


class FileSeen(msgspec.Struct, frozen=True):
    """One file, as its task saw it.

    facts:  None where there is no manifest to compare them with.
    spans:  of a file of `sends`; twice: it holds a value twice by itself.
    """

    run_dir: str
    table: str
    path: str
    spans: list[Span]
    twice: bool
    facts: FileFacts | None = None


class Window(msgspec.Struct, frozen=True):
    """Sequence numbers that several files may hold: for each process from the first on and before the second."""

    paths: tuple[str, ...]
    wanted: dict[int, tuple[int, int]]


def dealt(run_dir: Path, tables: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield tables with some of their files each, of which one task sees all bytes; nothing for a recording that is small."""
    found = [(name, path, path.stat().st_size) for name in tables for path in _paths(run_dir, name)]
    if sum(size for _, _, size in found) < DEALT_BYTES:
        return
    own: list[str] = []
    whole = 0
    for place, (name, path, size) in enumerate(found):
        own.append(str(path))
        whole += size
        if whole >= TOGETHER_BYTES or place + 1 == len(found) or found[place + 1][0] != name:
            yield name, tuple(own)
            own, whole = [], 0


def _paths(run_dir: Path, name: str) -> list[Path]:
    return sorted((run_dir / "recording" / name).glob("tp=*/part-*.parquet"))


def spans(pieces: Iterable[np.ndarray]) -> list[Span]:
    """Return where the values of one file lie, for each process."""
    found: dict[int, Span] = {}
    for values in pieces:
        for process, sequences in by_process(values):
            first, end = int(sequences.min()), int(sequences.max()) + 1
            former = found.get(process, Span(process, first, end, 0))
            count = former.count + int(sequences.size)
            found[process] = Span(process, min(first, former.first), max(end, former.end), count)
    return [found[process] for process in sorted(found)]


def wrong(manifest: Manifest, seen: Iterable[FileSeen]) -> DamagedRecording | None:
    """Compare all files of a recording with its manifest, in the manifest's order."""
    by_table: dict[str, list[FileSeen]] = {}
    for file in seen:
        by_table.setdefault(file.table, []).append(file)
    for name in tables_of(manifest.schema_version):
        own = sorted(by_table.get(name, []), key=_order)
        damage = differs(manifest, name, (file.facts for file in own if file.facts is not None))
        if damage is not None:
            return damage
    return None


def _order(file: FileSeen) -> tuple[tuple[str, int], str]:
    path = Path(file.path)
    return partition_order(partition_in(path.parent)), path.name


def windows(seen: Iterable[FileSeen]) -> list[Window]:
    """Return what has to be looked at again so that no value can stand twice: nothing where no spans overlap."""
    files = [file for file in seen if file.spans]
    by_itself = [
        Window((file.path,), {own.process: (own.first, own.end) for own in file.spans}) for file in files if file.twice
    ]
    shared = _shared(own for file in files for own in file.spans)
    if not shared:
        return by_itself
    count = max(1, -(-sum(own.count for own in shared.values()) // TOGETHER_VALUES))
    bounds = {
        process: [own.first + (own.end - own.first) * place // count for place in range(count + 1)]
        for process, own in shared.items()
    }
    paths: list[dict[str, None]] = [{} for _ in range(count)]
    for file in files:
        for own in file.spans:
            for place in _reached(own, bounds.get(own.process, ())):
                paths[place][file.path] = None
    cut = [{name: (own[place], own[place + 1]) for name, own in bounds.items()} for place in range(count)]
    return by_itself + [Window(tuple(own), wanted) for own, wanted in zip(paths, cut, strict=True)]


def _shared(every: Iterable[Span]) -> dict[int, Span]:
    """Return for each process what lies between the first and the last of its spans that overlap; count: of values in these."""
    by_name: dict[int, list[Span]] = {}
    for own in every:
        by_name.setdefault(own.process, []).append(own)
    shared: dict[int, Span] = {}
    for process, found in by_name.items():
        together = _overlapping(sorted(found, key=lambda own: (own.first, own.end)))
        if together:
            first, end = min(own.first for own in together), max(own.end for own in together)
            shared[process] = Span(process, first, end, sum(own.count for own in together))
    return shared


def _overlapping(ordered: Sequence[Span]) -> list[Span]:
    """Return the spans that overlap with another one; each is met by the one before that reaches farthest."""
    together: dict[int, Span] = {}
    farthest = 0
    for place in range(1, len(ordered)):
        if ordered[place].first < ordered[farthest].end:
            together |= {farthest: ordered[farthest], place: ordered[place]}
        if ordered[place].end > ordered[farthest].end:
            farthest = place
    return list(together.values())


def _reached(own: Span, bounds: Sequence[int]) -> range:
    """Return the places of the windows that hold anything of a span."""
    if not bounds or own.end <= bounds[0] or own.first >= bounds[-1]:
        return range(0)
    last = len(bounds) - 2
    return range(max(0, bisect_right(bounds, own.first) - 1), min(last, bisect_right(bounds, own.end - 1) - 1) + 1)


def differ(pieces: Iterable[np.ndarray], wanted: Mapping[int, tuple[int, int]]) -> bool:
    """Whether no value of a window occurs twice in these pieces; sequences are counted from the window's beginning."""
    return all_different(_inside(values, wanted) for values in pieces)


def _inside(values: np.ndarray, wanted: Mapping[int, tuple[int, int]]) -> np.ndarray:
    parts = [np.zeros(0, np.int64)]
    for process, sequences in by_process(values):
        first, end = wanted.get(process, (0, 0))
        own = sequences[(sequences >= first) & (sequences < end)] - first
        parts.append((process << SEQUENCE_BITS) | own)
    return np.concatenate(parts)
