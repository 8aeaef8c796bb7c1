"""Who judges where nobody says: Spark, but of small recordings of described systems this process."""

from pathlib import Path

import pytest

from tribunal.harness.cli import engines
from tribunal.harness.cli.engines import engine_for
from tribunal.results.manifest import Made
from tribunal.results.store import Recorder


def recorded(folder: Path, cluster: str) -> Path:
    """Return a run of a kind of cluster."""
    folder.mkdir()
    Recorder(folder, folder.name).finish(Made(seed=1, cluster=cluster))
    return folder


def test_small_recordings_of_described_systems_are_judged_without_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = recorded(tmp_path / "ours", "processes"), recorded(tmp_path / "theirs", "system")

    assert engine_for([theirs]) == "inline"
    assert engine_for([ours]) == "spark"
    assert engine_for([theirs, ours]) == "spark"  # one job judges all
    assert engine_for([]) == "spark"
    monkeypatch.setattr(engines, "SMALL_BYTES", 100)
    assert engine_for([theirs]) == "spark"


def test_a_run_that_was_cut_off_or_damaged_is_sparks(tmp_path: Path) -> None:
    cut_off = recorded(tmp_path / "cut-off", "system")
    (cut_off / "manifest.json").unlink()
    damaged = recorded(tmp_path / "damaged", "system")
    (damaged / "manifest.json").write_text("{")

    assert engine_for([cut_off]) == "spark"
    assert engine_for([damaged]) == "spark"
