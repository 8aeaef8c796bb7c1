"""Transactions, groups and the quorum in the timeline: what is drawn is what the recording says."""

from pathlib import Path

import pytest

from tests.checkers.recorded import MS, Run
from tribunal.results.report.layout import drawing
from tribunal.results.report.model import Page, page
from tribunal.results.report.participants import MOST_LANES, Participants, participants
from tribunal.results.report.window import Window
from tribunal.results.store import Recording
from tribunal.results.verdict import RunVerdict, Verdict, save

END_NS = 60_000 * MS


def transaction(run: Run, txn_id: str, begin: int, end: int | None, outcome: str) -> None:
    run.recorder.row(
        "txns", process=1, txn_id=txn_id, begin_ns=begin * MS, end_ns=None if end is None else end * MS, outcome=outcome
    )


def commit(run: Run, process: int, at: int, *, generation: int, outcome: str = "ok") -> None:
    run.recorder.row(
        "commits", process=process, group="g", generation=generation, topic="t", partition=0, kind="commit",
        committed_offset=1, invoke_ns=at * MS, complete_ns=(at + 5) * MS, outcome=outcome,
    )  # fmt: skip


def read(run: Run) -> Participants:
    return participants(Recording.open(run.finish()), END_NS)


def test_transactions_that_follow_each_other_are_one_stretch_until_one_is_aborted(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    for begin in range(1_000, 1_200, 40):
        transaction(run, "a", begin, begin + 10, "committed")
    transaction(run, "a", 1_200, 4_000, "aborted")
    transaction(run, "a", 4_010, None, "info")

    lanes = read(run).transactions

    assert lanes is not None
    seen = [(one.label, one.start_ns // MS, one.end_ns // MS, one.count) for one in lanes.stretches]
    assert seen == [("committed", 1_000, 1_170, 5), ("aborted", 1_200, 4_000, 1), ("unknown", 4_010, 60_000, 1)]


def test_a_pause_that_can_be_seen_parts_them(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    transaction(run, "a", 1_000, 1_010, "committed")
    transaction(run, "a", 1_200, 1_210, "committed")

    lanes = read(run).transactions

    assert lanes is not None
    assert [one.count for one in lanes.stretches] == [1, 1]


def test_of_many_transactional_ids_those_with_trouble_are_shown(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    for number in range(MOST_LANES + 3):
        transaction(run, f"id-{number}", 1_000, 1_010, "committed")
    transaction(run, "id-8", 2_000, 3_000, "aborted")

    lanes = read(run).transactions

    assert lanes is not None
    assert lanes.left_out == 3
    assert "id-8" in {one.lane for one in lanes.stretches}


def test_a_partitions_commits_change_hands_with_the_generation(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    for at in (1_000, 3_000, 5_000):
        commit(run, 101, at, generation=1)
    commit(run, 101, 6_000, generation=1, outcome="fail")
    commit(run, 102, 7_000, generation=2)

    lanes = read(run).groups

    assert lanes is not None
    seen = [(one.label, one.kind, one.start_ns // MS, one.end_ns // MS) for one in lanes.stretches]
    assert seen == [
        ("101 g1", "member", 1_000, 5_005),
        ("101 g1", "aborted", 6_000, 6_005),
        ("102 g2", "member", 7_000, 7_005),
    ]


def test_the_quorum_is_drawn_where_it_had_another_epoch(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    for offset, (epoch, at) in enumerate([(1, 1_000), (1, 2_000), (4, 9_000)], start=100):
        run.recorder.row(
            "metadata", metadata_offset=offset, quorum_epoch=epoch, at_ns=at * MS, record_type="NoOpRecord", body="{}"
        )

    lanes = read(run).quorum

    assert lanes is not None
    assert [(one.label, one.end_ns // MS) for one in lanes.stretches] == [("epoch 1", 2_000), ("epoch 4", 60_000)]


def test_a_run_without_any_has_no_tracks_of_them(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.send(1, 1_000, offset=0)

    assert read(run) == Participants()


@pytest.mark.parametrize(
    ("outcome", "kind"), [("committed", "quiet"), ("aborted", "refused hatched"), ("info", "open hatched")]
)
def test_a_bar_shows_how_a_transaction_ended(tmp_path: Path, outcome: str, kind: str) -> None:
    run = Run(tmp_path / "run")
    transaction(run, "a", 10_000, 40_000, outcome)
    verdict = RunVerdict(run_id="r", verdict=Verdict.PASS, claim="", findings=[], engine="inline")
    page = Page(run_dir=tmp_path, verdict=verdict, manifest=None, damage=None, end_ns=END_NS, participants=read(run))

    (track,) = drawing(page).tracks

    assert track.title.startswith("Transactions")
    assert [(bar.kind, bar.title.split(",")[0]) for bar in track.bars] == [
        (kind, f"a: {'outcome unknown' if outcome == 'info' else outcome}")
    ]


def test_a_broker_that_registered_twice_has_two_epochs_and_one_that_amended_its_registration_has_one(
    tmp_path: Path,
) -> None:
    run = Run(tmp_path / "run")
    run.registered(2, at=20_000, previous=1)
    run.metadata("RegisterBrokerRecord", 30_000, broker_id=3, broker_epoch=2, fenced=False)  # the same epoch as before

    lanes = read(run).broker_epochs

    assert lanes is not None
    seen = [(one.lane, one.label, one.start_ns // MS, one.end_ns // MS) for one in lanes.stretches]
    assert seen == [
        ("broker 1", "epoch 0", 0, 60_000),
        ("broker 2", "epoch 1", 0, 20_000),
        ("broker 2", "epoch 4", 20_000, 60_000),
        ("broker 3", "epoch 2", 0, 60_000),
    ]


def min_isr_set(run: Run, at: int, *, to: str | None, kind: int = 2, of: str = "t") -> None:
    run.metadata("ConfigRecord", at, resource_type=kind, resource_name=of, name="min.insync.replicas", value=to)


def titles(run: Run) -> list[str]:
    run.send(1, 1_000, offset=0)
    run_dir = run.finish()
    save(RunVerdict(run_id="run", claim="", verdict=Verdict.PASS), run_dir / "verdict.json")
    return [track.title for track in drawing(page(run_dir)).tracks if "ISR" in track.title]


def test_the_title_of_the_isr_says_min_isr(tmp_path: Path) -> None:
    assert titles(Run(tmp_path / "run")) == ["t-0: ISR (solid) and ELR (hatched), min ISR 2"]


def test_a_change_of_min_isr_is_in_the_title_and_one_of_another_topic_is_not(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    min_isr_set(run, 0, to="1")
    min_isr_set(run, 5_000, to="3", of="u")
    min_isr_set(run, 6_000, to="3")
    min_isr_set(run, 7_000, to=None)

    assert titles(run) == ["t-0: ISR (solid) and ELR (hatched), min ISR 1, then 3, then 2"]


def test_a_latency_stands_at_the_end_of_its_line_with_its_value(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.send(1, 1_000, offset=0)
    run_dir = run.finish()
    save(RunVerdict(run_id="run", claim="", verdict=Verdict.PASS), run_dir / "verdict.json")
    found = page(run_dir)

    (track,) = [track for track in drawing(found).tracks if track.title.startswith("Latency")]

    assert found.rates is not None
    last = [one for one in found.rates.latencies["max"] if one is not None][-1]
    assert [line.label for line in track.lines] == [f"{name} {last / 1e6:.3g} ms" for name in ("max", "p99", "p50")]


def test_a_window_shows_no_broker_epoch_that_was_over_before_it(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.registered(2, at=2_000, previous=1)
    for at in (1_000, 9_000):
        run.send(at, at, offset=at // 1_000)
    run_dir = run.finish()
    save(RunVerdict(run_id="run", claim="", verdict=Verdict.PASS), run_dir / "verdict.json")
    window = Window(start_ns=5_000 * MS, end_ns=8_000 * MS)

    (track,) = [track for track in drawing(page(run_dir, window)).tracks if track.title.startswith("Broker epochs")]

    assert [bar.text for bar in track.bars] == ["epoch 0", "epoch 4", "epoch 2"]


def test_an_edge_parts_two_broker_epochs_in_a_row_and_two_leader_epochs_of_one_leader(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.registered(2, at=2_000, previous=1)
    for at in (3_000, 4_000):
        run.change(at, leader=1)  # again, in a later leader epoch
    run.change(5_000, leader=2)
    run.send(9_000, 9_000, offset=0)
    run_dir = run.finish()
    save(RunVerdict(run_id="run", claim="", verdict=Verdict.PASS), run_dir / "verdict.json")

    tracks = {track.title: track for track in drawing(page(run_dir)).tracks}

    epochs = next(track for title, track in tracks.items() if title.startswith("Broker epochs"))
    assert [(bar.text, bar.is_next) for bar in epochs.bars] == [
        ("epoch 0", False), ("epoch 1", False), ("epoch 4", True), ("epoch 2", False),
    ]  # fmt: skip
    led = [(bar.text, bar.is_next) for bar in tracks["Leader and leader epoch"].bars]
    assert led == [("1 e0", False), ("1 e1", True), ("1 e2", True), ("2 e3", False)]
