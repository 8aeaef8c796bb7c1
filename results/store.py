"""Write a recording while a run goes on, and read it back when it is judged.

Rows are gathered in memory and leave as segments: one Parquet file per table and partition, written as
`.tmp` and renamed, so that a harness that dies leaves only complete segments. The one who runs calls
`close_segment` every few seconds; a segment also closes by itself when it has many rows. A recording
without manifest.json was cut off: it is judged by what is closed.
"""

import hashlib
import platform
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tribunal.results import canonical
from tribunal.results.manifest import FileFacts, Made, Manifest, Setting, TableFacts, Version
from tribunal.results.mirror import footers_here, here
from tribunal.results.recording import NO_PARTITION, SCHEMA_VERSION, TABLES, DamagedRecording, TableSchema
from tribunal.results.unreadable import UNREADABLE
from tribunal.results.validation import contradiction, value_sent_twice, wrong_schema
from tribunal.results.versions import OLDEST, StoredTable, is_known, stored_table, tables_of
from tribunal.results.whole_files import put_json

SEGMENT_ROWS: Final = 262_144
ROW_GROUP_ROWS: Final = 262_144
VERSION_KEY: Final = b"tribunal.schema_version"
MANIFEST: Final = "manifest.json"
LARGE_ROWS: Final = 65_536  # such a file has statistics of every column, and is read by several threads
MEASURED: Final = [
    "log_offset"
]  # hot partitions are cut by it; of all columns statistics would be an eighth of a small recording

Row = dict[str, object]  # of any table: whether a value is of its column's type, Arrow says


class WrongRow(ValueError):
    """A row that the schema does not know: a mistake of the one who records."""


