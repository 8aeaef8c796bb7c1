"""Consumers' positions, in pairs: asked on where it should, and not."""

from pathlib import Path

import pytest

from tests.checkers.recorded import Run
from tribunal.checkers.judge import engine


def facts(run_dir: Path) -> list[tuple[str, str, int | None]]:
    found = [row.finding for row in engine.judge_runs([run_dir], "inline").findings]
    return [(one.kind, one.severity, one.log_offset) for one in found if one.property_name == "consumers"]


@pytest.mark.parametrize(
    ("second", "found"),
    [
        pytest.param([2, 3], [], id="where the first poll ended"),
        pytest.param([3], [("skipped", "violation", 2)], id="beyond a record"),
        pytest.param([1, 2], [("rewound", "violation", 1)], id="at one it had already"),
    ],
)
def test_a_consumer_goes_on_where_it_was(tmp_path: Path, second: list[int], found: list[object]) -> None:
    run = Run(tmp_path / "run")
    values = dict(enumerate(run.send(sequence, 100 + sequence) for sequence in range(4)))
    run.read({0: values[0], 1: values[1]}, 200)
    run.read({offset: values[offset] for offset in second}, 300)
    run.final_read(dict(values))

    assert facts(run.finish()) == found


def test_a_transaction_marker_is_not_skipped(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    values = {offset: run.send(offset, 100 + offset) for offset in (0, 1, 3)}
    run.read({0: values[0], 1: values[1]}, 200)
    run.read({3: values[3]}, 300)
    run.final_read(dict(values))

    assert facts(run.finish()) == []


def test_two_consumers_are_not_compared(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    values = dict(enumerate(run.send(sequence, 100 + sequence) for sequence in range(4)))
    run.read({2: values[2], 3: values[3]}, 200, process=90)
    run.read({0: values[0], 1: values[1]}, 300, process=91)
    run.final_read(dict(values))

    assert facts(run.finish()) == []
