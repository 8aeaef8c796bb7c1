"""Nights as tables: added once each, also by many at once; what they say together."""

import multiprocessing
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tribunal.harness.campaign.nightly import moment
from tribunal.results import night_store
from tribunal.results.night import Canary, FoundTonight, Night, NightState, Swept
from tribunal.results.night_merge import of_shards
from tribunal.results.night_store import FindingRow, KnownBugRow, NightRow, NoTables, SensitivityRow, SweepRow, rows
from tribunal.results.report.trends import render
from tribunal.results.sensitivity import Figure, Sensitivity
from tribunal.results.trends import trends


def night(day: int, *, violations: int = 0, runs: int = 100, shard: str = "1/1", found_in: float | None = 4.0) -> Night:
    verdicts = {"PASS": runs - violations - 3, "VIOLATION": violations, "INCONCLUSIVE": 2, "ERROR": 1}
    return Night(
        name="nights",
        began=f"2026-11-{day:02}T01:00:00Z",
        commit=f"{day:040x}",
        lock_sha256="",
        shard=shard,
        budget_s=3600,
        first_seed=day,
        state=NightState.ENDED,
        part_seconds={"sweeps": 10.0 * day, "canaries": 5.0},
        swept=[
            Swept(
                scenario="bank",
                runs=runs,
                seconds=60,
                simulated_ms=6_000_000,
                verdicts=verdicts,
                reasons={"no effect": 2},
            )
        ],
        canaries=[
            Canary(
                mutant="M01",
                scenario="bank",
                found=found_in is not None,
                seen_by=[],
                seeds=3,
                seconds=found_in or 60,
                note="",
            )
        ],
        found=[
            FoundTonight(
                signature="lost acks=all",
                state="new",
                known_as="",
                count=violations,
                scenarios=["bank"],
                seeds=[day],
                claim="",
                run_dirs=[],
                again="",
            )
        ]
        if violations
        else [],
        sensitivity=Sensitivity(figures={"changed-key": Figure(injected=4, seen=3)}),
    )


def test_a_night_is_added_once_with_all_its_rows(tmp_path: Path):
    store = str(tmp_path / "nights")

    assert set(night_store.add(store, night(1, violations=2))) == set(night_store.TABLES.values())
    assert night_store.add(store, night(1, violations=2)) == []

    (row,) = rows(store, NightRow)
    assert (row.runs, row.violations, row.inconclusive, row.errors) == (100, 2, 2, 1)
    assert [one.violations for one in rows(store, SweepRow)] == [2]
    assert [(one.signature, one.seeds) for one in rows(store, FindingRow)] == [("lost acks=all", [1])]
    assert [(one.mutant, one.found) for one in rows(store, KnownBugRow)] == [("M01", True)]
    assert [(one.anomaly, one.injected, one.seen) for one in rows(store, SensitivityRow)] == [("changed-key", 4, 3)]


