"""A recording of schema version 1, as it was written then, beside the same facts recorded today: judged and reported alike."""

import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from tribunal.checkers.judge.verdict import check
from tribunal.checkers.spark.sql_views import VIEWS
from tribunal.harness.campaign.replay import comparable_hashes
from tribunal.results import report
from tribunal.results.manifest import Made
from tribunal.results.recording import SCHEMA_VERSION, TABLES
from tribunal.results.store import Recorder, Recording, recording_hash
from tribunal.results.values import value_of
from tribunal.results.verdict import RunVerdict, Verdict, load, save
from tribunal.results.versions import CHANGES, OLDEST, stored_table

ARCHIVE: Final = Path(__file__).parent / "data/version-1.tar.gz"
RUN_ID: Final = "version-1"
MS: Final = 1_000_000
PLACE: Final = {"topic": "t", "partition": 0}


def facts(took_effect: str) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the rows of a small run: of its two faults one wiped a disk, the other had no effect; a record of acks=1 is lost.

    took_effect:  what the column is called.
    """
    for node in (1, 2, 3):
        yield "nodes", {"node": node, "role": "broker", "event": "registered", "broker_epoch": node, "at_ns": 0}
    created = {"partition_id": 0, "replicas": [1, 2, 3], "isr": [1, 2, 3], "leader": 1, "leader_epoch": 0}
    yield "metadata", _metadata(0, 0, "PartitionRecord", created)
    yield "phases", {"name": "faults", "start_ns": 0, "end_ns": 500 * MS}
    for sequence in range(3):
        sent = {"process": 7, "worker_class": "plain", "value": value_of(7, sequence), "log_offset": sequence}
        times = {"invoke_ns": (100 + sequence) * MS, "complete_ns": (101 + sequence) * MS}
        yield "sends", {**PLACE, **sent, **times, "acks": 1, "outcome": "ok"}
    for index, (kind, holds) in enumerate((("wipe", True), ("pause", False))):
        lost = [{"node": 1, **PLACE, "from_offset": 0}] if holds else []
        times = {"planned_ns": 150 * MS, "injected_ns": (150 + index) * MS, "healed_ns": 300 * MS}
        proof = {"proof": "{}", took_effect: holds, "heal_proof": "{}", "healed": True, "losses": lost}
        yield (
            "faults",
            {"index": index, "kind": kind, "planned_target": "leader", "resolved_target": "1"} | times | proof,
        )
    yield "metadata", _metadata(1, 200, "PartitionChangeRecord", {"partition_id": 0, "leader": 2, "isr": [2, 3]})
    for index, (position, count) in enumerate(((0, 2), (2, 0))):
        polled = {"process": 9, "poll_index": index, "isolation": "read_uncommitted", "phase": "final"}
        when = {"invoke_ns": 900 * MS, "complete_ns": 900 * MS, "outcome": "ok"}
        marks = {"position": position, "record_count": count, "high_watermark": 2, "log_start_offset": 0}
        yield "polls", {**PLACE, **polled, **when, **marks}
    for offset in range(2):
        read = {"process": 9, "poll_index": 0, "log_offset": offset, "value": value_of(7, offset), "phase": "final"}
        yield "reads", {**PLACE, **read}


def _metadata(offset: int, at_ms: int, record_type: str, body: dict[str, object]) -> dict[str, object]:
    own = {"metadata_offset": offset, "quorum_epoch": 1, "at_ns": at_ms * MS, "record_type": record_type}
    return {**own, **PLACE, "body": json.dumps(body)}


def recorded(run_dir: Path, took_effect: str = "took_effect") -> Path:
    """Record the facts with the recorder of today."""
    recorder = Recorder(run_dir, RUN_ID)
    for table, row in facts(took_effect):
        recorder.row(table, **row)
    settings = {"min.insync.replicas": 2, "unclean.leader.election.enable": False}
    recorder.finish(Made(seed=1, settings=settings, mode="kraft"))
    return run_dir


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the recording of version 1 as it lies in the archive, judged by what wrote it."""
    folder = tmp_path_factory.mktemp("former")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / RUN_ID


def test_a_recording_of_version_1_is_read_as_one_of_today(former: Path, tmp_path: Path) -> None:
    today = Recording.open(recorded(tmp_path / RUN_ID))

    before = Recording.open(former)

    assert before.manifest.schema_version == 1
    for table in TABLES:
        parts = before.partitions(table) if TABLES[table].by_partition else [None]
        for part in parts:
            assert before.table(table, part).equals(today.table(table, part)), table
    before.validate()


