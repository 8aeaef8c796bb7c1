"""Runs with transactions and groups are judged in ranges as they are whole: verdict, findings and figures.

The runs are the simulator's, as they came and with anomalies put into them; `test_ranges` has random ones.
"""

from collections.abc import Callable, Mapping, Set
from functools import cache
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest

from tests.checkers.recorded import MS, Run
from tests.checkers.test_ranges import cut_everything, found_whole_and_cut, judged
from tribunal.checkers.calibration.api import classes
from tribunal.checkers.calibration.case import Case
from tribunal.checkers.judge import run_steps
from tribunal.checkers.judge.hot_partitions import Range
from tribunal.checkers.judge.items import FollowAgain, SieveRange, Suspects, work_items
from tribunal.checkers.judge.judge import judge_item, second_look
from tribunal.checkers.judge.tables import Tables
from tribunal.harness.campaign.calibrate import copy_with, injections
from tribunal.harness.catalog import scenario_file
from tribunal.harness.plan import made
from tribunal.harness.progress import Silent
from tribunal.harness.scenario import load
from tribunal.harness.simulated import conduct_simulated
from tribunal.results.store import Recording

SCENARIO = """
scenario: {name}
about: transactions, and consumers beside them
cluster: {{brokers: 3, controllers: 3, replication_factor: 3, min_insync_replicas: 2, profile: ci,
           settings: {{group.min.session.timeout.ms: 1000}}}}
workload: {{{workload}}}
time: {time}
steps:
  - {{kill: leader(p0), for: 2s}}
"""
RUNS = {
    "exactly": ("name: exactly-once, session_timeout_ms: 2500", "7s"),
    "messages": ("name: transactions", "7s"),
    "bank": ("name: bank", "5s"),
    "lists": ("name: list-append", "5s"),
}
M82 = "m82_aborted_in_one_segment"
SEED_OF_M82 = 0  # one that shows an aborted record as committed


def simulated(folder: Path, scenario: str, *, seed: int = 1, on: tuple[str, ...] = ()) -> Path:
    folder.mkdir(parents=True)
    plan = made(load(scenario_file(scenario), {}), seed=seed, cluster="simulated", time_ms=None, mutants=on)
    conduct_simulated(plan, folder, Silent())
    return folder


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    base = tmp_path_factory.mktemp("transactions")

    @cache
    def made_once(name: str) -> Path:
        if name == "m82":
            return simulated(base / name, "small-segments", seed=SEED_OF_M82, on=(M82,))
        path = base / f"{name}.yaml"
        workload, time = RUNS[name]
        path.write_text(SCENARIO.format(name=name, workload=workload, time=time))
        return simulated(base / name, str(path))

    return made_once


@pytest.mark.parametrize(
    ("name", "offsets"),
    [("exactly", 50), ("m82", 90), *(pytest.param(name, 20, marks=pytest.mark.nightly) for name in (*RUNS, "m82"))],
)
def test_a_run_with_transactions_is_judged_in_ranges_as_it_is_whole(
    run_of: Callable[[str], Path], name: str, offsets: int
) -> None:
    found = {kind for kind, severity, _ in found_whole_and_cut(run_of(name), offsets) if severity == "violation"}

    assert ("aborted_read" in found) == (name == "m82")


INJECTED = sorted(name for name, one in classes().items() if one.inject is not None)


