"""The recording's hash is what its definition says, however its rows are put into order."""

import hashlib
import subprocess
import sys
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.checkers.random_runs import random_run
from tribunal.results import canonical
from tribunal.results.recording import SCHEMA_VERSION, TABLES
from tribunal.results.store import Recorder, Recording, recording_hash
from tribunal.results.versions import OLDEST, stored_table, tables_of


def by_definition(recording: Recording, version: int) -> str:
    """Sort all rows of each table, and hash one column after the other."""
    digest = hashlib.sha256()
    for name in sorted(tables_of(version)):
        rows = stored_table(name, version).as_stored(recording.table(name)).drop_columns(["run_id"])
        for position, field in enumerate(rows.schema):
            cells = rows[field.name]
            if pa.types.is_nested(field.type):
                texts = [None if cell is None else msgspec.json.encode(cell).decode() for cell in cells.to_pylist()]
                rows = rows.set_column(position, field.name, pa.array(texts, pa.string()))
            elif pa.types.is_dictionary(field.type):
                rows = rows.set_column(position, field.name, cells.cast(pa.string()))
        rows = rows.sort_by([(column, "ascending") for column in rows.column_names])
        digest.update(f"{name} {rows.num_rows}\n".encode())
        for column in rows.column_names:
            cells = rows[column].to_pylist()
            digest.update(column.encode() + bytes(cell is not None for cell in cells))
            if pa.types.is_string(rows[column].type):
                filled = pc.fill_null(rows[column], "")
                digest.update(b"".join(size.to_bytes(4, "little") for size in pc.binary_length(filled).to_pylist()))
                digest.update("".join(filled.to_pylist()).encode())
            else:
                digest.update(b"".join(int(cell or 0).to_bytes(8, "little", signed=True) for cell in cells))
    return digest.hexdigest()


@pytest.mark.parametrize("rows_at_a_time", [1, 7, 1 << 20])
@pytest.mark.parametrize("version", [OLDEST, SCHEMA_VERSION])
def test_the_hash_is_that_of_its_definition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, rows_at_a_time: int
) -> None:
    recording = Recording.open(random_run(tmp_path / "run", 12))
    monkeypatch.setattr(canonical, "HASHED_ROWS", rows_at_a_time)

    assert recording.table("sends").num_rows > 7
    assert recording_hash(recording, version) == by_definition(recording, version)


def test_words_of_several_dictionaries_are_sorted_as_words(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run", "run")
    for words in (["b", None, "a"], ["\u00e9", "a", "z"], [None, "Z", "b"]):
        for word in words:
            recorder.row(
                "sends", process=1, worker_class="w", topic="t", partition=0, value=1, acks=-1, invoke_ns=0,
                outcome="fail", error=word,
            )  # fmt: skip
        recorder.close_segment()
    recording = Recording.open(tmp_path / "run")

    assert recording_hash(recording) == by_definition(recording, SCHEMA_VERSION)


def in_parts(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(canonical, "WHOLE_ROWS", rows)
    monkeypatch.setattr(canonical, "SORTED_ROWS", rows)


@pytest.mark.parametrize("seed", [3, 12])
@pytest.mark.parametrize("rows_at_a_time", [3])
def test_tables_that_are_sorted_in_parts_have_the_same_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_at_a_time: int, seed: int
) -> None:
    recording = Recording.open(random_run(tmp_path / "run", seed))
    whole = {version: recording_hash(recording, version) for version in (OLDEST, SCHEMA_VERSION)}
    in_parts(monkeypatch, rows_at_a_time)
    monkeypatch.setattr(canonical, "HASHED_ROWS", 2)

    assert max(recording.table(name).num_rows for name in TABLES) > rows_at_a_time
    assert {version: recording_hash(recording, version) for version in whole} == whole


def test_rows_that_are_all_alike_are_sorted_in_parts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(tmp_path / "run", "run")
    for word in ("b", None, "b", "\u00e9", None, "a"):
        for _ in range(4):
            recorder.row(
                "sends", process=1, worker_class="w", topic="t", partition=0, value=1, acks=-1, invoke_ns=0,
                outcome="fail", error=word,
            )  # fmt: skip
        recorder.close_segment()
    recording = Recording.open(tmp_path / "run")
    in_parts(monkeypatch, 2)

    assert recording_hash(recording) == by_definition(recording, SCHEMA_VERSION)


def test_a_row_more_or_another_one_is_another_hash_in_parts_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_parts(monkeypatch, 2)
    hashes = set()
    for count, error in ((9, None), (10, None), (9, "X")):
        recorder = Recorder(tmp_path / f"{count}{error}", "run")
        for sequence in range(count):
            recorder.row(
                "sends", process=1, worker_class="w", topic="t", partition=0, value=sequence, acks=-1, invoke_ns=0,
                outcome="fail", error=error if sequence == 5 else None,
            )  # fmt: skip
        recorder.close_segment()
        hashes.add(recording_hash(Recording.open(tmp_path / f"{count}{error}")))

    assert len(hashes) == 3


def test_without_room_for_parts_the_hash_is_made_in_memory(tmp_path: Path) -> None:
    """Whoever has recorded for hours does not lose it to a small folder of temporary files."""
    recording = Recording.open(random_run(tmp_path / "run", 3))
    code = (
        "import resource, sys; from pathlib import Path; from tribunal.results import canonical; "
        "from tribunal.results.store import Recording, recording_hash; canonical.WHOLE_ROWS = canonical.SORTED_ROWS = 2; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64)); "
        "print(recording_hash(Recording.open(Path(sys.argv[1]))))"
    )

    made = subprocess.run(
        [sys.executable, "-c", code, str(recording.run_dir)], capture_output=True, text=True, check=True, timeout=200
    )

    assert made.stdout.split() == [recording_hash(recording)]