def test_nights_and_shards_of_one_night_are_added_at_once_and_none_is_lost_or_doubled(tmp_path: Path):
    store = str(tmp_path / "nights")
    nights = [night(1 + number // 2, shard=f"{1 + number % 2}/2") for number in range(8)]
    context = multiprocessing.get_context("spawn")

    with context.Pool(3) as pool:  # the same night by several at once
        pool.starmap(night_store.add, [(store, one) for one in nights for _ in range(3)], chunksize=1)

    expected = sorted((one.began, one.shard) for one in nights)
    assert [(row.began, row.shard) for row in rows(store, NightRow)] == expected
    assert [(row.began, row.shard) for row in rows(store, SweepRow)] == expected


def test_a_writer_that_is_killed_before_it_commits_leaves_nothing_that_is_read(tmp_path: Path):
    store = str(tmp_path / "nights")
    night_store.add(store, night(1))
    table = Path(store, "sweeps")
    part = next(table.glob("*.parquet"))

    (table / "part-of-a-killed-writer.parquet").write_bytes(part.read_bytes())

    assert len(rows(store, SweepRow)) == 1
    assert len(DeltaTable(str(table)).file_uris()) == 1


def test_what_nights_say_together(tmp_path: Path):
    store = str(tmp_path / "nights")
    for one in (
        night(2, violations=1, found_in=None),
        night(1),
        night(3, shard="1/2"),
        night(3, shard="2/2", found_in=2.0),
    ):
        night_store.add(store, one)

    (found,) = trends(store)

    assert [(one.began[8:10], one.runs, one.violations) for one in found.chances] == [
        ("01", 97, 0), ("02", 97, 1), ("03", 194, 0),
    ]  # fmt: skip
    assert found.chances[1].low == pytest.approx(0.000261, abs=1e-5)  # 1 of 97: Clopper and Pearson
    assert found.chances[1].high == pytest.approx(0.0561, abs=1e-4)
    assert [one.values for one in found.known_bugs] == [[4.0, None, 2.0]]
    assert [(one.name, one.values) for one in found.parts] == [
        ("sweeps", [10.0, 20.0, 30.0]), ("canaries", [5.0, 5.0, 5.0]),
    ]  # fmt: skip
    assert [one.values for one in found.sensitivity] == [[75.0, 75.0, 75.0]]
    assert [(one.signature, one.nights, one.runs) for one in found.findings] == [("lost acks=all", 1, 1)]
    assert [(one.reason, one.runs, one.nights) for one in found.no_answer] == [("no effect", 8, 3)]


def night_of(shard: str, began: str, *, first_seed: int = 7, commit: str = "c" * 40, **changes: int) -> Night:
    return msgspec.structs.replace(night(5, shard=shard, **changes), began=began, first_seed=first_seed, commit=commit)


def test_shards_that_began_a_second_apart_are_one_night(tmp_path: Path):
    store = str(tmp_path / "nights")
    night_store.add(store, night_of("1/2", "2026-11-05T01:00:00Z", violations=1))
    night_store.add(store, night_of("2/2", "2026-11-05T01:00:01Z", violations=2))

    (found,) = trends(store)

    assert found.began == ["2026-11-05T01:00:00Z"]
    assert [(one.runs, one.violations, one.word) for one in found.chances] == [(194, 3, "RED")]
    assert [one.values for one in found.known_bugs] == [[4.0]]
    assert [one.values for one in found.sensitivity] == [[75.0]]
    assert [(one.signature, one.nights, one.runs) for one in found.findings] == [("lost acks=all", 1, 3)]
    assert [(one.reason, one.runs, one.nights) for one in found.no_answer] == [("no effect", 4, 1)]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(night_of("2/2", "2026-11-05T01:00:01Z", first_seed=8), id="other seeds"),
        pytest.param(night_of("2/2", "2026-11-05T01:00:01Z", commit="d" * 40), id="another commit"),
        pytest.param(night_of("2/3", "2026-11-05T01:00:01Z"), id="another count of shards"),
        pytest.param(night_of("1/2", "2026-11-06T01:00:00Z"), id="the same shard once more"),
        pytest.param(night_of("1/1", "2026-11-05T01:00:01Z"), id="a whole night"),
    ],
)
def test_what_is_no_shard_of_the_same_night_is_another_night(tmp_path: Path, other: Night):
    store = str(tmp_path / "nights")
    night_store.add(store, night_of("1/2", "2026-11-05T01:00:00Z"))
    night_store.add(store, other)

    (found,) = trends(store)

    assert found.began == ["2026-11-05T01:00:00Z", other.began]


def test_a_night_that_was_merged_counts_once_beside_its_shards(tmp_path: Path):
    store = str(tmp_path / "nights")
    shards = [
        night_of("1/2", "2026-11-05T01:00:00Z", violations=1),
        night_of("2/2", "2026-11-05T01:00:01Z", violations=2),
    ]
    for one in [*shards, of_shards(shards)]:
        night_store.add(store, one)

    (found,) = trends(store)

    assert [(one.began, one.runs, one.violations) for one in found.chances] == [("2026-11-05T01:00:00Z", 194, 3)]
    assert [(one.signature, one.nights, one.runs) for one in found.findings] == [("lost acks=all", 1, 3)]


def test_a_store_of_before_that_knew_no_first_seeds_takes_nights_and_shows_all(tmp_path: Path):
    store = str(tmp_path / "nights")
    columns = night_store.schema(NightRow)
    former = columns.remove(columns.get_field_index("first_seed"))
    (row,) = (msgspec.to_builtins(one) for one in night_store.rows_of(night(1)) if isinstance(one, NightRow))
    write_deltalake(f"{store}/nights", pa.Table.from_pylist([row], schema=former))

    night_store.add(store, night(2))

    assert [one.first_seed for one in rows(store, NightRow)] == [None, 2]
    assert [one.began[8:10] for one in trends(store)[0].chances] == ["01", "02"]


def test_the_page_shows_each_night_with_its_interval_and_escapes_names(tmp_path: Path):
    store = str(tmp_path / "nights")
    hostile = msgspec.structs.replace(night(1, violations=1), name="<script>alert(1)</script>")
    night_store.add(store, hostile)
    night_store.add(store, msgspec.structs.replace(hostile, began="2026-11-02T01:00:00Z"))

    page = render(trends(store))

    assert page.count("1 of 97 runs, 0.026 to 5.6 %") == 2
    assert "<script>" not in page


def test_a_store_that_is_not_there_a_folder_without_nights_and_a_damaged_table_are_said(tmp_path: Path):
    with pytest.raises(NoTables, match=r"no nights are kept there; add some with --add"):
        trends(str(tmp_path / "nowhere"))
    with pytest.raises(NoTables, match=r"no nightly\.json there or below"):
        list(night_store.nights_below([tmp_path]))
    store = str(tmp_path / "nights")
    night_store.add(store, night(1))
    for part in Path(store, "figures").glob("*.parquet"):
        part.write_bytes(b"no longer parquet")
    with pytest.raises(NoTables, match="figures"):
        trends(store)