@pytest.mark.nightly
@pytest.mark.parametrize("name", [*RUNS, "m82"])
def test_anomalies_in_a_run_with_transactions_are_found_in_ranges_as_they_are_whole(
    run_of: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    case, random = Case(Recording.open(run_of(name))), Random(name)
    for number, (one, injected) in enumerate(injections(case, [classes()[each] for each in INJECTED], 1, seed=0)):
        copy = copy_with(case, injected, tmp_path / f"{number}-{one.name}")
        assert found_whole_and_cut(copy, random.choice([1, 5, 16, 64])), one.name


# --- ranges with transactions are clean where nothing is wrong with them ------------------------


def in_transactions(
    run_dir: Path, outcomes: str, *, kept: str = "c", apart: bool = False
) -> tuple[Run, dict[int, int]]:
    """A run of one record a transaction, which was committed, aborted or left open, and a final read of what is committed.

    outcomes:  a letter a record; kept: those that the final read received.
    apart:     each transaction is written down before the others' sends, in a file of its own.
    """
    run, words = Run(run_dir), {"c": "committed", "a": "aborted", "o": "info"}
    log = {}
    for offset, letter in enumerate(outcomes):
        at = 100 + 10 * offset
        log[offset] = run.send(offset, at, txn_id="x", worker_class="transactional")
        step = {"kind": "send", "topic": "t", "partition": 0, "log_offset": offset, "value": log[offset]}
        began = at * MS - MS if not apart else 0
        ended = None if letter == "o" else began + 5 * MS
        run.recorder.row(
            "txns", process=7, txn_id="x", begin_ns=began, end_ns=ended, outcome=words[letter], operations=[step]
        )
        if apart:
            run.recorder.close_segment()
    run.final_read(
        {offset: log[offset] for offset, letter in enumerate(outcomes) if letter in kept}, isolation="read_committed"
    )
    for node in (1, 2, 3):
        run.log(node, log)
    return run, log


def looked_at_again(run_dir: Path, offsets: int, kind: type[Suspects | FollowAgain] = Suspects) -> list[Range]:
    """Return which ranges are not clean, or which ones readers are followed through again."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        cut_everything(monkeypatch, offsets)
        tables = Tables()
        tables.add(row for item in work_items(run_dir) for row in judge_item(item))
        assert tables.sieved
        items = [item for item in second_look(tables) if isinstance(item, kind)]
    return [own for item in items for component in item.components for own in component.ranges]


@pytest.mark.parametrize("offsets", [2, 5])
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("kept", ["c", "co", "coa"])
def test_what_is_not_committed_may_be_missing_or_there(tmp_path: Path, offsets: int, kept: str, *, apart: bool) -> None:
    """Open ones that the final read shows are committed; aborted ones it may show to whoever did not ask for committed ones alone."""
    run, log = in_transactions(tmp_path / "run", "ccacocac", kept=kept, apart=apart)
    run.read(dict(log), 500, isolation="read_uncommitted")
    run_dir = run.finish()

    found = found_whole_and_cut(run_dir, offsets)

    assert {kind for kind, *_ in found} == ({"aborted_read"} if "a" in kept else set())
    assert looked_at_again(run_dir, offsets) == []


@pytest.mark.parametrize("offsets", [2, 5])
@pytest.mark.parametrize("apart", [False, True])
def test_a_committed_record_that_is_missing_is_found_in_its_range(tmp_path: Path, offsets: int, *, apart: bool) -> None:
    run, _ = in_transactions(tmp_path / "run", "ccacocac", apart=apart)
    missing = run.send(8, 190, txn_id="x", worker_class="transactional")
    step = {"kind": "send", "topic": "t", "partition": 0, "log_offset": 8, "value": missing}
    span = {"begin_ns": 0, "end_ns": 300 * MS}
    run.recorder.row("txns", process=7, txn_id="x", **span, outcome="committed", operations=[step])
    run_dir = run.finish()

    assert found_whole_and_cut(run_dir, offsets) == [("lost", "violation", 8)]
    assert Range(8 // offsets * offsets, min(9, 8 // offsets * offsets + offsets)) in looked_at_again(run_dir, offsets)


@pytest.mark.parametrize("offsets", [2, 5])
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_who_reads_what_is_committed_knows_that_an_open_transaction_was(
    tmp_path: Path, offsets: int, isolation: str
) -> None:
    run, log = in_transactions(tmp_path / "run", "cccocccc")
    run.read({3: log[3]}, 500, isolation=isolation)
    run_dir = run.finish()

    found = found_whole_and_cut(run_dir, offsets)

    known = isolation == "read_committed"
    assert found == ([("unread", "violation", 3)] if known else [])
    assert bool(looked_at_again(run_dir, offsets)) == known


@pytest.mark.parametrize("behind", [0, 3])
def test_only_transactions_of_a_ranges_time_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind: int
) -> None:
    run, _ = in_transactions(tmp_path / "run", "c" * 8)
    run_dir = run.finish()
    for path in (
        *(run_dir / "recording" / "txns").rglob("*.parquet"),
        *(run_dir / "recording" / "sends").rglob("*.parquet"),
    ):
        rows = pq.read_table(path)
        pq.write_table(rows, path, row_group_size=1)
    (run_dir / "manifest.json").unlink()
    cut_everything(monkeypatch, 1)

    items = [item for item in work_items(run_dir) if isinstance(item, SieveRange)]

    assert [group.number for group in items[behind].groups["txns"]] == [behind]


@pytest.mark.parametrize("shown", ["c", "coa"])
@pytest.mark.parametrize(
    ("isolation", "passed_over", "skipped"),
    [
        pytest.param("read_committed", {2, 4, 6}, {"c": [], "coa": []}, id="what is not committed"),
        pytest.param("read_committed", {2, 4, 5, 6}, {"c": [5], "coa": [5]}, id="what is"),
        pytest.param("read_uncommitted", {2, 4, 6}, {"c": [], "coa": [2, 4, 6]}, id="what it asked for"),
    ],
)
def test_a_reader_of_what_is_committed_passes_over_what_is_not(
    tmp_path: Path, isolation: str, passed_over: Set[int], skipped: Mapping[str, list[int]], shown: str
) -> None:
    """Offsets 2 and 6 were aborted, and nobody knows what became of 4."""
    run, log = in_transactions(tmp_path / "run", "ccacocacc", kept=shown)
    run.read({offset: value for offset, value in log.items() if offset not in passed_over}, 500, isolation=isolation)
    run_dir = run.finish()

    found = found_whole_and_cut(run_dir, 3)

    assert [offset for kind, _, offset in found if kind == "skipped"] == skipped[shown]
    # (where it lies at a border it is looked at again, to be sure)
    assert bool(looked_at_again(run_dir, 9, FollowAgain)) == bool(skipped[shown])


@pytest.mark.parametrize("name", sorted(RUNS))
def test_a_partition_that_reads_its_own_steps_alone_is_judged_alike(
    run_of: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As where there are too many to sort all of them."""
    at_once = judged(run_of(name))

    monkeypatch.setattr(run_steps, "AT_ONCE_BYTES", -1)

    assert judged(run_of(name)) == at_once
