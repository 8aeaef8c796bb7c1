"""The night's tables: every night adds its rows, and each is seen in the light of the others."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tribunal.checkers.spark import night_tables
from tribunal.checkers.spark.session import session
from tribunal.results.night import Canary, FoundTonight, Night, Swept

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with session("local[1]") as spark:
        yield spark


def night(day: int, runs: int, *, found: bool, probes: dict[str, int]) -> Night:
    return Night(
        name="my-log",
        began=f"2026-11-{day}T02:00:00Z",
        commit="c",
        lock_sha256="l",
        shard="1/1",
        budget_s=60.0,
        first_seed=day,
        swept=[Swept(scenario="s", runs=runs, seconds=60.0, simulated_ms=1000 * runs)],
        canaries=[Canary(mutant="m", scenario="s", found=found, seen_by=["x"], seeds=2, seconds=9.0, note="")],
        found=[
            FoundTonight(
                signature="lost", state="new", known_as="", count=2, scenarios=["s"], seeds=[day], claim="", run_dirs=[], again=""
            )
        ],
        probes=probes,
        cold=["never"],
    )  # fmt: skip


def rows(folder: Path) -> list[dict[str, Any]]:
    return sorted(pq.read_table(folder).to_pylist(), key=lambda row: (row["began"], str(row)))


def test_a_night_continues_the_tables_of_the_last_one(tmp_path: Path, spark: Any) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    night_tables.write(spark, [night(20, 100, found=True, probes={"elr": 5})], first)

    folders = night_tables.write(spark, [night(21, 150, found=False, probes={"elr": 6})], second, before=first)

    trend = [row for row in rows(folders["trend"]) if row["figure"] == "runs per CPU minute"]
    assert [(row["value"], row["before"], row["change"]) for row in trend] == [(100, None, None), (150, 100, 50)]
    assert [(row["found"], row["nights_found"], row["nights"]) for row in rows(folders["power"])] == [
        (True, 1, 2), (False, 1, 2),
    ]  # fmt: skip
    reached = {(row["began"][8:10], row["probe"]): row for row in rows(folders["probes"])}
    assert reached["21", "elr"]["per_thousand_runs"] == 40
    assert reached["21", "elr"]["count_of_all_nights"] == 11
    assert reached["20", "never"]["is_cold"]
    assert {row["first_seen"] for row in rows(folders["findings"])} == {"2026-11-20T02:00:00Z"}


@pytest.mark.nightly
def test_a_night_that_is_written_again_over_itself_counts_once(tmp_path: Path, spark: Any) -> None:
    for _ in range(2):
        folders = night_tables.write(spark, [night(20, 100, found=True, probes={})], tmp_path, before=tmp_path)

    assert len(rows(folders["power"])) == 1
