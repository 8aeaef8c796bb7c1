"""A run that has left something to heal is removed by no campaign: what it left is undone from the journal in its folder alone."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.harness.test_nightly import REAL, TERMS, night_in
from tests.harness.test_repetition import NO, SOUGHT
from tribunal.harness.campaign.artefacts import within
from tribunal.harness.campaign.repetition import Repeated, SequentialTest
from tribunal.harness.fault_journal import FILE
from tribunal.results.verdict import RunVerdict, Verdict


def a_run(folder: Path, *, has_left: bool) -> Path:
    folder.mkdir(parents=True)
    (folder / "content").write_bytes(bytes(1000))
    if has_left:
        (folder / FILE).write_text("{}")
    return folder


def test_a_size_limit_takes_no_run_that_is_to_be_healed(tmp_path):
    for name, has_left in (("a", True), ("b", False)):
        a_run(tmp_path / name, has_left=has_left)

    assert within(tmp_path, 0, []) == ["run b was not kept: the size limit"]
    assert (tmp_path / "a" / FILE).is_file()


@pytest.mark.parametrize("has_left", [True, False])
def test_a_night_keeps_a_passing_run_that_is_to_be_healed(tmp_path, has_left):
    def conduct(plan, folder):
        verdict = RunVerdict(run_id="real", verdict=Verdict.PASS, claim="all is well", findings=[])
        return SimpleNamespace(run_dir=a_run(folder / "real", has_left=has_left), verdict=verdict)

    night_in(tmp_path, text=REAL, conduct=conduct, **TERMS).run()

    assert (tmp_path / "out" / "runs" / "real").is_dir() is has_left


@pytest.mark.parametrize("has_left", [True, False])
def test_a_repeated_run_that_is_to_be_healed_stays(tmp_path, has_left):
    runner = Repeated(lambda plan, out: (a_run(out / "1", has_left=has_left), NO), SOUGHT, SequentialTest())

    assert not runner.attempt(None, tmp_path).shows
    assert (tmp_path / "1").is_dir() is has_left
