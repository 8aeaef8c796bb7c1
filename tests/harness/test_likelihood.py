"""How likely a finding was from a moment on: before it a continued run is the run itself, behind it chance is another."""

from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from tests.seeds.test_replay_and_shrink import plan
from tribunal.clusters.simulated.loop import SimulatedLoop
from tribunal.harness.campaign.likelihood import Measured, NotFound, halved
from tribunal.harness.campaign.runners import LocalRunner
from tribunal.harness.plan import DrawnAnew
from tribunal.harness.progress import Silent
from tribunal.harness.simulated import conduct_simulated
from tribunal.results.likelihood import Likelihood, Moment, read, save
from tribunal.results.report.likelihood import curve

S = 1_000_000_000


def test_streams_in_use_and_later_ones_are_drawn_anew_and_what_belongs_to_the_run_stays():
    one, other, same = (SimulatedLoop.create(7) for _ in range(3))
    streams = [loop.random("network/a->b") for loop in (one, other, same)]
    assert len({stream.random() for stream in streams}) == 1

    for loop, seed in ((one, 1), (other, 2), (same, 1)):
        loop.draw_anew(seed)

    first, second, third = (stream.random() for stream in streams)
    assert first == third != second
    first, second, third = (loop.random("node-1/disk").random() for loop in (one, other, same))
    assert first == third != second
    assert len({loop.random("points/flush").random() for loop in (one, other, SimulatedLoop.create(7))}) == 1


def test_a_run_that_is_continued_with_other_chance_is_the_run_itself_before_that(tmp_path: Path):
    def sends(name: str, drawn_anew: DrawnAnew | None) -> tuple[str, list[tuple[int, int]]]:
        folder = tmp_path / name
        _, known = conduct_simulated(msgspec.structs.replace(plan(), drawn_anew=drawn_anew), folder, Silent())
        rows = [
            row
            for path in sorted((folder / "recording" / "sends").rglob("*.parquet"))
            for row in pq.read_table(path, columns=["value", "complete_ns"]).to_pylist()
        ]
        return known.trace_hash, sorted((row["complete_ns"] or 0, row["value"]) for row in rows)

    (_, whole), (first, one), (again, _), (other, _) = (
        sends("whole", None),
        sends("one", DrawnAnew(at_ns=2 * S, seed=1)),
        sends("again", DrawnAnew(at_ns=2 * S, seed=1)),
        sends("other", DrawnAnew(at_ns=2 * S, seed=2)),
    )

    before = [row for row in whole if row[0] < 2 * S]
    assert before
    assert before == [row for row in one if row[0] < 2 * S]
    assert whole != one
    assert first == again != other


def test_at_its_end_a_run_can_no_longer_avoid_what_it_shows(tmp_path: Path):
    said: list[tuple[int, int]] = []
    measured = Measured(
        plan(mutants=("m44_acks_local",)), tmp_path, each=1, runner=LocalRunner(2),
        notify=lambda moment, count: said.append((count, 0)), under_way=lambda *where: said.append(where),
    )  # fmt: skip

    found = measured.likelihood(2, 60 * S)

    assert [moment.at_ns for moment in found.moments] == [0, 60 * S]
    assert (found.moments[-1].shown, found.moments[-1].runs) == (1, 1)
    assert found.sealed_ns is not None
    assert said == [(0, 1), (1, 0), (1, 1), (2, 0)], "after each run how far it is, and each moment; not the run itself"


def test_a_run_that_shows_nothing_has_no_likelihood(tmp_path: Path):
    with pytest.raises(NotFound, match="shows nothing when it is run again"):
        Measured(plan(), tmp_path).likelihood(2, S)


def moment(at_s: float, shown: int, runs: int = 10) -> Moment:
    return Moment(at_ns=int(at_s * S), runs=runs, shown=shown)


def test_the_step_in_which_most_changes_is_halved_until_it_is_too_short():
    assert halved([moment(8, 9), moment(0, 1), moment(4, 2)]) == 6 * S
    assert halved([moment(0, 1), moment(2, 1), moment(6, 1)]) == 4 * S
    assert halved([moment(0, 1), moment(0.0001, 9)]) is None


def test_it_is_sealed_where_every_run_shows_it_there_and_later():
    of = Likelihood(
        signature="x", end_ns=9 * S, each=10, moments=[moment(0, 10), moment(3, 9), moment(6, 10), moment(9, 10)]
    )

    assert of.sealed_ns == 6 * S
    assert msgspec.structs.replace(of, moments=of.moments[:2]).sealed_ns is None


def test_what_was_measured_is_kept_and_drawn_with_intervals_and_damage_is_no_obstacle(tmp_path: Path):
    of = Likelihood(signature="x", end_ns=10 * S, each=10, moments=[moment(0, 0), moment(5, 10), moment(10, 10)])

    save(of, tmp_path)
    drawn = curve(of, 10 * S)

    assert read(tmp_path) == of
    assert drawn.points[1].says == "from 5.000 s on 10 of 10 runs show it (69 to 100 %)"
    assert drawn.points[0].y > drawn.points[1].y
    assert drawn.sealed == drawn.points[1].x
    (tmp_path / "likelihood.json").write_text("{")
    assert read(tmp_path) is None
