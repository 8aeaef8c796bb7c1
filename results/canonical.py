"""A table's rows in canonical order, put into a hash: sorted by all columns, then column by column.

A table that is small is sorted in memory. Of a large one a sample says where to cut the order into parts of a size that
can be; rows go to their parts' files as they are read, and each part is sorted by itself. The hash is the same, whatever the sample.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tribunal.results.scratch import Scratch

HASHED_ROWS: Final = 1 << 20  # are put into order at a time
WHOLE_ROWS: Final = 1 << 24  # and fewer are sorted in memory: a GiB or so, in less than half of the time
SORTED_ROWS: Final = 1 << 21  # are sorted at a time where there are more
SAMPLED: Final = 1 << 10  # of so many rows one says how the others are spread

Pieces = Callable[[], Iterator[pa.Table]]
Parts = Callable[[str], Iterator[pa.Array]]  # a column's rows, some at a time, in order


def hash_rows(digest: "hashlib._Hash", rows: pa.Table) -> None:
    """Add a table to a hash, sorted in memory."""
    rows = _with_text(rows)
    order = _canonical_order(rows)
    _hash_columns(digest, rows.schema, lambda column: _in_order(rows[column], order))


def hash_pieces(digest: "hashlib._Hash", count: int, pieces: Pieces) -> None:
    """Add a table of so many rows to a hash; pieces are read twice, and two pieces are never in memory at once."""
    with Scratch("order") as folder:
        sample = pa.concat_tables(_with_text(rows)[:: max(1, min(SAMPLED, SORTED_ROWS // 8))] for rows in pieces())
        cuts = _cuts(sample, -(-count // SORTED_ROWS))
        found = _cut_into(folder, cuts, pieces)
        for path in found:
            rows = pq.read_table(path)
            pq.write_table(rows.take(_canonical_order(rows)), path, compression="zstd", compression_level=1)
        _hash_columns(digest, cuts.schema, lambda column: _stored(found, column))


def _cuts(sample: pa.Table, count: int) -> pa.Table:
    """Return the rows at which the order is cut into so many parts of about the same size, in order."""
    places = np.arange(1, count) * sample.num_rows // count
    return sample.take(_canonical_order(sample).take(pa.array(places)))


def _cut_into(folder: Path, cuts: pa.Table, pieces: Pieces) -> list[Path]:
    """Put all rows into the files of their parts, each in whatever order; rows that are equal to a cut may stand on both sides."""
    paths = [folder / f"{place:05}.parquet" for place in range(cuts.num_rows + 1)]
    with ExitStack() as stack:
        writers = [
            stack.enter_context(pq.ParquetWriter(path, cuts.schema, compression="zstd", compression_level=1))
            for path in paths
        ]
        for piece in pieces():
            rows = _with_text(piece)
            order = _canonical_order(pa.concat_tables([rows, cuts])).to_numpy()
            ends = np.flatnonzero(order >= rows.num_rows)
            for place, (first, end) in enumerate(zip([0, *(ends + 1)], [*ends, order.size], strict=True)):
                if first < end:
                    writers[place].write_table(rows.take(pa.array(order[first:end])))
    return paths


def _stored(paths: Sequence[Path], column: str) -> Iterator[pa.Array]:
    for path in paths:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(HASHED_ROWS, columns=[column]):
                yield _as_text(batch.column(0))


def _with_text(rows: pa.Table) -> pa.Table:
    """Return rows with JSON in place of what is nested."""
    for position, field in enumerate(rows.schema):
        if pa.types.is_nested(field.type):
            text = [
                None if cell is None else msgspec.json.encode(cell).decode() for cell in rows[field.name].to_pylist()
            ]
            rows = rows.set_column(position, field.name, pa.array(text, pa.string()))
    return rows


def _canonical_order(rows: pa.Table) -> pa.Array:
    """Return where the rows stand when they are sorted by all columns: rows themselves are never copied as a whole."""
    keys = pa.table({name: _sort_key(rows[name]) for name in rows.column_names})
    return pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])


def _sort_key(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Return what sorts like a column; of a dictionary the places of its words, which are smaller than the words."""
    if not pa.types.is_dictionary(column.type):
        return column
    encoded = _one_dictionary(column)
    words = encoded.dictionary.to_pylist()
    places = {word: place for place, word in enumerate(sorted(word for word in set(words) if word is not None))}
    return pa.array([None if word is None else places[word] for word in words], pa.int32()).take(encoded.indices)


def _one_dictionary(column: pa.ChunkedArray) -> pa.DictionaryArray:
    return column.unify_dictionaries().combine_chunks()


def _hash_columns(digest: "hashlib._Hash", schema: pa.Schema, parts: Parts) -> None:
    """Add each column: for all rows whether there is anything, then what; of text the lengths and then the text."""
    for field in schema:
        digest.update(field.name.encode())
        for rows in parts(field.name):
            digest.update(rows.is_valid().cast(pa.uint8()).to_numpy(zero_copy_only=False).tobytes())
        if pa.types.is_string(field.type) or pa.types.is_dictionary(field.type):
            for rows in parts(field.name):
                lengths = pc.binary_length(rows.fill_null("")).cast(pa.int32())
                digest.update(lengths.to_numpy(zero_copy_only=False).tobytes())
            for rows in parts(field.name):
                digest.update("".join(rows.drop_null().to_pylist()).encode())
            continue
        for rows in parts(field.name):
            filled = rows.cast(pa.uint8()) if pa.types.is_boolean(field.type) else rows
            digest.update(filled.fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False).astype("<i8").tobytes())


def _in_order(column: pa.ChunkedArray, order: pa.Array) -> Iterator[pa.Array]:
    """Yield a column in an order, some rows at a time."""
    if pa.types.is_string(column.type):
        column = column.cast(pa.large_string())  # more than 2 GiB of it are one array, too
    # One array: of many chunks each look-up would make one again.
    whole = _one_dictionary(column) if pa.types.is_dictionary(column.type) else column.combine_chunks()
    for first in range(0, len(order), HASHED_ROWS):
        yield _as_text(whole.take(order.slice(first, HASHED_ROWS)))


def _as_text(rows: pa.Array) -> pa.Array:
    return rows.cast(pa.string()) if pa.types.is_dictionary(rows.type) else rows
