"""The curves of a report's timeline: they show what was recorded, and say beside themselves what there is to see."""

from itertools import combinations
from pathlib import Path

import pytest

from tests.checkers.recorded import MS, Run
from tribunal.results.report.layout import CHARACTER, Line, Track, drawing
from tribunal.results.report.model import Page, Rates, page
from tribunal.results.store import Recording
from tribunal.results.verdict import Finding, RunVerdict, Verdict, save


def drawn(run: Run, *findings: Finding) -> list[Track]:
    run_dir = run.finish()
    verdict = RunVerdict(run_id="r", verdict=Verdict.VIOLATION, claim="", findings=list(findings))
    save(verdict, run_dir / "verdict.json")
    Recording.open(run_dir)
    return drawing(page(run_dir)).tracks


def log_end(tracks: list[Track], observer: str) -> Line:
    (line,) = [
        line for track in tracks if not track.is_lens for line in track.lines if line.name == f"{observer} log end"
    ]
    return line


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(tmp_path / "run")
    for sequence in range(200):
        run.send(sequence, 100 + sequence)
    return run


def test_what_a_follower_reported_once_is_a_point_and_no_line(run: Run) -> None:
    """It was drawn as if its log had ended there until the next report, while it fetched on."""
    for at, end in ((0, 0), (500, 150)):
        run.watermark(None, at, epoch=0, observer="node-2", log_end_offset=end)
    for at in range(0, 400, 100):
        run.watermark(at // 2, at, epoch=0, observer="node-1", log_end_offset=at // 2)
    run.final_read({})

    tracks = drawn(run)

    follower, leader = log_end(tracks, "node-2"), log_end(tracks, "node-1")
    assert follower.path.count("M") == follower.marks.count("M") == 2
    assert "H" not in follower.path
    assert [value for _, value in follower.values] == [0, -1, 150, -1]  # for the read-out: it is not known in between
    assert (leader.path.count("M"), leader.path.count("H"), leader.marks) == (1, 3, "")


def test_who_was_deposed_has_no_line_until_it_leads_again(run: Run) -> None:
    for at, epoch, high_watermark in ((0, 0, 0), (100, 0, 50), (800, 2, 150), (900, 2, 160)):
        run.watermark(high_watermark, at, epoch=epoch, log_end_offset=high_watermark)
    run.final_read({})

    lines = [line for track in drawn(run) for line in track.lines if line.name in ("node-1", "node-1 log end")]

    assert [(line.path.count("M"), line.path.count("H")) for line in lines] == [(2, 2), (2, 2)]


def test_it_is_said_which_log_was_cut_from_where_to_where(run: Run) -> None:
    lost = Finding(
        property_name="lost_writes",
        kind="lost",
        severity="violation",
        explanation="gone",
        topic="t",
        partition=0,
        log_offset=120,
    )
    run.send(200, 2_000)  # so that there is room beside the points
    run.watermark(160, 300, epoch=0, log_end_offset=160)
    for end in (160, 110):
        run.watermark(None, 400, epoch=1, log_end_offset=end)
    run.watermark(None, 400, epoch=1, observer="node-2", log_end_offset=115)
    run.final_read({})

    charts = {
        track.is_lens: [one.text for one in track.words]
        for track in drawn(run, lost)
        if track.title.startswith("t-0: ") and track.high
    }

    assert charts[False] == ["node-1: 160 → 110"]
    assert sorted(charts[True]) == ["node-1: 160 → 110", "node-2 ends at 115"]


def test_words_at_curves_do_not_cover_each_other(run: Run) -> None:
    for at in range(100, 900, 20):
        run.watermark(160 - at // 10, at, epoch=0)
        run.watermark(None, at, epoch=0, observer="node-2", log_end_offset=160)
        run.watermark(None, at, epoch=0, observer="node-2", log_end_offset=160 - at // 10)
    run.final_read({})

    words = [track.words for track in drawn(run) if track.words]

    assert words
    for said in words:
        for one, other in combinations(said, 2):
            (left, right), (begin, end) = (
                (each.x - width * (each.anchor == "end"), each.x + width * (each.anchor == "start"))
                for each in (one, other)
                for width in (len(each.text) * CHARACTER,)
            )
            assert left >= end or right <= begin or abs(one.y - other.y) >= 12


def test_failures_have_a_scale_of_their_own(tmp_path: Path) -> None:
    """Ten failures beside ten thousand records were a line at the bottom, and what failed was one with what nobody knows."""
    counts = {"ok": [10_000, 10_000], "sent": [0, 0], "fail": [0, 10], "info": [3, 0]}
    verdict = RunVerdict(run_id="r", verdict=Verdict.PASS, claim="")
    shown = Page(
        run_dir=tmp_path,
        verdict=verdict,
        manifest=None,
        damage=None,
        end_ns=2_000 * MS,
        rates=Rates(1_000 * MS, counts),
    )

    good, bad = [track for track in drawing(shown).tracks if "per second" in track.title]

    assert ([line.label for line in good.lines], good.high) == (["accepted"], 10_000)
    assert (sorted(line.label for line in bad.lines), bad.high) == (["failed", "nobody knows"], 10)
    assert {one.text for one in bad.words} == {"failed: up to 10", "nobody knows: up to 3"}
