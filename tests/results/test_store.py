"""The store: what is written comes back; what is damaged is said in one line."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tribunal.results.manifest import Made
from tribunal.results.recording import TABLES, DamagedRecording
from tribunal.results.store import LARGE_ROWS, Recorder, Recording, WrongRow, read_files, recording_hash
from tribunal.results.values import value_of
from tribunal.results.versions import stored_table


def a_send(sequence: int, **changes: object) -> dict[str, object]:
    return {
        "process": 3,
        "worker_class": "idempotent",
        "topic": "t",
        "partition": 0,
        "value": value_of(3, sequence),
        "acks": -1,
        "invoke_ns": 10 * sequence,
        "complete_ns": 10 * sequence + 5,
        "outcome": "ok",
        "log_offset": sequence,
    } | changes


def a_recording(run_dir: Path, *sends: dict[str, object], finish: bool = True) -> Path:
    recorder = Recorder(run_dir, run_dir.name)
    for send in sends:
        recorder.row("sends", **send)
    recorder.row(
        "phases", name="faults", start_ns=0, end_ns=9, load=[{"acks": -1, "ok": 2, "fail": 0, "info": 0, "sent": 0}]
    )
    recorder.row(
        "requests", **{"from": 1, "to": 2, "api_key": 0, "direction": "request", "fate": "dropped", "at_ns": 1}
    )
    recorder.close_segment()
    if finish:
        recorder.finish(Made(seed=1))
    return run_dir


def test_what_is_in_lists_is_encoded_as_other_columns_are(tmp_path: Path) -> None:
    """A recording of transactions was nearly twice as large, and took three times as long to read."""
    recorder = Recorder(tmp_path, "r")
    steps = [
        {"kind": "send", "topic": "t", "partition": 0, "log_offset": offset, "value": 7 * offset} for offset in range(9)
    ]
    made = {"process": 1, "txn_id": "x", "begin_ns": 1, "end_ns": 2, "outcome": "committed"}
    recorder.row("txns", operations=steps, **made)
    recorder.close_segment()

    (path,) = (one for one in (tmp_path / "recording" / "txns").rglob("*.parquet") if pq.read_metadata(one).num_rows)
    group = pq.read_metadata(path).row_group(0)
    encodings = {
        column.path_in_schema.rpartition(".")[2]: set(column.encodings)
        for place in range(group.num_columns)
        for column in [group.column(place)]
    }

    assert all("RLE_DICTIONARY" in encodings[name] for name in ("kind", "topic", "outcome"))
    numbers = ("partition", "log_offset", "value", "begin_ns")
    assert all("DELTA_BINARY_PACKED" in encodings[name] for name in numbers)
    assert read_files("txns", [path])["operations"].to_pylist() == [steps]


def damage_of(run_dir: Path) -> DamagedRecording:
    with pytest.raises(DamagedRecording) as caught:
        Recording.open(run_dir).validate()
    assert "\n" not in str(caught.value)
    return caught.value


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    run = a_recording(tmp_path / "r", a_send(0), a_send(1, partition=1), a_send(2, outcome="info", complete_ns=None))

    recording = Recording.open(run)
    recording.validate()

    assert recording.complete
    assert recording.partitions("sends") == ["t-0", "t-1"]
    assert recording.table("sends", "t-0")["value"].to_pylist() == [value_of(3, 0), value_of(3, 2)]
    assert recording.table("sends").schema == TABLES["sends"].arrow
    assert recording.table("phases")["load"].to_pylist()[0][0]["ok"] == 2
    assert recording.manifest is not None
    assert recording.manifest.tables["sends"].rows == 3


@pytest.mark.parametrize(("table", "folder"), [("sends", "tp=t%2D0"), ("sends", "tp=t-%30"), ("phases", "tp=t-0")])
def test_rows_in_a_folder_that_no_recorder_makes_are_damage(tmp_path: Path, table: str, folder: str) -> None:
    """All partitions together would show them, and the partition alone, as it is judged, would not."""
    run = a_recording(tmp_path / "r", a_send(0))
    (own,) = [one for one in (run / "recording" / table).iterdir() if list(one.glob("part-00001*"))]
    own.rename(own.with_name(folder))

    assert folder in str(damage_of(run))


def test_a_topic_of_any_letters_is_seen_as_a_partition_and_among_all(tmp_path: Path) -> None:
    run = a_recording(tmp_path / "r", a_send(0, topic="zähler/%41@2"))

    (name,) = Recording.open(run).partitions("sends")

    assert name == "zähler/%41@2-0"
    assert Recording.open(run, only=name).table("sends", name).num_rows == 1


def test_a_column_that_is_there_twice_is_damage(tmp_path: Path) -> None:
    run = a_recording(tmp_path / "r", a_send(0), finish=False)
    (path,) = run.rglob("recording/sends/tp=t-0/*.parquet")
    rows = pq.ParquetFile(path).read()
    pq.write_table(rows.append_column("value", rows["value"]), path)

    assert "column value is there twice" in str(damage_of(run))


def test_columns_that_hold_the_same_throughout_a_large_file_come_back(tmp_path: Path) -> None:
    count, group = LARGE_ROWS + 10, 40_000
    first = np.arange(count) < group
    columns = {
        "run_id": pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), ["r"]),
        "topic": pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), ["t"]),
        "partition": np.full(count, 0),
        "node": np.where(first, 1, 2),  # the same in each row group, and not in the file
        "log_offset": np.arange(count),
        "value": np.arange(count),
        "leader_epoch": pa.array(np.full(count, 3), mask=~first),  # one row group of threes, one of nothing
        "is_control": np.full(count, False),
    }
    schema = TABLES["logs"].arrow
    rows = pa.table(
        [columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in schema],
        names=schema.names,
    ).cast(schema)
    path = tmp_path / "part.parquet"
    pq.write_table(rows, path, row_group_size=group)
    assert read_files("logs", [path]).equals(rows)
    assert read_files("logs", [path], ["node", "topic"]).equals(rows.select(["node", "topic"]))


def test_columns_in_and_behind_lists_of_a_large_file_come_back(tmp_path: Path) -> None:
    count = LARGE_ROWS + 10
    step = {"kind": "send", "topic": "t", "partition": 0, "log_offset": 7, "value": 7}  # of all transactions alike
    schema = TABLES["txns"].arrow
    columns = {
        "operations": pa.repeat(pa.scalar([step], schema.field("operations").type), count),
        "timeout_ms": pa.array(np.arange(count)),
    }
    rows = pa.table(
        [columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in schema],
        schema=schema,
    )
    path = tmp_path / "part.parquet"
    pq.write_table(rows, path)

    assert read_files("txns", [path]).equals(rows)


def test_a_cut_off_run_is_read_as_far_as_it_is_closed(tmp_path: Path) -> None:
    run = a_recording(tmp_path / "r", a_send(0), finish=False)
    (run / "recording/sends/tp=t-0/part-00009.tmp").write_bytes(b"half")

    recording = Recording.open(run)

    assert not recording.complete
    assert recording.table("sends").num_rows == 1


def test_the_hash_is_over_rows_not_files(tmp_path: Path) -> None:
    one = a_recording(tmp_path / "one", a_send(0), a_send(1))
    two = Recorder(tmp_path / "two", "two", segment_rows=1)
    two.row("sends", **a_send(1))
    two.row("sends", **a_send(0))
    two.row(
        "phases", name="faults", start_ns=0, end_ns=9, load=[{"acks": -1, "ok": 2, "fail": 0, "info": 0, "sent": 0}]
    )
    two.row("requests", **{"from": 1, "to": 2, "api_key": 0, "direction": "request", "fate": "dropped", "at_ns": 1})
    two.finish(Made(seed=1))
    other = a_recording(tmp_path / "other", a_send(0), a_send(1, log_offset=7))

    assert recording_hash(Recording.open(one)) == recording_hash(Recording.open(tmp_path / "two"))
    assert recording_hash(Recording.open(one)) != recording_hash(Recording.open(other))


def test_many_rows_at_once_are_the_same_as_one_by_one(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r", "r")
    names = [name for name in TABLES["sends"].arrow.names if name != "run_id"]
    rows = pa.Table.from_pylist(
        [a_send(0), a_send(1, partition=1)], schema=pa.schema([TABLES["sends"].arrow.field(n) for n in names])
    )
    recorder.write("sends", rows)
    recorder.finish(Made())

    assert Recording.open(tmp_path / "r").partitions("sends") == ["t-0", "t-1"]


@pytest.mark.parametrize(
    ("table", "columns", "reason"),
    [
        pytest.param("sent", {}, "unknown table", id="table"),
        pytest.param("sends", a_send(0, colour=1), "no column colour", id="column"),
        pytest.param("phases", {"name": "x"}, "needs column start_ns", id="required"),
    ],
)
def test_a_row_that_the_schema_does_not_know_is_refused(
    tmp_path: Path, table: str, columns: dict[str, object], reason: str
) -> None:
    with pytest.raises(WrongRow, match=reason):
        Recorder(tmp_path, "r").row(table, **columns)


def test_a_value_of_a_wrong_type_is_refused_when_the_segment_closes(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "r")
    recorder.row("phases", name="x", start_ns=float("nan"))

    with pytest.raises(WrongRow, match="start_ns"):
        recorder.close_segment()


@pytest.mark.parametrize(
    ("sends", "reason"),
    [
        pytest.param([a_send(0, invoke_ns=None)], "without invoke", id="ok without invoke"),
        pytest.param([a_send(0, complete_ns=None)], "without a completion", id="ok without completion"),
        pytest.param([a_send(0), a_send(0, partition=1)], "sent twice", id="value sent twice"),
        pytest.param([a_send(1, complete_ns=3)], "time goes back", id="completion before invoke"),
        pytest.param([a_send(0, invoke_ns=50, complete_ns=60), a_send(1)], "time goes back", id="process goes back"),
        pytest.param([a_send(0, invoke_ns=-3)], "before the run's start", id="negative time"),
        pytest.param([a_send(0, outcome="maybe")], "not one of", id="unknown outcome"),
        pytest.param([a_send(0, acks=0)], "cannot be acknowledged", id="acks=0 acknowledged"),
        pytest.param([a_send(0, acks=2)], "not 0, 1 or -1", id="acks=2"),
        pytest.param([a_send(0, process=4)], "does not name its process", id="foreign value"),
    ],
)
def test_contradictory_rows_are_named(tmp_path: Path, sends: list[dict[str, object]], reason: str) -> None:
    run = a_recording(tmp_path / "r", *sends)

    damage = damage_of(run)

    assert damage.table == "sends"
    assert damage.row is not None
    assert reason in damage.reason


@pytest.mark.parametrize(
    ("until_ns", "reason"), [(40, "time goes back"), (60, "waited longer")], ids=["goes back", "too long"]
)
def test_a_wait_lies_within_its_time(tmp_path: Path, until_ns: int, reason: str) -> None:
    recorder = Recorder(tmp_path / "r", "r")
    recorder.row("waits", holder="node", node=1, since_ns=50, until_ns=until_ns, waited_ns=20)
    recorder.finish(Made())

    assert reason in damage_of(tmp_path / "r").reason


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    run = a_recording(tmp_path / "r", a_send(0), finish=False)
    shutil.rmtree(run / "recording/metadata")

    assert str(damage_of(run)) == "table metadata: the table is missing"


def test_a_missing_partition_is_noticed(tmp_path: Path) -> None:
    run = a_recording(tmp_path / "r", a_send(0), a_send(1, partition=1))
    shutil.rmtree(run / "recording/sends/tp=t-1")

    assert "the manifest says 2" in damage_of(run).reason


@pytest.mark.parametrize("version", [1, 2])
def test_a_cut_off_recording_of_a_version_without_dumps_is_read(tmp_path: Path, version: int) -> None:
    Recorder(tmp_path, "r").close_segment()
    shutil.rmtree(tmp_path / "recording/dumps")
    with pytest.raises(DamagedRecording, match="dumps: the table is missing"):
        Recording.open(tmp_path)
    for path in (tmp_path / "recording").rglob("*.parquet"):
        schema = stored_table(path.parent.parent.name, version).arrow
        named = schema.with_metadata({"tribunal.schema_version": str(version)})
        pq.write_table(named.empty_table(), path)

    assert Recording.open(tmp_path).table("dumps").num_rows == 0


def test_an_unknown_schema_version_is_said(tmp_path: Path) -> None:
    run = a_recording(tmp_path / "r", a_send(0))
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(manifest | {"schema_version": 99}))

    assert "unknown schema version 99" in str(damage_of(run))


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    run = a_recording(tmp_path / "r", a_send(0))
    path = next((run / "recording/sends/tp=t-0").iterdir())
    path.write_bytes(path.read_bytes()[:-9])

    damage = damage_of(run)

    assert damage.table == "sends"
    assert "not a readable Parquet file" in damage.reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(lambda t: t.drop_columns(["acks"]), "acks is missing", id="column missing"),
        pytest.param(lambda t: t.append_column("x", t["acks"]), "unknown column x", id="column too many"),
        pytest.param(
            lambda t: t.set_column(t.column_names.index("acks"), "acks", t["acks"].cast(pa.float64())),
            "type double",
            id="wrong type",
        ),
    ],
)
def test_a_foreign_table_is_named(tmp_path: Path, change: object, reason: str) -> None:
    run = a_recording(tmp_path / "r", a_send(0), finish=False)
    path = next((run / "recording/sends/tp=t-0").iterdir())
    assert callable(change)
    pq.write_table(change(pq.ParquetFile(path).read()), path)

    assert reason in damage_of(run).reason


def test_a_folder_without_a_recording_is_said(tmp_path: Path) -> None:
    assert "no recording in" in str(damage_of(tmp_path))