def test_the_command_adds_shows_and_writes_the_page(tmp_path: Path):
    for day in (1, 2):
        folder = tmp_path / f"out{day}"
        folder.mkdir()
        (folder / "nightly.json").write_bytes(msgspec.json.encode(night(day)))
    command = [
        sys.executable,
        "-m",
        "tribunal.harness.cli.main",
        "trends",
        str(tmp_path / "store"),
        "--add",
        str(tmp_path),
    ]

    shown = subprocess.run([*command, "-o", str(tmp_path / "trends.html")], capture_output=True, text=True, check=True)
    again = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)

    assert "0 of 97 runs are violations (0 to 3.7 %)" in shown.stdout
    assert "Clopper and Pearson" in (tmp_path / "trends.html").read_text()
    assert [line.split()[0] for line in again.stderr.splitlines()] == ["there", "there"]
    assert len(msgspec.json.decode(again.stdout)[0]["began"]) == 2


def test_a_class_of_anomaly_that_was_never_put_in_is_not_said_to_be_never_seen(tmp_path: Path):
    store = str(tmp_path / "nights")
    sensitivity = Sensitivity(figures={"torn": Figure(injected=0, seen=0), "hole": Figure(injected=2, seen=0)})
    night_store.add(store, msgspec.structs.replace(night(1), sensitivity=sensitivity))

    (found,) = trends(store)

    assert [(one.name, one.values) for one in found.sensitivity] == [("hole", [0.0])]


def test_a_store_whose_first_night_was_cut_off_as_it_was_added_shows_what_it_has(tmp_path: Path):
    """It said that no nights are kept there."""
    store = str(tmp_path / "nights")
    night_store.add(store, night(1, violations=2))
    for table in ("reasons", "parts"):
        shutil.rmtree(Path(store, table))

    (found,) = trends(store)

    assert ([one.violations for one in found.chances], found.parts, found.no_answer) == ([2], [], [])
    assert night_store.add(store, night(1, violations=2)) == ["reasons", "parts"]


def test_a_signature_was_last_seen_in_the_night_that_began_last(tmp_path: Path):
    """A late shard of an earlier night stood behind the next night."""
    store = str(tmp_path / "nights")
    for one in (
        night_of("1/2", "2026-11-05T01:00:00Z", violations=1),
        night_of("1/1", "2026-11-05T02:00:00Z", violations=1, first_seed=8),
        night_of("2/2", "2026-11-05T03:00:00Z", violations=1),
    ):
        night_store.add(store, one)

    (found,) = trends(store)

    assert [(one.first, one.last) for one in found.findings] == [("2026-11-05T01:00:00Z", "2026-11-05T02:00:00Z")]


@pytest.mark.parametrize(
    "name", [pytest.param("nights", id="a night"), pytest.param("ann's \\ nights", id="one with a quote in its name")]
)
def test_a_night_that_was_killed_and_went_on_is_there_as_it_ended(tmp_path: Path, name: str):
    """What it did behind the kill was never added, and `nightly --nights` said that it was."""
    store = str(tmp_path / "nights")
    ended = msgspec.structs.replace(night(1, violations=2, runs=200), name=name)
    killed = msgspec.structs.replace(night(1, runs=50), name=name, state=NightState.RUNNING, canaries=[])
    other = msgspec.structs.replace(night(2), name=name)
    for one in (other, killed):
        night_store.add(store, one)

    assert set(night_store.add(store, ended)) == set(night_store.TABLES.values())

    assert [(row.began[8:10], row.runs, row.word) for row in rows(store, NightRow)] == [
        ("01", 200, "RED"),
        ("02", 100, "green"),
    ]
    assert [(row.began[8:10], row.runs) for row in rows(store, SweepRow)] == [("01", 200), ("02", 100)]
    assert [row.mutant for row in rows(store, KnownBugRow)] == ["M01", "M01"]
    assert [one.signature for one in rows(store, FindingRow)] == ["lost acks=all"]
    assert night_store.add(store, killed) == night_store.add(store, ended) == []


def test_two_nights_that_began_in_one_second_are_both_added(tmp_path: Path):
    """Two jobs of one schedule begin together; the second one passed for the first, which had been added."""
    store, first_ns = str(tmp_path / "nights"), 1_764_464_711 * 10**9 + 123_456_789
    began = [moment(first_ns), moment(first_ns + 20_000_000)]

    for at in began:
        night_store.add(store, msgspec.structs.replace(night(1), began=at))

    assert began == ["2025-11-30T01:05:11.123Z", "2025-11-30T01:05:11.143Z"]
    assert sorted(row.began for row in rows(store, NightRow)) == began
