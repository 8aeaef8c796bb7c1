"""Files of a large recording are looked at in many tasks: what they say is what one task says that looks at all of them."""

import itertools
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checkers.recorded import Run
from tribunal.checkers.judge import engine, files
from tribunal.checkers.judge.files import FileSeen, spans
from tribunal.checkers.judge.tables import Damage
from tribunal.results.validation import all_different
from tribunal.results.values import value_of

SEQUENCES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40)), max_size=12)


def dealt_out(monkeypatch: pytest.MonkeyPatch, values: int = 2) -> None:
    monkeypatch.setattr(files, "DEALT_BYTES", 0)
    monkeypatch.setattr(files, "TOGETHER_BYTES", 1)
    monkeypatch.setattr(files, "TOGETHER_VALUES", values)


def seen(held: dict[str, np.ndarray]) -> list[FileSeen]:
    return [
        FileSeen("run", "sends", name, spans([values]), not all_different([values])) for name, values in held.items()
    ]


@settings(max_examples=300, deadline=None)
@given(st.lists(SEQUENCES, max_size=5), st.integers(1, 9))
def test_windows_find_every_value_that_stands_twice_and_no_other(
    by_file: list[list[tuple[int, int]]], together: int
) -> None:
    held = {str(at): np.array([value_of(*pair) for pair in pairs], np.int64) for at, pairs in enumerate(by_file)}
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(files, "TOGETHER_VALUES", together)

        windows = files.windows(seen(held))

    different = [files.differ([held[path] for path in own.paths], own.wanted) for own in windows]
    every = np.concatenate([np.zeros(0, np.int64), *held.values()])
    assert all(different) == (np.unique(every).size == every.size)


def test_files_that_share_no_sequences_are_not_looked_at_again() -> None:
    held = {
        str(at): np.array([value_of(process, at * 8 + n) for process in (1, 2) for n in range(8)]) for at in range(9)
    }

    assert files.windows(seen(held)) == []


def test_a_window_is_looked_for_only_in_files_that_reach_into_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two partitions written at the same time: what one file may share stands in its neighbours, not in all."""
    monkeypatch.setattr(files, "TOGETHER_VALUES", 100)
    held = {
        f"{partition}/{at}": np.array([value_of(1, at * 100 + 2 * n + partition) for n in range(50)])
        for at, partition in itertools.product(range(20), range(2))
    }

    windows = files.windows(seen(held))

    assert len(windows) == 20
    assert max(len(own.paths) for own in windows) <= 4
    assert all(files.differ([held[path] for path in own.paths], own.wanted) for own in windows)


def a_run(folder: Path, *, twice: bool) -> Path:
    run = Run(folder)
    run.phase("faults", 0, 500)
    values = {offset: run.send(offset, 100 + offset) for offset in range(6)}
    run.recorder.close_segment()
    values |= {offset: run.send(offset, 100 + offset) for offset in range(6, 9)}
    if twice:
        run.send(2, 900, offset=9)
    run.final_read(dict(values))
    run.log(1, values)
    return run.finish()


def one_byte_more(run_dir: Path) -> None:
    path = min((run_dir / "recording" / "polls").glob("tp=t-0/part-*.parquet"))
    path.write_bytes(path.read_bytes()[:4] + b"!" + path.read_bytes()[5:])


def a_file_less(run_dir: Path) -> None:
    max((run_dir / "recording" / "sends").glob("tp=t-0/part-*.parquet")).unlink()


def a_file_twice(run_dir: Path) -> None:
    path = max((run_dir / "recording" / "logs").glob("tp=t-0/part-*.parquet"))
    path.with_name("part-99999.parquet").write_bytes(path.read_bytes())


def no_parquet(run_dir: Path) -> None:
    path = max((run_dir / "recording" / "sends").glob("tp=t-0/part-*.parquet"))
    path.write_bytes(path.read_bytes()[:-30])


def unknown_to_the_manifest(run_dir: Path) -> None:
    path = run_dir / "manifest.json"
    path.write_text(path.read_text().replace('"probes"', '"probed"'))


def run_level(run_dir: Path) -> list[Damage]:
    return [row for row in engine.judge_runs([run_dir], "inline").damages if row.place.partition is None]


@pytest.mark.parametrize("twice", [False, True], ids=["each value once", "a value twice"])
@pytest.mark.parametrize("spoil", [None, one_byte_more, a_file_less, a_file_twice, no_parquet, unknown_to_the_manifest])
def test_what_is_wrong_with_files_is_said_in_the_same_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path], None] | None, twice: bool
) -> None:
    run_dir = a_run(tmp_path / "run", twice=twice)
    if spoil is not None:
        spoil(run_dir)
    whole = run_level(run_dir)

    dealt_out(monkeypatch)

    assert run_level(run_dir) == whole
    assert bool(whole) == (twice or spoil is not None)


@pytest.mark.parametrize("together", [1, 3, 1000])
def test_a_value_that_stands_in_two_files_far_apart_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    dealt_out(monkeypatch, together)
    random = Random(together)
    run = Run(tmp_path / "run")
    for sequence in random.sample(range(40), 40):
        run.send(sequence, 100 + sequence, offset=sequence)
        if random.random() < 0.3:
            run.recorder.close_segment()
    run.recorder.close_segment()
    run.send(7, 900, offset=50)

    (damage,) = run_level(run.finish())

    assert damage.words.endswith(f"value {value_of(7, 7)} was sent twice")
    assert damage.table == "sends"