class Recorder:
    """The writing side of one run's recording. Safe to call from delivery threads."""

    def __init__(self, run_dir: Path, run_id: str, *, segment_rows: int = SEGMENT_ROWS) -> None:
        self.run_dir = Path(run_dir)
        self.run_id = run_id
        self._segment_rows = segment_rows
        self._rows: dict[str, list[Row]] = {name: [] for name in TABLES}
        self._row_count = 0
        self._segment = 0
        self._lock = threading.Lock()
        self._closing = threading.Lock()
        # Every table exists from the start, so that a table which is missing later was taken away.
        for table in TABLES.values():
            self._write(table, NO_PARTITION, table.arrow.empty_table())

    def row(self, table: str, **columns: object) -> None:
        """Record one fact; unknown columns and missing required ones are refused at once."""
        schema = TABLES.get(table)
        if schema is None:
            raise WrongRow(f"unknown table {table}")
        if not columns.keys() <= schema.fields.keys():
            raise WrongRow(f"table {table} has no column {min(columns.keys() - schema.fields.keys())}")
        if not schema.required <= columns.keys():
            raise WrongRow(f"table {table} needs column {min(schema.required - columns.keys())}")
        with self._lock:
            self._rows[table].append(columns)
            self._row_count += 1
            full = self._row_count >= self._segment_rows
        if full:
            self.close_segment()

    def write(self, table: str, rows: pa.Table) -> None:
        """Record many rows at once as segments of their own: Arrow columns of the table's types, without run_id."""
        schema = TABLES[table]
        with self._closing:
            self._segment += 1
            run_id = pa.array([self.run_id], pa.string()).take(pa.array(np.zeros(rows.num_rows, np.int64)))
            self._write_by_partition(schema, rows.add_column(0, "run_id", run_id).cast(schema.arrow))

    def close_segment(self) -> None:
        """Make all rows so far survive this process; those of a table that cannot be written go with the next segment."""
        with self._closing:
            with self._lock:
                closing, self._rows = self._rows, {name: [] for name in TABLES}
                self._row_count = 0
            self._segment += 1
            for name in [name for name, rows in closing.items() if rows]:
                try:
                    self._write_by_partition(TABLES[name], self._columns(TABLES[name], closing[name]))
                except OSError:
                    self._take_back(name, closing)
                    raise
                del closing[name]

    def _take_back(self, half_written: str, rows: Mapping[str, list[Row]]) -> None:
        for path in (self.run_dir / "recording" / half_written).glob(f"tp=*/part-{self._segment:05}.parquet"):
            path.unlink()
        with self._lock:
            for name, former in rows.items():
                self._rows[name] = former + self._rows[name]
                self._row_count += len(former)

    def finish(self, made: Made) -> Manifest:
        """Close the last segment and write manifest.json: the recording is complete; return the manifest as written."""
        self.close_segment()
        files = _files(self.run_dir / "recording")
        tables = {name: _fingerprint(self.run_dir, list(_flat(files[name]))) for name in TABLES}
        manifest = Manifest(
            **msgspec.structs.asdict(made),
            schema_version=SCHEMA_VERSION,
            run_id=self.run_id,
            python=platform.python_version(),
            platform=platform.platform(),
            tables=tables,
            recording_hash=recording_hash(Recording(self.run_dir, self.run_id, None, files)),
        )
        put_json(self.run_dir / MANIFEST, manifest)
        return manifest

    def _columns(self, table: TableSchema, rows: list[Row]) -> pa.Table:
        run_id = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(rows), np.int32)), [self.run_id])
        arrays = [run_id]
        for name, kind in table.fields.items():
            values = [row.get(name) for row in rows]
            try:
                array = pa.array(values, pa.string() if pa.types.is_dictionary(kind) else kind)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
                raise WrongRow(f"table {table.name}, column {name}: {error}") from error
            arrays.append(array.dictionary_encode() if pa.types.is_dictionary(kind) else array)
        return pa.Table.from_arrays(arrays, schema=table.arrow)

    def _write_by_partition(self, table: TableSchema, rows: pa.Table) -> None:
        if not table.by_partition:
            self._write(table, NO_PARTITION, rows)
            return
        names = pc.binary_join_element_wise(
            rows["topic"].cast(pa.string()), rows["partition"].cast(pa.string()), "-"
        ).combine_chunks()
        encoded = names.dictionary_encode()
        codes = encoded.indices.to_numpy()
        for code, name in enumerate(encoded.dictionary.to_pylist()):
            self._write(table, name, rows.take(pa.array(np.flatnonzero(codes == code))))

    def _write(self, table: TableSchema, topic_partition: str, rows: pa.Table) -> None:
        folder = self.run_dir / "recording" / table.name / _folder_of(topic_partition)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"part-{self._segment:05}.parquet"
        temporary = path.with_suffix(".tmp")
        words, integers = _encoded(table.name)
        pq.write_table(
            rows.replace_schema_metadata({VERSION_KEY: str(SCHEMA_VERSION)}),
            temporary,
            compression="zstd",
            compression_level=1,
            use_dictionary=list(words),
            column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
            write_statistics=rows.num_rows > LARGE_ROWS or MEASURED,
            row_group_size=ROW_GROUP_ROWS,
        )
        temporary.replace(path)