def test_the_hash_of_version_1_can_still_be_made(former: Path, tmp_path: Path) -> None:
    today = Recording.open(recorded(tmp_path / RUN_ID))
    written = json.loads((former / "manifest.json").read_bytes())["recording_hash"]

    assert recording_hash(today, version=1) == recording_hash(Recording.open(former), version=1) == written
    assert recording_hash(today) == recording_hash(Recording.open(former)) != written


def test_a_replay_of_a_recording_of_version_1_has_its_hash(former: Path, tmp_path: Path) -> None:
    before, after = comparable_hashes(former, recorded(tmp_path / RUN_ID))

    assert before == after != ""


def test_a_recording_of_version_1_is_judged_as_then_and_as_one_of_today(former: Path, tmp_path: Path) -> None:
    then = load(former / "verdict.json")

    (before,) = check([former], "inline")
    (today,) = check([recorded(tmp_path / RUN_ID)], "inline")

    assert essence(before) == essence(today) == essence(then)
    assert before.verdict is Verdict.INCONCLUSIVE  # of a fault without effect
    assert [finding.rule for finding in before.permitted] == ["R7"]  # of a fault that took effect
    assert [fault.took_effect for fault in before.test.faults] == [True, False]


def essence(verdict: RunVerdict) -> tuple[object, ...]:
    """Return what of a verdict must not depend on a recording's version; more is judged as time goes on."""
    found = [(finding.signature, finding.place, finding.severity, finding.rule) for finding in verdict.findings]
    known_then = replace(verdict.test, least_load={})  # how much load a run had to have is said since
    return verdict.verdict, known_then, verdict.reasons, found


def test_a_recording_of_version_1_is_reported_as_one_of_today(former: Path, tmp_path: Path) -> None:
    pages = []
    for run_dir in (former, recorded(tmp_path / RUN_ID)):
        check([run_dir], "inline")
        pages.append(report.write(run_dir).read_text())

    faults = [page.partition("<caption>Faults:")[2].partition("</table>")[0] for page in pages]

    assert faults[0] == faults[1]
    assert ">yes<" in faults[0]
    assert ">none<" in faults[0]


def test_a_verdict_that_does_not_name_its_version_is_of_version_1(tmp_path: Path) -> None:
    verdict = {
        "run_id": "r",
        "verdict": "PASS",
        "claim": "",
        "test": {"faults": [{"index": 0, "kind": "kill", "bit": True}]},
    }
    path = tmp_path / "verdict.json"
    path.write_bytes(msgspec.json.encode(verdict))

    assert [fault.took_effect for fault in load(path).test.faults] == [True]


def test_a_file_without_a_version_is_of_the_newest_that_its_columns_fit(former: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(former, tmp_path / "copy")
    (copy / "manifest.json").unlink()
    for path in copy.glob("recording/faults/*/*.parquet"):
        pq.write_table(pq.ParquetFile(path).read().replace_schema_metadata(None), path)

    assert Recording.open(copy).table("faults")["took_effect"].to_pylist() == [True, False]


def test_every_version_says_what_it_changed() -> None:
    assert set(CHANGES) == set(range(OLDEST + 1, SCHEMA_VERSION + 1))
    for changed in CHANGES.values():
        for table, change in changed.items():
            assert not change.added & TABLES[table].required


def test_what_spark_reads_by_itself_has_no_renamed_columns() -> None:
    """Spark takes the columns of `VIEWS` by their names of today; one that was added is null in older files."""
    for version in CHANGES:
        for table in VIEWS:
            names = stored_table(table, version - 1).names
            assert all(today == then for today, then in names.items())


def test_figures_are_read_back_whatever_a_checker_makes_of_them(tmp_path: Path) -> None:
    """A property of a plugin gives a Struct of its own; what it holds must not make the verdict unreadable."""
    figures = {"mine": {"steady": True, "by_broker": {"1": 2}, "offsets": [3, 4], "rows": [{"acks": -1, "of": [5]}]}}
    verdict = RunVerdict(run_id="r", verdict=Verdict.PASS, claim="all of it", figures=figures)
    save(verdict, tmp_path / "verdict.json")

    assert load(tmp_path / "verdict.json").figures == figures
