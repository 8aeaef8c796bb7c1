"""What the harness itself cuts off is known to the judge: whom it cut off, and when, excuses as a fault of them would, and nothing else."""

from pathlib import Path

import pytest

from tests.checkers.recorded import Run
from tests.checkers.test_quorum_silence import BACK, DIED, END, Quorum, accused
from tests.checkers.test_sql import agree
from tribunal.checkers.judge.verdict import check
from tribunal.results.rows import Phase, cut_off


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


def test_a_phase_names_whom_the_harness_cut_off() -> None:
    assert Phase(name=cut_off([103, 2])).cut_off == (2, 103)
    assert [Phase(name=name).cut_off for name in ("heal", "cut-off", "cut-off two", "")] == [(), (), (), ()]


@pytest.mark.parametrize(
    ("name", "since", "until", "expected"),
    [
        pytest.param("cut-off 2 102", DIED, BACK, [], id="a second controller was cut off"),
        pytest.param("cut-off 2 102", DIED + 20_000, BACK, [], id="what was left was short"),
        pytest.param("cut-off 2 102", DIED, DIED + 25_000, ["quorum_commits_nothing"], id="it was cut off for a while"),
        pytest.param("cut-off 2", DIED, BACK, ["quorum_commits_nothing"], id="brokers were cut off"),
        pytest.param("cut-off 2 101", DIED, BACK, ["quorum_commits_nothing"], id="who was dead was cut off, too"),
        pytest.param("heal", DIED, BACK, ["quorum_commits_nothing"], id="nobody was cut off"),
    ],
)
def test_a_quorum_whose_majority_was_cut_off_may_be_silent(
    tmp_path: Path, name: str, since: int, until: int, expected: list[str]
) -> None:
    run = Quorum(tmp_path / "run")
    run.commits(0, DIED)
    run.dies()
    run.phase(name, since, until)
    run.commits(BACK, END)

    assert accused(run) == expected


@pytest.mark.parametrize(
    ("name", "since", "until", "expected"),
    [
        pytest.param("cut-off 2", 500, 8000, 0, id="cut off, so that it may not know"),
        pytest.param("cut-off 2", 500, 1250, 0, id="mended, and not settled"),
        pytest.param("cut-off 2", 4000, 8000, 1, id="it knew before"),
        pytest.param("cut-off 2", 100, 300, 1, id="cut off before"),
        pytest.param("heal", 500, 8000, 1, id="nobody was cut off"),
    ],
)
def test_a_leader_that_the_harness_hinders_may_not_know_that_its_isr_is_too_small(
    run: Run, name: str, since: int, until: int, expected: int
) -> None:
    run.change(1000, isr=[1])
    run.phase(name, since, until)
    run.metadata("NoOpRecord", 9000)
    run.send(0, at=3000)

    assert agree(run.finish(), "min_isr")["acknowledged_below_min_isr"] == expected


@pytest.mark.parametrize(
    ("name", "since", "until", "expected"),
    [
        pytest.param("cut-off 101", 300, 4_500, 0, id="cut off all the time"),
        pytest.param("cut-off 101", 300, 2_000, 1, id="mended, and nobody was elected"),
        pytest.param("cut-off 101", 3_000, 4_900, 1, id="nobody was elected before"),
        pytest.param("heal", 300, 4_500, 1, id="nobody was cut off"),
    ],
)
def test_nobody_has_to_be_elected_while_the_harness_cuts_nodes_off(
    run: Run, name: str, since: int, until: int, expected: int
) -> None:
    run.send(0, 100)
    run.change(200, leader=-1, isr=[2])
    run.phase(name, since, until)
    run.metadata("NoOpRecord", 5_000)

    assert agree(run.finish(), "led")["leaderless"] == expected


def test_it_is_no_phase_whose_load_counts_a_second_time(run: Run) -> None:
    values = {offset: run.send(offset, 700 + offset) for offset in range(3)}
    run.phase("heal", 600, 800)
    run.phase("cut-off 2", 650, 750)
    run.final_read(dict(values), 900)

    (verdict,) = check([run.finish()], "inline")

    assert [(row.phase, row.ok) for row in verdict.test.load] == [("heal", 3)]
