"""What a recording of version 1 said, as it is read today."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tribunal.results.recording import TABLES, DamagedRecording
from tribunal.results.spoken_orders import Spoken, Thing, named_things
from tribunal.results.store import Recorder, Recording
from tribunal.results.versions import stored_table


def written_as_version_1(run_dir: Path, table: str, *rows: dict[str, object]) -> Recording:
    """Write a recording whose only rows are of one table, all of it as version 1 did."""
    Recorder(run_dir, "r").close_segment()
    for path in (run_dir / "recording").rglob("*.parquet"):
        name = path.parent.parent.name
        schema = stored_table(name, 1).arrow.with_metadata({"tribunal.schema_version": "1"})
        own = [{"run_id": "r"} | row for row in rows] if name == table else []
        pq.write_table(pa.Table.from_pylist(own, schema=schema), path)
    return Recording.open(run_dir)


def test_a_loss_without_end_or_time_is_to_the_end_and_at_an_unknown_time(tmp_path: Path) -> None:
    lost = {"node": 2, "topic": "t", "partition": 1, "log_offset": 7}
    recording = written_as_version_1(
        tmp_path, "faults", {"index": 0, "kind": "wipe", "lost_from_offset": [lost]}, {"index": 1, "kind": "kill"}
    )

    recording.validate()
    known, unknown = recording.table("faults")["losses"].to_pylist()

    unsaid = dict.fromkeys(("topic_id", "end_offset", "begin_ns", "end_ns", "unseen_end_offset"))
    assert known == [{"node": 2, "topic": "t", "partition": 1, "from_offset": 7, **unsaid}]
    assert unknown is None


def test_an_order_becomes_a_row_of_each_thing_that_it_names(tmp_path: Path) -> None:
    asked = {"process": 9, "invoke_ns": 5, "complete_ns": 6, "outcome": "fail", "error": "POLICY_VIOLATION"}
    recording = written_as_version_1(
        tmp_path, "admin", {**asked, "api": "delete_records", "arguments": json.dumps({"t-0": 1, "u-3": 4})}
    )

    recording.validate()
    rows = recording.table("admin").to_pylist()

    assert [(row["topic"], row["partition"], row["log_offset"]) for row in rows] == [("t", 0, 1), ("u", 3, 4)]
    assert all({name: row[name] for name in asked} == asked for row in rows)


def test_topic_ids_are_taken_out_of_bodies(tmp_path: Path) -> None:
    shared = {"quorum_epoch": 1, "at_ns": 5, "record_type": "PartitionRecord"}
    recording = written_as_version_1(
        tmp_path,
        "metadata",
        {"metadata_offset": 0, **shared, "body": '{"topic_id": "abc", "partition_id": 0}'},
        {"metadata_offset": 1, **shared, "body": '{"partition_id": 0}'},
    )

    rows = recording.table("metadata")

    assert rows.schema == TABLES["metadata"].arrow
    assert rows["topic_id"].to_pylist() == ["abc", None]
    assert rows["stamped_ns"].to_pylist() == [None, None]


@pytest.mark.parametrize("body", [None, '{"topic_id": ', '{"topic_id": 7}'])
def test_a_body_that_cannot_be_read_names_no_topic(tmp_path: Path, body: str | None) -> None:
    row = {"metadata_offset": 0, "quorum_epoch": 1, "record_type": "TopicRecord", "body": body}
    recording = written_as_version_1(tmp_path, "metadata", row)

    assert recording.table("metadata")["topic_id"].to_pylist() == [None]
    if body is None:
        with pytest.raises(DamagedRecording, match="body"):
            recording.validate()


@pytest.mark.parametrize("table", sorted(TABLES))
def test_added_columns_are_unknown(tmp_path: Path, table: str) -> None:
    recording = written_as_version_1(tmp_path, "probes", {"name": "x", "node": 1, "count": 1})

    assert recording.table(table).schema == TABLES[table].arrow


def test_a_column_of_today_is_refused_in_a_file_of_version_1(tmp_path: Path) -> None:
    recording = written_as_version_1(tmp_path, "probes")
    path = recording.files["sends"]["none"][0]
    own = TABLES["sends"].arrow.with_metadata({"tribunal.schema_version": "1"})
    pq.write_table(own.empty_table(), path)

    with pytest.raises(Exception, match="unknown column answered_by"):
        Recording.open(tmp_path).table("sends", "none")


UNCLEAN = Thing(api="elect_leaders", value="unclean")


@pytest.mark.parametrize(
    ("api", "text", "things"),
    [
        pytest.param("elect_leaders", '{"election_type": "unclean"}', [UNCLEAN], id="everywhere"),
        pytest.param(
            "elect_leaders",
            "UNCLEAN t-1",
            [Thing(api="elect_leaders", topic="t", partition=1, value="unclean")],
            id="words",
        ),
        pytest.param(
            "delete_records",
            '{"topic": "t", "partition": 2, "before_offset": 8}',
            [Thing(api="delete_records", topic="t", partition=2, log_offset=8)],
            id="fields",
        ),
        pytest.param(
            "delete_records",
            '{"partitions": [{"topic": "t", "partition": 0, "offset": 5}, {"topic": "u", "partition": 1, "offset": 9}], "version": 1}',
            [
                Thing(api="delete_records", topic="t", partition=0, log_offset=5),
                Thing(api="delete_records", topic="u", partition=1, log_offset=9),
            ],
            id="several partitions",
        ),
        pytest.param(
            "delete_records",
            '[{"name": "t", "partitions": [{"partition": 0, "offset": 7}, {"partition": 1, "offset": 8}]}, {"name": "u"}]',
            [
                Thing(api="delete_records", topic="t", partition=0, log_offset=7),
                Thing(api="delete_records", topic="t", partition=1, log_offset=8),
                Thing(api="delete_records", topic="u"),
            ],
            id="partitions of topics",
        ),
        pytest.param(
            "reassign",
            '{"topics": ["t", "u"], "partition": 3}',
            [Thing(api="reassign", topic="t", partition=3), Thing(api="reassign", topic="u", partition=3)],
            id="one partition of several topics",
        ),
        pytest.param(
            "incremental_alter_configs",
            '{"topic": "t", "configs": {"retention.ms": 5, "cleanup.policy": "delete"}}',
            [
                Thing(api="set_config", topic="t", setting="retention.ms", value="5"),
                Thing(api="set_config", topic="t", setting="cleanup.policy", value="delete"),
            ],
            id="settings",
        ),
        pytest.param(
            "create_topics",
            '[{"name": "t", "configs": [{"name": "cleanup.policy", "value": "compact"}]}]',
            [Thing(api="create_topic", topic="t", setting="cleanup.policy", value="compact")],
            id="named settings",
        ),
        pytest.param("list_topics", None, [Thing(api="list_topics")], id="nothing"),
    ],
)
def test_what_an_order_names(api: str, text: str | None, things: list[Thing]) -> None:
    assert named_things(Spoken(api, text)) == things