@cache
def _encoded(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which columns of a table's files hold words of which there are few, and which hold whole numbers: also those of what is in lists."""
    leaves = [leaf for field in TABLES[name].arrow for leaf in _leaves(field.name, field.type)]
    texts = {path for path, kind in leaves if "." in path and pa.types.is_string(kind)}
    words = tuple(path for path, kind in leaves if path in texts or pa.types.is_dictionary(kind))
    return words, tuple(path for path, kind in leaves if pa.types.is_integer(kind))


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    if pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    else:
        yield path, kind


class Recording:
    """The reading side: the closed segments of one run, structurally sound."""

    def __init__(
        self, run_dir: Path, run_id: str, manifest: Manifest | None, files: dict[str, dict[str, list[Path]]]
    ) -> None:
        self.run_dir = run_dir
        self.run_id = run_id
        self.manifest = manifest
        self.files = files
        self._of_run: dict[str, pa.Table] = {}  # tables of the run as a whole: small, and asked for again and again

    @classmethod
    def open(cls, run_dir: Path, *, compare: bool = True, only: str | None = None) -> "Recording":
        """Open a run's folder; `DamagedRecording` says what cannot be trusted. Rows are checked by `validate`.

        compare:  compare all files with the manifest's counts and hashes, which reads everything once.
        only:     see no other partition's files than this one's: listing all of them for each is quadratic.
        """
        run_dir = Path(run_dir)
        folder = run_dir / "recording"
        if not folder.is_dir():
            raise DamagedRecording("", None, f"no recording in {run_dir}")
        manifest = _manifest(run_dir / MANIFEST)
        files = _files(folder, only)
        for name in tables_of(_version_of(manifest, files)):
            if not files[name]:
                raise DamagedRecording(name, None, "the table is missing")
        if manifest is not None and compare:
            _compare_with_manifest(run_dir, manifest, files)
        run_id = manifest.run_id if manifest is not None else run_dir.resolve().name
        return cls(run_dir, run_id, manifest, files)

    @property
    def complete(self) -> bool:
        """Whether the run came to its end; a cut-off run has no manifest."""
        return self.manifest is not None

    @property
    def settings(self) -> Mapping[str, Setting] | None:
        """What every node was started with; None: unknown."""
        return None if self.manifest is None else self.manifest.settings

    def partitions(self, *tables: str) -> list[str]:
        """Return the `topic-p` that any of these tables has rows of, by topic and number."""
        names = {name: None for table in tables for name in self.files[table] if name != NO_PARTITION}
        return sorted(names, key=partition_order)

    def table(self, name: str, topic_partition: str | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """Read a table, or one partition of it; columns as asked for, types as in the schema."""
        if topic_partition is None and not TABLES[name].by_partition:
            rows = self._table_of_run(name)
            return rows if columns is None else rows.select(list(columns))
        by_partition = self.files[name]
        chosen = _flat(by_partition) if topic_partition is None else by_partition.get(topic_partition, [])
        return read_files(name, chosen, columns)

    def _table_of_run(self, name: str) -> pa.Table:
        if name not in self._of_run:
            self._of_run[name] = read_files(name, _flat(self.files[name]))
        return self._of_run[name]

    def validate(self) -> None:
        """Look at every row for contradictions; raise the first as `DamagedRecording`."""
        sent = []
        for name, schema in TABLES.items():
            parts = self.partitions(name) if schema.by_partition else [NO_PARTITION]
            for part in parts:
                rows = self.table(name, part)
                damage = contradiction(name, rows)
                if damage is not None:
                    raise DamagedRecording(name, damage.row, f"{damage.reason} (tp={part})")
                if name == "sends":
                    sent.append(rows["value"].to_numpy())
        position = value_sent_twice(np.concatenate(sent)) if sent else None
        if position is not None:
            value = int(np.concatenate(sent)[position])
            raise DamagedRecording("sends", position, f"value {value} was sent twice")


def partition_order(topic_partition: str) -> tuple[str, int]:
    """Sort key of `topic-p`: topics by name, partitions by number."""
    topic, _, number = topic_partition.rpartition("-")
    return (topic, int(number)) if number.isdecimal() else (topic_partition, -1)


def read_files(name: str, paths: Iterable[Path | str], columns: Sequence[str] | None = None) -> pa.Table:
    """Read some segments of one table, in order; every file's columns and types are checked.

    Text columns come as plain strings or dictionaries as the file has them, cast to the schema's type.
    """
    schema = TABLES[name].arrow
    if columns is not None:
        schema = pa.schema([schema.field(column) for column in columns])
    own = [Path(path) for path in paths]
    here(*own)
    parts = [_read_file(name, path, schema) for path in own]
    return pa.concat_tables(parts) if parts else schema.empty_table()


def row_count(name: str, paths: Iterable[Path]) -> int:
    """Return how many rows some segments of one table have, by their footers."""
    count = 0
    own = list(paths)
    footers_here(*own)
    for path in own:
        with readable(name, path, only_footer=True) as (file, _):
            count += file.metadata.num_rows
    return count


def _read_file(name: str, path: Path, schema: pa.Schema) -> pa.Table:
    with readable(name, path) as (file, stored):
        if not file.metadata.num_rows:
            return schema.empty_table()
        names = stored.stored(schema.names)
        if file.metadata.num_rows <= LARGE_ROWS:  # handing a small file to other threads costs more than reading it
            return stored.as_today(file.read(columns=names, use_threads=False), schema)
        alike = _alike(file, names)
        rows = file.read(columns=[name for name in names if name not in alike])
        columns = [alike[name] if name in alike else rows[name] for name in names]
        stored_schema = pa.schema([file.schema_arrow.field(name) for name in names])
        return stored.as_today(pa.Table.from_arrays(columns, schema=stored_schema), schema)


def _alike(file: pq.ParquetFile, names: Sequence[str]) -> dict[str, pa.Array]:
    """Return the columns whose rows all hold the same, or nothing, as the file's statistics say: they need not be decoded."""
    metadata, schema = file.metadata, file.schema_arrow
    # Of a column of lists statistics speak of what stands in them; and behind one columns have other numbers than fields.
    leaves = {file.schema.column(leaf).path: leaf for leaf in range(len(file.schema))}
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    return {
        name: _repeated(only.value, schema.field(name).type, metadata.num_rows)
        for name in names
        if name in leaves and (only := _only_value(groups, leaves[name])) is not None
    }


class _Only(NamedTuple):
    value: object


def _only_value(groups: Sequence[pq.RowGroupMetaData], column: int) -> _Only | None:
    """Return what all rows of a column hold; None: they differ, or nobody knows."""
    values: set[object] = set()
    for group in groups:
        statistics = group.column(column).statistics
        if statistics is None or not statistics.has_null_count:
            return None
        if statistics.null_count == group.num_rows:
            values.add(None)
        elif statistics.null_count == 0 and statistics.has_min_max and statistics.min == statistics.max:
            values.add(statistics.min)
        else:
            return None
        if len(values) > 1:
            return None
    return _Only(values.pop())


def _repeated(value: object, kind: pa.DataType, count: int) -> pa.Array:
    if value is None:
        return _nulls(kind, count)
    if pa.types.is_dictionary(kind):
        indices = pa.Array.from_buffers(kind.index_type, count, [None, _zeros(count * kind.index_type.bit_width)])
        return pa.DictionaryArray.from_arrays(indices, pa.array([value], kind.value_type))
    return pa.repeat(pa.scalar(value, kind), count)


def _nulls(kind: pa.DataType, count: int) -> pa.Array:
    if not pa.types.is_primitive(kind):
        return pa.nulls(count, kind)
    return pa.Array.from_buffers(kind, count, [_zeros(count), _zeros(count * kind.bit_width)], null_count=count)


def _zeros(bits: int) -> pa.Buffer:
    """Return at least so many bits that are not set: the same memory for all, since nobody writes into columns."""
    global _unset
    if _unset.size * 8 < bits:
        _unset = pa.py_buffer(bytes(2 * (bits // 8 + 1)))
    return _unset


_unset = pa.py_buffer(b"")


@contextmanager
def readable(name: str, path: Path, *, only_footer: bool = False) -> Iterator[tuple[pq.ParquetFile, StoredTable]]:
    """Open a segment of a table, and say how it is stored; whatever is wrong with it, also while it is read, is a DamagedRecording.

    only_footer:  nobody reads rows of it, which are not there where only the footer was fetched.
    """
    (footers_here if only_footer else here)(path)
    try:
        with pq.ParquetFile(path) as file:
            yield file, checked_footer(name, path, file)
    except (OSError, pa.ArrowException) as error:
        raise DamagedRecording(name, None, f"{path.name}: not a readable Parquet file ({_short(error)})") from error


def checked_footer(name: str, path: Path, file: pq.ParquetFile) -> StoredTable:
    """Return how a file's version stores the table. Raises DamagedRecording for an unknown version or other columns."""
    found = file.schema_arrow
    version = _version(name, path, file, found)
    stored = stored_table(name, version)
    wrong = wrong_schema(stored.arrow, found)
    if wrong is not None:
        raise DamagedRecording(name, None, f"{path.name}: {wrong}")
    return stored


def _version(name: str, path: Path, file: pq.ParquetFile, found: pa.Schema) -> int:
    """Return the version that a file names; of one that names none the newest that has these columns."""
    written = (file.metadata.metadata or {}).get(VERSION_KEY)
    if written is None:
        versions = range(SCHEMA_VERSION, OLDEST - 1, -1)
        fitting = (one for one in versions if wrong_schema(stored_table(name, one).arrow, found) is None)
        return next(fitting, SCHEMA_VERSION)
    if not written.isdigit() or not is_known(int(written)):
        raise DamagedRecording(name, None, f"{path.name}: unknown schema version {written.decode(errors='replace')}")
    return int(written)


def _short(error: Exception) -> str:
    return re.sub(r"\s+", " ", str(error)).split(". ")[0][:120]


def _manifest(path: Path) -> Manifest | None:
    if not path.exists():
        return None
    content = path.read_bytes()
    try:
        version = msgspec.json.decode(content, type=Version).schema_version
        if not is_known(version):
            # Before the other fields: a manifest of another version may have any.
            raise DamagedRecording("", None, f"unknown schema version {version!r} (this is {SCHEMA_VERSION})")
        return msgspec.json.decode(content, type=Manifest)
    except UNREADABLE as error:
        raise DamagedRecording("", None, f"manifest.json cannot be read: {error}") from error


def _version_of(manifest: Manifest | None, files: Mapping[str, Mapping[str, list[Path]]]) -> int:
    """Return the version of a recording; of one that was cut off and lacks a table, the oldest that its files are of."""
    if manifest is not None:
        return manifest.schema_version
    lacking = not all(files[name] for name in TABLES)
    paths = {name: _flat(files[name])[:1] for name in tables_of(OLDEST) if lacking}
    return min((_version_in(name, path) for name, own in paths.items() for path in own), default=SCHEMA_VERSION)


def _version_in(name: str, path: Path) -> int:
    """Return the version of a file; of one that cannot be read who reads it will say so."""
    footers_here(path)
    try:
        with pq.ParquetFile(path) as file:
            return _version(name, path, file, file.schema_arrow)
    except (OSError, pa.ArrowException):
        return SCHEMA_VERSION


def _files(folder: Path, only: str | None = None) -> dict[str, dict[str, list[Path]]]:
    """Return table -> topic-p -> closed segments in order; `.tmp` files never closed."""
    found: dict[str, dict[str, list[Path]]] = {name: {} for name in TABLES}
    for name, parts in found.items():
        chosen = (folder / name).glob("tp=*") if only is None else _existing(folder / name, only, NO_PARTITION)
        for part in sorted(chosen):
            segments = sorted(part.glob("part-*.parquet"))
            if segments:
                parts[_checked_partition(name, part)] = segments
    return found


def _checked_partition(name: str, folder: Path) -> str:
    """Return whose rows lie in a folder; one that no recorder makes would be seen with all partitions, and not by who asks for one."""
    topic_partition = partition_in(folder)
    may_be = TABLES[name].by_partition or topic_partition == NO_PARTITION
    if not may_be or folder.name != _folder_of(topic_partition):
        raise DamagedRecording(name, None, f"{folder.name}: no folder of this table")
    return topic_partition


def _existing(folder: Path, *names: str) -> list[Path]:
    return [path for path in (folder / _folder_of(name) for name in names) if path.is_dir()]


def _folder_of(topic_partition: str) -> str:
    return f"tp={quote(topic_partition, safe='')}"


def partition_in(folder: Path) -> str:
    """Return the `topic-p` whose rows lie in a folder `tp=...`: a topic created again has a `@`, which stands there as `%40`."""
    return unquote(folder.name.removeprefix("tp="))


def _flat(by_partition: Mapping[str, list[Path]]) -> list[Path]:
    return [path for name in sorted(by_partition, key=partition_order) for path in by_partition[name]]


def _fingerprint(run_dir: Path, paths: Sequence[Path]) -> TableFacts:
    digest = hashlib.sha256()
    rows = 0
    for path in paths:
        digest.update(path.relative_to(run_dir).as_posix().encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
        rows += pq.read_metadata(path).num_rows
    return TableFacts(rows=rows, files=len(paths), sha256=digest.hexdigest())


def _compare_with_manifest(run_dir: Path, manifest: Manifest, files: dict[str, dict[str, list[Path]]]) -> None:
    for name in tables_of(manifest.schema_version):
        damage = differs(manifest, name, (file_facts(run_dir, name, path) for path in _flat(files[name])))
        if damage is not None:
            raise damage


def file_facts(run_dir: Path, name: str, path: Path) -> FileFacts:
    """Read a file of a table, all of it: what the manifest is compared with."""
    place = path.relative_to(run_dir).as_posix()
    try:
        with readable(name, path) as (file, _):
            rows = file.metadata.num_rows
        with path.open("rb") as content:
            return FileFacts(path=place, rows=rows, sha256=hashlib.file_digest(content, "sha256").hexdigest())
    except DamagedRecording as damage:
        return FileFacts(path=place, damage=damage.reason)


def differs(manifest: Manifest, name: str, files: Iterable[FileFacts]) -> DamagedRecording | None:
    """Say in what a table is not what the manifest states; None: in nothing.

    files:  all of the table, in order; none is asked for behind one that cannot be read.
    """
    stated = manifest.tables.get(name)
    if stated is None:
        return DamagedRecording(name, None, "the manifest does not know the table")
    digest, rows, count = hashlib.sha256(), 0, 0
    for file in files:
        if file.damage is not None:
            return DamagedRecording(name, None, file.damage)
        digest.update(file.path.encode() + bytes.fromhex(file.sha256))
        rows, count = rows + file.rows, count + 1
    if rows != stated.rows:
        return DamagedRecording(name, None, f"has {rows} rows, the manifest says {stated.rows}")
    if count != stated.files:
        return DamagedRecording(name, None, f"has {count} files, the manifest says {stated.files}")
    if digest.hexdigest() != stated.sha256:
        return DamagedRecording(name, None, "was changed after the manifest was written (sha256 differs)")
    return None


def recording_hash(recording: Recording, version: int = SCHEMA_VERSION) -> str:
    """Return sha256 over all rows in canonical order and encoding; run_id and file layout don't count.

    version:  hash what this version would have stored of it, so that a recording of an earlier one can be compared.
    """
    digest = hashlib.sha256()
    for name in sorted(tables_of(version)):
        stored = stored_table(name, version)
        paths = _flat(recording.files[name])
        count = row_count(name, paths)
        digest.update(f"{name} {count}\n".encode())
        in_parts = _hash_in_parts(digest, count, partial(_row_groups, name, paths, stored))
        if in_parts is None:
            canonical.hash_rows(digest, stored.as_stored(recording.table(name)).drop_columns(["run_id"]))
        else:
            digest = in_parts
    return digest.hexdigest()


def _hash_in_parts(digest: "hashlib._Hash", count: int, pieces: canonical.Pieces) -> "hashlib._Hash | None":
    """Return the hash with a large table added to it; None for a small one, and where there is no room for its parts."""
    if count <= canonical.WHOLE_ROWS:
        return None
    with_it = digest.copy()
    try:
        canonical.hash_pieces(with_it, count, pieces)
    except OSError:
        return None  # a full disk of temporary files takes no recording with it: memory may do
    return with_it


def _row_groups(name: str, paths: Sequence[Path], wanted: StoredTable) -> Iterator[pa.Table]:
    """Read a table one row group after the other, as another version would have stored it."""
    schema = TABLES[name].arrow
    for path in paths:
        with readable(name, path) as (file, stored):
            for number in range(file.metadata.num_row_groups):
                rows = stored.as_today(file.read_row_group(number, columns=stored.stored(schema.names)), schema)
                yield wanted.as_stored(rows).drop_columns(["run_id"])
