"""Statistics of a recording's files: false ones are found, wide ones are not called false."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.results.test_store import a_recording, a_send
from tribunal.harness.evidence.segments import false_segments
from tribunal.results.store import Recording


def a_file_of_one_partition(run: Path) -> tuple[Path, pa.Table]:
    (path,) = run.rglob("recording/sends/tp=t-1/*.parquet")
    with pq.ParquetFile(path) as file:
        return path, file.read()


def test_statistics_of_a_dictionary_of_which_not_all_words_are_used_are_not_false(tmp_path: Path) -> None:
    """Arrow counts all words where some rows have none."""
    run = a_recording(tmp_path / "r", a_send(0), a_send(1, partition=1), a_send(2, partition=1))
    path, rows = a_file_of_one_partition(run)
    words = pa.DictionaryArray.from_arrays(pa.array([0, None], pa.int32()), ["Lost", "Unreachable"])
    place = rows.column_names.index("error")

    pq.write_table(rows.set_column(place, rows.schema.field("error"), words), path)

    assert pq.read_metadata(path).row_group(0).column(place).statistics.max == "Unreachable"
    assert list(false_segments(Recording.open(run, compare=False))) == []


def test_statistics_that_leave_out_a_row_are_false(tmp_path: Path) -> None:
    run = a_recording(tmp_path / "r", a_send(0), a_send(1, partition=1, log_offset=0x1122334455667788))
    path, _ = a_file_of_one_partition(run)
    content = path.read_bytes()
    rows, footer = content[: content.index(b"run_id")], content[content.index(b"run_id") :]

    path.write_bytes(rows + footer.replace(0x1122334455667788.to_bytes(8, "little"), bytes(8)))

    (said,) = false_segments(Recording.open(run, compare=False))
    assert "column log_offset: " in said
    assert said.endswith("stated, 1234605616436508552 to 1234605616436508552 found")
